/*
 * The emulator's block cache: fetching, decoding and binding code, and finding it again.
 *
 * Relies on insn_decode() and on the families' binders. See emu-core.h for what a block is.
 */
#include "emu/emu-core.h"
#include "format/scatter.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA_SIZE  (1u << 20)
#define CACHE_LIMIT ((size_t)512 << 20) /* bytes of bound code before starting afresh */

struct emu_arena {
	struct emu_arena *next;
	size_t used;
	_Alignas(16) unsigned char mem[ARENA_SIZE];
};

struct emu_core *emu_core_new(void)
{
	struct emu_core *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->rep_limit = UINT64_MAX;
	c->hash_size = 1 << 12;
	c->hash = calloc(c->hash_size, sizeof(*c->hash));
	if (!c->hash) {
		free(c);
		return NULL;
	}
	return c;
}

static void free_blocks(struct emu_core *c)
{
	for (struct emu_arena *a = c->arenas, *next; a; a = next) {
		next = a->next;
		free(a);
	}
	c->arenas = NULL;
	c->arena_bytes = c->dead_bytes = 0;
	c->nblocks = 0;
	c->at = NULL;
	c->cur = NULL;
	memset(c->hash, 0, c->hash_size * sizeof(*c->hash));
	memset(c->jump_cache, 0, sizeof(c->jump_cache));
	memset(c->pages, 0, sizeof(c->pages));
}

void emu_core_free(struct emu_core *c)
{
	if (!c)
		return;
	free_blocks(c);
	free(c->hash);
	free(c);
}

void emu_blocks_flush(struct emu *e)
{
	emu_tell_counts(e);
	free_blocks(emu_core(e));
}

void *emu_blocks_alloc(struct emu_core *c, size_t n)
{
	struct emu_arena *a = c->arenas;

	n = (n + 15) & ~(size_t)15;
	if (!a || a->used + n > ARENA_SIZE) {
		a = malloc(sizeof(*a));
		if (!a)
			return NULL;
		a->next = c->arenas;
		a->used = 0;
		c->arenas = a;
		c->arena_bytes += sizeof(*a);
	}
	void *p = a->mem + a->used;
	a->used += n;
	return p;
}

static size_t jump_slot(uint64_t rip)
{
	return (rip ^ rip >> JUMP_CACHE_BITS) & ((1u << JUMP_CACHE_BITS) - 1);
}

static size_t page_slot(uint64_t page)
{
	return dj_scatter(page, 1u << PAGE_HASH_BITS);
}

static void hash_grow(struct emu_core *c)
{
	size_t size = c->hash_size * 4;
	struct emu_block **h = calloc(size, sizeof(*h));

	if (!h)
		return; /* longer chains, that is all */
	for (size_t i = 0; i < c->hash_size; i++) {
		for (struct emu_block *b = c->hash[i], *next; b; b = next) {
			size_t s = dj_scatter(b->rip, size);
			next = b->hash_next;
			b->hash_next = h[s];
			h[s] = b;
		}
	}
	free(c->hash);
	c->hash = h;
	c->hash_size = size;
}

static void block_insert(struct emu_core *c, struct emu_block *b)
{
	if (c->nblocks > c->hash_size)
		hash_grow(c);
	size_t s = dj_scatter(b->rip, c->hash_size), p = page_slot(b->rip >> 12);
	b->hash_next = c->hash[s];
	c->hash[s] = b;
	b->page_next = c->pages[p];
	c->pages[p] = b;
	c->nblocks++;
}

static void block_remove(struct emu *e, struct emu_block *b)
{
	struct emu_core *c = emu_core(e);
	struct emu_block **p = &c->hash[dj_scatter(b->rip, c->hash_size)];

	if (emu_counting(e))
		emu_count_block(e, b);
	while (*p != b)
		p = &(*p)->hash_next;
	*p = b->hash_next;
	if (c->jump_cache[jump_slot(b->rip)] == b)
		c->jump_cache[jump_slot(b->rip)] = NULL;
	c->dead_bytes += sizeof(*b) + b->n * (sizeof(struct emu_uop) + sizeof(struct insn));
	c->nblocks--;
	b->rip = BLOCK_DEAD;
}

/* Remove the blocks in one chain of `pages` that overlap [addr, last]. */
static void forget_chain(struct emu *e, struct emu_block **p, uint64_t addr, uint64_t last)
{
	while (*p) {
		struct emu_block *b = *p;
		if (b->rip <= last && b->end > addr) {
			*p = b->page_next;
			block_remove(e, b);
		} else {
			p = &b->page_next;
		}
	}
}

static void blocks_forget(struct emu *e, uint64_t addr, uint64_t len)
{
	struct emu_core *c = emu_core(e);
	const uint64_t reach = BLOCK_MAX * INSN_MAX;

	if (!len)
		return;
	c->at = NULL;
	uint64_t last = addr + len - 1 < addr ? UINT64_MAX : addr + len - 1;
	if (!addr && len == UINT64_MAX) { /* dead blocks would stay until there are many */
		emu_blocks_flush(e);
		return;
	}
	uint64_t first = addr < reach ? 0 : addr - reach;
	if ((last >> 12) - (first >> 12) >= 1u << PAGE_HASH_BITS) {
		for (size_t i = 0; i < 1u << PAGE_HASH_BITS; i++)
			forget_chain(e, &c->pages[i], addr, last);
		return;
	}
	for (uint64_t page = first >> 12; page <= last >> 12; page++)
		forget_chain(e, &c->pages[page_slot(page)], addr, last);
}

static uint8_t opnd_reg(const struct insn *in, unsigned i)
{
	if (i >= in->nopnd)
		return 0;
	switch (in->opnd[i].kind) {
	case OPND_NONE:
	case OPND_MEM:
	case OPND_IMM:
	case OPND_REL:
	case OPND_VSIB:
		return 0;
	default:
		return in->opnd[i].reg;
	}
}

bool emu_bind(const struct insn *in, struct emu_uop *u)
{
	static emu_fn *(*const binders[])(const struct insn *, struct emu_uop *) = {
		emu_bind_int, emu_bind_string, emu_bind_vec, emu_bind_fp, emu_bind_x87,
	};

	if (in->lock && !insn_lockable(in))
		return false;
	memset(u, 0, sizeof(*u));
	u->insn = in;
	u->next = in->addr + in->len;
	u->imm = in->imm;
	u->base = u->index = EMU_ZERO_REG;
	if (in->has_mem) {
		u->disp = in->disp;
		if (in->base == INSN_RIP)
			u->disp = (int64_t)in->target;
		else if (in->base < 16)
			u->base = in->base;
		/* gather's vector index is the handler's business */
		bool vsib = false;
		for (unsigned i = 0; i < in->nopnd; i++)
			vsib |= in->opnd[i].kind == OPND_VSIB;
		if (in->index < 16 && !vsib)
			u->index = in->index;
		if (in->scale)
			u->shift = (uint8_t)__builtin_ctz(in->scale);
	}
	u->addr32 = in->addr32;
	u->seg = in->seg == 4 ? 1 : in->seg == 5 ? 2 : 0;
	u->size = in->nopnd ? (uint8_t)in->opnd[0].size : 0;
	u->cond = in->cond;
	u->a = opnd_reg(in, 0);
	u->b = opnd_reg(in, 1);
	u->c = opnd_reg(in, 2);
	u->d = opnd_reg(in, 3);
	if (in->attr & INSN_A_BRANCH)
		u->flags |= EMU_UOP_BRANCH;
	if (in->attr & INSN_A_REP)
		u->flags |= EMU_UOP_REP;
	if (insn_is_ordered(in))
		u->flags |= EMU_UOP_FENCE;
	const struct emu_uop preset = *u;
	for (size_t i = 0; i < sizeof(binders) / sizeof(binders[0]); i++) {
		u->fn = binders[i](in, u);
		if (u->fn)
			return true;
		*u = preset;
	}
	return false;
}

/* Bind the observer into an instruction of which something is wanted. False if there is no memory
 * for that. */
static bool bind_seen(struct emu *e, struct emu_uop *u, unsigned index)
{
	unsigned wants = emu_wants(e, u->insn);
	struct emu_seen *s;

	if (!wants)
		return true;
	s = emu_blocks_alloc(emu_core(e), sizeof(*s));
	if (!s)
		return false;
	*s = (struct emu_seen){ .insn = *u->insn, .fn = u->fn, .index = index, .wants = wants };
	u->insn = &s->insn;
	u->fn = emu_seen;
	return true;
}

/* ---- making blocks --------------------------------------------------------------------- */

/* Code bytes for decoding, fetched in pieces larger than an instruction. */
struct window {
	uint64_t addr;
	size_t len;
	uint8_t bytes[256];
};

static int decode_at(struct emu *e, struct window *w, uint64_t rip, struct insn *in)
{
	uint64_t off = rip - w->addr;

	if (off >= w->len || w->len - off < INSN_MAX) {
		w->addr = rip;
		w->len = e->fetch ? e->fetch(e->ctx, rip, w->bytes, sizeof(w->bytes)) : 0;
		off = 0;
	}
	if (!w->len)
		return 0;
	return insn_decode_as(e->kind, in, w->bytes + off, w->len - off, rip);
}

/* Decode and bind the instruction at rip. */
static bool bind_at(struct emu *e, struct window *w, uint64_t rip, struct insn *in,
		    struct emu_uop *u, enum emu_stop *why)
{
	int n = decode_at(e, w, rip, in);

	if (n > 0 && insn_is_emulated(in) && emu_bind(in, u))
		return true;
	if (n == 0) {
		*why = EMU_STOP_FETCH;
		snprintf(e->why, sizeof(e->why), "no code known at 0x%llx",
			 (unsigned long long)rip);
	} else {
		*why = EMU_STOP_UNKNOWN;
		snprintf(e->why, sizeof(e->why), "%s at 0x%llx cannot be emulated",
			 n > 0 ? insn_id_name(in->id) : "undecodable instruction",
			 (unsigned long long)rip);
	}
	return false;
}

static struct emu_block *block_make(struct emu *e, uint64_t rip, enum emu_stop *why)
{
	struct emu_core *c = emu_core(e);
	struct window w = { .len = 0 };
	struct insn insns[BLOCK_MAX];
	struct emu_uop uops[BLOCK_MAX];
	unsigned n = 0, fences = 0;
	bool branches = false;
	uint64_t at = rip;
	enum emu_stop ignored;

	while (n < BLOCK_MAX && !branches) {
		if (!bind_at(e, &w, at, &insns[n], &uops[n], n ? &ignored : why))
			break;
		if (uops[n].next < at)
			break; /* code does not wrap around the address space */
		at = uops[n].next;
		branches = uops[n].flags & EMU_UOP_BRANCH;
		fences += !!(uops[n].flags & EMU_UOP_FENCE);
		n++;
	}
	if (n) {
		e->why[0] = 0;
	} else {
		return NULL;
	}

	struct emu_block *b = emu_blocks_alloc(c, sizeof(*b));
	struct emu_uop *bu = emu_blocks_alloc(c, n * sizeof(*bu));
	struct insn *bi = emu_blocks_alloc(c, n * sizeof(*bi));
	if (b && bu && bi) {
		memcpy(bu, uops, n * sizeof(*bu));
		memcpy(bi, insns, n * sizeof(*bi));
		for (unsigned i = 0; i < n; i++)
			bu[i].insn = &bi[i];
	}
	bool bound = b && bu && bi;
	for (unsigned i = 0; i < n && bound; i++)
		bound = bind_seen(e, &bu[i], i);
	if (!bound) {
		*why = EMU_STOP_UNKNOWN;
		snprintf(e->why, sizeof(e->why), "out of memory");
		return NULL;
	}
	*b = (struct emu_block){ .rip = rip,
				 .end = at,
				 .n = (uint16_t)n,
				 .fences = (uint16_t)fences,
				 .branches = branches,
				 .uops = bu };
	block_insert(c, b);
	return b;
}

struct emu_block *emu_block_at(struct emu *e, uint64_t rip, enum emu_stop *why)
{
	struct emu_core *c = emu_core(e);
	struct emu_block **slot = &c->jump_cache[jump_slot(rip)];
	struct emu_block *b = *slot;

	if (b && b->rip == rip)
		return b;
	for (b = c->hash[dj_scatter(rip, c->hash_size)]; b; b = b->hash_next)
		if (b->rip == rip)
			break;
	if (!b)
		b = block_make(e, rip, why);
	if (b)
		*slot = b;
	return b;
}

bool emu_peek(struct emu *e, struct insn *out)
{
	struct window w = { .len = 0 };

	return decode_at(e, &w, e->cpu.rip, out) > 0;
}

void emu_forget_code(struct emu *e, uint64_t addr, uint64_t len)
{
	blocks_forget(e, addr, len);
	if (e->forgotten)
		e->forgotten(e->forgotten_ctx, addr, len);
}

bool emu_blocks_full(const struct emu_core *c)
{
	return c->arena_bytes > CACHE_LIMIT || c->dead_bytes > CACHE_LIMIT / 4;
}
