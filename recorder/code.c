/*
 * The program's code as the translator reads it: in pages, read from the program once and compared
 * with the module file they are mapped from. Where they agree the trace needs nothing; other pages
 * go into the trace as CODE records when something in them is first translated. A page that the
 * program may rewrite without asking the kernel (writable and executable, or shared) is `changing`:
 * the translator checks its bytes at every execution.
 */
#include "recorder/recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE	  4096ULL
#define PAGE_HASH 4096

struct rec_code_page {
	uint64_t addr;
	uint32_t len;	 /* readable bytes from addr */
	bool changing;	 /* writable and executable, or shared */
	bool dynamic;	 /* not what a module file says: goes into the trace when translated from */
	uint64_t logged; /* number of the fact, or 0 */
	uint8_t bytes[PAGE];
};

static unsigned page_slot(uint64_t page)
{
	return (unsigned)((page >> 12) * 0x9e3779b1u >> 20) % PAGE_HASH;
}

/* Open addressing would make forgetting awkward: a slot holds one page, and a collision evicts. */
static struct rec_code_page *code_page(struct rec_process *proc, uint64_t addr)
{
	uint64_t page = addr & ~(PAGE - 1);
	if (!proc->pages) {
		proc->pages = calloc(PAGE_HASH, sizeof(*proc->pages));
		DJ_ASSERT(proc->pages, "out of memory for code pages");
	}
	struct rec_code_page **slot = &proc->pages[page_slot(page)];
	while (*slot && (*slot)->addr != page) {
		slot++;
		if (slot == proc->pages + PAGE_HASH)
			slot = proc->pages;
	}
	if (*slot)
		return *slot;
	const struct dj_mapping *m = rec_maps_find(proc, page);
	if (!m || !(m->prot & PROT_EXEC) || !(m->prot & PROT_READ))
		return NULL;
	struct rec_code_page *p = malloc(sizeof(*p));
	DJ_ASSERT(p, "out of memory for a code page");
	p->addr = page;
	p->logged = 0;
	p->len = (uint32_t)rec_read(proc, page, p->bytes, PAGE);
	/* what is no module may be written to by another mapping of the file */
	const struct rec_module *f = m->module >= 0 ? &proc->rec->modules[m->module] : NULL;
	p->changing = (m->prot & PROT_WRITE) || (m->flags & MAP_SHARED) ||
		      (f ? f->rewritten : !(m->flags & MAP_ANONYMOUS));
	p->dynamic = true;
	if (!p->len) {
		free(p);
		return NULL;
	}
	if (f && !f->rewritten) {
		uint64_t off = m->offset + (page - m->start);
		size_t have = off < f->size ? f->size - off : 0;
		if (have > PAGE)
			have = PAGE;
		static const uint8_t zero[4096];
		p->dynamic = p->len != PAGE || memcmp(p->bytes, f->bytes + off, have) != 0 ||
			     memcmp(p->bytes + have, zero, PAGE - have) != 0;
	}
	*slot = p;
	if (++proc->n_pages > PAGE_HASH / 2) {
		/* crowded: start over, keeping this one */
		for (unsigned i = 0; i < PAGE_HASH; i++)
			if (proc->pages[i] != p) {
				free(proc->pages[i]);
				proc->pages[i] = NULL;
			}
		*slot = NULL;
		proc->pages[page_slot(page)] = p;
		proc->n_pages = 1;
	}
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
	uint64_t fact = proc->code_fact;
	for (uint64_t page = pc & ~(PAGE - 1); page < pc + len; page += PAGE) {
		struct rec_code_page *p = code_page(proc, page);
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
		}
		if (p->logged > fact)
			fact = p->logged;
	}
	return proc->n_threads < 2 || all_know(proc, fact) ? 0 : fact;
}

void rec_code_forget(struct rec_process *proc, uint64_t start, uint64_t end)
{
	if (proc->pages) {
		bool any = false;
		for (unsigned i = 0; i < PAGE_HASH && !any; i++)
			any = proc->pages[i] && proc->pages[i]->addr < end &&
			      proc->pages[i]->addr + PAGE > start;
		if (any) {
			proc->rec->counts[REC_COUNT_FORGOTTEN]++;
			for (unsigned i = 0; i < PAGE_HASH; i++) {
				free(proc->pages[i]);
				proc->pages[i] = NULL;
			}
			proc->n_pages = 0;
		}
	}
	if (proc->tr)
		tr_invalidate(proc->tr, start, end - start);
}

void rec_code_free(struct rec_process *proc)
{
	for (unsigned i = 0; proc->pages && i < PAGE_HASH; i++)
		free(proc->pages[i]);
	free(proc->pages);
}
