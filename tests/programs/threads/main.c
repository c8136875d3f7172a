/*
 * Threads in every way that programs use them, for the end-to-end tests. Each case checks itself
 * and prints one line that is the same in every run, on any machine.
 *
 * usage: threads CASE|GROUP...     (without arguments it lists them)
 *
 * Cases that end the program (the group `last') are run one at a time. The group `module' needs
 * module.so, made from threads-module.c beside this folder, in the current directory.
 *
 * The files beside this one are the program, too; here is what they share, and the table of all
 * cases.
 */
#include "threads.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

const char *running = "?";
atomic_int wrong;
char *self;
long shared;
atomic_int finished;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void say(const char *format, ...)
{
	va_list args;

	printf("%s: ", running);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

pid_t tid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

void start(pthread_t *t, void *(*f)(void *), void *arg)
{
	int e = pthread_create(t, NULL, f, arg);

	if (e) {
		printf("%s: pthread_create: %s\n", running, strerror(e));
		exit(98);
	}
}

void *join(pthread_t t)
{
	void *r = NULL;

	expect(pthread_join(t, &r) == 0);
	return r;
}

/* Runs f(0) to f(n - 1) in threads of their own; the sum of what they return. */
long together(int n, void *(*f)(void *))
{
	pthread_t t[64];
	long sum = 0;

	for (long i = 0; i < n; i++)
		start(&t[i], f, (void *)i);
	for (int i = 0; i < n; i++)
		sum += (long)join(t[i]);
	return sum;
}

void pause_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* Something that takes time and is few instructions. */
void compute(volatile long *n)
{
	(*n)++;
	for (int i = 0; i < 8; i++)
		__builtin_ia32_pause();
}

long futex(atomic_int *word, int op, int value, void *timeout, atomic_int *word2, int value3)
{
	return syscall(SYS_futex, word, op, value, timeout, word2, value3);
}

/* Waits until *word is value. */
void until(atomic_int *word, int value)
{
	int now;

	while ((now = atomic_load(word)) != value)
		futex(word, FUTEX_WAIT, now, NULL, NULL, 0);
}

void tell(atomic_int *word, int value)
{
	atomic_store(word, value);
	futex(word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void add(atomic_int *word, int value)
{
	atomic_fetch_add(word, value);
	futex(word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Whether thread t of this process is in a system call that waits. */
void until_asleep(pid_t t)
{
	char name[64], text[512];

	snprintf(name, sizeof(name), "/proc/self/task/%d/stat", (int)t);
	for (int i = 0; i < 5000; i++) {
		int fd = open(name, O_RDONLY);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		const char *p;

		close(fd);
		text[n > 0 ? n : 0] = 0;
		p = strrchr(text, ')');
		if (p && p[2] == 'S')
			return;
		pause_ms(1);
	}
	say("thread does not go to sleep");
}

void *square_sum(void *arg)
{
	long n = (long)arg, sum = 0;

	for (long i = 1; i <= 1000 * (n + 1); i++)
		sum += i * i % 7;
	return (void *)sum;
}

void *nothing(void *arg)
{
	return arg;
}

static const struct {
	const char *group, *name;
	void (*run)(void);
} cases[] = {
	{ "making", "create", case_create },
	{ "making", "detach", case_detach },
	{ "many", "short", case_short },
	{ "many", "idle", case_idle },
	{ "making", "clone", case_clone },
	{ "making", "names", case_names },
	{ "locks", "mutex", case_mutex },
	{ "locks", "condvar", case_condvar },
	{ "locks", "rwlock", case_rwlock },
	{ "locks", "barrier", case_barrier },
	{ "locks", "sem", case_sem },
	{ "locks", "spin", case_spin },
	{ "locks", "futex", case_futex },
	{ "locks", "robust", case_robust },
	{ "locks", "pi", case_pi },
	{ "locks", "atomics", case_atomics },
	{ "signals", "kill", case_kill },
	{ "signals", "trap", case_trap },
	{ "signals", "process", case_process },
	{ "signals", "sigwait", case_sigwait },
	{ "signals", "eintr", case_eintr },
	{ "signals", "fault", case_fault },
	{ "signals", "timer", case_timer },
	{ "signals", "group", case_group },
	{ "signals", "cancel", case_cancel },
	{ "calls", "calls", case_calls },
	{ "calls", "setxid", case_setxid },
	{ "calls", "fork", case_fork },
	{ "calls", "spawn", case_spawn },
	{ "calls", "pipes", case_pipes },
	{ "memory", "tls", case_tls },
	{ "memory", "maps", case_maps },
	{ "memory", "handover", case_handover },
	{ "memory", "malloc", case_malloc },
	{ "memory", "jit", case_jit },
	{ "memory", "fresh", case_fresh },
	{ "memory", "stdio", case_stdio },
	{ "module", "module", case_module },
	{ "last", "last-first", last_first },
	{ "last", "last-none", last_none },
	{ "last", "last-group", last_group },
	{ "last", "last-exec", last_exec },
	{ "last", "last-execfail", last_execfail },
	{ "last", "last-crash", last_crash },
	{ "last", "last-abort", last_abort },
	{ "last", "last-kill", last_kill },
	{ "last", "last-return", last_return },
};

int main(int argc, char **argv)
{
	int done = 0;

	self = argv[0];
	for (int a = 1; a < argc; a++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			if (!strcmp(argv[a], cases[i].group) || !strcmp(argv[a], cases[i].name)) {
				running = cases[i].name;
				cases[i].run();
				done++;
			}
	for (size_t i = 0; argc == 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
		printf("%s %s\n", cases[i].group, cases[i].name);
	return wrong || (argc > 1 && !done) ? 1 : 0;
}
