/* A program to debug: every kind of thing that tests/gdb/cases asks gdb about. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node {
	int value;
	struct node *next;
};

__thread int per_thread = 11;
int counter;
int seen;
volatile long double ext = 1.5L;
volatile sig_atomic_t signals;
char text[32] = "untouched";

__attribute__((noinline)) int square(int x)
{
	int result = x * x;
	counter += result;
	return result;
}

__attribute__((noinline)) int depth(int n)
{
	if (n == 0)
		return 100;
	return depth(n - 1) + 1;
}

__attribute__((noinline)) int grow(int n)
{
	volatile char deep[5000];
	deep[4000] = (char)n;
	return n == 0 ? 0 : grow(n - 1) + deep[4000];
}

__attribute__((noinline)) static struct node *push(struct node *list, int value)
{
	struct node *n = malloc(sizeof(*n));
	n->value = value;
	n->next = list;
	return n;
}

__attribute__((noinline)) double scale(double x)
{
	ext = ext * 2 + x;
	return x * 2.5;
}

static void on_signal(int n)
{
	signals += n;
}

__attribute__((noinline)) void use_plugin(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW);
	int (*f)(int) = lib ? (int (*)(int))dlsym(lib, "plugin_work") : NULL;
	if (f)
		seen = f(5);
}

int main(int argc, char **argv)
{
	struct node *list = NULL;
	int total = 0;
	for (int i = 1; i <= 5; i++)
		total += square(i);
	total += depth(4) + grow(30) - 465;
	for (int i = 0; i < 4; i++)
		list = push(list, i * 11);
	double d = scale(3.0);
	per_thread++;
	errno = ERANGE;
	memcpy(text, "written", 8); /* one store, whatever the compiler */
	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
	if (argc > 1)
		use_plugin(argv[1]);
	printf("total %d, list %d, d %g, seen %d, signals %d\n", total, list->value, d, seen,
	       (int)signals);
	fflush(stdout);
	if (argc > 2) {
		int *nowhere = (int *)8;
		*nowhere = total;
	}
	return 7;
}
