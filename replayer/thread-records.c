/*
 * A thread's stream: reading it, and applying the records that take no step.
 *
 * The stream is read one record ahead. What takes no step is applied as soon as its
 * position is reached (rp_thread_settle); an instruction's imports are gathered there, so that
 * the record behind them shows whether the instruction was executed at all: a fault's
 * SIGNAL may follow at the same position. What a stream says is never trusted: a record out of
 * order is damage.
 */
#include "replayer/thread-internal.h"
#include "replayer/memview.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define IMPORTS_MAX	1024u	   /* 256 loads of an instruction, each straddling, with room */
#define HERE_MAX	(1u << 22) /* records at one position; all of a program's memory are as many */
#define WHOLE		(1u << 14) /* records at one position that are applied without looking up */
#define EXEC_COUNTS	4096u	   /* as so many: all memory is made new */
#define KEYFRAME_COUNTS 4096u
#define RECORD_WORK	10

/* System call numbers of x86-64 Linux (arch/x86/entry/syscalls/syscall_64.tbl). */
#define X_SYS_MREMAP 25

/* ---- reading the stream --------------------------------------------------------------- */

void rp_thread_advance(struct rp_thread *th)
{
	if (th->over) {
		th->next = NULL;
		return;
	}
	if (th->mem)
		dj_cursor_mark(th->cur, &th->next_mark);
	th->err.text[0] = 0;
	th->next = dj_cursor_next(th->cur, &th->err);
	if (!th->next && th->err.text[0]) {
		/* without its records the thread's history is not known any further */
		th->damaged = true;
		th->end_steps = th->e->steps;
	}
	if (!th->next || th->next->steps != th->here_steps || th->next->rep) {
		th->here_steps = th->next ? th->next->steps : 0;
		th->here = 0;
	}
	th->here++;
}

uint64_t rp_thread_count_reg(const struct rp_thread *th, uint64_t like)
{
	uint64_t rcx = th->e->cpu.gpr[DJ_RCX];

	/* with an address-size prefix ecx counts, and only its first iteration can find
	 * anything above it */
	return (uint32_t)rcx == like ? like : rcx;
}

void rp_thread_flush_imports(struct rp_thread *th)
{
	for (size_t i = 0; i < th->nimports; i++)
		rp_thread_import_line(th, &th->imports[i]);
	th->nimports = 0;
}

static enum rp_thread_stop gather(struct rp_thread *th, const struct dj_record *r)
{
	if (th->nimports == IMPORTS_MAX)
		return rp_thread_damaged(th, "more than %u imports by one instruction at %" PRIu64,
					 IMPORTS_MAX, r->steps);
	if (th->nimports == th->imports_cap) {
		size_t cap = th->imports_cap ? th->imports_cap * 2 : 16;
		struct rp_thread_import *grown = realloc(th->imports, cap * sizeof(*grown));
		if (!grown) {
			dj_fail(&th->err, 1, "out of memory");
			return THREAD_FAILED;
		}
		th->imports = grown;
		th->imports_cap = cap;
	}
	if (!th->nimports)
		th->imports_mark = th->next_mark;
	struct rp_thread_import *imp = &th->imports[th->nimports++];
	imp->ordinal = r->ordinal;
	imp->addr = r->addr;
	memcpy(imp->line, r->bytes, DJ_LINE);
	th->imports_rep = r->rep;
	return THREAD_LIMIT;
}

/* ---- records that take no step ---------------------------------------------------------- */

static enum rp_thread_stop rec_regs(struct rp_thread *th, const struct dj_record *r)
{
	uint64_t from = th->e->cpu.rip;

	emu_set_regs(th->e, &r->regs, r->mask);
	/* where the thread's history begins it comes from nowhere */
	if ((r->mask & DJ_REG_RIP) && th->e->steps != th->info->first_steps)
		rp_thread_see(th, REPLAY_SEE_ENTRY, from);
	return THREAD_LIMIT;
}

/* Whether the image began with the mapping. What another thread has mapped this one hears of later,
 * most of it where its own history begins: there the number of events tells. */
static bool with_image(struct rp_thread *th, const struct dj_record *r)
{
	struct rp_space *s = th->space;

	if (s->image_seq == DJ_SEQ_UNKNOWN)
		s->image_seq = r->seq;
	return r->thread == (int32_t)th->index && !th->late ? th->e->steps == s->image_steps
							    : r->seq == s->image_seq;
}

/* Whether somebody may have written there of whom that is not known. */
static bool early(const struct rp_thread *th, const struct dj_record *r)
{
	return (th->late && th->e->steps == th->begin_steps) ||
	       r->seq < dj_trace_process(th->trace, th->info->process)->late_seq;
}

/* The mappings change: what generated code has done there was done to what was there before. */
static void before_mapping(struct rp_thread *th, const struct dj_record *r)
{
	if (!th->mem || !th->mem->trail)
		return;
	rp_trail_range(th->mem, r->addr, r->length);
	if (r->kind != DJ_REC_UNMAP)
		rp_trail_mapped(th->mem);
}

/* The mappings in this range are about to change, which for code of a module is another place: what
 * was counted so far is told before, branches to there included. Where nothing can have been
 * executed there is no need: a program that loads a hundred libraries would be told all a hundred
 * times. */
static void tell_counts(struct rp_thread *th, const struct dj_record *r, bool module)
{
	const struct dj_mapping *m = dj_mappings_after(&th->space->maps, r->addr, 0);
	bool told = false;

	for (; !told && m && (m->start <= r->addr || m->start - r->addr < r->length);
	     m = dj_mappings_after(&th->space->maps, m->end, 0))
		told = m->module >= 0 ? m->prot & DJ_PROT_EXEC : module;
	if (told)
		emu_tell_counts(th->e);
}

static enum rp_thread_stop rec_map(struct rp_thread *th, const struct dj_record *r)
{
	struct dj_mapping m = { .start = r->addr,
				.end = r->addr + r->length,
				.offset = r->offset,
				.prot = r->prot,
				.flags = r->flags,
				.module = r->module };

	m.name = rp_space_intern(th->names, r->name);
	m.initial = with_image(th, r);
	m.early = early(th, r);
	m.lost = m.early && (r->prot & DJ_PROT_WRITE);
	/* mremap: growth in place begins elsewhere, and is fresh memory. The call's arguments are
	 * still in the registers. */
	const uint64_t *gpr = th->e->cpu.gpr;
	m.moved = th->last_sysno == X_SYS_MREMAP && th->e->steps == th->event_steps &&
		  th->last_result != gpr[DJ_RDI] && r->addr >= th->last_result &&
		  r->addr - th->last_result < gpr[DJ_RDX];
	tell_counts(th, r, r->module >= 0);
	emu_forget_code(th->e, r->addr, r->length); /* while it is known where it belongs */
	before_mapping(th, r);
	if (rp_space_map(&th->space, &m, &th->err))
		return rp_thread_damaged(th, "%s", th->err.text);
	th->mapped = r->length > UINT64_MAX - th->mapped ? UINT64_MAX : th->mapped + r->length;
	if (th->mem && !m.moved)
		rp_memview_forget(th->mem, r->addr, r->length);
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_unmap(struct rp_thread *th, const struct dj_record *r)
{
	tell_counts(th, r, false);
	emu_forget_code(th->e, r->addr, r->length);
	before_mapping(th, r);
	if (rp_space_unmap(&th->space, r->addr, r->length, &th->err))
		return rp_thread_damaged(th, "%s", th->err.text);
	if (th->mem)
		rp_memview_forget(th->mem, r->addr, r->length);
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_protect(struct rp_thread *th, const struct dj_record *r)
{
	if (!(r->prot & DJ_PROT_EXEC))
		tell_counts(th, r, false);
	before_mapping(th, r);
	if (rp_space_protect(&th->space, r->addr, r->length, r->prot, &th->err))
		return rp_thread_damaged(th, "%s", th->err.text);
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_code(struct rp_thread *th, const struct dj_record *r)
{
	if (rp_space_code(&th->space, r->addr, r->bytes, r->length, &th->err))
		return rp_thread_damaged(th, "%s", th->err.text);
	emu_forget_code(th->e, r->addr, r->length);
	return THREAD_LIMIT;
}

/* One part of the registers in hexadecimal, most significant byte first. */
static void part_text(char *out, const struct dj_regs *regs, uint64_t part)
{
	uint8_t packed[DJ_REGS_PACKED_MAX];
	size_t n = dj_regs_pack(regs, part, packed);

	for (size_t i = n; i-- > 8;) /* behind the mask */
		out += sprintf(out, "%02x", packed[i]);
}

/* Compare with the registers of a record, which has this digest, and its place among events. */
static enum rp_thread_stop compare(struct rp_thread *th, const struct dj_record *r,
				   uint64_t expected_digest)
{
	struct dj_regs regs;

	emu_get_regs(th->e, &regs);
	th->count_digests++;
	uint64_t digest = dj_regs_digest(&regs), seq, within;
	rp_thread_seq(th, &seq, &within);
	if (digest == expected_digest && (seq == r->seq || r->seq == DJ_SEQ_UNKNOWN))
		return THREAD_LIMIT;
	if (digest == expected_digest)
		return rp_thread_diverged(
			th, "%" PRIu64 " ordered events have been passed, expected %" PRIu64, seq,
			r->seq);
	uint64_t differ = dj_regs_diff(&regs, &r->regs) & r->mask & DJ_DIGEST_PARTS;
	if (!differ)
		return rp_thread_diverged(th,
					  "the registers' digest is %016" PRIx64
					  ", expected %016" PRIx64
					  " (which of them differ is not recorded)",
					  digest, expected_digest);
	if (differ & ~DJ_REG_X87)
		differ &= ~DJ_REG_X87; /* say that only if nothing smaller differs */
	differ &= -differ;
	char found[2 * DJ_REGS_PACKED_MAX + 1], expected[2 * DJ_REGS_PACKED_MAX + 1];
	part_text(found, &regs, differ);
	part_text(expected, &r->regs, differ);
	snprintf(th->div.part, sizeof(th->div.part), "%s", dj_regs_part_name(differ));
	return rp_thread_diverged(th, "%s is %s, expected %s", th->div.part, found, expected);
}

static enum rp_thread_stop rec_digest(struct rp_thread *th, const struct dj_record *r)
{
	return compare(th, r, r->digest);
}

/* ---- keyframes ---------------------------------------------------------------------------- */

/* History begins here. */
static void begin_with(struct rp_thread *th, const struct dj_record *r)
{
	th->blank = false;
	th->event_steps = r->steps - r->addr;
	if (r->seq != DJ_SEQ_UNKNOWN)
		th->numbers = (struct rp_numbers){ .last = r->seq, .next = r->seq + 1 };
}

static enum rp_thread_stop compare_place(struct rp_thread *th, const struct dj_record *r)
{
	uint64_t seq, within;

	rp_thread_seq(th, &seq, &within);
	if (within == r->addr)
		return THREAD_LIMIT;
	return rp_thread_diverged(
		th, "the last ordered event was %" PRIu64 " instructions ago, expected %" PRIu64,
		within, r->addr);
}

/* What a full keyframe has of memory. A thread that was there before knows better: others may have
 * been writing while that was read. Where history begins nothing has changed yet. */
static void remember(struct rp_thread *th, const struct dj_record *r)
{
	bool watching = th->mem->watching;

	th->mem->watching = false;
	rp_memview_tell(th->mem, r->addr, r->bytes, r->length);
	th->mem->watching = watching;
}

/*
 * The recorder emptied the thread's shadow here, so it is emptied, whether anything has gone before
 * or not. The registers become the record's also where they are compared: of flags that the program
 * is about to overwrite the recorder has other values than the replay, and a replay that begins
 * here must show the same as one that came from the left.
 */
static enum rp_thread_stop rec_keyframe(struct rp_thread *th, const struct dj_record *r)
{
	enum rp_thread_stop res = THREAD_LIMIT;

	if (!dj_record_is_keyframe(r)) {
		if (th->mem && r->what == DJ_KEYFRAME_PART && th->late &&
		    r->steps == th->begin_steps)
			remember(th, r);
		return THREAD_LIMIT;
	}
	if (r->mask != DJ_REG_ALL || r->addr > r->steps)
		return rp_thread_damaged(th, "malformed keyframe at %" PRIu64, r->steps);
	th->here += KEYFRAME_COUNTS;
	if (th->blank)
		begin_with(th, r);
	else if ((res = compare(th, r, dj_regs_digest(&r->regs))) == THREAD_LIMIT)
		res = compare_place(th, r);
	if (res != THREAD_LIMIT)
		return res;
	emu_set_regs(th->e, &r->regs, r->mask);
	if (th->mem)
		rp_memview_empty(th->mem);
	else
		emu_empty_shadow(th->e);
	if (th->ahead == UINT64_MAX || --th->ahead)
		return THREAD_LIMIT;
	th->ahead = th->extend ? th->extend(th->extend_ctx) : 0;
	if (!th->ahead) {
		th->over = true;
		th->end_steps = th->e->steps;
	}
	return THREAD_LIMIT;
}

static enum rp_thread_stop check_flags(struct rp_thread *th, const struct dj_check *c)
{
	struct dj_regs regs;

	emu_get_regs(th->e, &regs);
	if (c->flags_known & DJ_FLAGS_ARITH)
		th->count_flags++;
	if ((regs.rflags & c->flags_known) == c->flags)
		return THREAD_LIMIT;
	snprintf(th->div.part, sizeof(th->div.part), "rflags");
	return rp_thread_diverged(
		th, "rflags is %" PRIx64 ", expected %" PRIx64 " (of the flags in %" PRIx64 ")",
		regs.rflags & c->flags_known, c->flags, c->flags_known);
}

static enum rp_thread_stop rec_check(struct rp_thread *th, const struct dj_record *r)
{
	struct dj_check c;

	if (!dj_check_unpack(&c, r->bytes, r->length))
		return rp_thread_damaged(th, "malformed check at %" PRIu64, r->steps);
	th->here += c.n + c.same_length / DJ_CHECK_PAGE; /* as many: each takes its time */
	if (th->mem && c.same_length)
		rp_memview_tell_same(th->mem, c.same_addr, c.same_length);
	enum rp_thread_stop res = check_flags(th, &c);
	for (unsigned i = 0; i < c.n && res == THREAD_LIMIT; i++) {
		const struct dj_check_piece *p = &c.piece[i];
		uint32_t sum = dj_check_sum(th->e->shadow + (uint32_t)p->addr, p->length);
		th->count_memory += p->length;
		if (sum == p->sum)
			continue;
		snprintf(th->div.part, sizeof(th->div.part), "memory");
		res = rp_thread_diverged(th,
					 "%" PRIu32 " bytes of memory at 0x%" PRIx64
					 " have the checksum %08" PRIx32 ", expected %08" PRIx32,
					 p->length, p->addr, sum, p->sum);
	}
	return res;
}

static enum rp_thread_stop rec_exec(struct rp_thread *th, const struct dj_record *r)
{
	th->here += EXEC_COUNTS;
	emu_forget_code(th->e, 0, UINT64_MAX); /* while it is known where it belongs */
	if (th->mem && th->mem->trail) {
		rp_trail_gather(th->mem);
		rp_trail_mapped(th->mem);
	}
	if (rp_space_clear(&th->space, th->e->steps, &th->err))
		return THREAD_FAILED;
	th->space->image = r->image;
	if (th->mem)
		rp_memview_forget_all(th->mem);
	emu_reset_memory(th->e);
	th->exec_passed = true;
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_exit(struct rp_thread *th, const struct dj_record *r)
{
	th->exited = true;
	th->status = r->status;
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_child(struct rp_thread *th, const struct dj_record *r)
{
	th->fork_passed = true;
	th->forks++;
	th->fork_pid = r->pid;
	th->fork_what = r->what;
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_seq(struct rp_thread *th, const struct dj_record *r)
{
	if (!rp_thread_renumber(th, r->seq))
		return rp_thread_damaged(th, "event number %" PRIu64 " at %" PRIu64 " is too low",
					 r->seq, r->steps);
	return THREAD_LIMIT;
}

/* The number becomes the thread's when the instruction is complete (rp_thread_ordered). */
static enum rp_thread_stop rec_order(struct rp_thread *th, const struct dj_record *r)
{
	uint64_t last, within;

	rp_thread_seq(th, &last, &within);
	if (r->seq <= last || r->seq <= th->order || r->seq >= UINT64_MAX - 1)
		return rp_thread_damaged(th, "event number %" PRIu64 " at %" PRIu64 " is too low",
					 r->seq, r->steps);
	th->order = r->seq;
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_sysdata(struct rp_thread *th, const struct dj_record *r)
{
	if (th->mem)
		rp_memview_tell(th->mem, r->addr, r->bytes, r->length);
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_nothing(struct rp_thread *th, const struct dj_record *r)
{
	(void)th;
	(void)r;
	return THREAD_LIMIT;
}

/* What takes no step, by kind; NULL: the record waits for its step. */
static enum rp_thread_stop (*const apply[DJ_REC_KINDS])(struct rp_thread *,
							const struct dj_record *) = {
	[DJ_REC_REGS] = rec_regs,      [DJ_REC_MAP] = rec_map,
	[DJ_REC_UNMAP] = rec_unmap,    [DJ_REC_PROTECT] = rec_protect,
	[DJ_REC_CODE] = rec_code,      [DJ_REC_DIGEST] = rec_digest,
	[DJ_REC_CHILD] = rec_child,    [DJ_REC_EXEC] = rec_exec,
	[DJ_REC_EXIT] = rec_exit,      [DJ_REC_END] = rec_nothing,
	[DJ_REC_SEQ] = rec_seq,	       [DJ_REC_KEYFRAME] = rec_keyframe,
	[DJ_REC_GAP] = rec_nothing,    [DJ_REC_MARK] = rec_nothing,
	[DJ_REC_THREAD] = rec_nothing, [DJ_REC_SYSDATA] = rec_sysdata,
	[DJ_REC_CHECK] = rec_check,    [DJ_REC_ORDER] = rec_order,
};

/* The records of a position are applied together: in between, registers and memory are those of no
 * moment. Whoever recorded has never so many that somebody would have to wait for long. */
static enum rp_thread_stop look_up(struct rp_thread *th)
{
	if (th->here > WHOLE)
		return rp_thread_pulse(th, RECORD_WORK);
	rp_patience_charge(th->patience, RECORD_WORK);
	return THREAD_LIMIT;
}

enum rp_thread_stop rp_thread_settle(struct rp_thread *th)
{
	const struct dj_record *r;

	while ((r = th->next) && r->steps <= th->e->steps) {
		enum rp_thread_stop res = look_up(th);

		if (res != THREAD_LIMIT) {
			th->unsettled = true;
			return res;
		}
		if (th->here > HERE_MAX)
			return rp_thread_damaged(th, "more than %u records at instruction %" PRIu64,
						 HERE_MAX, r->steps);
		if (r->steps < th->e->steps)
			return rp_thread_damaged(
				th, "a record for instruction %" PRIu64 " comes after %" PRIu64,
				r->steps, th->e->steps);
		if ((unsigned)r->kind >= DJ_REC_KINDS)
			return rp_thread_damaged(th, "strange record at %" PRIu64, r->steps);
		if (r->kind == DJ_REC_IMPORT) {
			if (r->rep && rp_thread_count_reg(th, r->rep) != r->rep)
				break;
			if (th->nimports && th->imports_rep != r->rep)
				break;
			res = gather(th, r);
		} else if (apply[r->kind]) {
			/* a number is of no matter to memory; it may belong to a signal that
			 * arrives in a REP instruction later on */
			if (r->kind == DJ_REC_ORDER && r->rep &&
			    rp_thread_count_reg(th, r->rep) != r->rep)
				break;
			if (r->kind != DJ_REC_SEQ && r->kind != DJ_REC_ORDER)
				rp_thread_flush_imports(th);
			rp_thread_hear(th, r);
			res = apply[r->kind](th, r);
		} else {
			break;
		}
		if (res == THREAD_FAILED)
			return res;
		rp_thread_advance(th);
	}
	return THREAD_LIMIT;
}
