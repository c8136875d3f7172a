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

/* ---- threads ---------------------------------------------------------------------- */

void stub_put_thread_id(struct stub_session *s, const struct replay_thread *t)
{
	if (s->multiprocess)
		stub_textbuf_printf(&s->reply, "p%x.%x", (unsigned)t->pid, (unsigned)t->tid);
	else
		stub_textbuf_printf(&s->reply, "%x", (unsigned)t->tid);
}

static bool scan_id(struct stub_scan *a, int32_t *out)
{
	if (stub_scan_word(a, "-1")) {
		*out = -1;
		return true;
	}
	uint64_t x;
	if (!stub_scan_hex(a, &x) || x > INT32_MAX)
		return false;
	*out = (int32_t)x;
	return true;
}

bool stub_scan_thread_id(struct stub_scan *a, int32_t *pid, int32_t *tid)
{
	*pid = 0;
	if (!stub_scan_char(a, 'p'))
		return scan_id(a, tid);
	if (!scan_id(a, pid))
		return false;
	*tid = -1;
	return !stub_scan_char(a, '.') || scan_id(a, tid);
}

bool stub_session_thread(struct stub_session *s, int32_t pid, int32_t tid,
			 struct replay_thread *out)
{
	if (s->no_process)
		return false;
	if (tid > 0)
		return replay_thread_find(s->r, pid > 0 ? pid : 0, tid, out);
	replay_thread(s->r, out);
	return pid <= 0 || pid == out->pid;
}

/* Select the thread that registers and memory are asked of; the debugger's changes belong to one
 * thread, and go when it looks at another. */
static bool select_general(struct stub_session *s, uint32_t thread)
{
	struct replay_thread now;
	struct dj_error err;
	replay_thread(s->r, &now);
	if (now.number == thread)
		return true;
	stub_scratch_leave(s, true);
	return replay_select(s->r, thread, &err) == 0;
}

/* Hg: the thread that is looked at; Hc: the one that s, c, bs and bc move. gdb selects a forked
 * child to take its breakpoints out, and then detaches from it. */
static bool handle_select(struct stub_session *s, struct stub_scan *a)
{
	int32_t pid, tid;
	struct replay_thread t;
	if (a->p == a->end)
		return stub_reply_error(s, 1);
	bool general = *a->p++ == 'g';
	if (!stub_scan_thread_id(a, &pid, &tid))
		return stub_reply_error(s, 1);
	if (general)
		s->in_child = pid > 0 && pid == s->child;
	if (general && s->in_child)
		return stub_reply_ok(s);
	if (!stub_session_thread(s, pid, tid, &t) || (general && !select_general(s, t.number)))
		return stub_reply_error(s, 3);
	if (!general)
		s->moves = tid > 0 ? t.number : REPLAY_ALL;
	return stub_reply_ok(s);
}

static bool handle_alive(struct stub_session *s, struct stub_scan *a)
{
	int32_t pid, tid;
	struct replay_thread t;
	if (!stub_scan_thread_id(a, &pid, &tid) || tid <= 0 ||
	    !stub_session_thread(s, pid, tid, &t))
		return stub_reply_error(s, 3);
	return stub_reply_ok(s);
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
	stub_session_points_clear(s);
	stub_xfer_forget(s);
	if (replay_goto_text(s->r, "begin", &err) != 0)
		return -1;
	s->no_process = false;
	stub_session_moved(s);
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

static bool handle_attach(struct stub_session *s, struct stub_scan *a)
{
	uint64_t pid;
	if (!stub_scan_hex(a, &pid) || pid != (uint64_t)s->pid)
		return stub_reply_error_text(s, "only process %d was recorded", s->pid);
	s->no_process = false;
	return stub_reply_plain_stop(s);
}

static bool handle_kill(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	s->done = true;
	return false;
}

/* gdb takes its breakpoints for gone together with the process. */
static bool leave_process(struct stub_session *s)
{
	stub_scratch_leave(s, false);
	stub_session_points_clear(s);
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
	if (pid != (uint64_t)s->pid)
		return stub_reply_ok(s); /* a child, which goes on undebugged: see handle_detach */
	return leave_process(s);
}

static bool handle_detach(struct stub_session *s, struct stub_scan *a)
{
	uint64_t pid;
	s->in_child = false;
	if (stub_scan_char(a, ';') && stub_scan_hex(a, &pid) && pid != (uint64_t)s->pid)
		return stub_reply_ok(s); /* a forked child: it is not in this recording anyway */
	return leave_process(s);
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
	{ "H", handle_select },
	{ "R", handle_restart },
	{ "T", handle_alive },
	{ "k", handle_kill },
	{ "vAttach;", handle_attach },
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
	const struct stub_session_command *c = stub_session_find(commands, &a);
	if (!c)
		c = stub_session_find(stub_session_queries, &a);
	if (!c) {
		c = stub_session_find(process_commands, &a);
		if (c && s->no_process)
			return stub_reply_error(s, 3);
		if (c && s->in_child && strchr("zZMXGP", *c->prefix))
			return stub_reply_ok(s); /* leaves the recorded process alone */
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
	struct replay_thread first;
	*s = (struct stub_session){ .r = r, .link = link, .sysno = -1, .moves = REPLAY_ALL };
	s->points = calloc(SESSION_POINTS, sizeof(*s->points));
	if (!s->points)
		return dj_fail(err, 1, "out of memory");
	replay_thread(r, &first);
	s->pid = first.pid;
	stub_session_image_new(s);
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
	free(s->images);
	free(s->kept_library);
}

int gdbstub_serve(struct replay *r, int in, int out, bool looks_again, struct dj_error *err)
{
	struct stub_link link;
	struct stub_session s;
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
