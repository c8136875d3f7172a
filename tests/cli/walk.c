/*
 * Looks long after at what the kernel wrote: a buffer on the stack is filled by read(2), and its
 * end is read byte by byte, written or filled again before it was looked at. In between, work.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE 3000

static unsigned work(unsigned n)
{
	unsigned x = 1;

	while (n--)
		x = x * 1103515245 + 12345;
	return x;
}

static unsigned look(int fd, unsigned round)
{
	volatile unsigned char buf[SIZE];
	unsigned sum = 0;

	for (unsigned again = 0; again < 1 + round % 3; again++)
		if (read(fd, (void *)buf, SIZE) != SIZE)
			return 0;
	sum += work(100 + round * 37 % 3000);
	for (unsigned i = 0; i < 400; i++) {
		if ((i + round) % 7 == 0)
			buf[i] = 1;
		if ((i + round) % 5 == 0)
			sum += buf[i];
	}
	if (round % 10 == 3) {
		void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		sum += *(volatile char *)p + munmap(p, 4096);
	}
	return sum + buf[SIZE - 1 - round % 100];
}

int main(void)
{
	int fd = open("/dev/urandom", O_RDONLY);
	unsigned sum = 0;

	for (unsigned round = 0; round < 300; round++)
		sum += look(fd, round);
	printf("%u\n", sum & 0);
	return 0;
}
