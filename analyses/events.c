/*
 * Events (analyses/events.h): the history is run through with all system calls caught and all
 * signals reported. What a call reads is looked at before it, what it writes behind it, so a call
 * is told when it has come back, with the position before it. Of threads, beginnings and ends are
 * known beforehand and told in their places between the others.
 */
#include "analyses/events.h"
#include "analyses/syscall-data.h"
#include "analyses/syscall.h"
#include "analyses/when.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct under_way {
	struct ana_syscall call;
	struct replay_pos pos;
	struct replay_pos last; /* at which the thread was seen */
	bool is;
};

/* A thread's beginning or end. */
struct border {
	struct replay_pos pos;
	bool end, exited;
	int32_t status;
};

struct events {
	struct replay *r;
	struct dj_trace *t;
	const struct ana_part *part;
	bool (*tell)(void *ctx, const struct ana_event *e);
	void *ctx;
	bool enough;
	struct under_way *calls; /* by thread */
	struct border *borders;
	size_t nborders, next;
	struct ana_when **when; /* by thread */
};

const char *ana_event_kind_name(enum ana_event_kind kind)
{
	static const char *const names[] = { "call", "signal", "module", "thread", "exit" };

	return kind < ANA_EVENT_KINDS ? names[kind] : "?";
}

bool ana_event_is_name(const char *name)
{
	char signal[24];
	uint64_t nr;

	for (unsigned i = 0; i < ANA_EVENT_KINDS; i++)
		if (!strcmp(name, ana_event_kind_name(i)))
			return true;
	for (uint64_t i = 1; i <= 64; i++) {
		ana_signal_name(i, signal, sizeof(signal));
		if (!strcmp(name, signal))
			return true;
	}
	/* of a number that has no name, and paths of modules */
	return ana_syscall_number(name, &nr) || !strncmp(name, "syscall_", 8) || strchr(name, '/');
}

/* ---- telling ------------------------------------------------------------------------------- */

static void tell(struct events *ev, struct ana_event *e)
{
	struct ana_when *when = ev->when[e->pos.thread];

	if (ev->enough || !ana_part_has(ev->part, ev->t, &e->pos))
		return;
	e->timed = when != NULL;
	if (when) {
		e->us = ana_when_reached(when, e->pos.steps);
		e->stayed = ana_when_left(when, e->pos.steps) - e->us;
	}
	ev->enough = !ev->tell(ev->ctx, e);
}

static void tell_border(struct events *ev, const struct border *b)
{
	struct ana_event e = { .kind = b->end ? ANA_EVENT_EXIT : ANA_EVENT_THREAD,
			       .pos = b->pos,
			       .name = "" };
	char signal[24], text[120];
	uint32_t s = (uint32_t)b->status;

	if (!b->end)
		snprintf(text, sizeof(text), "+++ begins +++");
	else if (!b->exited)
		snprintf(text, sizeof(text), "+++ recording ends +++");
	else if ((s & 0x7f) == 0)
		snprintf(text, sizeof(text), "+++ exited with %u +++", s >> 8 & 0xff);
	else {
		ana_signal_name(s & 0x7f, signal, sizeof(signal));
		snprintf(text, sizeof(text), "+++ killed by %s%s +++", signal,
			 s & 0x80 ? " (core dumped)" : "");
	}
	e.text = text;
	/* of an end only the last number is known beforehand, not how far behind it that is */
	const struct replay_pos *last = &ev->calls[b->pos.thread].last;
	if (b->end && last->seq == b->pos.seq)
		e.pos.within = last->within;
	tell(ev, &e);
}

static void tell_call(struct events *ev, struct under_way *u, const uint64_t *result)
{
	char name[40];
	struct ana_event e = { .kind = ANA_EVENT_CALL,
			       .pos = u->pos,
			       .name = ana_syscall_name(u->call.nr, name, sizeof(name)),
			       .returned = result != NULL,
			       .result = result ? *result : 0 };
	size_t size;
	FILE *f = open_memstream(&e.text, &size);

	if (f) {
		ana_syscall_print(ev->r, &u->call, result, f);
		fclose(f);
		tell(ev, &e);
	}
	free(e.text);
	ana_syscall_free(&u->call);
	u->is = false;
}

/* A thread that has come to its end does not come back from the call that it was in. */
static void borders_before(struct events *ev, const struct replay_pos *pos)
{
	for (; ev->next < ev->nborders; ev->next++) {
		const struct border *b = &ev->borders[ev->next];

		if (pos && replay_pos_cmp(&b->pos, pos) >= 0)
			return;
		if (b->end && ev->calls[b->pos.thread].is)
			tell_call(ev, &ev->calls[b->pos.thread], NULL);
		tell_border(ev, b);
	}
}

/* ---- stops ------------------------------------------------------------------------------------
 */

static void module_here(struct events *ev, const struct replay_pos *pos, uint64_t addr)
{
	struct replay_mapping m;
	struct ana_event e = { .kind = ANA_EVENT_MODULE, .pos = *pos };

	if (!replay_mapping_at(ev->r, addr, &m) || m.module < 0 || !(m.prot & 4))
		return;
	e.name = dj_trace_module(ev->t, (size_t)m.module)->path;
	if (asprintf(&e.text, "module %s at %#" PRIx64 "-%#" PRIx64, e.name, m.start, m.end) < 0)
		return;
	tell(ev, &e);
	free(e.text);
}

static void modules_now(struct events *ev, const struct replay_pos *pos)
{
	const struct replay_mapping *maps;
	size_t n = replay_mappings(ev->r, &maps);
	uint64_t *start = calloc(n + 1, sizeof(*start));

	for (size_t i = 0; start && i < n; i++)
		start[i] = maps[i].start;
	for (size_t i = 0; start && i < n; i++)
		module_here(ev, pos, start[i]);
	free(start);
}

static void on_entry(struct events *ev, const struct replay_stop *stop)
{
	struct under_way *u = &ev->calls[stop->pos.thread];

	if (u->is)
		tell_call(ev, u, NULL);
	ana_syscall_begin(ev->r, &u->call);
	u->pos = stop->pos;
	u->is = true;
	if (u->call.nr == 60 || u->call.nr == 231) /* exit, exit_group */
		tell_call(ev, u, NULL);
}

static void on_return(struct events *ev, const struct replay_stop *stop)
{
	struct under_way *u = &ev->calls[stop->pos.thread];
	struct dj_regs regs;

	if (!u->is) /* it began before the part that counts */
		return;
	replay_regs(ev->r, &regs);
	uint64_t nr = u->call.nr, prot = u->call.arg[2], result = regs.gpr[DJ_RAX];
	struct replay_pos pos = u->pos;
	tell_call(ev, u, &result);
	if (nr == 9 && prot & 4 && result <= -4096ULL) /* mmap of code */
		module_here(ev, &pos, result);
}

static void on_signal(struct events *ev, const struct replay_stop *stop)
{
	char name[24];
	struct ana_event e = { .kind = ANA_EVENT_SIGNAL, .pos = stop->pos, .name = name };
	uint8_t info[128];
	size_t size;
	FILE *f = open_memstream(&e.text, &size);

	if (!f)
		return;
	ana_signal_name((uint64_t)stop->signo, name, sizeof(name));
	fprintf(f, "--- %s ", name);
	if (replay_siginfo(ev->r, info))
		ana_signal_print(info, stop->signo, f);
	fputs(" ---", f);
	fclose(f);
	tell(ev, &e);
	free(e.text);
}

/* What a process was made to execute: arguments, environment and (AT_EXECFN, 31) the path are on
 * its stack as it begins. Before the call there is no position to look from. */
static void print_exec(struct events *ev, FILE *f)
{
	struct dj_regs regs;
	uint64_t at, argc, name = 0, tag, value;

	replay_regs(ev->r, &regs);
	at = regs.gpr[DJ_RSP];
	if (!ana_data_number(ev->r, at, 8, &argc) || argc > 1 << 20) {
		fputs("execve(...) = 0", f);
		return;
	}
	uint64_t argv = at + 8, envp = argv + 8 * (argc + 1);
	for (at = envp; ana_data_number(ev->r, at, 8, &value) && value;)
		at += 8;
	for (at += 8; ana_data_number(ev->r, at, 8, &tag) && tag; at += 16)
		if (tag == 31)
			ana_data_number(ev->r, at + 8, 8, &name);
	fputs("execve(", f);
	ana_data_string(ev->r, name, f);
	fputs(", ", f);
	ana_data_strings(ev->r, argv, f);
	fputs(", ", f);
	ana_data_environment(ev->r, envp, f);
	fputs(") = 0", f);
}

static void on_exec(struct events *ev, const struct replay_stop *stop)
{
	struct ana_event e = {
		.kind = ANA_EVENT_CALL, .pos = stop->pos, .name = "execve", .returned = true
	};
	size_t size;
	FILE *f = open_memstream(&e.text, &size);

	if (!f)
		return;
	print_exec(ev, f);
	fclose(f);
	tell(ev, &e);
	free(e.text);
	modules_now(ev, &stop->pos);
}

/* ---- the run ----------------------------------------------------------------------------------
 */

/* How the thread ended: the last record says it. */
static void read_end(struct events *ev, uint32_t thread, struct border *b)
{
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new(ev->t, thread, &err);
	const struct dj_record *rec;

	if (c && !dj_cursor_seek_steps(c, dj_trace_thread(ev->t, thread)->last_steps, &err))
		while ((rec = dj_cursor_next(c, &err)))
			if (rec->kind == DJ_REC_EXIT) {
				b->exited = true;
				b->status = rec->status;
			}
	dj_cursor_free(c);
}

static int by_position(const void *a, const void *b)
{
	const struct border *x = a, *y = b;
	int c = replay_pos_cmp(&x->pos, &y->pos);

	return c ? c : x->end - y->end;
}

static void find_borders(struct events *ev)
{
	size_t n = dj_trace_threads(ev->t);

	for (uint32_t i = 0; i < n; i++) {
		struct border *b = &ev->borders[ev->nborders++];

		replay_thread_begin(ev->r, i, &b->pos);
		b = &ev->borders[ev->nborders++];
		replay_thread_end(ev->r, i, &b->pos);
		b->end = true;
		read_end(ev, i, b);
	}
	qsort(ev->borders, ev->nborders, sizeof(*ev->borders), by_position);
}

static int find_times(struct events *ev, struct dj_error *err)
{
	for (size_t i = 0; i < dj_trace_threads(ev->t); i++)
		if (ana_when_new(ev->t, i, &ev->when[i], err))
			return -1;
	return 0;
}

/* Going on from a position passes a call that begins there without a word. */
static void call_here(struct events *ev)
{
	struct replay_thread th;
	struct replay_doings d;
	struct dj_error err;

	replay_thread(ev->r, &th);
	if (!replay_thread_doings(ev->r, th.number, &d, &err) && d.doing == REPLAY_CALLS)
		on_entry(ev, &(struct replay_stop){ .pos = d.pos });
}

/* 0 at the end, 1 interrupted, -1 with err. */
static int run(struct events *ev, struct dj_error *err)
{
	struct replay_stop stop;

	call_here(ev);
	for (;;) {
		replay_continue(ev->r, REPLAY_FORWARD, &stop);
		if (stop.reason == REPLAY_END)
			return 0;
		if (stop.reason == REPLAY_INTERRUPTED)
			return 1;
		if (stop.reason == REPLAY_FAILED) {
			*err = stop.err;
			return -1;
		}
		borders_before(ev, &stop.pos);
		ev->calls[stop.pos.thread].last = stop.pos;
		if (ev->enough || replay_pos_cmp(&stop.pos, &ev->part->to) > 0)
			return 0;
		if (stop.reason == REPLAY_SYSCALL_ENTRY)
			on_entry(ev, &stop);
		else if (stop.reason == REPLAY_SYSCALL_RETURN)
			on_return(ev, &stop);
		else if (stop.reason == REPLAY_SIGNAL)
			on_signal(ev, &stop);
		else if (stop.reason == REPLAY_EXECED)
			on_exec(ev, &stop);
		else if (stop.reason == REPLAY_FORKED)
			call_here(ev); /* that makes the child */
	}
}

int ana_events(struct replay *r, const struct ana_part *part,
	       bool (*tell)(void *ctx, const struct ana_event *e), void *ctx, struct dj_error *err)
{
	struct dj_trace *t = replay_trace(r);
	size_t n = dj_trace_threads(t);
	struct events ev = { .r = r, .t = t, .part = part, .tell = tell, .ctx = ctx };
	struct replay_pos at;
	int res = -1;

	ev.calls = calloc(n, sizeof(*ev.calls));
	ev.borders = calloc(2 * n, sizeof(*ev.borders));
	ev.when = calloc(n, sizeof(*ev.when));
	if (!ev.calls || !ev.borders || !ev.when) {
		dj_fail(err, 1, "out of memory");
	} else if (!find_times(&ev, err) && !ana_part_begin(r, part, err)) {
		find_borders(&ev);
		replay_pos(r, &at);
		modules_now(&ev, &at);
		replay_catch_syscalls(r, true, NULL, 0);
		replay_report_signals(r, UINT64_MAX);
		res = run(&ev, err);
		replay_catch_syscalls(r, false, NULL, 0);
		replay_report_signals(r, 0);
		if (!res && !ev.enough)
			borders_before(&ev, NULL);
	}
	for (size_t i = 0; ev.calls && i < n; i++)
		ana_syscall_free(&ev.calls[i].call);
	for (size_t i = 0; ev.when && i < n; i++)
		ana_when_free(ev.when[i]);
	free(ev.when);
	free(ev.calls);
	free(ev.borders);
	return res;
}
