/*
 * A program of random combinations: signals, masks, handlers' flags, faults, stops, children, exec,
 * mappings, limits, several at a time. What it prints is a function of its seed alone, on a kernel
 * that does what the manual says; so two runs of one seed must print the same and end the same way,
 * recorded or not.
 *
 * usage: combine SEED CASES [FIRST]
 *
 * Each case makes a small script of operations and performs it. Everything observable goes into a
 * log: which handlers ran, in which order, with which siginfo, mask, flags and stack; what calls
 * returned. A case is undone before the next. Relies on nothing that depends on time: what comes
 * from another process is waited for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- random numbers and the log ------------------------------------------------------------ */

static uint64_t state;

static unsigned rnd(unsigned n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)((state >> 33) % n);
}

static char logged[1 << 20];
static size_t used;

/* Only what is async-signal-safe: handlers log, too. */
static void put(const char *s)
{
	while (*s && used < sizeof(logged) - 1)
		logged[used++] = *s++;
}

static void put_number(long long v)
{
	char text[24], *p = text + sizeof(text);
	unsigned long long u = v < 0 ? -(unsigned long long)v : (unsigned long long)v;

	*--p = 0;
	do
		*--p = (char)('0' + u % 10);
	while (u /= 10);
	if (v < 0)
		*--p = '-';
	put(p);
}

static void put_hex(unsigned long long v)
{
	char text[24], *p = text + sizeof(text);

	*--p = 0;
	do
		*--p = "0123456789abcdef"[v % 16];
	while (v /= 16);
	put(p);
}

/* note("word", value): " word=value" */
static void note(const char *what, long long v)
{
	put(" ");
	put(what);
	put("=");
	put_number(v);
}

static void flush_log(void)
{
	for (size_t at = 0; at < used;) {
		ssize_t n = write(1, logged + at, used - at);
		if (n <= 0 && errno != EINTR)
			_exit(99);
		if (n > 0)
			at += (size_t)n;
	}
	used = 0;
}

/* ---- handlers ------------------------------------------------------------------------------ */

static unsigned long long mask_now(void)
{
	unsigned long long m = 0;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &m, 8);
	return m;
}

static char alternate[1 << 16];
static sigjmp_buf recover;
static volatile sig_atomic_t recovering, nested;
static volatile long *counter; /* handlers that have begun; children see it */

/* Where the faulting instruction of fault() lies, so that a handler can say that it was that one.
 */
extern const char at_load[], at_store[], at_rmw[], at_div[], at_ud[], at_int3[], at_push[],
	at_end[];

extern uint8_t target[];
static bool gathers;
static char *edge; /* of what may be written, in a fault at one */
static volatile int set_trap_flag;

static void put_place(uintptr_t rip)
{
	if (rip >= (uintptr_t)at_load && rip <= (uintptr_t)at_end)
		note("at", (long long)(rip - (uintptr_t)at_load));
}

static void handler(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	char here;

	put("\n  [");
	put_number(sig);
	note("code", info->si_code);
	if (info->si_code == SI_QUEUE)
		note("value", info->si_value.sival_int);
	if (sig == SIGSEGV && info->si_code > 0) {
		put(" addr=");
		put_hex((uintptr_t)info->si_addr < 4096 ? (uintptr_t)info->si_addr : 0xfff);
		note("err", u->uc_mcontext.gregs[REG_ERR]);
	}
	if (sig == SIGSYS) {
		note("call", info->si_syscall);
		if (info->si_code > 0)
			note("ax", u->uc_mcontext.gregs[REG_RAX]);
	}
	put(" mask=");
	put_hex(mask_now());
	put(" was=");
	put_hex(*(unsigned long long *)&u->uc_sigmask);
	if ((uintptr_t)&here - (uintptr_t)alternate < sizeof(alternate))
		put(" alt");
	note("tf", (u->uc_mcontext.gregs[REG_EFL] >> 8) & 1);
	if (info->si_code > 0)
		put_place((uintptr_t)u->uc_mcontext.gregs[REG_RIP]);
	if (info->si_code == SI_USER && u->uc_mcontext.gregs[REG_RIP] >= (greg_t)at_load &&
	    u->uc_mcontext.gregs[REG_RIP] <= (greg_t)at_end) {
		put_place((uintptr_t)u->uc_mcontext.gregs[REG_RIP]);
		note("r11", u->uc_mcontext.gregs[REG_R11] & 0xdd5);
		note("flags", u->uc_mcontext.gregs[REG_EFL] & 0xdd5);
		note("rcx", u->uc_mcontext.gregs[REG_RCX] - u->uc_mcontext.gregs[REG_RIP]);
	}
	if (sig == SIGSEGV && info->si_code > 0) {
		uintptr_t cx = (uintptr_t)u->uc_mcontext.gregs[REG_RCX];
		note("cx", cx < 4096 ? (long long)cx : (uint8_t *)cx == target ? 5000 : 6000);
		if (gathers) /* how many elements it has loaded */
			note("mask", u->uc_mcontext.fpregs->_xmm[2].element[0] +
					     u->uc_mcontext.fpregs->_xmm[2].element[1]);
		if (edge)
			note("di", (char *)u->uc_mcontext.gregs[REG_RDI] - edge);
	}
	if (sig == SIGTRAP && info->si_code == TRAP_TRACE && set_trap_flag && !--set_trap_flag)
		u->uc_mcontext.gregs[REG_EFL] &= ~0x100LL;
	if (sig == SIGUSR1 && set_trap_flag)
		u->uc_mcontext.gregs[REG_EFL] |= 0x100;
	++*counter;
	if (sig == SIGUSR2 && nested < 3) {
		nested++;
		raise(SIGUSR1);
		nested--;
	}
	if (sig == SIGSYS)
		u->uc_mcontext.gregs[REG_RAX] = -EPERM;
	put("]");
	if (info->si_code > 0 && recovering &&
	    (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL)) {
		recovering = 0;
		siglongjmp(recover, sig);
	}
}

static const int usable[] = { SIGHUP,	 SIGINT,  SIGQUIT,  SIGUSR1,   SIGUSR2, SIGALRM, SIGTERM,
			      SIGCHLD,	 SIGURG,  SIGWINCH, SIGIO,     SIGPIPE, SIGXCPU, SIGXFSZ,
			      SIGVTALRM, SIGPROF, SIGPWR,   SIGSTKFLT, 34,	35,	 36,
			      40,	 50,	  63,	    64,	       SIGTRAP, SIGSEGV, SIGFPE,
			      SIGILL,	 SIGBUS,  SIGSYS,   SIGCONT,   SIGTSTP, SIGTTIN, SIGTTOU };
#define USABLE (sizeof(usable) / sizeof(*usable))

/* One that has nothing to do with job control. */
static int plain_signal(void)
{
	return usable[rnd(USABLE - 4)];
}

static void random_set(sigset_t *set, unsigned percent)
{
	sigemptyset(set);
	for (size_t i = 0; i < USABLE; i++)
		if (rnd(100) < percent)
			sigaddset(set, usable[i]);
}

static void random_handler(int sig)
{
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	if (rnd(3) == 0)
		sa.sa_flags |= SA_NODEFER;
	if (rnd(3) == 0)
		sa.sa_flags |= SA_ONSTACK;
	if (rnd(2) == 0)
		sa.sa_flags |= SA_RESTART;
	random_set(&sa.sa_mask, rnd(3) * 25);
	sigaction(sig, &sa, NULL);
}

static void reset(void)
{
	sigset_t none;
	stack_t ss = { .ss_sp = alternate, .ss_size = sizeof(alternate) };

	for (size_t i = 0; i < USABLE; i++)
		signal(usable[i], SIG_IGN); /* what is pending goes */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	sigaltstack(&ss, NULL);
	for (size_t i = 0; i < USABLE; i++)
		random_handler(usable[i]);
}

/* ---- faults -------------------------------------------------------------------------------- */

/* The flags and registers that are dead or overwritten around the fault are on purpose. */
__asm__(".text\n"
	"fault_load: xor %eax,%eax\n"
	"at_load: mov (%rdi),%rax\n add $1,%rax\n ret\n"
	"fault_store: sub %eax,%eax\n"
	"at_store: mov %rax,(%rdi)\n ret\n"
	"fault_rmw: stc\n"
	"at_rmw: adc %rdi,(%rdi)\n ret\n"
	"fault_xadd: mov $5,%eax\n lock xadd %rdi,(%rdi)\n ret\n"
	"fault_div: xor %edx,%edx\n mov $1,%eax\n xor %ecx,%ecx\n"
	"at_div: div %ecx\n ret\n"
	"fault_ud: clc\n"
	"at_ud: ud2\n ret\n"
	"fault_int3: clc\n int3\n"
	"at_int3: ret\n"
	"fault_push: mov %rsp,%rdx\n mov %rdi,%rsp\n"
	"at_push: push %rax\n mov %rdx,%rsp\n ret\n"
	"fault_call: call *(%rdi)\n ret\n"
	"fault_rep: mov $100,%ecx\n mov %rdi,%rsi\n rep movsb\n ret\n"
	"fault_edge: mov $100,%ecx\n lea -37(%rdx),%rdi\n lea at_load(%rip),%rsi\n"
	"rep movsb\n ret\n"
	"fault_words: mov $30,%ecx\n lea -44(%rdx),%rdi\n lea at_load(%rip),%rsi\n"
	"rep movsl\n ret\n"
	"fault_callpush: mov %rdi,%rsp\n mov $77,%ecx\n lea target(%rip),%rax\n call *(%rax)\n"
	"fault_callrcx: mov %rdi,%rsp\n lea target(%rip),%rcx\n call *(%rcx)\n"
	"fault_callreg: mov %rdi,%rsp\n mov $78,%ecx\n lea target(%rip),%rax\n call *%rax\n"
	"fault_pushmem: mov %rdi,%rsp\n mov $79,%ecx\n push target(%rip)\n"
	"fault_gather: vpcmpeqd %xmm2,%xmm2,%xmm2\n vpxor %xmm0,%xmm0,%xmm0\n"
	"vmovdqu indices(%rip),%xmm1\n lea target(%rip),%rax\n"
	"vgatherdps %xmm2,(%rax,%xmm1,4),%xmm0\n ret\n"
	/* at each trap the handler says where it is */
	"tf_on: pop %rdx\n pushf\n orl $0x100,(%rsp)\n popf\n push %rdx\n ret\n"
	"tf_off: pop %rdx\n pushf\n andl $~0x100,(%rsp)\n popf\n push %rdx\n ret\n"
	"tf_plain: call tf_on\n nop\n nop\n stc\n adc $1,%eax\n call tf_off\n ret\n"
	"tf_calls: call tf_on\n mov $110,%eax\n syscall\n nop\n mov $216,%eax\n xor %edi,%edi\n"
	"xor %esi,%esi\n xor %r10d,%r10d\n syscall\n nop\n call tf_off\n ret\n"
	"tf_odd: push %rbx\n call tf_on\n xor %eax,%eax\n cpuid\n rdtsc\n mov $3,%ecx\n"
	"lea -64(%rsp),%rdi\n rep stosb\n lock incl -64(%rsp)\n fld1\n fstp %st\n call tf_off\n"
	"pop %rbx\n ret\n"
	"tf_own: call tf_on\n nop\n int3\n nop\n .byte 0xf1\n nop\n call tf_off\n ret\n"
	"call_flags: push %rbx\n mov %edi,%ebx\n mov %rsi,%r8\n"
	/* dead flags, live flags; in the cache and not */
	"add $0x7f,%bl\n mov $110,%eax\n syscall\n mov %r11,(%r8)\n xor %eax,%eax\n"
	"cmp $5,%bl\n mov $110,%eax\n syscall\n mov %r11,8(%r8)\n pushf\n pop 16(%r8)\n"
	"lea 1f(%rip),%r10\n stc\n mov $216,%eax\n mov %r8,%rbx\n xor %edi,%edi\n xor %esi,%esi\n"
	"sub $1,%edi\n syscall\n1: pushf\n pop 24(%rbx)\n mov %r11,32(%rbx)\n sub %r10,%rcx\n"
	"mov %rcx,40(%rbx)\n pop %rbx\n ret\n"
	/* a signal to itself */
	"call_kill: sub $128,%rsp\n mov $62,%eax\n cmp $3,%sil\n syscall\n add $128,%rsp\n ret\n"
	"at_end: ret\n"
	".data\n target: .quad at_end\n indices: .long 0, 1, 0x40000000, 0\n .text\n");
extern void call_flags(int n, uint64_t *out), call_kill(pid_t pid, int sig);
extern void tf_plain(void), tf_calls(void), tf_odd(void), tf_own(void);
typedef void fault_code(void *at, void *, void *edge);
extern fault_code fault_load, fault_store, fault_rmw, fault_xadd, fault_div, fault_ud, fault_int3,
	fault_push, fault_call, fault_rep, fault_edge, fault_words, fault_callpush, fault_callrcx,
	fault_callreg, fault_pushmem, fault_gather;

static void fault(void)
{
	static char *pages;
	static fault_code *const faults[] = { fault_load,    fault_store,   fault_rmw,
					      fault_xadd,    fault_div,	    fault_ud,
					      fault_int3,    fault_call,    fault_rep,
					      fault_edge,    fault_words,   fault_callpush,
					      fault_callrcx, fault_callreg, fault_pushmem,
					      fault_gather };
	unsigned k = rnd(sizeof(faults) / sizeof(*faults));
	sigset_t unblock;
	if (k == 15 && !__builtin_cpu_supports("avx2"))
		k = 0;
	gathers = k == 15;
	int sig = k == 4 ? SIGFPE : k == 5 ? SIGILL : k == 6 ? SIGTRAP : SIGSEGV;

	note("fault", k);
	/* forced signals that are blocked kill; that is for the last case only */
	sigemptyset(&unblock);
	sigaddset(&unblock, sig);
	sigprocmask(SIG_UNBLOCK, &unblock, NULL);
	random_handler(sig);
	if (k > 10 && k < 15) { /* without a stack */
		struct sigaction sa = { .sa_sigaction = handler,
					.sa_flags = SA_SIGINFO | SA_ONSTACK };
		sigaction(sig, &sa, NULL);
	}
	if (!pages) {
		pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		mprotect(pages + 4096, 4096, PROT_NONE);
	}
	edge = k == 9 || k == 10 ? pages + 4096 : NULL;
	recovering = 1;
	if (sigsetjmp(recover, 1) == 0)
		faults[k]((void *)(uintptr_t)(8 * (1 + rnd(100))), NULL, edge);
	recovering = 0;
	edge = NULL;
}

/* The trap flag, set by the program itself: by popf, or in the frame of a handler. */
static void trap_flag(void)
{
	static void (*const traps[])(void) = { tf_plain, tf_calls, tf_odd, tf_own };
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	sigset_t trap;
	unsigned k = rnd(6);

	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	sigprocmask(SIG_UNBLOCK, &trap, NULL);
	sigaction(SIGTRAP, &sa, NULL);
	long before = *counter;
	note("tf", k);
	if (k < 4) {
		traps[k]();
	} else if (k == 4) { /* up to the next so many */
		sigaction(SIGUSR1, &sa, NULL);
		sigprocmask(SIG_SETMASK, NULL, &trap);
		sigdelset(&trap, SIGUSR1);
		sigprocmask(SIG_SETMASK, &trap, NULL);
		set_trap_flag = 1 + (int)rnd(40);
		raise(SIGUSR1);
	} else {
		__asm__ volatile(".byte 0xf1"); /* int1 */
	}
	note("traps", *counter - before);
}

/* What SIGTRAP does and whether it is blocked, as a number below 64. */
static int trap_state(void)
{
	struct sigaction sa;
	unsigned long long mask = mask_now();

	sigaction(SIGTRAP, NULL, &sa);
	int what = sa.sa_handler == SIG_DFL ? 0 : sa.sa_handler == SIG_IGN ? 1 : 2;
	return what + 4 * (int)(mask >> (SIGTRAP - 1) & 1) + 8 * !!(sa.sa_flags & SA_NODEFER) +
	       16 * !!(sa.sa_flags & SA_SIGINFO) + 32 * !!(sa.sa_mask.__val[0] & 1);
}

/* SIGTRAP is the program's, whatever else uses it. */
static void own_traps(void)
{
	sigset_t trap, pending;
	struct timespec zero = { 0, 0 };
	struct sigaction once = { .sa_sigaction = handler,
				  .sa_flags = SA_SIGINFO | (int)SA_RESETHAND };
	unsigned n = 2 + rnd(8);

	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	for (unsigned i = 0; i < n; i++) {
		unsigned k = rnd(11);
		put(" ");
		put_number(k);
		switch (k) {
		case 0:
			sigprocmask(SIG_BLOCK, &trap, NULL);
			break;
		case 1:
			sigprocmask(SIG_UNBLOCK, &trap, NULL);
			break;
		case 2:
			signal(SIGTRAP, SIG_IGN);
			break;
		case 3:
			random_handler(SIGTRAP);
			break;
		case 4:
			if ((trap_state() & 7) != 0) /* it would be the end */
				raise(SIGTRAP);
			break;
		case 5:
			if ((trap_state() & 7) != 0)
				sigqueue(getpid(), SIGTRAP, (union sigval){ .sival_int = (int)i });
			break;
		case 6:
			sigpending(&pending);
			note("pending", sigismember(&pending, SIGTRAP));
			break;
		case 7:
			if (trap_state() & 4)
				note("got", sigtimedwait(&trap, NULL, &zero));
			break;
		case 8: {
			int status;
			pid_t child = rnd(2) ? fork() : vfork();
			if (child == 0)
				_exit(trap_state());
			while (waitpid(child, &status, 0) < 0 && errno == EINTR)
				;
			note("inherits", WEXITSTATUS(status));
			break;
		}
		case 9: /* gone when it is entered */
			sigaction(SIGTRAP, &once, NULL);
			raise(SIGTRAP);
			break;
		case 10: /* forced, while it is neither blocked nor ignored */
			if ((trap_state() & 7) == 2)
				__asm__ volatile("int3");
			break;
		}
		note("is", trap_state());
		mmap(NULL, 0, 0, 0, -1, 0);
	}
	random_handler(SIGTRAP);
}

/* ---- operations ---------------------------------------------------------------------------- */

static void queue_some(void)
{
	unsigned n = 1 + rnd(rnd(4) ? 4 : 60);
	int sig = rnd(2) ? 34 + (int)rnd(3) : plain_signal();

	if (sig == SIGSEGV || sig == SIGFPE || sig == SIGILL || sig == SIGBUS || sig == SIGSYS)
		sig = SIGUSR1;
	note("queue", sig);
	for (unsigned i = 0; i < n; i++)
		if (sigqueue(getpid(), sig, (union sigval){ .sival_int = (int)i }) != 0)
			note("errno", errno);
}

static void many_at_once(void)
{
	sigset_t set, old;
	unsigned n = 2 + rnd(20);

	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	for (unsigned i = 0; i < n; i++) {
		int sig = plain_signal();
		switch (rnd(3)) {
		case 0:
			kill(getpid(), sig);
			break;
		case 1:
			syscall(SYS_tgkill, getpid(), getpid(), sig);
			break;
		default:
			sigqueue(getpid(), sig, (union sigval){ .sival_int = (int)i });
			break;
		}
	}
	note("at-once", n);
	switch (rnd(4)) {
	case 0: {
		sigset_t none;
		sigemptyset(&none);
		note("suspend", sigsuspend(&none));
		note("errno", errno);
		break;
	}
	case 1: {
		sigset_t none;
		struct timespec ts = { 0, 1000000 };
		sigemptyset(&none);
		note("ppoll", ppoll(NULL, 0, &ts, &none));
		break;
	}
	case 2: {
		struct timespec zero = { 0, 0 };
		siginfo_t info;
		for (int got; (got = sigtimedwait(&set, &info, &zero)) > 0;)
			note("got", got);
		break;
	}
	default:
		break;
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* Another process sends them, two or more at a time; it has ended before they are let in. */
static void from_outside(void)
{
	sigset_t set, old;
	pid_t parent = getpid();
	unsigned n = 2 + rnd(5);
	int sigs[8];

	for (unsigned i = 0; i < n; i++)
		sigs[i] = plain_signal();
	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	pid_t child = fork();
	if (child == 0) {
		for (unsigned i = 0; i < n; i++)
			kill(parent, sigs[i]);
		_exit(7);
	}
	int status = 0;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	note("outside", n);
	note("child", status);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* Stopped, and continued by a child, in a loop of calls that the supervisor handles. */
static void stop_in_loop(void)
{
	pid_t parent = getpid();
	int go[2];
	sigset_t set, old;

	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	if (pipe(go))
		return;
	pid_t child = fork();
	if (child == 0) {
		close(go[1]);
		kill(parent, SIGSTOP);
		usleep(2000);
		kill(parent, SIGCONT);
		char c;
		(void)!read(go[0], &c, 1);
		_exit(0);
	}
	close(go[0]);
	for (int i = 0; i < 20; i++) {
		void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);
		if (p != MAP_FAILED)
			munmap(p, 8192);
	}
	close(go[1]);
	int status = 0;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	note("stopped", status);
	sigset_t pending;
	sigpending(&pending);
	note("cont", sigismember(&pending, SIGCONT));
	struct timespec zero = { 0, 0 };
	while (sigtimedwait(&set, NULL, &zero) > 0)
		;
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* Whether a process sleeps in the kernel. Stopped for a tracer it does not. */
static bool asleep(pid_t pid)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	const char *state = n > 0 ? strrchr(text, ')') : NULL;
	return state && state[2] == 'S';
}

/* A read that a signal interrupts; what it waits for comes when the handler has run. */
static void interrupted_call(void)
{
	int p[2];
	pid_t parent = getpid();
	int sig = 34 + (int)rnd(3), restart = (int)rnd(2);
	struct sigaction sa = { .sa_sigaction = handler,
				.sa_flags = SA_SIGINFO | (restart ? SA_RESTART : 0) };
	sigset_t one, chld;

	sigaction(sig, &sa, NULL);
	sigemptyset(&one);
	sigaddset(&one, sig);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	if (pipe(p))
		return;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	long before = *counter;
	pid_t child = fork();
	if (child == 0) {
		close(p[0]);
		while (!asleep(parent))
			usleep(200);
		kill(parent, sig);
		while (*counter == before)
			usleep(200);
		(void)!write(p[1], "x", 1);
		_exit(0);
	}
	char c = 0;
	ssize_t n = read(p[0], &c, 1);
	note("read", n);
	note("errno", n < 0 ? errno : 0);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	close(p[0]);
	close(p[1]);
	sigprocmask(SIG_UNBLOCK, &chld, NULL);
}

static void some_masks(void)
{
	sigset_t set;

	random_set(&set, 30);
	note("mask", sigprocmask(rnd(2) ? SIG_BLOCK : SIG_SETMASK, &set, NULL));
	put(" is=");
	put_hex(mask_now());
}

static void vfork_and_exec(void)
{
	int status = 0;
	sigset_t set, old;
	char *argv[] = { "true", NULL };

	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	pid_t child = vfork();
	if (child == 0) {
		execv("/bin/true", argv);
		_exit(9);
	}
	raise(SIGUSR1);
	raise(SIGUSR2);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	note("vfork", status);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* What the system call instruction leaves in registers. */
static void after_calls(void)
{
	uint64_t out[6];
	sigset_t none;

	call_flags((int)rnd(256), out);
	for (int i = 0; i < 6; i++)
		note("r", (long long)(out[i] & 0xdd5));
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	call_kill(getpid(), rnd(2) ? SIGUSR1 : SIGHUP);
}

static volatile long shared;

static int child_of_clone(void *by)
{
	for (int i = 0; i < 100; i++)
		shared += (long)by;
	return 5;
}

/* clone in ways that fork and vfork do not use; some fail. */
static void clones(void)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	static const int flags[] = { SIGCHLD,
				     CLONE_VM,
				     CLONE_VM | CLONE_FS | CLONE_FILES,
				     CLONE_VM | SIGCHLD,
				     CLONE_VM | CLONE_VFORK | SIGCHLD,
				     CLONE_THREAD,
				     CLONE_SIGHAND | SIGCHLD,
				     CLONE_VM | SIGUSR1 };
	unsigned k = rnd(sizeof(flags) / sizeof(*flags)), untraced = rnd(2) * CLONE_UNTRACED;
	sigset_t set, old;
	int status = 0;

	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	shared = 0;
	pid_t child;
	if (k || rnd(2)) {
		child = clone(child_of_clone, stack + sizeof(stack), flags[k] | (int)untraced,
			      (void *)3L);
	} else {
		uint64_t args[8] = { untraced, 0, 0, 0, SIGCHLD };
		child = (pid_t)syscall(SYS_clone3, args, sizeof(args));
		if (child == 0)
			_exit(6);
		note("flags", args[0] == untraced);
	}
	note("clone", k);
	note("errno", child < 0 ? errno : 0);
	if (child > 0)
		note("reaped", waitpid(child, &status, __WALL) == child);
	note("status", status);
	note("shared", shared);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static void mappings(void)
{
	for (volatile unsigned i = 0; i < 5; i++) {
		size_t n = 4096 * (1 + rnd(20));
		char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			continue;
		memset(p, (int)i, n);
		if (rnd(2))
			mprotect(p, 4096, PROT_READ);
		if (rnd(2)) {
			recovering = 1;
			sigset_t segv;
			sigemptyset(&segv);
			sigaddset(&segv, SIGSEGV);
			sigprocmask(SIG_UNBLOCK, &segv, NULL);
			random_handler(SIGSEGV);
			if (sigsetjmp(recover, 1) == 0)
				p[100] = 9;
			recovering = 0;
		}
		note("byte", p[100]);
		munmap(p, n);
	}
}

/* seccomp's RET_TRAP for a call that nobody needs here: getppid runs in the cache, remap_file_pages
 * does not.
 */
static void seccomp_trap(void)
{
	static int done;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_remap_file_pages, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };
	sigset_t sys;

	if (!done) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		note("seccomp", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
		done = 1;
	}
	sigemptyset(&sys);
	sigaddset(&sys, SIGSYS);
	sigprocmask(SIG_UNBLOCK, &sys, NULL);
	random_handler(SIGSYS);
	errno = 0;
	note("getppid", syscall(SYS_getppid));
	note("errno", errno);
	errno = 0;
	note("remap", syscall(SYS_remap_file_pages, 0, 0, 0, 0, 0) == -1);
	note("errno", errno);
}

static void limits(void)
{
	struct rlimit old, low;

	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = 4;
	setrlimit(RLIMIT_NOFILE, &low);
	int fd = dup(1), fd2 = dup(1);
	note("dup", fd >= 0);
	note("dup", fd2 >= 0);
	void *p = mmap(NULL, 1 << 16, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	note("mmap", p != MAP_FAILED);
	if (p != MAP_FAILED)
		munmap(p, 1 << 16);
	if (fd >= 0)
		close(fd);
	if (fd2 >= 0)
		close(fd2);
	setrlimit(RLIMIT_NOFILE, &old);
}

static char *self;
static unsigned long long seed_arg;
static unsigned cases_arg, case_now;

/* The rest of the cases in a new image; what is blocked and pending goes along. */
static void exec_self(void)
{
	char seed[24], cases[24], first[24], *argv[] = { self, seed, cases, first, NULL };
	sigset_t set;

	random_set(&set, 50);
	sigprocmask(SIG_SETMASK, &set, NULL);
	if (rnd(2))
		signal(rnd(2) ? SIGTRAP : SIGUSR1, SIG_IGN);
	for (int i = 0; i < 5; i++) {
		int sig = plain_signal();
		if (sigismember(&set, sig))
			sigqueue(getpid(), sig, (union sigval){ .sival_int = i });
	}
	put(" exec\n");
	flush_log();
	snprintf(seed, sizeof(seed), "%llu", seed_arg);
	snprintf(cases, sizeof(cases), "%u", cases_arg);
	snprintf(first, sizeof(first), "%u", case_now + 1);
	if (rnd(3) == 0) { /* a limit and an exec */
		struct rlimit low = { 4, 4 };
		setrlimit(RLIMIT_NOFILE, &low);
	}
	execv(self, argv);
	_exit(98);
}

static void after_exec(void)
{
	sigset_t pending;

	put("after exec mask=");
	put_hex(mask_now());
	sigpending(&pending);
	for (int sig = 1; sig < 65; sig++)
		if (sigismember(&pending, sig) == 1)
			note("pending", sig);
	for (size_t i = 0; i < USABLE; i++) {
		struct sigaction sa;
		sigaction(usable[i], NULL, &sa);
		if (sa.sa_handler != SIG_DFL)
			note("not-default", usable[i]);
	}
	put("\n");
}

static void (*const operations[])(void) = {
	queue_some, many_at_once, many_at_once, from_outside,	  from_outside, some_masks,
	fault,	    fault,	  trap_flag,	interrupted_call, mappings,	vfork_and_exec,
	limits,	    stop_in_loop, own_traps,	clones,		  after_calls,	seccomp_trap,
};
#define OPERATIONS (sizeof(operations) / sizeof(*operations))

/* A filter's end: of one of two calls, one in the cache, one not. */
static void filtered_end(void)
{
	static const unsigned ways[] = { SECCOMP_RET_KILL_THREAD, SECCOMP_RET_KILL_PROCESS,
					 SECCOMP_RET_TRAP };
	unsigned nr = rnd(2) ? SYS_getpgrp : SYS_remap_file_pages;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ways[rnd(3)]),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
	syscall(nr, 0, 0, 0, 0, 0);
}

/* The last thing a run does: one of the ways to end. */
static void end(void)
{
	sigset_t set;

	random_set(&set, 100);
	switch (rnd(7)) {
	case 0: /* two fatal ones at once, and handlers in between */
		sigprocmask(SIG_BLOCK, &set, NULL);
		signal(SIGUSR1, SIG_DFL);
		random_handler(34);
		sigqueue(getpid(), 34, (union sigval){ .sival_int = 1 });
		raise(SIGUSR1);
		flush_log();
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		break;
	case 1: /* a fault whose signal is blocked */
		sigprocmask(SIG_BLOCK, &set, NULL);
		flush_log();
		fault_load((void *)8, NULL, NULL);
		break;
	case 2:
		signal(SIGTERM, SIG_DFL);
		sigemptyset(&set);
		sigprocmask(SIG_SETMASK, &set, NULL);
		flush_log();
		kill(getpid(), SIGTERM);
		break;
	case 3:
	case 4: /* SIGSYS is blocked, which does not help */
		sigprocmask(SIG_BLOCK, &set, NULL);
		flush_log();
		filtered_end();
		break;
	default:
		break;
	}
	flush_log();
	exit((int)rnd(256));
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	self = argv[0];
	seed_arg = strtoull(argv[1], NULL, 10);
	cases_arg = (unsigned)atoi(argv[2]);
	unsigned first = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	const char *only = getenv("ONLY"); /* one kind of operation, for finding out */
	struct rlimit no_core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &no_core);
	counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (first)
		after_exec();
	for (case_now = first; case_now < cases_arg; case_now++) {
		state = seed_arg * 1000003 + case_now;
		for (int i = 0; i < 5; i++)
			rnd(2);
		put("case ");
		put_number(case_now);
		reset();
		unsigned n = 1 + rnd(5);
		for (unsigned i = 0; i < n; i++) {
			unsigned k = only ? (unsigned)atoi(only) : rnd(OPERATIONS);
			if (k == OPERATIONS - 1 && rnd(4)) /* a filter stays for ever */
				k = 1;
			put("\n ");
			put_number(k);
			operations[k]();
		}
		put("\n");
		if (used > sizeof(logged) / 2)
			flush_log();
		if (!only && rnd(24) == 0)
			exec_self();
	}
	end();
}
