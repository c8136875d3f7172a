/*
 * Signals and faults in a program with threads: to one, to all, to whoever waits; timers, stops of
 * the whole group, and cancellation, which the C library does by a signal.
 */
#include "threads.h"
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static pid_t handled_by[8];
static atomic_int handled;
static __thread volatile sig_atomic_t mine;

static void on_signal(int sig, siginfo_t *info, void *context)
{
	int n = atomic_fetch_add(&handled, 1);

	if (n < 8)
		handled_by[n] = tid();
	mine++;
	futex(&handled, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void handle(int sig, int flags)
{
	struct sigaction sa = { 0 };

	sa.sa_sigaction = on_signal;
	sa.sa_flags = SA_SIGINFO | flags;
	sigaction(sig, &sa, NULL);
}

static void block(int how, int sig)
{
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, sig);
	pthread_sigmask(how, &s, NULL);
}

/* Directed at threads: each handles its own, asleep, calling, or computing. */
void case_kill(void)
{
	static atomic_int ready, quit;
	pthread_t t[3];
	pid_t gone;

	void *target(void *arg)
	{
		volatile long n = 0;
		add(&ready, 1);
		while (!atomic_load(&quit)) {
			if ((long)arg == 0)
				futex(&quit, FUTEX_WAIT, 0, NULL, NULL, 0);
			else if ((long)arg == 1)
				syscall(SYS_getppid);
			else
				compute(&n);
		}
		return (void *)(long)mine;
	}
	handle(SIGUSR1, 0);
	atomic_store(&ready, 0);
	atomic_store(&quit, 0);
	atomic_store(&handled, 0);
	for (long i = 0; i < 3; i++)
		start(&t[i], target, (void *)i);
	until(&ready, 3);
	for (int i = 0; i < 90; i++) {
		expect(pthread_kill(t[i % 3], SIGUSR1) == 0);
		until(&handled, i + 1);
	}
	tell(&quit, 1);
	for (int i = 0; i < 3; i++)
		expect((long)join(t[i]) == 30);
	/* A thread that is gone. */
	void *id(void *arg)
	{
		return (void *)(long)tid();
	}
	start(&t[0], id, NULL);
	gone = (pid_t)(long)join(t[0]);
	for (int i = 0; i < 1000 && syscall(SYS_tgkill, getpid(), gone, 0) == 0; i++)
		pause_ms(1);
	expect(syscall(SYS_tgkill, getpid(), gone, SIGUSR1) == -1 && errno == ESRCH);
	expect(syscall(SYS_tgkill, getpid(), getpid(), 99) == -1 && errno == EINVAL);
	say("%d handled", handled);
}

/* SIGTRAP, which debuggers use themselves: some threads block it and make calls of all kinds,
 * others wait for it in all ways. */
void case_trap(void)
{
	static atomic_int ready, quit;
	pthread_t t[4], b[3];

	void *blocker(void *arg)
	{
		pthread_t u;
		sigset_t s;
		sigemptyset(&s);
		sigaddset(&s, SIGTRAP);
		pthread_sigmask(SIG_BLOCK, &s, NULL);
		add(&ready, 1);
		while (!atomic_load(&quit)) {
			void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			munmap(p, 4096);
			if ((long)arg == 1)
				pause_ms(1);
			if ((long)arg == 2 && pthread_create(&u, NULL, nothing, NULL) == 0)
				join(u);
		}
		return NULL;
	}
	void *waiter(void *arg)
	{
		sigset_t s;
		volatile long n = 0;
		sigemptyset(&s);
		sigaddset(&s, SIGTRAP);
		pthread_sigmask((long)arg < 2 ? SIG_BLOCK : SIG_UNBLOCK, &s, NULL);
		pthread_sigmask(SIG_BLOCK, NULL, &s);
		sigdelset(&s, SIGTRAP);
		add(&ready, 1);
		while ((long)arg < 2 ? mine < 25 : !atomic_load(&quit)) {
			if ((long)arg == 0)
				expect(sigsuspend(&s) == -1 && errno == EINTR);
			else if ((long)arg == 1)
				expect(ppoll(NULL, 0, NULL, &s) == -1 && errno == EINTR);
			else if ((long)arg == 2)
				futex(&quit, FUTEX_WAIT, 0, NULL, NULL, 0);
			else
				compute(&n);
		}
		return (void *)(long)mine;
	}
	handle(SIGTRAP, 0);
	atomic_store(&ready, 0);
	atomic_store(&quit, 0);
	atomic_store(&handled, 0);
	for (long i = 0; i < 4; i++)
		start(&t[i], waiter, (void *)i);
	for (long i = 0; i < 3; i++)
		start(&b[i], blocker, (void *)i);
	until(&ready, 7);
	for (int i = 0; i < 100; i++) {
		expect(pthread_kill(t[i % 4], SIGTRAP) == 0);
		until(&handled, i + 1);
	}
	tell(&quit, 1);
	for (int i = 0; i < 4; i++)
		expect((long)join(t[i]) == 25);
	for (int i = 0; i < 3; i++)
		join(b[i]);
	signal(SIGTRAP, SIG_DFL);
	say("%d handled", handled);
}

/* To the process: taken by the only thread that does not block it. */
void case_process(void)
{
	static atomic_int open_for, asked;
	static pid_t ids[4];
	pthread_t t[4];

	void *taker(void *arg)
	{
		long me = (long)arg;
		ids[me] = tid();
		add(&asked, 1);
		for (int i = 0; i < 40; i++) {
			if (i % 4 != me)
				continue;
			until(&open_for, i);
			block(SIG_UNBLOCK, SIGUSR2);
			until(&handled, i + 1);
			block(SIG_BLOCK, SIGUSR2);
			tell(&open_for, i + 1);
		}
		return (void *)(long)mine;
	}
	handle(SIGUSR2, SA_RESTART);
	block(SIG_BLOCK, SIGUSR2);
	atomic_store(&handled, 0);
	atomic_store(&asked, 0);
	atomic_store(&open_for, -1);
	for (long i = 0; i < 4; i++)
		start(&t[i], taker, (void *)i);
	until(&asked, 4);
	tell(&open_for, 0);
	for (int i = 0; i < 40; i++) {
		union sigval v = { .sival_int = i };
		until(&open_for, i);
		expect(sigqueue(getpid(), SIGUSR2, v) == 0);
		until(&open_for, i + 1);
	}
	for (int i = 0; i < 4; i++)
		expect((long)join(t[i]) == 10);
	for (int i = 0; i < 8; i++)
		expect(handled_by[i] == ids[i % 4]);
	block(SIG_UNBLOCK, SIGUSR2);
	say("%d handled", handled);
}

void case_sigwait(void)
{
	pthread_t t, u;
	sigset_t set, pending;
	struct timespec soon = { 0, 2000000 };

	/* Real-time signals queue, and keep their order. */
	void *waiter(void *arg)
	{
		siginfo_t info;
		sigset_t s;
		long hash = 0;
		sigemptyset(&s);
		sigaddset(&s, SIGRTMIN + 1);
		sigaddset(&s, SIGRTMIN + 2);
		for (int i = 0; i < 60; i++) {
			int sig;
			while ((sig = sigwaitinfo(&s, &info)) < 0)
				expect(errno == EINTR);
			hash = (hash * 31 + info.si_value.sival_int + sig) % 1000003;
		}
		return (void *)hash;
	}
	void *reader(void *arg)
	{
		struct signalfd_siginfo info;
		sigset_t s;
		long n = 0;
		sigemptyset(&s);
		sigaddset(&s, SIGRTMIN + 3);
		int fd = signalfd(-1, &s, 0);
		while (n < 20 && read(fd, &info, sizeof(info)) == sizeof(info))
			n += info.ssi_signo == (unsigned)SIGRTMIN + 3;
		close(fd);
		return (void *)n;
	}
	sigemptyset(&set);
	for (int i = 1; i <= 3; i++)
		sigaddset(&set, SIGRTMIN + i);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	start(&t, waiter, NULL);
	start(&u, reader, NULL);
	for (int i = 0; i < 60; i++) {
		union sigval v = { .sival_int = i };
		expect(sigqueue(getpid(), SIGRTMIN + 1, v) == 0);
		if (i % 3 == 0)
			expect(pthread_sigqueue(u, SIGRTMIN + 3, v) == 0);
		if (i % 7 == 0)
			sched_yield();
	}
	long hash = (long)join(t), n = (long)join(u);
	expect(sigtimedwait(&set, NULL, &soon) == -1 && errno == EAGAIN);
	expect(pthread_kill(pthread_self(), SIGRTMIN + 2) == 0);
	expect(sigpending(&pending) == 0 && sigismember(&pending, SIGRTMIN + 2) == 1);

	/* What is pending for this thread is not for another; masks are inherited. */
	void *other(void *arg)
	{
		sigset_t p, m;
		sigpending(&p);
		pthread_sigmask(SIG_BLOCK, NULL, &m);
		return (void *)(long)(sigismember(&p, SIGRTMIN + 2) * 2 +
				      sigismember(&m, SIGRTMIN + 2));
	}
	start(&t, other, NULL);
	expect((long)join(t) == 1);
	expect(sigtimedwait(&set, NULL, &soon) == SIGRTMIN + 2);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	say("%ld %ld", hash, n);
}

void case_eintr(void)
{
	static atomic_int ready;
	static int fds[2];
	static volatile pid_t id;
	pthread_t t;

	void *sleeper(void *arg)
	{
		char c = 0;
		long n, how = (long)arg;
		struct timespec ts = { 60, 0 };
		struct pollfd p = { .fd = fds[0], .events = POLLIN };
		id = tid();
		tell(&ready, 1);
		if (how == 0)
			n = read(fds[0], &c, 1);
		else if (how == 1)
			n = clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR ? -1 : 0,
			errno = EINTR;
		else if (how == 2)
			n = poll(&p, 1, -1);
		else
			n = (long)futex(&finished, FUTEX_WAIT, atomic_load(&finished), NULL, NULL,
					0);
		return (void *)(n == -1 ? -(long)errno : n * 1000 + c);
	}
	expect(pipe(fds) == 0);
	for (int flags = 0; flags < 2; flags++)
		for (long how = 0; how < 4; how++) {
			bool restarts = flags && (how == 0 || how == 3);
			atomic_store(&ready, 0);
			atomic_store(&handled, 0);
			handle(SIGUSR1, flags ? SA_RESTART : 0);
			start(&t, sleeper, (void *)how);
			until(&ready, 1);
			until_asleep(id);
			pthread_kill(t, SIGUSR1);
			until(&handled, 1);
			if (restarts) {
				until_asleep(id);
				if (how == 0)
					expect(write(fds[1], "x", 1) == 1);
				else
					while (futex(&finished, FUTEX_WAKE, 1, NULL, NULL, 0) != 1)
						sched_yield();
			}
			say("flags %d call %ld: %ld", flags, how, (long)join(t));
		}
	close(fds[0]);
	close(fds[1]);
}

/* Faults in several threads at once; each is its own thread's. */
static __thread sigjmp_buf escape;
static __thread char *guard;
static __thread long faults;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	faults += sig == SIGSEGV && info->si_addr == guard + 16 ? 1 : 1000000;
	if (faults % 2)
		siglongjmp(escape, 1);
	mprotect(guard, 4096, PROT_READ | PROT_WRITE);
}

void case_fault(void)
{
	struct sigaction sa = { 0 };

	void *faulter(void *arg)
	{
		stack_t ss = { .ss_sp = malloc(65536), .ss_size = 65536 },
			off = { .ss_flags = SS_DISABLE };
		sigaltstack(&ss, NULL);
		guard = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (volatile int i = 0; i < 200; i++) {
			if (sigsetjmp(escape, 1) == 0) {
				*(volatile char *)(guard + 16) = 1;
				mprotect(guard, 4096, PROT_READ);
			}
		}
		sigaltstack(&off, NULL);
		munmap(guard, 4096);
		free(ss.ss_sp);
		return (void *)faults;
	}
	sa.sa_sigaction = on_fault;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigaction(SIGSEGV, &sa, NULL);
	say("%ld", together(4, faulter));
	signal(SIGSEGV, SIG_DFL);
}

void case_timer(void)
{
	static atomic_int ticks;
	static const struct itimerspec once = { .it_value = { 0, 2000000 } },
				       often = { .it_value = { 0, 1000000 },
						 .it_interval = { 0, 1000000 } };
	struct sigevent ev = { 0 };
	timer_t timer;
	pthread_t t;

	void in_thread(union sigval v)
	{
		add(&ticks, v.sival_int);
	}
	atomic_store(&ticks, 0);
	ev.sigev_notify = SIGEV_THREAD;
	ev.sigev_notify_function = in_thread;
	ev.sigev_value.sival_int = 17;
	for (int i = 0; i < 5; i++) {
		expect(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0);
		expect(timer_settime(timer, 0, &once, NULL) == 0);
		until(&ticks, 17 * (i + 1));
		expect(timer_delete(timer) == 0);
	}
	/* A timer of one thread. */
	void *ticked(void *arg)
	{
		struct sigevent e = { 0 };
		timer_t mine_only;
		e.sigev_notify = SIGEV_THREAD_ID;
		e.sigev_signo = SIGRTMIN + 4;
		e._sigev_un._tid = tid();
		expect(timer_create(CLOCK_MONOTONIC, &e, &mine_only) == 0);
		expect(timer_settime(mine_only, 0, &often, NULL) == 0);
		while (mine < 10)
			sched_yield();
		timer_delete(mine_only);
		return (void *)(long)(mine >= 10);
	}
	handle(SIGRTMIN + 4, 0);
	expect(together(3, ticked) == 3 && mine == 0);
	/* alarm(2), while all but one block it. */
	void *alarmed(void *arg)
	{
		block(SIG_UNBLOCK, SIGALRM);
		struct itimerval v = { .it_value = { 0, 2000 } };
		setitimer(ITIMER_REAL, &v, NULL);
		while (!mine)
			pause_ms(1);
		return (void *)(long)mine;
	}
	handle(SIGALRM, 0);
	block(SIG_BLOCK, SIGALRM);
	start(&t, alarmed, NULL);
	expect((long)join(t) == 1);
	block(SIG_UNBLOCK, SIGALRM);
	say("%d", ticks);
}

/* The whole group stops and goes on, whatever its threads do. */
void case_group(void)
{
	static atomic_int quit;
	pthread_t t[3];
	int status;
	long sum = 0;

	void *worker(void *arg)
	{
		volatile long n = 0;
		while (!atomic_load(&quit)) {
			if ((long)arg == 0)
				futex(&quit, FUTEX_WAIT, 0, NULL, NULL, 0);
			else if ((long)arg == 1)
				getppid();
			else
				compute(&n);
		}
		return arg;
	}
	handle(SIGCONT, SA_RESTART);
	for (long i = 0; i < 3; i++)
		start(&t[i], worker, (void *)(i + 1));
	atomic_store(&handled, 0);
	for (int i = 0; i < 5; i++) {
		pid_t parent = getpid(), pid = fork();
		if (pid == 0) {
			kill(parent, SIGSTOP);
			usleep(20000);
			kill(parent, SIGCONT);
			_exit(i);
		}
		until(&handled, i + 1);
		expect(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == i);
	}
	tell(&quit, 1);
	for (int i = 0; i < 3; i++)
		sum += (long)join(t[i]);
	signal(SIGCONT, SIG_DFL);
	say("%ld, continued %d times", sum, handled);
}

/* ---- cancellation ---- */

static void cleaned(void *arg)
{
	shared = shared * 10 + (long)arg;
}

void case_cancel(void)
{
	static int fds[2];
	static atomic_int ready;
	pthread_t t;

	void *blocked(void *arg)
	{
		char c;
		pthread_cleanup_push(cleaned, (void *)1);
		pthread_cleanup_push(cleaned, (void *)2);
		tell(&ready, 1);
		if (arg)
			pthread_mutex_lock(&lock), pthread_cond_wait(&changed, &lock);
		else
			read(fds[0], &c, 1);
		pthread_cleanup_pop(0);
		pthread_cleanup_pop(0);
		return NULL;
	}
	void *disabled(void *arg)
	{
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		tell(&ready, 1);
		until(&ready, 2);
		pause_ms(1);
		shared += 5;
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		pthread_testcancel();
		shared += 1000;
		return NULL;
	}
	void *asynchronous(void *arg)
	{
		volatile long n = 0;
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
		tell(&ready, 1);
		for (;;)
			compute(&n);
		return NULL;
	}
	expect(pipe(fds) == 0);
	for (long i = 0; i < 20; i++) {
		shared = 0;
		atomic_store(&ready, 0);
		start(&t, blocked, (void *)(i & 1));
		until(&ready, 1);
		if (i & 2)
			pause_ms(1);
		pthread_cancel(t);
		expect(join(t) == PTHREAD_CANCELED && shared == 21);
		if (i & 1)
			pthread_mutex_unlock(&lock), pthread_mutex_init(&lock, NULL);
	}
	shared = 0;
	atomic_store(&ready, 0);
	start(&t, disabled, NULL);
	until(&ready, 1);
	pthread_cancel(t);
	tell(&ready, 2);
	expect(join(t) == PTHREAD_CANCELED && shared == 5);
	for (int i = 0; i < 10; i++) {
		atomic_store(&ready, 0);
		start(&t, asynchronous, NULL);
		until(&ready, 1);
		pthread_cancel(t);
		expect(join(t) == PTHREAD_CANCELED);
	}
	close(fds[0]);
	close(fds[1]);
	say("done");
}
