/* For tests/cli/native.sh: code that is executed one instruction at a time, and code of 32 bits. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static __attribute__((noinline)) void wide(int n)
{
	while (n--)
		__asm__ volatile("vpaddd %%zmm1, %%zmm1, %%zmm1" : : : "xmm1");
}

/* A far jump into code of 32 bits that comes back, by another, and exits: what is left of the
 * registers is undefined. */
static void narrow(void)
{
	static const uint8_t code[] = { 0xb8, 0x07, 0, 0, 0,		/* mov eax, 7 */
					0xea, 0,    0, 0, 0, 0x33, 0 }; /* jmp 0x33:... */
	uint8_t *p = mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	static uint32_t far[2] = { 0x20000000, 0x23 };
	uint32_t back = 0x20000040;

	static const uint8_t leave[] = { 0xb8, 231,  0,	   0,	0, /* mov eax, 231: exit_group */
					 0x31, 0xff, 0x0f, 0x05 }; /* xor edi, edi; syscall */
	memcpy(p, code, sizeof(code));
	memcpy(p + 6, &back, 4);
	memcpy(p + 0x40, leave, sizeof(leave));
	__asm__ volatile("ljmp *%0" : : "m"(far) : "rax", "memory");
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "wide"))
		wide(atoi(argv[2]));
	else
		narrow();
	printf("done\n");
	return 0;
}
