/*
 * A session from the first packet to the last: which request goes to which handler, replies
 * and errors, and the requests about threads and processes.
 *
 * Requests are looked up in a table by their beginning, the longest first where one is the
 * beginning of another. What is not in the table gets the empty reply, which the protocol
 * defines as "not supported".
 */
#include "gdbstub/session.h"
#include "gdbstub/gdbstub.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- replies ---------------------------------------------------------------------- */

bool reply_ok(struct session *s)
{
	textbuf_reset(&s->reply);
	textbuf_str(&s->reply, "OK");
	return true;
}

bool reply_empty(struct session *s)
{
	textbuf_reset(&s->reply);
	return true;
}

bool reply_error(struct session *s, int number)
{
	textbuf_reset(&s->reply);
	textbuf_printf(&s->reply, "E%02x", number & 0xff);
	return true;
}

bool reply_error_text(struct session *s, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	textbuf_reset(&s->reply);
	textbuf_str(&s->reply, "E.");
	for (const char *p = text; *p; p++)
		textbuf_char(&s->reply, strchr("#$*}", *p) ? '?' : *p);
	return true;
}

static void console_bytes(struct session *s, const void *bytes, size_t len)
{
	if (!s->link)
		return;
	struct textbuf b = { 0 };
	textbuf_char(&b, 'O');
	textbuf_hex(&b, bytes, len);
	if (!b.failed)
		link_send(s->link, b.p, b.len);
	textbuf_free(&b);
}

void session_console(struct session *s, const char *fmt, ...)
{
	char text[600];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	console_bytes(s, text, strlen(text));
}

/* What functions called by the debugger print. */
static void copy_output(void *ctx, const void *bytes, size_t len)
{
	console_bytes(ctx, bytes, len);
}

/* ---- threads ---------------------------------------------------------------------- */

void put_thread_id(struct session *s, int32_t tid)
{
	if (s->multiprocess)
		textbuf_printf(&s->reply, "p%x.%x", (unsigned)s->pid, (unsigned)tid);
	else
		textbuf_printf(&s->reply, "%x", (unsigned)tid);
}

static bool scan_id(struct scan *a, int32_t *out)
{
	if (scan_word(a, "-1")) {
		*out = -1;
		return true;
	}
	uint64_t x;
	if (!scan_hex(a, &x) || x > INT32_MAX)
		return false;
	*out = (int32_t)x;
	return true;
}

bool scan_thread_id(struct scan *a, int32_t *pid, int32_t *tid)
{
	*pid = 0;
	if (!scan_char(a, 'p'))
		return scan_id(a, tid);
	if (!scan_id(a, pid))
		return false;
	*tid = -1;
	return !scan_char(a, '.') || scan_id(a, tid);
}

#define MAX_THREADS 4096

bool session_has_thread(struct session *s, int32_t tid)
{
	static int32_t tids[MAX_THREADS];
	size_t n = replay_threads(s->r, tids, MAX_THREADS);
	for (size_t i = 0; i < n && i < MAX_THREADS; i++)
		if (tids[i] == tid)
			return true;
	return false;
}

const char *session_thread_name(struct session *s, int32_t tid)
{
	struct dj_trace *t = replay_trace(s->r);
	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		const struct dj_thread_info *info = dj_trace_thread(t, i);
		if (info->tid == tid)
			return info->name ? info->name : "";
	}
	return "";
}

/* Registers and memory are those of the current thread: the others can be listed only. gdb selects
 * a forked child to take its breakpoints out, and then detaches from it. */
static bool handle_select(struct session *s, struct scan *a)
{
	int32_t pid, tid;
	if (a->p == a->end)
		return reply_error(s, 1);
	bool general = *a->p++ == 'g';
	if (!scan_thread_id(a, &pid, &tid))
		return reply_error(s, 1);
	if (general)
		s->in_child = pid > 0 && pid == s->child;
	if (general && s->in_child)
		return reply_ok(s);
	if (s->no_process || (pid > 0 && pid != s->pid) ||
	    (tid > 0 && !session_has_thread(s, tid)))
		return reply_error(s, 3);
	return reply_ok(s);
}

static bool handle_alive(struct session *s, struct scan *a)
{
	int32_t pid, tid;
	if (!scan_thread_id(a, &pid, &tid) || s->no_process || (pid > 0 && pid != s->pid) ||
	    !session_has_thread(s, tid))
		return reply_error(s, 3);
	return reply_ok(s);
}

/* ---- processes -------------------------------------------------------------------- */

static bool handle_extended(struct session *s, struct scan *a)
{
	(void)a;
	s->extended = true;
	return reply_ok(s);
}

/* Breakpoints go: gdb inserts them anew in a program that starts. */
static int restart(struct session *s)
{
	struct dj_error err;
	scratch_leave(s, false);
	session_points_clear(s);
	xfer_forget(s);
	if (replay_goto_text(s->r, "begin", &err) != 0)
		return -1;
	s->no_process = false;
	session_moved(s);
	return 0;
}

static bool handle_restart(struct session *s, struct scan *a)
{
	(void)a;
	restart(s);
	return false;
}

/* The program and arguments in the packet are not looked at: there is only what was recorded. */
static bool handle_run(struct session *s, struct scan *a)
{
	(void)a;
	if (restart(s) != 0)
		return reply_error_text(s, "the recording cannot be replayed from its beginning");
	return reply_plain_stop(s);
}

static bool handle_attach(struct session *s, struct scan *a)
{
	uint64_t pid;
	if (!scan_hex(a, &pid) || pid != (uint64_t)s->pid)
		return reply_error_text(s, "only process %d was recorded", s->pid);
	s->no_process = false;
	return reply_plain_stop(s);
}

static bool handle_kill(struct session *s, struct scan *a)
{
	(void)a;
	s->done = true;
	return false;
}

/* gdb takes its breakpoints for gone together with the process. */
static bool leave_process(struct session *s)
{
	scratch_leave(s, false);
	session_points_clear(s);
	s->no_process = true;
	if (!s->extended)
		s->done = true;
	return reply_ok(s);
}

static bool handle_vkill(struct session *s, struct scan *a)
{
	uint64_t pid;
	if (!scan_hex(a, &pid))
		return reply_error(s, 1);
	if (pid != (uint64_t)s->pid)
		return reply_ok(s); /* a child, which goes on undebugged: see handle_detach */
	return leave_process(s);
}

static bool handle_detach(struct session *s, struct scan *a)
{
	uint64_t pid;
	s->in_child = false;
	if (scan_char(a, ';') && scan_hex(a, &pid) && pid != (uint64_t)s->pid)
		return reply_ok(s); /* a forked child: it is not in this recording anyway */
	return leave_process(s);
}

static bool handle_unknown(struct session *s, struct scan *a)
{
	(void)a;
	return reply_empty(s);
}

/* ---- the table --------------------------------------------------------------------- */

/* Requests that need a process come after the row with a NULL prefix. */
static const struct session_command commands[] = {
	{ "!", handle_extended },
	{ "?", handle_why },
	{ "D", handle_detach },
	{ "H", handle_select },
	{ "R", handle_restart },
	{ "T", handle_alive },
	{ "k", handle_kill },
	{ "vAttach;", handle_attach },
	{ "vCont?", handle_vcont_query },
	{ "vFile:", handle_vfile },
	{ "vKill;", handle_vkill },
	{ "vMustReplyEmpty", handle_unknown },
	{ "vRun;", handle_run },
	{ NULL, NULL },
};

static const struct session_command process_commands[] = {
	{ "C", handle_continue_signal },
	{ "G", handle_regs_write },
	{ "M", handle_mem_write },
	{ "P", handle_reg_write },
	{ "S", handle_step_signal },
	{ "X", handle_mem_write_binary },
	{ "Z", handle_point_insert },
	{ "bc", handle_back_continue },
	{ "bs", handle_back_step },
	{ "c", handle_continue },
	{ "g", handle_regs_read },
	{ "m", handle_mem_read },
	{ "p", handle_reg_read },
	{ "s", handle_step },
	{ "vCont;", handle_vcont },
	{ "x", handle_mem_read_binary },
	{ "z", handle_point_remove },
	{ NULL, NULL },
};

const struct session_command *session_find(const struct session_command *table, struct scan *a)
{
	for (; table->prefix; table++)
		if (scan_word(a, table->prefix))
			return table;
	return NULL;
}

bool session_packet(struct session *s, struct scan a)
{
	textbuf_reset(&s->reply);
	const struct session_command *c = session_find(commands, &a);
	if (!c)
		c = session_find(session_queries, &a);
	if (!c) {
		c = session_find(process_commands, &a);
		if (c && s->no_process)
			return reply_error(s, 3);
		if (c && s->in_child && strchr("zZMXGP", *c->prefix))
			return reply_ok(s); /* leaves the recorded process alone */
	}
	if (!c)
		return reply_empty(s);
	bool send = c->handle(s, &a);
	if (s->reply.failed)
		return reply_error(s, 12); /* ENOMEM */
	return send;
}

/* ---- the session -------------------------------------------------------------------- */

static bool poll_client(void *ctx)
{
	struct session *s = ctx;
	return link_poll_interrupt(s->link);
}

int session_init(struct session *s, struct replay *r, struct link *link, struct dj_error *err)
{
	*s = (struct session){ .r = r, .link = link, .sysno = -1 };
	s->points = calloc(SESSION_POINTS, sizeof *s->points);
	if (!s->points)
		return dj_fail(err, 1, "out of memory");
	const struct dj_trace_meta *meta = dj_trace_meta(replay_trace(r));
	s->pid = meta && meta->pid > 0 ? meta->pid : replay_thread(r);
	session_image_new(s);
	if (!s->images) {
		free(s->points);
		return dj_fail(err, 1, "out of memory");
	}
	/* all but the ones gdb passes silently; it says which with QPassSignals */
	replay_report_signals(r, ~0ULL);
	if (link)
		replay_set_poll(r, poll_client, s);
	replay_set_output(r, copy_output, s);
	return 0;
}

void session_free(struct session *s)
{
	replay_set_poll(s->r, NULL, NULL);
	replay_set_output(s->r, NULL, NULL);
	for (size_t i = 0; i < SESSION_FILES; i++)
		if (s->files[i].open && s->files[i].owned)
			free((void *)s->files[i].bytes);
	xfer_forget(s);
	textbuf_free(&s->doc);
	textbuf_free(&s->reply);
	for (size_t i = 0; i < s->n_points; i++)
		free(s->points[i].conditions);
	free(s->points);
	free(s->images);
}

int gdbstub_serve(struct replay *r, int in, int out, struct dj_error *err)
{
	struct link link;
	struct session s;
	if (link_init(&link, in, out) != 0)
		return dj_fail(err, 1, "out of memory");
	if (session_init(&s, r, &link, err) != 0) {
		link_free(&link);
		return -1;
	}
	struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
	sigaction(SIGPIPE, &ignore, &before);
	while (!s.done) {
		struct scan packet;
		enum link_got got = link_receive(&link, &packet);
		if (got == LINK_CLOSED)
			break;
		bool send = got == LINK_BAD ? reply_error_text(&s, "damaged or oversized packet")
					    : session_packet(&s, packet);
		if (send)
			link_send(&link, s.reply.p, s.reply.len);
	}
	sigaction(SIGPIPE, &before, NULL);
	session_free(&s);
	link_free(&link);
	return 0;
}
