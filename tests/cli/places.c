/* A function whose code is mapped at two places beside its own, and called there by two processes:
 * at the first 10 times by one, at the second 3 times by the same and 7 times by the other. The
 * places are the arguments. The other process has two threads. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* 12 instructions: 4 of its 5 rounds begin with a branch */
__asm__(".text\n"
	".p2align 12\n"
	".type rounds, @function\n"
	"rounds:\n"
	"mov $5, %ecx\n"
	"1: dec %ecx\n"
	"jnz 1b\n"
	"ret\n"
	".size rounds, . - rounds\n"
	".p2align 12\n");
void rounds(void);
extern const char __executable_start[];

__attribute__((noipa)) static void times(void (*call)(void), int n)
{
	for (int i = 0; i < n; i++) {
		call();
		__asm__ volatile("");
	}
}

__attribute__((noipa)) static void second(void (*call)(void), int n)
{
	times(call, n);
	__asm__ volatile("");
}

static void *nothing(void *arg)
{
	return arg;
}

int main(int argc, char **argv)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	void (*place[2])(void) = { 0 };

	for (int i = 0; i < 2 && i + 1 < argc; i++) {
		void *at = (void *)strtoul(argv[i + 1], NULL, 0);
		if (mmap(at, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd,
			 (const char *)rounds - __executable_start) != at)
			return 1;
		place[i] = (void (*)(void))(uintptr_t)at;
	}
	if (!place[1])
		return 1;
	rounds();
	times(place[0], 10);
	second(place[1], 3);
	int status = 1;
	pid_t child = fork();
	if (!child) {
		pthread_t thread;
		second(place[1], 7);
		_exit(pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL));
	}
	return child < 0 || waitpid(child, &status, 0) != child || status;
}
