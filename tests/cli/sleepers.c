/*
 * Code is made executable while other threads sleep, and then functions are called for the first
 * time, those of libraries among them.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int never[2];

static void *sleeps(void *arg)
{
	char c;

	return (void *)read(never[0], &c, 1);
}

static int by_length(const void *a, const void *b)
{
	return (int)strlen(*(char *const *)a) - (int)strlen(*(char *const *)b);
}

static void compile(void)
{
	unsigned char *code =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	code[0] = 0xc3; /* ret */
	mprotect(code, 4096, PROT_READ | PROT_EXEC);
	((void (*)(void))code)();
}

int main(void)
{
	static const char *words[] = { "three", "a", "of", "several", "word", "recorded" };
	volatile double x = 0.7;
	pthread_t t[3];
	char text[200];

	if (pipe(never))
		return 1;
	for (unsigned i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, sleeps, NULL);
	usleep(50000);
	compile();
	qsort(words, 6, sizeof(*words), by_length);
	snprintf(text, sizeof(text), "%s %.17g %a %+d %x", words[5], x, x, 12, 3456);
	x += strtod("12.5e3", NULL) + (double)strtol("0x77", NULL, 0);
	x += sin(x) + cos(x) + tan(x) + exp(0.1) + log(x) + pow(x, 0.3) + cbrt(x) + atan(x);
	x += lgamma(x) + tgamma(1.5) + erf(0.2) + sinh(0.3) + cosh(0.3) + tanh(0.3) + j0(0.5);
	printf("%s %d %s\n", text, x > 1, strstr(text, "0x"));
	return 0;
}
