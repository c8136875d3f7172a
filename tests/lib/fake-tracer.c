/*
 * The tracer that the recorder has when the machine takes the place of the kernel: what happens
 * next, of all that could, and what can be asked of a stopped thread. See fake-tracer.h.
 */
#include "tests/lib/fake-parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct fake fake;
unsigned fake_bound;

void fake_fail(const char *fmt, ...)
{
	va_list ap;
	if (fake.failure[0])
		return;
	va_start(ap, fmt);
	vsnprintf(fake.failure, sizeof(fake.failure), fmt, ap);
	va_end(ap);
}

struct fake_thread *fake_by_tid(pid_t tid)
{
	for (unsigned i = 0; i < fake.n_threads; i++)
		if (fake.threads[i].tid == tid)
			return &fake.threads[i];
	fake_fail("no thread %d", tid);
	return &fake.threads[0];
}

/* ---- what can happen next ---- */

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

/* The thread to which something happens next; NULL if nothing can happen any more, or `now`: if
 * nothing has happened yet. */
static struct fake_thread *choose(bool now)
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
	if (now && !(n && fake.at_once && fake.at_once(n)))
		return NULL;
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
	fake_queue(&fake.threads[o->thread], o->sig, NULL);
	return &fake.threads[o->thread];
}

/* What has become of a thread that is stopped already. */
static pid_t wait_for(struct fake_thread *m, int *status)
{
	if (m->running || !can_stop(m))
		return 0;
	*status = fake_run(m);
	return m->tid;
}

static pid_t fake_wait(struct rec_tracer *tr, pid_t tid, bool block, int *status)
{
	struct fake_thread *m;
	(void)tr;
	if (tid > 0)
		return wait_for(fake_by_tid(tid), status);
	if (!fake.frame)
		fake.frame = __builtin_frame_address(0);
	if (fake.frame != __builtin_frame_address(0))
		fake_fail("a handler waits");
	fake.waits++;
	do {
		m = choose(!block);
		if (!m)
			return block ? -1 : 0;
		uint64_t from = m->regs.rip;
		*status = fake_run(m);
		if (fake.verbose)
			printf("  thread %d at %#llx: %#x\n", m->number, (unsigned long long)from,
			       (unsigned)*status);
	} while (!*status);
	return m->tid;
}

/* ---- what the recorder asks for ---- */

static int fake_resume(struct rec_tracer *tr, pid_t tid, enum rec_resume how, int sig)
{
	struct fake_thread *m = fake_by_tid(tid);
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

/* Whether it steps through a system call and nothing else. */
static bool makes_call(const struct fake_thread *m, enum rec_resume how)
{
	return how == REC_STEP && (m->regs.rip == VDSO_CALL || m->regs.rip == RT_SYSCALL);
}

/* Not what could show where it may be, or hand it down. */
static int fake_resume_here(struct rec_tracer *tr, pid_t tid, enum rec_resume how, int sig)
{
	const struct fake_thread *m = fake_by_tid(tid);
	unsigned long long nr = m->regs.rax;
	if (makes_call(m, how) &&
	    (nr == SYS_fork || nr == SYS_vfork || nr == SYS_clone || nr == SYS_execve))
		fake_fail("thread %d makes call %llu bound to a processor", m->number, nr);
	for (unsigned i = 0; i < fake.n_threads; i++) {
		const struct fake_thread *o = &fake.threads[i];
		if (o->running && o->alive && !o->killed && !makes_call(o, o->how))
			fake_fail("thread %d is bound to a processor while another runs",
				  m->number);
	}
	fake_bound++;
	return fake_resume(tr, tid, how, sig);
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
	struct fake_thread *m = fake_by_tid(tid);
	(void)tr;
	*r = m->regs;
	return stopped(m) ? 0 : -1;
}

static int fake_set_regs(struct rec_tracer *tr, pid_t tid, const struct user_regs_struct *r)
{
	struct fake_thread *m = fake_by_tid(tid);
	(void)tr;
	m->regs = *r;
	return stopped(m) ? 0 : -1;
}

static int fake_get_fpregs(struct rec_tracer *tr, pid_t tid, struct user_fpregs_struct *f)
{
	(void)tr;
	memset(f, 0, sizeof(*f));
	return stopped(fake_by_tid(tid)) ? 0 : -1;
}

static int fake_set_fpregs(struct rec_tracer *tr, pid_t tid, const struct user_fpregs_struct *f)
{
	(void)tr;
	(void)f;
	return stopped(fake_by_tid(tid)) ? 0 : -1;
}

static ssize_t fake_get_xstate(struct rec_tracer *tr, pid_t tid, void *buf, size_t size)
{
	(void)tr;
	memset(buf, 0, size < 832 ? size : 832);
	return stopped(fake_by_tid(tid)) ? 832 : -1;
}

static int fake_get_siginfo(struct rec_tracer *tr, pid_t tid, siginfo_t *info)
{
	struct fake_thread *m = fake_by_tid(tid);
	(void)tr;
	*info = m->info;
	return stopped(m) ? 0 : -1;
}

static int fake_set_siginfo(struct rec_tracer *tr, pid_t tid, const siginfo_t *info)
{
	struct fake_thread *m = fake_by_tid(tid);
	(void)tr;
	m->info = *info;
	return stopped(m) ? 0 : -1;
}

static int fake_get_sigmask(struct rec_tracer *tr, pid_t tid, uint64_t *mask)
{
	struct fake_thread *m = fake_by_tid(tid);
	(void)tr;
	*mask = m->mask;
	return stopped(m) ? 0 : -1;
}

static int fake_set_sigmask(struct rec_tracer *tr, pid_t tid, uint64_t mask)
{
	struct fake_thread *m = fake_by_tid(tid);
	(void)tr;
	if (!m->child && (mask & m->own_mask) != m->own_mask)
		fake_fail("thread %d does not block what the program blocks", m->number);
	m->mask = mask;
	return stopped(m) ? 0 : -1;
}

static bool fake_signals_wait(struct rec_tracer *tr, pid_t tid)
{
	(void)tr;
	(void)tid;
	return false;
}

static int fake_event_message(struct rec_tracer *tr, pid_t tid, unsigned long *message)
{
	struct fake_thread *m = fake_by_tid(tid);
	(void)tr;
	*message = (unsigned long)m->message;
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

/* The instruction that an action begins with lies at its place, and where the last one has led to.
 */
static char program_byte(uint64_t addr)
{
	unsigned k;
	bool handler;
	const struct fake_thread *m = fake_owner(addr & ~1ULL, &k, &handler);
	if (handler || k >= m->n_script || (addr & 15) >= 4)
		return 0;
	return (m->script[k].kind == FAKE_NATIVE ? "\x66\x90"
		: m->script[k].kind == FAKE_REP	 ? "\xf3\xa4"
						 : "\x0f\x05")[addr & 1];
}

static ssize_t fake_read(struct rec_tracer *tr, int memory, uint64_t addr, void *buf, size_t len)
{
	(void)tr;
	(void)memory;
	memset(buf, 0, len);
	if (addr <= VDSO_CALL && addr + len >= VDSO_CALL + 2)
		memcpy((char *)buf + (VDSO_CALL - addr), "\x0f\x05", 2);
	for (size_t k = 0; k < len; k++)
		if (addr + k >= PROGRAM(0) && addr + k < PROGRAM(FAKE_THREADS))
			((char *)buf)[k] = program_byte(addr + k);
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

static bool fake_write_as_it(struct rec_tracer *tr, pid_t tid, uint64_t addr, const void *buf,
			     size_t len)
{
	(void)tr;
	(void)tid;
	(void)addr;
	(void)buf;
	(void)len;
	return true;
}

static FILE *fake_open_proc(struct rec_tracer *tr, pid_t pid, const char *name)
{
	char text[256];
	(void)tr;
	(void)pid;
	if (!strcmp(name, "maps"))
		snprintf(text, sizeof(text),
			 "%llx-%llx r-xp 00000000 00:00 0 \n"
			 "%llx-%llx r-xp 00000000 00:00 0 [vdso]\n",
			 PROGRAM(0), PROGRAM(FAKE_THREADS), VDSO, VDSO + 4096);
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
	struct fake_thread *m = fake_by_tid(pid);
	(void)tr;
	(void)fd;
	return m->memfd = memfd_create("fake", MFD_CLOEXEC);
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

/* ---- setting up ---- */

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.tracer = (struct rec_tracer){
		.wait = fake_wait,
		.resume = fake_resume,
		.resume_here = fake_resume_here,
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
		.signals_wait = fake_signals_wait,
		.event_message = fake_event_message,
		.open_memory = fake_open_memory,
		.close_memory = fake_close_memory,
		.read = fake_read,
		.write = fake_write,
		.write_as_it = fake_write_as_it,
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
	m->regs.rip = fake_entry(PROGRAM(m->number));
	m->regs.rbx = 0xb0b0u + (unsigned)m->number;
	return m;
}

struct rec_thread *fake_record(struct rec_process *proc, struct fake_thread *m)
{
	const struct dj_mapping programs = { .start = PROGRAM(0),
					     .end = PROGRAM(FAKE_THREADS),
					     .prot = PROT_READ | PROT_EXEC,
					     .module = -1,
					     .name = "" };
	struct rec_thread *t = rec_thread_new(proc, m->tid, REC_CACHE);
	t->own = mmap(NULL, AREA_THREAD, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	t->s = 0x600000000000ULL + AREA_CONTROL;
	rec_set_gs(t, FAKE_GS);
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
		dj_mappings_put(&proc->maps, &programs);
		proc->tables = mmap(NULL, AREA_TABLES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
	return t;
}
