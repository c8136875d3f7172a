/*
 * The supervisor: starts the program under ptrace and stays with it. supervisor.h says what is
 * where.
 */
#include "recorder/supervisor.h"

#include "config.h"
#include "format/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- ends -------------------------------------------------------------------------------- */

void sup_end(struct tracee *t, int status)
{
	t->proc->ended = true;
	t->in_hand = false;
	t->proc->status = status;
}

void sup_cut(struct sup *s, const char *fmt, ...)
{
	if (s->cut || s->fatal)
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->err->text, sizeof(s->err->text), fmt, ap);
	va_end(ap);
	s->err->exit_status = 1;
	s->cut = true;
}

void sup_fatal(struct sup *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->err->text, sizeof(s->err->text), fmt, ap);
	va_end(ap);
	s->err->exit_status = 1;
	s->fatal = true;
}

/* ---- in hand and back --------------------------------------------------------------------- */

static unsigned long long *user_gpr(struct user_regs_struct *u, unsigned r)
{
	unsigned long long *const p[16] = { &u->rax, &u->rcx, &u->rdx, &u->rbx, &u->rsp, &u->rbp,
					    &u->rsi, &u->rdi, &u->r8,  &u->r9,	&u->r10, &u->r11,
					    &u->r12, &u->r13, &u->r14, &u->r15 };
	return p[r];
}

/* T_FLAGS: al is OF, ah is SF ZF - AF - PF - CF */
static unsigned long long saved_flags(struct tracee *t, unsigned long long eflags)
{
	uint64_t f = *tcb(t, T_FLAGS);
	eflags &= ~(unsigned long long)DJ_FLAGS_ARITH;
	eflags |= (f >> 8) & 0xd5;
	if (f & 1)
		eflags |= DJ_FLAG_OF;
	return eflags;
}

bool sup_take(struct tracee *t, const struct user_regs_struct *r, const struct tr_where *w)
{
	t->regs = *r;
	for (unsigned i = 0; i < 16; i++)
		if (w->spilled & 1u << i)
			*user_gpr(&t->regs, i) = *tcb(t, T_SLOT((int)i));
	if (w->flags == TR_FLAGS_SAVED)
		t->regs.eflags = saved_flags(t, t->regs.eflags);
	t->regs.eflags &= ~0x100ULL;
	t->regs.rip = w->pc;
	t->steps = *tcb(t, T_STEPS) + w->index;
	t->in_hand = true;
	t->proc->hand = t;
	return true;
}

void sup_import(struct tracee *t, uint64_t addr, unsigned size)
{
	uint8_t line[DJ_LINE];
	for (uint64_t at = addr & -(uint64_t)DJ_LINE; at < addr + size; at += DJ_LINE) {
		struct dj_record r = {
			.kind = DJ_REC_IMPORT, .steps = t->steps, .addr = at, .bytes = line
		};
		if (tracee_read(t->proc, at, line, sizeof(line)) != sizeof(line) ||
		    !tracee_write(t->proc, t->s + (uint32_t)at, line, sizeof(line)))
			return;
		ring_record(t, &r);
	}
}

void sup_digest(struct tracee *t, bool force)
{
	if (t->in_rep || (!force && t->steps - t->last_digest < t->sup->opt.digest_interval))
		return;
	struct dj_regs full;
	tracee_full_regs(t, &full);
	struct dj_record r = { .kind = DJ_REC_DIGEST,
			       .steps = t->steps,
			       .digest = dj_regs_digest(&full),
			       .mask = DJ_DIGEST_PARTS,
			       .regs = full };
	ring_record(t, &r);
	t->last_digest = t->steps;
}

struct tr_frag *sup_fragment(struct tracee *t, uint64_t pc)
{
	struct translator *tr = t->proc->tr;
	struct tr_frag *f;
	uint64_t at;
	uint8_t *ours;
	for (;;) {
		switch (tr_fragment(tr, pc, &f)) {
		case TR_FOUND:
			return f;
		case TR_NATIVE:
			return NULL;
		case TR_NO_ARENA:
			at = maps_new_arena(t, pc, TR_ARENA_SIZE, &ours);
			if (at)
				tr_add_arena(tr, at, ours);
			else
				tr_no_arena(tr);
			break;
		case TR_FULL: /* the only thread is in hand */
			tr_reclaim(tr, tr_epoch(tr));
			break;
		}
	}
}

void sup_enter(struct tracee *t)
{
	while (!t->proc->ended && !t->sup->fatal && !t->sup->cut) {
		*tcb(t, T_STEPS) = t->steps;
		if (t->n_pending) {
			signals_pending(t);
			continue;
		}
		sup_digest(t, false);
		t->in_rep = false;
		struct tr_frag *f = sup_fragment(t, t->regs.rip);
		if (t->sup->cut || t->sup->fatal)
			return;
		if (!f) {
			native_insn(t);
			continue;
		}
		struct user_regs_struct r = t->regs;
		*tcb(t, T_SLOT(DJ_R11)) = r.r11;
		r.rip = f->entry;
		r.gs_base = t->s;
		r.orig_rax = (unsigned long long)-1;
		t->in_hand = false;
		tracee_setregs(t, &r);
		sup_resume(t, 0);
		return;
	}
}

void sup_resume(struct tracee *t, int sig)
{
	ptrace(PTRACE_CONT, t->tid, NULL, (void *)(long)sig);
}

/* Address bits 48 and up are a copy of bit 47, else a branch there is refused (SDM vol.
 * 1, 3.3.7.1). With 57-bit addresses more is allowed: trying natively finds out. */
static bool canonical(uint64_t addr)
{
	return (uint64_t)((int64_t)(addr << 16) >> 16) == addr;
}

/* In hand at the target of an indirect branch: go back to before the branch. False if that cannot
 * be had. */
static bool undo_branch(struct tracee *t)
{
	uint64_t pc = tr_branch(t->proc->tr, (uint32_t)*tcb(t, T_BRANCH));
	uint8_t code[INSN_MAX];
	struct insn in;
	size_t got = pc ? tracee_read(t->proc, pc, code, sizeof(code)) : 0;
	if (!got || insn_decode(&in, code, got, pc) <= 0 ||
	    !(in.attr & (INSN_A_RET | INSN_A_INDIRECT)))
		return false;
	t->steps--;
	*tcb(t, T_STEPS) = t->steps;
	if (in.attr & INSN_A_RET) {
		t->regs.rsp -= 8 + (in.imm_size ? in.imm & 0xffff : 0);
	} else if (in.attr & INSN_A_CALL) {
		sup_import(t, t->regs.rsp, 8);
		t->regs.rsp += 8;
	}
	t->regs.rip = pc;
	return true;
}

static void new_image(struct tracee *t)
{
	t->proc->image_replaced = false;
	t->n_pending = 0;
	if (image_begin(t, true)) {
		t->sup->fatal = true;
		return;
	}
	t->in_hand = true;
}

void sup_trap(struct tracee *t, struct user_regs_struct *r)
{
	struct process *proc = t->proc;
	uint32_t runtime;
	struct tr_stop *stop = tr_stop_at(proc->tr, r->rip - 1, &runtime);
	t->stops++;
	if (runtime == STOP_RING_FULL) {
		ring_hand_over(t);
		if (ring_failed(t)) {
			t->sup->cut = true;
			return;
		}
		r->rip += 4;
		r->orig_rax = (unsigned long long)-1;
		tracee_setregs(t, r);
		if (t->n_pending ||
		    *tcb(t, T_STEPS) - t->last_digest >= t->sup->opt.digest_interval) {
			sup_step_to_boundary(t);
			if (t->in_hand)
				sup_enter(t);
			return;
		}
		sup_resume(t, 0);
		return;
	}
	struct tr_where w = { .flags = TR_FLAGS_HW, .spilled = TR_HOME_BIT };
	if (runtime == STOP_IBL_MISS) {
		w.pc = r->rcx;
		w.spilled = 3 | TR_HOME_BIT;
		w.flags = TR_FLAGS_SAVED;
		sup_take(t, r, &w);
		if (!canonical(w.pc) && undo_branch(t)) {
			native_insn(t); /* which faults */
			sup_enter(t);
			return;
		}
		struct tr_frag *f = sup_fragment(t, t->regs.rip);
		if (f)
			tr_add_indirect(proc->tr, f);
		sup_enter(t);
		return;
	}
	if (!stop) {
		sup_fatal(t->sup, "trap at %#llx in the cache, where no stop is",
			  (unsigned long long)r->rip);
		return;
	}
	w.pc = stop->pc;
	sup_take(t, r, &w);
	switch (stop->kind) {
	case TR_STOP_LINK:
	case TR_STOP_BRANCH:
		break;
	case TR_STOP_SYSCALL:
		syscalls_do(t);
		break;
	case TR_STOP_NATIVE:
		native_insn(t);
		break;
	case TR_STOP_CHANGED:
		maps_forget_code(proc, stop->pc & ~4095ULL, (stop->pc & ~4095ULL) + 8192);
		break;
	}
	if (proc->image_replaced)
		new_image(t);
	sup_enter(t);
}

/* ---- the clock: now and then what has been recorded is written out ------------------------- */

static volatile sig_atomic_t ticked;

static void on_alarm(int sig)
{
	(void)sig;
	ticked = 1;
}

static void set_clock(bool on)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval t = { { 0, 0 }, { 0, 0 } };
	if (on)
		t.it_interval.tv_usec = t.it_value.tv_usec = 250000;
	else
		sa.sa_handler = SIG_IGN;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
}

/* SIGTERM and SIGHUP to deja are meant for the program, too: pass them on. (Those of the terminal's
 * keys reach it by themselves.) */
static volatile pid_t forward_to;

static void on_termination(int sig)
{
	int saved = errno;
	if (forward_to > 0)
		kill(forward_to, sig);
	errno = saved;
}

/* A thread that computes without ever coming to the ring or to us is interrupted after a while, so
 * that its digests and its progress get into the trace. One in a system call is left alone: some
 * calls show that they were interrupted. */
static void tick(struct tracee *t)
{
	ticked = 0;
	if (t->s == 0 || *tcb(t, T_IN_SYSCALL))
		return;
	*tcb(t, T_LIMIT) = 0; /* the next ring record stops */
	if (t->stops == t->stops_at_tick)
		ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL);
	t->stops_at_tick = t->stops;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void dispatch(struct tracee *t, int status)
{
	struct process *proc = t->proc;
	if (!WIFSTOPPED(status)) {
		sup_end(t, status);
		return;
	}
	int event = status >> 16, sig = WSTOPSIG(status);
	if (event == PTRACE_EVENT_STOP) {
		if (sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU) {
			ptrace(PTRACE_LISTEN, t->tid, NULL, NULL);
			return;
		}
		struct user_regs_struct r;
		t->stops++;
		if (*tcb(t, T_STEPS) - t->last_digest >= t->sup->opt.digest_interval &&
		    !tracee_getregs(t, &r) && tr_in_cache(proc->tr, r.rip) &&
		    !*tcb(t, T_IN_SYSCALL)) {
			sup_step_to_boundary(t);
			if (t->in_hand) {
				ring_hand_over(t);
				sup_enter(t);
			}
			return;
		}
		sup_resume(t, 0);
		return;
	}
	if (event == PTRACE_EVENT_EXEC) { /* a vfork child's exec is not ours; this is */
		new_image(t);
		sup_enter(t);
		return;
	}
	if (event) {
		sup_resume(t, 0);
		return;
	}
	struct user_regs_struct r;
	if (tracee_getregs(t, &r))
		return; /* killed meanwhile: the end follows */
	if (sig == SIGTRAP && tr_in_cache(proc->tr, r.rip - 1)) {
		siginfo_t info = { 0 };
		ptrace(PTRACE_GETSIGINFO, t->tid, NULL, &info);
		if (info.si_code == SI_KERNEL) {
			sup_trap(t, &r);
			return;
		}
	}
	signals_stop(t, sig);
	if (proc->image_replaced) {
		new_image(t);
		sup_enter(t);
	}
}

static void run(struct tracee *t)
{
	int status;
	set_clock(true);
	sup_enter(t);
	while (!t->proc->ended && !t->sup->fatal && !t->sup->cut) {
		pid_t p = waitpid(t->tid, &status, __WALL);
		if (p < 0) {
			if (errno != EINTR) {
				sup_fatal(t->sup, "lost the program: %s", strerror(errno));
				break;
			}
			if (ticked)
				tick(t);
			continue;
		}
		dispatch(t, status);
		if (t->sup->fatal || t->sup->cut || t->proc->ended)
			break;
		if (ticked)
			tick(t);
	}
	set_clock(false);
}

/* ---- start ----------------------------------------------------------------------------------- */

struct child_report {
	int error;
	int where; /* 1 exec, 2 ptrace */
};

/* Signals that deja treats differently while it records; the program starts with them as they were.
 * A file-size limit shows as an error of the write, not as a signal. */
static const struct {
	int sig;
	void (*handler)(int);
} ours[] = {
	{ SIGINT, SIG_IGN },	    { SIGQUIT, SIG_IGN }, { SIGPIPE, SIG_IGN },
	{ SIGALRM, SIG_IGN },	    { SIGXFSZ, SIG_IGN }, { SIGTERM, on_termination },
	{ SIGHUP, on_termination },
};
#define N_OURS (sizeof(ours) / sizeof(*ours))

/* Fork; the child waits to be traced, then becomes the program. */
static int start(struct tracee *t, const char *file, char *const argv[], char *const envp[])
{
	int go[2], report[2];
	if (pipe2(go, O_CLOEXEC) || pipe2(report, O_CLOEXEC))
		return dj_fail_errno(t->sup->err, 1, "cannot make a pipe");
	pid_t pid = fork();
	if (pid < 0)
		return dj_fail_errno(t->sup->err, 1, "cannot fork");
	if (pid == 0) {
		char c;
		struct child_report rep = { 0, 1 };
		close(go[1]);
		for (size_t i = 0; i < N_OURS; i++)
			sigaction(ours[i].sig, &t->sup->inherited[ours[i].sig], NULL);
		if (read(go[0], &c, 1) == 1) {
			execve(file, argv, envp);
			rep.error = errno;
		} else {
			rep.where = 2;
		}
		(void)!write(report[1], &rep, sizeof(rep));
		_exit(127);
	}
	t->tid = t->proc->pid = pid;
	close(go[0]);
	close(report[1]);
	long opts = PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK |
		    PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
	int rc = 0;
	if (ptrace(PTRACE_SEIZE, t->tid, NULL, (void *)opts)) {
		rc = dj_fail(t->sup->err, 1,
			     "cannot trace a program here: ptrace: %s (a container without "
			     "SYS_PTRACE, a seccomp filter, or kernel.yama.ptrace_scope=3?)",
			     strerror(errno));
		kill(pid, SIGKILL);
		waitpid(t->tid, NULL, __WALL);
	} else {
		(void)!write(go[1], "x", 1);
		int status;
		for (;;) {
			if (tracee_wait(t, &status)) {
				rc = dj_fail_errno(t->sup->err, 1,
						   "lost the program before it began");
				break;
			}
			if (WIFSTOPPED(status)) {
				if (status >> 16 == PTRACE_EVENT_EXEC)
					break;
				ptrace(PTRACE_CONT, t->tid, NULL,
				       (void *)(long)(status >> 16 ? 0 : WSTOPSIG(status)));
				continue;
			}
			struct child_report rep = { 0, 0 };
			if (read(report[0], &rep, sizeof(rep)) == (ssize_t)sizeof(rep) && rep.error)
				rc = dj_fail(t->sup->err, rep.error == ENOENT ? 127 : 126, "%s: %s",
					     argv[0], strerror(rep.error));
			else
				rc = dj_fail(t->sup->err, 1, "%s ended before it began", argv[0]);
			break;
		}
	}
	close(go[1]);
	close(report[0]);
	return rc;
}

/* ---- what the trace says of machine and program -------------------------------------------------
 */

static ssize_t read_proc(pid_t pid, const char *name, void *buf, size_t size)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buf, size) : -1;
	if (fd >= 0)
		close(fd);
	return n;
}

static struct dj_writer *create_trace(struct tracee *t, char *const argv[], char *const envp[])
{
	struct process *proc = t->proc;
	char link[64], exe[4096] = "", cwd[4096] = "", machine[512], cpu[128], comm[64];
	uint8_t auxv[4096];
	struct utsname u;
	struct timespec now;
	uname(&u);
	snprintf(machine, sizeof(machine), "%s %s %s %s", u.sysname, u.release, u.machine,
		 u.nodename);
	dj_cpu_describe(cpu, sizeof(cpu));
	snprintf(link, sizeof(link), "/proc/%d/exe", proc->pid);
	ssize_t n = readlink(link, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = 0;
	if (!getcwd(cwd, sizeof(cwd)))
		cwd[0] = 0;
	ssize_t aux = read_proc(proc->pid, "auxv", auxv, sizeof(auxv));
	n = read_proc(proc->pid, "comm", comm, sizeof(comm) - 1);
	comm[n > 0 ? n : 0] = 0;
	comm[strcspn(comm, "\n")] = 0;
	clock_gettime(CLOCK_REALTIME, &now);
	struct dj_trace_meta meta = {
		.predict = t->sup->opt.predict,
		.shadow_bits = 32,
		.memory_model = 2,
		.digest_interval = t->sup->opt.digest_interval,
		.start_time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
		.pid = proc->pid,
		.page_size = (uint32_t)sysconf(_SC_PAGESIZE),
		.deja_version = PACKAGE_VERSION,
		.machine = machine,
		.cpu = cpu,
		.exe = exe,
		.cwd = cwd,
		.argv = (const char *const *)argv,
		.envp = (const char *const *)envp,
		.auxv = auxv,
		.auxv_len = aux > 0 ? (size_t)aux : 0,
	};
	struct dj_writer *w = dj_writer_create(t->sup->opt.output, &meta, t->sup->err);
	if (w && (!(proc->facts = dj_writer_process(w, proc->pid, NULL, t->sup->err)) ||
		  !(t->stream = dj_writer_thread(w, proc->facts, t->tid, comm, t->sup->err)))) {
		dj_writer_close(w, NULL, NULL);
		w = NULL;
	}
	return w;
}

/* ---- the whole
 * -------------------------------------------------------------------------------------- */

static void finish_trace(struct tracee *t)
{
	struct process *proc = t->proc;
	if (t->ring) {
		uint64_t steps = t->in_hand || proc->ended ? t->steps : *tcb(t, T_STEPS);
		if (steps < *tcb(t, T_STEPS))
			steps = *tcb(t, T_STEPS);
		uint64_t reached = ring_reached(t);
		if (steps < reached)
			steps = reached;
		struct dj_record r = { .steps = steps };
		if (proc->ended) {
			r.kind = DJ_REC_EXIT;
			r.status = proc->status;
		} else {
			r.kind = DJ_REC_END;
			r.name = t->sup->err->text;
		}
		*tcb(t, T_STEPS) = steps;
		ring_record(t, &r);
		struct dj_error err = { 0 };
		struct dj_error *keep = t->sup->err;
		if (proc->ended)
			t->sup->err = &err;
		int rc = ring_stop(t);
		t->sup->err = keep;
		if (rc && proc->ended) {
			*t->sup->err = err;
			proc->ended = false;
			t->sup->cut = true;
		}
		t->steps = steps;
	}
	if (t->sup->writer) {
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		struct dj_trace_end end = { .present = true,
					    .status = proc->ended ? proc->status : 0,
					    .steps = t->steps,
					    .end_time_ns = (int64_t)now.tv_sec * 1000000000 +
							   now.tv_nsec };
		struct dj_error err = { 0 };
		if (dj_writer_close(t->sup->writer, &end, &err) && proc->ended) {
			*t->sup->err = err;
			proc->ended = false;
			t->sup->cut = true;
		}
	}
}

static void free_process(struct process *proc)
{
	if (proc->mem >= 0)
		close(proc->mem);
	if (proc->memfd >= 0)
		close(proc->memfd);
	maps_free(proc);
	free(proc);
}

static void free_recording(struct sup *s)
{
	for (size_t i = 0; i < s->n_modules; i++) {
		munmap(s->modules[i].bytes, s->modules[i].size);
		free(s->modules[i].path);
	}
	free(s->modules);
	free(s);
}

int record_program(const char *file, char *const argv[], char *const envp[],
		   const struct record_options *opt, int *status, bool *cut, struct dj_error *err)
{
	struct sup *s = calloc(1, sizeof(*s));
	struct process *proc = calloc(1, sizeof(*proc));
	struct tracee *t = calloc(1, sizeof(*t));
	DJ_ASSERT(s && proc && t, "out of memory for a recording");
	memset(err, 0, sizeof(*err));
	s->opt = *opt;
	if (!s->opt.digest_interval)
		s->opt.digest_interval = RECORD_DIGEST_INTERVAL;
	s->err = err;
	s->argv = argv;
	proc->sup = t->sup = s;
	proc->mem = proc->memfd = -1;
	t->proc = proc;

	/* Terminal signals are meant for the program; it decides. */
	forward_to = 0;
	for (size_t i = 0; i < N_OURS; i++) {
		struct sigaction sa = { .sa_handler = ours[i].handler };
		sigaction(ours[i].sig, &sa, &s->inherited[ours[i].sig]);
	}

	int rc = start(t, file, argv, envp);
	if (!rc) {
		forward_to = proc->pid;
		proc->memfd = memfd_create("deja", MFD_CLOEXEC);
		if (proc->memfd < 0)
			rc = dj_fail_errno(err, 1, "cannot make the shared area");
		else if (!(s->writer = create_trace(t, argv, envp)))
			rc = -1;
		else if (image_begin(t, false))
			rc = -1;
		if (!rc && !s->cut && !proc->ended) {
			t->in_hand = true;
			run(t);
		}
	}
	if (!proc->ended && proc->pid > 0) {
		kill(proc->pid, SIGKILL);
		int st;
		while (waitpid(t->tid, &st, __WALL) > 0 && WIFSTOPPED(st))
			;
	}
	forward_to = 0;
	finish_trace(t);
	if (opt->verbose && proc->tr) {
		struct tr_stats st;
		tr_stats(proc->tr, &st);
		fprintf(stderr,
			"deja: %llu instructions, %llu stops, %llu executed natively, %llu "
			"fragments, "
			"%llu instructions translated into %llu bytes, %llu flushes\n",
			(unsigned long long)t->steps, (unsigned long long)t->stops,
			(unsigned long long)t->natives, (unsigned long long)st.fragments,
			(unsigned long long)st.instructions, (unsigned long long)st.code_bytes,
			(unsigned long long)st.flushes);
	}
	tr_free(proc->tr);
	for (size_t i = 0; i < N_OURS; i++)
		sigaction(ours[i].sig, &s->inherited[ours[i].sig], NULL);
	rc = rc || s->fatal ? -1 : 0;
	*cut = s->cut;
	*status = proc->status;
	free_process(proc);
	free_recording(s);
	free(t);
	return rc;
}
