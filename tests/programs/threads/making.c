/*
 * Making threads and joining them, some and many, by the C library and by clone itself.
 */
#include "threads.h"
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

void case_create(void)
{
	say("%ld", together(16, square_sum));
}

static void *detached(void *arg)
{
	add(&finished, 1);
	return arg;
}

void case_detach(void)
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

/* One after another, and some at a time. */
void case_short(void)
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

void case_idle(void)
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

/* ---- clone itself ---- */

static char clone_stack[4][65536] __attribute__((aligned(64)));
static atomic_int clone_tid[4];

void case_clone(void)
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

void case_names(void)
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
