/*
 * Memory as a debugger sees it: see memview.h. Here are its pages, and reading.
 */
#include "replayer/memview-page.h"
#include "format/scatter.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Pages with told bytes: a trace can hold any number of them in little room. */
#define TOLD_PAGES 8192u

#define STACK_ROOM (8u << 20) /* how far a stack grows, by the usual limit */

/* An owner[] entry: two pages met here, so that nobody's data are in the shadow any more. */
static struct rp_memview_page contested;

/* Tables of shadow pages. Few pages are ever met, so these are mappings of their own, of which only
 * what was written to is there; malloc() might give memory that was used before. */
static void *table_new(size_t size)
{
	void *table = mmap(NULL, SHADOW_PAGES * size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return table == MAP_FAILED ? NULL : table;
}

static void table_zero(void *table, size_t size)
{
	if (madvise(table, SHADOW_PAGES * size, MADV_DONTNEED))
		memset(table, 0, SHADOW_PAGES * size);
}

static void table_free(void *table, size_t size)
{
	if (table)
		munmap(table, SHADOW_PAGES * size);
}

struct rp_memview *rp_memview_new(struct rp_thread *th)
{
	struct rp_memview *mv = calloc(1, sizeof(*mv));

	if (!mv)
		return NULL;
	mv->th = th;
	mv->epoch = mv->line_epoch = 1;
	mv->all_own = !th->e->mirror_stores;
	th->e->mark = 1;
	mv->hash_size = 1024;
	mv->hash = calloc(mv->hash_size, sizeof(*mv->hash));
	mv->shadow_epoch = table_new(sizeof(*mv->shadow_epoch));
	mv->owner = table_new(sizeof(*mv->owner));
	mv->shadow_base = table_new(sizeof(*mv->shadow_base));
	if (!mv->hash || !mv->shadow_epoch || !mv->owner || !mv->shadow_base) {
		rp_memview_free(mv);
		return NULL;
	}
	return mv;
}

static void page_free(struct rp_memview_page *p)
{
	free(p->own);
	free(p->stale);
	free(p->told);
	free(p);
}

static void free_pages(struct rp_memview *mv)
{
	for (size_t i = 0; mv->npages && i < mv->hash_size; i++) {
		for (struct rp_memview_page *p = mv->hash[i], *next; p; p = next) {
			next = p->hash_next;
			page_free(p);
			mv->npages--;
		}
		mv->hash[i] = NULL;
	}
}

void rp_memview_free(struct rp_memview *mv)
{
	if (!mv)
		return;
	if (mv->hash)
		free_pages(mv);
	rp_watch_free(mv);
	if (mv->shadow_base)
		rp_bases_free(mv);
	free(mv->noted);
	rp_line_log_free(&mv->lines);
	free(mv->spare.stale);
	free(mv->spare.told);
	free(mv->hash);
	table_free(mv->shadow_epoch, sizeof(*mv->shadow_epoch));
	table_free(mv->owner, sizeof(*mv->owner));
	table_free(mv->shadow_base, sizeof(*mv->shadow_base));
	free(mv);
}

void rp_memview_reset(struct rp_memview *mv)
{
	free_pages(mv);
	rp_bases_free(mv);
	mv->ntold = 0;
	memset(mv->tlb, 0, sizeof(mv->tlb));
	table_zero(mv->owner, sizeof(*mv->owner));
	table_zero(mv->shadow_epoch, sizeof(*mv->shadow_epoch));
	mv->epoch = 1;
	mv->hit.hit = false;
	mv->slow_store = false;
}

/* ---- pages --------------------------------------------------------------------------- */

static struct rp_memview_page **slot(const struct rp_memview *mv, uint64_t num)
{
	return &mv->hash[dj_scatter(num, mv->hash_size)];
}

struct rp_memview_page *rp_memview_page(const struct rp_memview *mv, uint64_t num)
{
	struct rp_memview_page *p = mv->tlb[num % VIEW_TLB];

	if (p && p->num == num)
		return p;
	for (p = *slot(mv, num); p && p->num != num;)
		p = p->hash_next;
	return p;
}

static void hash_grow(struct rp_memview *mv)
{
	size_t size = mv->hash_size * 4, old_size = mv->hash_size;
	struct rp_memview_page **old = mv->hash, **h = calloc(size, sizeof(*h));

	if (!h)
		return;
	mv->hash = h;
	mv->hash_size = size;
	for (size_t i = 0; i < old_size; i++) {
		for (struct rp_memview_page *p = old[i], *next; p; p = next) {
			next = p->hash_next;
			p->hash_next = *slot(mv, p->num);
			*slot(mv, p->num) = p;
		}
	}
	free(old);
}

void rp_page_no_memory(struct rp_memview *mv)
{
	dj_fail(&mv->th->err, 1, "out of memory for what the program has in memory");
	mv->th->halted = THREAD_FAILED;
	mv->th->e->stop_requested = true;
}

bool rp_page_make_own(struct rp_memview *mv, struct rp_memview_page *p)
{
	uint64_t idx = p->num % SHADOW_PAGES;

	p->own = p == &mv->spare ? NULL : malloc(RP_PAGE);
	if (!p->own) {
		rp_page_no_memory(mv);
		return false;
	}
	memcpy(p->own, mv->th->e->shadow + idx * RP_PAGE, RP_PAGE);
	p->store_epoch = 0;
	if (mv->owner[idx] == p)
		mv->owner[idx] = &contested;
	return true;
}

struct rp_memview_page *rp_page_insert(struct rp_memview *mv, uint64_t num)
{
	struct rp_memview_page *p = calloc(1, sizeof(*p));

	if (!p) {
		rp_page_no_memory(mv);
		mv->spare.num = num;
		mv->spare.epoch = mv->epoch;
		return &mv->spare;
	}
	if (mv->npages > mv->hash_size)
		hash_grow(mv);
	p->num = num;
	p->hash_next = *slot(mv, num);
	*slot(mv, num) = p;
	mv->npages++;
	return p;
}

void rp_page_share(struct rp_memview *mv, uint64_t num)
{
	struct rp_memview_page *other = mv->owner[num % SHADOW_PAGES];

	if (!other || other == &contested || other->num == num)
		return;
	rp_page_note(mv, other);
	rp_page_make_own(mv, other);
}

struct rp_memview_page *rp_page_get(struct rp_memview *mv, uint64_t num)
{
	uint64_t idx = num % SHADOW_PAGES;
	struct rp_memview_page *p = rp_memview_page(mv, num);

	if (!p) {
		if (mv->trail)
			rp_trail_comes(mv, num);
		p = rp_page_insert(mv, num);
		if (p == &mv->spare)
			return p;
		rp_page_note(mv, p);
		rp_page_share(mv, num);
		if (mv->all_own || mv->owner[idx])
			rp_page_make_own(mv, p);
		else
			mv->owner[idx] = p;
	}
	/* a watched page takes the slow path always */
	if (!rp_watch_on_page(mv, num))
		mv->tlb[num % VIEW_TLB] = p;
	return p;
}

void rp_page_remove(struct rp_memview *mv, struct rp_memview_page *p)
{
	struct rp_memview_page **at = slot(mv, p->num);

	while (*at != p)
		at = &(*at)->hash_next;
	*at = p->hash_next;
	if (mv->owner[p->num % SHADOW_PAGES] == p)
		mv->owner[p->num % SHADOW_PAGES] = NULL;
	if (mv->tlb[p->num % VIEW_TLB] == p)
		mv->tlb[p->num % VIEW_TLB] = NULL;
	mv->npages--;
	rp_told_drop(mv, p);
	page_free(p);
}

void rp_page_contest(struct rp_memview *mv, uint64_t num)
{
	mv->owner[num % SHADOW_PAGES] = &contested;
}

bool rp_told_room(struct rp_memview *mv, struct rp_memview_page *p)
{
	if (p->told)
		return true;
	if (mv->ntold >= TOLD_PAGES || p == &mv->spare)
		return false;
	p->told = calloc(1, sizeof(*p->told));
	mv->ntold += p->told != NULL;
	return p->told != NULL;
}

void rp_told_drop(struct rp_memview *mv, struct rp_memview_page *p)
{
	mv->ntold -= p->told != NULL;
	free(p->told);
	p->told = NULL;
}

/* ---- reading ----------------------------------------------------------------------------- */

enum rp_memview_byte rp_memview_state(const struct rp_memview_page *p, unsigned off)
{
	if (!p)
		return VIEW_UNTOUCHED;
	if (p->known[off / 64] >> off % 64 & 1)
		return VIEW_KNOWN;
	return p->stale && p->stale[off / 64] >> off % 64 & 1 ? VIEW_STALE : VIEW_UNTOUCHED;
}

const uint8_t *rp_memview_data(const struct rp_memview *mv, const struct rp_memview_page *p)
{
	if (p->own)
		return p->own;
	return mv->th->e->shadow + p->num % SHADOW_PAGES * RP_PAGE;
}

/* Whether the thread's stack pointer or an access of its is at or below addr, in its page or
 * above `low`. */
static bool stack_reached(const struct rp_memview *mv, uint64_t addr, uint64_t low)
{
	uint64_t rsp = mv->th->e->cpu.gpr[DJ_RSP] - 128;

	if (rsp >= low && rsp / RP_PAGE <= addr / RP_PAGE)
		return true;
	/* upwards: there may be no page number below the first */
	for (uint64_t n = low / RP_PAGE; n <= addr / RP_PAGE; n++)
		if (rp_memview_page(mv, n))
			return true;
	return false;
}

/* Zeros, where a stack has grown: the kernel maps what lies below a stack's mapping when it is
 * first touched, which no record tells, and with it all between there and the mapping. */
static size_t grown_stack(const struct rp_memview *mv, uint64_t addr, uint8_t *buf, size_t len)
{
	const struct rp_space *s = mv->th->space;
	const struct dj_mapping *m = dj_mappings_after(&s->maps, addr, 0);

	if (!m || m->start <= addr || m->lost || strcmp(m->name, "[stack]") != 0 ||
	    m->start < STACK_ROOM)
		return 0;
	const struct dj_mapping *below = dj_mappings_before(&s->maps, addr, 0);
	uint64_t low = below ? below->end : 0;
	if (low < m->start - STACK_ROOM)
		low = m->start - STACK_ROOM;
	if (addr < low || !stack_reached(mv, addr, low))
		return 0;
	if (len > m->start - addr)
		len = m->start - addr;
	memset(buf, 0, len);
	return len;
}

/* The byte at `off` in its page, if it was told. */
static bool told(const struct rp_memview_page *p, unsigned off, uint8_t *value)
{
	if (!p || !p->told || !(p->told->bits[off / 64] >> off % 64 & 1))
		return false;
	*value = p->told->data[off];
	return true;
}

/* Part of one page. */
static size_t read_page(struct rp_memview *mv, uint64_t addr, uint8_t *buf, size_t len)
{
	struct rp_memview_page *p = rp_memview_page(mv, addr >> 12);
	uint8_t fall[RP_PAGE];
	size_t nfall = 0, i;
	bool asked = false;

	for (i = 0; i < len; i++) {
		unsigned off = (addr + i) % RP_PAGE;
		enum rp_memview_byte state = rp_memview_state(p, off);
		if (state == VIEW_KNOWN) {
			buf[i] = rp_memview_data(mv, p)[off];
			continue;
		}
		if (told(p, off, &buf[i]))
			continue;
		if (state == VIEW_STALE)
			break;
		if (!asked) {
			/* from here to the end of the wanted part in one go */
			nfall = i + rp_space_contents(mv->th->space, mv->th->trace, addr + i,
						      fall + i, len - i);
			if (nfall == i)
				nfall += grown_stack(mv, addr + i, fall + i, len - i);
			asked = true;
		}
		if (i >= nfall)
			break;
		buf[i] = fall[i];
	}
	return i;
}

bool rp_memview_bytes(struct rp_memview *mv, uint64_t num, uint8_t state[4096], uint8_t value[4096])
{
	const struct rp_memview_page *p = rp_memview_page(mv, num);
	bool any = false;

	if (!p)
		return false;
	for (unsigned i = 0; i < RP_PAGE; i++) {
		enum rp_memview_byte is = rp_memview_state(p, i);
		state[i] = is == VIEW_STALE ? RP_BYTE_STALE : RP_BYTE_NONE;
		if (is == VIEW_KNOWN) {
			state[i] = RP_BYTE_HAS;
			value[i] = rp_memview_data(mv, p)[i];
		} else if (told(p, i, &value[i])) {
			state[i] = RP_BYTE_HAS;
		}
		any |= state[i] != RP_BYTE_NONE;
	}
	return any;
}

size_t rp_memview_read(struct rp_memview *mv, uint64_t addr, void *buf, size_t len)
{
	size_t done = 0;

	rp_memview_settle(mv, addr, len);
	while (done < len && addr + done >= addr) {
		size_t n = RP_PAGE - (addr + done) % RP_PAGE;
		if (n > len - done)
			n = len - done;
		size_t got = read_page(mv, addr + done, (uint8_t *)buf + done, n);
		done += got;
		if (got < n)
			break;
	}
	return done;
}
