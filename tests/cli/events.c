/* Makes system calls of many kinds, all with the same arguments and results whenever it runs; then
 * a thread, and an end by a fault. tests/cli/events.sh compares what deja events says with strace.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void handler(int sig)
{
	(void)sig;
}

static void files(void)
{
	char buf[100], path[] = "some\tfile\033[31m";
	struct iovec v[2] = { { "abc", 3 }, { "defgh\n", 6 } };
	struct stat st;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0640);

	if (write(fd, "a line \"quoted\"\n\1\0012\377", 20) != 20 || writev(fd, v, 2) != 9)
		exit(1);
	lseek(fd, -6, SEEK_CUR);
	if (read(fd, buf, sizeof(buf)) != 6 || pread(fd, buf, 4, 2) != 4)
		exit(1);
	fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, O_APPEND);
	dup2(fd, 17);
	ftruncate(17, 3);
	fstat(fd, &st);
	stat("/nonexistent", &st);
	access("/etc/passwd", R_OK | X_OK);
	rename(path, "other");
	mkdir("dir", 0755);
	rmdir("dir");
	unlink("other");
	close(17);
	close(-1);
	ioctl(fd, TCGETS, buf);
	ioctl(fd, 0x80047a12, buf);
	close(fd);
	umask(022);
}

static void sockets(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(1),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/nonexistent/socket" };
	struct pollfd p[2];
	struct epoll_event event = { .events = EPOLLIN };
	int pair[2], pipes[2], s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char buf[16];

	connect(s, (struct sockaddr *)&in, sizeof(in));
	close(s);
	s = socket(AF_UNIX, SOCK_DGRAM, 0);
	connect(s, (struct sockaddr *)&un, sizeof(un));
	close(s);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	send(pair[0], "hello", 5, MSG_NOSIGNAL);
	p[0] = (struct pollfd){ .fd = pair[1], .events = POLLIN | POLLPRI };
	p[1] = (struct pollfd){ .fd = pair[0], .events = POLLIN };
	poll(p, 2, 100);
	recv(pair[1], buf, sizeof(buf), MSG_DONTWAIT);
	recv(pair[1], buf, sizeof(buf), MSG_DONTWAIT);
	shutdown(pair[0], SHUT_RDWR);
	pipe2(pipes, O_CLOEXEC | O_NONBLOCK);
	epoll_ctl(epoll_create1(EPOLL_CLOEXEC), EPOLL_CTL_ADD, pipes[0], &event);
	eventfd(3, EFD_NONBLOCK);
}

static void others(void)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct timespec ts = { 0, 1000 };
	struct rlimit lim = { 64, 128 };
	sigset_t set;
	void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	mprotect(p, 4096, PROT_NONE);
	madvise(p, 8192, MADV_DONTNEED);
	munmap(p, 8192);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGTERM);
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGUSR1, NULL, &sa);
	sigprocmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGUSR1);
	nanosleep(&ts, NULL);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
	setrlimit(RLIMIT_CORE, &lim);
	getrlimit(RLIMIT_CORE, &lim);
	wait4(-1, NULL, WNOHANG, NULL);
}

static void *thread(void *arg)
{
	write(1, "thread\n", 7);
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;

	files();
	sockets();
	others();
	if (argc > 1) {
		pthread_create(&t, NULL, thread, NULL);
		pthread_join(t, NULL);
		if (fork() == 0)
			execl("/bin/true", "true", "two words", (char *)0);
		wait(NULL);
		*(volatile int *)(argv[1][0] == 'x' ? 8 : 0) = 0;
	}
	exit(7);
}
