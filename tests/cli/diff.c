/*
 * Goes the way that the number in a file says: tests/cli/queries.sh. There is no libc in it: which
 * way its strlen() goes is a matter of where the environment's strings lie.
 */
#include <fcntl.h>
#include <sys/syscall.h>

__asm__(".globl _start\n"
	"_start:\n"
	"	and $-16, %rsp\n"
	"	call main\n"
	"	mov %eax, %edi\n"
	"	mov $231, %eax\n" /* exit_group */
	"	syscall\n");

static long call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

static __attribute__((noinline)) int odd(int n)
{
	return n * 3 + 1;
}

static __attribute__((noinline)) int even(int n)
{
	return n / 2;
}

int main(void)
{
	char text[16] = "";
	int fd = (int)call(SYS_open, (long)"number", O_RDONLY, 0), n = 0, steps = 0;

	if (call(SYS_read, fd, (long)text, 15) < 1)
		return 1;
	for (const char *p = text; *p >= '0'; p++)
		n = n * 10 + *p - '0';
	for (; n > 1; steps++)
		n = n % 2 ? odd(n) : even(n);
	return steps & 1;
}
