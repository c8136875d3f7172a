/*
 * Values that come from other processes: each is made in a function of its own, by a constant, and
 * goes through something to a variable of that name in another process. tests/cli/origin.sh asks
 * where they came from.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

long by_pipe, by_file, by_sendfile, by_sockets, by_shared, by_mapped, by_fork, by_register, by_path,
	by_reply, by_port, by_datagrams, by_rights, by_fifo;

static void need(int good)
{
	if (!good)
		exit(9);
}

static void done(void)
{
	wait(NULL);
}

KEEP void pipe_child(int fd)
{
	volatile long v = 111111222222; /* culprit: by_pipe */
	need(write(fd, "noise", 5) == 5);
	need(write(fd, (void *)&v, 3) == 3 && write(fd, (char *)&v + 3, 5) == 5);
	_exit(0);
}

static void through_pipe(void)
{
	int p[2];
	char noise[5];
	need(!pipe(p));
	if (!fork())
		pipe_child(p[1]);
	need(read(p[0], noise, 5) == 5);
	done(); /* so that all of it is there */
	need(read(p[0], &by_pipe, 8) == 8);
}

KEEP void file_child(void)
{
	volatile long v = 333333444444; /* culprit: by_file */
	long other = 5;
	struct iovec two[] = { { &other, 8 }, { (void *)&v, 8 } };
	int fd = open("half-done", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	need(fd >= 0 && dup2(fd, 20) == 20 && !close(fd) && writev(20, two, 2) == 16);
	need(!rename("half-done", "whole"));
	_exit(0);
}

static void through_file(void)
{
	int fd;
	if (!fork())
		file_child();
	done();
	fd = open("whole", O_RDONLY);
	need(fd >= 0 && lseek(fd, 8, SEEK_SET) == 8 && read(fd, &by_file, 8) == 8);
	close(fd);
}

/* The same value once more, which only the kernel handles. */
static void through_sendfile(void)
{
	int p[2];
	off_t at = 8;
	need(!pipe2(p, O_CLOEXEC));
	if (!fork())
		_exit(sendfile(p[1], open("whole", O_RDONLY), &at, 8) != 8);
	done();
	need(read(p[0], &by_sendfile, 8) == 8);
}

KEEP void socket_child(int fd)
{
	volatile long v = 555555666666; /* culprit: by_sockets */
	struct iovec one = { (void *)&v, 8 };
	struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1 };
	need(fcntl(fd, F_DUPFD, 50) == 50 && sendmsg(50, &message, 0) == 8);
	_exit(0);
}

static void through_sockets(void)
{
	int s[2];
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, s) && write(s[0], "the other way", 13) == 13);
	if (!fork())
		socket_child(s[1]);
	done();
	need(recv(s[0], &by_sockets, 8, 0) == 8);
}

KEEP void shared_child(volatile long *memory)
{
	memory[7] = 777777888888; /* culprit: by_shared */
	_exit(0);
}

static void through_shared_memory(void)
{
	volatile long *memory =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(memory != MAP_FAILED);
	memory[7] = 1;
	if (!fork())
		shared_child(memory);
	done();
	by_shared = memory[7];
}

KEEP void mapped_child(int fd)
{
	volatile long *memory;
	need(mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	need(memory != MAP_FAILED);
	memory[600] = 999999111111; /* culprit: by_mapped */
	sleep(1000);		    /* it is mapped as long as somebody looks */
	_exit(0);
}

static void through_mapped_file(void)
{
	int fd = open("mapped", O_RDWR | O_CREAT, 0600);
	volatile long *memory;
	pid_t child;
	need(fd >= 0 && !ftruncate(fd, 8192));
	memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
	need(memory != MAP_FAILED);
	if (!(child = fork()))
		mapped_child(fd);
	while (!memory[600 - 512])
		usleep(1000);
	by_mapped = memory[600 - 512];
	kill(child, 9);
	done();
}

KEEP void forked_child(void)
{
	_exit(by_fork ? 4 : 9);
}

static void through_fork(void)
{
	by_fork = 121212343434; /* culprit: by_fork */
	if (!fork())
		forked_child();
	done();
}

KEEP void kept_child(long value)
{
	by_register = value;
	_exit(3);
}

static void through_a_register(void)
{
	register long kept asm("r12") = 565656787878; /* culprit: by_register */
	long pid = 57;
	asm volatile("syscall" : "+a"(pid), "+r"(kept) : : "rcx", "r11", "memory");
	if (!pid)
		kept_child(kept);
	done();
}

static const struct sockaddr_un here = { AF_UNIX, "here" };

/* Connects before anybody accepts; then speaks on, and is answered. */
KEEP void path_child(void)
{
	volatile long v = 131313131313; /* culprit: by_path */
	long answer;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	need(!connect(fd, (void *)&here, sizeof(here)));
	need(write(fd, "noise", 5) == 5 && send(fd, (void *)&v, 8, 0) == 8);
	need(read(fd, &answer, 8) == 8);
	by_reply = answer;
	_exit(by_reply ? 5 : 9);
}

KEEP void answer(int fd)
{
	volatile long v = 141414141414; /* culprit: by_reply */
	need(write(fd, (void *)&v, 8) == 8);
}

static void through_a_path(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0), one;
	char noise[5];
	need(!bind(fd, (void *)&here, sizeof(here)) && !listen(fd, 5));
	/* one more, which is first */
	need(!connect(other, (void *)&here, sizeof(here)) && write(other, "another", 7) == 7);
	if (!fork())
		path_child();
	one = accept(fd, NULL, NULL);
	need(one >= 0);
	one = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	need(one >= 0 && read(one, noise, 1) == 1 && read(one, noise, 4) == 4);
	need(recv(one, &by_path, 8, MSG_PEEK | MSG_WAITALL) == 8);
	need(read(one, &by_path, 8) == 8);
	answer(one);
	done();
}

KEEP void port_child(struct sockaddr_in to)
{
	volatile long v = 151515151515; /* culprit: by_port */
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	usleep(200000); /* the other one accepts meanwhile */
	need(!connect(fd, (void *)&to, sizeof(to)) && write(fd, (void *)&v, 8) == 8);
	_exit(0);
}

static void through_a_port(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t length = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one;
	need(!bind(fd, (void *)&at, sizeof(at)) && !listen(fd, 5));
	need(!getsockname(fd, (void *)&at, &length));
	if (!fork())
		port_child(at);
	one = accept(fd, NULL, NULL);
	need(one >= 0 && recv(one, &by_port, 8, MSG_WAITALL) == 8);
	done();
}

KEEP void datagram_child(void)
{
	volatile long v = 161616161616; /* culprit: by_datagrams */
	struct sockaddr_un to = { AF_UNIX, "\0somewhere" };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	need(sendto(fd, "longer than wanted", 18, 0, (void *)&to, 12) == 18);
	need(sendto(fd, (void *)&v, 8, 0, (void *)&to, 12) == 8);
	_exit(0);
}

static void through_datagrams(void)
{
	struct sockaddr_un at = { AF_UNIX, "\0somewhere" };
	char some[4];
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	need(!bind(fd, (void *)&at, 12));
	if (!fork())
		datagram_child();
	need(recv(fd, some, 4, 0) == 4 && recv(fd, &by_datagrams, 8, 0) == 8);
	done();
}

/* Descriptors go with a byte: the value is in the pipe that the second one leads to. */
KEEP void rights_child(int to)
{
	volatile long v = 171717171717; /* culprit: by_rights */
	int a[2], b[2], fds[2];
	union {
		char room[CMSG_SPACE(sizeof(fds))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct iovec one = { "x", 1 };
	struct msghdr message = { .msg_iov = &one,
				  .msg_iovlen = 1,
				  .msg_control = control.room,
				  .msg_controllen = sizeof(control.room) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	usleep(200000); /* somebody waits for it meanwhile */
	need(!pipe(a) && !pipe(b) && write(b[1], (void *)&v, 8) == 8);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(fds));
	fds[0] = a[0];
	fds[1] = b[0];
	memcpy(CMSG_DATA(head), fds, sizeof(fds));
	need(sendmsg(to, &message, 0) == 1);
	_exit(0);
}

static void through_rights(void)
{
	int s[2], fds[2];
	char byte;
	union {
		char room[CMSG_SPACE(sizeof(fds))];
		struct cmsghdr align;
	} control;
	struct iovec one = { &byte, 1 };
	struct msghdr message = { .msg_iov = &one,
				  .msg_iovlen = 1,
				  .msg_control = control.room,
				  .msg_controllen = sizeof(control.room) };
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	if (!fork())
		rights_child(s[1]);
	need(recvmsg(s[0], &message, 0) == 1);
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fds));
	need(read(fds[1], &by_rights, 8) == 8);
	done();
}

KEEP void fifo_child(void)
{
	volatile long v = 181818181818; /* culprit: by_fifo */
	int fd = open("fifo", O_WRONLY);
	need(write(fd, "noise", 5) == 5 && write(fd, (void *)&v, 8) == 8);
	_exit(0);
}

static void through_a_fifo(void)
{
	char noise[5];
	int fd;
	need(!mkfifo("fifo", 0600));
	if (!fork())
		fifo_child();
	fd = open("fifo", O_RDONLY);
	need(fd >= 0 && read(fd, noise, 5) == 5 && read(fd, &by_fifo, 8) == 8);
	close(fd);
	done();
}

int main(void)
{
	through_pipe();
	through_file();
	through_sendfile();
	through_sockets();
	through_shared_memory();
	through_mapped_file();
	through_fork();
	through_a_register();
	through_a_path();
	through_a_port();
	through_datagrams();
	through_rights();
	through_a_fifo();
	return 0;
}
