/*
 * Memory as a debugger sees it: see memview.h. Here are its pages, undoing, and reading.
 */
#include "replayer/memview-page.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
	mv->epoch = 1;
	mv->all_own = !th->e->mirror_stores;
	mv->hash_size = 1024;
	mv->hash = calloc(mv->hash_size, sizeof(*mv->hash));
	mv->shadow_epoch = table_new(sizeof(*mv->shadow_epoch));
	mv->owner = table_new(sizeof(*mv->owner));
	if (!mv->hash || !mv->shadow_epoch || !mv->owner) {
		rp_memview_free(mv);
		return NULL;
	}
	return mv;
}

static void page_free(struct rp_memview_page *p)
{
	free(p->own);
	free(p->stale);
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
	rp_told_free(&mv->told);
	free(mv->spare.stale);
	free(mv->hash);
	table_free(mv->shadow_epoch, sizeof(*mv->shadow_epoch));
	table_free(mv->owner, sizeof(*mv->owner));
	free(mv);
}

void rp_memview_reset(struct rp_memview *mv)
{
	free_pages(mv);
	rp_told_free(&mv->told);
	memset(mv->tlb, 0, sizeof(mv->tlb));
	table_zero(mv->owner, sizeof(*mv->owner));
	table_zero(mv->shadow_epoch, sizeof(*mv->shadow_epoch));
	mv->log = NULL;
	mv->epoch = 1;
	mv->hit.hit = false;
	mv->slow_store = false;
}

void rp_memview_set_log(struct rp_memview *mv, struct rp_undo *log)
{
	mv->log = log;
	mv->epoch++;
}

/* ---- pages --------------------------------------------------------------------------- */

static struct rp_memview_page **slot(const struct rp_memview *mv, uint64_t num)
{
	return &mv->hash[(num * 0x9e3779b97f4a7c15ULL >> 32) & (mv->hash_size - 1)];
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

void rp_page_note(struct rp_memview *mv, struct rp_memview_page *p)
{
	if (p->epoch == mv->epoch)
		return;
	if (mv->log)
		rp_undo_note_view(mv->log, p->num, true, p->own, p->known, p->stale);
	p->epoch = mv->epoch;
}

void rp_page_note_shadow(struct rp_memview *mv, uint64_t idx)
{
	if (mv->shadow_epoch[idx] == mv->epoch)
		return;
	if (mv->log)
		rp_undo_note_shadow(mv->log, idx, mv->th->e->shadow + idx * UNDO_PAGE);
	mv->shadow_epoch[idx] = mv->epoch;
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

	p->own = p == &mv->spare ? NULL : malloc(UNDO_PAGE);
	if (!p->own) {
		rp_page_no_memory(mv);
		return false;
	}
	memcpy(p->own, mv->th->e->shadow + idx * UNDO_PAGE, UNDO_PAGE);
	p->store_epoch = 0;
	if (mv->owner[idx] == p)
		mv->owner[idx] = &contested;
	return true;
}

static struct rp_memview_page *insert_page(struct rp_memview *mv, uint64_t num)
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

struct rp_memview_page *rp_page_get(struct rp_memview *mv, uint64_t num)
{
	uint64_t idx = num % SHADOW_PAGES;
	struct rp_memview_page *p = rp_memview_page(mv, num);

	if (!p) {
		p = insert_page(mv, num);
		if (p == &mv->spare)
			return p;
		if (mv->log)
			rp_undo_note_view(mv->log, num, false, NULL, NULL, NULL);
		p->epoch = mv->epoch;
		struct rp_memview_page *other = mv->owner[idx];
		if (other && other != &contested) {
			rp_page_note(mv, other);
			rp_page_make_own(mv, other);
		}
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
	page_free(p);
}

void rp_memview_undo(struct rp_memview *mv, const struct rp_undo *log)
{
	uint8_t *shadow = mv->th->e->shadow;

	for (size_t i = 0; i < log->nshadow; i++) {
		uint8_t *page = shadow + log->shadow[i].num * UNDO_PAGE;
		if (log->shadow[i].data)
			memcpy(page, log->shadow[i].data, UNDO_PAGE);
		else
			memset(page, 0, UNDO_PAGE);
	}
	/* first what was not there, so that a page's place in the shadow is free again */
	for (size_t i = 0; i < log->nview; i++) {
		struct rp_memview_page *p = rp_memview_page(mv, log->view[i].num);
		if (p && !log->view[i].existed)
			rp_page_remove(mv, p);
	}
	for (size_t i = 0; i < log->nview; i++) {
		const struct rp_undo_view *v = &log->view[i];
		if (!v->existed)
			continue;
		struct rp_memview_page *p = rp_memview_page(mv, v->num);
		if (!p)
			p = insert_page(mv, v->num);
		if (p == &mv->spare)
			continue;
		if (v->known)
			memcpy(p->known, v->known, sizeof(p->known));
		else
			memset(p->known, 0, sizeof(p->known));
		free(p->stale);
		p->stale = NULL;
		if (v->stale) {
			p->stale = malloc(sizeof(p->known));
			if (p->stale)
				memcpy(p->stale, v->stale, sizeof(p->known));
			else
				rp_page_no_memory(mv);
		}
		if (v->own) {
			if (p->own || rp_page_make_own(mv, p))
				memcpy(p->own, v->own, UNDO_PAGE);
			if (mv->owner[p->num % SHADOW_PAGES] == NULL)
				mv->owner[p->num % SHADOW_PAGES] = &contested;
		} else {
			free(p->own);
			p->own = NULL;
			mv->owner[p->num % SHADOW_PAGES] = p;
		}
		p->epoch = p->store_epoch = 0;
	}
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
	return mv->th->e->shadow + p->num % SHADOW_PAGES * UNDO_PAGE;
}

/* Whether the thread's stack pointer or an access of its is at or below addr, in its page or
 * above `low`. */
static bool stack_reached(const struct rp_memview *mv, uint64_t addr, uint64_t low)
{
	uint64_t rsp = mv->th->e->cpu.gpr[DJ_RSP] - 128;

	if (rsp >= low && rsp / UNDO_PAGE <= addr / UNDO_PAGE)
		return true;
	/* upwards: there may be no page number below the first */
	for (uint64_t n = low / UNDO_PAGE; n <= addr / UNDO_PAGE; n++)
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

	if (!m || m->start <= addr || strcmp(m->name, "[stack]") != 0 || m->start < STACK_ROOM)
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

/* Part of one page. */
static size_t read_page(struct rp_memview *mv, uint64_t addr, uint8_t *buf, size_t len)
{
	struct rp_memview_page *p = rp_memview_page(mv, addr >> 12);
	uint8_t fall[UNDO_PAGE];
	size_t nfall = 0, i;
	bool asked = false;

	for (i = 0; i < len; i++) {
		unsigned off = (addr + i) % UNDO_PAGE;
		enum rp_memview_byte state = rp_memview_state(p, off);
		if (state == VIEW_KNOWN) {
			buf[i] = rp_memview_data(mv, p)[off];
			continue;
		}
		if (rp_told_byte(&mv->told, addr + i, &buf[i]))
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

	if (!p && !mv->told.n)
		return false;
	for (unsigned i = 0; i < UNDO_PAGE; i++) {
		enum rp_memview_byte is = rp_memview_state(p, i);
		state[i] = is == VIEW_STALE ? RP_BYTE_STALE : RP_BYTE_NONE;
		if (is == VIEW_KNOWN) {
			state[i] = RP_BYTE_HAS;
			value[i] = rp_memview_data(mv, p)[i];
		} else if (rp_told_byte(&mv->told, (num << 12) + i, &value[i])) {
			state[i] = RP_BYTE_HAS;
		}
		any |= state[i] != RP_BYTE_NONE;
	}
	return any;
}

size_t rp_memview_read(struct rp_memview *mv, uint64_t addr, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len && addr + done >= addr) {
		size_t n = UNDO_PAGE - (addr + done) % UNDO_PAGE;
		if (n > len - done)
			n = len - done;
		size_t got = read_page(mv, addr + done, (uint8_t *)buf + done, n);
		done += got;
		if (got < n)
			break;
	}
	return done;
}
