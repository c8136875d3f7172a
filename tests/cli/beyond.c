/*
 * Values that come from other processes: each is made in a function of its own, by a constant, and
 * goes through something to a variable of that name in another process. tests/cli/origin.sh asks
 * where they came from.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

long by_pipe, by_file, by_sendfile, by_sockets, by_shared, by_mapped, by_fork, by_register;

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
	return 0;
}
