/*
 * The loop: one wait for all traced threads, and a small state for each of them.
 *
 * A thread is stopped only for as long as the supervisor thinks about it. What takes several stops
 * (a system call made for the program, the way to a handler's first instruction, a string
 * instruction, making deja's memory in a new image...) is never waited for where it is begun: it is
 * a state. The function that begins such an operation lets the thread go on and returns the
 * state; the next stop of that thread, whenever it comes and whatever the others do meanwhile, is
 * handed to that state's function, which again lets the thread go on and returns a state. When
 * an operation is over its function returns REC_IN_HAND, and rec_go_on() finds what is next:
 * another operation, or the cache.
 *
 *       exec ─► EXEC_OUT ─► CALL... ─┐         ┌──► CALL... (an arena)
 *                                    ▼         ├──► NATIVE, NATIVE_RUN
 *     CACHE ─► [BOUNDARY ─►]      IN HAND  ◄──►├──► SYSCALL, SIGRETURN ──► exec, end
 *       ▲                            │         └──► TRAP, HANDLER, FATAL_SIGNAL
 *       └────────────────────────────┘
 *
 * So only this file waits; nothing depends on which thread stops first. That matters already
 * with one recorded thread, because its children are traced until they have been let go:
 *
 *  - A new child's first stop may be reported before its parent's fork event or after it. A stop of
 *    a thread that nobody knows is kept until somebody claims the thread, in the order of arrival.
 *  - The parent of a vfork sleeps in the kernel until its child has exec'ed or ended. It does so
 *    in the state SYSCALL like any other call; the child's stops are handled meanwhile, and
 *    if the child needs another thread or process to get on, that one's stops are, too.
 *  - Which of two ends is reported first does not matter: the loop ends with the last thread.
 *  - A process that shares the program's memory may stay traced for a while (HELPER: helper.c). The
 *    loop does not wait for its end, and it does not die with us.
 *
 * The kernel reports the stop of the thread that was made last first (ptrace_link() puts it at the
 * head of the list that wait(2) goes through, kernel/ptrace.c), again and again if it stops again
 * and again. Served in that order an old thread would wait for ever behind two new ones; and if it
 * has what they want, a lock, so would they. So whatever has stopped is asked for before anything
 * is done about it, and served in turn: nobody is served twice while somebody waits.
 *
 * A stop may be out of date when its turn comes, because a thread that is stopped can be killed,
 * and the first thread of a process is replaced by the one that makes an exec. Then something newer
 * is to be had about that thread, which counts instead.
 *
 * Three things may happen to a thread in the middle of an operation that are none of the
 * operation's business. The loop deals with them for all states alike, and then repeats the request
 * under way (cont, step...), which has not begun or goes on where it was:
 *
 *  - The process is stopped by job control. The thread stays stopped with it (PTRACE_LISTEN) and
 *    reports another event when the process is continued.
 *  - A signal arrives whose effect does not show in the program's registers: one that is
 *    ignored, or one that stops the process. It is passed on at once, whatever the thread is doing,
 *    so it cannot be lost, and the process stops when it should.
 *  - A signal arrives that the program handles or dies of. It is put aside, and is delivered as
 *    soon as the thread is in hand again (signals.c). That is at once if the operation is a system
 *    call of the program's which the kernel has not begun: it may be the last one. Or a native
 *    instruction: the one before may be the call that the signal came with.
 *
 * When recording has to end before the program does (rec_cut, rec_fatal) the program is killed and
 * its threads' stops mean nothing any more; children that are on their way out are still seen off.
 */
#include "format/thread.h"
#include "recorder/ahead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* So many threads that have waited for a lock go on at once, the next a little later. All of them
 * would only be in each other's way, and in that of whoever gets it. */
#define AT_ONCE 4
#define PAUSE	50 /* microseconds */

/* The states. `quiet`: what is none of the operation's business does not reach its function. */
/* clang-format off */
static const struct {
	const char *name;
	const char *waits_for;
	rec_handler *handle;
	bool quiet;
} states[REC_STATES] = {
	[REC_IN_HAND]      = { "in hand", "nothing: it is about to go on", NULL, false },
	[REC_STARTING]     = { "starting", "the first exec", rec_on_starting, false },
	[REC_EXEC_OUT]     = { "exec", "the way out of a successful exec", rec_on_exec_out, true },
	[REC_CACHE]        = { "cache", "a trap, signal or interruption in translated code", rec_on_cache, false },
	[REC_BOUNDARY]     = { "boundary", "a step towards an instruction boundary", rec_on_boundary, true },
	[REC_CALL]         = { "call", "an injected system call", rec_on_call, true },
	[REC_SYSCALL]      = { "system call", "a supervised system call, or its fork or exec event", rec_on_syscall, true },
	[REC_SIGRETURN]    = { "sigreturn", "rt_sigreturn", rec_on_sigreturn, true },
	[REC_NATIVE]       = { "native", "a step of an instruction executed natively", rec_on_native, true },
	[REC_NATIVE_RUN]   = { "native run", "the int3 behind an instruction executed apart", rec_on_native_run, true },
	[REC_TRAP]         = { "trap", "a trap of ours, from which a signal can be injected", rec_on_trap, true },
	[REC_HANDLER]      = { "handler", "a signal handler's first instruction", rec_on_handler, true },
	[REC_FATAL_SIGNAL] = { "fatal signal", "the end, by a signal", rec_on_fatal_signal, false },
	[REC_NEW_THREAD]   = { "new thread", "a new thread's first stop", rec_on_new_thread, false },
	[REC_WAIT]         = { "wait", "its turn, stopped and in hand", NULL, false },
	[REC_TRAP_WAIT]    = { "trap wait", "others, which could reset SIGTRAP's handler, to stop", NULL, false },
	[REC_CHILD]        = { "child", "a new child's first stop", rec_on_child, false },
	[REC_VFORK]        = { "vfork", "the exec of a child that is not recorded before", rec_on_vfork, false },
	[REC_HELPER]       = { "helper", "a system call of a process that shares memory", rec_on_helper, false },
	[REC_FREE]         = { "free", "the end, untraced", NULL, false },
	[REC_KILLED]       = { "killed", "the end", NULL, false },
	[REC_GONE]         = { "gone", "nothing any more", NULL, false },
};
/* clang-format on */

/* A stop that has been reported and not been looked at; perhaps of a thread that is not known yet.
 */
struct rec_stray {
	struct rec_stray *next;
	pid_t tid;
	int status;
};

/* ---- threads and processes ------------------------------------------------------------ */

struct rec_process *rec_process_new(struct rec_recording *rec, pid_t pid)
{
	struct rec_process *proc = calloc(1, sizeof(*proc));
	DJ_ASSERT(proc, "out of memory for a process");
	proc->rec = rec;
	proc->pid = pid;
	proc->mem = proc->memfd = proc->program = -1;
	proc->n_threads = 1;
	proc->next = rec->processes;
	rec->processes = proc;
	return proc;
}

static struct rec_thread **with_tid(struct rec_recording *rec, pid_t tid)
{
	return &rec->by_tid[(size_t)tid % (sizeof(rec->by_tid) / sizeof(*rec->by_tid))];
}

void rec_thread_number(struct rec_thread *t, pid_t tid)
{
	struct rec_thread **at = with_tid(t->rec, t->tid);
	while (*at && *at != t)
		at = &(*at)->same;
	if (*at)
		*at = t->same;
	t->tid = tid;
	at = with_tid(t->rec, tid);
	t->same = *at;
	if (tid)
		*at = t;
}

static struct rec_thread *find(struct rec_recording *rec, pid_t tid)
{
	struct rec_thread *t = *with_tid(rec, tid);
	while (t && (t->tid != tid || t->state == REC_GONE))
		t = t->same;
	return t;
}

struct rec_thread *rec_thread_new(struct rec_process *proc, pid_t tid, enum rec_state state)
{
	struct rec_thread *t = calloc(1, sizeof(*t));
	DJ_ASSERT(t, "out of memory for a thread");
	t->rec = proc->rec;
	t->proc = t->group = proc;
	t->state = state;
	rec_thread_number(t, tid);
	t->own_part = -1;
	t->signalled = UINT64_MAX;
	t->next = t->rec->threads;
	t->rec->threads = t;
	return t;
}

static bool any_left(const struct rec_recording *rec)
{
	for (const struct rec_thread *t = rec->threads; t; t = t->next)
		if (t->state != REC_GONE && t->state != REC_HELPER)
			return true;
	return false;
}

/* ---- strays ---------------------------------------------------------------------------- */

static void keep_stray(struct rec_recording *rec, pid_t tid, int status)
{
	struct rec_stray *s = NULL, **at = &rec->strays;
	while (*at)
		if ((*at)->tid == tid) { /* what was known of it is out of date */
			s = *at;
			*at = s->next;
		} else {
			at = &(*at)->next;
		}
	if (!s)
		s = malloc(sizeof(*s));
	DJ_ASSERT(s, "out of memory for a stop");
	*s = (struct rec_stray){ .tid = tid, .status = status };
	*at = s;
}

static bool execs(int status)
{
	return status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8);
}

/* The other thread of the process whose exec is in the kernel, if there is one. */
static struct rec_thread *in_exec(const struct rec_thread *t)
{
	struct rec_thread *by = t->proc->busy;
	if (!by || by == t || by->group != t->group || t->tid != t->group->pid ||
	    (by->state != REC_SYSCALL && by->state != REC_KILLED) ||
	    (by->sys.regs.rax != SYS_execve && by->sys.regs.rax != SYS_execveat))
		return NULL;
	return by;
}

/* Such an exec ends all threads but that, and gives it the number of the first. So as long as it is
 * not known how it ends, nothing is done about the first: what would be asked of it might be asked
 * of the other, in front of its new image. */
static bool being_replaced(const struct rec_thread *first)
{
	const struct rec_thread *by = in_exec(first);
	return by && by->state == REC_SYSCALL;
}

/* The oldest stop that was kept and whose thread has become known. */
static struct rec_thread *claimed(struct rec_recording *rec, int *status)
{
	for (struct rec_stray **at = &rec->strays; *at; at = &(*at)->next) {
		struct rec_thread *t = find(rec, (*at)->tid);
		int what = (*at)->status;
		if (!t || rec_idle_held(t) ||
		    (WIFSTOPPED(what) && !execs(what) && being_replaced(t)))
			continue;
		struct rec_stray *s = *at;
		*status = s->status;
		*at = s->next;
		free(s);
		return t;
	}
	return NULL;
}

/* Wait until something has stopped, and keep all that has. False if nobody is left that could. */
static bool collect(struct rec_recording *rec)
{
	struct rec_tracer *tracer = rec->tracer;
	int status;
	bool asked = rec_ask_look(rec);
	bool beside = rec->rests && !rec_over(rec) && rec_ahead_beside(rec);
	pid_t tid = tracer->wait(
		tracer, -1,
		!asked && !beside && !rec->order.more && !rec->held && !rec_clock_ticks(), &status);
	if (!tid && (rec->order.more || rec->held))
		usleep(PAUSE);
	if (tid < 0 && errno != EINTR) {
		rec_fatal(rec, "lost the program: %s", strerror(errno));
		return false;
	}
	while (tid > 0) {
		keep_stray(rec, tid, status);
		tid = rec->threads->next ? tracer->wait(tracer, -1, false, &status) : 0;
	}
	return true;
}

/* The thread that has waited longest, and what has become of it. NULL if there is none, after a
 * signal; `lost`: and there will be none. */
static struct rec_thread *next_stop(struct rec_recording *rec, int *status, bool *lost)
{
	struct rec_tracer *tracer = rec->tracer;
	int newer;
	struct rec_thread *t = claimed(rec, status);
	*lost = false;
	if (t && tracer->wait(tracer, t->tid, false, &newer) == t->tid)
		*status = newer;
	if (t)
		return t;
	*lost = !collect(rec);
	return claimed(rec, status);
}

bool rec_others_wait(struct rec_recording *rec)
{
	/* of those that are gone there may be an end that nobody will ask for */
	for (const struct rec_stray *s = rec->strays; s; s = s->next)
		if (find(rec, s->tid))
			return true;
	return false;
}

void rec_strays_free(struct rec_recording *rec)
{
	while (rec->strays) {
		struct rec_stray *s = rec->strays;
		rec->strays = s->next;
		free(s);
	}
}

/* ---- one stop --------------------------------------------------------------------------- */

void rec_run(struct rec_thread *t, enum rec_resume how, int sig)
{
	if (sig == SIGTRAP && t->group->trap.lost && rec_disposition(t, sig) == REC_IGNORED)
		sig = 0; /* ignored, which the kernel does not know */
	if (!sig && how != REC_LISTEN && how != REC_DETACH)
		sig = rec_trap_again(t);
	t->how = how;
	t->stopped = t->can_inject = false;
	rec_pages_may_change(t->proc);
	if (how != REC_LISTEN && how != REC_DETACH && rec_near(t))
		t->rec->tracer->resume_here(t->rec->tracer, t->tid, how, sig);
	else
		t->rec->tracer->resume(t->rec->tracer, t->tid, how, sig);
}

static bool job_control_stop(const struct rec_stop *stop)
{
	return stop->event == PTRACE_EVENT_STOP && (stop->sig == SIGSTOP || stop->sig == SIGTSTP ||
						    stop->sig == SIGTTIN || stop->sig == SIGTTOU);
}

static bool describe(struct rec_thread *t, int status, struct rec_stop *stop)
{
	memset(stop, 0, sizeof(*stop));
	stop->status = status;
	stop->event = status >> 16;
	stop->sig = WSTOPSIG(status);
	t->can_inject = false;
	if (stop->event)
		return true;
	if (t->rec->tracer->get_siginfo(t->rec->tracer, t->tid, &stop->info))
		return false;
	stop->sync = rec_synchronous(stop->sig, &stop->info);
	/* ptrace's own notices (a system call's exit, a handler's first instruction after a step)
	 * carry SIGTRAP as si_code, and drop what is injected from them */
	t->can_inject = stop->sig != SIGTRAP || stop->info.si_code != SIGTRAP;
	if (t->group == t->rec->first)
		rec_signals_seen(&stop->info);
	rec_trap_stop(t, stop);
	return true;
}

/* The process is being stopped by job control, and it is not before all its threads are. Those that
 * wait for a turn, which perhaps a stopped one has, run into a trap: on the way the kernel stops
 * them, and behind it they try again. */
static enum rec_state waited(struct rec_thread *t, int64_t result)
{
	(void)result;
	(void)t;
	return REC_IN_HAND;
}

static void waiters_stop(const struct rec_process *group)
{
	for (struct rec_thread *t = group->rec->threads; t; t = t->next) {
		const struct translator *tr = t->proc->tr;
		if (t->group != group || t->state != REC_WAIT)
			continue;
		t->state = tr && tr_syscall_insn(tr)
				   ? rec_into_trap(t, 0)
				   : rec_call(t, waited, SYS_sched_yield, 0, 0, 0, 0, 0, 0);
		if (t->state == REC_IN_HAND) /* that call is not allowed */
			t->state = REC_WAIT;
	}
}

/* Deal with what is none of the business of the operation under way. False if it is not that. */
static bool none_of_its_business(struct rec_thread *t, const struct rec_stop *stop,
				 enum rec_state *next)
{
	if (job_control_stop(stop) && t->group->leaving && t->state == REC_CACHE)
		return false; /* it stops with its new tracer */
	if (job_control_stop(stop)) {
		t->rec->tracer->resume(t->rec->tracer, t->tid, REC_LISTEN, 0);
		t->stopped = true;
		waiters_stop(t->group);
		return true;
	}
	if (!states[t->state].quiet)
		return false;
	if (stop->event == PTRACE_EVENT_STOP) {
		rec_run(t, rec_native_stepped(t) ? REC_CONT : t->how, 0);
		return true;
	}
	if (stop->event || stop->sync)
		return false;
	enum rec_disposition d = rec_disposition(t, stop->sig);
	if (d == REC_IGNORED || d == REC_JOB_CONTROL) {
		rec_run(t, t->how, stop->sig);
	} else {
		rec_put_aside(t, &stop->info);
		if (rec_call_not_begun(t) || rec_native_left(t))
			*next = REC_IN_HAND;
		else
			rec_run(t, t->how, 0);
	}
	return true;
}

/* The recording is over: so is the program. */
static void kill_program(struct rec_recording *rec)
{
	if (rec->killing)
		return;
	rec->killing = true;
	for (struct rec_process *p = rec->processes; p; p = p->next)
		if ((!p->child || p->follow) && p->n_threads && !p->free)
			rec->tracer->kill(rec->tracer, p->pid);
	for (struct rec_thread *t = rec->threads; t; t = t->next)
		if ((!t->group->child || t->group->follow) && t->state != REC_GONE &&
		    t->state != REC_FREE)
			t->state = REC_KILLED;
}

/* The next of its operations. */
static void go_on(struct rec_thread *t, enum rec_state next)
{
	struct rec_recording *rec = t->rec;
	while (next == REC_IN_HAND && !rec_over(rec))
		next = rec_go_on(t);
	if (next == REC_IN_HAND) { /* and will not go on */
		if (t->in_hand && t->ring && !rec->fatal)
			rec_digest(t, true);
		next = REC_KILLED;
	}
	t->state = next;
	rec->turns |= next == REC_WAIT || next == REC_TRAP_WAIT;
	const struct rec_thread *other = next == REC_WAIT ? rec_turn_of(t->proc) : NULL;
	if (other && other->stopped && other->group == t->group)
		waiters_stop(t->group);
	if (rec_over(rec))
		kill_program(rec);
}

/* A process exits by a call, which is made here for it. One that exits otherwise has got away from
 * us, and who knows since when. (A thread that is not the last may exit where it is, by another's
 * call; a single instruction may be such a call, of the old kinds.) */
static bool exits_unseen(const struct rec_thread *t, int status)
{
	if (!WIFEXITED(status) || t->group->exits || t->group->n_threads != 1 || rec_over(t->rec))
		return false;
	switch (t->state) {
	case REC_CACHE:
	case REC_BOUNDARY:
	case REC_NATIVE_RUN:
	case REC_CALL:
	case REC_TRAP:
	case REC_HANDLER:
		return true;
	default:
		return false;
	}
}

/* A child that is on its way, or dead; a thread that is not the first. What is killed because the
 * recording is over keeps its records until it is finished with all others (end.c). */
static void gone(struct rec_thread *t)
{
	struct rec_process *proc = t->proc, *group = t->group;
	bool child = group->child, leader = t->tid == group->pid;
	if (!child && (t->ring || (leader && group == t->rec->first)))
		return;
	rec_thread_free(t);
	if (child || leader)
		rec_follow_ended(group);
	if (group != proc)
		rec_follow_ended(proc);
}

/* What has ended under the first thread's number may be the one that had an exec in the kernel. */
static void exec_ended(const struct rec_thread *first, int status)
{
	struct rec_thread *by = in_exec(first);
	if (!by)
		return;
	rec_ended(by, status);
	gone(by);
}

static void handle(struct rec_thread *t, int status)
{
	struct rec_stop stop;
	rec_ask_stopped(t);
	rec_idle_stopped(t);
	if (!WIFSTOPPED(status)) {
		exec_ended(t, status);
		if (t->state == REC_HELPER)
			rec_helper_ended(t);
		if (exits_unseen(t, status))
			rec_fatal(t->rec,
				  "process %d has exited by a call that deja did not make for it: "
				  "some of it was not recorded",
				  t->group->pid);
		rec_ended(t, status);
		return;
	}
	if (t->state == REC_KILLED || t->state == REC_FREE || !describe(t, status, &stop))
		return; /* its end follows */
	enum rec_state next = t->state;
	if (!none_of_its_business(t, &stop, &next)) {
		DJ_ASSERT(states[t->state].handle, "a thread stops in state \"%s\", waiting for %s",
			  states[t->state].name, states[t->state].waits_for);
		next = states[t->state].handle(t, &stop);
	}
	go_on(t, next);
}

/* ---- turns ------------------------------------------------------------------------------- */

bool rec_turn(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	if (proc->busy && proc->busy != t)
		return false;
	if (!rec_logs_close(t))
		return false;
	proc->busy = t;
	return true;
}

void rec_turn_over(struct rec_thread *t)
{
	if (t->proc->busy == t)
		t->proc->busy = NULL;
	rec_logs_open(t);
}

/* It tries again. In front of a system call it need not go there once more: hundreds of threads
 * that all do so for each one that gets the turn take minutes. */
static enum rec_state tries(struct rec_thread *t)
{
	if (!t->sys.waits || t->n_pending || t->hand_over || t->group->leaving ||
	    t->proc->gather.by || rec_trap_held(t) || rec_over(t->rec))
		return REC_IN_HAND;
	rec_ring_facts(t);
	return rec_syscall(t);
}

/* Whoever waits for a turn that can be had tries again. */
static void next_turn(struct rec_recording *rec)
{
	enum rec_state next;
	for (struct rec_process *p = rec->processes; p; p = p->next) {
		struct rec_thread *by = p->gather.by;
		p->logged.held = false;
		if (by && !rec_over(rec) && rec_gathered(p, &next))
			go_on(by, next);
	}
	bool turns = rec->turns;
	rec->turns = rec->held = false;
	for (struct rec_thread *t = rec->threads; t && turns; t = t->next)
		if (t->state == REC_TRAP_WAIT && !being_replaced(t))
			go_on(t, rec_trap_wait(t));
		else if (t->state == REC_WAIT && !t->proc->busy && !t->proc->logged.held)
			go_on(t, tries(t));
		else
			rec->turns |= t->state == REC_WAIT || t->state == REC_TRAP_WAIT;
	bool waits = rec->order.waits;
	unsigned n = 0;
	rec->order.waits = rec->order.more = false;
	for (struct rec_thread *t = rec->threads; t && waits; t = t->next) {
		if (t->order.waits && !being_replaced(t) && !rec_order_waits(t) && !rec_over(rec)) {
			if (n < AT_ONCE && !rec_order_held(t)) {
				n++;
				go_on(t, rec_order_on(t));
			}
			rec->order.more |= t->order.waits;
		}
		rec->order.waits |= t->order.waits;
	}
}

/* ---- the loop ---------------------------------------------------------------------------- */

void rec_loop(struct rec_recording *rec)
{
	while (any_left(rec)) {
		int status;
		bool lost;
		struct rec_thread *t = next_stop(rec, &status, &lost);
		if (lost) {
			kill_program(rec);
			break;
		}
		if (t && execs(status))
			t = rec_thread_exec(t);
		if (t)
			handle(t, status);
		if (t && t->state == REC_GONE)
			gone(t);
		next_turn(rec);
		rec_signals_pass_on(rec);
		if (rec_clock_ticked()) {
			dj_thread_stays(false); /* or who knows for how long */
			rec_clock_tick(rec);
			rec_idle_look(rec);
		}
	}
	dj_thread_stays(false);
}
