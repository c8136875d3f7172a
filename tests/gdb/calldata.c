/* Memory that only system calls have written, and that the program never looks at. It is not on the
 * stack. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct stat st;
static int unused[2], waiting, status;
static struct pollfd polled;
static struct epoll_event happened;
static char cwd[64], link_text[64], left[8], right[8], text[8], control[64], name[16];
static struct utsname uts;
static struct timespec now;
static struct rlimit limit;
static char *heap;
static struct sockaddr_un *edge;
static volatile sig_atomic_t alarms;

static void here(int n)
{
	(void)n;
}

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

/* A name that is longer than its buffer, which ends where memory does. */
static void name_at_edge(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	socklen_t length = 6;

	strcpy(at.sun_path + 1, "deja calldata");
	snprintf(at.sun_path + 14, 20, "%d", (int)getpid());
	mprotect(pages + 4096, 4096, PROT_NONE);
	bind(fd, (struct sockaddr *)&at, offsetof(struct sockaddr_un, sun_path) + 40);
	edge = (struct sockaddr_un *)(pages + 4090);
	getsockname(fd, (struct sockaddr *)edge, &length);
}

static void pipes(int *ends)
{
	struct iovec two[2] = { { left, 6 }, { right, 6 } };
	struct epoll_event want = { .events = EPOLLIN, .data.u64 = 0x1122334455667788 };
	int ep = epoll_create1(0);

	(void)!write(ends[1], "kernelwroterest of it", 21);
	readv(ends[0], two, 2);
	ioctl(ends[0], FIONREAD, &waiting);
	polled.fd = ends[0];
	polled.events = POLLIN;
	poll(&polled, 1, 0);
	epoll_ctl(ep, EPOLL_CTL_ADD, ends[0], &want);
	epoll_wait(ep, &happened, 1, 0);
	(void)!read(ends[0], heap + 100, 9);
}

static void messages(void)
{
	struct iovec one = { text, 7 };
	struct msghdr msg = { .msg_iov = &one,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	int pair[2], yes = 1;

	socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
	setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes));
	(void)!write(pair[1], "message", 7);
	recvmsg(pair[0], &msg, 0);
	/* more than the buffer has room for: it says how much there would have been */
	(void)!write(pair[1], "truncated", 9);
	recv(pair[0], heap + 200, 3, MSG_TRUNC);
}

int main(void)
{
	int ends[2];

	heap = malloc(100000);
	if (pipe(ends) || pipe(unused))
		return 1;
	signal(SIGALRM, on_alarm);
	pipes(ends);
	messages();
	name_at_edge();
	stat("/", &st);
	(void)!syscall(SYS_getcwd, cwd, sizeof(cwd));
	(void)!readlink("/proc/self/fd/0", link_text, sizeof(link_text));
	uname(&uts);
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	syscall(SYS_getrlimit, RLIMIT_STACK, &limit);
	prctl(PR_GET_NAME, name);
	pid_t child = fork();
	if (!child)
		_exit(9);
	wait4(child, &status, 0, NULL);
	/* a call that a signal comes right behind */
	struct itimerval soon = { .it_value.tv_usec = 50000 };
	int zero = open("/dev/zero", O_RDONLY);
	memset(heap + 5000, 'x', 90000);
	setitimer(ITIMER_REAL, &soon, NULL);
	while (!alarms)
		(void)!read(zero, heap + 5000, 90000);
	here(1);
	return 0;
}
