/*
 * Notes of what generated code meets: which bytes it reads and writes, and which code runs.
 *
 * A debugger's memory view wants to know that of every instruction. The emulator calls a hook for
 * each access, which makes it ten times slower than it could be. Generated code has room for one
 * more instruction instead: beside each access a store of ones to a table with a byte for each byte
 * of the shadow, with the same address and the same size. Nobody's registers and no flags are
 * touched by that. What the block has noted already, by the same registers, is not noted again.
 *
 * An address that was cut to 32 bits reaches three places: what gs points to, which is the shadow;
 * what fs points to, which is the table of bytes read; and, without either, the first 4 GiB of
 * the address space, where the table of bytes written is. The first 64 KiB of those the kernel
 * keeps for itself (vm.mmap_min_addr). An access there ends generated code with an exception, and
 * so the caller has to emulate it. Nothing else of a process lies there: were something mapped,
 * there would be no table, and no notes.
 *
 * The tables are a file without a name, since of such a one the kernel tells at once which pages
 * there are (lseek(2), SEEK_DATA), and of 8 GiB of other memory it does not.
 *
 * Processors guess which store a load depends on, and a note of a load is a store just before it
 * that is none of these. They compare the last 12 bits of the addresses first (Intel's optimization
 * manual: 4K aliasing), so these are made to differ: the table of bytes read begins in the middle
 * of a page. AMD's compare, for what is relative to rsp, the instructions' displacements first, and
 * of these the last ten bits or so; the segments they do not look at. So there the displacement of
 * such a note differs, too: by SHIFT, which fs is less. doc/replay-code.md has what was measured.
 *
 * Where the kernel has to be asked for fs, it keeps the base that notes want until C needs its own
 * (fast-fault.c).
 *
 * Code is noted by stretches that are passed as a whole: from a block's entry or a conditional
 * branch to the next one. A block notes once what of it ran: where its last stretch begins, or on
 * the way out of its middle. Each of these places has a byte below S, and a store of one.
 */
#include "fast/fast-parts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct fast_notes *fast_notes_here;
bool fast_note_by_avx512 = true;

/* ---- the tables ------------------------------------------------------------------------------ */

#define HALF  2048u /* where the table of bytes read begins in its first page */
#define SHIFT 512u
#define FEW   16u /* pages, of a usual system call's buffer */
/* Around where fs points, of what belongs to a thread: the C library's data of it, and variables.
 */
#define BEHIND (2 * FAST_NOTE_PAGE)
#define BEFORE (16u << 20)
/* In the file: the pages of bytes read, of which there is one more, and those of bytes written. */
#define FOUND_AT 0u
#define WROTE_AT (FAST_NOTE_TABLE + FAST_NOTE_PAGE)
#define FILE_END (WROTE_AT + FAST_NOTE_TABLE)

/* Map the tables; of memory that is no file if there may be none of that size (RLIMIT_FSIZE). */
static bool map_tables(struct fast_notes *n)
{
	const int prot = PROT_READ | PROT_WRITE;
	const size_t first = FAST_NOTE_FIRST, size = FAST_NOTE_TABLE;
	int flags = MAP_SHARED | MAP_NORESERVE;

	n->fd = memfd_create("deja-notes", MFD_CLOEXEC);
	if (n->fd >= 0 && ftruncate(n->fd, (off_t)FILE_END)) {
		close(n->fd);
		n->fd = -1;
	}
	if (n->fd < 0)
		flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	n->low = mmap((void *)first, size - first, prot, flags | MAP_FIXED_NOREPLACE, n->fd,
		      n->fd < 0 ? 0 : (off_t)(WROTE_AT + first));
	n->guard = mmap(NULL, BEFORE + WROTE_AT, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (n->low != (void *)first || n->guard == MAP_FAILED)
		return false;
	n->guard_end = n->guard + BEFORE;
	n->high = mmap(n->guard_end, WROTE_AT, prot, flags | MAP_FIXED, n->fd, FOUND_AT);
	if (n->high == MAP_FAILED)
		return false;
	/* one byte that is noted should cost one small page */
	if (n->fd < 0) {
		madvise(n->low, size - first, MADV_NOHUGEPAGE);
		madvise(n->high, WROTE_AT, MADV_NOHUGEPAGE);
	}
	n->wrote = n->low - first;
	n->found = n->high + HALF;
	return true;
}

/* How fs is set. The table's first pages are kept out of reach if C may run with it (fast-fault.c).
 */
static uint32_t how_set(struct fast_notes *n)
{
	if (fast_sets_bases())
		return FAST_NOTE_SETS;
	if (!EMU_OWN_JUMPS || mprotect(n->high, BEHIND, PROT_NONE))
		return FAST_NOTE_ASKS;
	n->tid = gettid();
	n->guard_end = n->high + BEHIND;
	return FAST_NOTE_LATE;
}

void fast_notes_free(struct fast *f)
{
	struct fast_notes *n = f->notes;

	if (!n)
		return;
	fast_rest(f);
	FAST_U64(f, F_NOTE_FS) = FAST_U64(f, F_NOTE_WIDE) = 0;
	if (n->guard != MAP_FAILED)
		munmap(n->guard, BEFORE + WROTE_AT);
	if (n->low != MAP_FAILED)
		munmap(n->low, FAST_NOTE_TABLE - FAST_NOTE_FIRST);
	if (n->fd >= 0)
		close(n->fd);
	free(n->ran);
	free(n->stretch);
	free(n->seen);
	free(n);
	f->notes = fast_notes_here = NULL;
}

bool fast_note_begin(struct fast *f)
{
	struct fast_notes *n;

	if (fast_notes_here)
		return false;
	n = calloc(1, sizeof(*n));
	if (!n)
		return false;
	f->notes = fast_notes_here = n;
	n->f = f;
	n->low = n->guard = MAP_FAILED;
	FAST_U32(f, F_NOTE_SET) = 0;
	n->fd = -1;
	n->shift = dj_cpu_host() != DJ_CPU_INTEL ? SHIFT : 0;
	n->ran = malloc(FAST_RAN * sizeof(*n->ran));
	n->stretch = malloc(FAST_RAN * sizeof(*n->stretch));
	n->seen = calloc(FAST_NOTE_PAGES, 1);
	if (!n->ran || !n->stretch || !n->seen || !map_tables(n)) {
		fast_notes_free(f);
		return false;
	}
	n->wide = fast_note_by_avx512 && fast_has_avx512();
	FAST_U64(f, F_NOTE_FS) = (uint64_t)(uintptr_t)n->found - n->shift;
	FAST_U64(f, F_NOTE_WIDE) = n->wide;
	FAST_U32(f, F_NOTE_ASKS) = how_set(n);
	fast_flush(f);
	return true;
}

uint8_t *fast_note_byte(const struct fast *f, bool wrote, uint64_t index)
{
	return (wrote ? f->notes->wrote : f->notes->found) + index;
}

/* What is at that place of the file, where it is mapped. */
static uint8_t *mapped(const struct fast_notes *n, uint64_t at)
{
	return at < WROTE_AT ? n->high + (at - FOUND_AT) : n->wrote + (at - WROTE_AT);
}

/* The same as next_there() of memory that is no file. */
static bool next_in_core(const struct fast_notes *n, uint64_t *at, uint64_t *to, uint64_t end)
{
	unsigned char there[4096];
	bool found = false;

	for (uint64_t i = *at, upto; i < end; i = upto) {
		if (i >= WROTE_AT && i < WROTE_AT + FAST_NOTE_FIRST) {
			if (found)
				break;
			i = WROTE_AT + FAST_NOTE_FIRST;
		}
		upto = i + sizeof(there) * FAST_NOTE_PAGE;
		upto = upto < end ? upto : end;
		if (i < WROTE_AT && upto > WROTE_AT)
			upto = WROTE_AT;
		if (i < upto && mincore(mapped(n, i), upto - i, there))
			memset(there, 1, sizeof(there)); /* to look at them does no harm */
		for (uint64_t k = 0; i + k * FAST_NOTE_PAGE < upto; k++) {
			if ((there[k] & 1) == found)
				continue;
			*(found ? to : at) = i + k * FAST_NOTE_PAGE;
			if (found)
				return true;
			found = true;
		}
	}
	/* nothing lies across where one table ends and the other begins */
	*to = end > WROTE_AT && *at < WROTE_AT ? WROTE_AT : end;
	return found;
}

/* The first bytes of the file from *at on, but before `end`, that are there: [*at, *to). */
static bool next_there(const struct fast *f, uint64_t *at, uint64_t *to, uint64_t end)
{
	if (f->notes->fd < 0)
		return next_in_core(f->notes, at, to, end);
	off_t from = lseek(f->notes->fd, (off_t)*at, SEEK_DATA);

	if (from < 0 || (uint64_t)from >= end)
		return false;
	off_t hole = lseek(f->notes->fd, from, SEEK_HOLE);
	*at = (uint64_t)from;
	*to = hole < 0 || (uint64_t)hole > end ? end : (uint64_t)hole;
	return true;
}

/* To where they should be, notes that lie before the table. */
static void fold(const struct fast *f)
{
	const struct fast_notes *n = f->notes;
	uint8_t *before = n->found - n->shift, *last = before + (1ULL << 32);
	uint64_t at = FOUND_AT, end;

	if (!n->shift || !next_there(f, &at, &end, FOUND_AT + HALF))
		return;
	for (unsigned i = 0; i < n->shift; i++)
		if (before[i]) {
			last[i] = before[i];
			before[i] = 0;
		}
}

/* Whether it is known already that each of few pages is there. Where it is in one table only it is
 * made in the other by who looks at it: that costs twice the memory at most, and a system call with
 * two buffers costs less than asking four times would. */
static bool seen_all(const struct fast_notes *n, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		if (to - from > FEW || !n->seen[i])
			return false;
	return true;
}

void fast_note_there(const struct fast *f, uint64_t from, uint64_t to, unsigned char *there)
{
	const uint64_t last = (1ULL << 32) / FAST_NOTE_PAGE - 1;
	uint64_t at = FOUND_AT + from * FAST_NOTE_PAGE, end;

	if (from <= last && last < to)
		fold(f);
	if (seen_all(f->notes, from, to)) {
		for (uint64_t i = from; i < to; i++)
			there[i] |= FAST_NOTE_FOUND |
				    (i < FAST_NOTE_FIRST / FAST_NOTE_PAGE ? 0 : FAST_NOTE_WROTE);
		return;
	}
	for (; next_there(f, &at, &end, FOUND_AT + (to + 1) * FAST_NOTE_PAGE); at = end)
		for (uint64_t i = (at - FOUND_AT) / FAST_NOTE_PAGE;
		     i < (end - FOUND_AT) / FAST_NOTE_PAGE; i++) {
			/* the second half of the one before, and the first of this one */
			if (i > from)
				there[i - 1] |= FAST_NOTE_FOUND;
			if (i < to) {
				there[i] |= FAST_NOTE_FOUND;
				f->notes->seen[i] = 1;
			}
		}
	at = WROTE_AT + from * FAST_NOTE_PAGE;
	for (; next_there(f, &at, &end, WROTE_AT + to * FAST_NOTE_PAGE); at = end)
		for (uint64_t i = (at - WROTE_AT) / FAST_NOTE_PAGE;
		     i < (end - WROTE_AT) / FAST_NOTE_PAGE; i++) {
			there[i] |= FAST_NOTE_WROTE;
			f->notes->seen[i] = 1;
		}
}

/* Whether something may be noted on the page of the file. */
static bool in_use(uint64_t at, const unsigned char *there, unsigned char bits)
{
	uint64_t i = (at - (at < WROTE_AT ? FOUND_AT : WROTE_AT)) / FAST_NOTE_PAGE;

	return (i < FAST_NOTE_PAGES && there[i] & bits) ||
	       (at < WROTE_AT && i && there[i - 1] & bits);
}

static void punch(const struct fast *f, uint64_t at, uint64_t end)
{
	if (at < end && f->notes->fd < 0)
		madvise(mapped(f->notes, at), end - at, MADV_DONTNEED);
	else if (at < end)
		fallocate(f->notes->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			  (off_t)(end - at));
}

void fast_note_drop(const struct fast *f, const unsigned char *there, unsigned char bits)
{
	uint64_t at = 0, end;

	for (; next_there(f, &at, &end, FILE_END); at = end) {
		uint64_t from = at;
		for (uint64_t i = at; i < end; i += FAST_NOTE_PAGE)
			if (in_use(i, there, bits)) {
				punch(f, from, i);
				from = i + FAST_NOTE_PAGE;
			}
		punch(f, from, end);
	}
	for (uint64_t i = 0; i < FAST_NOTE_PAGES; i++)
		if (!(there[i] & bits))
			f->notes->seen[i] = 0;
}

void fast_note_forget(const struct fast *f)
{
	memset(f->notes->seen, 0, FAST_NOTE_PAGES);
	punch(f, FOUND_AT, WROTE_AT);
	punch(f, WROTE_AT + FAST_NOTE_FIRST, FILE_END);
}

/* ---- accesses -------------------------------------------------------------------------------- */

/* vmovups [m], ymm31, or of xmm31: a store of `size` ones. */
static void fill_wide(struct cg *c, const struct ea *m, unsigned size)
{
	static const uint8_t scale[9] = { [1] = 0, [2] = 0x40, [4] = 0x80, [8] = 0xc0 };
	const int32_t part = m->disp / (int32_t)size;
	/* a displacement of one byte counts in operands (SDM vol. 2A, 2.7.5) */
	const bool near =
		m->base >= 0 && part * (int32_t)size == m->disp && part >= -128 && part < 128;
	const unsigned base = m->base < 0 ? 5 : (unsigned)m->base & 7;
	const unsigned index = m->index < 0 ? 4 : (unsigned)m->index & 7;
	const bool sib = m->base < 0 || m->index >= 0 || base == 4;

	if (m->fs)
		cg8(c, 0x64);
	if (m->a32)
		cg8(c, 0x67);
	cg8(c, 0x62); /* the prefix: 2.7.1, with R, X, B, R' and V' inverted */
	cg8(c, (uint8_t)((m->index < 8 ? 0x40 : 0) | (m->base < 8 ? 0x20 : 0) | 1));
	cg8(c, 0x7c);
	cg8(c, size == 32 ? 0x28 : 0x08);
	cg8(c, 0x11);
	cg8(c, (uint8_t)((m->base < 0 ? 0 : near ? 0x40 : 0x80) | 7 << 3 | (sib ? 4 : base)));
	if (sib)
		cg8(c, (uint8_t)((m->index < 0 ? 0 : scale[m->scale]) | index << 3 | base));
	if (near)
		cg8(c, (uint8_t)part);
	else
		cg32(c, (uint32_t)m->disp);
}

static void fill(const struct fast_notes *notes, struct cg *c, struct ea m, unsigned size)
{
	while (size) {
		if (notes->wide && size >= 16) {
			unsigned wide = size >= 32 ? 32 : 16;
			fill_wide(c, &m, wide);
			m.disp = (int32_t)((uint32_t)m.disp + wide);
			size -= wide;
			continue;
		}
		unsigned n = size >= 8 ? 8 : size >= 4 ? 4 : size >= 2 ? 2 : 1;
		unsigned imm = n < 4 ? n : 4;
		cg_rm(c, n, n == 1 ? 0xc6 : 0xc7, 0, &m, imm);
		for (unsigned i = 0; i < imm; i++)
			cg8(c, 0xff);
		m.disp = (int32_t)((uint32_t)m.disp + n);
		size -= n;
	}
}

/* What of the access the block has not noted yet. It is noted from now on. */
static unsigned still_to_note(struct fast_notes *n, const struct ea *m, unsigned size,
			      unsigned access)
{
	unsigned rest = access;

	for (unsigned i = 0; i < n->n_noted; i++) {
		const struct fast_noted *d = &n->noted[i];
		uint32_t off = (uint32_t)m->disp - (uint32_t)d->at.disp;
		if (d->at.base == m->base && d->at.index == m->index &&
		    (m->index < 0 || d->at.scale == m->scale) && off <= d->size &&
		    size <= d->size - off)
			rest &= ~d->access;
	}
	if (rest && n->n_noted < FAST_MAX)
		n->noted[n->n_noted++] =
			(struct fast_noted){ .at = *m, .size = size, .access = rest };
	return rest;
}

void fast_note_changed(struct fast *f, uint32_t gprs)
{
	struct fast_notes *n = f->notes;
	unsigned kept = 0;

	for (unsigned i = 0; n && i < n->n_noted; i++) {
		const struct ea *m = &n->noted[i].at;
		if ((m->base < 0 || !(gprs >> m->base & 1)) &&
		    (m->index < 0 || !(gprs >> m->index & 1)))
			n->noted[kept++] = n->noted[i];
	}
	if (n)
		n->n_noted = kept;
}

void fast_note_access(struct fast *f, const struct ea *m, unsigned size, unsigned access)
{
	struct ea at = *m;

	if (!f->notes)
		return;
	access = still_to_note(f->notes, m, size, access & (INSN_R | INSN_W));
	at.gs = false;
	if (access & INSN_W)
		fill(f->notes, &f->c, at, size);
	at.fs = true;
	at.disp = (int32_t)((uint32_t)at.disp + f->notes->shift);
	if (access & INSN_R)
		fill(f->notes, &f->c, at, size);
}

/* ---- code ------------------------------------------------------------------------------------ */

static bool turns(const struct fast_insn *x)
{
	return x->how == FAST_COND || x->how == FAST_JUMP;
}

void fast_note_block(struct fast *f)
{
	const struct fast_scan *s = &f->scan;
	struct fast_notes *n = f->notes;

	if (!n)
		return;
	n->n_noted = n->n_looked = 0;
	n->before_ran = n->n_ran;
	n->first = n->n_stretches;
	for (unsigned i = 0; i < s->n; i++) {
		if (i && !turns(&s->i[i - 1])) {
			n->stretch[n->n_stretches - 1].hi = s->i[i].in.addr + s->i[i].in.len;
			continue;
		}
		if (n->n_stretches == FAST_RAN) {
			f->c.overflow = true;
			return;
		}
		n->stretch[n->n_stretches++] = (struct fast_stretch){
			.lo = s->i[i].in.addr, .hi = s->i[i].in.addr + s->i[i].in.len, .at = i
		};
	}
}

void fast_note_undo(struct fast *f)
{
	struct fast_notes *n = f->notes;

	if (n) {
		n->n_ran = n->before_ran;
		n->n_stretches = n->first;
	}
}

/* The first `count` stretches of the block have run. */
static void note_ran(struct fast *f, unsigned count)
{
	struct fast_notes *n = f->notes;

	if (n->n_ran == FAST_RAN) {
		f->c.overflow = true;
		return;
	}
	n->ran[n->n_ran] = (struct fast_ran){ .first = n->first, .n = count };
	struct ea at = ea_gs(F_RAN + (int32_t)n->n_ran++);
	cg_rm(&f->c, 1, 0xc6, 0, &at, 1);
	cg8(&f->c, 1);
}

void fast_note_last(struct fast *f, unsigned i)
{
	const struct fast_notes *n = f->notes;

	if (n && n->n_stretches > n->first && i == n->stretch[n->n_stretches - 1].at)
		note_ran(f, n->n_stretches - n->first);
}

void fast_note_side(struct fast *f, unsigned executed)
{
	const struct fast_notes *n = f->notes;
	unsigned count = 0;

	if (!n)
		return;
	while (n->first + count < n->n_stretches && n->stretch[n->first + count].at < executed)
		count++;
	if (count && count < n->n_stretches - n->first)
		note_ran(f, count);
}

void fast_note_ran(struct fast *f)
{
	const struct fast_notes *n = f->notes;
	uint8_t *ran = fast_at(f, F_RAN);

	for (unsigned i = 0; i < n->n_ran; i++) {
		uint64_t eight;
		memcpy(&eight, ran + (i & ~7u), sizeof(eight));
		if (!eight) {
			i |= 7;
			continue;
		}
		for (unsigned k = 0; ran[i] && f->e->ran && k < n->ran[i].n; k++) {
			const struct fast_stretch *x = &n->stretch[n->ran[i].first + k];
			f->e->ran(f->e->ctx, x->lo, x->hi);
		}
		ran[i] = 0;
	}
}
