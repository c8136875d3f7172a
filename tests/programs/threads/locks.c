/*
 * Locks of every kind that the C library has, what they are made of, and what needs none.
 */
#include "threads.h"
#include <limits.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>

static void *locked_adds(void *arg)
{
	for (int i = 0; i < 5000; i++) {
		pthread_mutex_lock(&lock);
		shared += (long)arg;
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

void case_mutex(void)
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

void case_condvar(void)
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

void case_rwlock(void)
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

void case_barrier(void)
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

void case_sem(void)
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

void case_spin(void)
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

void case_futex(void)
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

void case_robust(void)
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

void case_pi(void)
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

void case_atomics(void)
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
