/* Runs long, with something in it for each question: calls, accesses, a string instruction. */
#include <stdint.h>
#include <string.h>

static volatile uint64_t long_counter;
static char from[64], to[64];

__attribute__((noinline)) void long_step(uint64_t i)
{
	long_counter += i & 3;
	if (!(i & 0xffffff)) {
		void *d = to, *s = from;
		uint64_t n = sizeof(to);
		__asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
	}
}

int main(void)
{
	for (uint64_t i = 0; i < 200000000; i++)
		long_step(i);
	return 0;
}
