/*
 * The supervisor: starts the program under ptrace and stays with it. supervisor.h says what is where.
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

void sup_end(struct sup *s, int status)
{
	s->ended = true;
	s->in_hand = false;
	s->status = status;
}

void sup_cut(struct sup *s, const char *fmt, ...)
{
	if (s->cut || s->fatal)
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->err->text, sizeof s->err->text, fmt, ap);
	va_end(ap);
	s->err->exit_status = 1;
	s->cut = true;
}

void sup_fatal(struct sup *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->err->text, sizeof s->err->text, fmt, ap);
	va_end(ap);
	s->err->exit_status = 1;
	s->fatal = true;
}

/* ---- in hand and back --------------------------------------------------------------------- */

static unsigned long long *user_gpr(struct user_regs_struct *u, unsigned r)
{
	unsigned long long *const p[16] = {&u->rax, &u->rcx, &u->rdx, &u->rbx, &u->rsp, &u->rbp, &u->rsi, &u->rdi,
					   &u->r8, &u->r9, &u->r10, &u->r11, &u->r12, &u->r13, &u->r14, &u->r15};
	return p[r];
}

/* T_FLAGS: al is OF, ah is SF ZF - AF - PF - CF */
static unsigned long long saved_flags(struct sup *s, unsigned long long eflags)
{
	uint64_t f = *tcb(s, T_FLAGS);
	eflags &= ~(unsigned long long)DJ_FLAGS_ARITH;
	eflags |= (f >> 8) & 0xd5;
	if (f & 1)
		eflags |= DJ_FLAG_OF;
	return eflags;
}

bool sup_take(struct sup *s, const struct user_regs_struct *r, const struct tr_where *w)
{
	s->regs = *r;
	for (unsigned i = 0; i < 16; i++)
		if (w->spilled & 1u << i)
			*user_gpr(&s->regs, i) = *tcb(s, T_SLOT((int)i));
	if (w->flags == FLAGS_SAVED)
		s->regs.eflags = saved_flags(s, s->regs.eflags);
	s->regs.eflags &= ~0x100ULL;
	s->regs.rip = w->pc;
	s->steps = *tcb(s, T_STEPS) + w->index;
	s->in_hand = true;
	return true;
}

void sup_import(struct sup *s, uint64_t addr, unsigned size)
{
	uint8_t line[DJ_LINE];
	for (uint64_t at = addr & -(uint64_t)DJ_LINE; at < addr + size; at += DJ_LINE) {
		struct dj_record r = {.kind = DJ_REC_IMPORT, .steps = s->steps, .addr = at, .bytes = line};
		if (tracee_read(s, at, line, sizeof line) != sizeof line ||
		    !tracee_write(s, s->s + (uint32_t)at, line, sizeof line))
			return;
		ring_record(s, &r);
	}
}

void sup_digest(struct sup *s, bool force)
{
	if (s->in_rep || (!force && s->steps - s->last_digest < s->opt.digest_interval))
		return;
	struct dj_regs full;
	tracee_full_regs(s, &full);
	struct dj_record r = {.kind = DJ_REC_DIGEST, .steps = s->steps, .digest = dj_regs_digest(&full),
			      .mask = DJ_DIGEST_PARTS, .regs = full};
	ring_record(s, &r);
	s->last_digest = s->steps;
}

void sup_enter(struct sup *s)
{
	while (!s->ended && !s->fatal && !s->cut) {
		*tcb(s, T_STEPS) = s->steps;
		if (s->n_pending) {
			signals_pending(s);
			continue;
		}
		sup_digest(s, false);
		s->in_rep = false;
		struct frag *f = tr_fragment(s->tr, s->regs.rip);
		if (s->cut || s->fatal)
			return;
		if (!f) {
			native_insn(s);
			continue;
		}
		struct user_regs_struct r = s->regs;
		*tcb(s, T_SLOT(DJ_R11)) = r.r11;
		r.rip = f->entry;
		r.gs_base = s->s;
		r.orig_rax = (unsigned long long)-1;
		s->in_hand = false;
		tracee_setregs(s, &r);
		sup_resume(s, 0);
		return;
	}
}

void sup_resume(struct sup *s, int sig)
{
	ptrace(PTRACE_CONT, s->pid, NULL, (void *)(long)sig);
}

/* Address bits 48 and up are a copy of bit 47, else a branch there is refused (SDM vol. 1, 3.3.7.1). With
 * 57-bit addresses more is allowed: trying natively finds out. */
static bool canonical(uint64_t addr)
{
	return (uint64_t)((int64_t)(addr << 16) >> 16) == addr;
}

/* In hand at the target of an indirect branch: go back to before the branch. False if that cannot be had. */
static bool undo_branch(struct sup *s)
{
	uint64_t pc = tr_branch(s->tr, (uint32_t)*tcb(s, T_BRANCH));
	uint8_t code[INSN_MAX];
	struct insn in;
	size_t got = pc ? tracee_read(s, pc, code, sizeof code) : 0;
	if (!got || insn_decode(&in, code, got, pc) <= 0 || !(in.attr & (INSN_A_RET | INSN_A_INDIRECT)))
		return false;
	s->steps--;
	*tcb(s, T_STEPS) = s->steps;
	if (in.attr & INSN_A_RET) {
		s->regs.rsp -= 8 + (in.imm_size ? in.imm & 0xffff : 0);
	} else if (in.attr & INSN_A_CALL) {
		sup_import(s, s->regs.rsp, 8);
		s->regs.rsp += 8;
	}
	s->regs.rip = pc;
	return true;
}

static void new_image(struct sup *s)
{
	s->image_replaced = false;
	s->n_pending = 0;
	if (image_begin(s, true)) {
		s->fatal = true;
		return;
	}
	s->in_hand = true;
}

void sup_trap(struct sup *s, struct user_regs_struct *r)
{
	uint32_t runtime;
	struct stop *stop = tr_stop_at(s->tr, r->rip - 1, &runtime);
	s->stops++;
	if (runtime == STOP_RING_FULL) {
		ring_hand_over(s);
		if (ring_failed(s)) {
			s->cut = true;
			return;
		}
		r->rip += 4;
		r->orig_rax = (unsigned long long)-1;
		tracee_setregs(s, r);
		if (s->n_pending || *tcb(s, T_STEPS) - s->last_digest >= s->opt.digest_interval) {
			sup_step_to_boundary(s);
			if (s->in_hand)
				sup_enter(s);
			return;
		}
		sup_resume(s, 0);
		return;
	}
	struct tr_where w = {.flags = FLAGS_HW, .spilled = TR_HOME_BIT};
	if (runtime == STOP_IBL_MISS) {
		w.pc = r->rcx;
		w.spilled = 3 | TR_HOME_BIT;
		w.flags = FLAGS_SAVED;
		sup_take(s, r, &w);
		if (!canonical(w.pc) && undo_branch(s)) {
			native_insn(s); /* which faults */
			sup_enter(s);
			return;
		}
		struct frag *f = tr_fragment(s->tr, s->regs.rip);
		if (f)
			tr_add_indirect(s->tr, f);
		sup_enter(s);
		return;
	}
	if (!stop) {
		sup_fatal(s, "trap at %#llx in the cache, where no stop is", (unsigned long long)r->rip);
		return;
	}
	w.pc = stop->pc;
	sup_take(s, r, &w);
	switch (stop->kind) {
	case STOP_LINK:
	case STOP_BRANCH:
		break;
	case STOP_SYSCALL:
		syscalls_do(s);
		break;
	case STOP_NATIVE:
		native_insn(s);
		break;
	case STOP_CHANGED:
		maps_forget_code(s, stop->pc & ~4095ULL, (stop->pc & ~4095ULL) + 8192);
		break;
	}
	if (s->image_replaced)
		new_image(s);
	sup_enter(s);
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
	struct sigaction sa = {.sa_handler = on_alarm};
	struct itimerval t = {{0, 0}, {0, 0}};
	if (on)
		t.it_interval.tv_usec = t.it_value.tv_usec = 250000;
	else
		sa.sa_handler = SIG_IGN;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
}

/* SIGTERM and SIGHUP to deja are meant for the program, too: pass them on. (Those of the terminal's keys
 * reach it by themselves.) */
static volatile pid_t forward_to;

static void on_termination(int sig)
{
	int saved = errno;
	if (forward_to > 0)
		kill(forward_to, sig);
	errno = saved;
}

/* A thread that computes without ever coming to the ring or to us is interrupted after a while, so that
 * its digests and its progress get into the trace. One in a system call is left alone: some calls
 * show that they were interrupted. */
static void tick(struct sup *s)
{
	static uint64_t last_stops;
	ticked = 0;
	if (s->s == 0 || *tcb(s, T_IN_SYSCALL))
		return;
	*tcb(s, T_LIMIT) = 0; /* the next ring record stops */
	if (s->stops == last_stops)
		ptrace(PTRACE_INTERRUPT, s->pid, NULL, NULL);
	last_stops = s->stops;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void dispatch(struct sup *s, int status)
{
	if (!WIFSTOPPED(status)) {
		sup_end(s, status);
		return;
	}
	int event = status >> 16, sig = WSTOPSIG(status);
	if (event == PTRACE_EVENT_STOP) {
		if (sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU) {
			ptrace(PTRACE_LISTEN, s->pid, NULL, NULL);
			return;
		}
		struct user_regs_struct r;
		s->stops++;
		if (*tcb(s, T_STEPS) - s->last_digest >= s->opt.digest_interval && !tracee_getregs(s, &r) &&
		    tr_in_cache(s->tr, r.rip) && !*tcb(s, T_IN_SYSCALL)) {
			sup_step_to_boundary(s);
			if (s->in_hand) {
				ring_hand_over(s);
				sup_enter(s);
			}
			return;
		}
		sup_resume(s, 0);
		return;
	}
	if (event == PTRACE_EVENT_EXEC) { /* a vfork child's exec is not ours; this is */
		new_image(s);
		sup_enter(s);
		return;
	}
	if (event) {
		sup_resume(s, 0);
		return;
	}
	struct user_regs_struct r;
	if (tracee_getregs(s, &r))
		return; /* killed meanwhile: the end follows */
	if (sig == SIGTRAP && tr_in_cache(s->tr, r.rip - 1)) {
		siginfo_t info = {0};
		ptrace(PTRACE_GETSIGINFO, s->pid, NULL, &info);
		if (info.si_code == SI_KERNEL) {
			sup_trap(s, &r);
			return;
		}
	}
	signals_stop(s, sig);
	if (s->image_replaced) {
		new_image(s);
		sup_enter(s);
	}
}

static void run(struct sup *s)
{
	int status;
	set_clock(true);
	sup_enter(s);
	while (!s->ended && !s->fatal && !s->cut) {
		pid_t p = waitpid(s->pid, &status, __WALL);
		if (p < 0) {
			if (errno != EINTR) {
				sup_fatal(s, "lost the program: %s", strerror(errno));
				break;
			}
			if (ticked)
				tick(s);
			continue;
		}
		dispatch(s, status);
		if (s->fatal || s->cut || s->ended)
			break;
		if (ticked)
			tick(s);
	}
	set_clock(false);
}

/* ---- start ----------------------------------------------------------------------------------- */

struct child_report {
	int error;
	int where; /* 1 exec, 2 ptrace */
};

/* Signals that deja treats differently while it records; the program starts with them as they were. A
 * file-size limit shows as an error of the write, not as a signal. */
static const struct { int sig; void (*handler)(int); } ours[] = {
	{SIGINT, SIG_IGN}, {SIGQUIT, SIG_IGN}, {SIGPIPE, SIG_IGN}, {SIGALRM, SIG_IGN}, {SIGXFSZ, SIG_IGN},
	{SIGTERM, on_termination}, {SIGHUP, on_termination},
};
#define N_OURS (sizeof ours / sizeof *ours)

/* Fork; the child waits to be traced, then becomes the program. */
static int start(struct sup *s, const char *file, char *const argv[], char *const envp[])
{
	int go[2], report[2];
	if (pipe2(go, O_CLOEXEC) || pipe2(report, O_CLOEXEC))
		return dj_fail_errno(s->err, 1, "cannot make a pipe");
	s->pid = fork();
	if (s->pid < 0)
		return dj_fail_errno(s->err, 1, "cannot fork");
	if (s->pid == 0) {
		char c;
		struct child_report rep = {0, 1};
		close(go[1]);
		for (size_t i = 0; i < N_OURS; i++)
			sigaction(ours[i].sig, &s->inherited[ours[i].sig], NULL);
		if (read(go[0], &c, 1) == 1) {
			execve(file, argv, envp);
			rep.error = errno;
		} else {
			rep.where = 2;
		}
		(void)!write(report[1], &rep, sizeof rep);
		_exit(127);
	}
	close(go[0]);
	close(report[1]);
	long opts = PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
		    PTRACE_O_TRACECLONE;
	int rc = 0;
	if (ptrace(PTRACE_SEIZE, s->pid, NULL, (void *)opts)) {
		rc = dj_fail(s->err, 1, "cannot trace a program here: ptrace: %s (a container without "
					"SYS_PTRACE, a seccomp filter, or kernel.yama.ptrace_scope=3?)",
			     strerror(errno));
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, __WALL);
	} else {
		(void)!write(go[1], "x", 1);
		int status;
		for (;;) {
			if (tracee_wait(s, &status)) {
				rc = dj_fail_errno(s->err, 1, "lost the program before it began");
				break;
			}
			if (WIFSTOPPED(status)) {
				if (status >> 16 == PTRACE_EVENT_EXEC)
					break;
				ptrace(PTRACE_CONT, s->pid, NULL, (void *)(long)(status >> 16 ? 0 : WSTOPSIG(status)));
				continue;
			}
			struct child_report rep = {0, 0};
			if (read(report[0], &rep, sizeof rep) == (ssize_t)sizeof rep && rep.error)
				rc = dj_fail(s->err, rep.error == ENOENT ? 127 : 126, "%s: %s", argv[0],
					     strerror(rep.error));
			else
				rc = dj_fail(s->err, 1, "%s ended before it began", argv[0]);
			break;
		}
	}
	close(go[1]);
	close(report[0]);
	return rc;
}

/* ---- what the trace says of machine and program ------------------------------------------------- */

static ssize_t read_proc(pid_t pid, const char *name, void *buf, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buf, size) : -1;
	if (fd >= 0)
		close(fd);
	return n;
}

static struct dj_writer *create_trace(struct sup *s, char *const argv[], char *const envp[])
{
	char link[64], exe[4096] = "", cwd[4096] = "", machine[512], cpu[128], comm[64];
	uint8_t auxv[4096];
	struct utsname u;
	struct timespec now;
	uname(&u);
	snprintf(machine, sizeof machine, "%s %s %s %s", u.sysname, u.release, u.machine, u.nodename);
	dj_cpu_describe(cpu, sizeof cpu);
	snprintf(link, sizeof link, "/proc/%d/exe", s->pid);
	ssize_t n = readlink(link, exe, sizeof exe - 1);
	exe[n > 0 ? n : 0] = 0;
	if (!getcwd(cwd, sizeof cwd))
		cwd[0] = 0;
	ssize_t aux = read_proc(s->pid, "auxv", auxv, sizeof auxv);
	n = read_proc(s->pid, "comm", comm, sizeof comm - 1);
	comm[n > 0 ? n : 0] = 0;
	comm[strcspn(comm, "\n")] = 0;
	clock_gettime(CLOCK_REALTIME, &now);
	struct dj_trace_meta meta = {
		.predict = s->opt.predict,
		.shadow_bits = 32,
		.memory_model = 2,
		.digest_interval = s->opt.digest_interval,
		.start_time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
		.pid = s->pid,
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
	struct dj_writer *w = dj_writer_create(s->opt.output, &meta, s->err);
	if (w && dj_writer_thread(w, s->pid, comm, s->err)) {
		dj_writer_close(w, NULL, NULL);
		w = NULL;
	}
	return w;
}

/* ---- the whole -------------------------------------------------------------------------------------- */

static void finish_trace(struct sup *s)
{
	if (s->ring) {
		uint64_t steps = s->in_hand || s->ended ? s->steps : *tcb(s, T_STEPS);
		if (steps < *tcb(s, T_STEPS))
			steps = *tcb(s, T_STEPS);
		uint64_t reached = ring_reached(s);
		if (steps < reached)
			steps = reached;
		struct dj_record r = {.steps = steps};
		if (s->ended) {
			r.kind = DJ_REC_EXIT;
			r.status = s->status;
		} else {
			r.kind = DJ_REC_END;
			r.name = s->err->text;
		}
		*tcb(s, T_STEPS) = steps;
		ring_record(s, &r);
		struct dj_error err = {0};
		struct dj_error *keep = s->err;
		if (s->ended)
			s->err = &err;
		int rc = ring_stop(s);
		s->err = keep;
		if (rc && s->ended) {
			*s->err = err;
			s->ended = false;
			s->cut = true;
		}
		s->steps = steps;
	}
	if (s->writer) {
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		struct dj_trace_end end = {.present = true, .status = s->ended ? s->status : 0, .steps = s->steps,
					   .end_time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec};
		struct dj_error err = {0};
		if (dj_writer_close(s->writer, &end, &err) && s->ended) {
			*s->err = err;
			s->ended = false;
			s->cut = true;
		}
	}
}

int record_program(const char *file, char *const argv[], char *const envp[], const struct record_options *opt, int *status,
		   bool *cut, struct dj_error *err)
{
	static struct sup sup; /* one program at a time */
	struct sup *s = &sup;
	memset(s, 0, sizeof *s);
	memset(err, 0, sizeof *err);
	s->opt = *opt;
	if (!s->opt.digest_interval)
		s->opt.digest_interval = RECORD_DIGEST_INTERVAL;
	s->err = err;
	s->argv = argv;
	s->mem = -1;
	s->memfd = -1;
	pthread_mutex_init(&s->writer_lock, NULL);

	/* Terminal signals are meant for the program; it decides. */
	forward_to = 0;
	for (size_t i = 0; i < N_OURS; i++) {
		struct sigaction sa = {.sa_handler = ours[i].handler};
		sigaction(ours[i].sig, &sa, &s->inherited[ours[i].sig]);
	}

	int rc = start(s, file, argv, envp);
	if (!rc) {
		forward_to = s->pid;
		s->memfd = memfd_create("deja", MFD_CLOEXEC);
		if (s->memfd < 0)
			rc = dj_fail_errno(err, 1, "cannot make the shared area");
		else if (!(s->writer = create_trace(s, argv, envp)))
			rc = -1;
		else if (image_begin(s, false))
			rc = -1;
		if (!rc && !s->cut && !s->ended) {
			s->in_hand = true;
			run(s);
		}
	}
	if (!s->ended && s->pid > 0) {
		kill(s->pid, SIGKILL);
		int st;
		while (waitpid(s->pid, &st, __WALL) > 0 && WIFSTOPPED(st))
			;
	}
	forward_to = 0;
	finish_trace(s);
	if (opt->verbose && s->tr) {
		struct tr_stats st;
		tr_stats(s->tr, &st);
		fprintf(stderr,
			"deja: %llu instructions, %llu stops, %llu executed natively, %llu fragments, "
			"%llu instructions translated into %llu bytes, %llu flushes\n",
			(unsigned long long)s->steps, (unsigned long long)s->stops, (unsigned long long)s->natives,
			(unsigned long long)st.fragments, (unsigned long long)st.instructions,
			(unsigned long long)st.code_bytes, (unsigned long long)st.flushes);
	}
	tr_free(s->tr);
	for (size_t i = 0; i < N_OURS; i++)
		sigaction(ours[i].sig, &s->inherited[ours[i].sig], NULL);
	if (s->mem >= 0)
		close(s->mem);
	if (s->memfd >= 0)
		close(s->memfd);
	if (rc || s->fatal)
		return -1;
	*cut = s->cut;
	*status = s->status;
	return 0;
}
