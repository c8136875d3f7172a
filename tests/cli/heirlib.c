/*
 * A program whose libraries come and go, and a library of it (compiled with -DLIBRARY=N), with code
 * enough to be worth leaving to the next image. tests/cli/heir.sh has the reasons.
 *
 * usage: heirlib SEED [STEPS]    each letter is a step: a, b or c loads liba.so and so on from the
 *        current directory and executes it; - unloads the latest; t loads the next one in a thread;
 *        s loads the next one, of which a thread that spins is told and executes it;
 *        w writes down where the latest is, and j maps memory there, with code of its own, twice;
 *        m maps memory where the latest was, with code of its own, and executes that; p changes a
 *        page of the latest; f does what follows in a child
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef LIBRARY
#define LIBRARY 0
#endif
#define VERSION LIBRARY
#include "functions.h"

__attribute__((noinline, aligned(4096))) uint64_t compute(uint64_t seed);
uint64_t compute(uint64_t seed)
{
	return through(seed * 0x9e3779b97f4a7c15ULL + LIBRARY, 2);
}

#if !LIBRARY
#define MOST 16
static struct {
	void *handle;
	uint64_t (*compute)(uint64_t);
} loaded[MOST];
static unsigned n_loaded;
static uint64_t sum;

static void load(char which)
{
	char name[] = "./libx.so";
	name[5] = which;
	void *h = n_loaded < MOST ? dlopen(name, RTLD_NOW) : NULL;
	if (!h)
		exit(90);
	loaded[n_loaded].handle = h;
	loaded[n_loaded].compute = (uint64_t(*)(uint64_t))dlsym(h, "compute");
	sum = loaded[n_loaded++].compute(sum);
}

static void *load_it(void *which)
{
	load(*(char *)which);
	return NULL;
}

/* Where its code is. */
static uint8_t *place(unsigned i)
{
	return (uint8_t *)((uintptr_t)loaded[i].compute & ~(uintptr_t)4095);
}

static void map_there(void)
{
	static const uint8_t code[] = { 0x48, 0x8d, 0x47, 0x05, 0xc3 }; /* lea rax, [rdi+5]; ret */
	uint8_t *at = place(n_loaded - 1);
	uint64_t (*call)(uint64_t) = loaded[n_loaded - 1].compute;
	if (dlclose(loaded[--n_loaded].handle))
		exit(91);
	if (mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) != at)
		exit(92);
	memcpy((uint8_t *)(uintptr_t)call, code, sizeof(code));
	mprotect(at, 4096, PROT_READ | PROT_EXEC);
	sum = call(sum);
	munmap(at, 4096);
}

/* It begins with something else: mov rax, rdi; ret. */
static void patch(void)
{
	uint8_t *at = place(n_loaded - 1);
	if (mprotect(at, 4096, PROT_READ | PROT_WRITE))
		exit(93);
	memcpy((uint8_t *)(uintptr_t)loaded[n_loaded - 1].compute, "\x48\x89\xf8\xc3", 4);
	if (mprotect(at, 4096, PROT_READ | PROT_EXEC))
		exit(94);
	sum = loaded[n_loaded - 1].compute(sum) + 1;
}

static uint64_t (*volatile given)(uint64_t);

/* It makes no system call before it has executed what it is given. */
static void *spin(void *x)
{
	while (!given)
		;
	*(uint64_t *)x = given(*(uint64_t *)x);
	return NULL;
}

static void load_for_another(char which)
{
	pthread_t t;
	uint64_t x = sum + 1;
	given = NULL;
	pthread_create(&t, NULL, spin, &x);
	load(which);
	given = loaded[n_loaded - 1].compute;
	pthread_join(t, NULL);
	sum += x;
}

static void write_place(void)
{
	FILE *f = fopen("place", "w");
	if (!f ||
	    fprintf(f, "%lx %lx\n", (unsigned long)(uintptr_t)place(n_loaded - 1),
		    (unsigned long)(uintptr_t)loaded[n_loaded - 1].compute) < 0 ||
	    fclose(f))
		exit(95);
}

/* lea rax, [rdi+N]; ret: where a library may be later, or anywhere if that cannot be */
static void map_at_place(void)
{
	unsigned long at, code;
	FILE *f = fopen("place", "r");
	if (!f || fscanf(f, "%lx %lx", &at, &code) != 2)
		exit(96);
	fclose(f);
	for (uint8_t n = 3; n < 9; n += 3) {
		uint8_t bytes[] = { 0x48, 0x8d, 0x47, n, 0xc3 };
		uint8_t *p = mmap((void *)at, 4096, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (p != (uint8_t *)at)
			p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
		memcpy(p + (code - at), bytes, sizeof(bytes));
		mprotect(p, 4096, PROT_READ | PROT_EXEC);
		sum = ((uint64_t(*)(uint64_t))(uintptr_t)(p + (code - at)))(sum);
		munmap(p, 4096);
	}
}

static void steps(const char *s)
{
	for (; *s; s++) {
		pthread_t t;
		char next = s[1];
		if (*s == '-' && n_loaded)
			dlclose(loaded[--n_loaded].handle);
		else if (*s == 'm' && n_loaded)
			map_there();
		else if (*s == 'p' && n_loaded)
			patch();
		else if (*s == 'w' && n_loaded)
			write_place();
		else if (*s == 'j')
			map_at_place();
		else if (*s == 's' && next >= 'a' && next <= 'c')
			load_for_another(*++s);
		else if (*s == 't' && next >= 'a' && next <= 'c' && s++ &&
			 !pthread_create(&t, NULL, load_it, &next))
			pthread_join(t, NULL);
		else if (*s >= 'a' && *s <= 'c')
			load(*s);
		else if (*s == 'f' && fork()) {
			int status = 0;
			wait(&status);
			printf("child %d\n", status);
			fflush(stdout);
		}
		for (unsigned i = 0; i < n_loaded; i++)
			sum = loaded[i].compute(sum);
	}
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	sum = compute(argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
	steps(argc > 2 ? argv[2] : "");
	printf("%llx\n", (unsigned long long)compute(sum));
	return 0;
}
#endif
