/* Memory that system calls write through pointers in structures, looked at before the program reads
 * it. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static char left[8] = "before", right[8] = "before", text[8] = "before";
static int waiting = -1;
static struct pollfd polled = { .revents = 99 };
static struct sockaddr_un name;

static void here(int n)
{
	(void)n;
}

int main(void)
{
	int ends[2], pair[2];
	struct iovec two[2] = { { left, 6 }, { right, 6 } }, one = { text, 7 };
	struct msghdr msg = { .msg_iov = &one, .msg_iovlen = 1 };
	socklen_t length = sizeof(name);

	memset(&name, 'x', sizeof(name));
	if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	(void)!write(ends[1], "kernelwroterest", 15);
	(void)!write(pair[1], "message", 7);
	readv(ends[0], two, 2);
	here(1);
	recvmsg(pair[0], &msg, 0);
	here(2);
	ioctl(ends[0], FIONREAD, &waiting);
	here(3);
	polled.fd = ends[0];
	polled.events = POLLIN;
	poll(&polled, 1, 0);
	here(4);
	getsockname(pair[0], (struct sockaddr *)&name, &length);
	here(5);
	printf("%s %s %s %d %d %d %d\n", left, right, text, waiting, polled.revents,
	       name.sun_family, (int)length);
	return 0;
}
