/*
 * The processes and threads that the debugger has.
 *
 * A recording may hold a whole tree of processes. As with a program that runs, the debugger has
 * those that it is attached to: at first the one in which the replay stands, then those that it
 * attaches to
 * ("attach PID" in an inferior of their own, or "monitor process"), and the children that it keeps
 * when they are made. The others are hidden: nothing lists them or takes their ids, and what
 * happens in them stops nothing.
 *
 * A child is told of where its parent makes it, and has no position there yet: in the order of
 * history its first one comes later. gdb wants to look at it all the same if it keeps it. So while
 * it is the one selected and somebody asks for more than its breakpoints, the replay is away at the
 * child's beginning, and comes back when another one is selected. A child that is not recorded is
 * there for gdb to take its breakpoints out of, no more.
 */
#include "gdbstub/session.h"

#include <stdlib.h>
#include <string.h>

/* ---- ids --------------------------------------------------------------------------- */

static void put_id(struct stub_session *s, struct stub_textbuf *b, const struct replay_thread *t)
{
	if (s->multiprocess)
		stub_textbuf_printf(b, "p%x.", (unsigned)t->pid);
	stub_textbuf_printf(b, "%x", (unsigned)t->tid);
}

void stub_put_thread_id(struct stub_session *s, const struct replay_thread *t)
{
	put_id(s, &s->reply, t);
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

/* ---- which ones -------------------------------------------------------------------- */

int stub_threads_init(struct stub_session *s)
{
	struct replay_thread first;
	s->n_processes = dj_trace_processes(replay_trace(s->r));
	s->shown = calloc(s->n_processes + 1, sizeof(*s->shown));
	if (!s->shown)
		return -1;
	replay_thread(s->r, &first);
	stub_threads_show(s, first.process, true);
	return 0;
}

void stub_threads_free(struct stub_session *s)
{
	stub_threads_forget(s);
	free(s->shown);
}

void stub_threads_forget(struct stub_session *s)
{
	free(s->threads);
	s->threads = NULL;
	s->threads_known = false;
}

bool stub_threads_shown(const struct stub_session *s, uint32_t process)
{
	return process < s->n_processes && s->shown[process];
}

void stub_threads_show(struct stub_session *s, uint32_t process, bool show)
{
	if (process < s->n_processes)
		s->shown[process] = show;
	stub_threads_forget(s);
}

static bool any_shown(const struct stub_session *s)
{
	for (size_t i = 0; i < s->n_processes; i++)
		if (s->shown[i])
			return true;
	return false;
}

static void describe(struct stub_session *s, uint32_t thread, struct replay_thread *out)
{
	struct dj_trace *t = replay_trace(s->r);
	const struct dj_thread_info *info = dj_trace_thread(t, thread);
	*out = (struct replay_thread){ .number = thread,
				       .process = info->process,
				       .pid = dj_trace_process(t, info->process)->pid,
				       .tid = info->tid,
				       .name = info->name ? info->name : "" };
}

/* The threads of the processes that are shown, as they are at the moment: asked for once, since the
 * replay may have to look at each. The child that was told of just now is one of them. */
static void know_threads(struct stub_session *s)
{
	if (s->threads_known)
		return;
	size_t all = replay_threads(s->r, REPLAY_ALL, NULL, 0), n = 0;
	s->threads = calloc(all + 1, sizeof(*s->threads));
	if (s->threads)
		n = replay_threads(s->r, REPLAY_ALL, s->threads, all);
	if (n > all)
		n = all;
	s->n_threads = 0;
	for (size_t i = 0; i < n; i++)
		if (stub_threads_shown(s, s->threads[i].process))
			s->threads[s->n_threads++] = s->threads[i];
	if (s->threads && stub_threads_new_child(s)) {
		struct replay_thread child, there;
		describe(s, s->child_thread, &child);
		if (!replay_thread_find(s->r, child.pid, child.tid, &there))
			s->threads[s->n_threads++] = child;
	}
	s->threads_known = s->threads != NULL;
}

/* The first thread of a process that is shown, alive at the moment. */
static bool first_of(struct stub_session *s, int32_t pid, struct replay_thread *out)
{
	know_threads(s);
	for (size_t i = 0; i < s->n_threads; i++)
		if (pid <= 0 || s->threads[i].pid == pid) {
			*out = s->threads[i];
			return true;
		}
	return false;
}

bool stub_session_thread(struct stub_session *s, int32_t pid, int32_t tid,
			 struct replay_thread *out)
{
	if (s->no_process)
		return false;
	if (tid > 0)
		return replay_thread_find(s->r, pid > 0 ? pid : 0, tid, out) &&
		       stub_threads_shown(s, out->process);
	replay_thread(s->r, out);
	return pid <= 0 || pid == out->pid || first_of(s, pid, out);
}

uint32_t stub_threads_process_now(struct stub_session *s)
{
	struct replay_thread t;
	if (s->in_child && stub_threads_new_child(s))
		return dj_trace_thread(replay_trace(s->r), s->child_thread)->process;
	replay_thread(s->r, &t);
	return t.process;
}

/* ---- lists ------------------------------------------------------------------------- */

/* What a thread does, for those who look at a list of them. */
static void put_state(struct stub_session *s, struct stub_textbuf *b, const struct replay_thread *t)
{
	struct replay_doings d;
	struct dj_error err;
	if (replay_thread_doings(s->r, t->number, &d, &err) != 0)
		return;
	if (d.doing == REPLAY_CALLS)
		stub_textbuf_printf(b, "in system call %llu", (unsigned long long)d.sysno);
	else if (d.doing == REPLAY_FINISHED)
		stub_textbuf_str(b, "finished");
}

/* Each state costs a look at the thread, and gdb asks at every stop. */
#define MAX_STATES 32

void stub_put_threads_xml(struct stub_session *s, struct stub_textbuf *b)
{
	if (!s->no_process)
		know_threads(s);
	stub_textbuf_str(b, "<?xml version=\"1.0\"?>\n<threads>\n");
	for (size_t i = 0; !s->no_process && i < s->n_threads; i++) {
		stub_textbuf_str(b, "<thread id=\"");
		put_id(s, b, &s->threads[i]);
		stub_textbuf_str(b, "\" name=\"");
		stub_textbuf_xml(b, s->threads[i].name);
		struct stub_textbuf state = { 0 };
		if (s->n_threads > 1 && s->n_threads <= MAX_STATES)
			put_state(s, &state, &s->threads[i]);
		stub_textbuf_str(b, state.len ? "\">" : "\"/>\n");
		stub_textbuf_bytes(b, state.p, state.len);
		stub_textbuf_str(b, state.len ? "</thread>\n" : "");
		stub_textbuf_free(&state);
	}
	stub_textbuf_str(b, "</threads>\n");
}

/* As many as a packet holds, from s->next_thread on. */
static bool list_threads(struct stub_session *s)
{
	if (s->no_process || !s->threads_known || s->next_thread >= s->n_threads) {
		stub_textbuf_char(&s->reply, 'l');
		return true;
	}
	for (char sep = 'm'; s->next_thread < s->n_threads &&
			     s->reply.len + sizeof(",p7fffffff.7fffffff") < LINK_PACKET_ANNOUNCED;
	     sep = ',') {
		stub_textbuf_char(&s->reply, sep);
		stub_put_thread_id(s, &s->threads[s->next_thread++]);
	}
	return true;
}

bool stub_handle_threads_first(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	know_threads(s);
	s->next_thread = 0;
	return list_threads(s);
}

bool stub_handle_threads_next(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	return list_threads(s);
}

bool stub_handle_thread_info(struct stub_session *s, struct stub_scan *a)
{
	int32_t pid, tid;
	struct replay_thread t;
	if (!stub_scan_thread_id(a, &pid, &tid) || tid <= 0 ||
	    !stub_session_thread(s, pid, tid, &t))
		return stub_reply_error(s, 3);
	struct stub_textbuf text = { 0 }, state = { 0 };
	stub_textbuf_name(&text, t.name);
	put_state(s, &state, &t);
	if (state.len) {
		stub_textbuf_str(&text, text.len ? ", " : "");
		stub_textbuf_bytes(&text, state.p, state.len);
	}
	stub_textbuf_hex(&s->reply, text.p, text.len);
	stub_textbuf_free(&state);
	stub_textbuf_free(&text);
	return true;
}

bool stub_handle_current_thread(struct stub_session *s, struct stub_scan *a)
{
	if (a->p != a->end)
		return stub_reply_empty(s);
	if (s->no_process)
		return stub_reply_error(s, 3);
	struct replay_thread t;
	replay_thread(s->r, &t);
	stub_textbuf_str(&s->reply, "QC");
	stub_put_thread_id(s, &t);
	return true;
}

bool stub_handle_alive(struct stub_session *s, struct stub_scan *a)
{
	int32_t pid, tid;
	struct replay_thread t;
	if (!stub_scan_thread_id(a, &pid, &tid) || tid <= 0)
		return stub_reply_error(s, 3);
	if (stub_threads_new_child(s) && tid == s->child && (pid <= 0 || pid == s->child))
		return stub_reply_ok(s);
	if (!stub_session_thread(s, pid, tid, &t))
		return stub_reply_error(s, 3);
	return stub_reply_ok(s);
}

/* ---- a child that was made just here ------------------------------------------------------ */

/* The recorded thread that is the child with this number, made by that process; REPLAY_ALL if there
 * is none. Numbers may come again: of several it is the first that has not begun. */
static uint32_t find_child(struct stub_session *s, uint32_t parent, int32_t pid)
{
	struct dj_trace *t = replay_trace(s->r);
	struct replay_pos now, begin;
	replay_pos(s->r, &now);
	for (uint32_t i = 0; i < dj_trace_threads(t); i++) {
		const struct dj_thread_info *info = dj_trace_thread(t, i);
		if (info->tid != pid ||
		    dj_trace_process(t, info->process)->parent != (int32_t)parent)
			continue;
		replay_thread_begin(s->r, i, &begin);
		if (replay_pos_cmp(&begin, &now) >= 0)
			return i;
	}
	return REPLAY_ALL;
}

void stub_threads_forked(struct stub_session *s, const struct replay_stop *stop)
{
	struct replay_thread parent;
	replay_thread(s->r, &parent);
	s->child = stop->child;
	s->child_thread = find_child(s, parent.process, stop->child);
	s->child_new = true;
	if (s->child_thread != REPLAY_ALL)
		stub_threads_show(s, dj_trace_thread(replay_trace(s->r), s->child_thread)->process,
				  true);
}

bool stub_threads_new_child(const struct stub_session *s)
{
	return s->child_new && s->child_thread != REPLAY_ALL &&
	       stub_threads_shown(s, dj_trace_thread(replay_trace(s->r), s->child_thread)->process);
}

void stub_threads_visit(struct stub_session *s)
{
	struct replay_pos begin;
	struct dj_error err;
	if (!s->in_child || s->away || !stub_threads_new_child(s))
		return;
	replay_pos(s->r, &s->home);
	replay_thread(s->r, &s->home_thread);
	stub_scratch_leave(s, true);
	stub_xfer_forget(s);
	replay_thread_begin(s->r, s->child_thread, &begin);
	s->away = replay_seek(s->r, &begin, &err) == 0;
}

void stub_threads_return(struct stub_session *s)
{
	struct dj_error err;
	s->in_child = false;
	if (!s->away)
		return;
	s->away = false;
	stub_scratch_leave(s, true);
	stub_xfer_forget(s);
	if (replay_seek(s->r, &s->home, &err) == 0)
		replay_select(s->r, s->home_thread.number, &err);
}

int stub_threads_move(struct stub_session *s, uint32_t thread, struct dj_error *err)
{
	struct replay_pos begin;
	bool child = stub_threads_new_child(s) && thread == s->child_thread;
	if (child && !s->away) {
		replay_thread_begin(s->r, thread, &begin);
		if (replay_seek(s->r, &begin, err) != 0)
			return -1;
		s->away = true;
	}
	if (child)
		s->away = s->in_child = false; /* for good */
	else
		stub_threads_return(s);
	s->child_new = false;
	stub_threads_forget(s);
	return child ? 0 : replay_select(s->r, thread, err);
}

/* ---- selecting ---------------------------------------------------------------------------- */

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

/* Hg: the thread that is looked at; Hc: the one that s, c, bs and bc move. */
bool stub_handle_select(struct stub_session *s, struct stub_scan *a)
{
	int32_t pid, tid;
	struct replay_thread t;
	if (a->p == a->end)
		return stub_reply_error(s, 1);
	bool general = *a->p++ == 'g';
	if (!stub_scan_thread_id(a, &pid, &tid))
		return stub_reply_error(s, 1);
	bool child = s->child_new && (pid > 0 ? pid : tid) == s->child;
	if (general && child) {
		s->in_child = true;
		return stub_reply_ok(s);
	}
	if (!general && child && stub_threads_new_child(s)) {
		s->moves = tid > 0 ? s->child_thread : REPLAY_ALL;
		s->moves_pid = s->child;
		return stub_reply_ok(s);
	}
	if (general)
		stub_threads_return(s);
	if (!stub_session_thread(s, pid, tid, &t) || (general && !select_general(s, t.number)))
		return stub_reply_error(s, 3);
	if (!general) {
		s->moves = tid > 0 ? t.number : REPLAY_ALL;
		s->moves_pid = pid;
	}
	return stub_reply_ok(s);
}

/* ---- attaching and leaving ---------------------------------------------------------------- */

/* The process of this number, the one that is alive at the moment if there are several. */
static bool find_process(struct stub_session *s, uint64_t pid, uint32_t *number)
{
	struct dj_trace *t = replay_trace(s->r);
	struct replay_process *alive;
	bool found = false;
	for (size_t i = s->n_processes; i-- > 0;)
		if ((uint64_t)dj_trace_process(t, i)->pid == pid) {
			*number = (uint32_t)i;
			found = true;
		}
	size_t n = found ? replay_processes(s->r, NULL, 0) : 0;
	alive = n ? calloc(n, sizeof(*alive)) : NULL;
	n = alive ? replay_processes(s->r, alive, n) : 0;
	for (size_t i = 0; i < n; i++)
		if ((uint64_t)alive[i].pid == pid)
			*number = alive[i].number;
	free(alive);
	return found;
}

static bool first_thread(struct stub_session *s, uint32_t process, uint32_t *thread)
{
	struct dj_trace *t = replay_trace(s->r);
	for (uint32_t i = 0; i < dj_trace_threads(t); i++)
		if (dj_trace_thread(t, i)->process == process) {
			*thread = i;
			return true;
		}
	return false;
}

bool stub_handle_attach(struct stub_session *s, struct stub_scan *a)
{
	uint64_t pid;
	uint32_t process, thread;
	struct replay_thread t;
	struct replay_pos begin;
	struct dj_error err;
	if (!stub_scan_hex(a, &pid) || !find_process(s, pid, &process) ||
	    !first_thread(s, process, &thread))
		return stub_reply_error_text(s, "there is no process %llu in this recording",
					     (unsigned long long)pid);
	stub_scratch_leave(s, true);
	stub_threads_return(s);
	stub_threads_show(s, process, true);
	if (!first_of(s, (int32_t)pid, &t)) {
		replay_thread_begin(s->r, thread, &begin);
		if (!s->no_process) {
			stub_threads_show(s, process, false);
			return stub_reply_error_text(
				s,
				"process %llu is not there at this moment; it begins at "
				"%llu:%llu@%d",
				(unsigned long long)pid, (unsigned long long)begin.seq,
				(unsigned long long)begin.within,
				dj_trace_thread(replay_trace(s->r), thread)->tid);
		}
		if (replay_seek(s->r, &begin, &err) != 0)
			return stub_reply_error_text(s, "%s", err.text);
		stub_session_moved(s);
	} else if (replay_select(s->r, t.number, &err) != 0) {
		return stub_reply_error_text(s, "%s", err.text);
	}
	s->no_process = false;
	return stub_reply_plain_stop(s);
}

void stub_threads_go(struct stub_session *s)
{
	struct replay_thread t;
	replay_thread(s->r, &t);
	stub_threads_show(s, t.process, true);
}

bool stub_threads_process(struct stub_session *s, uint64_t pid, uint32_t *thread, bool *here)
{
	struct replay_thread t;
	uint32_t process;
	if (!find_process(s, pid, &process) || !first_thread(s, process, thread))
		return false;
	bool was = stub_threads_shown(s, process);
	stub_threads_show(s, process, true);
	*here = first_of(s, (int32_t)pid, &t);
	if (*here)
		*thread = t.number;
	stub_threads_show(s, process, was);
	return true;
}

bool stub_threads_leave(struct stub_session *s, uint64_t pid)
{
	struct dj_trace *trace = replay_trace(s->r);
	struct replay_thread now, other;
	struct dj_error err;
	bool child = s->child_new && (uint64_t)s->child == pid;
	if (child) {
		stub_threads_return(s);
		if (s->child_thread != REPLAY_ALL)
			stub_threads_show(s, dj_trace_thread(trace, s->child_thread)->process,
					  false);
	}
	replay_thread(s->r, &now);
	for (uint32_t i = 0; !child && i < s->n_processes; i++)
		if (s->shown[i] && (uint64_t)dj_trace_process(trace, i)->pid == pid) {
			stub_session_points_clear(s, i);
			stub_threads_show(s, i, false);
		}
	if (!any_shown(s))
		return true;
	/* what is looked at from now on is one of those that are left: a child that was made just
	 * now begins */
	if (!stub_threads_shown(s, now.process)) {
		if (stub_threads_new_child(s))
			stub_threads_move(s, s->child_thread, &err);
		else if (first_of(s, 0, &other))
			replay_select(s->r, other.number, &err);
		stub_session_moved(s);
	}
	return false;
}
