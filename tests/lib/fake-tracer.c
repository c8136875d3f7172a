#include "tests/lib/fake-tracer.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Addresses. Thread i's program lies at PROGRAM(i): action k begins at 16 * k, a system call ends
 * two bytes on, which leads to action k + 1; its signal handler, which only returns, lies at
 * HANDLER(i). The cache has 16 bytes for each of these places: its entry E, E + 2 in the midst of
 * it, and a trap at E + 4.
 */
#define PROGRAM(i) (0x10000000ULL + ((uint64_t)(i) << 16))
#define HANDLER(i) (PROGRAM(i) + 0x8000)
#define CACHE	   0x50000000ULL
#define CACHE_END  0x60000000ULL
#define RT_SYSCALL (CACHE_END - 0x1000)
#define VDSO	   0x70000000ULL
#define VDSO_CALL  (VDSO + 16)

struct fake fake;

void fake_fail(const char *fmt, ...)
{
	va_list ap;
	if (fake.failure[0])
		return;
	va_start(ap, fmt);
	vsnprintf(fake.failure, sizeof(fake.failure), fmt, ap);
	va_end(ap);
}

static struct fake_thread *by_tid(pid_t tid)
{
	for (unsigned i = 0; i < fake.n_threads; i++)
		if (fake.threads[i].tid == tid)
			return &fake.threads[i];
	fake_fail("no thread %d", tid);
	return &fake.threads[0];
}

/* ---- the translator ------------------------------------------------------------------ */

/* A fragment is its own entry: what tr_fragment() gives out is no pointer to anything. */
struct translator {
	bool arena;
	uint64_t va;
	uint8_t *ours;
};

const struct tr_policy tr_policies[TR_POLICIES];

static uint64_t entry_of(uint64_t pc)
{
	return CACHE + ((pc + 14 - PROGRAM(0)) & ~15ULL);
}

static uint64_t pc_of(uint64_t va)
{
	return PROGRAM(0) + ((va - CACHE) & ~15ULL);
}

/* What thread and action a program address belongs to. */
static struct fake_thread *owner(uint64_t pc, unsigned *action, bool *handler)
{
	struct fake_thread *m = &fake.threads[(pc - PROGRAM(0)) >> 16];
	*handler = (pc & 0xffff) >= 0x8000;
	*action = (unsigned)((pc & 0x7fff) + 14) / 16;
	return m;
}

struct translator *tr_new(const struct tr_ops *ops, const struct tr_config *config)
{
	(void)ops;
	(void)config;
	return calloc(1, sizeof(struct translator));
}

void tr_free(struct translator *tr)
{
	if (tr && tr->ours)
		munmap(tr->ours, TR_ARENA_SIZE);
	free(tr);
}

enum tr_found tr_fragment(struct translator *tr, uint64_t pc, struct tr_frag **f)
{
	if (!tr->arena)
		return TR_NO_ARENA;
	*f = (struct tr_frag *)(uintptr_t)entry_of(pc);
	return TR_FOUND;
}

uint64_t tr_entry(const struct tr_frag *f)
{
	return (uint64_t)(uintptr_t)f;
}

void tr_add_arena(struct translator *tr, uint64_t va, uint8_t *ours)
{
	if (tr->ours)
		munmap(tr->ours, TR_ARENA_SIZE);
	tr->arena = true;
	tr->va = va;
	tr->ours = ours;
}

bool tr_wants_arena(struct translator *tr, uint64_t pc)
{
	(void)pc;
	return !tr->arena;
}

void tr_drop_arena(struct translator *tr, uint64_t va)
{
	(void)va;
	tr->arena = false;
}

void tr_no_arena(struct translator *tr)
{
	(void)tr;
	fake_fail("no room for an arena");
}

void tr_add_indirect(struct translator *tr, struct tr_frag *f)
{
	(void)tr;
	(void)f;
}

uint64_t tr_call_data_out(const struct translator *tr, uint64_t va)
{
	(void)tr;
	(void)va;
	return 0;
}

uint64_t tr_string_singly(const struct translator *tr, uint64_t va)
{
	(void)tr;
	(void)va;
	return 0;
}

const struct tr_stop *tr_stop_at(const struct translator *tr, uint64_t va, uint32_t *runtime)
{
	static struct tr_stop stop;
	unsigned k;
	bool handler;
	(void)tr;
	*runtime = 0;
	stop.pc = pc_of(va);
	const struct fake_thread *m = owner(stop.pc, &k, &handler);
	bool call = handler || m->script[k].kind == FAKE_CALL;
	stop.kind = call ? TR_STOP_SYSCALL : TR_STOP_NATIVE;
	return &stop;
}

uint64_t tr_branch(const struct translator *tr, uint32_t number)
{
	(void)tr;
	(void)number;
	return 0;
}

bool tr_in_cache(const struct translator *tr, uint64_t va)
{
	(void)tr;
	return va >= CACHE && va < CACHE_END;
}

bool tr_locate(const struct translator *tr, uint64_t va, uint64_t rt_ret, struct tr_where *w)
{
	(void)rt_ret;
	memset(w, 0, sizeof(*w));
	if (!tr_in_cache(tr, va) || va >= RT_SYSCALL)
		return false;
	w->pc = pc_of(va);
	w->boundary = (va & 15) == 0;
	w->spilled = TR_HOME_BIT;
	return true;
}

void tr_sleep(struct translator *tr, uint64_t page)
{
	(void)tr;
	(void)page;
}

void tr_wake(struct translator *tr, uint64_t page, uint64_t changed)
{
	(void)tr;
	(void)page;
	(void)changed;
}

void tr_invalidate(struct translator *tr, uint64_t addr, uint64_t len)
{
	(void)tr;
	(void)addr;
	(void)len;
}

uint64_t tr_epoch(const struct translator *tr)
{
	(void)tr;
	return 0;
}

void tr_reclaim(struct translator *tr, uint64_t oldest)
{
	(void)tr;
	(void)oldest;
}

bool tr_waits(const struct translator *t, uint64_t va)
{
	(void)t, (void)va;
	return false;
}

uint64_t tr_syscall_insn(const struct translator *tr)
{
	return tr->arena ? RT_SYSCALL : 0;
}

bool tr_arena(const struct translator *tr, unsigned i, uint64_t *at, uint64_t *size)
{
	*at = tr->va;
	*size = TR_ARENA_SIZE;
	return i == 0 && tr->arena;
}

void tr_stats(const struct translator *tr, struct tr_stats *s)
{
	(void)tr;
	memset(s, 0, sizeof(*s));
}

/* ---- the machine --------------------------------------------------------------------- */

static bool in_mask(uint64_t mask, int sig)
{
	return mask >> (sig - 1) & 1;
}

static void queue(struct fake_thread *m, int sig, const siginfo_t *info)
{
	siginfo_t plain;
	memset(&plain, 0, sizeof(plain));
	plain.si_signo = sig;
	m->queue[m->n_queue++ % 64] = info ? *info : plain;
}

/* A stop for a signal; `ptrace's own` ones take no injection. */
static int signal_stop(struct fake_thread *m, int sig, int code)
{
	memset(&m->info, 0, sizeof(m->info));
	m->info.si_signo = sig;
	m->info.si_code = code;
	m->injectable = !(sig == SIGTRAP && code == SIGTRAP);
	return sig << 8 | 0x7f;
}

static int event(struct fake_thread *m, int number, int sig)
{
	m->injectable = false;
	return number << 16 | sig << 8 | 0x7f;
}

/* As wait(2) has it; 0, which here means that the thread runs on, is no end. */
#define EXITED 0x100

static int ends(struct fake_thread *m, int status)
{
	m->alive = false;
	return status;
}

static void check_registers(const struct fake_thread *m, const char *where)
{
	if (m->regs.rbx != 0xb0b0u + (unsigned)m->number && !m->child && !m->clone)
		fake_fail("thread %d: rbx is %#llx %s", m->number, m->regs.rbx, where);
}

/* The thread has performed its next action. */
static void performed(struct fake_thread *m)
{
	check_registers(m, "at an action");
	m->done++;
}

static void make_child(struct fake_thread *m, bool vfork)
{
	struct fake_thread *c = &fake.threads[fake.n_threads];
	memset(c, 0, sizeof(*c));
	c->number = (int)fake.n_threads++;
	c->pid = c->tid = 1000 + c->number;
	c->alive = c->traced = c->child = c->born = true;
	c->own_space = !vfork;
	if (fake.follows) {
		c->child = false;
		c->clone = true;
		c->own_mask = m->own_mask;
	}
	c->regs = m->regs;
	c->regs.rax = 0;
	c->mask = m->mask;
	c->expected = -1;
	if (vfork)
		m->vfork_child = c;
	m->message = c->tid;
}

static void make_thread(struct fake_thread *m)
{
	struct fake_thread *c = &fake.threads[fake.n_threads];
	memset(c, 0, sizeof(*c));
	c->number = (int)fake.n_threads++;
	c->tid = 1000 + c->number;
	c->pid = m->pid;
	c->alive = c->traced = c->clone = c->born = true;
	c->regs = m->regs;
	c->regs.rax = 0;
	c->mask = c->own_mask = m->own_mask;
	c->expected = -1;
	m->message = c->tid;
}

static int end_of_step(struct fake_thread *m, uint64_t rax)
{
	m->regs.rip += 2;
	m->regs.rax = rax;
	return signal_stop(m, SIGTRAP, TRAP_BRKPT);
}

static int system_call(struct fake_thread *m)
{
	long nr = (long)m->regs.rax;
	bool own = nr == m->expected; /* not made for the recorder */
	if (m->how != REC_STEP)
		fake_fail("thread %d: a system call at full speed", m->number);
	if (own) {
		if (nr != SYS_rt_sigreturn)
			performed(m);
		check_registers(m, "at a system call");
	}
	switch (nr) {
	case SYS_clone:
		make_thread(m);
		m->fork_event = PTRACE_EVENT_CLONE;
		m->running = true;
		return 0;
	case SYS_fork:
	case SYS_vfork:
		/* the child is there, and may stop, before its parent does */
		make_child(m, nr == SYS_vfork);
		m->fork_event = nr == SYS_fork ? PTRACE_EVENT_FORK : PTRACE_EVENT_VFORK;
		m->running = true;
		return 0;
	case SYS_execve:
		m->expected = -1;
		m->in_exec = true;
		m->regs.rax = 0;
		return event(m, PTRACE_EVENT_EXEC, SIGTRAP);
	case SYS_exit_group:
		return ends(m, EXITED);
	case SYS_rt_sigreturn:
		if (!own || !m->depth)
			fake_fail("thread %d: sigreturn out of place", m->number);
		m->expected = -1;
		m->depth--;
		m->regs = m->frames[m->depth].regs;
		m->mask = m->own_mask = m->frames[m->depth].mask;
		return signal_stop(m, SIGTRAP, TRAP_BRKPT);
	case SYS_mmap:
		m->expected = own ? -1 : m->expected;
		if (fake.no_room && m->regs.rsi == REC_AREA_THREAD)
			return end_of_step(m, (uint64_t)-ENOMEM);
		return end_of_step(m, m->regs.rdi ? m->regs.rdi : 0x71000000);
	case SYS_munmap:
		m->unmapped++;
		break;
	case SYS_memfd_create:
		return end_of_step(m, 3);
	case SYS_mremap:
		return end_of_step(m, m->regs.r8);
	}
	if (own)
		m->expected = -1;
	return end_of_step(m, 0);
}

/* Translated code, up to and with the trap at its end. */
static int in_cache(struct fake_thread *m)
{
	uint64_t at = m->regs.rip & 15;
	unsigned k;
	bool handler;
	if (m->clone)
		return ends(m, EXITED);
	owner(pc_of(m->regs.rip), &k, &handler);
	if (m->how == REC_CONT && m->mask != m->own_mask)
		fake_fail("thread %d: the mask in the cache is not the program's", m->number);
	if (m->how == REC_STEP && at < 4) {
		m->regs.rip += 2;
		return signal_stop(m, SIGTRAP, TRAP_TRACE);
	}
	m->regs.rip = (m->regs.rip & ~15ULL) + 5;
	if (handler)
		m->expected = SYS_rt_sigreturn;
	else if (k != m->done || k >= m->n_script)
		fake_fail("thread %d comes to action %u after %u", m->number, k, m->done);
	else if (m->script[k].kind == FAKE_CALL)
		m->expected = m->script[k].nr;
	if (m->expected >= 0)
		m->regs.rax = (uint64_t)m->expected;
	if (m->expected == SYS_clone)
		m->regs.rdi = CLONE_VM | CLONE_THREAD;
	m->regs.rcx = 1000;
	return signal_stop(m, SIGTRAP, SI_KERNEL);
}

static int in_program(struct fake_thread *m)
{
	unsigned k;
	bool handler;
	owner(m->regs.rip, &k, &handler);
	if (handler || k >= m->n_script || m->script[k].kind == FAKE_CALL || k != m->done) {
		fake_fail("thread %d runs untranslated code at %#llx", m->number, m->regs.rip);
		return ends(m, EXITED);
	}
	if (m->how == REC_CONT && m->breakpoint != m->regs.rip + 2)
		fake_fail("thread %d: an instruction at full speed", m->number);
	if (m->regs.gs_base != FAKE_GS)
		fake_fail("thread %d: gs base %#llx", m->number, m->regs.gs_base);
	performed(m);
	m->natives++;
	m->regs.rip += 2;
	m->regs.rcx = 0;
	return signal_stop(m, SIGTRAP, m->how == REC_CONT ? TRAP_HWBKPT : TRAP_TRACE);
}

/* The signal that the recorder let through takes effect. Returns a stop, or 0. */
static int take_signal(struct fake_thread *m)
{
	int sig = m->inject;
	m->inject = 0;
	if (in_mask(m->mask, sig)) {
		queue(m, sig, &m->info);
		return 0;
	}
	if (sig == SIGSTOP) {
		for (unsigned i = 0; i < fake.n_threads; i++)
			if (fake.threads[i].pid == m->pid)
				fake.threads[i].stop_due = true;
		return 0;
	}
	if (!in_mask(fake.caught, sig))
		return ends(m, sig);
	check_registers(m, "at a handler");
	if (m->mask != m->own_mask)
		fake_fail("thread %d: the mask at a handler is not the program's", m->number);
	if (m->how != REC_STEP || (m->regs.rip >= CACHE && m->regs.rip < CACHE_END))
		fake_fail("thread %d: a handler is entered from the cache", m->number);
	m->frames[m->depth].regs = m->regs;
	m->frames[m->depth++].mask = m->mask;
	m->mask |= 1ULL << (sig - 1);
	m->own_mask = m->mask;
	m->handled[sig]++;
	m->regs.rip = HANDLER(m->number);
	return signal_stop(m, SIGTRAP, SIGTRAP); /* not a signal's */
}

/* What a running thread does until it stops. */
static int run(struct fake_thread *m)
{
	m->running = false;
	if (m->killed)
		return ends(m, SIGKILL);
	if (m->born) {
		m->born = false;
		return event(m, PTRACE_EVENT_STOP, SIGTRAP);
	}
	if (m->listening) {
		m->listening = m->continued = false;
		for (unsigned i = 0; i < fake.n_threads; i++)
			if (fake.threads[i].pid == m->pid && fake.threads[i].listening)
				fake.threads[i].continued = true;
		return event(m, PTRACE_EVENT_STOP, SIGTRAP);
	}
	int status = m->inject ? take_signal(m) : 0;
	if (status)
		return status;
	if (!m->alive)
		return m->end;
	if (m->stop_due) {
		m->stop_due = false;
		m->stopped++;
		m->in_stop = true;
		return event(m, PTRACE_EVENT_STOP, SIGSTOP);
	}
	if (m->fork_event) {
		m->in_fork = true;
		status = event(m, m->fork_event, SIGTRAP);
		m->fork_event = 0;
		return status;
	}
	if (m->in_fork) {
		m->in_fork = false;
		m->expected = -1;
		return end_of_step(m, (uint64_t)m->message);
	}
	if (m->in_exec) {
		m->in_exec = false;
		if (m->how != REC_TO_SYSCALL)
			fake_fail("thread %d: exec's way out at full speed", m->number);
		m->regs.rip = PROGRAM(m->number) + 16 * m->done;
		m->regs.gs_base = 0;
		return signal_stop(m, SIGTRAP, SIGTRAP);
	}
	for (unsigned i = 0; i < m->n_queue; i++)
		if (!in_mask(m->mask, m->queue[i].si_signo)) {
			siginfo_t info = m->queue[i];
			memmove(m->queue + i, m->queue + i + 1,
				(--m->n_queue - i) * sizeof(*m->queue));
			if (m->regs.rip >= CACHE && m->regs.rip < RT_SYSCALL &&
			    !(m->regs.rip & 15) && (fake.waits & 1))
				m->regs.rip += 2;
			status = signal_stop(m, info.si_signo, 0);
			m->info = info;
			return status;
		}
	uint64_t rip = m->regs.rip;
	if (rip == RT_SYSCALL || rip == VDSO_CALL)
		return system_call(m);
	if (rip == RT_SYSCALL + 2) {
		m->regs.rip++;
		return signal_stop(m, SIGTRAP, SI_KERNEL);
	}
	return rip >= CACHE && rip < CACHE_END ? in_cache(m) : in_program(m);
}

/* ---- what can happen next --------------------------------------------------------------- */

static bool whole_process_listens(pid_t pid)
{
	for (unsigned i = 0; i < fake.n_threads; i++)
		if (fake.threads[i].pid == pid && fake.threads[i].alive &&
		    !fake.threads[i].listening)
			return false;
	return true;
}

/* A vfork child, let go, execs as soon as another thread of the test has ended. */
static bool sleeps(const struct fake_thread *m)
{
	const struct fake_thread *c = m->vfork_child;
	if (!m->in_fork || !c || !c->alive)
		return false;
	return c->traced || (fake.vfork_needs >= 0 && fake.threads[fake.vfork_needs].alive);
}

static bool can_stop(const struct fake_thread *m)
{
	if (!m->alive || !m->traced)
		return false;
	if (m->killed || m->born)
		return true;
	if (m->listening)
		return m->continued || whole_process_listens(m->pid);
	return m->running && !sleeps(m);
}

/* The thread to which something happens next; NULL if nothing can happen any more. */
static struct fake_thread *choose(void)
{
	unsigned options[FAKE_THREADS + 16], n = 0;
	for (unsigned i = 0; i < fake.n_threads; i++)
		if (can_stop(&fake.threads[i]))
			options[n++] = i;
	for (unsigned i = 0; i < fake.n_outside; i++) {
		const struct fake_thread *to = &fake.threads[fake.outside[i].thread];
		if (!fake.outside[i].fired && to->alive && to->running && !sleeps(to))
			options[n++] = FAKE_THREADS + i;
	}
	if (!n) {
		for (unsigned i = 0; i < fake.n_threads; i++)
			if (fake.threads[i].alive && fake.threads[i].traced)
				fake_fail("thread %u waits for ever (%s)", i,
					  fake.threads[i].running ? "running" : "stopped");
		errno = ECHILD;
		return NULL;
	}
	unsigned what = options[fake.pick(n)];
	if (what < FAKE_THREADS)
		return &fake.threads[what];
	struct fake_outside *o = &fake.outside[what - FAKE_THREADS];
	o->fired = true;
	queue(&fake.threads[o->thread], o->sig, NULL);
	return &fake.threads[o->thread];
}

static pid_t fake_wait(struct rec_tracer *tr, int *status)
{
	struct fake_thread *m;
	(void)tr;
	if (!fake.frame)
		fake.frame = __builtin_frame_address(0);
	if (fake.frame != __builtin_frame_address(0))
		fake_fail("a handler waits");
	fake.waits++;
	do {
		m = choose();
		if (!m)
			return -1;
		uint64_t from = m->regs.rip;
		*status = run(m);
		if (fake.verbose)
			printf("  thread %d at %#llx: %#x\n", m->number, (unsigned long long)from,
			       (unsigned)*status);
	} while (!*status);
	return m->tid;
}

static int fake_resume(struct rec_tracer *tr, pid_t tid, enum rec_resume how, int sig)
{
	struct fake_thread *m = by_tid(tid);
	(void)tr;
	if (!m->alive || m->killed) {
		errno = ESRCH;
		return -1;
	}
	if (m->running)
		fake_fail("thread %d is resumed while it runs", m->number);
	if (sig && !m->injectable)
		fake_fail("thread %d: signal %d is injected where the kernel drops it", m->number,
			  sig);
	if (m->in_stop && how != REC_LISTEN)
		fake_fail("thread %d: a stop by job control is cancelled", m->number);
	m->in_stop = false;
	switch (how) {
	case REC_LISTEN:
		m->listening = true;
		return 0;
	case REC_DETACH:
		m->traced = false;
		m->detached++;
		return 0;
	default:
		m->how = how;
		m->inject = sig;
		m->running = true;
		if (fake.verbose)
			printf("  thread %d goes on at %#llx: %u, signal %d\n", m->number,
			       m->regs.rip, how, sig);
		return 0;
	}
}

static int fake_interrupt(struct rec_tracer *tr, pid_t tid)
{
	(void)tr;
	(void)tid;
	return 0;
}

static int fake_kill(struct rec_tracer *tr, pid_t pid)
{
	(void)tr;
	for (unsigned i = 0; i < fake.n_threads; i++)
		if (fake.threads[i].pid == pid)
			fake.threads[i].killed = true;
	return 0;
}

static bool stopped(struct fake_thread *m)
{
	if (m->running)
		fake_fail("thread %d is looked at while it runs", m->number);
	errno = ESRCH;
	return m->alive && !m->killed;
}

static int fake_get_regs(struct rec_tracer *tr, pid_t tid, struct user_regs_struct *r)
{
	struct fake_thread *m = by_tid(tid);
	(void)tr;
	*r = m->regs;
	return stopped(m) ? 0 : -1;
}

static int fake_set_regs(struct rec_tracer *tr, pid_t tid, const struct user_regs_struct *r)
{
	struct fake_thread *m = by_tid(tid);
	(void)tr;
	m->regs = *r;
	return stopped(m) ? 0 : -1;
}

static int fake_get_fpregs(struct rec_tracer *tr, pid_t tid, struct user_fpregs_struct *f)
{
	(void)tr;
	memset(f, 0, sizeof(*f));
	return stopped(by_tid(tid)) ? 0 : -1;
}

static int fake_set_fpregs(struct rec_tracer *tr, pid_t tid, const struct user_fpregs_struct *f)
{
	(void)tr;
	(void)f;
	return stopped(by_tid(tid)) ? 0 : -1;
}

static ssize_t fake_get_xstate(struct rec_tracer *tr, pid_t tid, void *buf, size_t size)
{
	(void)tr;
	memset(buf, 0, size < 832 ? size : 832);
	return stopped(by_tid(tid)) ? 832 : -1;
}

static int fake_get_siginfo(struct rec_tracer *tr, pid_t tid, siginfo_t *info)
{
	struct fake_thread *m = by_tid(tid);
	(void)tr;
	*info = m->info;
	return stopped(m) ? 0 : -1;
}

static int fake_set_siginfo(struct rec_tracer *tr, pid_t tid, const siginfo_t *info)
{
	struct fake_thread *m = by_tid(tid);
	(void)tr;
	m->info = *info;
	return stopped(m) ? 0 : -1;
}

static int fake_get_sigmask(struct rec_tracer *tr, pid_t tid, uint64_t *mask)
{
	struct fake_thread *m = by_tid(tid);
	(void)tr;
	*mask = m->mask;
	return stopped(m) ? 0 : -1;
}

static int fake_set_sigmask(struct rec_tracer *tr, pid_t tid, uint64_t mask)
{
	struct fake_thread *m = by_tid(tid);
	(void)tr;
	if (!m->child && (mask & m->own_mask) != m->own_mask)
		fake_fail("thread %d does not block what the program blocks", m->number);
	m->mask = mask;
	return stopped(m) ? 0 : -1;
}

static int fake_event_message(struct rec_tracer *tr, pid_t tid, unsigned long *message)
{
	struct fake_thread *m = by_tid(tid);
	(void)tr;
	*message = (unsigned long)m->message;
	return stopped(m) ? 0 : -1;
}

static int fake_set_breakpoint(struct rec_tracer *tr, pid_t tid, uint64_t addr)
{
	struct fake_thread *m = by_tid(tid);
	(void)tr;
	m->breakpoint = addr;
	return stopped(m) ? 0 : -1;
}

static int fake_open_memory(struct rec_tracer *tr, pid_t pid)
{
	(void)tr;
	return pid;
}

static void fake_close_memory(struct rec_tracer *tr, int memory)
{
	(void)tr;
	(void)memory;
}

static ssize_t fake_read(struct rec_tracer *tr, int memory, uint64_t addr, void *buf, size_t len)
{
	(void)tr;
	(void)memory;
	memset(buf, 0, len);
	if (addr <= VDSO_CALL && addr + len >= VDSO_CALL + 2)
		memcpy((char *)buf + (VDSO_CALL - addr), "\x0f\x05", 2);
	if (addr >= PROGRAM(0) && addr < PROGRAM(FAKE_THREADS) && len >= 2) {
		unsigned k;
		bool handler;
		const struct fake_thread *m = owner(addr, &k, &handler);
		if (!handler && k < m->n_script)
			memcpy(buf,
			       m->script[k].kind == FAKE_NATIVE ? "\x66\x90"
			       : m->script[k].kind == FAKE_REP	? "\xf3\xa4"
								: "\x0f\x05",
			       2);
	}
	return (ssize_t)len;
}

static ssize_t fake_write(struct rec_tracer *tr, int memory, uint64_t addr, const void *buf,
			  size_t len)
{
	(void)tr;
	(void)memory;
	(void)addr;
	(void)buf;
	return (ssize_t)len;
}

static FILE *fake_open_proc(struct rec_tracer *tr, pid_t pid, const char *name)
{
	char text[256];
	(void)tr;
	(void)pid;
	if (!strcmp(name, "maps"))
		snprintf(text, sizeof(text), "%llx-%llx r-xp 00000000 00:00 0 [vdso]\n", VDSO,
			 VDSO + 4096);
	else
		snprintf(text, sizeof(text), "SigIgn:\t%016x\nSigCgt:\t%016llx\n", 0,
			 (unsigned long long)fake.caught);
	FILE *f = fmemopen(NULL, strlen(text) + 1, "w+");
	if (f) {
		fputs(text, f);
		rewind(f);
	}
	return f;
}

static int fake_take_file(struct rec_tracer *tr, pid_t pid, int fd)
{
	(void)tr;
	(void)pid;
	(void)fd;
	return memfd_create("fake", MFD_CLOEXEC);
}

static int fake_limit(struct rec_tracer *tr, pid_t pid, int resource, const struct rlimit *to,
		      struct rlimit *was)
{
	(void)tr;
	(void)pid;
	(void)resource;
	if (to)
		fake_fail("a limit is changed that is none");
	if (was)
		was->rlim_cur = was->rlim_max = RLIM_INFINITY;
	return 0;
}

/* ---- setting up ---------------------------------------------------------------------------- */

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.tracer = (struct rec_tracer){
		.wait = fake_wait,
		.resume = fake_resume,
		.interrupt = fake_interrupt,
		.kill = fake_kill,
		.get_regs = fake_get_regs,
		.set_regs = fake_set_regs,
		.get_fpregs = fake_get_fpregs,
		.set_fpregs = fake_set_fpregs,
		.get_xstate = fake_get_xstate,
		.get_siginfo = fake_get_siginfo,
		.set_siginfo = fake_set_siginfo,
		.get_sigmask = fake_get_sigmask,
		.set_sigmask = fake_set_sigmask,
		.event_message = fake_event_message,
		.set_breakpoint = fake_set_breakpoint,
		.open_memory = fake_open_memory,
		.close_memory = fake_close_memory,
		.read = fake_read,
		.write = fake_write,
		.open_proc = fake_open_proc,
		.take_file = fake_take_file,
		.limit = fake_limit,
	};
	fake.vfork_needs = -1;
}

struct fake_thread *fake_thread(pid_t pid, const struct fake_action *script, unsigned n)
{
	struct fake_thread *m = &fake.threads[fake.n_threads];
	m->number = (int)fake.n_threads++;
	m->tid = 1000 + m->number;
	m->pid = pid ? pid : m->tid;
	m->script = script;
	m->n_script = n;
	m->alive = m->traced = m->running = true;
	m->how = REC_CONT;
	m->expected = -1;
	m->regs.rip = entry_of(PROGRAM(m->number));
	m->regs.rbx = 0xb0b0u + (unsigned)m->number;
	return m;
}

struct rec_thread *fake_record(struct rec_process *proc, struct fake_thread *m)
{
	struct rec_thread *t = rec_thread_new(proc, m->tid, REC_CACHE);
	t->own = mmap(NULL, AREA_THREAD, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	t->s = 0x600000000000ULL + AREA_CONTROL;
	*rec_tcb(t, T_GSBASE) = FAKE_GS;
	proc->area_at = t->s - AREA_CONTROL;
	proc->n_threads += proc->tr != NULL;
	if (!proc->tr) {
		struct tr_config config = { 0 };
		struct tr_ops ops = { 0 };
		proc->tr = tr_new(&ops, &config);
		proc->mem = proc->pid;
		proc->vdso_syscall = VDSO_CALL;
		proc->memfd = memfd_create("fake", MFD_CLOEXEC);
		for (int i = 0; i < REC_LIMITS; i++)
			proc->limits[i] = proc->kernel_limits[i] =
				(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
		proc->limits_known = true;
		proc->tables = mmap(NULL, AREA_TABLES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
	return t;
}
