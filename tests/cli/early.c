/*
 * At its start, two mappings that are 4 GiB apart and both in use, as a loader's and a stack's can
 * be by chance; one of them soon goes. Then some thirty million instructions that change memory.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

int main(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	char *near = mmap((char *)0x610010000000, 1 << 20, PROT_READ | PROT_WRITE, flags, -1, 0);
	char *far = mmap(near + (1UL << 32), 1 << 20, PROT_READ | PROT_WRITE, flags, -1, 0);
	unsigned x = 1;

	if (near == MAP_FAILED || far == MAP_FAILED)
		return 1;
	for (int i = 0; i < 1 << 20; i += 512)
		near[i] = far[i] = (char)i;
	munmap(far, 1 << 20);
	for (int i = 0; i < 4000000; i++) {
		x = x * 1103515245 + 12345;
		near[x % (1 << 20)] += (char)(x >> 24);
	}
	printf("%u\n", x);
	return 0;
}
