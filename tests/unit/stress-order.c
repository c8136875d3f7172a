/*
 * Several threads execute translated code that makes ordered events, as fast as they can; the
 * numbers of these must promise what doc/order.md says. Each event is logged with its number and
 * with what it read, so the log itself says which event came first in memory:
 *
 *  - xadd, a counter by cmpxchg, and one that a lock protects: numbers are in the order of the
 *    values, also where the operand is not aligned, or straddles two lines.
 *  - xchg of tokens that nobody else puts there: each event finds what the one with the number
 *    before it, among those of the place, has put.
 *  - a reference count: who takes the last one has the highest number.
 *  - two fences, each between a store and a load of what the other one stores: who does not see the
 *    other's store has the lower number.
 *
 * This process is program and supervisor in one (as in stress-cache.c). SIGUSR1 now and then puts a
 * thread to sleep wherever it is, also where it holds the lock of a place.
 *
 *	stress-order [ROUNDS [SEED]]
 */
#include "translator/translate.h"
#include "tests/lib/arena.h"
#include "tests/lib/random.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define THREADS	   4
#define ROUNDS_MAX 100000
#define STACK	   (1 << 14)
#define FIRST_SEQ  1000

static const uint64_t code_at = 0x2a0080000000, arena_at = 0x2a0030000000, end = 0x2a0080100000;

enum { XADD = 1, XCHG, CMPXCHG, MUTEX, LAST_REF, ODD, STRADDLING, FENCE, KINDS };
static const char *const names[KINDS] = { "",	   "xadd",	"xchg",	     "cmpxchg", "mutex",
					  "count", "odd place", "two lines", "fence" };

struct entry {
	uint64_t kind, value, number, found;
};

/*
 * The program. rdi: log; rsi: what all share; rbp: where the thread's last number is; r8, r9: what
 * this thread and its partner store between fences; r10: reference counts; r12: rounds, falling;
 * r13: the thread's number, << 32; r15: where the program ends.
 */
#define LOG(kind, value, found)                                                                    \
	"	mov	(%rbp), %rbx\n"                                                                      \
	"	movq	$" #kind ", (%rdi)\n"                                                      \
	"	mov	%" #value ", 8(%rdi)\n"                                                    \
	"	mov	%rbx, 16(%rdi)\n"                                                                    \
	"	mov	%" #found ", 24(%rdi)\n"                                                   \
	"	add	$32, %rdi\n"
/* clang-format off */
__asm__(".section .rodata\n"
	".globl program, program_end\n"
	"program:\n"
	"	mov	$1, %eax\n"
	"	lock xadd %rax, (%rsi)\n"
	LOG(1, rax, rax)
	"	mov	%r13, %rcx\n"
	"	or	%r12, %rcx\n"
	"	mov	%rcx, %rax\n"
	"	xchg	%rax, 128(%rsi)\n"
	LOG(2, rcx, rax)
	"	mov	256(%rsi), %rax\n"
	"2:	lea	1(%rax), %rcx\n"
	"	lock cmpxchg %rcx, 256(%rsi)\n"
	"	jnz	2b\n"
	LOG(3, rax, rax)
	"3:	xor	%eax, %eax\n"
	"	mov	$1, %ecx\n"
	"	lock cmpxchg %ecx, 384(%rsi)\n"
	"	jz	4f\n"
	"	pause\n"
	"	jmp	3b\n"
	"4:	mov	448(%rsi), %rdx\n"
	"	inc	%rdx\n"
	"	mov	%rdx, 448(%rsi)\n"
	LOG(4, rdx, rdx)
	"	movl	$0, 384(%rsi)\n"
	"	xor	%edx, %edx\n"
	"	lock decq (%r10,%r12,8)\n"
	"	setz	%dl\n"
	LOG(5, r12, rdx)
	"	mov	$1, %eax\n"
	"	lock xadd %eax, 658(%rsi)\n"
	LOG(6, rax, rax)
	"	test	$4095, %r12d\n" /* rarely: the kernel may make a thread sleep for it */
	"	jnz	5f\n"
	"	mov	$1, %eax\n"
	"	lock xadd %eax, 4094(%rsi)\n"
	LOG(7, rax, rax)
	"5:	mov	%r12, -64(%r8)\n" /* the partner should be here, too */
	"	mov	$300, %ecx\n"
	"6:	cmp	%r12, -64(%r9)\n"
	"	jbe	7f\n"
	"	pause\n"
	"	dec	%ecx\n"
	"	jnz	6b\n"
	"7:	movq	$1, (%r8,%r12,8)\n"
	"	mfence\n"
	"	mov	(%r9,%r12,8), %rdx\n"
	LOG(8, r12, rdx)
	"	dec	%r12\n"
	"	jnz	program\n"
	"	jmp	*%r15\n"
	"program_end:\n"
	".previous\n");
/* clang-format on */
extern const uint8_t program[], program_end[];

static struct {
	uint8_t places[2 * 4096];
	uint64_t refs[ROUNDS_MAX + 1];
	struct {
		uint64_t round, pad[7];
		uint64_t stored[ROUNDS_MAX + 1];
	} side[THREADS];
} shared __attribute__((aligned(4096)));

static uint64_t seed, rounds = 5000;
static struct translator *tr;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t ready;
static bool arena_made, stop;
static unsigned long sleeps, waits, numbers_seen;

static struct thread {
	pthread_t id;
	uint64_t random;
	uint8_t *area;
	bool inside, over;
	mcontext_t outside;
	struct entry *log;
	unsigned number;
	uint64_t last_number; /* in the ring */
} threads[THREADS];

static __thread struct thread *self;

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void fail(const char *fmt, ...)
{
	char text[300];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "FAIL: %s (seed %llu)\n", text, (unsigned long long)seed);
	_exit(1);
}

/* ---- the supervisor ----------------------------------------------------------------------------
 */

static uint64_t *tcb(const struct thread *t, int64_t off)
{
	return area_at(t->area, off);
}

static size_t read_code(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing)
{
	size_t size = (size_t)(program_end - program);
	(void)ctx;
	*changing = false;
	if (pc - code_at >= size)
		return 0;
	size_t n = size - (pc - code_at) < len ? size - (pc - code_at) : len;
	memcpy(buf, program + (pc - code_at), n);
	return n;
}

static uint64_t translated(void *ctx, uint64_t pc, size_t len)
{
	(void)ctx, (void)pc, (void)len;
	return 0;
}

static void make_arena(void)
{
	uint8_t *ours = arena_made ? NULL : arena_map(arena_at);
	if (!ours)
		fail("cannot map an arena");
	arena_made = true;
	tr_add_arena(tr, arena_at, ours);
}

static void enter(struct thread *t, greg_t *g, uint64_t pc)
{
	struct tr_frag *f;
	enum tr_found found;
	while ((found = tr_fragment(tr, pc, &f)) == TR_NO_ARENA)
		make_arena();
	if (found != TR_FOUND)
		fail("nothing at %#llx", (unsigned long long)pc);
	t->inside = true;
	*tcb(t, T_SLOT(11)) = (uint64_t)g[REG_R11];
	g[REG_RIP] = (greg_t)tr_entry(f);
}

static void begin(struct thread *t, greg_t *g)
{
	memcpy(t->outside.gregs, g, sizeof(t->outside.gregs));
	g[REG_RDI] = (greg_t)(uintptr_t)t->log;
	g[REG_RSI] = (greg_t)(uintptr_t)shared.places;
	g[REG_RBP] = (greg_t)(uintptr_t)tcb(t, T_SEQ);
	g[REG_R8] = (greg_t)(uintptr_t)shared.side[t->number].stored;
	g[REG_R9] = (greg_t)(uintptr_t)shared.side[t->number ^ 1].stored;
	g[REG_R10] = (greg_t)(uintptr_t)shared.refs;
	g[REG_R12] = (greg_t)rounds;
	g[REG_R13] = (greg_t)((uint64_t)(t->number + 1) << 32);
	g[REG_R15] = (greg_t)end;
	enter(t, g, code_at);
}

/* In the ring numbers go up, and what is said about one that was read (it is in an imported line)
 * is in between: at most one event for each instruction since the last number there. */
static void drain(struct thread *t)
{
	const uint8_t *p = (uint8_t *)tcb(t, T_RING), *to;
	uint64_t steps = 0, seq_line = (uint64_t)(uintptr_t)tcb(t, T_SEQ) & ~63ULL;
	to = p + (*tcb(t, T_HEAD) - (uint64_t)(uintptr_t)p);
	while (p < to) {
		uint64_t w[2], seq;
		memcpy(w, p, sizeof(w));
		uint64_t at = w[0] & 0xffffffffffffULL;
		if (w[0] >> 56 == RING_SEQ) {
			if (w[1] <= t->last_number)
				fail("number %llu in the ring, after %llu",
				     (unsigned long long)w[1], (unsigned long long)t->last_number);
			t->last_number = w[1];
			steps = at;
			numbers_seen++;
			p += RING_SEQ_SIZE;
			continue;
		}
		if (w[0] >> 56 != RING_IMPORT)
			fail("strange record %#llx in the ring", (unsigned long long)w[0]);
		memcpy(&seq, p + 24 + T_SEQ % 64 + 64 * (T_SEQ % 64 < 0), sizeof(seq));
		if (w[1] == seq_line && t->last_number && steps &&
		    (seq < t->last_number || seq - t->last_number > at - steps))
			fail("event %llu, but the last number in the ring is %llu",
			     (unsigned long long)seq, (unsigned long long)t->last_number);
		if (w[1] == seq_line && seq > t->last_number) {
			t->last_number = seq;
			steps = at;
		}
		p += RING_IMPORT_SIZE;
	}
	*tcb(t, T_HEAD) = (uint64_t)(uintptr_t)tcb(t, T_RING);
}

static void on_trap(int sig, siginfo_t *si, void *context)
{
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	struct thread *t = self;
	uint32_t runtime;
	(void)sig, (void)si;
	pthread_mutex_lock(&lock);
	const struct tr_stop *at =
		t->inside ? tr_stop_at(tr, (uint64_t)g[REG_RIP] - 1, (uint64_t)g[REG_R11], &runtime)
			  : NULL;
	if (!t->inside) {
		begin(t, g);
	} else if (runtime == STOP_RING_FULL) {
		drain(t);
		g[REG_RIP] += 4;
	} else if (runtime == STOP_ORDER) {
		waits++;
		g[REG_RIP] += 4;
	} else if (runtime == STOP_IBL_MISS && (uint64_t)g[REG_R11] == end) {
		drain(t);
		t->inside = false;
		memcpy(g, t->outside.gregs, sizeof(t->outside.gregs));
	} else if (at && at->kind == TR_STOP_LINK) {
		enter(t, g, at->pc);
	} else {
		fail("strange stop at %#llx", (unsigned long long)g[REG_RIP] - 1);
	}
	pthread_mutex_unlock(&lock);
	if (runtime == STOP_ORDER)
		usleep(50); /* for who has the lock */
}

static void on_fault(int sig, siginfo_t *si, void *context)
{
	const ucontext_t *uc = context;
	fail("signal %d at %#llx, address %p", sig,
	     (unsigned long long)uc->uc_mcontext.gregs[REG_RIP], si->si_addr);
}

static void on_sleep(int sig, siginfo_t *si, void *context)
{
	const ucontext_t *uc = context;
	struct thread *t = self;
	int saved = errno;
	(void)sig, (void)si;
	if (!t || (uint64_t)uc->uc_mcontext.gregs[REG_RIP] - arena_at >= TR_ARENA_SIZE)
		return;
	struct timespec pause = { .tv_nsec = (long)(random_next(&t->random) % 300) * 1000 };
	nanosleep(&pause, NULL);
	__atomic_fetch_add(&sleeps, 1, __ATOMIC_RELAXED);
	errno = saved;
}

/* ---- threads -----------------------------------------------------------------------------------
 */

static void *run(void *arg)
{
	struct thread *t = self = arg;
	stack_t before;
	void *stack = area_enter(t->area, &before);
	pthread_barrier_wait(&ready);
	__asm__ volatile("int3" : : : "memory");
	__atomic_store_n(&t->over, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		usleep(1000);
	area_leave(stack, &before);
	return NULL;
}

static void make_thread(struct thread *t, int fd, unsigned number)
{
	t->area = area_map(fd, number);
	if (!t->area)
		fail("no memory for a thread's area: %s", strerror(errno));
	t->number = number;
	*tcb(t, T_SEQ) = FIRST_SEQ;
	*tcb(t, T_ORDER_ID) = number + 1;
	t->random = seed * (number + 3) | 1;
	t->log = calloc(KINDS * (rounds + 1), sizeof(*t->log));
	if (!t->log || pthread_create(&t->id, NULL, run, t))
		fail("no memory for a thread");
}

/* ---- what the numbers promise
 * -------------------------------------------------------------------- */

static struct entry *all;
static size_t n_all;

static int by_number(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

static void check_order(void)
{
	static struct entry *last_ref[ROUNDS_MAX + 1];
	static uint64_t last_number[ROUNDS_MAX + 1];
	for (size_t i = 0; i < n_all; i++) {
		struct entry *e = &all[i], *before = i && all[i - 1].kind == e->kind ? e - 1 : NULL;
		bool good = true;
		switch (e->kind) {
		case XADD:
		case CMPXCHG:
		case MUTEX:
		case ODD:
		case STRADDLING:
			good = before ? e->value == before->value + 1
				      : e->value == (e->kind == MUTEX);
			break;
		case XCHG:
			good = e->found == (before ? before->value : 0);
			break;
		case LAST_REF:
			if (e->found)
				last_ref[e->value] = e;
			if (e->number > last_number[e->value])
				last_number[e->value] = e->number;
			break;
		}
		if (!good)
			fail("%s: event %llu has %llu and found %llu, the one before it %llu",
			     names[e->kind], (unsigned long long)e->number,
			     (unsigned long long)e->value, (unsigned long long)e->found,
			     (unsigned long long)(before ? before->value : 0));
	}
	for (uint64_t r = 1; r <= rounds; r++)
		if (!last_ref[r] || last_ref[r]->number != last_number[r])
			fail("round %llu: who took the last reference has not the highest number",
			     (unsigned long long)r);
}

/* Every number is one event's. */
static void check_single(void)
{
	uint8_t *seen = calloc(1, *tcb(&threads[0], T_ORDER_NUMBER) + 1);
	for (size_t i = 0; i < n_all; i++) {
		if (all[i].number > *tcb(&threads[0], T_ORDER_NUMBER) || seen[all[i].number]++)
			fail("%s: two events have the number %llu", names[all[i].kind],
			     (unsigned long long)all[i].number);
	}
	free(seen);
}

static unsigned long unseen; /* the other's store */

static void check_fences(unsigned a, unsigned b)
{
	static uint64_t number[2][ROUNDS_MAX + 1];
	static bool saw[2][ROUNDS_MAX + 1];
	for (int side = 0; side < 2; side++)
		for (const struct entry *e = threads[side ? b : a].log; e->kind; e++)
			if (e->kind == FENCE) {
				number[side][e->value] = e->number;
				saw[side][e->value] = e->found;
			}
	for (uint64_t r = 1; r <= rounds; r++)
		for (int side = 0; side < 2; side++) {
			if (saw[side][r])
				continue;
			unseen++;
			if (number[side][r] > number[!side][r])
				fail("fence: event %llu comes after %llu and did not see it",
				     (unsigned long long)number[side][r],
				     (unsigned long long)number[!side][r]);
		}
}

static void collect(void)
{
	all = calloc(THREADS * KINDS * (rounds + 1), sizeof(*all));
	for (int i = 0; i < THREADS; i++) {
		uint64_t last = FIRST_SEQ;
		for (const struct entry *e = threads[i].log; e->kind; e++) {
			if (e->number <= last)
				fail("thread %d: event %llu after %llu", i,
				     (unsigned long long)e->number, (unsigned long long)last);
			last = e->number;
			all[n_all++] = *e;
		}
	}
	qsort(all, n_all, sizeof(*all), by_number);
}

static bool all_over(void)
{
	bool over = true;
	for (int i = 0; i < THREADS; i++)
		over &= __atomic_load_n(&threads[i].over, __ATOMIC_ACQUIRE);
	return over;
}

/* The threads hardly met: the machine has other work. That says nothing, so once more, a few times.
 */
static void again(char **argv)
{
	const char *tried = getenv("STRESS_ORDER_TRIED");
	char n[16], r[24];
	snprintf(n, sizeof(n), "%d", (tried ? atoi(tried) : 0) + 1);
	snprintf(r, sizeof(r), "%llu", (unsigned long long)rounds);
	if (atoi(n) > 9)
		fail("the threads did not meet");
	setenv("STRESS_ORDER_TRIED", n, 1);
	fflush(stdout);
	execl("/proc/self/exe", argv[0], r, (char *)NULL);
}

int main(int argc, char **argv)
{
	struct timespec now, pause = { 0 };
	uint64_t random;
	clock_gettime(CLOCK_REALTIME, &now);
	if (argc > 1)
		rounds = strtoull(argv[1], NULL, 0);
	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)now.tv_nsec | 1;
	random = seed;
	if (!rounds || rounds > ROUNDS_MAX)
		fail("1 to %u rounds", ROUNDS_MAX);
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	int fd = area_file(THREADS);
	if (fd < 0)
		fail("no memory for the areas");
	uint8_t *tables = mmap(NULL, AREA_TABLES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct tr_ops ops = { NULL, read_code, translated };
	struct tr_config config = { .tables = tables, .policy = tr_policies[TR_POLICY_SHADOW] };
	tr = tr_new(&ops, &config);
	*(uint64_t *)(void *)(tables + (T_ORDER_SHARED - T_TABLES)) = 1;
	*(uint64_t *)(void *)(tables + (T_ORDER_NUMBER - T_TABLES)) = FIRST_SEQ;
	for (uint64_t r = 0; r <= rounds; r++)
		shared.refs[r] = THREADS;
	for (unsigned i = 0; i < THREADS; i++)
		shared.side[i].round = rounds + 1;
	area_signal(SIGTRAP, on_trap, SIGUSR1); /* the lock is held in there */
	area_signal(SIGUSR1, on_sleep, 0);
	area_signal(SIGSEGV, on_fault, 0);
	area_signal(SIGBUS, on_fault, 0);
	area_signal(SIGILL, on_fault, 0);
	pthread_barrier_init(&ready, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		make_thread(&threads[i], fd, i);
	while (!all_over()) {
		pthread_kill(threads[random_next(&random) % THREADS].id, SIGUSR1);
		pause.tv_nsec = (long)(random_next(&random) % 2000) * 1000;
		nanosleep(&pause, NULL);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i].id, NULL);
	collect();
	check_single();
	check_order();
	for (unsigned i = 0; i < THREADS; i += 2)
		check_fences(i, i + 1);
	for (int i = 0; i < 64; i++)
		if (*tcb(&threads[0], T_ORDER_LOCKS + 64 * (int64_t)i))
			fail("lock %d is not free", i);
	printf("%zu events, %lu numbers in the rings, %lu fences saw nothing, %lu sleeps, %lu "
	       "long waits\n",
	       n_all, numbers_seen, unseen, sleeps, waits);
	if (numbers_seen < 100)
		again(argv);
	tr_free(tr);
	return 0;
}
