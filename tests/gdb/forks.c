/* A program that makes children, one of which becomes another program: for tests/gdb/cases. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int shared = 1;
__attribute__((noinline)) void step(const char *who, int n)
{
	shared += n;
	(void)who;
}
int main(int argc, char **argv)
{
	int status, vstatus;
	if (argc > 1) { /* what the second child becomes */
		step(argv[1], 100);
		return 6;
	}
	step("parent", 1);
	pid_t child = fork();
	if (!child) {
		step("child", 10);
		step("child", 20);
		_exit(4);
	}
	step("parent", 2);
	waitpid(child, &status, 0);
	pid_t second = vfork();
	if (!second) {
		execl(argv[0], argv[0], "second", NULL);
		_exit(1);
	}
	waitpid(second, &vstatus, 0);
	step("parent", 3);
	printf("%d %d %d\n", WEXITSTATUS(status), WEXITSTATUS(vstatus), shared);
	return 5;
}
