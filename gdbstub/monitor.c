/*
 * "monitor" commands (qRcmd): what gdb has no command for. The reply is text for the console.
 *
 * Some of them move the replay. gdb takes it for granted that a monitor command does not: it keeps
 * the registers, frames and memory that it has read (monitor_command() and remote_target::rcmd() of
 * gdb 13 drop none of its caches, and a stop notification is left lying in all-stop mode), and
 * mixes them with what it reads later. Nor does it pass ^C on while it waits for one. So the replay
 * stays where it is, and the next request that moves the program, whichever, goes to the place
 * instead of moving, and stops there: what the debugger shows is always true, and ^C ends the
 * going. The gdb that deja replay starts makes that request by itself (cli/replay.py). One without
 * Python is told to look again after each monitor command (cli/cmd-replay.c); for it the replay
 * moves at once.
 */
#include "gdbstub/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct monitor_command {
	const char *name, *args, *help;
	void (*run)(struct stub_session *s, const char *args, struct stub_textbuf *out);
};

static void put_place(struct stub_session *s, struct stub_textbuf *out)
{
	char pos[64];
	struct dj_regs regs;
	struct replay_mapping map;
	replay_pos_text(s->r, pos, sizeof(pos));
	replay_regs(s->r, &regs);
	stub_textbuf_printf(out, "at %s, pc 0x%llx", pos, (unsigned long long)regs.rip);
	if (replay_mapping_at(s->r, regs.rip, &map) && map.name && *map.name)
		stub_textbuf_printf(out, " in %s", map.name);
	stub_textbuf_char(out, '\n');
}

static void run_when(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	(void)args;
	char pos[64];
	replay_pos_text(s->r, pos, sizeof(pos));
	stub_textbuf_str(out, pos);
	if (*s->going_to)
		stub_textbuf_printf(out, ", and on the way to %s", s->going_to);
	stub_textbuf_char(out, '\n');
}

static void run_here(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	(void)args;
	put_place(s, out);
}

/* Whether this looks like a position; whether there is one, time will tell. */
static bool position_like(const char *text)
{
	return strcmp(text, "begin") == 0 || strcmp(text, "start") == 0 ||
	       strcmp(text, "end") == 0 ||
	       (*text >= '0' && *text <= '9' && text[strspn(text, "0123456789:+@.ums")] == '\0');
}

static void run_later(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	if (strlen(args) >= sizeof(s->going_to) || !position_like(args)) {
		stub_textbuf_printf(out,
				    "'%s' is no position: SEQ:STEPS[+REP][@TID], a number, a time "
				    "(1.5s), begin or end\n",
				    args);
		return;
	}
	strcpy(s->going_to, args);
	s->going_thread = REPLAY_ALL;
	stub_textbuf_printf(out, "Type stepi, or anything that moves the program, to be at %s\n",
			    args);
}

static void run_goto(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	struct dj_error err = { 0 };
	if (!s->looks_again) {
		run_later(s, args, out);
		return;
	}
	stub_scratch_leave(s, false);
	stub_threads_return(s);
	stub_xfer_forget(s);
	if (replay_goto_text(s->r, args, &err) != 0) {
		stub_textbuf_printf(out, "%s\n", err.text);
		return;
	}
	stub_session_moved(s);
	stub_threads_go(s);
	put_place(s, out);
}

static void run_begin(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	(void)args;
	run_goto(s, "begin", out);
}

static void run_end(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	(void)args;
	run_goto(s, "end", out);
}

static void run_mappings(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	(void)args;
	stub_put_mappings(s, out);
}

static void run_info(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	struct dj_trace *t = replay_trace(s->r);
	const struct dj_trace_meta *meta = dj_trace_meta(t);
	const char *path = dj_trace_path(t), *damage = dj_trace_damage(t);
	time_t start = (time_t)(meta->start_time_ns / 1000000000);
	struct tm tm;
	char when[64] = "";
	(void)args;
	if (gmtime_r(&start, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &tm);
	stub_textbuf_printf(out, "trace     %s\ncommand  ", path ? path : "");
	for (size_t i = 0; meta->argv && meta->argv[i]; i++)
		stub_textbuf_printf(out, " %s", meta->argv[i]);
	stub_textbuf_printf(out, "\nprocess   %d\nrecorded  %s\n", meta->pid, when);
	stub_textbuf_printf(out, "machine   %s\n          %s\n", meta->machine ? meta->machine : "",
			    meta->cpu ? meta->cpu : "");
	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		const struct dj_thread_info *th = dj_trace_thread(t, i);
		stub_textbuf_printf(out, "thread    %d %s: %llu instructions\n", th->tid,
				    th->name ? th->name : "",
				    (unsigned long long)(th->last_steps - th->first_steps));
	}
	if (damage)
		stub_textbuf_printf(out, "damage    %s\n", damage);
	stub_textbuf_str(out, "now       ");
	put_place(s, out);
}

static void run_index(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	uint64_t done, all;
	(void)args;
	replay_ahead_progress(s->r, &done, &all);
	stub_textbuf_printf(out, "%llu of %llu instructions have been gone through (%u%%)\n",
			    (unsigned long long)done, (unsigned long long)all,
			    all ? (unsigned)(done / (all / 100 + 1)) : 100);
}

/* ---- threads and processes ------------------------------------------------------- */

static void run_selected(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	struct replay_thread t;
	unsigned long tid = strtoul(args, NULL, 10);
	if (tid == 0 || tid > INT32_MAX || !stub_session_thread(s, 0, (int32_t)tid, &t))
		stub_textbuf_printf(out, "there is no thread %s here\n", args);
	else
		s->selected = t.number;
}

static void run_processes(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	struct dj_trace *t = replay_trace(s->r);
	size_t n = replay_processes(s->r, NULL, 0);
	struct replay_process *alive = calloc(n + 1, sizeof(*alive));
	(void)args;
	n = alive ? replay_processes(s->r, alive, n) : 0;
	for (size_t i = 0; i < dj_trace_processes(t); i++) {
		size_t threads = 0, k = 0;
		uint32_t first = 0;
		for (uint32_t j = 0; j < dj_trace_threads(t); j++)
			if (dj_trace_thread(t, j)->process == i && threads++ == 0)
				first = j;
		while (k < n && alive[k].number != i)
			k++;
		stub_textbuf_printf(out, "%8d ", dj_trace_process(t, i)->pid);
		const char *name = threads ? dj_trace_thread(t, first)->name : NULL;
		stub_textbuf_name(out, name ? name : "");
		stub_textbuf_printf(out, ", %zu thread%s", threads, threads == 1 ? "" : "s");
		if (threads) {
			struct replay_pos begin;
			replay_thread_begin(s->r, first, &begin);
			stub_textbuf_printf(
				out, ", from %llu:%llu@%d", (unsigned long long)begin.seq,
				(unsigned long long)begin.within, dj_trace_thread(t, first)->tid);
		}
		stub_textbuf_printf(out, "%s%s\n", k < n ? ", alive" : "",
				    stub_threads_shown(s, (uint32_t)i) ? ", debugged" : "");
	}
	free(alive);
}

/* To go to a process is to go to where it begins, unless it is there now. */
static void run_process(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	uint32_t thread;
	bool here;
	char *end;
	unsigned long pid = strtoul(args, &end, 10);
	if (!*args || *end || !stub_threads_process(s, pid, &thread, &here)) {
		stub_textbuf_printf(out,
				    "there is no process '%s' in this recording; \"monitor "
				    "processes\" lists them\n",
				    args);
		return;
	}
	snprintf(s->going_to, sizeof(s->going_to), "process %lu", pid);
	s->going_thread = thread;
	s->going_begin = !here;
	stub_textbuf_printf(out,
			    "Type stepi, or anything that moves the program, to be in process "
			    "%lu\n",
			    pid);
}

static void run_unknown(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	bool zero = !strcmp(args, "zero");
	if (!zero && strcmp(args, "error") != 0) {
		stub_textbuf_printf(out,
				    "unknown memory is shown as \"zero\" or is an \"error\"\n");
		return;
	}
	if (s->blank && s->blanks)
		stub_textbuf_printf(out, "%llu bytes that nobody knows were shown as zeros\n",
				    (unsigned long long)s->blanks);
	s->blank = zero;
	s->blanks = 0;
}

static void run_help(struct stub_session *s, const char *args, struct stub_textbuf *out);

static const struct monitor_command commands[] = {
	{ "when", "", "where in history the program stands", run_when },
	{ "here", "", "the same, and the program counter", run_here },
	{ "goto", "POSITION",
	  "go to SEQ:STEPS[+REP], an instruction count, a time (1.5s), begin or end", run_goto },
	{ "begin", "", "go to the beginning of history", run_begin },
	{ "start", "", "the same", run_begin },
	{ "restart", "", "the same", run_begin },
	{ "end", "", "go to the end of history", run_end },
	{ "later", "POSITION", "go there when the program is next moved", run_later },
	{ "processes", "", "the processes of the recording", run_processes },
	{ "ps", "", "the same", run_processes },
	{ "process", "PID", "go to a process: where it begins, unless it is there now",
	  run_process },
	{ "selected", "TID", "the thread that the next reverse command moves", run_selected },
	{ "info", "", "what was recorded, when and where", run_info },
	{ "index", "", "how much of history later moves and searches need not replay", run_index },
	{ "mappings", "", "the program's memory mappings at this position", run_mappings },
	{ "unknown", "zero|error", "what memory is that nobody knows, until the program is moved",
	  run_unknown },
	{ "help", "", "this list", run_help },
	{ NULL, NULL, NULL, NULL },
};

static void run_help(struct stub_session *s, const char *args, struct stub_textbuf *out)
{
	(void)s;
	(void)args;
	for (const struct monitor_command *c = commands; c->name; c++) {
		char usage[64];
		snprintf(usage, sizeof(usage), "%s%s%s", c->name, *c->args ? " " : "", c->args);
		stub_textbuf_printf(out, "monitor %-14s %s\n", usage, c->help);
	}
}

bool stub_handle_monitor(struct stub_session *s, struct stub_scan *a)
{
	char line[1024];
	long n = stub_scan_hexbytes(a, line, sizeof(line) - 1);
	if (n < 0 || a->p != a->end)
		return stub_reply_error(s, 1);
	line[n] = '\0';
	char *name = line + strspn(line, " \t"), *args = name + strcspn(name, " \t");
	if (*args)
		*args++ = '\0';
	args += strspn(args, " \t");
	for (size_t len = strlen(args); len && strchr(" \t\r\n", args[len - 1]); len--)
		args[len - 1] = '\0';

	struct stub_textbuf out = { 0 };
	const struct monitor_command *c = commands;
	while (c->name && strcmp(c->name, name) != 0)
		c++;
	if (!*name)
		run_help(s, "", &out);
	else if (!c->name)
		stub_textbuf_printf(
			&out, "no monitor command \"%s\"; \"monitor help\" lists them\n", name);
	else
		c->run(s, args, &out);
	stub_textbuf_clean(&out);
	stub_textbuf_hex(&s->reply, out.p, out.len);
	s->reply.failed |= out.failed;
	stub_textbuf_free(&out);
	if (!s->reply.len)
		return stub_reply_ok(s);
	return true;
}
