/* Leaks, and frees what it should not, as the argument says: tests/cli/queries.sh. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

static void *kept[8];

KEEP static void *make(unsigned n)
{
	return malloc(n);
}

KEEP static void leak(void)
{
	for (int i = 0; i < 3; i++)
		kept[i] = make(100 + i);
	kept[0] = kept[1] = NULL;
}

KEEP static void drop(void *p)
{
	free(p);
}

/* What a child has made that runs in this process's memory, of which the recording has nothing. */
KEEP static void *made_by_child(void)
{
	if (vfork() == 0) {
		kept[7] = malloc(500);
		_exit(0);
	}
	return kept[7];
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	void *a, *b, *p = NULL, *q;

	leak();
	a = realloc(make(40), 5000);
	drop(a);
	b = realloc(calloc(10, 20), 1);
	kept[3] = b;
	if (posix_memalign(&p, 64, 300) == 0)
		drop(p);
	drop(NULL);
	q = make(32);
	drop(strcmp(way, "inside") == 0 ? (char *)q + 16
	     : strcmp(way, "wild") == 0 ? (void *)&argv[4]
					: q);
	if (strcmp(way, "twice") == 0)
		drop(q);
	if (strcmp(way, "child") == 0) {
		q = made_by_child();
		drop(q);
		drop(q);
	}
	return 0;
}
