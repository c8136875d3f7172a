/* See keep-world.h. */
#include "tests/lib/keep-world.h"

#include <CUnit/Basic.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define APART 0x40000000ULL /* an arena from the code, as the recorder has it */

struct text texts[LIBRARIES];
unsigned n_texts;
bool changes, untold;

static int library(struct dl_phdr_info *info, size_t size, void *ctx)
{
	(void)size, (void)ctx;
	for (int i = 0; i < info->dlpi_phnum && n_texts < LIBRARIES; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && (p->p_flags & PF_X) && (p->p_flags & PF_R) &&
		    p->p_memsz >= 1 << 15)
			texts[n_texts++] =
				(struct text){ (const uint8_t *)(info->dlpi_addr + p->p_vaddr),
					       p->p_memsz };
	}
	return 0;
}

bool find_texts(void)
{
	dl_iterate_phdr(library, NULL);
	for (unsigned i = 1; i < n_texts; i++) /* one that is not always built anew */
		if (texts[i].size > texts[0].size) {
			struct text t = texts[0];
			texts[0] = texts[i];
			texts[i] = t;
		}
	return n_texts;
}

/* ---- a program of one library -------------------------------------------------------------- */

static size_t read_text(void *ctx, uint64_t pc, uint8_t *to, size_t len, bool *changing)
{
	const struct world *w = ctx;
	uint64_t off = pc - w->base;
	*changing = changes;
	if (off >= w->text->size)
		return 0;
	if (len > w->text->size - off)
		len = w->text->size - off;
	memcpy(to, w->text->bytes + off, len);
	return len;
}

static uint64_t facts(void *ctx, uint64_t pc, size_t len)
{
	const struct world *w = ctx;
	return w->odd && !(pc >> 12 & 1) && !((pc + len - 1) >> 12 & 1) ? 0 : w->facts;
}

static bool known(void *ctx, uint64_t pc, size_t len)
{
	(void)ctx, (void)pc, (void)len;
	return !untold;
}

static struct tr_kept *kept(void *ctx, uint64_t pc, uint64_t *base)
{
	const struct world *w = ctx;
	*base = w->base;
	return pc - w->base < w->text->size && pc >> 12 != w->spoilt ? w->kept : NULL;
}

uint8_t *sparse(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CU_ASSERT_FATAL(p != MAP_FAILED);
	return p;
}

uint64_t random_of(uint64_t seed)
{
	seed = (seed + 1) * 0xbf58476d1ce4e5b9ULL;
	seed = (seed ^ seed >> 31) * 0x94d049bb133111ebULL;
	return seed ^ seed >> 32;
}

void begin_with_nothing(struct world *w)
{
	struct tr_ops ops = { w, read_text, facts, w->kept ? kept : NULL, known };
	w->tables = sparse(AREA_TABLES);
	w->arena = sparse(TR_ARENA_SIZE);
	struct tr_config config = { w->tables, tr_policies[TR_POLICY_SHADOW], w->bales };
	w->tr = tr_new(&ops, &config);
	tr_add_arena(w->tr, w->base > APART ? w->base - APART : 0x60000000, w->arena);
	tr_spare(w->tr, TR_AHEAD);
	for (uint64_t i = 0; w->base != THERE && i < 1000; i++) /* so that they are others */
		tr_number_new(w->tr, TR_STOP_LINK, 0, 0);
}

void translate(struct world *w, uint64_t round)
{
	for (unsigned i = 0; i < STARTS; i++) {
		uint64_t r = random_of(round * STARTS + i);
		struct tr_frag *f;
		if (r & 1)
			tr_expect_indirect(w->tr);
		if (tr_fragment(w->tr, w->base + (r >> 1) % w->text->size, &f) == TR_FOUND &&
		    (r & 1))
			tr_add_indirect(w->tr, f);
	}
}

void begin(struct world *w, uint64_t round)
{
	begin_with_nothing(w);
	translate(w, round);
}

void end(struct world *w)
{
	tr_free(w->tr);
	munmap(w->tables, AREA_TABLES);
	munmap(w->arena, TR_ARENA_SIZE);
}

/* ---- compared ------------------------------------------------------------------------------ */

bool same_fragment(const struct tr_frag *f, const struct tr_frag *g)
{
	bool same = f->pc == g->pc && f->entry == g->entry && f->end == g->end &&
		    f->stub == g->stub && f->live == g->live && f->ret_site == g->ret_site &&
		    f->n == g->n && f->n_uses == g->n_uses &&
		    memcmp(f->insn, g->insn, f->n * sizeof(*f->insn)) == 0;
	for (uint32_t i = 0; same && i < f->n_uses; i++)
		same = f->uses[i].page->page == g->uses[i].page->page &&
		       f->uses[i].lines == g->uses[i].lines;
	return same;
}

void compare(const struct world *a, const struct world *b)
{
	const struct tr_chunk *c = &a->tr->arenas->chunks[0], *d = &b->tr->arenas->chunks[0];
	CU_ASSERT_FATAL(a->tr->arenas->current == 0 && b->tr->arenas->current == 0);
	CU_ASSERT_FATAL(c->n == d->n);
	for (uint32_t i = 0; i < c->n; i++) {
		const struct tr_frag *f = c->frags[i];
		size_t at = f->entry - a->tr->arenas->va, len = f->end - f->entry;
		bool same =
			same_fragment(f, d->frags[i]) && !memcmp(a->arena + at, b->arena + at, len);
		if (!same)
			fprintf(stderr, "the fragment at %#llx, %u instructions\n",
				(unsigned long long)(f->pc - a->base), f->n);
		CU_ASSERT_FATAL(same);
	}
	CU_ASSERT(memcmp(a->arena, b->arena, CHUNK_HOT) == 0);
	CU_ASSERT(memcmp(a->arena + ARENA_HOT, b->arena + ARENA_HOT, CHUNK_COLD) == 0);
}

uint64_t made_again(const struct world *w)
{
	struct tr_stats st;
	tr_stats(w->tr, &st);
	return st.kept;
}
