/* rt_sigprocmask in its corners, with SIGTRAP among what is blocked: what it fails at, where the
 * old mask goes, what is pending, a filter that refuses it; and signals of the process that another
 * thread has to take, because the one that they were for blocks them just then. Prints what it
 * sees. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALL  UINT64_MAX
#define TRAP (1ULL << (SIGTRAP - 1))
#define USR1 (1ULL << (SIGUSR1 - 1))

static volatile sig_atomic_t handled, traps;

static void handler(int sig)
{
	if (sig == SIGTRAP)
		traps++;
	else
		handled++;
}

static void mask(const char *what, int how, const void *set, void *old, size_t size)
{
	uint64_t now = 0;
	long r = syscall(SYS_rt_sigprocmask, how, set, old, size);
	int e = r ? errno : 0;
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8);
	printf("%s: %ld %s, now %llx, handled %d, traps %d\n", what, r, strerror(e),
	       (unsigned long long)now, (int)handled, (int)traps);
}

static void fails(void)
{
	uint64_t all = ALL, none = 0, old = 7;
	uint8_t *page =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + 4096, 4096);
	memset(page, 0xff, 4096);
	mask("a size", SIG_BLOCK, &all, &old, 4);
	mask("no such way", 7, &all, &old, 8);
	mask("no such way, no set", 7, NULL, &old, 8);
	mask("a set that is not there", SIG_BLOCK, page + 4096, &old, 8);
	mask("a set that ends", SIG_BLOCK, page + 4092, &old, 8);
	mask("both", SIG_BLOCK, &all, &old, 8);
	printf("old %llx\n", (unsigned long long)old);
	mask("in one place", SIG_SETMASK, &none, &none, 8);
	printf("old %llx\n", (unsigned long long)none);
	mask("nothing", SIG_SETMASK, &(uint64_t){ 0 }, NULL, 8);
	mask("old ends", SIG_SETMASK, &all, page + 4092, 8);
	printf("%02x %02x\n", page[4091], page[4092]);
	mask("old is not there", SIG_UNBLOCK, &all, page + 4096, 8);
	mprotect(page, 4096, PROT_READ);
	mask("old may not be written", SIG_BLOCK, &all, page, 8);
	printf("%02x\n", page[0]);
	mask("of what may be read", SIG_SETMASK, page, NULL, 8);
	mask("nothing", SIG_SETMASK, &(uint64_t){ 0 }, NULL, 8);
}

static void pending(void)
{
	uint64_t all = ALL, some = TRAP | USR1, trap = TRAP, usr1 = USR1, old = 7;
	mask("some", SIG_BLOCK, &some, NULL, 8);
	kill(getpid(), SIGUSR1);
	raise(SIGTRAP);
	mask("all, some of them pending", SIG_BLOCK, &all, &old, 8);
	printf("old %llx\n", (unsigned long long)old);
	mask("but the signal", SIG_UNBLOCK, &usr1, &old, 8);
	printf("old %llx\n", (unsigned long long)old);
	raise(SIGUSR1);
	mask("but the trap", SIG_UNBLOCK, &trap, &old, 8);
	printf("old %llx\n", (unsigned long long)old);
	kill(getpid(), SIGTRAP);
	mask("all again", SIG_SETMASK, &all, &old, 8);
	kill(getpid(), SIGTRAP);
	kill(getpid(), SIGUSR1);
	mask("nothing", SIG_SETMASK, &(uint64_t){ 0 }, NULL, 8);
}

/* The action is another one though the call fails. */
static void acts(void)
{
	struct {
		void *handler;
		uint64_t flags;
		void *restorer;
		uint64_t mask;
	} act, none = { 0 };
	long r = syscall(SYS_rt_sigaction, SIGTRAP, NULL, &act, 8L);
	printf("asked: %ld\n", r);
	r = syscall(SYS_rt_sigaction, SIGTRAP, &none, 1L, 8L);
	printf("old has nowhere to go: %ld\n", r);
	none = act;
	r = syscall(SYS_rt_sigaction, SIGTRAP, 1L, &act, 8L);
	printf("new is not there: %ld\n", r);
	r = syscall(SYS_rt_sigaction, SIGTRAP, NULL, &act, 8L);
	printf("asked: %ld %d\n", r, act.handler == NULL);
	r = syscall(SYS_rt_sigaction, SIGTRAP, &none, &none, 8L);
	printf("in one place: %ld %d\n", r, none.handler == NULL);
	raise(SIGTRAP);
	printf("traps %d\n", (int)traps);
}

static volatile int sent, over;

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* The next one comes when the first thread may just be about to block it. */
static void *sender(void *arg)
{
	(void)arg;
	for (; sent < 400; sent++) {
		long at = now() + sent * 37 % 200;
		while (now() < at)
			;
		kill(getpid(), SIGUSR1);
		for (at = now() + 3000000; handled <= sent && now() < at;)
			sched_yield();
		if (handled <= sent) {
			printf("signal %d stays where it is\n", sent);
			break;
		}
	}
	over = 1;
	return NULL;
}

static void *taker(void *arg)
{
	sigset_t none;
	(void)arg;
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	while (!over)
		nanosleep(&(struct timespec){ .tv_sec = 20 }, NULL);
	return NULL;
}

/* The first thread is whom the kernel sends it to if it does not block it. */
static void another_takes_it(void)
{
	pthread_t t, s;
	sigset_t all, none;
	sigfillset(&all);
	sigemptyset(&none);
	pthread_create(&t, NULL, taker, NULL);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	pthread_create(&s, NULL, sender, NULL);
	while (!over) {
		int before = handled;
		pthread_sigmask(SIG_UNBLOCK, &all, NULL);
		pthread_sigmask(SIG_BLOCK, &all, NULL);
		while (!over && handled == before)
			sched_yield();
	}
	pthread_join(s, NULL);
	pthread_kill(t, SIGUSR1);
	pthread_join(t, NULL);
	printf("%d signals%s\n", sent, handled < sent ? ", not all handled" : "");
	handled = sent = over = 0;
	pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static void refused(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIG_SETMASK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };
	uint64_t all = ALL, old = 7;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
	mask("refused", SIG_SETMASK, &all, &old, 8);
	printf("old %llx\n", (unsigned long long)old);
	mask("not refused", SIG_BLOCK, &all, &old, 8);
	mask("refused", SIG_SETMASK, &(uint64_t){ 0 }, &old, 8);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	fails();
	for (int i = 0; i < 2; i++) { /* without a handler of SIGTRAP, and with one */
		struct sigaction sa = { .sa_handler = handler };
		sigaction(SIGUSR1, &sa, NULL);
		if (i == 1)
			sigaction(SIGTRAP, &sa, NULL), acts(), fails(), pending();
		another_takes_it();
	}
	refused();
	return 0;
}
