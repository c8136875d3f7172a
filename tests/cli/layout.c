/*
 * Where a program lies and what it has asked for, before and after an exec that fails and one that
 * does not, by itself, in a thread and in children of both kinds. tests/cli/layout.sh has the
 * reasons.
 *
 * usage: layout errno|kill COMMAND...   becomes the command, where personality(2) must only ask
 *        layout [WAYS]     a letter for each exec that is still to come: e by itself, t in a
 * thread, f in a forked child, v in one made by vfork; s by a
 *                          script; c of ./closed in a child; k one that a filter traps
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *next[] = { "layout", NULL, NULL };
static const char *program = "/proc/self/exe";

static void say(const char *when)
{
	char text[32] = "";
	unsigned now = (unsigned)personality(0xffffffff); /* before any call that deja makes */
	FILE *f = fopen("/proc/self/personality", "r");
	if (f && fgets(text, sizeof(text), f))
		text[strcspn(text, "\n")] = 0;
	if (f)
		fclose(f);
	printf("%s: personality %x, %s\n", when, now, text);
}

static void where(void)
{
	int here = 0;
	void *map = mmap(NULL, 1 << 22, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("at %p %p %p %p %p %lx\n", (void *)(size_t)where, (void *)(size_t)printf,
	       (void *)&here, sbrk(0), map, getauxval(AT_SYSINFO_EHDR));
}

static void *become(void *unused)
{
	(void)unused;
	execv("/nowhere/at/all", next);
	if (errno == ENOENT)
		execv(program, next);
	_exit(90);
}

static void filter(unsigned nr, unsigned answer)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, answer),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &prog))
		exit(91);
}

static void trapped(int sig)
{
	(void)sig;
	say("trapped");
}

int main(int argc, char **argv)
{
	if (argc > 2 && (!strcmp(argv[1], "errno") || !strcmp(argv[1], "kill"))) {
		filter(SYS_personality,
		       *argv[1] == 'k' ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM);
		execvp(argv[2], argv + 2);
		exit(92);
	}
	const char *ways = argc > 1 ? argv[1] : "";
	int status = 0;
	pid_t child = 1;
	pthread_t t;
	setvbuf(stdout, NULL, _IOLBF, 0);
	where();
	say("begun");
	execv("/nowhere/at/all", next);
	say("an exec has failed");
	if (!*ways)
		return 0;
	next[1] = strdup(ways + 1);
	switch (*ways) {
	case 'k':
		signal(SIGSYS, trapped);
		filter(SYS_execve, SECCOMP_RET_TRAP);
		execv(program, next);
		say("an exec was trapped");
		return 0;
	case 's':
		program = "./script";
		child = 0;
		break;
	case 'c':
		program = "./closed";
		/* fall through */
	case 'f':
		child = fork();
		break;
	case 'v':
		child = vfork();
		break;
	case 't':
		pthread_create(&t, NULL, become, NULL);
		pthread_join(t, NULL);
		break;
	default:
		child = 0;
	}
	if (!child)
		become(NULL);
	wait(&status);
	say("a child has ended");
	return status;
}
