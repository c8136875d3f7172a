/*
 * More that the threads of mob.c do: faults, jumps out of handlers, code that changes, children of
 * all kinds, filters, and what else a kernel has.
 */
#define _GNU_SOURCE
#include "mob.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define CODE_SIZE 6

static volatile long sum;

static char *map(size_t size, int prot)
{
	char *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("map");
	return p;
}

void write_code(void *p, int number)
{
	/* mov eax, number; ret */
	const unsigned char text[CODE_SIZE] = { 0xb8, (unsigned char)number, 0, 0, 0, 0xc3 };
	memcpy(p, text, sizeof(text));
}

int call(const void *p)
{
	return ((int (*)(void))(uintptr_t)p)();
}

/* ---- faults and jumps ----------------------------------------------------------------------- */

static __thread sigjmp_buf *out;
static __thread char *guarded;
static __thread volatile unsigned hits;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	char *at = info->si_addr;
	(void)context;
	hits++;
	if (guarded && at >= guarded && at < guarded + PAGE) {
		if (mprotect(guarded, PAGE, PROT_READ | PROT_WRITE))
			fail("guard");
	} else if (out) {
		siglongjmp(*out, sig);
	} else {
		fail("a fault that nobody expects");
	}
}

static void on_jump(int sig)
{
	if (out)
		siglongjmp(*out, sig);
}

static void beyond_a_file(void)
{
	int fd = memfd_create("empty", MFD_CLOEXEC);
	volatile char *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	(void)*p;
}

static void a_fault(unsigned *of)
{
	static const int signals[] = { SIGSEGV, SIGFPE, SIGILL, SIGBUS, SIGSEGV };
	volatile unsigned which = draw(of, 5);
	volatile int zero = 0;
	sigjmp_buf here;
	out = &here;
	int got = sigsetjmp(here, 1);
	if (!got) {
		if (which == 0)
			*(volatile int *)(uintptr_t)8 = 1;
		else if (which == 1)
			zero = 7 / zero;
		else if (which == 2)
			__asm__ volatile("ud2");
		else if (which == 3)
			beyond_a_file();
		else
			__asm__ volatile("hlt");
		fail("no fault");
	}
	out = NULL;
	if (got != signals[which])
		fail("fault");
}

/* As a garbage collector's write barrier: the store that faulted is made again. */
static void a_guard(unsigned *of)
{
	unsigned n = 1 + draw(of, 3);
	char *p = map(PAGE, PROT_NONE);
	guarded = p;
	hits = 0;
	for (unsigned i = 0; i < n; i++) {
		void *to = p + 100;
		long count = 50;
		p[i] = 3;
		if (p[i] != 3 || mprotect(p, PAGE, PROT_NONE))
			fail("guarded store");
		__asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(7) : "memory");
		if (p[149] != 7 || mprotect(p, PAGE, PROT_NONE))
			fail("guarded string");
	}
	if (hits != 2 * n)
		fail("guard");
	guarded = NULL;
	munmap(p, PAGE);
}

static void another_stack(unsigned *of)
{
	stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 }, before;
	volatile bool jumps = draw(of, 2);
	sigjmp_buf here;
	sigaltstack(&stack, &before);
	if (!sigsetjmp(here, 1)) {
		out = jumps ? &here : NULL;
		pthread_kill(pthread_self(), SIGHUP);
		if (jumps)
			fail("jump");
	}
	out = NULL;
	stack.ss_flags = SS_DISABLE;
	if (sigaltstack(&stack, NULL) || sigaltstack(&before, NULL))
		fail("stack");
	free(stack.ss_sp);
}

/* ---- code ------------------------------------------------------------------------------------ */

static void changing_code(unsigned *of)
{
	char *p = map(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC), *at = p + draw(of, 4000);
	for (int i = 0; i < 20; i++) {
		write_code(at, i);
		if (call(at) != i)
			fail("changing code");
	}
	munmap(p, PAGE);
}

/* The threads change a function under each other. */
static unsigned char *common;

static void common_code(unsigned *of)
{
	int value = (int)draw(of, 1000) * 0x10001;
	for (int i = 0; i < 5; i++) {
		__atomic_store_n((int *)(void *)(common + 4), value, __ATOMIC_SEQ_CST);
		int got = call(common + 3);
		if ((got & 0xffff) != (got >> 16 & 0xffff))
			fail("common code");
	}
}

/* As a compiler does that may not have pages both writable and executable. */
static void twice_mapped(unsigned *of)
{
	int fd = memfd_create("code", MFD_CLOEXEC);
	if (ftruncate(fd, 2 * PAGE))
		fail("file of code");
	char *w = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
	     *x = mmap(NULL, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	bool early = draw(of, 2);
	if (early)
		close(fd);
	for (int i = 0; i < 8; i++) {
		write_code(w + PAGE - 3, i);
		if (call(x + PAGE - 3) != i)
			fail("code mapped twice");
	}
	munmap(w, 2 * PAGE);
	munmap(x, 2 * PAGE);
	if (!early)
		close(fd);
}

static void moved_code(unsigned *of)
{
	char *p = map(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	size_t size = (1 + draw(of, 40)) * PAGE;
	write_code(p, 5);
	if (call(p) != 5)
		fail("code");
	p = mremap(p, PAGE, size, MREMAP_MAYMOVE);
	if (p == MAP_FAILED || call(p) != 5)
		fail("moved code");
	write_code(p, 6);
	if (call(p) != 6)
		fail("changed code");
	munmap(p, size);
}

/* ---- children -------------------------------------------------------------------------------- */

static void child_of_vfork(unsigned *of)
{
	bool execs = draw(of, 2);
	pid_t pid = vfork();
	if (!pid) {
		if (execs)
			execl("/bin/true", "true", (char *)NULL);
		_exit(4);
	}
	wait_for(pid, execs ? 0 : 4 << 8);
}

/* So that it does not outlive a parent that is killed. */
static void with_its_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

static void traced_child(unsigned *of)
{
	bool steps = draw(of, 2);
	int status, n = 0;
	pid_t parent = getpid(), pid = fork();
	if (!pid) {
		with_its_parent(parent);
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		if (!steps)
			execl("/bin/true", "true", (char *)NULL);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		fail("traced child");
	while (WIFSTOPPED(status)) {
		ptrace(steps && n++ < 20 ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, 0, 0);
		if (waitpid(pid, &status, 0) != pid)
			fail("traced child");
	}
	if (status)
		fail("traced child's end");
}

static void stopped_child(unsigned *of)
{
	bool exits = draw(of, 2);
	int status;
	pid_t parent = getpid(), pid = fork();
	if (!pid) {
		with_its_parent(parent);
		raise(SIGSTOP);
		if (exits)
			_exit(6);
		forever(NULL);
	}
	if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
		fail("stopped child");
	kill(pid, SIGCONT);
	if (!exits) {
		if (waitpid(pid, &status, WCONTINUED) != pid || !WIFCONTINUED(status))
			fail("continued child");
		kill(pid, SIGTERM);
	}
	wait_for(pid, exits ? 6 << 8 : SIGTERM);
}

static void child_that_reads(unsigned *of)
{
	static char text[] = "what the child reads";
	char got[sizeof(text)];
	struct iovec to = { got, sizeof(got) }, from = { text, sizeof(text) };
	pid_t parent = getpid(), pid = fork();
	(void)of;
	if (!pid)
		_exit(process_vm_readv(parent, &to, 1, &from, 1, 0) == sizeof(text) &&
				      !strcmp(got, text)
			      ? 2
			      : 7);
	wait_for(pid, 2 << 8);
}

static void *becomes_another(void *arg)
{
	execl("/bin/true", "true", (char *)NULL);
	_exit(9);
	return arg;
}

pthread_mutex_t mob_loading = PTHREAD_MUTEX_INITIALIZER;

pid_t fork_for_threads(void)
{
	pthread_mutex_lock(&mob_loading);
	pid_t pid = fork();
	pthread_mutex_unlock(&mob_loading);
	return pid;
}

/* A thread that is not the first becomes another program, perhaps when the first has ended. */
static void exec_in_thread(unsigned *of)
{
	unsigned which = draw(of, 3);
	pthread_t thread;
	pid_t pid = fork_for_threads();
	if (!pid) {
		if (which)
			pthread_create(&thread, NULL, forever, NULL);
		pthread_create(&thread, NULL, becomes_another, NULL);
		if (which == 2)
			syscall(SYS_exit, 0);
		forever(NULL);
	}
	wait_for(pid, 0);
}

/* A child with threads ends in the midst of what they do. */
static void child_with_threads(unsigned *of)
{
	unsigned how = draw(of, 4);
	pthread_t thread;
	pid_t pid = fork_for_threads();
	if (!pid) {
		for (int i = 0; i < 3; i++)
			pthread_create(&thread, NULL, i & 1 ? forever : nothing, NULL);
		if (how == 1)
			kill(getpid(), SIGKILL);
		if (how == 2)
			kill(getpid(), SIGTERM);
		if (how == 3 && !fork())
			_exit(0);
		_exit(5);
	}
	wait_for(pid, how == 1 ? SIGKILL : how == 2 ? SIGTERM : 5 << 8);
}

static void orphan(unsigned *of)
{
	int fd[2];
	char c = 0;
	(void)of;
	if (pipe2(fd, O_CLOEXEC))
		fail("pipe");
	pid_t pid = fork();
	if (!pid) {
		if (!fork()) {
			setsid();
			_exit(write(fd[1], "o", 1) != 1);
		}
		_exit(2);
	}
	wait_for(pid, 2 << 8);
	if (read(fd[0], &c, 1) != 1 || c != 'o')
		fail("orphan");
	close(fd[0]);
	close(fd[1]);
}

static void several_programs(unsigned *of)
{
	char *argv[] = { "true", NULL };
	unsigned n = 1 + draw(of, 4);
	bool good[4];
	pid_t pid[4];
	for (unsigned i = 0; i < n; i++) {
		good[i] = draw(of, 4);
		if (posix_spawn(&pid[i], good[i] ? "/bin/true" : "/bin/false", NULL, NULL, argv,
				environ))
			fail("spawn");
	}
	for (unsigned i = 0; i < n; i++)
		wait_for(pid[i], good[i] ? 0 : 1 << 8);
}

static void program_in_memory(unsigned *of)
{
	static char block[65536];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	char *argv[] = { "true", NULL };
	int in = open("/bin/true", O_RDONLY | O_CLOEXEC),
	    fd = memfd_create("true", draw(of, 2) ? MFD_CLOEXEC : 0);
	ssize_t n;
	pthread_mutex_lock(&lock);
	while ((n = read(in, block, sizeof(block))) > 0)
		if (write(fd, block, (size_t)n) != n)
			fail("copy");
	pthread_mutex_unlock(&lock);
	close(in);
	pid_t pid = fork();
	if (!pid) {
		fexecve(fd, argv, environ);
		_exit(9);
	}
	wait_for(pid, 0);
	close(fd);
}

static int in_this_memory(void *arg)
{
	__atomic_store_n((int *)arg, 1, __ATOMIC_SEQ_CST);
	return 3;
}

static void child_in_this_memory(unsigned *of)
{
	int *flag = calloc(1, sizeof(*flag)), status,
	    flags = CLONE_VM | (draw(of, 2) ? CLONE_FILES : 0) | (draw(of, 2) ? SIGCHLD : 0);
	char *stack = malloc(65536);
	pid_t pid = clone(in_this_memory, stack + 65536, flags, flag);
	if (pid < 0 || waitpid(pid, &status, __WALL) != pid || status != 3 << 8 || !*flag)
		fail("child in this memory");
	free(stack);
	free(flag);
}

static void shared_memory(unsigned *of)
{
	volatile int *p =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int n = 10 + (int)draw(of, 100);
	pid_t pid = fork();
	for (int i = 0; i < n; i++)
		__atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
	if (!pid)
		_exit(1);
	wait_for(pid, 1 << 8);
	if (*p != 2 * n)
		fail("shared memory");
	munmap((void *)(uintptr_t)p, PAGE);
}

static void not_for_children(unsigned *of)
{
	bool wiped = draw(of, 2);
	char *p = map(4 * PAGE, PROT_READ | PROT_WRITE);
	memset(p, 1, 4 * PAGE);
	if (madvise(p, PAGE, wiped ? MADV_WIPEONFORK : MADV_DONTFORK))
		fail("advice");
	pid_t pid = fork();
	if (!pid) {
		if (!wiped)
			p = mmap(p, PAGE, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		_exit(p == MAP_FAILED || p[0] || p[PAGE] != 1);
	}
	wait_for(pid, 0);
	munmap(p, 4 * PAGE);
}

static long deep(long n)
{
	volatile char room[2000];
	room[0] = (char)n;
	return n ? room[0] + deep(n - 1) : 0;
}

static void deep_stack(unsigned *of)
{
	sum += deep(draw(of, 400));
	pid_t pid = fork();
	if (!pid) {
		deep(700);
		_exit(1);
	}
	wait_for(pid, 1 << 8);
}

/* ---- threads and signals --------------------------------------------------------------------- */

static void from_timer(union sigval value)
{
	__atomic_store_n((int *)value.sival_ptr, 1, __ATOMIC_SEQ_CST);
}

static void timer_with_thread(unsigned *of)
{
	int *flag = calloc(1, sizeof(*flag)); /* stays: the timer's thread may come once more */
	struct sigevent event = { .sigev_notify = SIGEV_THREAD,
				  .sigev_notify_function = from_timer,
				  .sigev_value.sival_ptr = flag };
	struct itimerspec soon = { .it_value.tv_nsec = 100000 };
	timer_t timer;
	(void)of;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer)) {
		if (errno == EAGAIN) /* see make_thread() */
			forever(NULL);
		fail("timer");
	}
	if (timer_settime(timer, 0, &soon, NULL))
		fail("timer");
	while (!__atomic_load_n(flag, __ATOMIC_SEQ_CST))
		sched_yield();
	timer_delete(timer);
}

static void *locks(void *mutex)
{
	pthread_mutex_lock(mutex);
	return NULL;
}

static void robust_mutex(unsigned *of)
{
	pthread_mutexattr_t how;
	pthread_mutex_t mutex;
	pthread_t thread;
	int got;
	pthread_mutexattr_init(&how);
	pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
	if (draw(of, 2))
		pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&mutex, &how);
	make_thread(&thread, locks, &mutex);
	while (!(got = pthread_mutex_lock(&mutex))) {
		pthread_mutex_unlock(&mutex);
		sched_yield();
	}
	if (got != EOWNERDEAD || pthread_mutex_consistent(&mutex))
		fail("robust mutex");
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
}

static void wait_on_condition(unsigned *of)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += draw(of, 3000000);
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_mutex_lock(&mutex);
	while (pthread_cond_timedwait(&condition, &mutex, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&mutex);
}

static void *has_files_of_its_own(void *arg)
{
	if (unshare(CLONE_FILES | CLONE_FS))
		fail("unshare");
	close(open("/dev/null", O_RDONLY | O_CLOEXEC));
	return arg;
}

static void files_of_its_own(unsigned *of)
{
	pthread_t thread;
	(void)of;
	make_thread(&thread, has_files_of_its_own, NULL);
	pthread_join(thread, NULL);
}

static void waited_for(unsigned *of)
{
	struct timespec soon = { .tv_nsec = 1000000 };
	sigset_t all, one, others, before;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pthread_kill(pthread_self(), SIGCONT);
	pthread_kill(pthread_self(), SIGPROF);
	sigemptyset(&one);
	sigaddset(&one, SIGPROF);
	others = all;
	sigdelset(&others, SIGPROF);
	if (draw(of, 2))
		sigsuspend(&others);
	else if (sigtimedwait(&one, NULL, &soon) != SIGPROF)
		fail("signal waited for");
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void signal_to_another(unsigned *of)
{
	static const int signals[] = { SIGUSR1, SIGUSR2, SIGPROF, SIGVTALRM };
	int sig = signals[draw(of, 4)];
	pid_t tid = __atomic_load_n(&mob_tids[draw(of, mob_n)], __ATOMIC_SEQ_CST);
	if (tid)
		syscall(SYS_tgkill, getpid(), tid, sig);
}

static void descriptors(unsigned *of)
{
	int event = eventfd(0, EFD_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	struct itimerspec soon = { .it_value.tv_nsec = 50000 };
	uint64_t in = 5, got = 0;
	struct signalfd_siginfo info;
	sigset_t one, before;
	if (write(event, &in, 8) != 8 || read(event, &got, 8) != 8 || got != in)
		fail("eventfd");
	timerfd_settime(timer, 0, &soon, NULL);
	if (read(timer, &got, 8) != 8)
		fail("timerfd");
	close(event);
	close(timer);
	sigemptyset(&one);
	sigaddset(&one, SIGWINCH);
	pthread_sigmask(SIG_BLOCK, &one, &before);
	int fd = signalfd(-1, &one, SFD_CLOEXEC);
	pthread_kill(pthread_self(), SIGWINCH);
	if (draw(of, 2)
		    ? sigwaitinfo(&one, NULL) != SIGWINCH
		    : read(fd, &info, sizeof(info)) != sizeof(info) || info.ssi_signo != SIGWINCH)
		fail("signalfd");
	close(fd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- what else a kernel has ------------------------------------------------------------------ */

/* A call that does not exist fails otherwise from then on, in this thread or in all. */
static void a_filter(unsigned *of)
{
	enum { NR = 900, ERROR = 77 };
	struct sock_filter filter[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
					BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NR, 0, 1),
					BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ERROR),
					BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	if (draw(of, 8)) /* there may not be many */
		return;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	long got = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			   draw(of, 2) ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program);
	if (got < 0 || (!got && (syscall(NR) != -1 || errno != ERROR)))
		fail("filter");
}

static void clocks(unsigned *of)
{
	unsigned a, b, c, d, processor;
	struct timespec before, after;
	(void)of;
	clock_gettime(CLOCK_MONOTONIC, &before);
	uint64_t stamp = __rdtsc();
	__cpuid_count(7, 0, a, b, c, d);
	sum += (long)(a ^ b ^ c ^ d);
	getcpu(&processor, NULL);
	if (__rdtsc() < stamp)
		fail("time stamp");
	clock_gettime(CLOCK_MONOTONIC, &after);
	if (after.tv_sec < before.tv_sec ||
	    (after.tv_sec == before.tv_sec && after.tv_nsec < before.tv_nsec))
		fail("clock");
}

static void barriers(unsigned *of)
{
	cpu_set_t processors;
	(void)of;
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		fail("membarrier");
	sched_getaffinity(0, sizeof(processors), &processors);
	if (sched_setaffinity(0, sizeof(processors), &processors))
		fail("affinity");
}

static void copies(unsigned *of)
{
	static const char text[256] = "what is copied";
	int from = memfd_create("from", MFD_CLOEXEC), to = memfd_create("to", MFD_CLOEXEC);
	unsigned n = 1 + draw(of, sizeof(text));
	struct iovec parts[] = { { (void *)(uintptr_t)text, n / 2 },
				 { (void *)(uintptr_t)(text + n / 2), n - n / 2 } };
	char got[sizeof(text)];
	off_t at = 0;
	if (writev(from, parts, 2) != n || sendfile(to, from, &at, n) != n ||
	    pread(to, got, n, 0) != n || memcmp(got, text, n))
		fail("sendfile");
	at = 0;
	if (draw(of, 2) && copy_file_range(from, &at, to, NULL, n, 0) != n)
		fail("copy_file_range");
	close(from);
	close(to);
}

static void gs_base(unsigned *of)
{
	uint64_t words[] = { 11, 22, 33, 44 }, got, base;
	unsigned i = draw(of, 4);
	if (syscall(SYS_arch_prctl, ARCH_SET_GS, words))
		fail("gs");
	__asm__ volatile("mov %%gs:(%1), %0" : "=r"(got) : "r"(8UL * i));
	if (got != words[i] || syscall(SYS_arch_prctl, ARCH_GET_GS, &base) ||
	    base != (uintptr_t)words || syscall(SYS_arch_prctl, ARCH_SET_GS, 0))
		fail("gs base");
}

static void rounding(unsigned *of)
{
	static const int modes[] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };
	volatile double one = 1, three = 3;
	volatile long double long_three = 3;
	int mode = modes[draw(of, 4)];
	fesetround(mode);
	double a = one / three;
	long double b = one / long_three;
	pthread_kill(pthread_self(), SIGUSR1);
	if (fegetround() != mode || a != one / three || b != one / long_three)
		fail("rounding");
	fesetround(FE_TONEAREST);
}

static void attached_memory(unsigned *of)
{
	int id = shmget(IPC_PRIVATE, 3 * PAGE, 0600 | IPC_CREAT);
	char *p = shmat(id, NULL, 0), *q = shmat(id, NULL, draw(of, 2) ? SHM_RDONLY : SHM_EXEC);
	shmctl(id, IPC_RMID, NULL);
	p[5000] = 9;
	if (q[5000] != 9 || shmdt(p) || shmdt(q))
		fail("attached memory");
}

static void locked_memory(unsigned *of)
{
	char *p = map(4 * PAGE, PROT_READ | PROT_WRITE);
	unsigned char in[4];
	(void)of;
	if (mlock(p, 4 * PAGE) || mincore(p, 4 * PAGE, in) || munlock(p, 4 * PAGE))
		fail("lock");
	if (mremap(p, 4 * PAGE, 2 * PAGE, 0) != p)
		fail("smaller");
	char *q = mremap(p, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
	if (q == MAP_FAILED || q == p || *p || munmap(p, 2 * PAGE) || munmap(q, 2 * PAGE))
		fail("moved away");
}

/* ---- all ------------------------------------------------------------------------------------- */

mob_act *const mob_more[] = { a_fault,
			      a_guard,
			      another_stack,
			      changing_code,
			      common_code,
			      twice_mapped,
			      moved_code,
			      child_of_vfork,
			      traced_child,
			      stopped_child,
			      child_that_reads,
			      exec_in_thread,
			      child_with_threads,
			      orphan,
			      several_programs,
			      program_in_memory,
			      child_in_this_memory,
			      shared_memory,
			      not_for_children,
			      deep_stack,
			      timer_with_thread,
			      robust_mutex,
			      wait_on_condition,
			      files_of_its_own,
			      waited_for,
			      signal_to_another,
			      descriptors,
			      a_filter,
			      clocks,
			      barriers,
			      copies,
			      gs_base,
			      rounding,
			      attached_memory,
			      locked_memory };
_Static_assert(sizeof(mob_more) / sizeof(*mob_more) <= MORE, "there are too many acts");
const unsigned mob_n_more = sizeof(mob_more) / sizeof(*mob_more);

/* What the library needs for cancelling a thread is loaded by the first that does. */
static void cancel_one(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, forever, NULL) || pthread_cancel(thread) ||
	    pthread_join(thread, NULL))
		fail("cancel");
}

void mob_begin(void)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL },
			 signals[] = { SIGPROF, SIGVTALRM, SIGWINCH };
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER },
			 jump = { .sa_handler = on_jump, .sa_flags = SA_ONSTACK | SA_RESTART },
			 count = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	for (unsigned i = 0; i < 4; i++)
		sigaction(faults[i], &fault, NULL);
	for (unsigned i = 0; i < 3; i++)
		sigaction(signals[i], &count, NULL);
	sigaction(SIGHUP, &jump, NULL);
	common = (unsigned char *)map(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	write_code(common + 3, 0);
	cancel_one();
}
