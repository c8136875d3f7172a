/*
 * System calls of which threads notice more than programs without: what is each thread's own and
 * what is the process's, fork and exec, and what passes data between threads.
 */
#include "threads.h"
#include <linux/membarrier.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

void case_calls(void)
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
void case_setxid(void)
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

/* ---- fork and exec in a program with threads ---- */

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

void case_fork(void)
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

void case_spawn(void)
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

/* ---- data from thread to thread ---- */

void case_pipes(void)
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
