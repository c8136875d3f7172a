/*
 * Notes of what generated code meets: which bytes it reads and writes, and which code runs.
 *
 * A debugger's memory view wants to know that of every instruction. The emulator calls a hook for
 * each access, which makes it ten times slower than it could be. Generated code has room for one
 * more instruction instead: beside each access a store of ones to a table with a byte for each byte
 * of the shadow, with the same address and the same size. Nobody's registers and no flags are
 * touched by that.
 *
 * An address that was cut to 32 bits reaches three places: what gs points to, which is the shadow;
 * what fs points to, which is the table of bytes written; and, without either, the first 4 GiB of
 * the address space, where the table of bytes read is. The first 64 KiB of those the kernel keeps
 * for itself (vm.mmap_min_addr). An access there ends generated code with an exception, and so the
 * caller has to emulate it. Nothing else of a process lies there: were something mapped, there
 * would be no table, and no notes.
 *
 * Code is noted by stretches that are passed as a whole: from a block's entry or a conditional
 * branch to the next one. Each has a byte below S, and a store of one where it begins.
 */
#include "fast/fast-parts.h"

#include <stdlib.h>
#include <sys/mman.h>

struct fast_notes *fast_notes_here;

/* ---- the tables ------------------------------------------------------------------------------ */

static bool map_tables(struct fast_notes *n)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	const size_t first = FAST_NOTE_FIRST, size = FAST_NOTE_TABLE;

	void *high = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
	n->low = mmap((void *)first, size - first, PROT_READ | PROT_WRITE,
		      flags | MAP_FIXED_NOREPLACE, -1, 0);
	n->wrote = high == MAP_FAILED ? 0 : (uint64_t)(uintptr_t)high;
	if (!n->wrote || n->low != (void *)first)
		return false;
	/* one byte that is noted should cost one small page */
	madvise(high, size, MADV_NOHUGEPAGE);
	madvise(n->low, size - first, MADV_NOHUGEPAGE);
	return true;
}

void fast_notes_free(struct fast *f)
{
	struct fast_notes *n = f->notes;

	if (!n)
		return;
	FAST_U64(f, F_NOTE_FS) = 0;
	if (n->wrote)
		munmap((void *)(uintptr_t)n->wrote, FAST_NOTE_TABLE);
	if (n->low != MAP_FAILED)
		munmap(n->low, FAST_NOTE_TABLE - FAST_NOTE_FIRST);
	free(n->ran);
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
	n->low = MAP_FAILED;
	n->ran = malloc(FAST_RAN * sizeof(*n->ran));
	if (!n->ran || !map_tables(n)) {
		fast_notes_free(f);
		return false;
	}
	n->code = FAST_U64(f, F_CODE);
	n->host_fs = fast_at(f, F_HOST_FS);
	FAST_U64(f, F_NOTE_FS) = n->wrote;
	fast_flush(f);
	return true;
}

uint8_t *fast_note_byte(const struct fast *f, bool wrote, uint64_t index)
{
	return (uint8_t *)(uintptr_t)((wrote ? f->notes->wrote : f->notes->found) + index);
}

/* ---- accesses -------------------------------------------------------------------------------- */

static void fill(struct cg *c, struct ea m, unsigned size)
{
	while (size) {
		unsigned n = size >= 8 ? 8 : size >= 4 ? 4 : size >= 2 ? 2 : 1;
		unsigned imm = n < 4 ? n : 4;
		cg_rm(c, n, n == 1 ? 0xc6 : 0xc7, 0, &m, imm);
		for (unsigned i = 0; i < imm; i++)
			cg8(c, 0xff);
		m.disp = (int32_t)((uint32_t)m.disp + n);
		size -= n;
	}
}

void fast_note_access(struct fast *f, const struct ea *m, unsigned size, unsigned access)
{
	struct ea at = *m;

	if (!f->notes)
		return;
	at.gs = false;
	if (access & INSN_R)
		fill(&f->c, at, size);
	at.fs = true;
	if (access & INSN_W)
		fill(&f->c, at, size);
}

/* ---- code ------------------------------------------------------------------------------------ */

static bool turns(const struct fast_insn *x)
{
	return x->how == FAST_COND || x->how == FAST_JUMP;
}

void fast_note_stretch(struct fast *f, unsigned i)
{
	const struct fast_scan *s = &f->scan;
	struct fast_notes *n = f->notes;
	unsigned last = i;

	if (!n || (i && !turns(&s->i[i - 1])))
		return;
	while (last + 1 < s->n && !turns(&s->i[last]))
		last++;
	if (n->n_ran == FAST_RAN) {
		f->c.overflow = true;
		return;
	}
	n->ran[n->n_ran] = (struct fast_ran){ .lo = s->i[i].in.addr,
					      .hi = s->i[last].in.addr + s->i[last].in.len };
	struct ea at = ea_gs(F_RAN + (int32_t)n->n_ran++);
	cg_rm(&f->c, 1, 0xc6, 0, &at, 1);
	cg8(&f->c, 1);
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
		if (ran[i] && f->e->ran)
			f->e->ran(f->e->ctx, n->ran[i].lo, n->ran[i].hi);
		ran[i] = 0;
	}
}
