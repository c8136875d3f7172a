/*
 * What an observer of the emulator is told of generated code: how often each instruction was
 * executed, how often each branch led where, and single branches.
 *
 * Counting: each way out of a block has a counter, which its jump increments. A block is left by
 * one of them whenever it was executed, and each knows how many of the block's instructions were
 * executed by then; so sums of them say how often every instruction was, exactly. An indirect
 * branch is noted instead: the code writes down which it was and where it led, into a buffer that
 * has room for as many as there can be before the code is left, and they are added up when it has
 * been left. Branches that somebody wants to hear of one by one are noted in the same way, with the
 * count of instructions and the stack pointer.
 *
 * Flags have to survive all that. A load, a lea and a store leave them alone; inc does not, and is
 * used where the block that follows overwrites them before they are read (fast-scan.c).
 */
#include "fast/fast-parts.h"
#include "format/regs.h"
#include "format/scatter.h"

#include <stdlib.h>
#include <sys/mman.h>

#define COUNT	 11
#define RCX	 1
#define WAYS	 (1u << 18)
#define WAY_HASH (2 * WAYS)
#define BRANCHES FAST_EXITS
#define COLD	 96 /* bytes of a jump that counts and keeps flags, amply */
#define EDGES	 64 /* told at once */

/* ---- memory ---------------------------------------------------------------------------------- */

/* Zeros, that take memory only where they are used. */
static void *sparse(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

bool fast_tell_begin(struct fast *f)
{
	f->branches = sparse(BRANCHES * sizeof(*f->branches));
	f->ways = sparse(WAYS * sizeof(*f->ways));
	f->way_hash = sparse(WAY_HASH * sizeof(*f->way_hash));
	f->log = sparse(FAST_LOG * sizeof(*f->log));
	f->n_branches = f->n_ways = 1;
	return f->branches && f->ways && f->way_hash && f->log;
}

static void forget_bytes(struct fast *f)
{
	while (f->bytes) {
		struct fast_bytes *b = f->bytes;
		f->bytes = b->next;
		free(b);
	}
}

static void forget_ways(struct fast *f)
{
	if (f->n_ways > 1)
		memset(f->way_hash, 0, WAY_HASH * sizeof(*f->way_hash));
	f->n_ways = 1;
}

void fast_tell_end(struct fast *f)
{
	forget_bytes(f);
	if (f->branches)
		munmap(f->branches, BRANCHES * sizeof(*f->branches));
	if (f->ways)
		munmap(f->ways, WAYS * sizeof(*f->ways));
	if (f->way_hash)
		munmap(f->way_hash, WAY_HASH * sizeof(*f->way_hash));
	if (f->log)
		munmap(f->log, FAST_LOG * sizeof(*f->log));
}

void fast_tell_flush(struct fast *f)
{
	forget_bytes(f);
	if (!f->branches) /* not yet begun */
		return;
	forget_ways(f);
	f->n_branches = 1;
}

/* ---- branches that are noted ----------------------------------------------------------------- */

uint32_t fast_branch_new(struct fast *f, const struct fast_insn *x, bool taken, unsigned executed)
{
	const struct emu_observer *o = &f->e->observer;
	const struct insn *in = &x->in;
	uint64_t next = in->addr + in->len;
	struct fast_branch b = { .from = in->addr, .to = taken ? (uint64_t)in->imm : next };

	b.indirect = x->how == FAST_RET || x->how == FAST_INDIRECT;
	if (x->wants & EMU_WANT_EDGE)
		b.kind = emu_edge_kind(in, b.indirect ? next + 1 : b.to) & o->kinds;
	if (!b.kind && !(b.indirect && f->counting))
		return 0;
	if (f->n_branches == BRANCHES) {
		f->c.overflow = true;
		return 0;
	}
	b.rest = (uint16_t)(f->scan.n - executed);
	b.sp = x->how == FAST_CALL ? -8 : 0;
	f->branches[f->n_branches] = b;
	return f->n_branches++;
}

#define ENTRY(field) (int32_t) offsetof(struct fast_entry, field)

static void put_branch(struct cg *c, uint32_t branch)
{
	struct ea m = ea_base(RCX, ENTRY(branch));

	cg_rm(c, 4, 0xc7, 0, &m, 4);
	cg32(c, branch);
}

static void put(struct cg *c, unsigned reg, int32_t at)
{
	struct ea m = ea_base(RCX, at);

	cg_store(c, reg, &m);
}

static void next_entry(struct cg *c)
{
	cg_lea(c, RCX, RCX, sizeof(struct fast_entry));
	cg_store_gs(c, RCX, F_LOG);
}

void fast_log_direct(struct fast *f, uint32_t branch)
{
	struct cg *c = &f->c;

	cg_store_gs(c, RCX, F_RCX);
	cg_load_gs(c, RCX, F_LOG);
	put_branch(c, branch);
	put(c, COUNT, ENTRY(left));
	put(c, DJ_RSP, ENTRY(sp));
	next_entry(c);
	cg_load_gs(c, RCX, F_RCX);
}

void fast_log_indirect(struct fast *f, uint32_t branch)
{
	struct cg *c = &f->c;
	struct ea to = ea_base(RCX, ENTRY(to));

	cg_load_gs(c, RCX, F_LOG);
	put_branch(c, branch);
	put(c, COUNT, ENTRY(to));
	if (f->branches[branch].kind) {
		put(c, DJ_RSP, ENTRY(sp));
		cg_load_gs(c, COUNT, F_LEFT);
		put(c, COUNT, ENTRY(left));
		cg_load(c, COUNT, &to);
	}
	next_entry(c);
}

/* ---- counters -------------------------------------------------------------------------------- */

uint8_t *fast_count_slot(struct fast *f, uint64_t thunk)
{
	struct cg *c = &f->c;
	uint8_t *site = cg_jmp(c, thunk);

	cg_bytes(c, "\xcc\xcc\xcc\xcc\xcc\xcc\xcc", FAST_SLOT - 5);
	return site;
}

bool fast_count_link(struct fast *f, uint32_t exit, const struct fast_block *b)
{
	struct fast_exit *x = &f->exits[exit];
	struct cg *cold = &f->cold;
	struct cg slot = { .p = x->site - 1, .end = x->site - 1 + FAST_SLOT, .delta = f->c.delta };
	struct ea counter = { .base = -1, .index = -1, .scale = 1, .rip = true };

	counter.target = (uint64_t)(uintptr_t)(f->counters + exit);
	if (!b) {
		cg_jmp(&slot, x->thunk);
		return true;
	}
	if (!b->flags_live) {
		cg_rm(&slot, 8, 0xff, 0, &counter, 0);
		cg_jmp(&slot, b->entry);
		return true;
	}
	if ((size_t)(cold->end - cold->p) < COLD)
		return false;
	cg_jmp(&slot, cg_va(cold));
	cg_store_gs(cold, COUNT, F_LEFT);
	cg_load(cold, COUNT, &counter);
	cg_lea(cold, COUNT, COUNT, 1);
	cg_store(cold, COUNT, &counter);
	cg_load_gs(cold, COUNT, F_LEFT);
	cg_jmp(cold, b->entry);
	return true;
}

bool fast_keep(struct fast *f, struct fast_block *b)
{
	const struct fast_scan *s = &f->scan;
	size_t size = 0;

	if (!f->counting)
		return true;
	for (unsigned i = 0; i < s->n; i++)
		size += s->i[i].in.len;
	if (!f->bytes || sizeof(f->bytes->bytes) - f->bytes->used < size) {
		struct fast_bytes *more = malloc(sizeof(*more));
		if (!more)
			return false;
		more->next = f->bytes;
		more->used = 0;
		f->bytes = more;
	}
	b->n = (uint8_t)s->n;
	b->size = (uint16_t)size;
	b->bytes = f->bytes->bytes + f->bytes->used;
	f->bytes->used += size;
	uint8_t *to = b->bytes;
	for (unsigned i = 0; i < s->n; to += s->i[i++].in.len)
		memcpy(to, s->i[i].in.bytes, s->i[i].in.len);
	return true;
}

/* ---- telling --------------------------------------------------------------------------------- */

/* What is counted of a block, by its instructions. */
struct sums {
	struct insn insn[FAST_MAX];
	uint64_t executed[FAST_MAX], taken[FAST_MAX];
};

static bool add_up(struct fast *f, const struct fast_block *b, struct sums *s)
{
	uint64_t left_behind[FAST_MAX + 1] = { 0 }, sum = 0, any = 0;

	for (uint32_t k = b->exits; k < b->exits + b->n_exits; k++) {
		const struct fast_exit *x = &f->exits[k];
		uint64_t count = f->counters[k];
		if (!count)
			continue;
		f->counters[k] = 0;
		any |= count;
		left_behind[x->executed] += count;
		if (x->taken)
			s->taken[x->executed - 1] += count;
	}
	for (uint32_t w = b->branch ? f->branches[b->branch].ways : 0; w; w = f->ways[w].next) {
		any |= f->ways[w].count;
		left_behind[b->n] += f->ways[w].count;
	}
	for (unsigned i = b->n; i-- > 0;)
		s->executed[i] = sum += left_behind[i + 1];
	return any;
}

static bool is_indirect(const struct insn *in)
{
	return in->attr & (INSN_A_INDIRECT | INSN_A_RET);
}

static void decode_again(const struct fast *f, const struct fast_block *b, struct sums *s)
{
	const uint8_t *at = b->bytes, *end = at + b->size;
	uint64_t pc = b->pc;

	for (unsigned i = 0; i < b->n; i++) {
		struct insn *in = &s->insn[i];
		insn_decode_as(f->e->kind, in, at, (size_t)(end - at), pc);
		at += in->len;
		pc += in->len;
		if (in->id == INSN_JMP && !is_indirect(in))
			pc = (uint64_t)in->imm;
	}
}

static void tell_branches(struct fast *f, const struct fast_block *b, const struct sums *s)
{
	struct emu *e = f->e;
	const struct emu_observer *o = &e->observer;

	for (unsigned i = 0; i < b->n; i++) {
		const struct insn *in = &s->insn[i];
		uint64_t taken = in->attr & INSN_A_COND ? s->taken[i] : s->executed[i];
		if (!(in->attr & INSN_A_BRANCH) || is_indirect(in))
			continue;
		if (taken)
			o->branched(e->ctx, e, in, (uint64_t)in->imm, taken);
		if (s->executed[i] > taken)
			o->branched(e->ctx, e, in, in->addr + in->len, s->executed[i] - taken);
	}
	for (uint32_t w = b->branch ? f->branches[b->branch].ways : 0; w; w = f->ways[w].next)
		if (f->ways[w].count)
			o->branched(e->ctx, e, &s->insn[b->n - 1], f->ways[w].to, f->ways[w].count);
}

void fast_tell_block(struct fast *f, struct fast_block *b)
{
	struct emu *e = f->e;
	struct emu_uop uops[FAST_MAX];
	struct sums s;

	if (!b->bytes || !e->observer.counts)
		return;
	memset(s.taken, 0, sizeof(s.taken));
	if (!add_up(f, b, &s))
		return;
	decode_again(f, b, &s);
	memset(uops, 0, b->n * sizeof(*uops));
	for (unsigned i = 0; i < b->n; i++)
		uops[i].insn = &s.insn[i];
	e->observer.counts(e->ctx, e,
			   &(struct emu_counts){ .uops = uops, .n = b->n, .more = s.executed });
	if (e->observer.branched)
		tell_branches(f, b, &s);
	for (uint32_t w = b->branch ? f->branches[b->branch].ways : 0; w; w = f->ways[w].next)
		f->ways[w].count = 0;
}

void fast_tell_all(void *engine)
{
	struct fast *f = engine;

	for (struct fast_chunk *c = f->chunks; c; c = c->next)
		for (size_t i = 0; i < c->used; i++)
			fast_tell_block(f, &c->blocks[i]);
}

/* There are more ways than there is room for: begin anew. */
static void drop_ways(struct fast *f)
{
	fast_tell_all(f);
	forget_ways(f);
	for (uint32_t i = 1; i < f->n_branches; i++)
		f->branches[i].ways = f->branches[i].last = 0;
}

static void count_way(struct fast *f, uint32_t branch, uint64_t to)
{
	struct fast_branch *b = &f->branches[branch];

	if (b->last && f->ways[b->last].to == to) {
		f->ways[b->last].count++;
		return;
	}
	if (f->n_ways == WAYS)
		drop_ways(f);
	uint32_t at = (uint32_t)dj_scatter(dj_scatter_mix(branch, to), WAY_HASH), w;
	for (; (w = f->way_hash[at]); at = (at + 1) % WAY_HASH)
		if (f->ways[w].to == to && f->ways[w].branch == branch)
			break;
	if (!w) {
		w = f->way_hash[at] = f->n_ways++;
		f->ways[w] = (struct fast_way){ .to = to, .branch = branch, .next = b->ways };
		b->ways = w;
	}
	f->ways[w].count++;
	b->last = w;
}

static void tell_edges(struct fast *f, const struct emu_edge *edges, size_t n)
{
	struct emu *e = f->e;
	const struct emu_observer *o = &e->observer;

	if (o->see_all) {
		o->see_all(e->ctx, e, edges, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		o->see(e->ctx, e, &edges[i]);
}

void fast_tell_log(struct fast *f, uint64_t from, uint64_t left)
{
	struct emu_edge edges[EDGES];
	size_t n = (FAST_U64(f, F_LOG) - (uint64_t)(uintptr_t)f->log) / sizeof(*f->log), told = 0;
	bool see = !f->e->unseen;

	for (size_t i = 0; i < n && i < FAST_LOG; i++) {
		const struct fast_entry *entry = &f->log[i];
		if (entry->branch >= f->n_branches)
			break;
		const struct fast_branch *b = &f->branches[entry->branch];
		if (b->indirect && f->counting)
			count_way(f, entry->branch, entry->to);
		if (!b->kind || !see)
			continue;
		edges[told++] = (struct emu_edge){ .kind = b->kind,
						   .from = b->from,
						   .to = b->indirect ? entry->to : b->to,
						   .steps = from + left - (entry->left + b->rest),
						   .sp = entry->sp + (uint64_t)b->sp };
		if (told == EDGES) {
			tell_edges(f, edges, told);
			told = 0;
		}
	}
	if (told)
		tell_edges(f, edges, told);
}
