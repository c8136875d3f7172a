/*
 * What a thread of the machine does when it runs: its script, system calls, signals, and the stops
 * that ptrace(2) makes of them.
 */
#include "recorder/area.h"
#include "tests/lib/fake-parts.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool in_mask(uint64_t mask, int sig)
{
	return mask >> (sig - 1) & 1;
}

void fake_queue(struct fake_thread *m, int sig, const siginfo_t *info)
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
		c->n_script = 1; /* its exit */
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

/* Of a call about memory, which is made for the recorder, or as if for it. */
static uint64_t memory_call(struct fake_thread *m, uint64_t nr, const uint64_t arg[6])
{
	switch (nr) {
	case SYS_mmap:
		if (fake.no_room && arg[1] == REC_AREA_THREAD)
			return (uint64_t)-ENOMEM;
		if (arg[1] == AREA_PAGE && arg[2] == (PROT_READ | PROT_EXEC)) {
			m->series = arg[0];
			m->series_off = (off_t)arg[5];
		}
		return arg[0] ? arg[0] : 0x71000000;
	case SYS_munmap:
		m->unmapped++;
		return 0;
	case SYS_mremap:
		return arg[4];
	default:
		return 0;
	}
}

/* The loop of series-code.S: the next call of the list, or its end. A signal may come between two.
 */
static int series(struct fake_thread *m)
{
	const size_t size = (size_t)(rec_series_ends - rec_series_begins);
	uint64_t call[SERIES_CALL / 8];
	uint64_t at = (uint64_t)m->series_off + (m->regs.rbx - m->series);
	if (m->how != REC_CONT)
		fake_fail("thread %d: calls in a row are made in a wrong way", m->number);
	if (pread(m->memfd, call, sizeof(call), (off_t)at) < (ssize_t)sizeof(*call)) {
		fake_fail("thread %d: there is no list of calls", m->number);
		return ends(m, EXITED);
	}
	if (call[0] >> SERIES_END_BIT) {
		m->regs.rip = m->series + size;
		return signal_stop(m, SIGTRAP, SI_KERNEL);
	}
	m->regs.rip = m->series + 1;
	m->regs.rax = memory_call(m, (uint32_t)call[0], call + 1);
	m->regs.r12 = 2 * m->regs.r12;
	m->regs.rbx += SERIES_CALL;
	m->running = true;
	return 0;
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
	case SYS_memfd_create:
		return end_of_step(m, 3);
	}
	if (own)
		m->expected = -1;
	const uint64_t arg[6] = { m->regs.rdi, m->regs.rsi, m->regs.rdx,
				  m->regs.r10, m->regs.r8,  m->regs.r9 };
	return end_of_step(m, memory_call(m, (uint64_t)nr, arg));
}

/* Translated code, up to and with the trap at its end. */
static int in_cache(struct fake_thread *m)
{
	uint64_t at = m->regs.rip & 15;
	unsigned k;
	bool handler;
	if (m->clone && m->tid != m->pid)
		return ends(m, EXITED);
	if (m->clone) { /* where its parent makes its next call */
		m->regs.rip = (m->regs.rip & ~15ULL) + 5;
		m->regs.rax = SYS_exit_group;
		m->expected = SYS_exit_group;
		return signal_stop(m, SIGTRAP, SI_KERNEL);
	}
	fake_owner(fake_pc(m->regs.rip), &k, &handler);
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
	else if (m->script[k].kind == FAKE_AWAY)
		return ends(m, EXITED);
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
	fake_owner(m->regs.rip, &k, &handler);
	if (handler || k >= m->n_script || m->script[k].kind == FAKE_CALL || k != m->done) {
		fake_fail("thread %d runs untranslated code at %#llx", m->number, m->regs.rip);
		return ends(m, EXITED);
	}
	if (m->how == REC_CONT)
		fake_fail("thread %d: an instruction at full speed", m->number);
	if (m->regs.gs_base != FAKE_GS)
		fake_fail("thread %d: gs base %#llx", m->number, m->regs.gs_base);
	performed(m);
	m->natives++;
	m->regs.rip += 2;
	m->regs.rcx = 0;
	/* the reason gets lost at times */
	return signal_stop(m, SIGTRAP, m->natives & 1 ? TRAP_BRKPT : TRAP_TRACE);
}

/* A string instruction in a place for what is executed apart, up to and with the trap behind it. */
static int apart(struct fake_thread *m)
{
	if (m->done >= m->n_script || m->script[m->done].kind != FAKE_REP)
		fake_fail("thread %d: action %u is executed apart", m->number, m->done);
	if (m->how != REC_CONT)
		fake_fail("thread %d: an instruction apart is stepped", m->number);
	if (m->regs.gs_base != FAKE_GS)
		fake_fail("thread %d: gs base %#llx", m->number, m->regs.gs_base);
	performed(m);
	m->natives++;
	m->regs.rip += 3;
	m->regs.rcx = 0;
	return signal_stop(m, SIGTRAP, SI_KERNEL);
}

/* The signal that the recorder let through takes effect. Returns a stop, or 0. */
static int take_signal(struct fake_thread *m)
{
	int sig = m->inject;
	m->inject = 0;
	if (in_mask(m->mask, sig)) {
		fake_queue(m, sig, &m->info);
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
int fake_run(struct fake_thread *m)
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
	if (m->series && rip - m->series < AREA_PAGE)
		return series(m);
	if (rip == RT_SYSCALL || rip == VDSO_CALL)
		return system_call(m);
	if (rip == RT_SYSCALL + 2) {
		m->regs.rip++;
		return signal_stop(m, SIGTRAP, SI_KERNEL);
	}
	if (rip >= APART(0) && rip < APART(TR_APART))
		return apart(m);
	return rip >= CACHE && rip < CACHE_END ? in_cache(m) : in_program(m);
}
