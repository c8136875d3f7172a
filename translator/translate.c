/*
 * The translator's frame: scanning a run of instructions and emitting them one by one. translate.h
 * has the rules; translate-mem.c, translate-atomic.c, translate-vec.c and translate-flow.c emit
 * instructions, translate-state.c keeps the registers, translate-flags.c looks ahead for flags,
 * translate-cache.c answers questions about what was made.
 */
#include "format/regs.h"
#include "translator/translate-priv.h"

#include <stdlib.h>

/* ---- one instruction ----------------------------------------------------------------- */

/* Registers and flags as instruction i wants them: what it reads is reloaded; flags are brought
 * back if it reads them or keeps some that are live. */
static void prepare(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	uint32_t need = b->st.spilled & (in->gpr_read | (in->gpr_written & ~in->gpr_full));
	for (unsigned r = 0; r < 16; r++)
		if (need & 1u << r) {
			tr_reg_reload(b, b->c, r);
			b->st.spilled &= ~(1u << r);
			b->st.clean |= 1u << r;
		}
}

/* Right before the instruction's own operation. */
void tr_flags_for_op(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	if (b->st.flags != TR_FLAGS_SAVED)
		return;
	uint32_t need = tr_flags_used(in);
	if (in->flags_written & ARITH)
		need |= b->live[b->i + 1] & ~tr_flags_killed(in);
	if (need)
		tr_flags_need(b, b->c);
}

static void finish(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	b->st.spilled &= ~in->gpr_full;
	b->st.clean &= ~in->gpr_written;
	if (in->flags_written & ARITH)
		b->st.flags = TR_FLAGS_HW;
}

/* An instruction that does not touch memory. */
static void plain(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	tr_flags_for_op(b);
	if (in->id == INSN_NOP || in->id == INSN_ENDBR)
		return;
	if (in->has_mem && (in->attr & INSN_A_NOACCESS)) {
		if (in->id == INSN_LEA && in->base == INSN_RIP) {
			uint64_t v = in->addr32 ? (uint32_t)in->target : in->target;
			unsigned r = in->opnd[0].reg;
			if (in->opnd[0].size == 8) {
				cg_imm(b->c, r, v);
			} else if (in->opnd[0].size == 4) {
				cg_imm(b->c, r, (uint32_t)v);
			} else {
				b->failed = true;
			}
			return;
		}
		if (in->id != INSN_LEA && (in->base == INSN_RIP || in->seg))
			return; /* a hint about an address: of no consequence */
	}
	if (in->id == INSN_PREFETCH && b->policy.mirror) {
		/* the shadow will be read, too */
		struct ea mem, shadow;
		if (tr_mem_operand(b, &mem, &shadow))
			cg_reencode(b->c, in, &shadow);
		b->failed = false;
	}
	cg_bytes(b->c, in->bytes, in->len);
}

/* Instructions that always go through the supervisor. */
static bool must_be_native(const struct insn *in)
{
	if (in->lock && !insn_lockable(in))
		return true; /* faults */
	if (in->id == INSN_RDTSC || in->id == INSN_RDTSCP)
		return false;
	if (in->id == INSN_SYSCALL)
		return false;
	if (!insn_is_emulated(in))
		return true;
	if (in->attr & (INSN_A_PRIV | INSN_A_NONDET))
		return true;
	return in->id ==
	       INSN_MOVDIR64B; /* stores where a register points, which has_mem does not speak of */
}

/* Emit instruction i. Returns true if the fragment ends with it. */
static bool emit_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	if (must_be_native(in)) {
		b->failed = true;
		return true;
	}
	prepare(b);
	if (in->id == INSN_SYSCALL) {
		tr_syscall_emit(b);
		return false;
	}
	if (in->id == INSN_RDTSC || in->id == INSN_RDTSCP) {
		tr_tsc_insn(b);
	} else if (in->attr & INSN_A_BRANCH) {
		if (tr_flow_insn(b))
			return true;
	} else if (in->attr & INSN_A_STRING) {
		tr_string_insn(b);
	} else if (in->attr & INSN_A_STACK) {
		tr_stack_insn(b);
	} else if (in->id == INSN_XLAT) {
		tr_mem_xlat(b);
	} else if (in->id == INSN_MASKMOVDQU || in->id == INSN_MASKMOVQ) {
		tr_vec_masked_bytes(b);
	} else if (in->has_mem && !(in->attr & INSN_A_NOACCESS)) {
		tr_mem_insn(b);
	} else {
		plain(b);
	}
	finish(b);
	return false;
}

/* ---- a fragment ------------------------------------------------------------------------ */

static void scan(struct tr_build *b, uint64_t pc)
{
	b->n = 0;
	b->changing = false;
	while (b->n < FRAG_MAX) {
		const struct tr_decoded *d = tr_decode(b->tr, pc);
		struct insn *in = &b->insn[b->n];
		if (!d || (b->n >= JOIN && tr_find(b->tr, pc)))
			break; /* go on in the fragment that is there */
		*in = d->insn;
		b->n++;
		pc += in->len;
		b->changing |= d->changing;
		if (b->changing && (b->n >= 16 || (in->mem_access & INSN_W) ||
				    (in->attr & (INSN_A_STACK | INSN_A_STRING | INSN_A_MASKED))))
			break;
		if (must_be_native(in))
			break;
		if ((in->attr & INSN_A_BRANCH) && !(in->attr & INSN_A_COND))
			break;
	}
	/* Backwards: which flags are live before each instruction. */
	uint32_t live = ARITH;
	if (b->n) {
		const struct insn *last = &b->insn[b->n - 1];
		if (must_be_native(last) || (last->attr & (INSN_A_INDIRECT | INSN_A_RET)))
			live = ARITH;
		else if ((last->attr & INSN_A_BRANCH) && !(last->attr & INSN_A_COND))
			live = tr_flags_live_at(b->tr, (uint64_t)last->imm, 1);
		else
			live = tr_flags_live_at(b->tr, last->addr + last->len, 1);
	}
	b->live[b->n] = live;
	for (unsigned i = b->n; i-- > 0;) {
		const struct insn *in = &b->insn[i];
		if ((in->attr & INSN_A_BRANCH) && (in->attr & INSN_A_COND))
			live |= tr_flags_live_at(b->tr, (uint64_t)in->imm, 1);
		live &= ~tr_flags_killed(in);
		live |= tr_flags_used(in);
		if (must_be_native(in))
			live = ARITH;
		b->live[i] = live;
	}
}

/* The code may be rewritten behind our back: compare it with what is being translated. */
static void emit_code_check(struct tr_build *b, uint64_t pc, size_t len)
{
	struct cg *c = b->c;
	uint8_t bytes[16 * INSN_MAX + 8] = { 0 };
	bool changing;
	len = b->tr->ops.read_code(b->tr->ops.ctx, pc, bytes, len, &changing);
	cg_store_gs(c, 0, T_SLOT(0));
	cg_store_gs(c, 1, T_SLOT(1));
	if (b->live[0])
		tr_emit_save_flags(c, RAX_FREE);
	struct tr_state st = { .spilled = 3 | HOME_BIT,
			       .flags = b->live[0] ? TR_FLAGS_SAVED : TR_FLAGS_HW };
	cg_imm(c, 1, pc);
	for (size_t k = 0; k < len; k += 8) {
		unsigned n = len - k >= 8 ? 8 : len - k >= 4 ? 4 : 1;
		uint64_t v = 0;
		memcpy(&v, bytes + k, n);
		cg_imm(c, 0, v);
		struct ea m = ea_base(1, (int32_t)k);
		cg_cmp(c, n, 0, &m);
		cg_jcc(c, 5, cg_va(b->cold));
		tr_exit_stop(b, b->cold, st, TR_STOP_CHANGED, pc, 0, b->live[0]);
		if (n < 8)
			k -= 8 - n;
	}
	tr_exit_leave(c, &st, 0, b->live[0]);
}

/* What "near" means to tr_no_arena(). Never 0. */
static uint64_t region(uint64_t pc)
{
	return (pc >> 28) + 1;
}

/* The arena for code at `pc`, NULL if there is none within reach and one may yet be had. */
static struct tr_arena *arena_for(struct translator *tr, uint64_t pc)
{
	for (struct tr_arena *a = tr->arenas; a; a = a->next)
		if (tr_reachable(a->va, pc) && tr_reachable(a->va + TR_ARENA_SIZE, pc))
			return a;
	return tr->no_arena == region(pc) ? tr->arenas : NULL;
}

/* Translate the run of code at pc. Ahead targets go to `ahead`. */
static struct tr_frag *translate(struct translator *tr, uint64_t pc, struct tr_build *b)
{
	b->tr = tr;
	b->policy = tr->policy;
	b->arena = arena_for(tr, pc);
	if (!b->arena)
		return NULL;
	b->c = &b->arena->hot;
	b->cold = &b->arena->cold;
	b->n_targets = 0;
	b->n_sides = 0;
	b->ret_site = 0;
	scan(b, pc);
	if (!b->n)
		return NULL;
	size_t len = 0;
	for (unsigned i = 0; i < b->n; i++)
		len += b->insn[i].len;
	tr->ops.translated(tr->ops.ctx, pc, len);

	struct tr_frag *f = calloc(1, sizeof(*f) + b->n * sizeof(f->insn[0]));
	DJ_ASSERT(f, "out of memory for a fragment");
	b->f = f;
	f->pc = pc;
	f->pc_len = (uint32_t)len;
	f->arena = b->arena;
	f->entry = cg_va(b->c);
	f->live = b->live[0];
	b->st = (struct tr_state){ .spilled = HOME_BIT, .flags = TR_FLAGS_HW };
	if (b->changing) {
		/* boundary 0 is behind the check, where the state is whole again */
		emit_code_check(b, pc, len);
	}

	bool ended = false;
	for (b->i = 0; b->i < b->n && !ended; b->i++) {
		struct tr_finsn *fi = &f->insn[b->i];
		fi->pc_off = (uint16_t)(b->insn[b->i].addr - pc);
		fi->start = fi->body = (uint32_t)(cg_va(b->c) - f->entry);
		fi->spilled_start = fi->spilled_body = (uint16_t)b->st.spilled;
		fi->flags_start = fi->flags_body = (uint8_t)b->st.flags;
		b->body_marked = false;
		b->busy = 0;
		b->failed = false;
		f->n = b->i + 1;
		struct cg hot = *b->c, cold = *b->cold;
		struct tr_state st = b->st;
		uint32_t n_stops = tr->n_stops;
		unsigned n_targets = b->n_targets;
		ended = emit_insn(b);
		if (b->failed) {
			/* Undo whatever was begun and let the supervisor execute it. Stops made
			 * meanwhile are at most unlinked LINK stops at the end of the table. */
			*b->c = hot;
			*b->cold = cold;
			b->st = st;
			DJ_ASSERT(tr->n_stops == n_stops && b->n_targets == n_targets,
				  "instruction at %#llx failed after making an exit",
				  (unsigned long long)b->insn[b->i].addr);
			fi->body = fi->start;
			tr_exit_stop(b, b->c, b->st, TR_STOP_NATIVE, b->insn[b->i].addr, b->i,
				     b->live[b->i]);
			ended = true;
		}
	}
	if (!ended) {
		const struct insn *last = &b->insn[b->n - 1];
		tr_exit_to(b, b->c, b->st, last->addr + last->len, b->n);
	}
	for (unsigned k = 0; k < b->n_sides; k++) {
		if (!b->c->overflow)
			cg_patch32(b->side[k].site, b->c->delta, cg_va(b->c));
		tr_exit_to(b, b->c, b->side[k].st, b->side[k].target, b->side[k].executed);
	}
	f->end = cg_va(b->c);
	if (b->c->overflow || b->cold->overflow) {
		free(f);
		return NULL;
	}

	unsigned slot = tr_slot(pc);
	f->hash_next = tr->hash[slot];
	tr->hash[slot] = f;
	struct tr_arena *a = b->arena;
	if (a->n_frags == a->cap_frags) {
		a->cap_frags = a->cap_frags ? a->cap_frags * 2 : 4096;
		a->frags = realloc(a->frags, a->cap_frags * sizeof(*a->frags));
		DJ_ASSERT(a->frags, "out of memory for fragments");
	}
	a->frags[a->n_frags++] = f;
	for (uint32_t *p = &tr->pending[slot]; *p;) {
		struct tr_stop *s = &tr->stops[*p];
		if (s->pc == pc) {
			tr_link_stop(tr, s, f);
			*p = s->next;
		} else {
			p = &s->next;
		}
	}
	for (uint64_t page = pc >> 12; page <= (pc + len - 1) >> 12; page++)
		tr_add_page(tr, page);
	tr->stats.fragments++;
	tr->stats.instructions += f->n;
	tr->stats.code_bytes += f->end - f->entry;
	return f;
}

#define AHEAD 24

/* One stop costs as much as translating a dozen fragments: go ahead from the one just made along
 * direct branches, and to return addresses, which are indirect targets soon. */
static void translate_ahead(struct tr_build *b)
{
	struct translator *tr = b->tr;
	struct {
		uint64_t pc;
		bool ret;
	} queue[AHEAD * 4];
	unsigned head = 0, tail = 0;
	unsigned made = 0;
	do {
		if (b->ret_site && tail < AHEAD * 4) {
			queue[tail].pc = b->ret_site;
			queue[tail++].ret = true;
		}
		for (unsigned i = 0; i < b->n_targets && tail < AHEAD * 4; i++) {
			queue[tail].pc = b->target[i];
			queue[tail++].ret = false;
		}
		struct tr_frag *g = NULL;
		while (head < tail && !g) {
			uint64_t t = queue[head].pc;
			bool ret = queue[head++].ret;
			g = tr_find(tr, t);
			if (g) {
				if (ret)
					tr_add_indirect(tr, g);
				g = NULL;
				continue;
			}
			g = translate(tr, t, b);
			if (!g && b->arena && (b->c->overflow || b->cold->overflow))
				return;
			if (g && ret)
				tr_add_indirect(tr, g);
		}
		if (!g)
			break;
	} while (++made < AHEAD);
}

enum tr_found tr_fragment(struct translator *tr, uint64_t pc, struct tr_frag **found)
{
	for (struct tr_arena *a = tr->arenas; a; a = a->next)
		if (a->hot.overflow || a->cold.overflow) {
			tr_flush(tr); /* a full cache: start over */
			break;
		}
	*found = tr_find(tr, pc);
	if (*found)
		return TR_FOUND;
	if (!arena_for(tr, pc)) {
		if (tr->no_arena == region(pc))
			return TR_NATIVE;
		tr->asked = pc;
		return TR_NO_ARENA;
	}
	struct tr_build *b = tr->build;
	*found = translate(tr, pc, b);
	if (!*found && (b->c->overflow || b->cold->overflow)) {
		tr_flush(tr);
		*found = translate(tr, pc, b);
	}
	if (!*found)
		return TR_NATIVE;
	translate_ahead(b);
	return TR_FOUND;
}

/* ---- life -------------------------------------------------------------------------------- */

const struct tr_policy tr_policies[TR_POLICIES] = {
	[TR_POLICY_SHADOW] = { .name = "shadow", .mirror = true },
	[TR_POLICY_LAST] = { .name = "last" },
	[TR_POLICY_NONE] = { .name = "none", .import_all = true },
};

struct translator *tr_new(const struct tr_ops *ops, const struct tr_config *config)
{
	struct translator *tr = calloc(1, sizeof(*tr));
	DJ_ASSERT(tr, "out of memory for the translator");
	tr->ops = *ops;
	tr->tables = config->tables;
	tr->policy = config->policy;
	tr->epoch = 1;
	tr->build = calloc(1, sizeof(*tr->build));
	tr->pending = calloc(FRAG_HASH, sizeof(*tr->pending));
	tr->decoded = calloc(DECODED, sizeof(*tr->decoded));
	DJ_ASSERT(tr->build && tr->pending && tr->decoded, "out of memory for the translator");
	for (unsigned i = 0; i < STOP_TABLE; i++)
		tr_new_stop(tr, TR_STOP_LINK, 0, NULL);
	return tr;
}

void tr_add_arena(struct translator *tr, uint64_t va, uint8_t *ours)
{
	struct tr_arena *a = calloc(1, sizeof(*a));
	DJ_ASSERT(a, "out of memory for an arena");
	a->va = va;
	a->ours = ours;
	size_t rt = (size_t)(rt_end - rt_begin);
	memcpy(a->ours, rt_begin, rt);
	rt = (rt + 63) & ~(size_t)63;
	uint64_t delta = a->va - (uint64_t)(uintptr_t)a->ours;
	a->hot = (struct cg){ .p = a->ours + rt, .end = a->ours + ARENA_HOT, .delta = delta };
	a->cold = (struct cg){ .p = a->ours + ARENA_HOT,
			       .end = a->ours + TR_ARENA_SIZE,
			       .delta = delta };
	a->next = tr->arenas;
	tr->arenas = a;
	if (!a->next)
		tr_clear_indirect(tr);
}

void tr_no_arena(struct translator *tr)
{
	tr->no_arena = region(tr->asked);
}

void tr_invalidate(struct translator *tr, uint64_t addr, uint64_t len)
{
	tr_forget_decoded(tr);
	if (tr_covers(tr, addr, len))
		tr_flush(tr);
}

uint64_t tr_epoch(const struct translator *tr)
{
	return tr->epoch;
}

void tr_reclaim(struct translator *tr, uint64_t oldest)
{
	(void)tr, (void)oldest;
}

void tr_flush(struct translator *tr)
{
	tr_forget_decoded(tr);
	for (struct tr_arena *a = tr->arenas; a; a = a->next) {
		for (size_t i = 0; i < a->n_frags; i++)
			free(a->frags[i]);
		a->n_frags = 0;
		size_t rt = (size_t)(rt_end - rt_begin);
		rt = (rt + 63) & ~(size_t)63;
		a->hot.p = a->ours + rt;
		a->cold.p = a->ours + ARENA_HOT;
		a->hot.overflow = a->cold.overflow = false;
	}
	memset(tr->hash, 0, sizeof(tr->hash));
	memset(tr->pending, 0, FRAG_HASH * sizeof(*tr->pending));
	if (tr->arenas)
		tr_clear_indirect(tr);
	tr->n_stops = STOP_TABLE;
	if (tr->pages)
		memset(tr->pages, 0, tr->cap_pages * sizeof(*tr->pages));
	tr->n_pages = 0;
	tr->stats.flushes++;
}

void tr_free(struct translator *tr)
{
	if (!tr)
		return;
	while (tr->arenas) {
		struct tr_arena *a = tr->arenas;
		tr->arenas = a->next;
		for (size_t i = 0; i < a->n_frags; i++)
			free(a->frags[i]);
		free(a->frags);
		free(a);
	}
	free(tr->build);
	free(tr->pending);
	free(tr->decoded);
	free(tr->pages);
	free(tr->stops);
	free(tr);
}
