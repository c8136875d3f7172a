/*
 * Two mappings that have one place of the shadow, 4 GiB and more apart: which of them is used, and
 * how, changes from time to time.
 *
 * usage: one-place HOW     0: both are read and written by turns; 1: the second is written to
 *                          once, among much of the first; 2: there is nothing but a little of
 *                          either
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE	 4096u
#define WORDS	 (PAGE / sizeof(int))
#define EACH	 4000u
#define FAR_AWAY (3ULL << 32)

static volatile int room[2 * PAGE] __attribute__((aligned(4096)));

int main(int argc, char **argv)
{
	volatile int *first = room, *second;
	unsigned how = argc > 1 ? (unsigned)atoi(argv[1]) : 0, x = 1, sum = 0;

	second = mmap((void *)((uintptr_t)room + FAR_AWAY), 2 * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if ((uintptr_t)second != (uintptr_t)room + FAR_AWAY)
		return 1;
	for (unsigned i = 0; i < 10 * EACH; i++) {
		x = x * 1103515245 + 12345;
		unsigned at = (x >> 16) % WORDS, what = x >> 28 & 7, phase = i / EACH;
		if (how == 0) {
			if (what < 3)
				sum += (unsigned)first[at];
			else if (what < 5)
				first[at] = (int)sum;
			else if (what == 5 && phase % 3 == 0)
				second[at] = (int)i;
			else if (what == 6 && phase % 3 == 1)
				sum += (unsigned)second[at];
		} else if (how == 1) {
			if (phase == 2)
				second[at] = (int)i;
			else if (what < 4)
				sum += (unsigned)first[at];
			else
				first[at] = (int)i;
		} else {
			if (phase == 0)
				second[at] = (int)i;
			else if (phase == 5)
				first[at] = (int)i;
			else if (phase == 6)
				sum += (unsigned)first[at];
		}
	}
	printf("%x\n", sum);
	return 0;
}
