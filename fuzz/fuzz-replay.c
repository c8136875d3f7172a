/*
 * Fuzz target: replaying what a well-formed trace of nonsense says.
 *
 * The input is read as a list of records, whose fields and positions it chooses, then of what a
 * debugger does with the replay. The trace is written by the real writer, so all of it is
 * well-formed; whether the records make sense for the code is another matter. What must
 * hold: no access out of bounds, no assertion, and going to a position again gives the same
 * registers as before.
 *
 * What takes long, such as REP with a count of 2^60, is interrupted.
 *
 * With FUZZ_STREAMS the trace has several processes and threads (fuzz-streams.c); with FUZZ_INDEX
 * there is an index beside it (fuzz-index.c).
 */
#include "format/trace.h"
#include "fuzz/fuzz.h"
#include "replayer/replay-internal.h"
#include "replayer/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CODE_AT	  0x10000u
#define DATA_AT	  0x20000u
#define STEPS_MAX 3000u /* of the whole history */
#define RUNS_MAX  200u
#define WORK_MAX  20000000u /* of a thread's verification, in some 10 nanoseconds */

#ifdef FUZZ_INDEX
#define MADE_UP true
#else
#define MADE_UP false
#endif
#ifdef FUZZ_STREAMS
#define PROCESSES 2u
#define THREADS	  4u
#else
#define PROCESSES 1u
#define THREADS	  1u
#endif

/* The input; zeros when it is used up. */
struct input {
	const uint8_t *p, *end;
};

static uint64_t take(struct input *in, unsigned size)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < size && in->p < in->end; i++)
		v |= (uint64_t)*in->p++ << 8 * i;
	return v;
}

static void take_bytes(struct input *in, void *to, size_t len)
{
	size_t have = (size_t)(in->end - in->p), n = len < have ? len : have;

	memset(to, 0, len);
	memcpy(to, in->p, n);
	in->p += n;
}

/* An address where something is, mostly; at an edge of it, often. */
static uint64_t take_address(struct input *in)
{
	static const uint64_t places[] = { CODE_AT,    DATA_AT,	       DATA_AT + 0xfff,
					   0xffffffc0, 0x7ffffffff000, 0xfffffffffffff000,
					   0,	       0x100000000 };
	uint8_t how = (uint8_t)take(in, 1);

	return how & 0x80 ? take(in, 8) : places[how & 7] + take(in, 1) * (how & 8 ? 64 : 1);
}

static void take_regs(struct input *in, struct dj_regs *r)
{
	memset(r, 0, sizeof(*r));
	for (unsigned i = 0; i < 16; i++)
		r->gpr[i] = take_address(in);
	r->rip = CODE_AT + take(in, 1);
	r->rflags = 0x202 | (take(in, 2) & 0xcd5);
	r->fs_base = take_address(in);
	r->mxcsr = 0x1f80 ^ ((uint32_t)take(in, 1) << 8);
	r->fcw = 0x37f;
	r->fsw = (uint16_t)(take(in, 1) << 11);
	r->ftw = (uint8_t)take(in, 1);
}

/* Bytes that are a check, or by the first of them not quite. */
static size_t take_check(struct input *in, uint8_t *buf)
{
	struct dj_check c = { .flags_known = take(in, 4), .n = (unsigned)take(in, 1) % 8 };
	for (unsigned i = 0; i < c.n; i++) {
		c.piece[i].addr = take_address(in) & ~63ULL;
		c.piece[i].length = 64;
		c.piece[i].sum = (uint32_t)take(in, 1);
	}
	return dj_check_pack(&c, buf);
}

static void take_record(struct input *in, struct dj_record *r, uint64_t *steps, uint8_t *buf)
{
	uint8_t kind = (uint8_t)take(in, 1), ahead = (uint8_t)take(in, 1);

	memset(r, 0, sizeof(*r));
	*steps += ahead & 0x80 ? ahead & 0x7f : ahead & 3;
	if (*steps > STEPS_MAX)
		*steps = STEPS_MAX;
	r->steps = *steps;
	r->kind = (kind & 0x7f) == 0x7f ? DJ_REC_CHECK
					: (enum dj_record_kind)(1 + kind % DJ_REC_SYSDATA);
	r->name = "";
	r->bytes = buf;
	r->seq = DJ_SEQ_UNKNOWN;
	switch (r->kind) {
	case DJ_REC_IMPORT:
		r->addr = take_address(in) & ~63ULL;
		r->ordinal = (uint8_t)(take(in, 1) & 3);
		r->rep = kind & 0x80 ? take(in, 1) : 0;
		take_bytes(in, buf, DJ_LINE);
		break;
	case DJ_REC_EFFECTS:
		r->mask = take(in, 8) & DJ_REG_ALL;
		r->why = (uint8_t)(take(in, 1) % DJ_WHYS);
		r->insn_len = (uint8_t)(take(in, 1) % 16);
		take_bytes(in, r->insn, r->insn_len);
		take_regs(in, &r->regs);
		break;
	case DJ_REC_SYSCALL:
		r->result = take_address(in);
		r->r11 = take(in, 2);
		break;
	case DJ_REC_SIGNAL:
		r->signo = 1 + (uint32_t)take(in, 1) % 64;
		r->addr = take_address(in);
		r->length = take(in, 1);
		take_bytes(in, buf, r->length);
		r->rep = kind & 0x80 ? take(in, 1) : 0;
		/* fall through */
	case DJ_REC_REGS:
	case DJ_REC_DIGEST:
		r->mask = take(in, 8) & DJ_REG_ALL;
		take_regs(in, &r->regs);
		r->digest = dj_regs_digest(&r->regs);
		r->seq = kind & 0x80 ? *steps : DJ_SEQ_UNKNOWN;
		break;
	case DJ_REC_MAP:
		r->module = -1;
		r->flags = (uint32_t)take(in, 1);
		r->offset = take(in, 2);
		r->name = kind & 0x80 ? "[stack]" : "";
		/* fall through */
	case DJ_REC_UNMAP:
	case DJ_REC_PROTECT:
		r->addr = take_address(in) & ~0xfffULL;
		r->length = (1 + take(in, 1)) << 12;
		r->prot = (uint32_t)take(in, 1) & 7;
		break;
	case DJ_REC_CODE:
		r->addr = take_address(in);
		r->length = 1 + take(in, 1);
		take_bytes(in, buf, r->length);
		break;
	case DJ_REC_CHECK:
		r->length = take_check(in, buf);
		break;
	case DJ_REC_KEYFRAME:
	case DJ_REC_SYSDATA:
		r->addr = take_address(in);
		r->length = take(in, 1);
		take_bytes(in, buf, r->length);
		break;
	case DJ_REC_CHILD:
	case DJ_REC_THREAD:
	case DJ_REC_EXIT:
		r->pid = r->status = (int32_t)take(in, 2);
		break;
	default:
		break;
	}
}

/* Each thread has these registers; each process code, and start memory. */
static void begin(struct input *in, struct dj_stream **processes, struct dj_stream **threads,
		  struct dj_record *regs, uint8_t *buf)
{
	struct dj_error err;
	struct dj_record map = { .kind = DJ_REC_MAP,
				 .addr = CODE_AT,
				 .length = 4096,
				 .prot = 5,
				 .module = -1,
				 .name = "",
				 .seq = DJ_SEQ_UNKNOWN };
	struct dj_record code = {
		.kind = DJ_REC_CODE, .addr = CODE_AT, .bytes = buf, .seq = DJ_SEQ_UNKNOWN
	};

	for (unsigned i = 0; i < THREADS; i++)
		dj_stream_record(threads[i], regs, &err);
	for (unsigned i = 0; i < PROCESSES; i++)
		dj_stream_record(threads[i], &map, &err);
	code.length = 1 + take(in, 1);
	take_bytes(in, buf, code.length);
	for (unsigned i = 0; i < PROCESSES; i++)
		dj_stream_record(threads[i], &code, &err);
	take_bytes(in, buf, 64);
	for (unsigned i = 0; i < PROCESSES; i++)
		dj_stream_snapshot(processes[i], 0, DATA_AT, buf, 64, &err);
}

/* Write the trace that the input describes to `path`. */
static bool write_trace(const char *path, struct input *in)
{
	static const char *const none[] = { NULL };
	static uint8_t buf[DJ_CODE_MAX];
	uint8_t shape = (uint8_t)take(in, 1), n = (uint8_t)take(in, 1);
	struct dj_trace_meta meta = { .predict = shape & 3 ? DJ_PREDICT_SHADOW : DJ_PREDICT_NONE,
				      .shadow_bits = 32,
				      .memory_model = 1 + (shape >> 2 & 1),
				      .digest_interval = 1,
				      .pid = 1,
				      .page_size = 4096,
				      .deja_version = "",
				      .machine = "",
				      .cpu = shape & 8 ? "AuthenticAMD x" : "GenuineIntel x",
				      .exe = "/x",
				      .cwd = "/",
				      .argv = none,
				      .envp = none };
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_record r = { .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
	struct dj_stream *processes[PROCESSES], *threads[THREADS];
	uint64_t steps[THREADS] = { 0 };

	if (!w)
		return false;
	for (unsigned i = 0; i < PROCESSES; i++)
		processes[i] = dj_writer_process(w, 1 + (int32_t)i, i ? processes[0] : NULL, &err);
	for (unsigned i = 0; i < THREADS && processes[PROCESSES - 1]; i++)
		threads[i] =
			dj_writer_thread(w, processes[i % PROCESSES], 1 + (int32_t)i, "x", &err);
	if (!processes[PROCESSES - 1] || !threads[THREADS - 1]) {
		dj_writer_close(w, NULL, NULL);
		return false;
	}
	take_regs(in, &r.regs);
	begin(in, processes, threads, &r, buf);
	for (unsigned i = 0; i < n && in->p < in->end; i++) {
		unsigned k = THREADS > 1 ? take(in, 1) % THREADS : 0;
		take_record(in, &r, &steps[k], buf);
		if (dj_stream_record(threads[k], &r, &err))
			break; /* out of order: history ends there */
	}
	for (unsigned k = 0; k < THREADS; k++) {
		steps[k] += take(in, 1);
		dj_stream_flush(threads[k], steps[k], take(in, 1) & 1 ? DJ_SEQ_UNKNOWN : steps[k],
				&err);
	}
	struct dj_trace_end end = { .present = true, .steps = steps[0] };
	return dj_writer_close(w, shape & 16 ? &end : NULL, &err) == 0;
}

/* Interrupts whatever runs for long: code in a copy may loop. */
static bool poll_now(void *ctx)
{
	return ++*(unsigned *)ctx > 3;
}

/* A step there and back again; false if the trace cannot be replayed further. */
static bool there_and_back(struct replay *r, enum replay_dir dir)
{
	struct replay_stop stop;
	struct replay_pos pos, again;
	struct dj_regs before, after;
	struct dj_error err;

	if (replay_in_copy(r))
		return true;
	uint32_t selected = r->selected; /* the registers are its, the position may not be */
	replay_pos(r, &pos);
	replay_regs(r, &before);
	replay_step(r, dir, &stop);
	if (stop.reason == REPLAY_FAILED)
		return false;
	/* interrupted, it may stand among the records of a position */
	bool there = replay_seek(r, &pos, &err) == 0;
	replay_pos(r, &again);
	replay_regs(r, &after);
	/* from a checkpoint that somebody has made up they may be others */
	if (!MADE_UP && there && r->selected == selected && !memcmp(&pos, &again, sizeof(pos)) &&
	    memcmp(&before, &after, sizeof(before)))
		abort();
	return true;
}

/* Conditions come and go. */
static void condition(struct replay *r, struct input *in, uint8_t what)
{
	static const uint64_t all[1];

	switch (what & 15) {
	case 5:
		replay_break_add(r, CODE_AT + take(in, 1));
		break;
	case 6:
		replay_break_del(r, CODE_AT + take(in, 1));
		break;
	case 7: {
		uint64_t at = take_address(in);
		uint64_t len = take(in, 1);
		replay_watch_add(r, at, len, 1 + take(in, 1) % 3);
		break;
	}
	case 8:
		replay_watch_del(r, (int)take(in, 1));
		break;
	default:
		replay_catch_syscalls(r, what & 0x40, all, 0);
		replay_report_signals(r, take(in, 8));
		break;
	}
}

/* What can be asked of memory. */
static void look(struct replay *r, struct input *in, bool mappings)
{
	const struct replay_mapping *maps;
	uint8_t mem[100];

	if (!mappings) {
		if (replay_read(r, take_address(in), mem, sizeof(mem)) > sizeof(mem))
			abort();
		return;
	}
	for (size_t n = replay_mappings(r, &maps), k = 0; k < n; k++)
		if (maps[k].start > maps[k].end)
			abort();
}

/* In a throw-away copy, change things. */
static void change(struct replay *r, struct input *in)
{
	struct dj_regs regs;
	uint8_t mem[16];

	take_regs(in, &regs);
	take_bytes(in, mem, sizeof(mem));
	if (!replay_in_copy(r))
		return;
	(void)replay_set_regs(r, &regs, take(in, 8) & DJ_REG_ALL);
	(void)replay_write(r, take_address(in), mem, sizeof(mem));
}

static void go_to(struct replay *r, struct input *in)
{
	struct dj_error err;
	char text[64];
	unsigned seq = (unsigned)take(in, 1), steps = (unsigned)take(in, 1);

	snprintf(text, sizeof(text), "%u:%u", seq, steps);
	if (!replay_in_copy(r))
		(void)replay_goto_text(r, text, &err);
}

static void debug(struct replay *r, struct input *in)
{
	struct replay_stop stop;
	struct dj_error err;
	unsigned polls = 0;

	replay_set_poll(r, poll_now, &polls);
	for (unsigned i = 0; i < RUNS_MAX && in->p < in->end; i++) {
		uint8_t what = (uint8_t)take(in, 1);
		enum replay_dir dir = what & 0x80 ? REPLAY_BACKWARD : REPLAY_FORWARD;
		polls = 0;
		switch (what & 15) {
		case 0:
		case 1:
		case 2:
			replay_step(r, replay_in_copy(r) ? REPLAY_FORWARD : dir, &stop);
			break;
		case 3:
		case 4:
			replay_continue(r, replay_in_copy(r) ? REPLAY_FORWARD : dir, &stop);
			break;
		case 9:
			look(r, in, false);
			break;
		case 10:
			go_to(r, in);
			break;
		case 11:
			if (replay_in_copy(r))
				replay_discard(r);
			else
				(void)replay_fork_copy(r, &err);
			break;
		case 12:
			change(r, in);
			break;
		case 14:
			look(r, in, true);
			break;
		case 15:
			if (!there_and_back(r, dir))
				return;
			break;
		case 8:
			if (THREADS > 1)
				(void)replay_select(r, (uint32_t)take(in, 1), &err);
			else
				condition(r, in, what);
			break;
		default:
			condition(r, in, what);
		}
	}
}

#ifndef FUZZ_INDEX
/* As replay_verify() has it, but not for ever. */
static void verify(struct dj_trace *t)
{
	struct rp_space_names names = { 0 };
	struct rp_patience patience;
	struct dj_error err;

	rp_patience_init(&patience, NULL, NULL);
	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		const struct rp_thread_pos far = { .steps = UINT64_MAX };
		struct rp_thread *th = rp_thread_new(t, i, &names, &err);

		if (!th)
			break;
		patience.allowance = WORK_MAX;
		th->patience = &patience;
		if (rp_thread_begin(th) == THREAD_LIMIT)
			(void)rp_thread_run(th, &far, 0);
		rp_thread_free(th);
	}
	rp_space_names_free(&names);
	rp_patience_free(&patience);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct input in = { bytes, bytes + len };
	struct dj_error err;
	char path[40];
	int fd = memfd_create("trace", MFD_CLOEXEC);

	if (fd < 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (write_trace(path, &in)) {
		struct dj_trace *t = dj_trace_open(path, &err);
		if (t) {
			verify(t);
			dj_trace_close(t);
		}
		struct replay *r = replay_open(path, &err);
		if (r) {
			debug(r, &in);
			replay_close(r);
		}
	}
	close(fd);
	return 0;
}
#endif
