/* Planted defects, one for each argument; each ends in check(), which crashes. tests/cli/origin.sh
 * asks where the value that it was given came from. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

struct item {
	char name[16];
	long count;
};
static long shared, table[4] = { 10, 20, 30, 40 };
static struct item *stash;

KEEP void check(long value)
{
	*(volatile long *)8 = value; /* the end */
}

KEEP long uninitialised_heap(void)
{
	struct item *i = malloc(sizeof(*i)); /* culprit: heap */
	strcpy(i->name, "x");
	return i->count;
}

KEEP void fill(long n)
{
	volatile long deep[20];
	for (int i = 0; i < 20; i++)
		deep[i] = n + i;
}

KEEP long uninitialised_stack(int set)
{
	volatile long local[12];
	if (set)
		local[3] = 1;
	return local[3];
}

KEEP void set_name(struct item *i, const char *name)
{
	for (int k = 0; (i->name[k] = name[k]); k++) /* culprit: overflow */
		;
}

KEEP long overflow(void)
{
	struct item *i = stash = calloc(1, sizeof(*i));
	i->count = 5;
	set_name(i, "a name that is too long");
	return *(volatile long *)&stash->count;
}

KEEP long use_after_free(void)
{
	volatile long *other;
	stash = calloc(1, sizeof(*stash));
	stash->count = 6;
	free(stash); /* culprit: freed */
	other = malloc(sizeof(struct item));
	for (int k = 0; k < 3; k++)
		other[k] = 77; /* culprit: reused */
	return stash->count;
}

KEEP long five(long a, long b)
{
	return b ? a + 0 * b : 0;
}
KEEP long four(long a, long b)
{
	return five(b, a);
}
KEEP long three(long a, long b)
{
	return four(b, a);
}
KEEP long two(long a, long b)
{
	return three(b, a);
}
KEEP long one(long a, long b)
{
	return two(b, a);
}
KEEP long wrong_argument(void)
{
	return one(1234567, 1); /* culprit: argument */
}

KEEP long from_file(void)
{
	long v = 0;
	int fd = open("input", O_RDONLY);
	if (read(fd, &v, sizeof(v)) < 1) /* culprit: file */
		exit(1);
	return v;
}

KEEP long from_socket(void)
{
	int pair[2];
	char text[16] = "";
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || write(pair[0], "4711", 4) != 4 ||
	    recv(pair[1], text, 4, 0) != 4) /* culprit: socket */
		exit(1);
	return text[2] - '0';
}

KEEP void *producer(void *arg)
{
	shared = 99 * (long)arg; /* culprit: thread */
	return NULL;
}

KEEP long from_thread(void)
{
	pthread_t t;
	pthread_create(&t, NULL, producer, (void *)3);
	pthread_join(t, NULL);
	return shared;
}

KEEP long copied(void)
{
	static long copy[4], again[4];
	void *(*volatile move)(void *, const void *, size_t) = memmove;
	*(volatile long *)&table[2] = 555; /* culprit: copied */
	move(copy, table, sizeof(copy));
	move(again, copy, sizeof(again));
	return *(volatile long *)&again[2];
}

/* A number goes round the x87 registers. */
KEEP long x87(void)
{
	static volatile short number;
	long v;
	number = 4321; /* culprit: x87 */
	__asm__ volatile("fldz\n\tfilds %1\n\tfldpi\n\tfxch\n\tfst %%st(2)\n\t"
			 "fstp %%st(0)\n\tfstp %%st(0)\n\tfld %%st(0)\n\tfchs\n\tfincstp\n\t"
			 "fdecstp\n\tfabs\n\tfistpq %0\n\tfstp %%st(0)"
			 : "=m"(v)
			 : "m"(number)
			 : "st", "st(1)", "st(2)", "st(3)");
	return v;
}

/* Registers that are put away and fetched again: of a vector, and one of the x87's. */
KEEP long saved(int x87)
{
	static unsigned char area[512] __attribute__((aligned(16)));
	static volatile double number;
	long v;
	number = x87 ? 77 : 4321; /* culprit: saved */
	__asm__ volatile("movsd %1, %%xmm5\n\tfldl %1\n\tfxsave64 %2\n\tfstp %%st(0)\n\t"
			 "pxor %%xmm5, %%xmm5\n\tfxrstor64 %2\n\tfistpq %0"
			 : "=m"(v)
			 : "m"(number), "m"(area)
			 : "xmm5", "st", "memory");
	if (!x87)
		__asm__ volatile("movq %%xmm5, %0" : "=r"(v));
	return v;
}

/* Nobody writes the registers for 14 million instructions. */
KEEP long far(int x87)
{
	static volatile long number;
	long v, w;
	number = 4321; /* culprit: far */
	__asm__ volatile("fildq %2\n\tfldz\n\tmovq %2, %%xmm9\n\tmov $7000000, %%ecx\n\t"
			 "1: dec %%ecx\n\tjnz 1b\n\tfstp %%st(0)\n\tfistpq %0\n\tmovq %%xmm9, %1"
			 : "=m"(v), "=r"(w)
			 : "m"(number)
			 : "xmm9", "ecx", "st", "st(1)", "cc");
	return x87 ? v : w;
}

KEEP long from_environment(void)
{
	return getenv("PLANTED")[1]; /* culprit: environment */
}

KEEP long constant_data(int i)
{
	return table[i];
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	long v = 0;

	/* so long that it pays to translate it */
	for (volatile int i = 0; i < 40000; i++)
		;
	fill(0x5a5a);
	if (!strcmp(way, "heap"))
		v = uninitialised_heap();
	else if (!strcmp(way, "stack"))
		v = uninitialised_stack(argc > 5);
	else if (!strcmp(way, "overflow"))
		v = overflow();
	else if (!strcmp(way, "freed"))
		v = use_after_free();
	else if (!strcmp(way, "argument"))
		v = wrong_argument();
	else if (!strcmp(way, "file"))
		v = from_file();
	else if (!strcmp(way, "socket"))
		v = from_socket();
	else if (!strcmp(way, "thread"))
		v = from_thread();
	else if (!strcmp(way, "copied"))
		v = copied();
	else if (!strcmp(way, "x87"))
		v = x87();
	else if (!strcmp(way, "saved") || !strcmp(way, "saved87"))
		v = saved(way[5] == '8');
	else if (!strcmp(way, "far") || !strcmp(way, "far87"))
		v = far(way[3] == '8');
	else if (!strcmp(way, "environment"))
		v = from_environment();
	else if (!strcmp(way, "constant"))
		v = constant_data(argc);
	check(v);
	return 0;
}
