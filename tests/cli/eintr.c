/*
 * Sits in system calls that say EINTR when anything interrupts them, with some computing before
 * each: deja's clock interrupts what computes for long, and may come an instant too late. There are
 * no signals here. So there is no EINTR.
 *
 * usage: eintr MILLISECONDS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int epoll, sem, pair[2];
static aio_context_t aio;
static const struct timespec brief = { .tv_nsec = 30000 };

static int wait_epoll(void)
{
	struct epoll_event e;
	struct timespec t = brief;
	return (int)syscall(SYS_epoll_pwait2, epoll, &e, 1, &t, NULL, 0);
}

static int wait_sem(void)
{
	struct sembuf op = { .sem_op = -1 };
	return sem < 0 ? 0 : semtimedop(sem, &op, 1, &brief);
}

static int wait_signal(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return sigtimedwait(&set, NULL, &brief);
}

static int wait_message(void)
{
	char byte;
	return (int)recv(pair[0], &byte, 1, 0);
}

static int wait_aio(void)
{
	struct io_event e;
	struct timespec t = brief;
	return aio ? (int)syscall(SYS_io_getevents, aio, 1L, 1L, &e, &t) : 0;
}

static int wait_poll(void)
{
	struct pollfd p = { .fd = pair[0], .events = POLLIN };
	return ppoll(&p, 1, &brief, NULL);
}

static int wait_select(void)
{
	struct timespec t = brief;
	fd_set set;
	FD_ZERO(&set);
	FD_SET(pair[0], &set);
	return pselect(pair[0] + 1, &set, NULL, NULL, &t, NULL);
}

static int wait_futex(void)
{
	static uint32_t word;
	return (int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &brief, NULL, 0);
}

static int wait_sleep(void)
{
	return nanosleep(&brief, NULL);
}

static const struct {
	const char *name;
	int (*wait)(void);
} calls[] = {
	{ "semtimedop", wait_sem }, { "epoll_pwait2", wait_epoll }, { "sigtimedwait", wait_signal },
	{ "semtimedop", wait_sem }, { "io_getevents", wait_aio },   { "ppoll", wait_poll },
	{ "pselect", wait_select }, { "futex", wait_futex },	    { "nanosleep", wait_sleep },
	{ "recv", wait_message }, /* which takes longer, so now and then */
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

/* No system call and nothing that deja would record. */
static unsigned compute(unsigned n)
{
	static volatile unsigned x = 1;
	unsigned v = x;
	for (; n; n--)
		v = v * 1103515245u + 12345u;
	x = v;
	return v >> 8;
}

static double seconds(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct timeval tenth = { .tv_usec = 100 };
	double until = seconds() + (argc > 1 ? atoi(argv[1]) : 100) / 1e3;
	unsigned n = 0, seen = 0, drawn = 1;

	epoll = epoll_create1(0);
	sem = semget(IPC_PRIVATE, 1, 0600);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
	    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tenth, sizeof(tenth)))
		return 99;
	syscall(SYS_io_setup, 4, &aio);
	for (; seconds() < until; n++) {
		unsigned k = n % 50 ? n % (CALLS - 1) : CALLS - 1;
		drawn = compute(20000 + drawn % 60000);
		if (calls[k].wait() < 0 && errno == EINTR && !seen++)
			printf("%s was interrupted\n", calls[k].name);
	}
	if (sem >= 0)
		semctl(sem, 0, IPC_RMID);
	printf("%u of %u calls were interrupted\n", seen, n);
	return seen != 0;
}
