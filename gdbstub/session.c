/*
 * A session from the first packet to the last: which request goes to which handler, replies
 * and errors, and the beginning and end of it.
 *
 * Requests are looked up in a table by their beginning, the longest first where one is the
 * beginning of another. What is not in the table gets the empty reply, which the protocol
 * defines as "not supported".
 */
#include "gdbstub/session.h"
#include "gdbstub/gdbstub.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- replies ---------------------------------------------------------------------- */

bool stub_reply_ok(struct stub_session *s)
{
	stub_textbuf_reset(&s->reply);
	stub_textbuf_str(&s->reply, "OK");
	return true;
}

bool stub_reply_empty(struct stub_session *s)
{
	stub_textbuf_reset(&s->reply);
	return true;
}

bool stub_reply_error(struct stub_session *s, int number)
{
	stub_textbuf_reset(&s->reply);
	stub_textbuf_printf(&s->reply, "E%02x", number & 0xff);
	return true;
}

bool stub_reply_error_text(struct stub_session *s, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	stub_textbuf_reset(&s->reply);
	stub_textbuf_str(&s->reply, "E.");
	for (const char *p = text; *p; p++)
		stub_textbuf_char(&s->reply, strchr("#$*}", *p) ? '?' : *p);
	return true;
}

static void console_bytes(struct stub_session *s, const void *bytes, size_t len)
{
	if (!s->link)
		return;
	struct stub_textbuf b = { 0 }, text = { 0 };
	stub_textbuf_bytes(&text, bytes, len);
	stub_textbuf_clean(&text); /* the debugger shows it as it is */
	stub_textbuf_char(&b, 'O');
	stub_textbuf_hex(&b, text.p, text.len);
	if (!b.failed && !text.failed)
		stub_link_send(s->link, b.p, b.len);
	stub_textbuf_free(&text);
	stub_textbuf_free(&b);
}

void stub_session_console(struct stub_session *s, const char *fmt, ...)
{
	char text[600];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	console_bytes(s, text, strlen(text));
}

/* What functions called by the debugger print. */
static void copy_output(void *ctx, const void *bytes, size_t len)
{
	console_bytes(ctx, bytes, len);
}

/* ---- processes -------------------------------------------------------------------- */

static bool handle_extended(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	s->extended = true;
	return stub_reply_ok(s);
}

/* Breakpoints go: gdb inserts them anew in a program that starts. */
static int restart(struct stub_session *s)
{
	struct dj_error err;
	stub_scratch_leave(s, false);
	stub_session_points_clear(s, REPLAY_ALL);
	stub_threads_return(s);
	stub_xfer_forget(s);
	if (replay_goto_text(s->r, "begin", &err) != 0)
		return -1;
	s->no_process = false;
	stub_session_moved(s);
	stub_threads_go(s);
	return 0;
}

static bool handle_restart(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	restart(s);
	return false;
}

/* The program and arguments in the packet are not looked at: there is only what was recorded. */
static bool handle_run(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	if (restart(s) != 0)
		return stub_reply_error_text(s,
					     "the recording cannot be replayed from its beginning");
	return stub_reply_plain_stop(s);
}

static bool handle_kill(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	s->done = true;
	return false;
}

/* gdb takes its breakpoints for gone together with the process. A number that is not of a process
 * of its is that of a child that was made just now, and goes on undebugged. */
static bool leave_process(struct stub_session *s, bool all, uint64_t pid)
{
	if (!all && !stub_threads_leave(s, pid))
		return stub_reply_ok(s);
	stub_scratch_leave(s, false);
	stub_session_points_clear(s, REPLAY_ALL);
	s->no_process = true;
	if (!s->extended)
		s->done = true;
	return stub_reply_ok(s);
}

static bool handle_vkill(struct stub_session *s, struct stub_scan *a)
{
	uint64_t pid;
	if (!stub_scan_hex(a, &pid))
		return stub_reply_error(s, 1);
	return leave_process(s, false, pid);
}

static bool handle_detach(struct stub_session *s, struct stub_scan *a)
{
	uint64_t pid = 0;
	bool one = stub_scan_char(a, ';') && stub_scan_hex(a, &pid);
	return leave_process(s, !one, pid);
}

static bool handle_unknown(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	return stub_reply_empty(s);
}

/* ---- the table --------------------------------------------------------------------- */

/* Requests that need a process come after the row with a NULL prefix. */
static const struct stub_session_command commands[] = {
	{ "!", handle_extended },
	{ "?", stub_handle_why },
	{ "D", handle_detach },
	{ "H", stub_handle_select },
	{ "R", handle_restart },
	{ "T", stub_handle_alive },
	{ "k", handle_kill },
	{ "vAttach;", stub_handle_attach },
	{ "vCont?", stub_handle_vcont_query },
	{ "vFile:", stub_handle_vfile },
	{ "vKill;", handle_vkill },
	{ "vMustReplyEmpty", handle_unknown },
	{ "vRun;", handle_run },
	{ NULL, NULL },
};

/* clang-format off */
static const struct stub_session_command process_commands[] = {
	{ "C", stub_handle_continue_signal },
	{ "G", stub_handle_regs_write },
	{ "M", stub_handle_mem_write },
	{ "P", stub_handle_reg_write },
	{ "S", stub_handle_step_signal },
	{ "X", stub_handle_mem_write_binary },
	{ "Z", stub_handle_point_insert },
	{ "bc", stub_handle_back_continue },
	{ "bs", stub_handle_back_step },
	{ "c", stub_handle_continue },
	{ "g", stub_handle_regs_read },
	{ "m", stub_handle_mem_read },
	{ "p", stub_handle_reg_read },
	{ "s", stub_handle_step },
	{ "vCont;", stub_handle_vcont },
	{ "x", stub_handle_mem_read_binary },
	{ "z", stub_handle_point_remove },
	{ NULL, NULL },
};
/* clang-format on */

const struct stub_session_command *stub_session_find(const struct stub_session_command *table,
						     struct stub_scan *a)
{
	for (; table->prefix; table++)
		if (stub_scan_word(a, table->prefix))
			return table;
	return NULL;
}

bool stub_session_packet(struct stub_session *s, struct stub_scan a)
{
	stub_textbuf_reset(&s->reply);
	stub_lines_request(s, a);
	const struct stub_session_command *c = stub_session_find(commands, &a);
	if (!c)
		c = stub_session_find(stub_session_queries, &a);
	if (!c) {
		c = stub_session_find(process_commands, &a);
		if (c && s->no_process)
			return stub_reply_error(s, 3);
		if (c && s->in_child && !stub_threads_new_child(s) && strchr("zZMXGP", *c->prefix))
			return stub_reply_ok(s); /* leaves its parent alone */
		if (c && strchr("gmpxMXGP", *c->prefix))
			stub_threads_visit(s);
	}
	if (!c)
		return stub_reply_empty(s);
	bool send = c->handle(s, &a);
	if (s->reply.failed)
		return stub_reply_error(s, 12); /* ENOMEM */
	return send;
}

/* ---- the session -------------------------------------------------------------------- */

static bool poll_client(void *ctx)
{
	struct stub_session *s = ctx;
	return stub_link_poll_interrupt(s->link);
}

int stub_session_init(struct stub_session *s, struct replay *r, struct stub_link *link,
		      struct dj_error *err)
{
	*s = (struct stub_session){
		.r = r, .link = link, .sysno = -1, .moves = REPLAY_ALL, .selected = REPLAY_ALL
	};
	s->points = calloc(SESSION_POINTS, sizeof(*s->points));
	if (!s->points || stub_threads_init(s) != 0) {
		free(s->points);
		return dj_fail(err, 1, "out of memory");
	}
	if (stub_session_images(s) != 0) {
		free(s->points);
		stub_threads_free(s);
		stub_session_images_free(s);
		return dj_fail(err, 1, "out of memory");
	}
	/* all but the ones gdb passes silently; it says which with QPassSignals */
	replay_report_signals(r, ~0ULL);
	if (link)
		replay_set_poll(r, poll_client, s);
	replay_set_output(r, copy_output, s);
	return 0;
}

void stub_session_free(struct stub_session *s)
{
	replay_set_poll(s->r, NULL, NULL);
	replay_set_output(s->r, NULL, NULL);
	for (size_t i = 0; i < SESSION_FILES; i++)
		if (s->files[i].open && s->files[i].owned)
			free((void *)s->files[i].bytes);
	stub_xfer_forget(s);
	stub_textbuf_free(&s->doc);
	stub_textbuf_free(&s->reply);
	for (size_t i = 0; i < s->n_points; i++)
		free(s->points[i].conditions);
	free(s->points);
	free(s->lines);
	stub_threads_free(s);
	stub_session_images_free(s);
	free(s->kept_library);
}

#define IDLE  200     /* milliseconds after which the client is taken to be thinking */
#define AWAKE 1000000 /* nanoseconds */

static bool client_waits(void *ctx)
{
	return stub_link_waits(ctx, 0);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Wait for a request. While one comes so soon after another it is waited for awake: to be woken, on
 * another processor, takes longer than most requests do. False if the client is thinking. */
static bool await(struct stub_link *link, bool *soon)
{
	const int64_t began = now_ns();
	while (*soon && now_ns() - began < AWAKE && !stub_link_waits(link, 0))
		sched_yield();
	bool comes = stub_link_waits(link, IDLE);
	*soon = now_ns() - began < AWAKE;
	return comes;
}

int gdbstub_serve(struct replay *r, int in, int out, bool looks_again, struct dj_error *err)
{
	struct stub_link link;
	struct stub_session s;
	bool soon = false;
	if (stub_link_init(&link, in, out) != 0)
		return dj_fail(err, 1, "out of memory");
	if (stub_session_init(&s, r, &link, err) != 0) {
		stub_link_free(&link);
		return -1;
	}
	s.looks_again = looks_again;
	struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
	sigaction(SIGPIPE, &ignore, &before);
	while (!s.done) {
		struct stub_scan packet;
		if (!await(&link, &soon))
			replay_ahead(r, client_waits, &link);
		enum stub_link_got got = stub_link_receive(&link, &packet);
		if (got == LINK_CLOSED)
			break;
		bool send = got == LINK_BAD
				    ? stub_reply_error_text(&s, "damaged or oversized packet")
				    : stub_session_packet(&s, packet);
		if (send)
			stub_link_send(&link, s.reply.p, s.reply.len);
	}
	sigaction(SIGPIPE, &before, NULL);
	stub_session_free(&s);
	stub_link_free(&link);
	return 0;
}
