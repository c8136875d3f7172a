/*
 * Moving: steps, ranges and runs both ways, breakpoints and watchpoints, and the stop replies
 * that tell how it ended.
 *
 * All stop mode, and gdb's own notion of which way it goes: forwards with vCont, s, c, backwards
 * with bs and bc. History is fixed, so signals that the debugger passes along or swallows change
 * nothing. At the end of history the program does not exit for gdb: the reply is replaylog:end,
 * so that one can go back, and the console says how the program ended.
 *
 * One thread is moved: the one that the request names, else the one whose position the moment is.
 * The others are then where the order of history has them. Which of them are looked at on the way
 * is for the request to say, too (replay_set_scope()): gdb sends
 *
 *   set scheduler-locking       stepi              continue           reverse-continue
 *   off, replay (the default)   vCont;s:pP.T;c     vCont;c            Hc0 or HcpP.-1, bc
 *   step                        vCont;s:pP.T       vCont;c            likewise
 *   on                          vCont;s:pP.T       vCont;c:pP.T       HcpP.T, bc
 *
 * with :pP.-1 behind "c" unless `schedule-multiple` is on. bs comes with the same Hc as bc, so that
 * it does not say which thread is to step; see "monitor selected".
 *
 * A stopped program stands at the breakpoint's own address (swbreak and hwbreak are announced, so
 * gdb corrects nothing).
 */
#include "gdbstub/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum how { HOW_STEP, HOW_RANGE, HOW_CONTINUE };

struct motion {
	enum how how;
	enum replay_dir dir;
	uint64_t lo, hi;
	uint32_t thread; /* to be moved, or REPLAY_ALL */
	enum replay_scope scope;
};

/* ---- stop replies ------------------------------------------------------------------- */

static void put_stop(struct stub_session *s, int signal)
{
	struct replay_thread t;
	replay_thread(s->r, &t);
	stub_textbuf_reset(&s->reply);
	stub_textbuf_printf(&s->reply, "T%02x", signal & 0xff);
	stub_put_expedited_regs(s);
	stub_textbuf_str(&s->reply, "thread:");
	stub_put_thread_id(s, &t);
	stub_textbuf_char(&s->reply, ';');
}

#define GDB_SIGINT  2
#define GDB_SIGTRAP 5
#define GDB_SIGSYS  12

bool stub_reply_plain_stop(struct stub_session *s)
{
	int signal = GDB_SIGTRAP;
	if (s->have_last && s->last.reason == REPLAY_SIGNAL)
		signal = stub_gdbsignal_from_linux(s->last.signo);
	put_stop(s, signal);
	return true;
}

bool stub_handle_why(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	if (s->no_process) {
		stub_textbuf_str(&s->reply, "W00");
		return true;
	}
	return stub_reply_plain_stop(s);
}

void stub_session_moved(struct stub_session *s)
{
	s->going_to[0] = '\0';
	s->arrives = s->blank = false;
	s->child_new = s->vforked = false;
	stub_threads_forget(s);
	s->have_last = false;
	s->sysno = -1;
}

static void tell_end(struct stub_session *s, const struct replay_stop *stop)
{
	const char *damage = dj_trace_damage(replay_trace(s->r));
	if (stop->exited && WIFEXITED(stop->status))
		stub_session_console(s, "[The program exited with status %d; history ends here.]\n",
				     WEXITSTATUS(stop->status));
	else if (stop->exited && WIFSIGNALED(stop->status))
		stub_session_console(s, "[The program was killed by %s; history ends here.]\n",
				     strsignal(WTERMSIG(stop->status)));
	else
		stub_session_console(s, "[The recording ends here%s%s.]\n", damage ? ": " : "",
				     damage ? damage : "");
}

static void put_watch(struct stub_session *s, const struct replay_stop *stop)
{
	static const char *const names[] = { "watch", "rwatch", "awatch" };
	const struct stub_session_point *p = stub_session_point(s, stop->watch);
	if (p)
		stub_textbuf_printf(&s->reply, "%s:%llx;", names[p->type - '2'],
				    (unsigned long long)stop->watch_addr);
}

/* The name of the break reason follows the kind of breakpoint that is there. */
static void put_break(struct stub_session *s)
{
	const uint32_t process = stub_threads_process_now(s);
	struct dj_regs regs;
	replay_regs(s->r, &regs);
	bool hw = false, sw = false;
	for (size_t i = 0; i < s->n_points; i++)
		if (s->points[i].addr == regs.rip && s->points[i].process == process) {
			hw |= s->points[i].type == '1';
			sw |= s->points[i].type == '0';
		}
	stub_textbuf_str(&s->reply, hw && !sw ? "hwbreak:;" : "swbreak:;");
}

static void put_exec(struct stub_session *s)
{
	const char *exe = stub_session_exe(s);
	put_stop(s, GDB_SIGTRAP);
	stub_textbuf_str(&s->reply, "exec:");
	stub_textbuf_hex(&s->reply, exe, strlen(exe));
	stub_textbuf_char(&s->reply, ';');
}

static bool told_as_vfork(const struct stub_session *s, const struct replay_stop *stop)
{
	return s->vfork_events && stop->how == DJ_CHILD_VFORK;
}

static bool reply_stop(struct stub_session *s, const struct replay_stop *stop, enum replay_dir dir)
{
	s->last = *stop;
	s->have_last = true;
	s->sysno = -1;
	switch (stop->reason) {
	case REPLAY_BREAK:
		put_stop(s, GDB_SIGTRAP);
		put_break(s);
		break;
	case REPLAY_WATCH:
		put_stop(s, GDB_SIGTRAP);
		put_watch(s, stop);
		break;
	case REPLAY_SYSCALL_ENTRY:
	case REPLAY_SYSCALL_RETURN:
		s->sysno = (int64_t)stop->sysno;
		put_stop(s, GDB_SIGTRAP);
		stub_textbuf_printf(&s->reply, "syscall_%s:%llx;",
				    stop->reason == REPLAY_SYSCALL_ENTRY ? "entry" : "return",
				    (unsigned long long)stop->sysno);
		break;
	case REPLAY_SIGNAL:
		put_stop(s, stub_gdbsignal_from_linux(stop->signo));
		break;
	case REPLAY_FORKED:
		stub_threads_forked(s, stop);
		s->vforked = told_as_vfork(s, stop);
		put_stop(s, GDB_SIGTRAP);
		stub_textbuf_printf(&s->reply, "%s:p%x.%x;", s->vforked ? "vfork" : "fork",
				    (unsigned)stop->child, (unsigned)stop->child);
		break;
	case REPLAY_EXECED:
		put_exec(s);
		break;
	case REPLAY_BEGIN:
		put_stop(s, GDB_SIGTRAP);
		stub_textbuf_str(&s->reply, "replaylog:begin;");
		break;
	case REPLAY_END:
		tell_end(s, stop);
		put_stop(s, GDB_SIGTRAP);
		stub_textbuf_str(&s->reply, "replaylog:end;");
		break;
	case REPLAY_INTERRUPTED:
		put_stop(s, GDB_SIGINT);
		break;
	case REPLAY_FAILED:
		stub_session_console(s, "[deja: %s]\n", stop->err.text);
		if (s->scratch != SCRATCH_NONE) {
			put_stop(s, GDB_SIGSYS);
			break;
		}
		put_stop(s, GDB_SIGTRAP);
		stub_textbuf_str(&s->reply,
				 dir == REPLAY_FORWARD ? "replaylog:end;" : "replaylog:begin;");
		break;
	case REPLAY_STEPPED:
		put_stop(s, GDB_SIGTRAP);
		break;
	}
	return true;
}

/* ---- moving ---------------------------------------------------------------------------- */

/* Whether a breakpoint at this place has no condition, or one that is true. */
static bool conditions_hold(struct stub_session *s, uint32_t process, uint64_t addr)
{
	bool any = false;
	for (size_t i = 0; i < s->n_points; i++) {
		const struct stub_session_point *p = &s->points[i];
		if (p->type > '1' || p->addr != addr)
			continue;
		any = true;
		if (p->process != process)
			continue;
		if (!p->conditions || stub_agent_any_true(s, p->conditions, p->conditions_len))
			return true;
	}
	return !any;
}

/* The same, asked by the replay wherever it comes to one. */
static bool holds(void *ctx, uint32_t thread, uint64_t addr)
{
	struct stub_session *s = ctx;
	return conditions_hold(s, dj_trace_thread(replay_trace(s->r), thread)->process, addr);
}

static bool left_range(struct stub_session *s, const struct motion *m)
{
	struct dj_regs regs;
	replay_regs(s->r, &regs);
	return m->how == HOW_RANGE && (regs.rip < m->lo || regs.rip >= m->hi);
}

/* What happens in processes that this client does not have; breakpoints whose condition is false;
 * events that this client has not asked for, or that only
 * make sense forwards: an image going away is told like one that appears, so that gdb loads the
 * other one's symbols. */
static bool wanted(struct stub_session *s, const struct replay_stop *stop)
{
	const uint32_t process = stub_threads_process_now(s);
	const struct stub_session_point *p;
	struct dj_regs regs;
	switch (stop->reason) {
	case REPLAY_STEPPED:
	case REPLAY_BEGIN:
	case REPLAY_END:
	case REPLAY_INTERRUPTED:
	case REPLAY_FAILED:
		return true;
	default:
		break;
	}
	if (!stub_threads_shown(s, process))
		return false;
	switch (stop->reason) {
	case REPLAY_BREAK:
		replay_regs(s->r, &regs);
		return conditions_hold(s, process, regs.rip);
	case REPLAY_WATCH:
		p = stub_session_point(s, stop->watch);
		return p && p->process == process;
	case REPLAY_FORKED:
		return (s->fork_events || told_as_vfork(s, stop)) && s->multiprocess;
	case REPLAY_EXECED:
		return s->exec_events;
	default:
		return true;
	}
}

static void move(struct stub_session *s, const struct motion *m, struct replay_stop *stop)
{
	*stop = (struct replay_stop){ 0 };
	replay_set_condition(s->r, holds, s);
	switch (m->how) {
	case HOW_STEP:
		replay_step(s->r, m->dir, stop);
		break;
	case HOW_RANGE:
		replay_step_range(s->r, m->lo, m->hi, stop);
		break;
	case HOW_CONTINUE:
		replay_continue(s->r, m->dir, stop);
		break;
	}
	replay_set_condition(s->r, NULL, NULL);
}

/* Go where a monitor command said, see monitor.c. Signal 0 is for gdb a stop without a cause, with
 * which it ends every command, and of which it says no more than where the program is. If there is
 * another program image there it is told that first; it wants to go on then, and is stopped. */
static bool go(struct stub_session *s)
{
	const struct stub_session_image *image = stub_session_image(s);
	const uint32_t process = stub_threads_process_now(s);
	struct dj_error err = { 0 };
	struct replay_pos begin;
	int result;
	stub_threads_return(s);
	if (s->going_thread == REPLAY_ALL) {
		result = replay_goto_text(s->r, s->going_to, &err);
	} else if (s->going_begin) {
		replay_thread_begin(s->r, s->going_thread, &begin);
		result = replay_seek(s->r, &begin, &err);
	} else {
		result = replay_select(s->r, s->going_thread, &err);
	}
	stub_session_moved(s);
	stub_threads_go(s);
	if (result != 0)
		stub_session_console(s, "[deja: %s]\n", err.text);
	s->arrives = s->exec_events && stub_session_image(s) != image &&
		     stub_threads_process_now(s) == process;
	if (s->arrives)
		put_exec(s);
	else
		put_stop(s, 0);
	return true;
}

/* The thread that is moved if the request does not say. */
static uint32_t default_thread(struct stub_session *s, enum replay_dir dir)
{
	struct replay_pos moment;
	struct replay_thread t;
	if (s->selected != REPLAY_ALL && dir == REPLAY_BACKWARD)
		return s->selected;
	replay_pos(s->r, &moment);
	replay_thread(s->r, &t);
	if (stub_threads_shown(s, dj_trace_thread(replay_trace(s->r), moment.thread)->process))
		return moment.thread;
	return t.number;
}

/* What stopped the replay was not wanted: whether to go on. The thread that steps is the one to
 * step again if it was another one that stopped. */
static bool go_on(struct stub_session *s, const struct motion *m, uint32_t thread,
		  const struct replay_stop *stop, struct replay_pos *before)
{
	struct replay_pos after;
	struct replay_thread now;
	struct dj_error err;
	replay_pos(s->r, &after);
	bool moved = replay_pos_cmp(before, &after) != 0;
	*before = after;
	replay_thread(s->r, &now);
	if (m->how != HOW_CONTINUE && now.number != thread)
		return moved && replay_select(s->r, thread, &err) == 0 && !left_range(s, m);
	if (stop->reason == REPLAY_BREAK)
		moved = true; /* for certain: the one at the start does not count */
	return m->how != HOW_STEP && moved && !left_range(s, m);
}

static bool resume(struct stub_session *s, const struct motion *m)
{
	struct replay_stop stop;
	struct replay_pos before;
	struct stub_line_step line = { .line = NULL };
	struct dj_error err;
	const bool vforked = s->vforked, back = m->how == HOW_STEP && m->dir == REPLAY_BACKWARD;
	const bool again = s->lines_again && back;
	s->lines_again = false;
	stub_scratch_before_resume(s, m->dir);
	stub_xfer_forget(s);
	s->blank = false;
	if (*s->going_to && s->scratch == SCRATCH_NONE)
		return go(s);
	if (s->arrives) {
		s->arrives = false;
		put_stop(s, 0);
		return true;
	}
	uint32_t thread = m->thread == REPLAY_ALL ? default_thread(s, m->dir) : m->thread;
	s->selected = REPLAY_ALL;
	if (s->scratch == SCRATCH_NONE && stub_threads_move(s, thread, &err) != 0)
		return stub_reply_error_text(s, "%s", err.text);
	replay_set_scope(s->r, m->scope);
	s->vforked = false;
	if (vforked) { /* in a recording the child is always done with its parent's memory */
		put_stop(s, GDB_SIGTRAP);
		stub_textbuf_str(&s->reply, "vforkdone:;");
		return true;
	}
	replay_pos(s->r, &before);
	if (again && s->lines_thread == thread)
		stub_lines_begin(s, &line, thread);
	for (;;) {
		move(s, m, &stop);
		if (stub_lines_go_on(s, &line, &stop)) {
			replay_pos(s->r, &before);
			continue;
		}
		if (wanted(s, &stop))
			break;
		if (!go_on(s, m, thread, &stop, &before)) {
			stop.reason = REPLAY_STEPPED;
			break;
		}
		if (s->link && stub_link_poll_interrupt(s->link)) {
			stop.reason = REPLAY_INTERRUPTED;
			break;
		}
	}
	s->lines_again = s->lines_meant && back && stop.reason == REPLAY_STEPPED;
	s->lines_thread = thread;
	return reply_stop(s, &stop, m->dir);
}

bool stub_handle_vcont_query(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	stub_textbuf_str(&s->reply, "vCont;c;C;s;S;t;r");
	return true;
}

/* One action of a vCont packet; false if it is not one. */
static bool scan_action(struct stub_scan *a, struct motion *m, bool *stops)
{
	uint64_t signal;
	*m = (struct motion){ .dir = REPLAY_FORWARD, .thread = REPLAY_ALL };
	*stops = false;
	if (a->p == a->end)
		return false;
	switch (*a->p++) {
	case 'c':
		m->how = HOW_CONTINUE;
		return true;
	case 's':
		m->how = HOW_STEP;
		return true;
	case 'C':
		m->how = HOW_CONTINUE;
		return stub_scan_hex(a, &signal);
	case 'S':
		m->how = HOW_STEP;
		return stub_scan_hex(a, &signal);
	case 'r':
		m->how = HOW_RANGE;
		return stub_scan_hex(a, &m->lo) && stub_scan_char(a, ',') &&
		       stub_scan_hex(a, &m->hi);
	case 't':
		*stops = true;
		return true;
	}
	return false;
}

/* Which of the actions in a vCont packet counts, for of all threads one moves: a step of a thread
 * that is named, else what the thread at the moment is to do, else what another one is. */
enum rank { RANK_NONE, RANK_OTHER, RANK_MOMENT, RANK_STEP };

static bool in_process(struct stub_session *s, uint32_t thread, int32_t pid)
{
	struct dj_trace *t = replay_trace(s->r);
	return dj_trace_process(t, dj_trace_thread(t, thread)->process)->pid == pid;
}

static enum rank rank_action(struct stub_session *s, struct motion *m, int32_t pid, int32_t tid)
{
	struct replay_thread t;
	struct replay_pos moment;
	replay_pos(s->r, &moment);
	if (stub_threads_new_child(s) && (pid > 0 ? pid : tid) == s->child) {
		m->thread = s->child_thread; /* and leaves the moment, to begin there */
		return tid > 0 && m->how != HOW_CONTINUE ? RANK_STEP : RANK_OTHER;
	}
	if (!stub_session_thread(s, pid, tid, &t))
		return RANK_NONE;
	if (tid <= 0) {
		if (pid <= 0 || in_process(s, moment.thread, pid))
			return RANK_MOMENT;
		m->thread = t.number;
		return RANK_OTHER;
	}
	m->thread = t.number;
	if (m->how != HOW_CONTINUE)
		return RANK_STEP;
	return t.number == moment.thread ? RANK_MOMENT : RANK_OTHER;
}

/* Whom an action is for: one thread, a process or all. */
static enum replay_scope scope_of(const struct stub_session *s, int32_t pid, int32_t tid)
{
	size_t shown = 0;
	if (tid > 0)
		return REPLAY_THREAD;
	for (size_t i = 0; i < s->n_processes; i++)
		shown += s->shown[i];
	return pid > 0 || shown < 2 ? REPLAY_PROCESS : REPLAY_PROCESSES;
}

bool stub_handle_vcont(struct stub_session *s, struct stub_scan *a)
{
	enum rank best = RANK_NONE;
	struct motion chosen = { .how = HOW_CONTINUE };
	enum replay_scope scope = REPLAY_THREAD;
	while (a->p < a->end) {
		struct stub_scan part = stub_scan_until(a, ';');
		struct motion m;
		bool stops;
		int32_t pid = -1, tid = -1;
		if (!scan_action(&part, &m, &stops))
			return stub_reply_error(s, 1);
		if (stub_scan_char(&part, ':') && !stub_scan_thread_id(&part, &pid, &tid))
			return stub_reply_error(s, 1);
		if (part.p != part.end)
			return stub_reply_error(s, 1);
		enum rank rank = stops ? RANK_NONE : rank_action(s, &m, pid, tid);
		if (!stops && scope_of(s, pid, tid) > scope)
			scope = scope_of(s, pid, tid);
		/* of the actions that name a thread the leftmost counts */
		if (rank > best) {
			best = rank;
			chosen = m;
		}
	}
	if (best == RANK_NONE)
		return stub_reply_error(s, 1);
	chosen.scope = scope;
	/* a range that does not hold the program counter is one plain step */
	if (chosen.how == HOW_RANGE && chosen.lo >= chosen.hi)
		chosen.how = HOW_STEP;
	return resume(s, &chosen);
}

/* Those that move what Hc chose. */
static bool resume_chosen(struct stub_session *s, enum how how, enum replay_dir dir)
{
	struct motion m = { .how = how, .dir = dir, .thread = s->moves };
	struct replay_thread t;
	struct replay_pos moment;
	replay_pos(s->r, &moment);
	if (m.thread == REPLAY_ALL && s->moves_pid > 0 &&
	    !in_process(s, moment.thread, s->moves_pid) &&
	    stub_session_thread(s, s->moves_pid, -1, &t))
		m.thread = t.number;
	m.scope = scope_of(s, s->moves_pid, s->moves == REPLAY_ALL ? -1 : 1);
	return resume(s, &m);
}

/* The old requests with an address to go on from: history goes on where it is. */
static bool old_style(struct stub_session *s, struct stub_scan *a, bool with_signal, enum how how)
{
	uint64_t signal;
	if (with_signal && !stub_scan_hex(a, &signal))
		return stub_reply_error(s, 1);
	if (a->p != a->end)
		return stub_reply_error_text(s, "history cannot be left by a jump");
	return resume_chosen(s, how, REPLAY_FORWARD);
}

bool stub_handle_continue(struct stub_session *s, struct stub_scan *a)
{
	return old_style(s, a, false, HOW_CONTINUE);
}

bool stub_handle_continue_signal(struct stub_session *s, struct stub_scan *a)
{
	return old_style(s, a, true, HOW_CONTINUE);
}

bool stub_handle_step(struct stub_session *s, struct stub_scan *a)
{
	return old_style(s, a, false, HOW_STEP);
}

bool stub_handle_step_signal(struct stub_session *s, struct stub_scan *a)
{
	return old_style(s, a, true, HOW_STEP);
}

bool stub_handle_back_step(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	return resume_chosen(s, HOW_STEP, REPLAY_BACKWARD);
}

bool stub_handle_back_continue(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	return resume_chosen(s, HOW_CONTINUE, REPLAY_BACKWARD);
}
