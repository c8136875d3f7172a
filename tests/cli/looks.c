/* A process that shares the program's memory attaches to it, again and again, as LeakSanitizer's
 * does once, whatever it is doing: executing instructions that the recorder executes natively and,
 * with an argument, having signals delivered. (Natively one of those might be what the process
 * sees.) */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMES 200

static volatile int attached, seen, over, refused;
static pid_t program;

static void on_alarm(int sig)
{
	(void)sig;
}

static int look(void *arg)
{
	struct user_regs_struct regs;
	int status;

	(void)arg;
	for (int i = 0; i < TIMES; i++) {
		if (ptrace(PTRACE_ATTACH, program, NULL, NULL)) {
			refused = errno;
			continue;
		}
		attached++;
		if (waitpid(program, &status, __WALL) == program && WIFSTOPPED(status))
			seen += !ptrace(PTRACE_GETREGS, program, NULL, &regs) && regs.rsp;
		ptrace(PTRACE_DETACH, program, NULL, NULL);
	}
	over = 1;
	return 0;
}

int main(int argc, char **argv)
{
	static _Alignas(64) char state[512], stack[65536];
	struct itimerval often = { { 0, 700 }, { 0, 700 } }, never = { { 0, 0 }, { 0, 0 } };
	int status;

	(void)argv;
	program = getpid();
	signal(SIGALRM, on_alarm);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	__asm__ volatile("fxsave %0" : "=m"(state));
	setitimer(ITIMER_REAL, argc > 1 ? &often : &never, NULL);
	pid_t child = clone(look, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	while (!over)
		__asm__ volatile("fxrstor %0" : : "m"(state) : "memory");
	setitimer(ITIMER_REAL, &never, NULL);
	waitpid(child, &status, 0);
	printf("%d attached, %d seen, %d\n", attached, seen, refused);
	return 0;
}
