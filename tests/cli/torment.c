/*
 * A program of random combinations for several threads at once: signals, masks, traps, mappings,
 * code, forks, execs, exits of threads, filters, limits, locks, futexes, faults. What it prints is
 * a function of its seed alone: every operation checks its own result, and adds to sums that do not
 * depend on who came first.
 *
 * usage: torment SEED ROUNDS
 *
 * Each round starts some threads, each with a random script of its own, made before it starts; and
 * a tormentor sends signals to random threads, and to the process, while they are at it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trap-flag.h"

enum { THREADS = 6, STEPS = 24, OPERATIONS = 29 };

struct script {
	uint8_t op[STEPS];
	uint32_t arg[STEPS];
	unsigned len;
};

static uint64_t state;

static uint32_t rnd(uint32_t n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)((state >> 33) % n);
}

static struct script scripts[THREADS];
static pthread_t threads[THREADS];
static unsigned n_threads;
static atomic_ulong sum, wrong, done_ops[OPERATIONS];
static atomic_int handled[65], turn, gate;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned long guarded, waited;
static __thread sigjmp_buf escape;
static __thread volatile bool escapes;
static __thread char *volatile faulty;
static __thread volatile unsigned traps, steps;
static const char *self;

static void bad(unsigned op, unsigned line)
{
	fprintf(stderr, "operation %u, line %u, errno %d\n", op, line, errno);
	wrong++;
}
#define must(c)                                                                                    \
	do {                                                                                       \
		if (!(c))                                                                          \
			bad(op, __LINE__);                                                         \
	} while (0)

static void on_signal(int sig, siginfo_t *info, void *context)
{
	int e = errno;
	if (sig == SIGSEGV) {
		if (escapes && (char *)info->si_addr == faulty)
			siglongjmp(escape, 1);
		_exit(97);
	}
	if (sig == SIGTRAP) {
		traps++;
		steps += info->si_code == TRAP_TRACE;
	}
	handled[sig]++;
	if (sig == SIGRTMIN + 1) /* a handler that is interrupted by others, and makes calls */
		sched_yield();
	errno = e;
}

static long again(ssize_t (*f)(int, void *, size_t), int fd, void *p, size_t n)
{
	ssize_t r;

	do
		r = f(fd, p, n);
	while (r < 0 && errno == EINTR);
	return r;
}

static int reap(pid_t pid)
{
	int status = -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void *short_life(void *arg)
{
	sum += (unsigned long)arg;
	return arg;
}

static void *exits_by_call(void *arg)
{
	sum += (unsigned long)arg;
	pthread_exit(arg);
}

/* Whatever signals come in. */
static void *sleeps(void *arg)
{
	for (;;)
		pause();
}

static void map_and_use(unsigned op, uint32_t arg)
{
	size_t size = 4096 * (1 + arg % 5);
	unsigned char *p =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED);
	for (size_t i = 0; i < size; i += 512)
		p[i] = (unsigned char)(arg + i / 512);
	if (arg & 16)
		must(mprotect(p, size, PROT_READ) == 0);
	for (size_t i = 0; i < size; i += 512)
		sum += p[i];
	if (arg & 32) {
		p = mremap(p, size, size + 4096, MREMAP_MAYMOVE);
		must(p != MAP_FAILED);
		size += 4096;
		sum += p[512];
	}
	must(munmap(p, size) == 0);
}

static void make_code(unsigned op, uint32_t arg)
{
	unsigned char code[] = { 0xb8, 0, 0, 0, 0, 0xc3 }; /* mov eax, imm32; ret */
	unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | (arg & 1 ? PROT_EXEC : 0),
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (unsigned k = 0; k < 1 + arg % 3; k++) {
		uint32_t v = arg ^ k;
		memcpy(code + 1, &v, 4);
		if (!(arg & 1))
			mprotect(p, 4096, PROT_READ | PROT_WRITE);
		memcpy(p + arg % 64, code, sizeof(code));
		if (!(arg & 1))
			mprotect(p, 4096, PROT_READ | PROT_EXEC);
		must(((uint32_t(*)(void))(uintptr_t)(p + arg % 64))() == v);
	}
	munmap(p, 4096);
	sum += arg % 1000;
}

static void fault(unsigned op, uint32_t arg)
{
	char *p = mmap(NULL, 4096, arg & 1 ? PROT_NONE : PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	faulty = p + arg % 4096;
	escapes = true;
	if (sigsetjmp(escape, 1) == 0) {
		*(volatile char *)faulty = 1;
		must(false);
	}
	escapes = false;
	must(munmap(p, 4096) == 0);
	sum += arg % 77;
}

static void masks(unsigned op, uint32_t arg)
{
	sigset_t s, old, now;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	sigaddset(&s, SIGRTMIN + 1 + (int)(arg % 3));
	if (arg & 8)
		sigaddset(&s, SIGTRAP);
	must(pthread_sigmask(SIG_BLOCK, &s, &old) == 0);
	/* what is sent while it is blocked is there afterwards, once */
	int before = handled[SIGUSR2];
	must(pthread_kill(pthread_self(), SIGUSR2) == 0);
	must(handled[SIGUSR2] > before);
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	must(sigismember(&now, SIGUSR1) == 1);
	must(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
	sum += arg % 13;
}

static void child(unsigned op, uint32_t arg)
{
	char number[16];
	sigset_t all, old;
	pid_t pid;
	/* in the child no signal of the tormentor's is wanted */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	pid = fork();
	if (pid == 0) {
		if (arg & 1) {
			snprintf(number, sizeof(number), "%u", arg % 50);
			execl(self, self, "-exit", number, NULL);
			_exit(96);
		}
		if (arg & 2) {
			pthread_t t;
			void *r;
			if (pthread_create(&t, NULL, short_life, (void *)(uintptr_t)(arg % 50)) ||
			    pthread_join(t, &r))
				_exit(95);
			_exit((int)(uintptr_t)r);
		}
		if (arg & 4) {
			signal(SIGTERM, SIG_DFL);
			pthread_sigmask(SIG_UNBLOCK, &all, NULL);
			raise(SIGTERM);
		}
		_exit((int)(arg % 50));
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	must(pid > 0);
	int status = reap(pid);
	must(status == (!(arg & 3) && arg & 4 ? -SIGTERM : (int)(arg % 50)));
	sum += arg % 50;
}

/* Traps of the thread's own. */
static void own_traps(unsigned op, uint32_t arg)
{
	unsigned before = traps, stepped = steps;
	__asm__ volatile("int3");
	must(traps > before);
	if (arg & 1) { /* singly, behind each of five instructions */
		before = traps;
		trap_flag_over_five();
		must(traps - before >= 5 && steps - stepped <= 5);
	}
	sum += arg % 11;
}

/* One that the thread sends itself, while others do so, too. */
static void raised_trap(unsigned op, uint32_t arg)
{
	unsigned before = traps;
	must(raise(SIGTRAP) == 0);
	must(traps > before);
	sum += arg % 19;
}

/* One that is pending: nobody else takes it, and it is taken. */
static void waited_trap(unsigned op, uint32_t arg)
{
	sigset_t s, old, pending;
	unsigned before;
	int sig;
	sigemptyset(&s);
	sigaddset(&s, SIGTRAP);
	must(pthread_sigmask(SIG_BLOCK, &s, &old) == 0);
	before = traps;
	must(pthread_kill(pthread_self(), SIGTRAP) == 0);
	must(sigpending(&pending) == 0 && sigismember(&pending, SIGTRAP) == 1);
	must(traps == before);
	if (arg & 1)
		must(sigwait(&s, &sig) == 0 && sig == SIGTRAP && traps == before);
	must(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
	must(arg & 1 || traps > before);
	sum += arg % 23;
}

/* What is blocked is taken, with its value. */
static void waited_for(unsigned op, uint32_t arg)
{
	sigset_t s, old;
	siginfo_t info;

	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN + 4);
	must(pthread_sigmask(SIG_BLOCK, &s, &old) == 0);
	must(pthread_sigqueue(pthread_self(), SIGRTMIN + 4,
			      (union sigval){ .sival_int = (int)arg }) == 0);
	while (sigwaitinfo(&s, &info) < 0 && errno == EINTR)
		;
	must(info.si_value.sival_int == (int)arg);
	must(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
}

/* What is pending comes in while a call waits with another mask, and nothing else. */
static void suspended(unsigned op, uint32_t arg)
{
	sigset_t s, old, all_but;
	int before = handled[SIGUSR2];
	sigfillset(&all_but);
	sigdelset(&all_but, SIGUSR2);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	must(pthread_sigmask(SIG_BLOCK, &s, &old) == 0);
	must(pthread_kill(pthread_self(), SIGUSR2) == 0);
	must(sigsuspend(&all_but) == -1 && errno == EINTR);
	must(handled[SIGUSR2] > before);
	must(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
	sum += arg % 5;
}

/* In a thread of its own, which a filter ends with. */
static void *filtered(void *arg)
{
	unsigned op = 24;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgrp, 0, 1),
		BPF_STMT(BPF_RET | BPF_K,
			 (uintptr_t)arg & 1 ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO | 77),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };
	int before = handled[SIGSYS];
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
	long r = syscall(SYS_getpgrp);
	if ((uintptr_t)arg & 1)
		must(handled[SIGSYS] > before);
	else
		must(r == -1 && errno == 77);
	return arg;
}

/* Any of those that threads set. */
static void limits(unsigned op, uint32_t arg)
{
	struct rlimit l = { (1ULL << 40) + arg, RLIM_INFINITY };
	int what = arg & 1 ? RLIMIT_DATA : RLIMIT_AS;
	must(setrlimit(what, &l) == 0);
	l.rlim_cur = 0;
	must(getrlimit(what, &l) == 0 && l.rlim_cur >> 40 == 1 && l.rlim_max == RLIM_INFINITY);
}

/* By the kernel, on most machines: each is executed once, whatever comes in between. */
static void emulated(unsigned op, uint32_t arg)
{
	unsigned done = 0;
	for (unsigned i = 0; i < arg % 20; i++) {
		unsigned task = 0;
		uint8_t gdt[10] = { 0 };
		__asm__ volatile("str %0\n\tinc %1\n\tsgdt %2\n\tinc %1"
				 : "+r"(task), "+r"(done), "+m"(gdt));
		must(task != 0 && (gdt[8] | gdt[9]) != 0);
	}
	must(done == arg % 20 * 2);
}

static void perform(unsigned op, uint32_t arg)
{
	struct timespec ts = { 0, (long)(arg % 300) * 1000 };
	pthread_t t;
	void *r;
	int fds[2];
	uint64_t v = arg, w = 0;

	switch (op) {
	case 0:
	case 1:
		pthread_mutex_lock(&lock);
		guarded += arg % 97;
		pthread_mutex_unlock(&lock);
		break;
	case 2:
		sum += arg;
		break;
	case 3:
		map_and_use(op, arg);
		break;
	case 4:
		make_code(op, arg);
		break;
	case 5:
		fault(op, arg);
		break;
	case 6:
		masks(op, arg);
		break;
	case 7:
		if (arg % 4 == 0)
			child(op, arg / 4);
		break;
	case 8: /* a thread of one's own */
		must(pthread_create(&t, NULL, arg & 1 ? short_life : exits_by_call,
				    (void *)(uintptr_t)(arg % 1000)) == 0);
		must(pthread_join(t, &r) == 0 && (uintptr_t)r == arg % 1000);
		break;
	case 9:
		pthread_mutex_lock(&lock);
		waited++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
		break;
	case 10: /* until the whole time has passed, whatever interrupts */
		while (nanosleep(&ts, &ts) && errno == EINTR)
			;
		break;
	case 11:
		must(pipe(fds) == 0);
		must(again((void *)write, fds[1], &v, 8) == 8);
		must(again((void *)read, fds[0], &w, 8) == 8 && v == w);
		close(fds[0]);
		close(fds[1]);
		break;
	case 12:
		syscall(SYS_futex, &gate, FUTEX_WAKE, 1, NULL, NULL, 0);
		syscall(SYS_futex, &gate, FUTEX_WAIT, 0, &ts, NULL, 0);
		break;
	case 13: {
		char name[16] = "";
		char want[16];
		snprintf(want, sizeof(want), "t%u", arg % 100000);
		prctl(PR_SET_NAME, want);
		prctl(PR_GET_NAME, name);
		must(!strcmp(name, want));
		break;
	}
	case 14:
		free(memset(malloc(arg % 100000 + 1), 3, arg % 100000 + 1));
		break;
	case 15: /* floating point, whose state must live through signals */
	{
		volatile double x = arg % 1000 + 1, y = 0;
		for (int i = 1; i < 200; i++)
			y += x / i;
		for (int i = 1; i < 200; i++)
			y -= x / i;
		must(y < 1e-6 && y > -1e-6);
		break;
	}
	case 16: {
		static _Alignas(16) char from[512], to[THREADS][512];
		char copy[512];
		memset(copy, (int)arg, sizeof(copy));
		memmove(copy + 1, copy, 400);
		must(copy[300] == (char)arg && from[3] == 0 && to[0][0] == 0);
		break;
	}
	case 17:
		syscall(SYS_membarrier, 0, 0);
		must(syscall(SYS_gettid) > 0 && getppid() > 0);
		break;
	case 18:
		sched_yield();
		break;
	case 19: { /* a thread that is cancelled in its sleep */
		must(pthread_create(&t, NULL, sleeps, NULL) == 0);
		must(pthread_cancel(t) == 0 && pthread_join(t, &r) == 0 && r == PTHREAD_CANCELED);
		break;
	}
	case 20:
		own_traps(op, arg);
		break;
	case 21:
		waited_for(op, arg);
		break;
	case 22:
		suspended(op, arg);
		break;
	case 23:
	case 24:
		must(pthread_create(&t, NULL, filtered, (void *)(uintptr_t)arg) == 0);
		must(pthread_join(t, &r) == 0 && (uintptr_t)r == arg);
		break;
	case 25:
		limits(op, arg);
		break;
	case 26:
		raised_trap(op, arg);
		break;
	case 27:
		waited_trap(op, arg);
		break;
	case 28:
		emulated(op, arg);
		break;
	}
	done_ops[op]++;
}

static void *run(void *arg)
{
	const struct script *s = arg;
	for (unsigned i = 0; i < s->len; i++)
		perform(s->op[i], s->arg[i]);
	turn++;
	syscall(SYS_futex, &turn, FUTEX_WAKE, 100, NULL, NULL, 0);
	return NULL;
}

static void round_of(unsigned torments)
{
	unsigned ops = 0;

	n_threads = 2 + rnd(THREADS - 1);
	for (unsigned t = 0; t < n_threads; t++) {
		scripts[t].len = 4 + rnd(STEPS - 3);
		for (unsigned i = 0; i < scripts[t].len; i++) {
			scripts[t].op[i] = (uint8_t)rnd(OPERATIONS);
			scripts[t].arg[i] = rnd(1 << 30);
		}
		ops += scripts[t].len;
	}
	turn = 0;
	int sent[65] = { 0 };
	for (int k = 0; k < SIGRTMAX; k++)
		handled[k] = 0;
	for (unsigned t = 0; t < n_threads; t++)
		if (pthread_create(&threads[t], NULL, run, &scripts[t]))
			exit(94);
	/* real-time signals are queued: as many arrive as were sent, in whatever thread */
	for (unsigned i = 0; i < torments; i++) {
		int sig = rnd(3) ? SIGRTMIN + 1 + (int)rnd(3) : rnd(2) ? SIGUSR1 : SIGTRAP;
		union sigval v = { .sival_int = (int)i };
		unsigned whom = rnd(n_threads + 1);
		bool yields = rnd(2);
		sent[sig]++;
		if (whom == n_threads)
			sigqueue(getpid(), sig, v);
		else
			pthread_sigqueue(threads[whom], sig, v); /* it may have ended */
		if (yields)
			sched_yield();
	}
	for (unsigned t = 0; t < n_threads; t++)
		pthread_join(threads[t], NULL);
	/* those sent to a thread that ended before it took them are lost, and the others are here
	 */
	for (int k = SIGRTMIN + 1; k <= SIGRTMIN + 3; k++)
		if (handled[k] > sent[k])
			bad(99, (unsigned)k);
	printf("threads %u operations %u sum %lu guarded %lu waited %lu wrong %lu\n", n_threads,
	       ops, (unsigned long)sum, guarded, waited, (unsigned long)wrong);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct sigaction sa = { 0 };

	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "-exit"))
		return atoi(argv[2]);
	self = argv[0];
	state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ULL + 1;
	sa.sa_sigaction = on_signal;
	sa.sa_flags = SA_SIGINFO | SA_RESTART;
	int sigs[] = { SIGUSR1, SIGUSR2,      SIGSEGV,	    SIGTRAP,
		       SIGSYS,	SIGRTMIN + 1, SIGRTMIN + 2, SIGRTMIN + 3 };
	for (unsigned i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
		sa.sa_flags = SA_SIGINFO | (rnd(2) ? SA_RESTART : 0) | (rnd(2) ? SA_NODEFER : 0);
		sigemptyset(&sa.sa_mask);
		if (rnd(3) == 0)
			sigaddset(&sa.sa_mask, SIGTRAP);
		sigaction(sigs[i], &sa, NULL);
	}
	for (int i = 0; i < atoi(argv[2]); i++)
		round_of(rnd(60));
	/* sometimes the end is another thread's */
	if (rnd(3) == 0) {
		pthread_t t;
		pthread_create(&t, NULL, (void *(*)(void *))(void *)exit,
			       (void *)(uintptr_t)rnd(100));
		for (;;)
			pause();
	}
	return (int)rnd(100);
}
