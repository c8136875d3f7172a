/*
 * The program's code as the translator reads it: in pages, read from the program once and compared
 * with the module file they are mapped from. Where they agree the trace needs nothing; other pages
 * go into the trace as CODE records when something in them is first translated. A page that the
 * program may rewrite without asking the kernel (writable and executable, or shared) is `changing`:
 * the translator checks its bytes at every execution.
 *
 * Many programs that write code never have it writable and executable at once, and change the
 * protection of a whole region for the sake of a few bytes. Therefore a page that cannot be
 * executed any more is only *asleep*, and so is what was translated from it. When it becomes
 * executable again its bytes are compared with what they were, and only what depends on lines that
 * differ is translated anew.
 */
#include "recorder/ahead.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE	  4096ULL
#define PAGE_HASH 4096
#define PAGES_MAX 4096
#define LINE	  64 /* bytes; translator/translate.h, tr_sleep() */
#define LOOK	  8  /* bytes of code that are looked at before it is translated */

struct rec_code_page {
	struct rec_code_page *next; /* in the hash */
	uint64_t addr;
	uint32_t len;	 /* readable bytes from addr */
	bool changing;	 /* writable and executable, or shared */
	bool dynamic;	 /* not what a module file says: goes into the trace when translated from */
	int32_t module;	 /* whose bytes it has, and does not change unheard; or -1 */
	uint64_t base;	 /* where that module begins */
	uint64_t logged; /* number of the fact, or 0 */
	bool asleep; /* not executable, for the time being: `bytes` are what was translated from */
	uint8_t bytes[PAGE];
};

static struct rec_code_page **find(struct rec_process *proc, uint64_t page)
{
	struct rec_code_page **p = &proc->pages[(page >> 12) * 0x9e3779b1u % PAGE_HASH];
	while (*p && (*p)->addr != page)
		p = &(*p)->next;
	return p;
}

/* As it is known, or NULL: nothing is read from the program. */
static struct rec_code_page *known_page(struct rec_process *proc, uint64_t page)
{
	return proc->pages ? *find(proc, page) : NULL;
}

static void drop(struct rec_process *proc, struct rec_code_page **at)
{
	struct rec_code_page *p = *at;
	*at = p->next;
	if (proc->page == p)
		proc->page = NULL;
	proc->n_pages--;
	proc->n_asleep -= p->asleep;
	free(p);
}

static void drop_all(struct rec_process *proc)
{
	for (unsigned i = 0; proc->pages && i < PAGE_HASH; i++)
		while (proc->pages[i])
			drop(proc, &proc->pages[i]);
}

/* Whether the program can execute what is there. */
static const struct dj_mapping *executable(struct rec_process *proc, uint64_t page)
{
	const struct dj_mapping *m = rec_maps_find(proc, page);
	return m && (m->prot & PROT_EXEC) && (m->prot & PROT_READ) ? m : NULL;
}

static const struct rec_module *module_of(const struct rec_process *proc,
					  const struct dj_mapping *m)
{
	return m->module >= 0 ? &proc->rec->modules[m->module] : NULL;
}

/* What is no module may be written to by another mapping of the file. */
static bool is_changing(const struct rec_process *proc, const struct dj_mapping *m)
{
	const struct rec_module *f = module_of(proc, m);
	return (m->prot & PROT_WRITE) || (m->flags & MAP_SHARED) ||
	       (f ? f->rewritten : !(m->flags & MAP_ANONYMOUS));
}

/* Pages of which the trace has other bytes than the module's, by address. */
struct rec_told {
	size_t n, cap;
	uint64_t page[];
};

/* Where the page is among them, or would be. */
static size_t told_at(const struct rec_told *told, uint64_t page)
{
	size_t lo = 0, hi = told->n;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (told->page[mid] < page)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool is_told(const struct rec_told *told, uint64_t page)
{
	size_t k = told ? told_at(told, page) : 0;
	return told && k < told->n && told->page[k] == page;
}

/* From now on the trace says what is there, also when it is the module's again (or another's: then
 * it says more than it must). */
static void tell(struct rec_process *proc, uint64_t page)
{
	const struct dj_mapping *m = rec_maps_find(proc, page);
	struct rec_told *told = proc->told;
	if (!m || m->module < 0 || is_told(told, page))
		return;
	size_t n = told ? told->n : 0, cap = told ? told->cap : 0;
	if (n == cap) {
		cap = 2 * cap + 16;
		told = realloc(told, sizeof(*told) + cap * sizeof(told->page[0]));
		DJ_ASSERT(told, "out of memory for code pages");
		told->n = n;
		told->cap = cap;
		proc->told = told;
	}
	size_t k = told_at(told, page);
	memmove(told->page + k + 1, told->page + k, (n - k) * sizeof(told->page[0]));
	told->page[k] = page;
	told->n++;
}

/* Whether the page at `addr` has just the bytes of its module, as far as the trace knows. */
static bool is_like_file(const struct rec_process *proc, const struct dj_mapping *m, uint64_t addr,
			 const uint8_t bytes[4096])
{
	static const uint8_t zero[4096];
	const struct rec_module *f = module_of(proc, m);
	if (!f || f->rewritten || is_told(proc->told, addr))
		return false;
	uint64_t off = m->offset + (addr - m->start);
	size_t have = off < f->size ? f->size - off : 0;
	if (have > PAGE)
		have = PAGE;
	return memcmp(bytes, f->bytes + off, have) == 0 &&
	       memcmp(bytes + have, zero, PAGE - have) == 0;
}

static bool is_dynamic(const struct rec_process *proc, const struct dj_mapping *m,
		       const struct rec_code_page *p)
{
	return p->len != PAGE || !is_like_file(proc, m, p->addr, p->bytes);
}

bool rec_code_is_like_file(struct rec_process *proc, uint64_t page, const uint8_t bytes[4096])
{
	const struct dj_mapping *m = executable(proc, page);
	return m && is_like_file(proc, m, page, bytes);
}

/* What the module's file has there, if the process has not written to the page, which then need not
 * be read; or NULL. */
static const uint8_t *of_file(struct rec_process *proc, const struct dj_mapping *m, uint64_t page)
{
	const struct rec_module *f = module_of(proc, m);
	uint64_t off = m->offset + (page - m->start);
	if (!f || !m->sure || is_changing(proc, m) || is_told(proc->told, page) ||
	    off + PAGE > f->size || !rec_is_of_file(proc, page))
		return NULL;
	return f->bytes + off;
}

static struct rec_code_page *code_page(struct rec_process *proc, uint64_t addr)
{
	uint64_t page = addr & ~(PAGE - 1);
	if (page >= proc->logged.permit.start && page < proc->logged.permit.end)
		return NULL; /* about to be something else, or is already */
	if (proc->page && proc->page->addr == page)
		return proc->page->asleep ? NULL : proc->page;
	if (!proc->pages) {
		proc->pages = calloc(PAGE_HASH, sizeof(*proc->pages));
		DJ_ASSERT(proc->pages, "out of memory for code pages");
	}
	struct rec_code_page **at = find(proc, page);
	if (*at) {
		proc->page = *at;
		return (*at)->asleep ? NULL : *at;
	}
	const struct dj_mapping *m = executable(proc, page);
	if (!m)
		return NULL;
	if (proc->n_pages >= PAGES_MAX) { /* crowded: start over */
		drop_all(proc);
		at = find(proc, page);
	}
	struct rec_code_page *p = malloc(sizeof(*p));
	DJ_ASSERT(p, "out of memory for a code page");
	*p = (struct rec_code_page){ .addr = page };
	const uint8_t *file = rec_modules_told(proc->rec) ? NULL : of_file(proc, m, page);
	if (file)
		memcpy(p->bytes, file, PAGE);
	p->len = file ? PAGE : (uint32_t)rec_read(proc, page, p->bytes, PAGE);
	/* who runs meanwhile may have written to the module's file, which the trace has as it was
	 */
	if (!p->len || (m->module >= 0 && rec_modules_told(proc->rec))) {
		free(p);
		return NULL;
	}
	p->changing = is_changing(proc, m);
	p->dynamic = !file && is_dynamic(proc, m, p);
	p->module = p->changing || p->dynamic ? -1 : m->module;
	p->base = m->start - m->offset;
	*at = p;
	proc->n_pages++;
	return p;
}

size_t rec_code_read(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing)
{
	struct rec_process *proc = ctx;
	size_t done = 0;
	*changing = false;
	while (done < len) {
		struct rec_code_page *p = code_page(proc, pc + done);
		if (!p)
			break;
		uint64_t off = (pc + done) - p->addr;
		if (off >= p->len)
			break;
		size_t n = p->len - off;
		if (n > len - done)
			n = len - done;
		memcpy(buf + done, p->bytes + off, n);
		*changing |= p->changing;
		done += n;
	}
	return done;
}

struct tr_kept *rec_module_kept(struct rec_recording *rec, struct rec_module *m)
{
	if (!m->kept) {
		m->kept = tr_kept_new(&rec->kept_room);
		rec_store_read(rec, m);
	}
	return m->kept;
}

/* Code that a program makes is kept by its address, where that is the same each time: compilers at
 * run time make the same of the same, and what a Lisp loads into memory is always the same. */
static struct tr_kept *made_kept(struct rec_process *proc, const struct rec_code_page *p,
				 uint64_t *base)
{
	struct rec_recording *rec = proc->rec;
	if (!proc->heir.fixed || proc->program < 0 || (size_t)proc->program >= rec->n_modules)
		return NULL;
	struct rec_module *m = &rec->modules[proc->program];
	if (!m->made[p->changing]) {
		m->made[p->changing] = tr_kept_new(&rec->made_room);
		rec_store_read_made(rec, m, p->changing);
	}
	*base = p->addr & ~(uint64_t)UINT32_MAX;
	return m->made[p->changing];
}

struct tr_kept *rec_code_kept(void *ctx, uint64_t pc, uint64_t *base)
{
	struct rec_process *proc = ctx;
	const struct rec_code_page *p = code_page(proc, pc);
	if (!p)
		return NULL;
	if (p->module < 0)
		return made_kept(proc, p, base);
	*base = p->base;
	return rec_module_kept(proc->rec, &proc->rec->modules[p->module]);
}

/* Whether each thread but the one in hand knows as much. If not, the fragment is to ask: another
 * thread may come to it without a stop, and its stream must say by then which code it executes. */
static bool all_know(const struct rec_process *proc, uint64_t fact)
{
	for (const struct rec_thread *o = proc->rec->threads; o; o = o->next)
		if (o->proc == proc && o != proc->hand && o->state != REC_GONE && o->facts < fact)
			return false;
	return true;
}

uint64_t rec_code_translated(void *ctx, uint64_t pc, size_t len)
{
	struct rec_process *proc = ctx;
	struct rec_thread *t = proc->hand;
	uint64_t fact = 0;
	for (uint64_t page = pc & ~(PAGE - 1); page < pc + len; page += PAGE) {
		struct rec_code_page *p = code_page(proc, page);
		uint64_t own = rec_code_fact_of(proc, page);
		fact = own > fact ? own : fact;
		if (!p || !p->dynamic)
			continue;
		if (!p->logged) {
			struct dj_record r = { .kind = DJ_REC_CODE,
					       .steps = t->steps,
					       .addr = page,
					       .length = p->len,
					       .bytes = p->bytes };
			rec_ring_record(t, &r);
			p->logged = proc->n_facts;
			tell(proc, page);
		}
		if (p->logged > fact)
			fact = p->logged;
	}
	return proc->n_threads < 2 || all_know(proc, fact) ? 0 : fact;
}

/* What changes unheard may not be any more what the trace was told: the fragment compares, and is
 * not executed then. What another thread's stream has not been told of, the fragment asks for. To
 * read a page might have all others forgotten, and what the trace has been told of them. */
bool rec_code_known(void *ctx, uint64_t pc, size_t len)
{
	struct rec_process *proc = ctx;
	if (proc->telling)
		return true;
	for (uint64_t page = pc & ~(PAGE - 1); page < pc + len; page += PAGE) {
		const struct rec_code_page *p =
			known_page(proc, page) ? code_page(proc, page) : NULL;
		if (!p || (p->dynamic ? !p->logged : p->module < 0))
			return false;
	}
	return true;
}

const uint8_t *rec_code_bytes(struct rec_process *proc, uint64_t page)
{
	const struct rec_code_page *p = known_page(proc, page);
	return p && p->module >= 0 && p->len == PAGE ? p->bytes : NULL;
}

bool rec_code_is_modules(struct rec_process *proc, uint64_t page)
{
	const struct dj_mapping *m = executable(proc, page);
	return m && m->module >= 0 && !is_changing(proc, m) && !is_told(proc->told, page);
}

const uint8_t *rec_code_of_file(struct rec_process *proc, uint64_t page)
{
	const struct dj_mapping *m = executable(proc, page);
	return m ? of_file(proc, m, page) : NULL;
}

/* ---- code that changes ------------------------------------------------------------------- */

void rec_code_forget(struct rec_process *proc, uint64_t start, uint64_t end)
{
	bool any = false;
	rec_pages_may_change(proc);
	if (proc->pages && (end - start) / PAGE < PAGE_HASH) {
		for (uint64_t page = start & -PAGE; page < end; page += PAGE) {
			struct rec_code_page **at = find(proc, page);
			if (!*at)
				continue;
			drop(proc, at);
			any = true;
		}
	} else {
		any = proc->n_pages;
		drop_all(proc);
	}
	proc->rec->counts[REC_COUNT_FORGOTTEN] += any;
	if (proc->tr)
		tr_invalidate(proc->tr, start, end - start);
}

/* [start, end) is not executable any more, but what is there may be executed again: what it is now
 * is known, if it is code that does not change unheard. */
static void sleep_on(struct rec_process *proc, uint64_t start, uint64_t end)
{
	for (uint64_t page = start; page < end; page += PAGE) {
		struct rec_code_page *p = *find(proc, page);
		if (p && !p->changing) {
			proc->n_asleep += !p->asleep;
			p->asleep = true;
			tr_sleep(proc->tr, page >> 12);
		} else {
			rec_code_forget(proc, page, page + PAGE);
		}
	}
}

/* What is in the page may not be what it was. Returns the lines that are not, or all if nothing of
 * what was known is to be used. */
static uint64_t changed_lines(struct rec_process *proc, struct rec_code_page *p)
{
	const struct dj_mapping *m = executable(proc, p->addr);
	uint8_t now[PAGE];
	uint64_t changed = 0;
	if (!m || is_changing(proc, m) != p->changing || p->len != PAGE ||
	    rec_read(proc, p->addr, now, PAGE) != PAGE)
		return UINT64_MAX;
	for (unsigned i = 0; i < PAGE / LINE; i++)
		if (memcmp(now + LINE * i, p->bytes + LINE * i, LINE) != 0)
			changed |= 1ULL << i;
	if (changed) {
		memcpy(p->bytes, now, PAGE);
		p->dynamic = is_dynamic(proc, m, p);
		p->module = -1;
		p->logged = 0;
	}
	return changed;
}

/* [start, end) is executable again, or still is: it cannot be written to. */
static void wake(struct rec_process *proc, uint64_t start, uint64_t end)
{
	for (uint64_t page = start; page < end; page += PAGE) {
		struct rec_code_page *p = *find(proc, page);
		if (!p || !p->asleep) {
			rec_code_forget(proc, page, page + PAGE);
			continue;
		}
		uint64_t changed = changed_lines(proc, p);
		proc->rec->counts[REC_COUNT_FORGOTTEN] += changed != 0;
		if (changed == UINT64_MAX) {
			rec_code_forget(proc, page, page + PAGE);
			continue;
		}
		p->asleep = false;
		proc->n_asleep--;
		tr_wake(proc->tr, page >> 12, changed);
	}
}

/* Where one byte is repeated nobody has written code yet, but to fill it. */
bool rec_code_stale(struct rec_process *proc, uint64_t pc)
{
	const struct rec_code_page *p = known_page(proc, pc & -PAGE);
	uint8_t now[LOOK];
	if (!p || !p->changing || p->asleep || (pc & (PAGE - 1)) + LOOK > p->len)
		return false;
	const uint8_t *known = p->bytes + (pc & (PAGE - 1));
	return !memcmp(known, known + 1, LOOK - 1) && rec_read(proc, pc, now, LOOK) == LOOK &&
	       memcmp(now, known, LOOK) != 0;
}

void rec_code_changed(struct rec_process *proc, uint64_t pc)
{
	for (uint64_t page = pc & -PAGE; page <= (pc & -PAGE) + PAGE; page += PAGE) {
		struct rec_code_page *p = known_page(proc, page);
		uint64_t changed =
			p && p->changing && !p->asleep ? changed_lines(proc, p) : UINT64_MAX;
		if (changed == UINT64_MAX) {
			rec_code_forget(proc, page, page + PAGE);
			continue;
		}
		proc->rec->counts[REC_COUNT_FORGOTTEN] += changed != 0;
		/* what was made of it may be older than what is known of the page */
		if (page == (pc & -PAGE))
			changed |= 1ULL << (pc & (PAGE - 1)) / LINE;
		tr_changed(proc->tr, page / PAGE, changed);
	}
}

void rec_code_replaced(struct rec_process *proc, uint64_t start, uint64_t end)
{
	if (!proc->n_asleep)
		return;
	/* the replay forgets code that is unmapped: it would miss what is the same again */
	for (unsigned i = 0; i < PAGE_HASH; i++)
		for (struct rec_code_page *p = proc->pages[i], *next; p; p = next) {
			next = p->next;
			if (p->asleep && p->addr < end && p->addr + PAGE > start)
				rec_code_forget(proc, p->addr, p->addr + PAGE);
		}
}

void rec_code_protected(struct rec_process *proc, uint64_t start, uint64_t end, uint32_t prot)
{
	const uint32_t execute = PROT_READ | PROT_EXEC;
	start &= -PAGE;
	rec_pages_may_change(proc);
	if (!proc->tr || !proc->pages || (end - start) / PAGE > PAGE_HASH)
		rec_code_forget(proc, start, end);
	else if (!(prot & PROT_EXEC))
		sleep_on(proc, start, end);
	else if (prot == execute)
		wake(proc, start, end);
	else
		rec_code_forget(proc, start, end);
}

void rec_code_free(struct rec_process *proc)
{
	drop_all(proc);
	free(proc->pages);
	free(proc->told);
	free(proc->code_facts);
}
