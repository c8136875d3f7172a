/*
 * Threads in every way that programs use them, for the end-to-end tests. Each case checks itself
 * and prints one line that is the same in every run, on any machine.
 *
 * usage: threads CASE|GROUP...     (without arguments it lists them)
 *
 * Cases that end the program (the group `last') are run one at a time. The group `module' needs
 * module.so, made from this file with -DMODULE -shared, in the current directory.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef MODULE
/* ---- what dlopen'ed code has: thread-local variables, one of them with an alignment ------------
 */
__thread long module_count = 40;
static __thread _Alignas(64) char module_line[256];
static __attribute__((constructor)) void loaded(void)
{
	module_count++;
}
long module_next(void)
{
	module_line[module_count & 255]++;
	return ++module_count;
}
#else

static const char *running = "?";
static atomic_int wrong;
#define expect(c)                                                                                  \
	do {                                                                                       \
		if (!(c)) {                                                                        \
			printf("%s: line %d: not so: %s (errno %d)\n", running, __LINE__, #c,      \
			       errno);                                                             \
			wrong++;                                                                   \
		}                                                                                  \
	} while (0)

static void say(const char *format, ...)
{
	va_list args;

	printf("%s: ", running);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static pid_t tid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

static void start(pthread_t *t, void *(*f)(void *), void *arg)
{
	int e = pthread_create(t, NULL, f, arg);

	if (e) {
		printf("%s: pthread_create: %s\n", running, strerror(e));
		exit(98);
	}
}

static void *join(pthread_t t)
{
	void *r = NULL;

	expect(pthread_join(t, &r) == 0);
	return r;
}

/* Runs f(0) to f(n - 1) in threads of their own; the sum of what they return. */
static long together(int n, void *(*f)(void *))
{
	pthread_t t[64];
	long sum = 0;

	for (long i = 0; i < n; i++)
		start(&t[i], f, (void *)i);
	for (int i = 0; i < n; i++)
		sum += (long)join(t[i]);
	return sum;
}

static void pause_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* Something that takes time and is few instructions. */
static void compute(volatile long *n)
{
	(*n)++;
	for (int i = 0; i < 8; i++)
		__builtin_ia32_pause();
}

static long futex(atomic_int *word, int op, int value, void *timeout, atomic_int *word2, int value3)
{
	return syscall(SYS_futex, word, op, value, timeout, word2, value3);
}

/* Waits until *word is value. */
static void until(atomic_int *word, int value)
{
	int now;

	while ((now = atomic_load(word)) != value)
		futex(word, FUTEX_WAIT, now, NULL, NULL, 0);
}

static void tell(atomic_int *word, int value)
{
	atomic_store(word, value);
	futex(word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void add(atomic_int *word, int value)
{
	atomic_fetch_add(word, value);
	futex(word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Whether thread t of this process is in a system call that waits. */
static void until_asleep(pid_t t)
{
	char name[64], text[512];

	snprintf(name, sizeof(name), "/proc/self/task/%d/stat", (int)t);
	for (int i = 0; i < 5000; i++) {
		int fd = open(name, O_RDONLY);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		const char *p;

		close(fd);
		text[n > 0 ? n : 0] = 0;
		p = strrchr(text, ')');
		if (p && p[2] == 'S')
			return;
		pause_ms(1);
	}
	say("thread does not go to sleep");
}

/* ---- making and joining ---------------------------------------------------------------------- */

static void *square_sum(void *arg)
{
	long n = (long)arg, sum = 0;

	for (long i = 1; i <= 1000 * (n + 1); i++)
		sum += i * i % 7;
	return (void *)sum;
}

static void case_create(void)
{
	say("%ld", together(16, square_sum));
}

static void *nothing(void *arg)
{
	return arg;
}

static atomic_int finished;

static void *detached(void *arg)
{
	add(&finished, 1);
	return arg;
}

static void case_detach(void)
{
	pthread_attr_t a;
	pthread_t t;

	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	atomic_store(&finished, 0);
	for (int i = 0; i < 50; i++)
		expect(pthread_create(&t, &a, detached, NULL) == 0);
	until(&finished, 50);
	pthread_attr_destroy(&a);
	say("50 threads");
}

static int scaled(int n)
{
	const char *s = getenv("THREADS_SCALE");

	return s ? n * atoi(s) / 100 : n;
}

/* One after another, and some at a time. */
static void case_short(void)
{
	long sum = 0;

	for (long i = 0; i < 1500; i++) {
		pthread_t t;
		start(&t, nothing, (void *)i);
		sum += (long)join(t);
	}
	for (int round = 0; round < 100; round++)
		sum += together(15, nothing);
	say("3000 threads: %ld", sum);
}

static void case_idle(void)
{
	static pthread_t t[1000];
	static char stacks[1000][16384] __attribute__((aligned(4096)));
	static sem_t go;
	pthread_attr_t a;
	long sum = 0;

	void *sleeper(void *arg)
	{
		add(&finished, 1);
		while (sem_wait(&go))
			;
		return arg;
	}

	sem_init(&go, 0, 0);
	atomic_store(&finished, 0);
	for (long i = 0; i < 1000; i++) {
		pthread_attr_init(&a);
		pthread_attr_setstack(&a, stacks[i], sizeof(stacks[i]));
		expect(pthread_create(&t[i], &a, sleeper, (void *)i) == 0);
		pthread_attr_destroy(&a);
	}
	until(&finished, 1000);
	for (int i = 0; i < 1000; i++)
		sem_post(&go);
	for (int i = 0; i < 1000; i++)
		sum += (long)join(t[i]);
	say("1000 threads: %ld", sum);
}

/* ---- locks -------------------------------------------------------------------------------------
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long shared;

static void *locked_adds(void *arg)
{
	for (int i = 0; i < 5000; i++) {
		pthread_mutex_lock(&lock);
		shared += (long)arg;
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void case_mutex(void)
{
	pthread_mutexattr_t a;
	pthread_mutex_t m;
	static const struct timespec past;

	shared = 0;
	together(5, locked_adds);
	expect(shared == 50000);
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&m, &a);
	expect(pthread_mutex_lock(&m) == 0 && pthread_mutex_lock(&m) == EDEADLK);
	expect(pthread_mutex_unlock(&m) == 0);
#ifndef __SANITIZE_THREAD__ /* which would report that */
	expect(pthread_mutex_unlock(&m) == EPERM);
#endif
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&m, &a);
	expect(pthread_mutex_lock(&m) == 0 && pthread_mutex_lock(&m) == 0);
	expect(pthread_mutex_unlock(&m) == 0 && pthread_mutex_unlock(&m) == 0);

	void *try(void *arg)
	{
		expect(pthread_mutex_trylock(&lock) == EBUSY);
		expect(pthread_mutex_timedlock(&lock, &past) == ETIMEDOUT);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	together(3, try);
	pthread_mutex_unlock(&lock);
	say("%ld", shared);
}

static void case_condvar(void)
{
	static int turn, queue[4], in, out, hash;
	struct timespec soon;
	long sum;

	void *player(void *arg)
	{
		for (int i = 0; i < 600; i++) {
			pthread_mutex_lock(&lock);
			while (turn != (long)arg)
				pthread_cond_wait(&changed, &lock);
			hash = (hash * 31 + turn) % 1000003;
			turn = (turn + 1) % 3;
			pthread_cond_broadcast(&changed);
			pthread_mutex_unlock(&lock);
		}
		return NULL;
	}
	void *worker(void *arg)
	{
		long got = 0;
		for (int i = 0; i < 1000; i++) {
			pthread_mutex_lock(&lock);
			if ((long)arg % 2) {
				while (in - out == 4)
					pthread_cond_wait(&changed, &lock);
				queue[in++ % 4] = i;
			} else {
				while (in == out)
					pthread_cond_wait(&changed, &lock);
				got += queue[out++ % 4];
			}
			pthread_cond_broadcast(&changed);
			pthread_mutex_unlock(&lock);
		}
		return (void *)got;
	}
	hash = turn = in = out = 0;
	together(3, player);
	sum = together(4, worker);
	expect(sum == 999000);
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 5000000;
	if (soon.tv_nsec >= 1000000000)
		soon.tv_sec++, soon.tv_nsec -= 1000000000;
	pthread_mutex_lock(&lock);
	expect(pthread_cond_timedwait(&changed, &lock, &soon) == ETIMEDOUT);
	pthread_mutex_unlock(&lock);
	say("%d %ld", hash, sum);
}

static void case_rwlock(void)
{
	static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
	static long a, b;

	void *user(void *arg)
	{
		for (int i = 0; i < 1000; i++) {
			if ((long)arg == 0) {
				pthread_rwlock_wrlock(&l);
				a++;
				b--;
			} else {
				pthread_rwlock_rdlock(&l);
				expect(a + b == 0);
			}
			pthread_rwlock_unlock(&l);
		}
		return NULL;
	}
	a = b = 0;
	together(4, user);
	say("%ld %ld", a, b);
}

static void case_barrier(void)
{
	static pthread_barrier_t l;
	static int phase[4];

	void *user(void *arg)
	{
		long me = (long)arg, serial = 0;
		for (int i = 1; i <= 150; i++) {
			phase[me] = i;
			serial += pthread_barrier_wait(&l) == PTHREAD_BARRIER_SERIAL_THREAD;
			for (int k = 0; k < 4; k++)
				expect(phase[k] == i);
			serial += pthread_barrier_wait(&l) == PTHREAD_BARRIER_SERIAL_THREAD;
		}
		return (void *)serial;
	}
	pthread_barrier_init(&l, NULL, 4);
	say("%ld serial", together(4, user));
	pthread_barrier_destroy(&l);
}

static void case_sem(void)
{
	static sem_t s[2];
	static long hash;
	struct timespec past = { 0 };

	void *user(void *arg)
	{
		long me = (long)arg;
		for (int i = 0; i < 1000; i++) {
			while (sem_wait(&s[me]))
				;
			hash = (hash * 7 + me + i) % 1000003;
			sem_post(&s[!me]);
		}
		return NULL;
	}
	sem_init(&s[0], 0, 1);
	sem_init(&s[1], 0, 0);
	hash = 0;
	together(2, user);
	expect(sem_trywait(&s[1]) == -1 && errno == EAGAIN);
	expect(sem_timedwait(&s[1], &past) == -1 && errno == ETIMEDOUT);
	say("%ld", hash);
}

static void case_spin(void)
{
	static pthread_spinlock_t s;

	void *user(void *arg)
	{
		for (int i = 0; i < 300; i++) {
			while (pthread_spin_trylock(&s))
				sched_yield();
			shared++;
			pthread_spin_unlock(&s);
		}
		return NULL;
	}
	shared = 0;
	pthread_spin_init(&s, 0);
	together(3, user);
	say("%ld", shared);
}

static void case_futex(void)
{
	static atomic_int word, other, awake;
	struct timespec soon = { 0, 3000000 };
	pthread_t t[6];
	static pid_t ids[6];

	expect(futex(&word, FUTEX_WAIT, 1, NULL, NULL, 0) == -1 && errno == EAGAIN);
	expect(futex(&word, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0) == -1 && errno == ETIMEDOUT);
	expect(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0);
	expect(futex((void *)8, FUTEX_WAIT, 0, &soon, NULL, 0) == -1 && errno == EFAULT);
	expect(futex(&word, 99, 0, NULL, NULL, 0) == -1 && errno == ENOSYS);

	/* Six wait; one is woken, one by its bit, two change queues, the rest at last. */
	void *waiter(void *arg)
	{
		long i = (long)arg;
		ids[i] = tid();
		add(&awake, 1);
		while (atomic_load(&word) == 0 && atomic_load(&other) == 0) {
			if (futex(&word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 1 << i) == 0)
				break;
		}
		return arg;
	}
	atomic_store(&awake, 0);
	for (long i = 0; i < 6; i++)
		start(&t[i], waiter, (void *)i);
	until(&awake, 6);
	for (int i = 0; i < 6; i++)
		until_asleep(ids[i]);
	expect(futex(&word, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, 1 << 3) == 1);
	expect((long)join(t[3]) == 3);
	expect(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)2, &other, 0) == 3);
	expect(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)2, &other, 7) == -1 && errno == EAGAIN);
	/* other = 1; wake what waits at word (2), and what waits at other (2) if that was 0 */
	expect(futex(&word, FUTEX_WAKE_OP, INT_MAX, (void *)(long)INT_MAX, &other,
		     FUTEX_OP(FUTEX_OP_SET, 1, FUTEX_OP_CMP_EQ, 0)) == 4);
	for (int i = 0; i < 6; i++)
		if (i != 3)
			join(t[i]);
	say("word %d other %d", word, other);
}

static void case_robust(void)
{
	static pthread_mutex_t m[2];
	pthread_mutexattr_t a;
	pthread_t t;

	void *dier(void *arg)
	{
		pthread_mutex_lock(&m[0]);
		pthread_mutex_lock(&m[1]);
		if (arg)
			syscall(SYS_exit, 0);
		return NULL;
	}
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	for (int i = 0; i < 20; i++) {
		pthread_mutex_init(&m[0], &a);
		pthread_mutex_init(&m[1], &a);
		start(&t, dier, (void *)(long)(i & 1));
		if (i & 2)
			join(t);
		expect((i & 2) || pthread_detach(t) == 0);
		while (!(i & 2) && m[1].__data.__lock == 0)
			sched_yield();
		expect(pthread_mutex_lock(&m[1]) == EOWNERDEAD);
		expect(pthread_mutex_consistent(&m[1]) == 0 && pthread_mutex_unlock(&m[1]) == 0);
		expect(pthread_mutex_lock(&m[1]) == 0 && pthread_mutex_unlock(&m[1]) == 0);
		expect(pthread_mutex_lock(&m[0]) == EOWNERDEAD);
		expect(pthread_mutex_unlock(&m[0]) == 0);
		expect(pthread_mutex_lock(&m[0]) == ENOTRECOVERABLE);
		pthread_mutex_destroy(&m[0]);
		pthread_mutex_destroy(&m[1]);
	}
	say("20 owners died");
}

static void case_pi(void)
{
	static pthread_mutex_t m;
	static atomic_int word;
	pthread_mutexattr_t a;

	void *user(void *arg)
	{
		for (int i = 0; i < 500; i++) {
			pthread_mutex_lock(&m);
			shared += 3;
			if (i % 50 == 0)
				sched_yield();
			pthread_mutex_unlock(&m);
		}
		return NULL;
	}
	void *raw(void *arg)
	{
		for (int i = 0; i < 200; i++) {
			int me = tid(), zero = 0;
			if (!atomic_compare_exchange_strong(&word, &zero, me))
				expect(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
			shared += 5;
			if (!atomic_compare_exchange_strong(&word, &me, 0))
				expect(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
		}
		return NULL;
	}
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&m, &a);
	shared = 0;
	together(4, user);
	together(3, raw);
	say("%ld", shared);
}

/* ---- thread-local storage ----------------------------------------------------------------------
 */

static __thread long local = 7, zeroed;
static __thread _Alignas(64) char aligned_line[64];
static pthread_key_t keys[3];
static atomic_long destroyed;

static void destroy(void *value)
{
	destroyed += (long)value;
	if ((long)value < 100) /* sets itself again: called once more */
		pthread_setspecific(keys[0], (void *)((long)value + 100));
}

static void case_tls(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	void init(void)
	{
		shared++;
	}
	void *user(void *arg)
	{
		expect(local == 7 && zeroed == 0 && (uintptr_t)aligned_line % 64 == 0);
		for (int i = 0; i < 500; i++)
			local += (long)arg, zeroed--, aligned_line[i % 64]++;
		pthread_once(&once, init);
		for (long k = 0; k < 3; k++)
			pthread_setspecific(keys[k], (void *)(200 + (long)arg));
		pthread_setspecific(keys[0], (void *)(10 + (long)arg));
		errno = (int)(long)arg + 1;
		sched_yield();
		expect(errno == (int)(long)arg + 1);
		return (void *)(local + zeroed + aligned_line[0]);
	}
	for (int k = 0; k < 3; k++)
		pthread_key_create(&keys[k], destroy);
	shared = 0;
	destroyed = 0;
	long sum = together(8, user);
	say("%ld, destructors saw %ld, once %ld", sum, destroyed, shared);
	for (int k = 0; k < 3; k++)
		pthread_key_delete(keys[k]);
}

static void case_module(void)
{
	static void *volatile handle;
	static atomic_int step;
	pthread_t t;

	/* A thread that was there before the module. */
	void *earlier(void *arg)
	{
		until(&step, 1);
		long (*next)(void) = (long (*)(void))dlsym(handle, "module_next");
		expect(next);
		return (void *)(next() + next());
	}
	void *later(void *arg)
	{
		void *m = dlopen("./module.so", RTLD_NOW);
		expect(m);
		long (*next)(void) = (long (*)(void))dlsym(m, "module_next");
		long first = next();
		for (int i = 0; i < 20; i++)
			next();
		first = next() - first;
		expect(dlclose(m) == 0);
		return (void *)first;
	}
	for (int round = 0; round < 3; round++) {
		atomic_store(&step, 0);
		start(&t, earlier, NULL);
		handle = dlopen("./module.so", RTLD_NOW | RTLD_LOCAL);
		if (!handle) {
			say("%s", dlerror());
			exit(97);
		}
		tell(&step, 1);
		long first = (long)join(t), rest = together(6, later);
		long (*next)(void) = (long (*)(void))dlsym(handle, "module_next");
		say("%ld %ld %ld", first, rest, next());
		dlclose(handle);
	}
	/* Loading and unloading by several at once. */
	say("%ld", together(8, later));
}

/* ---- cancellation ------------------------------------------------------------------------------
 */

static void cleaned(void *arg)
{
	shared = shared * 10 + (long)arg;
}

static void case_cancel(void)
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

/* ---- clone itself ------------------------------------------------------------------------------
 */

static char clone_stack[4][65536] __attribute__((aligned(64)));
static atomic_int clone_tid[4];

static void case_clone(void)
{
	int status = 0;
	long pid;

	int failing(unsigned long flags)
	{
		return (int)syscall(SYS_clone, flags, 0, 0, 0, 0) == -1 ? errno : 0;
	}
	expect(failing(CLONE_THREAD | SIGCHLD) == EINVAL);
	expect(failing(CLONE_THREAD | CLONE_VM) == EINVAL);
	expect(failing(CLONE_SIGHAND | SIGCHLD) == EINVAL);
	expect(failing(CLONE_FS | CLONE_NEWNS | SIGCHLD) == EINVAL);
	expect(syscall(SYS_clone3, NULL, 64) == -1 && errno == EFAULT);
	expect(syscall(SYS_clone3, clone_stack, 8) == -1 && errno == EINVAL);

	/* A process that shares nothing but the memory. */
	int sharer(void *arg)
	{
		for (int i = 0; i < 1000; i++)
			(*(volatile long *)&shared)++;
		return 3 + (int)(long)arg;
	}
	shared = 0;
	for (long i = 0; i < 4; i++) {
		pid = clone(sharer, clone_stack[0] + sizeof(clone_stack[0]),
			    CLONE_VM | SIGCHLD | (i & 1 ? CLONE_VFORK : 0) |
				    (i & 2 ? CLONE_FILES | CLONE_FS : 0),
			    (void *)i);
		expect(pid > 0 && waitpid((pid_t)pid, &status, 0) == pid);
		expect(WIFEXITED(status) && WEXITSTATUS(status) == 3 + i);
	}
	expect(shared == 4000);
	/* One that dies of a signal. */
	int dier(void *arg)
	{
		raise(SIGKILL);
		return 0;
	}
	pid = clone(dier, clone_stack[0] + sizeof(clone_stack[0]), CLONE_VM | SIGCHLD, NULL);
	expect(waitpid((pid_t)pid, &status, 0) == pid && WIFSIGNALED(status) &&
	       WTERMSIG(status) == 9);

	/* Threads that the C library knows nothing of. */
	int bare(void *arg)
	{
		atomic_int *sum = arg;
		for (int i = 0; i < 1000; i++)
			atomic_fetch_add(sum, 1);
		return 0;
	}
	static atomic_int sum;
	sum = 0;
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 4; i++) {
			atomic_store(&clone_tid[i], -1);
			pid = clone(bare, clone_stack[i] + sizeof(clone_stack[i]),
				    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
					    CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID |
					    CLONE_CHILD_CLEARTID,
				    &sum, &clone_tid[i], NULL, &clone_tid[i]);
			expect(pid > 0);
		}
		for (int i = 0; i < 4; i++)
			until(&clone_tid[i], 0);
	}
	say("%ld %d", shared, sum);
}

/* ---- fork and exec in a program with threads ---------------------------------------------------
 */

static atomic_int stop_now;

static void *busy(void *arg)
{
	long n = 0;

	while (!atomic_load(&stop_now)) {
		pthread_mutex_lock(&lock);
		n++;
		pthread_mutex_unlock(&lock);
		if (n % 64 == 0)
			sched_yield();
	}
	return NULL;
}

static void case_fork(void)
{
	pthread_t t[3];
	int good = 0, status;
	static int atfork;

	void lock_it(void)
	{
		pthread_mutex_lock(&lock);
		atfork++;
	}
	void unlock_it(void)
	{
		pthread_mutex_unlock(&lock);
	}
	pthread_atfork(lock_it, unlock_it, unlock_it);
	atomic_store(&stop_now, 0);
	for (int i = 0; i < 3; i++)
		start(&t[i], busy, NULL);
	for (int i = 0; i < 30; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t mine;
			pthread_mutex_lock(&lock);
			pthread_mutex_unlock(&lock);
			if (tid() != getpid())
				_exit(90);
			/* threads of the child's own */
			if (i % 3 == 0) {
				start(&mine, square_sum, (void *)1L);
				if (join(mine) != square_sum((void *)1L))
					_exit(91);
			}
			if (i % 5 == 0)
				execl("/bin/sh", "sh", "-c", "exit $(($0 + 1))", "41", NULL);
			_exit(42);
		}
		expect(pid > 0 && waitpid(pid, &status, 0) == pid);
		good += WIFEXITED(status) && WEXITSTATUS(status) == 42;
	}
	tell(&stop_now, 1);
	for (int i = 0; i < 3; i++)
		join(t[i]);
	say("%d of 30, prepared %d times", good, atfork);
}

static void case_spawn(void)
{
	extern char **environ;

	void *spawner(void *arg)
	{
		char number[16];
		char *argv[] = { "sh", "-c", "exit $0", number, NULL };
		long sum = 0;
		for (int i = 0; i < 6; i++) {
			pid_t pid;
			int status = 0;
			snprintf(number, sizeof(number), "%d", (int)(long)arg * 6 + i);
			expect(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0);
			expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
			sum += WEXITSTATUS(status);
		}
		return (void *)sum;
	}
	say("%ld", together(4, spawner));
	say("%d", system("exit 5") >> 8);
}

/* ---- signals -----------------------------------------------------------------------------------
 */

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
static void case_kill(void)
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

/* To the process: taken by the only thread that does not block it. */
static void case_process(void)
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

static void case_sigwait(void)
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

static void case_eintr(void)
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

static void case_fault(void)
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

static void case_timer(void)
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
static void case_group(void)
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

/* ---- calls that are about threads ---------------------------------------------------------------
 */

static void case_names(void)
{
	static pthread_barrier_t both;

	void *named(void *arg)
	{
		char name[32] = "", path[64];
		snprintf(name, sizeof(name), "worker-%ld", (long)arg);
		if ((long)arg % 2)
			prctl(PR_SET_NAME, name);
		else
			pthread_setname_np(pthread_self(), name);
		pthread_barrier_wait(&both);
		snprintf(path, sizeof(path), "/proc/self/task/%d/comm", (int)tid());
		FILE *f = fopen(path, "r");
		long ok = f && fgets(path, sizeof(path), f) && !strncmp(path, name, strlen(name));
		if (f)
			fclose(f);
		return (void *)ok;
	}
	pthread_barrier_init(&both, NULL, 4);
	say("%ld right", together(4, named));
}

static void case_calls(void)
{
	long query = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0);

	if (query > 0 && query & MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
		expect(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0) == 0);
		expect(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0);
	}
	expect(syscall(SYS_membarrier, 1 << 30, 0) == -1 && errno == EINVAL);

	void *caller(void *arg)
	{
		cpu_set_t set;
		char bytes[64];
		struct timespec ts;
		void *head;
		size_t len;
		long ok = 1;
		for (int i = 0; i < 100; i++) {
			ok &= getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes);
			ok &= clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) == 0 && ts.tv_sec < 100;
			ok &= sched_getcpu() >= 0 && sched_getaffinity(0, sizeof(set), &set) == 0;
			ok &= getpid() != tid();
		}
		ok &= syscall(SYS_get_robust_list, 0, &head, &len) == 0 && len == 24;
		ok &= syscall(SYS_set_robust_list, head, 23) == -1 && errno == EINVAL;
		setpriority(PRIO_PROCESS, 0, 1 + (int)(long)arg); /* one thread's on Linux */
		ok &= getpriority(PRIO_PROCESS, 0) == 1 + (int)(long)arg;
		return (void *)ok;
	}
	say("%ld right", together(4, caller));
}

/* Changing ids is done in all threads, by a signal that the C library sends them. */
static void case_setxid(void)
{
	static atomic_int step, ready;
	pthread_t t[4];
	long same = 0;
	uid_t r, e, s;

	void *watcher(void *arg)
	{
		long ok = 0;
		for (int i = 1; i <= 10; i++) {
			add(&ready, 1);
			if ((long)arg % 2)
				until(&step, i);
			else
				while (atomic_load(&step) != i)
					sched_yield();
			ok += (uid_t)syscall(SYS_geteuid) == (uid_t)shared;
		}
		add(&ready, 1);
		return (void *)ok;
	}
	getresuid(&r, &e, &s);
	atomic_store(&step, 0);
	atomic_store(&ready, 0);
	for (long i = 0; i < 4; i++)
		start(&t[i], watcher, (void *)i);
	for (int i = 1; i <= 10; i++) {
		until(&ready, 4 * i);
		expect(setresuid((uid_t)-1, r == 0 && i % 2 ? 65534 : r, (uid_t)-1) == 0);
		shared = syscall(SYS_geteuid);
		expect(shared == (r == 0 && i % 2 ? 65534 : (long)r));
		tell(&step, i);
	}
	for (int i = 0; i < 4; i++)
		same += (long)join(t[i]);
	say("%ld of 40", same);
}

/* ---- memory -------------------------------------------------------------------------------------
 */

static void case_maps(void)
{
	void *mapper(void *arg)
	{
		long sum = 0;
		size_t size = 4096 * (2 + (size_t)arg % 3);
		for (int i = 0; i < 150; i++) {
			long *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			expect(p != MAP_FAILED);
			for (size_t k = 0; k < size / sizeof(long); k += 64)
				sum += p[k], p[k] = (long)k + i;
			if (i % 3 == 0) {
				expect(mprotect(p, size, PROT_READ) == 0);
				expect(mprotect(p, size, PROT_READ | PROT_WRITE) == 0);
			}
			if (i % 5 == 0) {
				p = mremap(p, size, 2 * size, MREMAP_MAYMOVE);
				expect(p != MAP_FAILED && p[size / sizeof(long)] == 0);
				expect(munmap((char *)p + size, size) == 0);
			}
			for (size_t k = 0; k < size / sizeof(long); k += 64)
				sum += p[k];
			if (i % 7 == 0) {
				expect(madvise(p, size, MADV_DONTNEED) == 0);
				expect(p[0] == 0 && p[64] == 0);
			}
			expect(munmap(p, size) == 0);
		}
		return (void *)sum;
	}
	say("%ld", together(6, mapper));
}

/* Mapped by one, used by another, unmapped by a third. */
static void case_handover(void)
{
	static long *volatile page[3];
	static sem_t s[3];

	void *stage(void *arg)
	{
		long me = (long)arg, sum = 0;
		for (long i = 0; i < 200; i++) {
			while (sem_wait(&s[me]))
				;
			long *p = page[0];
			if (me == 0) {
				p = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
				p[100] = i;
				page[0] = p;
			} else if (me == 1) {
				p[101] = p[100] * 3;
				p[1000] += p[101];
			} else {
				sum += p[101] + p[1000];
				munmap(p, 8192);
			}
			sem_post(&s[(me + 1) % 3]);
		}
		return (void *)sum;
	}
	for (int i = 0; i < 3; i++)
		sem_init(&s[i], 0, i == 0);
	say("%ld", together(3, stage));
}

static void case_malloc(void)
{
	static void *_Atomic slot[64];

	void *user(void *arg)
	{
		uint64_t x = 88172645463325252ULL + (uint64_t)arg;
		for (int i = 0; i < 4000; i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			size_t size = x % 2000 + sizeof(size);
			char *p = malloc(size), *old;
			memset(p, (int)size, size);
			memcpy(p, &size, sizeof(size));
			old = atomic_exchange(&slot[x >> 20 & 63], p);
			if (old) {
				memcpy(&size, old, sizeof(size));
				for (size_t k = sizeof(size); k < size; k++)
					expect(old[k] == (char)size);
			}
			free(old);
		}
		return NULL;
	}
	together(4, user);
	for (int i = 0; i < 64; i++)
		free(atomic_exchange(&slot[i], NULL));
	say("16000 blocks");
}

/* ---- code that one thread writes and others execute ---------------------------------------------
 */

static void case_jit(void)
{
	typedef int fn(void);
	static unsigned char *page;
	static pthread_barrier_t b;
	static atomic_int quit;

	void *executor(void *arg)
	{
		long sum = 0;
		for (int i = 0; i < 60; i++) {
			pthread_barrier_wait(&b);
			if ((long)arg == 0) { /* mov eax, i; ret */
				unsigned char code[] = { 0xb8, (unsigned char)i, 0, 0, 0, 0xc3 };
				memcpy(page, code, sizeof(code));
			}
			pthread_barrier_wait(&b);
			sum += ((fn *)(uintptr_t)page)();
		}
		return (void *)sum;
	}
	/* Patched while it is executed: eight aligned bytes at once. */
	void *patched(void *arg)
	{
		long last = 0, bad = 0;
		union {
			unsigned char b[8];
			uint64_t v;
		} u = { { 0xb8, 0, 0, 0, 0, 0xc3, 0x90, 0x90 } };
		if ((long)arg == 0) {
			for (int i = 1; i <= 500; i++) {
				memcpy(u.b + 1, &i, 4);
				__atomic_store_n((uint64_t *)page, u.v, __ATOMIC_SEQ_CST);
				if (i % 50 == 0)
					sched_yield();
			}
			tell(&quit, 1);
		} else {
			while (!atomic_load(&quit)) {
				int v = ((fn *)(uintptr_t)page)();
				bad += v < last || v > 500;
				last = v;
			}
		}
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
		return (void *)(bad * 1000000 + ((fn *)(uintptr_t)page)());
	}
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	pthread_barrier_init(&b, NULL, 4);
	long sum = together(4, executor);
	memcpy(page, "\xb8\0\0\0\0\xc3\x90\x90", 8);
	atomic_store(&quit, 0);
	long values = together(3, patched);
	/* Written, then made executable, many functions by each thread; and thrown away. */
	void *maker(void *arg)
	{
		long total = 0;
		for (int i = 0; i < 40; i++) {
			unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			unsigned char code[] = {
				0xb8, (unsigned char)i, (unsigned char)(long)arg, 0, 0, 0xc3
			};
			for (int k = 0; k < 16; k++) {
				code[1] = (unsigned char)(i + k);
				memcpy(p + k * 16, code, sizeof(code));
			}
			mprotect(p, 4096, PROT_READ | PROT_EXEC);
			for (int k = 0; k < 16; k++)
				total += ((fn *)(uintptr_t)(p + k * 16))();
			munmap(p, 4096);
		}
		return (void *)total;
	}
	say("%ld %ld %ld", sum, values, together(4, maker));
	munmap(page, 4096);
}

/* One thread makes code and tells of it by a plain store; the other spins, makes no system call and
 * executes no locked instruction, and goes there at once. New code in a new place, and in the old
 * one. */
static int (*volatile fresh)(void);
static volatile int answered;

static void *plain_executor(void *arg)
{
	int (*last)(void) = NULL, (*now)(void);
	long sum = 0;

	for (int i = 1; i <= 200; i++) {
		while ((now = fresh) == last)
			__builtin_ia32_pause();
		last = now;
		sum += now();
		answered = i;
	}
	return (void *)sum;
}

static void case_fresh(void)
{
	unsigned char *page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *split =
		mmap(NULL, 200 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t;

	fresh = NULL;
	answered = 0;
	start(&t, plain_executor, NULL);
	for (int i = 1; i <= 200; i++) {
		unsigned char code[] = {
			0xb8, (unsigned char)i, (unsigned char)(i >> 8), 0, 0, 0xc3
		};
		unsigned char *at = page + i % 8 * 4096; /* used again and again */
		if (i % 3 == 0)
			at = split + i * 4096; /* written, then executable */
		memcpy(at, code, sizeof(code));
		if (i % 3 == 0)
			mprotect(at, 4096, PROT_READ | PROT_EXEC);
		if (i % 5 == 0) /* executed here, too, before or after */
			shared += ((int (*)(void))(uintptr_t)at)();
		fresh = (int (*)(void))(uintptr_t)at;
		for (int k = 0; answered != i; k++)
			if (k > 200)
				pause_ms(1);
		if (i % 7 == 0)
			shared += ((int (*)(void))(uintptr_t)at)();
	}
	say("%ld", (long)join(t));
	munmap(page, 1 << 16);
	munmap(split, 200 * 4096);
}

/* ---- the C library ------------------------------------------------------------------------------
 */

static void case_stdio(void)
{
	static FILE *f;
	char line[128];
	int lines = 0, torn = 0;

	void *writer(void *arg)
	{
		for (int i = 0; i < 500; i++) {
			if (i % 10 == 0) {
				flockfile(f);
				putc_unlocked('<', f);
				fprintf(f, "%ld %d", (long)arg, i);
				fputs_unlocked(">\n", f);
				funlockfile(f);
			} else
				fprintf(f, "<%ld %d>\n", (long)arg, i);
		}
		return NULL;
	}
	f = tmpfile();
	together(4, writer);
	rewind(f);
	while (fgets(line, sizeof(line), f)) {
		long who;
		int i, end = 0;
		torn += sscanf(line, "<%ld %d>\n%n", &who, &i, &end) != 2 ||
			(size_t)end != strlen(line);
		lines++;
	}
	fclose(f);
	say("%d lines, %d torn", lines, torn);
}

static void case_pipes(void)
{
	static int fds[4][2], ev;

	void *stage(void *arg)
	{
		long me = (long)arg, sum = 0;
		uint64_t v;
		for (long i = 0; i < 300; i++) {
			if (me == 0)
				v = (uint64_t)i;
			else
				expect(read(fds[me - 1][0], &v, 8) == 8);
			v = v * 3 + (uint64_t)me;
			if (me < 3)
				expect(write(fds[me][1], &v, 8) == 8);
			else
				sum += (long)v;
		}
		v = 1;
		expect(write(ev, &v, 8) == 8);
		return (void *)sum;
	}
	uint64_t n = 0, got;
	ev = eventfd(0, 0);
	for (int i = 0; i < 3; i++)
		expect(i == 1 ? socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds[i]) == 0
			      : pipe(fds[i]) == 0);
	/* socketpair: both ends read and write */
	fds[1][0] ^= fds[1][1], fds[1][1] ^= fds[1][0], fds[1][0] ^= fds[1][1];
	long sum = together(4, stage);
	while (n < 4 && read(ev, &got, 8) == 8)
		n += got;
	for (int i = 0; i < 3; i++)
		close(fds[i][0]), close(fds[i][1]);
	close(ev);
	say("%ld %d", sum, (int)n);
}

static void case_atomics(void)
{
	static atomic_long n, bits;
	static _Alignas(16) volatile __int128 wide;
	static atomic_schar small[8];

	void *user(void *arg)
	{
		long me = (long)arg;
		for (long i = 0; i < 2000; i++) {
			long old = atomic_load(&n);
			while (!atomic_compare_exchange_weak(&n, &old, old + me + 1))
				;
			atomic_fetch_xor(&bits, 1L << (me * 8 + i % 8));
			atomic_fetch_or(&bits, 1L << 63);
			atomic_fetch_add(&small[(me + i) % 8], 1);
			atomic_fetch_sub(&small[(me + i + 1) % 8], 1);
			__int128 w, next;
			do {
				w = wide;
				next = w + ((__int128)1 << 64) + 3;
			} while (!__sync_bool_compare_and_swap(&wide, w, next));
		}
		return NULL;
	}
	n = bits = 0;
	wide = 0;
	together(4, user);
	int zero = 0;
	for (int i = 0; i < 8; i++)
		zero += small[i];
	say("%ld %lx %ld %ld %d", n, bits, (long)(wide >> 64), (long)wide, zero);
}

/* ---- ways to end -------------------------------------------------------------------------------
 */

static char *self;

static void last_first(void) /* the first thread goes, another ends the program */
{
	void *rest(void *arg)
	{
		pause_ms(5);
		say("%ld", together(4, square_sum));
		exit(7);
		return NULL;
	}
	pthread_t t;
	start(&t, rest, NULL);
	pthread_exit(NULL);
}

static void last_none(void) /* the last thread to go is not the first: status 0 */
{
	void *rest(void *arg)
	{
		pause_ms(3 + (long)arg);
		return NULL;
	}
	pthread_t t;
	for (long i = 0; i < 5; i++)
		start(&t, rest, (void *)i);
	say("going");
	syscall(SYS_exit, 9);
}

static void others(void) /* threads that sleep, call and compute */
{
	void *worker(void *arg)
	{
		volatile long n = 0;
		add(&finished, 1);
		for (;;) {
			if ((long)arg == 0)
				pause();
			else if ((long)arg == 1)
				getppid();
			else if ((long)arg == 2)
				compute(&n);
			else {
				/* EAGAIN while another thread is in execve (fs/exec.c, in_exec) */
				pthread_t t;
				if (pthread_create(&t, NULL, nothing, NULL) == 0)
					join(t);
			}
		}
		return NULL;
	}
	pthread_t t;
	atomic_store(&finished, 0);
	for (long i = 0; i < 4; i++)
		start(&t, worker, (void *)i);
	until(&finished, 4);
}

static void last_group(void) /* a second thread ends all */
{
	void *ender(void *arg)
	{
		pause_ms(5);
		_exit(11);
		return NULL;
	}
	pthread_t t;
	others();
	say("going");
	start(&t, ender, NULL);
	pause();
}

static void last_exec(void) /* a second thread replaces the program */
{
	void *replacer(void *arg)
	{
		execl(self, self, "create", "mutex", "last-group", NULL);
		return NULL;
	}
	pthread_t t;
	others();
	say("going");
	start(&t, replacer, NULL);
	pause();
}

static void last_execfail(void) /* an exec that fails leaves all threads where they are */
{
	void *replacer(void *arg)
	{
		long n = 0;
		for (int i = 0; i < 10; i++)
			n += execl("/nonexistent", "x", NULL) == -1 && errno == ENOENT;
		return (void *)n;
	}
	others();
	say("%ld", together(3, replacer));
	exit(12);
}

static void last_crash(void) /* a second thread faults */
{
	void *crasher(void *arg)
	{
		*(volatile int *)8 = 1;
		return NULL;
	}
	pthread_t t;
	others();
	say("going");
	start(&t, crasher, NULL);
	pause();
}

static void last_abort(void)
{
	void *aborter(void *arg)
	{
		abort();
		return NULL;
	}
	pthread_t t;
	others();
	say("going");
	start(&t, aborter, NULL);
	pause();
}

static void last_kill(void)
{
	void *killer(void *arg)
	{
		kill(getpid(), SIGKILL);
		return NULL;
	}
	pthread_t t;
	others();
	say("going");
	start(&t, killer, NULL);
	pause();
}

static void last_return(void) /* from main, while others go on */
{
	others();
	say("going");
	exit(0);
}

/* ---- which
 * --------------------------------------------------------------------------------------- */

static const struct {
	const char *group, *name;
	void (*run)(void);
} cases[] = {
	{ "making", "create", case_create },
	{ "making", "detach", case_detach },
	{ "many", "short", case_short },
	{ "many", "idle", case_idle },
	{ "making", "clone", case_clone },
	{ "making", "names", case_names },
	{ "locks", "mutex", case_mutex },
	{ "locks", "condvar", case_condvar },
	{ "locks", "rwlock", case_rwlock },
	{ "locks", "barrier", case_barrier },
	{ "locks", "sem", case_sem },
	{ "locks", "spin", case_spin },
	{ "locks", "futex", case_futex },
	{ "locks", "robust", case_robust },
	{ "locks", "pi", case_pi },
	{ "locks", "atomics", case_atomics },
	{ "signals", "kill", case_kill },
	{ "signals", "process", case_process },
	{ "signals", "sigwait", case_sigwait },
	{ "signals", "eintr", case_eintr },
	{ "signals", "fault", case_fault },
	{ "signals", "timer", case_timer },
	{ "signals", "group", case_group },
	{ "signals", "cancel", case_cancel },
	{ "calls", "calls", case_calls },
	{ "calls", "setxid", case_setxid },
	{ "calls", "fork", case_fork },
	{ "calls", "spawn", case_spawn },
	{ "calls", "pipes", case_pipes },
	{ "memory", "tls", case_tls },
	{ "memory", "maps", case_maps },
	{ "memory", "handover", case_handover },
	{ "memory", "malloc", case_malloc },
	{ "memory", "jit", case_jit },
	{ "memory", "fresh", case_fresh },
	{ "memory", "stdio", case_stdio },
	{ "module", "module", case_module },
	{ "last", "last-first", last_first },
	{ "last", "last-none", last_none },
	{ "last", "last-group", last_group },
	{ "last", "last-exec", last_exec },
	{ "last", "last-execfail", last_execfail },
	{ "last", "last-crash", last_crash },
	{ "last", "last-abort", last_abort },
	{ "last", "last-kill", last_kill },
	{ "last", "last-return", last_return },
};

int main(int argc, char **argv)
{
	int done = 0;

	self = argv[0];
	for (int a = 1; a < argc; a++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			if (!strcmp(argv[a], cases[i].group) || !strcmp(argv[a], cases[i].name)) {
				running = cases[i].name;
				cases[i].run();
				done++;
			}
	for (size_t i = 0; argc == 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
		printf("%s %s\n", cases[i].group, cases[i].name);
	return wrong || (argc > 1 && !done) ? 1 : 0;
}
#endif
