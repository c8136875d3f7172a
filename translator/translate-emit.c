/*
 * Emitting a fragment: instructions one by one, then its ends; and its publication, when it is all
 * there.
 */
#include "translator/keep.h"

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
			tr_reg_reload(b->c, r);
			b->st.spilled &= ~(1u << r);
			b->st.clean |= 1u << r;
		}
}

static void finish(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	b->st.spilled &= ~in->gpr_full;
	b->st.clean &= ~in->gpr_written;
	if (in->flags_written & ARITH) {
		if (b->st.flags == TR_FLAGS_SAVED) /* what it leaves alone was not brought back */
			b->st.lost = ARITH;
		b->st.flags = TR_FLAGS_HW;
	}
	b->st.lost &= ~tr_flags_killed(in);
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
			b->cannot_keep |= in->addr32 || in->opnd[0].size == 2;
			if (in->opnd[0].size == 8) {
				cg_addr(b->c, r, v);
			} else if (in->opnd[0].size == 4) {
				cg_imm(b->c, r, (uint32_t)v);
				b->cannot_keep = true;
			} else { /* mov r16, imm16 */
				cg8(b->c, 0x66);
				if (r >= 8)
					cg8(b->c, 0x41);
				cg8(b->c, (uint8_t)(0xb8 + (r & 7)));
				cg8(b->c, (uint8_t)v);
				cg8(b->c, (uint8_t)(v >> 8));
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
	uint8_t *op = b->c->p;
	cg_bytes(b->c, in->bytes, in->len);
	tr_exit_op(b, op);
}

/* Emit instruction i. Returns true if the fragment ends with it. */
static bool emit_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	if (tr_must_be_native(in)) {
		b->failed = true;
		return true;
	}
	prepare(b);
	if (in->id == INSN_SYSCALL) {
		tr_call_insn(b);
		return false;
	}
	if (tr_is_result(in)) {
		tr_result_insn(b);
		return false;
	}
	if (b->policy.lock)
		tr_order_before(b);
	if (in->attr & INSN_A_FENCE) {
		tr_fence_insn(b);
	} else if (in->id == INSN_RDTSC || in->id == INSN_RDTSCP) {
		tr_tsc_insn(b);
	} else if (in->id == INSN_CPUID) {
		tr_cpuid_insn(b);
	} else if (in->id == INSN_XGETBV) {
		tr_xgetbv_insn(b);
	} else if (tr_is_xrstor(in)) {
		tr_xrstor_insn(b);
	} else if (in->attr & INSN_A_BRANCH) {
		if (tr_flow_insn(b))
			return true;
	} else if (in->attr & INSN_A_STRING) {
		tr_string_insn(b);
	} else if (in->attr & INSN_A_STACK) {
		tr_stack_insn(b);
	} else if (in->id == INSN_XLAT) {
		tr_xlat_insn(b);
	} else if (in->id == INSN_MASKMOVDQU || in->id == INSN_MASKMOVQ) {
		tr_vec_masked_bytes(b);
	} else if (in->has_mem && !(in->attr & INSN_A_NOACCESS)) {
		tr_mem_insn(b);
	} else {
		plain(b);
	}
	finish(b);
	if (b->policy.look && !b->failed)
		tr_order_after(b);
	return false;
}

/* ---- a fragment ------------------------------------------------------------------------ */

/* The code may be rewritten behind our back: compare it with what is being translated. The parts
 * are aligned: the program may have asked for a fault where one is not (EFLAGS.AC), which is not
 * about where its code lies. */
static void compare_code(struct tr_build *b, const struct tr_state *st, uint64_t pc, size_t len)
{
	struct cg *c = b->c;
	uint8_t bytes[FRAG_MAX * INSN_MAX];
	bool changing;
	len = b->tr->ops.read_code(b->tr->ops.ctx, pc, bytes, len, &changing);
	const uint64_t changed = cg_va(b->cold);
	tr_exit_stop(b, b->cold, *st, TR_STOP_CHANGED, pc, tr_lag(b), ARITH);
	cg_addr(c, 1, pc);
	for (size_t k = 0, n; k < len; k += n) {
		uint64_t v = 0;
		for (n = 8; n > len - k || (pc + k) % n; n /= 2)
			;
		memcpy(&v, bytes + k, n);
		cg_imm(c, 0, v);
		struct ea m = ea_base(1, (int32_t)k);
		cg_cmp(c, (unsigned)n, 0, &m);
		cg_jcc(c, 5, changed);
	}
}

/* Into rcx, as an operand that can be set anew (translate-keep.c) if it is not too large. */
static void number_of_facts(struct tr_build *b, uint64_t facts)
{
	if (facts != (uint32_t)facts) {
		b->cannot_keep = true;
		cg_imm(b->c, 1, facts);
		return;
	}
	cg8(b->c, 0xb9); /* mov ecx, imm32 */
	cg_note(b->c, CG_FACTS);
	cg32(b->c, (uint32_t)facts);
}

/* Before the first instruction: whether the thread may execute this. What the code has become may
 * read flags that this code does not. */
static void emit_checks(struct tr_build *b, uint64_t pc, size_t len, uint64_t facts)
{
	struct cg *c = b->c;
	struct tr_state st = { .spilled = CHECKS_SPILL, .flags = TR_FLAGS_SAVED };
	cg_store_gs(c, 0, T_SLOT(0));
	cg_store_gs(c, 1, T_SLOT(1));
	tr_emit_save_flags(c, RAX_FREE);
	if (facts) { /* known to the thread? */
		struct ea known = ea_gs(T_FACTS);
		number_of_facts(b, facts);
		cg_cmp(c, 8, 1, &known);
		cg_jcc(c, 7, cg_va(b->cold)); /* above */
		tr_exit_stop(b, b->cold, st, TR_STOP_FACTS, pc, tr_lag(b), ARITH);
	}
	if (b->changing)
		compare_code(b, &st, pc, len);
	tr_exit_leave(c, &st, 0, b->live[0]);
}

static bool emit_or_undo(struct tr_build *b)
{
	struct tr_finsn *fi = &b->f->insn[b->i];
	const struct insn *in = &b->insn[b->i];
	struct cg hot = *b->c, cold = *b->cold;
	struct tr_state st = b->st;
	uint32_t numbers = b->numbers;
	unsigned noted = b->log.n;
	bool ended = emit_insn(b);
	if (!b->failed)
		return ended;
	/* undo whatever was begun and let the supervisor execute it */
	DJ_ASSERT(b->numbers == numbers, "instruction at %#llx failed after making an exit",
		  (unsigned long long)in->addr);
	bool overflow = b->c->overflow || b->cold->overflow;
	*b->c = hot;
	*b->cold = cold;
	b->c->overflow = overflow; /* then the fragment is made again elsewhere */
	b->log.n = noted;
	b->st = st;
	fi->body = fi->start;
	tr_exit_stop(b, b->c, b->st, TR_STOP_NATIVE, in->addr, tr_lag(b), b->live[b->i]);
	return true;
}

static void emit_all(struct tr_build *b, uint64_t pc)
{
	struct tr_frag *f = b->f;
	bool ended = false;
	for (b->i = 0; b->i < b->n && !ended; b->i++) {
		struct tr_finsn *fi = &f->insn[b->i];
		fi->pc_off = (uint32_t)(b->insn[b->i].addr - pc) & 0x7ff;
		fi->lag = tr_lag(b) & 0x1fff;
		fi->start = fi->body = (uint16_t)(cg_va(b->c) - f->entry);
		fi->spilled_start = fi->spilled_body = (uint16_t)b->st.spilled;
		fi->flags_start = fi->flags_body = b->st.flags;
		fi->flags_lost = b->st.lost != 0;
		b->body_marked = false;
		if (b->op_end != b->c->p)
			b->op = NULL;
		b->busy = 0;
		b->failed = false;
		f->n = b->i + 1;
		ended = emit_or_undo(b);
	}
	if (!ended) {
		const struct insn *last = &b->insn[b->n - 1];
		tr_exit_to(b, b->st, last->addr + last->len, tr_lag(b));
	}
	for (unsigned k = 0; k < b->n_sides; k++) {
		if (!b->c->overflow)
			cg_patch32(b->side[k].site, b->c->delta, cg_va(b->c));
		tr_exit_to(b, b->side[k].st, b->side[k].target, b->side[k].steps);
	}
}

/* ---- publication --------------------------------------------------------------------------- */

void tr_enter(struct translator *tr, struct tr_frag *f)
{
	tr_enter_hash(tr, f);
	f->chunk = tr_chunk_hold(f->arena);
	tr_chunk_add(f->arena, f);
}

void tr_publish(struct translator *tr, struct tr_frag *f)
{
	tr_enter(tr, f);
	tr_links_begin(tr, f);
	tr_links_join(tr, f);
}

/* The fragment, in as much memory as it takes. */
static struct tr_frag *finished(const struct tr_build *b)
{
	struct tr_frag *f = tr_frag_new(b->tr, b->f->n, b->n_uses), at = *f;
	*f = *b->f;
	f->block = at.block;
	f->n_uses = at.n_uses;
	f->uses = at.uses;
	f->insn = at.insn;
	memcpy(f->insn, b->f->insn, f->n * sizeof(*f->insn));
	return f;
}

/* Flags that whoever comes to the fragment at pc has kept, having looked ahead. */
static uint32_t kept_for(struct tr_build *b, uint64_t pc)
{
	struct tr_look look = { .n = 0 };
	return b->policy.exact_flags ? ARITH : tr_flags_live_at(b->tr, pc, 1, &look) & b->live[0];
}

struct tr_frag *tr_translate(struct tr_build *b, struct tr_arena *a, uint64_t pc)
{
	struct translator *tr = b->tr;
	b->arena = a;
	b->c = &a->hot;
	b->cold = &a->cold;
	b->n_targets = b->n_sides = 0;
	b->numbers = 0;
	b->ret_site = 0;
	b->cannot_keep = b->other_lags = false;
	b->log.n = 0;
	b->log.overflow = false;
	struct tr_frag *again = tr_make_again(b, a, pc);
	if (again || tr_arena_overflow(a) || tr->only_kept)
		return again;
	tr_scan(b, pc);
	if (!b->n)
		return NULL;
	size_t len = tr_scanned(b);
	if (tr->only_known && !tr->ops.known(tr->ops.ctx, pc, len))
		return NULL;
	uint64_t facts = tr->ops.translated(tr->ops.ctx, pc, len);

	struct tr_frag *f = b->f;
	const uint8_t *hot = b->c->p, *cold = b->cold->p;
	b->c->log = b->cold->log = tr->ops.kept ? &b->log : NULL;
	b->asks = facts;
	*f = (struct tr_frag){ .insn = f->insn };
	memset(f->insn, 0, b->n * sizeof(*f->insn));
	f->pc = pc;
	f->arena = a;
	f->checks = b->changing || facts;
	tr->some_go |= f->checks;
	f->live = b->live[0];
	f->slot = TR_NO_SLOT;
	f->stub_chunk = TR_NO_CHUNK;
	f->lag = tr_lag_at(tr, pc, 0, 0);
	b->lag = (int)f->lag;
	b->op = NULL;
	b->i = 0;
	if (tr->expect_indirect) /* of the code before it, so that it needs no jump */
		f->stub = tr_emit_indirect(b->c, a, f);
	tr->expect_indirect = false;
	f->entry = cg_va(b->c);
	b->st = (struct tr_state){ .spilled = HOME_BIT, .flags = TR_FLAGS_HW };
	b->st.lost = ARITH & ~kept_for(b, pc);
	if (f->checks) /* boundary 0 is behind it, where the state is whole again */
		emit_checks(b, pc, len, facts);
	emit_all(b, pc);
	f->end = cg_va(b->c);
	f->numbers = b->numbers;
	b->c->log = b->cold->log = NULL;
	if (tr_arena_overflow(a)) {
		tr_numbers_drop(tr, f->numbers);
		return NULL;
	}
	f->ret_site = b->ret_site;
	if (tr->ops.kept)
		tr_keep(b, f, hot, cold, len);
	f = finished(b);
	tr_use_pages(tr, f, b->use);
	tr_publish(tr, f);
	tr->stats.fragments++;
	tr->stats.instructions += f->n;
	tr->stats.code_bytes += f->end - f->entry;
	return f;
}
