/* Random numbers, the log, and handlers: see combine.h. */
#define _GNU_SOURCE
#include "combine.h"

#include <errno.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- random numbers and the log ------------------------------------------------------------ */

uint64_t state;

unsigned rnd(unsigned n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)((state >> 33) % n);
}

static char logged[1 << 20];
static size_t used;

/* Only what is async-signal-safe: handlers log, too. */
void put(const char *s)
{
	while (*s && used < sizeof(logged) - 1)
		logged[used++] = *s++;
}

void put_number(long long v)
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

void put_hex(unsigned long long v)
{
	char text[24], *p = text + sizeof(text);

	*--p = 0;
	do
		*--p = "0123456789abcdef"[v % 16];
	while (v /= 16);
	put(p);
}

/* note("word", value): " word=value" */
void note(const char *what, long long v)
{
	put(" ");
	put(what);
	put("=");
	put_number(v);
}

void flush_log(void)
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

unsigned long long mask_now(void)
{
	unsigned long long m = 0;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &m, 8);
	return m;
}

static char alternate[1 << 16];
sigjmp_buf recover;
volatile sig_atomic_t recovering;
static volatile sig_atomic_t nested;
volatile long *counter;

bool gathers;
char *edge;
volatile int set_trap_flag;

static void put_place(uintptr_t rip)
{
	if (rip >= (uintptr_t)at_load && rip <= (uintptr_t)at_end)
		note("at", (long long)(rip - (uintptr_t)at_load));
}

/* Under some hypervisors on AMD's processors int1 traps before itself instead of behind: natively
 * it would be executed for ever. Where it has trapped twice it is left behind. */
static void leave_int1(greg_t *rip)
{
	static greg_t before;

	if (*rip == before && *(const uint8_t *)(uintptr_t)*rip == 0xf1)
		++*rip;
	before = *rip;
}

void handler(int sig, siginfo_t *info, void *context)
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
	}
	note("err",
	     u->uc_mcontext.gregs[REG_ERR]); /* of the last exception, whatever signal it is */
	note("trap", u->uc_mcontext.gregs[REG_TRAPNO]);
	if (sig == SIGSYS) {
		note("call", info->si_syscall);
		if (info->si_code > 0)
			note("ax", u->uc_mcontext.gregs[REG_RAX]);
		if (info->si_code > 0) /* behind the call (kernel/signal.c, force_sig_seccomp) */
			note("here", (greg_t)(uintptr_t)info->si_call_addr ==
					     u->uc_mcontext.gregs[REG_RIP]);
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
	if (sig == SIGTRAP && info->si_code > 0)
		leave_int1(&u->uc_mcontext.gregs[REG_RIP]);
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

const int usable[USABLE] = { SIGHUP,	SIGINT,	 SIGQUIT,  SIGUSR1,   SIGUSR2, SIGALRM, SIGTERM,
			     SIGCHLD,	SIGURG,	 SIGWINCH, SIGIO,     SIGPIPE, SIGXCPU, SIGXFSZ,
			     SIGVTALRM, SIGPROF, SIGPWR,   SIGSTKFLT, 34,      35,	36,
			     40,	50,	 63,	   64,	      SIGTRAP, SIGSEGV, SIGFPE,
			     SIGILL,	SIGBUS,	 SIGSYS,   SIGCONT,   SIGTSTP, SIGTTIN, SIGTTOU };

/* One that has nothing to do with job control. */
int plain_signal(void)
{
	return usable[rnd(USABLE - 4)];
}

void random_set(sigset_t *set, unsigned percent)
{
	sigemptyset(set);
	for (size_t i = 0; i < USABLE; i++)
		if (rnd(100) < percent)
			sigaddset(set, usable[i]);
}

void random_handler(int sig)
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

void reset(void)
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
