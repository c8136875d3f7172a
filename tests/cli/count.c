/* Functions, data and accesses of which every number is known. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define NOIPA __attribute__((noipa))

volatile long counter, table[8];
static char bytes[64];

NOIPA void leaf(void)
{
	counter++; /* a read and a write */
}

NOIPA void middle(int n)
{
	for (int i = 0; i < n; i++)
		leaf();
}

NOIPA void other(void)
{
	leaf();
}

NOIPA void mark_begin(void)
{
}

NOIPA void mark_end(void)
{
}

/* 100 loads that are not aligned, 50 that are */
NOIPA uint64_t loads(void)
{
	uint64_t s = 0, x;

	for (int i = 0; i < 100; i++) {
		__asm__ volatile("movq %1, %0" : "=r"(x) : "m"(bytes[3]));
		s += x;
	}
	for (int i = 0; i < 50; i++) {
		__asm__ volatile("movq %1, %0" : "=r"(x) : "m"(table[1]));
		s += x;
	}
	return s;
}

/* 3 string moves, 60 branches and a return, 20 vector instructions, 60 accesses beside the strings'
 * and the return's */
long spot;
static char to[48];
void types(void *to, const void *from);
__asm__(".text\n"
	".type types, @function\n"
	"types:\n"
	".rept 3\n"
	"mov $16, %ecx\n"
	"rep movsb\n"
	".endr\n"
	"mov $40, %ecx\n"
	"1: dec %ecx\n"
	"jnz 1b\n"
	"mov $20, %ecx\n"
	"2: paddd %xmm1, %xmm0\n"
	"mov spot(%rip), %rax\n"
	"mov %rax, spot(%rip)\n"
	"addq $0, spot(%rip)\n"
	"dec %ecx\n"
	"jnz 2b\n"
	"ret\n"
	".size types, . - types\n");

int main(void)
{
	for (int i = 0; i < 10; i++)
		middle(7);
	for (int i = 0; i < 5; i++)
		other();
	for (int i = 0; i < 3; i++) {
		mark_begin();
		middle(4);
		mark_end();
		middle(2);
	}
	types(to, bytes);
	printf("%ld %d\n", counter, loads() != 1);
	return 0;
}
