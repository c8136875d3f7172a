/*
 * The ways in which a program with threads ends, one of them to a run.
 */
#include "threads.h"
#include <signal.h>
#include <sys/syscall.h>

void last_first(void) /* the first thread goes, another ends the program */
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

void last_none(void) /* the last thread to go is not the first: status 0 */
{
	void *rest(void *arg)
	{
		pause_ms(300 + (long)arg);
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

void last_group(void) /* a second thread ends all */
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

void last_exec(void) /* a second thread replaces the program */
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

void last_execfail(void) /* an exec that fails leaves all threads where they are */
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

void last_crash(void) /* a second thread faults */
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

void last_abort(void)
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

void last_kill(void)
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

void last_return(void) /* from main, while others go on */
{
	others();
	say("going");
	exit(0);
}
