/* A program that uses the gs base: in threads, children, another image of its own. */
#include <asm/prctl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long table[8] = { 0, 42 };

static unsigned long base(void)
{
	unsigned long v;
	syscall(SYS_arch_prctl, ARCH_GET_GS, &v);
	return v;
}

static unsigned long load(void)
{
	unsigned long v;
	__asm__ volatile("mov %%gs:8, %0" : "=r"(v));
	return v;
}

static void *thread(void *arg)
{
	syscall(SYS_arch_prctl, ARCH_SET_GS, arg);
	printf("thread %d %lu\n", base() == (unsigned long)arg, load());
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long other[8] = { 0, 77 };
	pthread_t t;
	int status;
	setbuf(stdout, NULL);
	printf("at first %lu\n", base());
	syscall(SYS_arch_prctl, ARCH_SET_GS, table);
	for (int i = 0; i < 2; i++) {
		pthread_create(&t, NULL, thread, i ? table : other);
		pthread_join(t, NULL);
	}
	printf("%d %lu\n", base() == (unsigned long)table, load());
	if (!fork()) {
		printf("child %d %lu\n", base() == (unsigned long)table, load());
		_exit(0);
	}
	wait(NULL);
	if (!vfork())
		_exit(base() != (unsigned long)table);
	wait(&status);
	printf("vfork %d\n", status);
	if (getauxval(AT_HWCAP2) & 2) { /* asm/hwcap2.h, HWCAP2_FSGSBASE */
		__asm__ volatile("wrgsbase %0" : : "r"(other));
		printf("written %d %lu\n", base() == (unsigned long)other, load());
	}
	if (argc < 2)
		execl(argv[0], argv[0], "again", (char *)NULL);
	return 0;
}
