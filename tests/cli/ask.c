/*
 * What tests/cli/ask.sh records: code that is executed once, a lot of it. Flags, rcx and r11 are
 * live wherever it goes from one piece to another.
 *
 * With -DLIBRARY a library of functions that the program calls once each; the test makes copies of
 * it, which are other code. Else the program:
 *
 *	ask run FIRST LAST [MICROSECONDS]   calls those of libFIRST.so to libLAST.so, with a timer
 *	ask kill		a child does so, and is killed meanwhile
 *	ask children		so do several, one by one, each by fork, vfork and exec, clone
 *	ask write SEED		writes to deja's words for asking, at random
 *	ask spin		... so that it waits for ever
 *	ask patch MODULES	writes to the files of patched0.so and so on what it then calls
 *	ask made THREADS	every second one makes code and calls it, the others are as for run;
 *				one thread makes some
 *	ask make THREADS	all of them make code
 *	ask pages THREADS	... each function in a page of its own
 *	ask crowd		has code in more pages than are remembered, and changes some
 *	ask exec THREADS	... and another one executes "run 1 1" meanwhile
 */
#define FUNCTIONS 4000
#define TEXT_(x)  #x
#define TEXT(x)	  TEXT_(x)

#ifdef PATCHED

/* A page for each function. */
__asm__("	.text\n"
	"	.macro page n\n"
	"	.balign 4096\n"
	"	mov $\\n, %eax\n"
	"	ret\n"
	"	.balign 64\n"
	"	mov $99, %eax\n"
	"	ret\n"
	"	.endm\n"
	"	.altmacro\n"
	"	.globl first\n"
	"	.balign 4096\n"
	"first:\n"
	"	.set n, 0\n"
	"	.rept 32\n"
	"	page %n\n"
	"	.set n, n + 1\n"
	"	.endr\n"
	"	.balign 4096\n"
	"	.globl through\n"
	"through: push %rbx\n"
	"	call *%rdi\n"
	"	call first\n"
	"	pop %rbx\n"
	"	ret\n");

#elif defined LIBRARY

__asm__(".altmacro\n"
	".macro code n\n"
	"f\\n: lahf\n"
	"	seto %al\n"
	"	movzwl %ax, %eax\n"
	"	lea (%r8, %rcx, 4), %r8d\n"
	"	lea (%r11, %r8, 2), %r8d\n"
	"	add %eax, %r8d\n"
	"	imul $0x01000193, %r8d, %r8d\n"
	"	lea \\n(%r8, %r8, 2), %ecx\n"
	"	lea 7*\\n(%r8, %rcx, 2), %r11d\n"
	"	add $(\\n * 69069) & 0x7fffffff, %r8d\n"
	"	jc 1f\n"
	"	adc %ecx, %r8d\n"
	"	jmp 2f\n"
	"	nop\n"
	"1:	sbb %r11d, %r8d\n"
	"2:	jo 3f\n"
	"	ret\n"
	"3:	adc $77, %r8d\n"
	"	ret\n"
	".endm\n"
	".macro address n\n"
	"	.quad f\\n\n"
	".endm\n"
	".macro calls n\n"
	"	call f\\n\n"
	"	lea table(%rip), %rdx\n"
	"	jc 1f\n"
	"	call *8*(\\n + 1)(%rdx)\n"
	"	jmp 2f\n"
	"1:	call *8*(\\n + 2)(%rdx)\n"
	"2:\n"
	".endm\n"
	"	.text\n"
	"	.set n, 0\n"
	"	.rept " TEXT(FUNCTIONS) " + 3\n"
					"	code %n\n"
					"	.set n, n + 1\n"
					"	.endr\n"
					"	.globl all\n"
					"	.type all, @function\n"
					"all:	mov %edi, %r8d\n"
					"	mov $1, %ecx\n"
					"	mov $2, %r11d\n"
					"	add $0, %ecx\n"
					"	.set n, 0\n"
					"	.rept " TEXT(
						FUNCTIONS) " / 3\n"
							   "	calls %n\n"
							   "	.set n, n + 3\n"
							   "	.endr\n"
							   "	mov %r8d, %eax\n"
							   "	ret\n"
							   "	.section .data.rel.ro, \"aw\"\n"
							   "	.balign 8\n"
							   "table:\n"
							   "	.set n, 0\n"
							   "	.rept " TEXT(
								   FUNCTIONS) " + 3\n"
									      "	address %n\n"
									      "	.set n, n + 1\n"
									      "	.endr\n"
									      "	.text\n");

#else
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../translator/area.h"

static volatile unsigned ticks, sum;

static void on_alarm(int sig)
{
	(void)sig;
	ticks++;
	for (unsigned i = 0; i < 20; i++)
		sum = sum * 69069 + i;
}

static void start_timer(int us)
{
	struct itimerval t = { { 0, us }, { 0, us } };

	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &t, NULL);
}

static unsigned all_of(int n)
{
	char name[40];

	snprintf(name, sizeof(name), "./lib%d.so", n);
	void *lib = dlopen(name, RTLD_NOW);
	unsigned (*all)(unsigned) = lib ? (unsigned (*)(unsigned))dlsym(lib, "all") : NULL;
	if (!all) {
		printf("no %s\n", name);
		exit(9);
	}
	return all((unsigned)n);
}

static int do_run(int first, int last)
{
	for (int n = first; n <= last; n++) {
		printf("%d: %08x\n", n, all_of(n));
		fflush(stdout);
	}
	return 0;
}

static void wait_for(pid_t pid)
{
	int status = -1;

	waitpid(pid, &status, 0);
	printf("status %#x\n", status);
	fflush(stdout);
}

static int do_kill(void)
{
	for (int n = 1; n <= 2; n++) {
		int to[2];
		char c;
		if (pipe(to))
			return 9;
		pid_t pid = fork();
		if (!pid) {
			for (;;)
				for (int k = 1; k <= 8; k++) {
					unsigned x = all_of(k);
					if (write(to[1], &x, 1) != 1)
						_exit(1);
				}
		}
		for (int k = 0; k < n; k++)
			if (read(to[0], &c, 1) != 1)
				return 9;
		usleep(1000 * (unsigned)n);
		kill(pid, SIGKILL);
		wait_for(pid);
	}
	return 0;
}

static char stack[65536];

static int cloned(void *arg)
{
	_exit((int)(all_of((int)(intptr_t)arg) & 63));
}

static int do_children(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit((int)(all_of(1) & 63));
	wait_for(pid);
	pid = vfork();
	if (!pid) {
		execl("./ask", "ask", "run", "2", "2", "1000", (char *)NULL);
		_exit(127);
	}
	wait_for(pid);
	pid = clone(cloned, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)3);
	wait_for(pid);
	printf("4: %08x\n", all_of(4));
	return 0;
}

/* ---- who writes to deja's memory ---- */

static volatile uint64_t *control;
static unsigned random_seed;
#define AT(t) control[((t)-T_BASE) / 8]

static void find_control(void)
{
	FILE *f = fopen("//proc/self/maps", "r"); /* with deja's: recorder/hide.c */
	char line[400];
	unsigned long start, end;

	while (f && fgets(line, sizeof(line), f))
		if (!control && strstr(line, "memfd:deja") && strstr(line, "rw-s") &&
		    sscanf(line, "%lx-%lx", &start, &end) == 2 && end - start > (1 << 20))
			control = (uint64_t *)(end - 8192);
	if (!control)
		exit(3);
}

/* Also for a handler in the midst of it: nothing is locked. */
static int number(int n)
{
	static volatile uint32_t x;

	x = x * 1664525 + 1013904223 + random_seed;
	return (int)(x >> 8) % n;
}

static uint64_t some_value(void)
{
	switch (number(6)) {
	case 0:
		return 0;
	case 1:
		return 1;
	case 2:
		return (uint64_t)(number(40000));
	case 3:
		return (uint64_t)(uintptr_t)all_of + (uint64_t)(number(64));
	case 4:
		return (uint64_t)number(1 << 23) << 40 | (uint64_t)number(1 << 23);
	default:
		return 1ULL << number(64);
	}
}

static void write_some(void)
{
	static const int where[] = { T_LISTEN, T_ASK, T_ASK, T_ANSWER, T_ASKED, T_ASK_TO };
	int k = number(6);

	/* what it does not ask for is answered, too: an answer leads astray at once */
	if (where[k] != T_ANSWER || number(8) == 0)
		AT(where[k]) = some_value();
}

static void on_alarm_write(int sig)
{
	on_alarm(sig);
	write_some();
}

static void *writes(void *arg)
{
	for (;;)
		write_some();
	return arg;
}

static int do_write(unsigned seed)
{
	find_control();
	random_seed = 2 * seed;
	start_timer(2000);
	signal(SIGALRM, on_alarm_write);
	pthread_t t;
	for (int n = 1; n <= 2; n++) {
		if (n == 2 && seed % 2)
			pthread_create(&t, NULL, writes, NULL);
		write_some();
		all_of(n);
	}
	_exit(0);
}

static void *takes(void *arg)
{
	for (;;) {
		AT(T_LISTEN) = 1;
		AT(T_ASK) = 0;
	}
	return arg;
}

static int do_spin(void)
{
	pthread_t t;

	find_control();
	/* while there is nobody yet who takes what is asked: perhaps nothing new runs then */
	if (write(1, "spins\n", 6) != 6)
		return 9;
	pthread_create(&t, NULL, takes, NULL);
	for (int n = 1;; n = n % 8 + 1)
		all_of(n);
}

/* ---- who writes to a module ---- */

static int file;
static long place; /* in it */

static void change(void)
{
	unsigned value = 0x5a5a5a;

	if (pwrite(file, &value, 4, place + 1) != 4)
		exit(9);
}

/* A module is changed right after some of its code has been asked for, in a page that nobody has
 * looked at yet or in one that somebody has, before that is called or by what calls it. */
static int do_patch(int modules)
{
	char name[40];
	unsigned bad = 0;

	for (int n = 0; n < modules; n++) {
		snprintf(name, sizeof(name), "./patched%d.so", n);
		void *lib = dlopen(name, RTLD_NOW);
		const uint8_t *first = lib ? dlsym(lib, "first") : NULL;
		unsigned (*through)(void (*)(void)) =
			lib ? (unsigned (*)(void (*)(void)))dlsym(lib, "through") : NULL;
		Dl_info info;
		file = open(name, O_RDWR);
		if (!first || !through || file < 0 || !dladdr(first, &info))
			return 9;
		place = first - (const uint8_t *)info.dli_fbase;
		bool direct = n & 1, seen = n & 2;
		if (seen && (*(unsigned (*)(void))(first + 64))() != 99)
			return 9;
		for (unsigned i = 1; i < 32; i++)
			bad += (*(unsigned (*)(void))(first + 4096UL * i))() != i;
		if (!direct)
			change();
		unsigned got = direct ? through(change) : (*(unsigned (*)(void))first)();
		bad += !direct && got != 0x5a5a5a;
	}
	printf("%u wrong\n", bad);
	return 0;
}

/* ---- who makes code ---- */

#define MADE  4000 /* functions */
#define ROOM  32   /* bytes for each */

/* add edi, a; jc 1f; xor edi, b; 1: lea eax, [rdi + c]; ret */
static void make_function(uint8_t *p, unsigned a, unsigned b, unsigned c)
{
	static const uint8_t parts[] = { 0x81, 0xc7, 0, 0,    0,    0, 0x72, 6, 0x81, 0xf7, 0,
					 0,    0,    0, 0x8d, 0x87, 0, 0,    0, 0,    0xc3 };
	uint8_t code[sizeof(parts)];

	memcpy(code, parts, sizeof(parts));
	memcpy(code + 2, &a, 4);
	memcpy(code + 10, &b, 4);
	memcpy(code + 16, &c, 4);
	memcpy(p, code, sizeof(code));
}

static uint8_t *room_for(unsigned pages)
{
	uint8_t *room = mmap(NULL, pages * 4096UL, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (room == MAP_FAILED)
		exit(9);
	return room;
}

/* Makes one function after the other, in memory that it may write to and execute, and calls each at
 * once; and older ones, some of which it makes anew. */
static unsigned makes(unsigned seed)
{
	uint8_t *room = room_for((MADE * ROOM + 4095) / 4096);
	unsigned x = seed, result = 0;

	for (unsigned i = 0; i < MADE; i++) {
		unsigned which = i;
		for (int again = 0; again < 3; again++) {
			uint8_t *p = room + (size_t)which * ROOM;
			x = x * 1664525 + 1013904223;
			if (again < 2)
				make_function(p, x, x ^ 0x55aa55aa, i);
			result = (*(unsigned (*)(unsigned))p)(result ^ x);
			which = x % (i + 1);
			if (x >> 29)
				again++;
		}
	}
	munmap(room, MADE * ROOM);
	return result;
}

/* A function in each page, called once. */
static unsigned in_pages(uint8_t *room, unsigned pages, unsigned result)
{
	for (unsigned i = 0; i < pages; i++) {
		make_function(room + 4096UL * i, i, ~i, 7 * i);
		result = (*(unsigned (*)(unsigned))(room + 4096UL * i))(result);
	}
	return result;
}

/* So many pages that those of the first functions are forgotten, though not what was translated of
 * them. These pages are read again for another function in them, when the first one has been
 * changed already. */
#define CROWD 4400

static int do_crowd(void)
{
	uint8_t *room = room_for(CROWD);
	unsigned result = in_pages(room, CROWD, 1);

	for (unsigned i = 0; i < 200; i++) {
		uint8_t *p = room + 4096UL * i;
		make_function(p, 3 * i, i, i);
		make_function(p + 2048, i, 3 * i, ~i);
		result = (*(unsigned (*)(unsigned))(p + 2048))(result);
		result = (*(unsigned (*)(unsigned))p)(result);
	}
	printf("%08x\n", result);
	return 0;
}

static void *one_of_many(void *arg)
{
	unsigned n = (unsigned)(uintptr_t)arg;
	unsigned result = n % 2 ? all_of((int)(n % 8 + 1)) : makes(n);

	return (void *)(uintptr_t)result;
}

static void *one_maker(void *arg)
{
	return (void *)(uintptr_t)makes((unsigned)(uintptr_t)arg);
}

static void *one_in_pages(void *arg)
{
	return (void *)(uintptr_t)in_pages(room_for(1000), 1000, (unsigned)(uintptr_t)arg);
}

static int do_made(unsigned threads, void *(*one)(void *))
{
	pthread_t t[64];
	void *result;

	threads = threads < 64 ? threads : 64;
	if (threads == 1)
		printf("%08x\n", makes(0));
	for (unsigned i = 0; threads > 1 && i < threads; i++)
		pthread_create(&t[i], NULL, one, (void *)(uintptr_t)i);
	for (unsigned i = 0; threads > 1 && i < threads; i++) {
		pthread_join(t[i], &result);
		printf("%u: %08x\n", i, (unsigned)(uintptr_t)result);
	}
	return 0;
}

static void *on_and_on(void *arg)
{
	for (uintptr_t n = (uintptr_t)arg;; n++)
		one_of_many((void *)n);
	return arg;
}

static int do_exec(unsigned threads)
{
	pthread_t t;

	for (unsigned i = 0; i < threads; i++)
		pthread_create(&t, NULL, on_and_on, (void *)(uintptr_t)i);
	usleep(20000);
	execl("./ask", "ask", "run", "1", "1", (char *)NULL);
	return 9;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (argc > 4)
		start_timer(atoi(argv[4]));
	if (!strcmp(mode, "run") && argc > 3)
		return do_run(atoi(argv[2]), atoi(argv[3]));
	if (!strcmp(mode, "kill"))
		return do_kill();
	if (!strcmp(mode, "children"))
		return do_children();
	if (!strcmp(mode, "write") && argc > 2)
		return do_write((unsigned)atoi(argv[2]));
	if (!strcmp(mode, "spin"))
		return do_spin();
	if (!strcmp(mode, "patch") && argc > 2)
		return do_patch(atoi(argv[2]));
	if (!strcmp(mode, "made") && argc > 2)
		return do_made((unsigned)atoi(argv[2]), one_of_many);
	if (!strcmp(mode, "make") && argc > 2)
		return do_made((unsigned)atoi(argv[2]), one_maker);
	if (!strcmp(mode, "pages") && argc > 2)
		return do_made((unsigned)atoi(argv[2]), one_in_pages);
	if (!strcmp(mode, "crowd"))
		return do_crowd();
	if (!strcmp(mode, "exec") && argc > 2)
		return do_exec((unsigned)atoi(argv[2]));
	return 2;
}
#endif
