/*
 * Litmus tests of the order between threads. Each thread writes what it is about to publish, and
 * what it has seen, into a journal of its own, in memory where a checker finds it: `journal[t]' is
 * the number of the newest value that thread t has written (before it publishes it), or seen (after
 * it got it).
 *
 * What holds in every run, natively and recorded, and is checked here: no value is seen that was
 * not written. What must hold in the timeline of a recording, and is checked by tests/cli/litmus.sh
 * from the trace: at the moment at which a thread notes that it has seen value n, the writer's note
 * of n is in the past.
 *
 * usage: litmus TEST ROUNDS [spin]     (TEST: one of the list at the end, or `all'; spin: never
 * yield)
 *
 * A note is made by note(), which executes one store of a number that is in rax to the address that
 * is in rdi, at the symbol note_store, with what it means in esi and edx. The checker needs nothing
 * else.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4 };

/* ---- notes ----------------------------------------------------------------------------------
 * A channel is one writer's sequence of values 1, 2, 3, ... WROTE n stands before the store that
 * publishes n; SAW n behind the load that got it.
 */
struct note {
	_Alignas(64) volatile uint64_t value;
};
struct note journal[16];

/* rdi: where; rax: the number; esi: 0 it is about to be written, 1 it was seen; edx: the channel */
__asm__(".text\n"
	".globl note_store\n"
	".type note, @function\n"
	"note:\n"
	"	mov %rcx, %rax\n"
	"note_store:\n"
	"	mov %rax, (%rdi)\n"
	"	ret\n"
	".size note, . - note\n");
void note(volatile uint64_t *where, int seen, int channel, uint64_t value);

static long rounds;
static atomic_long bad;
static _Thread_local long notes;
static atomic_long all_notes; /* of threads that have ended */

static void wrote(int channel, uint64_t n)
{
	notes++;
	note(&journal[channel].value, 0, channel, n);
}

static void saw(int channel, uint64_t n)
{
	static _Thread_local _Alignas(64) volatile uint64_t mine;
	notes++;
	note(&mine, 1, channel, n);
}

static bool spins;

static void relax(void)
{
	static _Thread_local unsigned n;

	/* without, no system call puts the threads in order */
	if (++n % 64 == 0 && !spins)
		sched_yield();
	else
		__builtin_ia32_pause();
}

/* ---- message passing: data, then flag; a flag that is set by a locked instruction ---------------
 */

static _Alignas(64) volatile uint64_t data;
static _Alignas(64) _Atomic uint64_t flag, back;

static void *message_writer(void *arg)
{
	for (long i = 1; i <= rounds; i++) {
		wrote(0, (uint64_t)i);
		data = (uint64_t)i;
		atomic_exchange(&flag, (uint64_t)i);
		/* an ordered read: adds nothing */
		while (atomic_fetch_add(&back, 0) != (uint64_t)i)
			relax();
		saw(1, (uint64_t)i);
	}
	return NULL;
}

static void *message_reader(void *arg)
{
	for (long i = 1; i <= rounds; i++) {
		while (atomic_fetch_add(&flag, 0) != (uint64_t)i)
			relax();
		bad += data != (uint64_t)i;
		saw(0, data);
		wrote(1, (uint64_t)i);
		atomic_exchange(&back, (uint64_t)i);
	}
	return NULL;
}

/* The same by plain moves, as release and acquire are compiled: ordered because each value is news
 * to who loads it. */
static void *plain_writer(void *arg)
{
	for (long i = 1; i <= rounds; i++) {
		wrote(0, (uint64_t)i);
		data = (uint64_t)i;
		atomic_store_explicit(&flag, (uint64_t)i, memory_order_release);
		while (atomic_load_explicit(&back, memory_order_acquire) != (uint64_t)i)
			relax();
		saw(1, (uint64_t)i);
	}
	return NULL;
}

static void *plain_reader(void *arg)
{
	for (long i = 1; i <= rounds; i++) {
		while (atomic_load_explicit(&flag, memory_order_acquire) != (uint64_t)i)
			relax();
		bad += data != (uint64_t)i;
		saw(0, data);
		wrote(1, (uint64_t)i);
		atomic_store_explicit(&back, (uint64_t)i, memory_order_release);
	}
	return NULL;
}

/* ---- a mutex handed over -----------------------------------------------------------------------
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile uint64_t guarded[THREADS]; /* newest value of each thread */

static void *mutex_user(void *arg)
{
	long me = (long)arg;

	for (long i = 1; i <= rounds; i++) {
		pthread_mutex_lock(&lock);
		for (int k = 0; k < THREADS; k++)
			if (guarded[k] && k != me)
				saw(k, guarded[k]);
		wrote((int)me, (uint64_t)i);
		guarded[me] = (uint64_t)i;
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static volatile uint64_t turn, count;

static void *condvar_user(void *arg)
{
	uint64_t me = (uint64_t)arg;

	for (long i = 0; i < rounds; i++) {
		pthread_mutex_lock(&lock);
		while (turn != me)
			pthread_cond_wait(&changed, &lock);
		if (count)
			saw(0, count);
		bad += count != (uint64_t)i * THREADS + me;
		wrote(0, count + 1);
		count++;
		turn = (me + 1) % THREADS;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

/* ---- a bare futex as a semaphore: the kernel is part of the hand-over
 * ---------------------------- */

static atomic_int gate[2];

static void *futex_user(void *arg)
{
	long me = (long)arg;

	for (long i = 0; i < rounds; i++) {
		while (atomic_exchange(&gate[me], 0) == 0)
			syscall(SYS_futex, &gate[me], FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
		if (count)
			saw(0, count);
		bad += count != (uint64_t)i * 2 + (uint64_t)me;
		wrote(0, count + 1);
		count++;
		atomic_store(&gate[!me], 1);
		syscall(SYS_futex, &gate[!me], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
	return NULL;
}

/* ---- a pipe: only system calls tie the threads
 * ---------------------------------------------------- */

static int fds[2];

static void *pipe_writer(void *arg)
{
	for (long i = 1; i <= rounds; i++) {
		uint64_t n = (uint64_t)i;
		wrote(0, n);
		bad += write(fds[1], &n, 8) != 8;
	}
	return NULL;
}

static void *pipe_reader(void *arg)
{
	for (long i = 1; i <= rounds; i++) {
		uint64_t n = 0;
		bad += read(fds[0], &n, 8) != 8 || n != (uint64_t)i;
		saw(0, n);
	}
	return NULL;
}

/* ---- a sequence lock: one writer, readers that try again
 * ------------------------------------------ */

static _Alignas(64) _Atomic uint64_t sequence;
static _Alignas(64) volatile uint64_t pair[2];

static void *seqlock_user(void *arg)
{
	if (arg == NULL) {
		for (long i = 1; i <= rounds; i++) {
			atomic_fetch_add(&sequence, 1);
			wrote(0, (uint64_t)i);
			pair[0] = (uint64_t)i;
			pair[1] = (uint64_t)i * 3;
			atomic_fetch_add(&sequence, 1);
			if (i % 32 == 0)
				sched_yield();
		}
		return NULL;
	}
	for (uint64_t last = 0; last < (uint64_t)rounds;) {
		uint64_t before = atomic_fetch_add(&sequence, 0), a = pair[0], b = pair[1];
		if (atomic_fetch_add(&sequence, 0) != before || before % 2) {
			relax();
			continue;
		}
		bad += b != a * 3 || a < last;
		if (a)
			saw(0, a);
		last = a;
		if (last < (uint64_t)rounds)
			relax();
	}
	return NULL;
}

/* ---- reference counts: who drops the last one sees what all others did with it
 * -------------------- */

static _Atomic(struct object *) head;
static struct object {
	_Atomic long count;
	volatile uint64_t touched[THREADS];
	uint64_t serial;
} objects[8];
static pthread_barrier_t barrier;

static void *refcount_user(void *arg)
{
	long me = (long)arg;

	for (long i = 1; i <= rounds; i++) {
		struct object *o = &objects[i % 8];
		if (me == 0) {
			o->serial = (uint64_t)i;
			atomic_store(&o->count, THREADS);
			atomic_store(&head, o);
		}
		pthread_barrier_wait(&barrier);
		wrote((int)me, (uint64_t)i);
		o->touched[me] = (uint64_t)i;
		if (atomic_fetch_sub(&o->count, 1) == 1) {
			for (int k = 0; k < THREADS; k++) {
				bad += o->touched[k] != (uint64_t)i;
				saw(k, o->touched[k]);
			}
		}
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* ---- a queue without locks: many producers, many consumers (bounded, after D. Vyukov)
 * -------------- */

enum { CELLS = 16 };
static struct cell {
	_Alignas(64) _Atomic uint64_t sequence;
	volatile uint64_t value;
} cells[CELLS];
static _Alignas(64) _Atomic uint64_t enqueued, dequeued;

static void *queue_user(void *arg)
{
	long me = (long)arg;
	uint64_t last[2] = { 0 };

	for (long i = 1; i <= rounds; i++) {
		uint64_t at, s, v;
		struct cell *c;
		bool makes = me < 2;
		_Atomic uint64_t *end = makes ? &enqueued : &dequeued;
		for (;;) {
			at = atomic_load(end);
			c = &cells[at % CELLS];
			s = atomic_fetch_add(&c->sequence, 0);
			if (s == at + !makes) {
				if (atomic_compare_exchange_strong(end, &at, at + 1))
					break;
			} else {
				relax();
			}
		}
		if (makes) {
			wrote((int)me, (uint64_t)i);
			c->value = (uint64_t)i << 1 | (uint64_t)me;
			atomic_exchange(&c->sequence, at + 1);
		} else {
			v = c->value;
			saw((int)(v & 1), v >> 1);
			bad += v >> 1 <= last[v & 1];
			last[v & 1] = v >> 1;
			atomic_exchange(&c->sequence, at + CELLS);
		}
	}
	return NULL;
}

/* ---- read, copy, update: readers take no lock, the writer waits until all have passed
 * --------------- */

static struct version {
	volatile uint64_t number, twice;
} versions[2];
static _Atomic(struct version *) current;
static _Alignas(64) _Atomic uint64_t reading[THREADS]; /* odd: inside */
static atomic_bool over;

/* Each reader has been inside once more, from its beginning to its end. */
static void wait_for_readers(void)
{
	for (int k = 1; k < THREADS; k++) {
		uint64_t then = atomic_fetch_add(&reading[k], 0);
		while (atomic_fetch_add(&reading[k], 0) < then + 3)
			relax();
	}
}

static void *rcu(long me, bool plain)
{
	if (me == 0) {
		for (long i = 1; i <= rounds; i++) {
			struct version *v = &versions[i % 2];
			wrote(0, (uint64_t)i);
			v->number = (uint64_t)i;
			v->twice = 2 * (uint64_t)i;
			atomic_exchange(&current, v);
			for (int k = 1; k < THREADS; k++) {
				uint64_t then = atomic_fetch_add(&reading[k], 0);
				while (then % 2 && atomic_fetch_add(&reading[k], 0) == then)
					relax();
			}
			if (i % 8 == 0)
				sched_yield();
			/* on a busy machine it may be done before they begin */
			if (i == rounds / 2)
				wait_for_readers();
		}
		atomic_store(&over, true);
		return NULL;
	}
	for (uint64_t last = 0; !atomic_load(&over);) {
		atomic_fetch_add(&reading[me], 1);
		struct version *v =
			plain ? atomic_load(&current)
			      : (void *)atomic_fetch_add((_Atomic uintptr_t *)&current, 0);
		if (v) {
			uint64_t n = v->number, t = v->twice;
			bad += t != 2 * n || n < last;
			saw(0, n);
			last = n;
		}
		atomic_fetch_add(&reading[me], 1);
		relax();
	}
	return NULL;
}

static void *rcu_user(void *arg)
{
	return rcu((long)arg, false);
}

/* As real ones do it: what is read by a plain load is ordered by acqrel and load only. */
static void *rcu_plain_user(void *arg)
{
	return rcu((long)arg, true);
}

/* ---- store buffering: with fences, one of the two must see the other's store
 * ------------------------ */

static _Alignas(64) _Atomic uint64_t side[2];
static volatile uint64_t result[2];

static void *buffering_user(void *arg)
{
	long me = (long)arg;

	for (long i = 1; i <= rounds; i++) {
		pthread_barrier_wait(&barrier);
		wrote((int)me, (uint64_t)i);
		atomic_store_explicit(&side[me], (uint64_t)i, memory_order_relaxed);
		__asm__ volatile("mfence" ::: "memory");
		uint64_t other = atomic_load_explicit(&side[!me], memory_order_relaxed);
		if (other)
			saw(!me, other);
		result[me] = other;
		pthread_barrier_wait(&barrier);
		if (me == 0)
			bad += result[0] != (uint64_t)i && result[1] != (uint64_t)i;
	}
	return NULL;
}

/* ---- one place that all threads store to and load from, by plain moves
 * ------------------------------ */

/* rdi: the place; esi: 0 rcx is stored there, 1 it is loaded; edx: the channel. At cell_done rax is
 * what was stored or loaded. The checker needs nothing else: in the order of all threads what is
 * loaded is what was stored last. */
uint64_t cell(volatile uint64_t *where, int load, int channel, uint64_t value);
__asm__(".text\n"
	".globl cell_done\n"
	".type cell, @function\n"
	"cell:\n"
	"	mov %rcx, %rax\n"
	"	test %esi, %esi\n"
	"	jne 1f\n"
	"	mov %rax, (%rdi)\n"
	"	jmp cell_done\n"
	"1:	mov (%rdi), %rax\n"
	"cell_done:\n"
	"	ret\n"
	".size cell, . - cell\n");

static void *cells_user(void *arg)
{
	static _Alignas(64) volatile uint64_t place[2];
	uint64_t me = (uint64_t)arg;

	for (uint64_t i = 1; i <= (uint64_t)rounds; i++)
		for (int k = 0; k < 2; k++) {
			cell(&place[k], 0, k, i * THREADS + me);
			bad += cell(&place[k], 1, k, 0) >= ((uint64_t)rounds + 1) * THREADS;
			bad += cell(&place[!k], 1, !k, 0) >= ((uint64_t)rounds + 1) * THREADS;
			notes += 3;
		}
	return NULL;
}

/* ---- which
 * -------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int threads;
	void *(*run[THREADS])(void *);
} tests[] = {
	{ "message", 2, { message_writer, message_reader } },
	{ "plain", 2, { plain_writer, plain_reader } },
	{ "mutex", THREADS, { mutex_user } },
	{ "condvar", THREADS, { condvar_user } },
	{ "futex", 2, { futex_user } },
	{ "pipe", 2, { pipe_writer, pipe_reader } },
	{ "seqlock", 3, { seqlock_user } },
	{ "refcount", THREADS, { refcount_user } },
	{ "queue", THREADS, { queue_user } },
	{ "rcu", THREADS, { rcu_user } },
	{ "rcu-plain", THREADS, { rcu_plain_user } },
	{ "buffering", 2, { buffering_user } },
	{ "cells", 3, { cells_user } },
};

static pthread_barrier_t start;

struct job {
	void *(*run)(void *);
	long number;
};

static void *thread(void *arg)
{
	struct job *j = arg;

	pthread_barrier_wait(&start);
	j->run((void *)j->number);
	all_notes += notes;
	return NULL;
}

int main(int argc, char **argv)
{
	const char *which = argc > 1 ? argv[1] : "all";

	rounds = argc > 2 ? atol(argv[2]) : 1000;
	spins = argc > 3;
	if (pipe(fds))
		return 99;
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		pthread_t t[THREADS];
		struct job jobs[THREADS];
		if (strcmp(which, "all") && strcmp(which, tests[i].name))
			continue;
		count = turn = 0;
		all_notes = 0;
		atomic_store(&over, false);
		atomic_store(&current, NULL);
		bad = 0;
		data = 0;
		memset((void *)journal, 0, sizeof(journal));
		atomic_store(&flag, 0);
		atomic_store(&back, 0);
		atomic_store(&gate[0], 1);
		for (uint64_t k = 0; k < CELLS; k++)
			atomic_store(&cells[k].sequence, k);
		pthread_barrier_init(&start, NULL, (unsigned)tests[i].threads);
		pthread_barrier_init(&barrier, NULL, (unsigned)tests[i].threads);
		for (long k = 0; k < tests[i].threads; k++)
			jobs[k] = (struct job){ tests[i].run[tests[i].run[1] ? k : 0], k };
		for (int k = 0; k < tests[i].threads; k++)
			if (pthread_create(&t[k], NULL, thread, &jobs[k]))
				return 98;
		for (int k = 0; k < tests[i].threads; k++)
			pthread_join(t[k], NULL);
		printf("%s: %ld rounds, %ld wrong\n", tests[i].name, rounds, bad);
		fprintf(stderr, "notes %ld\n", all_notes);
	}
	return 0;
}
