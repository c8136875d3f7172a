/*
 * Several threads execute translated code while another one rewrites the program under them:
 * patches, extends, invalidates, retires and uses memory again (doc/code-cache.md).
 *
 * The program is a set of small functions of four blocks each that go to one another by every kind
 * of branch. Each block mixes a constant into an accumulator and logs its name and version; what
 * constant, where to and how depends on the version. A thread's log is then gone through again:
 *
 *  - The blocks must follow one another as the accumulator, computed anew, says. A thread that ran
 *    into code that was overwritten, a jump half patched, flags that nobody kept: all that leaves
 *    the way.
 *  - A version is the number of the rewriting that put it there, so it says when it became valid
 *    and when it ended. Who has seen version n may not enter a block that ended before n. A link or
 *    table entry that was forgotten shows as a step back in time.
 *
 * This process is program and supervisor in one: stops arrive as SIGTRAP, and what the supervisor
 * does is done under a lock by the handler. SIGUSR1 now and then puts a thread to sleep wherever it
 * is, so that old code is in use for long.
 *
 * Another thread is the supervisor that listens (recorder/ask.c): for moments it answers what the
 * threads ask, most of the time at once, sometimes so late that they give up, sometimes that they
 * have to stop; and it ceases to listen at any time. The accumulator goes from block to block in
 * rcx or r11, which asking has in use, and so do the flags.
 *
 * It is one file: what a block does, what its log says and where its code may be rewritten are
 * known to program, supervisor and check alike.
 *
 *	stress-cache [SECONDS [SEED]]
 */
#include "format/regs.h"
#include "translator/cache.h"
#include "tests/lib/arena.h"
#include "tests/lib/random.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define THREADS	   4
#define FUNCTIONS  96
#define BLOCK	   64
#define SLOT	   (4 * BLOCK) /* bytes of a function */
#define PER_PAGE   (4096 / SLOT)
#define PAGES	   (FUNCTIONS / PER_PAGE)
#define ROUNDS	   6
#define LOG	   (1 << 16)
#define STACK	   (1 << 16)
#define VERSIONS   (1 << 22)
#define SLEEPS	   64
#define MORE	   40  /* seconds, if too little has happened by then */
#define MARK	   127 /* function number of a stop in the log */
#define MULTIPLIER 0x01000193u

/* Two regions of code that reach each other, with an arena each; the arenas do not. */
static const uint64_t code_at[2] = { 0x2a0080000000, 0x2a00e0000000 };
static const uint64_t arena_at[2] = { 0x2a0030000000, 0x2a0120000000 };
static const uint64_t driver = 0x2a0080100000, end = 0x2a0080200000;

static uint64_t seed;
static struct translator *tr;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t now; /* rewritings so far */
static uint32_t version[PAGES], ended[VERSIONS];
static bool stop, arena_made[2];
static unsigned long runs, blocks, stops, sleeps, rewritings, reclaims, flushes, naps;
static unsigned long answered_links, answered_indirect, refused, withdrawn;

static struct thread {
	pthread_t id;
	uint64_t random;
	uint8_t *area;
	bool inside; /* translated code, having entered it in: */
	uint64_t epoch;
	mcontext_t outside; /* where it was before it began */
	struct _libc_fpstate fp;
	uint32_t *log, *log_end;
	uint8_t *stack;
	unsigned start;
	uint64_t progress;
	bool refused; /* what it asked last */
	/* after it has slept: from this place of the log on it is out of the fragment */
	struct {
		const uint32_t *from;
		uint32_t seen;
	} slept[SLEEPS];
	unsigned n_slept;
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
	fprintf(stderr, "FAIL: %s (seed %llu, rewriting %u)\n", text, (unsigned long long)seed,
		now);
	_exit(1);
}

/* ---- the program ------------------------------------------------------------------------------
 */

/* What a block does, by its version. */
struct plan {
	uint32_t add, bit;
	bool carry;    /* block 0: adds the carry flag that it is entered with */
	bool indirect; /* call, jump */
	int to, or_to; /* function to go to, -1: none (block 3: return) */
	unsigned flag; /* the carry flag is this bit when it goes there */
};

static struct plan plan_of(unsigned f, unsigned b, uint32_t v)
{
	uint64_t h = seed ^ (f * 4 + b + 1) * 0x9e3779b97f4a7c15ULL ^ v * 0xbf58476d1ce4e5b9ULL;
	h = random_next(&h);
	struct plan p = { .add = (uint32_t)h, .bit = h >> 32 & 15, .to = -1, .or_to = -1 };
	p.carry = h >> 36 & 1;
	p.indirect = h >> 37 & 1;
	p.flag = h >> 38 & 31;
	unsigned near = f + 1 + (unsigned)(h >> 43) % 12, far = f + 1 + (unsigned)(h >> 47) % 40;
	bool goes = b == 1 || (b == 3 && (h >> 53 & 3));
	if (goes && near < FUNCTIONS && far < FUNCTIONS) {
		p.to = (int)near;
		p.or_to = (int)far;
	}
	return p;
}

static uint64_t address(unsigned f)
{
	unsigned page = f / PER_PAGE;
	return code_at[page & 1] + page / 2 * 4096ULL + f % PER_PAGE * SLOT;
}

static uint8_t *put(uint8_t *p, const char *bytes, size_t n)
{
	memcpy(p, bytes, n);
	return p + n;
}

static uint8_t *put32(uint8_t *p, const char *opcode, size_t n, uint32_t imm)
{
	p = put(p, opcode, n);
	return put(p, (const char *)&imm, 4);
}

static uint8_t *jump(uint8_t *p, const char *opcode, size_t n, uint64_t to)
{
	return put32(p, opcode, n, (uint32_t)(to - ((uint64_t)(uintptr_t)p + n + 4)));
}

static uint8_t *put_lea(uint8_t *p, const char *opcode, uint64_t to)
{
	return jump(p, opcode, 3, to);
}

static uint8_t *put_mix(uint8_t *p, const struct plan *x, unsigned f, unsigned b, uint32_t v)
{
	p = put(p, v & 1 ? "\x41\x93" : "\x40\x91", 2);		       /* xchg eax, r11d or ecx */
	p = put32(p, b == 0 && x->carry ? "\x15" : "\x05", 1, x->add); /* adc or add eax */
	p = put32(p, "\x69\xc0", 2, MULTIPLIER);		       /* imul eax, eax */
	p = put(p, "\x89\xc2\xc1\xea\x0f\x31\xd0", 7); /* mov edx, eax; shr edx, 15; xor eax, edx */
	p = put32(p, "\xc7\x07", 2, v << 9 | f << 2 | b); /* mov dword [rdi] */
	p = put(p, "\x89\x47\x04\x48\x83\xc7\x08", 7);	  /* mov [rdi + 4], eax; add rdi, 8 */
	return put(p, "\x89\xc1\x41\x89\xc3", 5);	  /* mov ecx, eax; mov r11d, eax */
}

static uint8_t *put_bt(uint8_t *p, unsigned bit)
{
	p = put(p, "\x0f\xba\xe0", 3); /* bt eax */
	*p++ = (uint8_t)bit;
	return p;
}

/* Few instructions, lest fragments end in the middle of a block: all four together, and the longest
 * turns that the translator takes in block 2, have fewer than a fragment may have. */
static void put_nops(uint8_t *p, uint8_t *to)
{
	static const char nop[9][8] = { "",
					"\x90",
					"\x66\x90",
					"\x0f\x1f",
					"\x0f\x1f\x40",
					"\x0f\x1f\x44",
					"\x66\x0f\x1f\x44",
					"\x0f\x1f\x80",
					"\x0f\x1f\x84" };
	while (p < to) {
		size_t n = to - p < 8 ? (size_t)(to - p) : 8;
		p = put(p, nop[n], n);
	}
}

/* Block b, which begins at the same place in every version: return addresses outlive it. */
static void write_block(unsigned f, unsigned b, uint32_t v)
{
	uint8_t *at = (uint8_t *)(uintptr_t)address(f) + b * BLOCK, *p;
	uint64_t second = address(f) + 2 * BLOCK;
	struct plan x = plan_of(f, b, v);
	p = put_mix(at, &x, f, b, v);
	put_nops(p, at + BLOCK - (b == 1 && x.to >= 0 ? x.indirect ? 13 : 9 : 0));
	if (b == 0) {
		p = put32(p, "\xa9", 1, 1u << x.bit);
		p = jump(p, "\x0f\x85", 2, second); /* test eax; jnz block 2 */
		put_nops(p, at + BLOCK);
	} else if (b == 1 && x.to >= 0 && x.indirect) {
		/* lea rdx; bt; call rdx, which ends where block 2 begins */
		p = put_lea(at + BLOCK - 13, "\x48\x8d\x15", address((unsigned)x.to));
		p = put(put_bt(p, x.flag), "\xff\xd2", 2);
	} else if (b == 1 && x.to >= 0) {
		p = jump(put_bt(at + BLOCK - 9, x.flag), "\xe8", 1, address((unsigned)x.to));
	} else if (b == 2) {
		p = put32(p, "\xa9", 1, 3);
		p = jump(p, "\x0f\x84", 2, second); /* test eax, 3; jz block 2 */
		put_nops(p, at + BLOCK);
	} else if (b == 3 && x.to >= 0 && x.indirect) {
		p = put_lea(p, "\x48\x8d\x15", address((unsigned)x.to));    /* lea rdx */
		p = put_lea(p, "\x48\x8d\x1d", address((unsigned)x.or_to)); /* lea rbx */
		p = put(p, "\xa8\x01\x48\x0f\x45\xd3", 6); /* test al, 1; cmovnz rdx, rbx */
		p = put(put_bt(p, x.flag), "\xff\xe2", 2);
	} else if (b == 3 && x.to >= 0) {
		p = jump(put_bt(p, x.flag), "\xe9", 1, address((unsigned)x.to));
	} else if (b == 3) {
		*p++ = 0xc3;
	}
	if (p - at > BLOCK)
		fail("a block is longer than its place");
}

static void write_page(unsigned page, uint32_t v)
{
	for (unsigned f = page * PER_PAGE; f < (page + 1) * PER_PAGE; f++)
		for (unsigned b = 0; b < 4; b++)
			write_block(f, b, v);
	version[page] = v;
}

static void write_driver(void)
{
	uint8_t *p = (uint8_t *)(uintptr_t)driver;
	p = put(p, "\xf8\x41\xff\xd5", 4);  /* clc; call r13 */
	p = put(p, "\x41\xff\xcc", 3);	    /* dec r12d */
	p = jump(p, "\x0f\x85", 2, driver); /* jnz */
	*p = 0xc3;
}

/* ---- the log, gone through again ----------------------------------------------------------------
 */

struct walk {
	uint32_t acc, seen; /* latest rewriting known of */
	bool carry;
	uint32_t carry_at; /* what was seen when it was set */
	unsigned f, b;	   /* next */
	unsigned stack[FUNCTIONS], depth, rounds;
};

static uint32_t mix(uint32_t acc, uint32_t add)
{
	acc = (acc + add) * MULTIPLIER;
	return acc ^ acc >> 15;
}

/* The next block, in version v, which made the accumulator `acc`; false if it cannot have. */
static bool step(const struct thread *t, struct walk *w, uint32_t v, uint32_t acc)
{
	struct plan x = plan_of(w->f, w->b, v);
	bool carries = w->b == 0 && x.carry;
	if (acc == mix(w->acc, x.add + (carries && w->carry)))
		w->acc = acc;
	else if (carries && v > w->carry_at && acc == mix(w->acc, x.add + !w->carry))
		w->acc = acc; /* was inside of what did not keep flags for the version before */
	else
		return false;
	switch (w->b) {
	case 0:
		w->b = w->acc >> x.bit & 1 ? 2 : 1;
		return true;
	case 1:
		w->b = 2;
		if (x.to >= 0) {
			w->stack[w->depth++] = w->f;
			w->b = 0;
			w->f = (unsigned)x.to;
		}
		break;
	case 2:
		w->b = w->acc & 3 ? 3 : 2;
		return true;
	case 3:
		if (x.to >= 0) {
			w->f = (unsigned)(x.indirect && w->acc & 1 ? x.or_to : x.to);
			w->b = 0;
		} else if (w->depth) {
			w->f = w->stack[--w->depth];
			w->b = 2;
		} else {
			w->rounds++;
			w->f = t->start;
			w->b = 0;
			w->carry = false;
			w->carry_at = UINT32_MAX;
			return true;
		}
	}
	w->carry = w->acc >> x.flag & 1;
	w->carry_at = w->seen;
	return true;
}

static void check_log(struct thread *t, uint32_t acc)
{
	unsigned k = 0;
	struct walk w = { .acc = t->start * 77u, .f = t->start, .carry_at = UINT32_MAX };
	for (const uint32_t *p = t->log; p < t->log_end; p += 2) {
		uint32_t v = *p >> 9, f = *p >> 2 & 127, b = *p & 3;
		if (f == MARK) {
			w.seen = v > w.seen ? v : w.seen;
			continue;
		}
		if (f != w.f || b != w.b)
			fail("at %u.%u, should be at %u.%u (entry %zd)", f, b, w.f, w.b,
			     p - t->log);
		if (v >= VERSIONS || !v)
			fail("version %u of %u.%u", v, f, b);
		for (; k < t->n_slept && p >= t->slept[k].from; k++)
			w.seen = t->slept[k].seen > w.seen ? t->slept[k].seen : w.seen;
		if (v > w.seen)
			w.seen = v;
		uint32_t over = __atomic_load_n(&ended[v], __ATOMIC_ACQUIRE);
		if (over && over <= w.seen)
			fail("version %u of %u.%u ended with %u, but %u was seen before (entry "
			     "%zd)",
			     v, f, b, over, w.seen, p - t->log);
		if (!step(t, &w, v, p[1]))
			fail("%u.%u in version %u makes %#x of %#x (entry %zd)", f, b, v, p[1],
			     w.acc, p - t->log);
		__atomic_fetch_add(&blocks, 1, __ATOMIC_RELAXED);
	}
	if (w.rounds != ROUNDS || w.acc != acc)
		fail("result %#x after %u rounds, should be %#x", acc, w.rounds, w.acc);
}

/* ---- the supervisor -----------------------------------------------------------------------------
 */

static uint64_t *tcb(const struct thread *t, int64_t off)
{
	return area_at(t->area, off);
}

static bool is_code(uint64_t pc)
{
	for (int i = 0; i < 2; i++)
		if (pc - code_at[i] < PAGES * 4096)
			return true;
	return pc - driver < 4096;
}

static size_t read_code(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing)
{
	(void)ctx;
	*changing = false;
	size_t n = 0;
	for (; n < len && is_code(pc + n); n++)
		buf[n] = *(uint8_t *)(uintptr_t)(pc + n);
	return n;
}

static uint64_t translated(void *ctx, uint64_t pc, size_t len)
{
	(void)ctx, (void)pc, (void)len;
	return 0;
}

static void make_arena(uint64_t pc)
{
	int which = pc >= code_at[1];
	if (arena_made[which]) {
		tr_no_arena(tr);
		return;
	}
	arena_made[which] = true;
	uint8_t *ours = arena_map(arena_at[which]);
	if (!ours)
		fail("cannot map an arena");
	tr_add_arena(tr, arena_at[which], ours);
}

static void reclaim(void)
{
	uint64_t oldest = tr_epoch(tr);
	for (int i = 0; i < THREADS; i++)
		if (threads[i].inside && threads[i].epoch < oldest)
			oldest = threads[i].epoch;
	tr_reclaim(tr, oldest);
	reclaims++;
}

static void enter(struct thread *t, greg_t *g, uint64_t pc, bool indirect)
{
	struct tr_frag *f;
	t->inside = false;
	for (;;) {
		if (indirect && (pc >> 4) % 3)
			tr_expect_indirect(tr);
		enum tr_found found = tr_fragment(tr, pc, &f);
		if (found == TR_FOUND)
			break;
		if (found == TR_NATIVE)
			fail("nothing at %#llx", (unsigned long long)pc);
		if (found == TR_NO_ARENA)
			make_arena(pc);
		else
			reclaim();
	}
	if (indirect)
		tr_add_indirect(tr, f);
	t->inside = true;
	t->epoch = tr_epoch(tr);
	g[REG_RIP] = (greg_t)tr_entry(f);
	/* from here on nothing is entered that ended before */
	uint32_t *log = (uint32_t *)g[REG_RDI];
	*log = now << 9 | MARK << 2;
	g[REG_RDI] += 8;
}

/* The program's end: the thread goes on where it began. */
static void leave(struct thread *t, ucontext_t *uc)
{
	const greg_t *g = uc->uc_mcontext.gregs;
	t->inside = false;
	t->log_end = (uint32_t *)g[REG_RDI];
	uint32_t acc = (uint32_t)g[REG_RAX];
	memcpy(uc->uc_mcontext.gregs, t->outside.gregs, sizeof(uc->uc_mcontext.gregs));
	uc->uc_mcontext.gregs[REG_RAX] = acc;
}

static void begin(struct thread *t, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	memcpy(t->outside.gregs, g, sizeof(t->outside.gregs));
	uint64_t *sp = (uint64_t *)(void *)(t->stack + STACK - 64);
	*sp = end;
	t->n_slept = 0;
	g[REG_RSP] = (greg_t)(uintptr_t)sp;
	g[REG_RAX] = g[REG_RCX] = t->start * 77u;
	*tcb(t, T_SLOT(DJ_R11)) = t->start * 77u;
	g[REG_R12] = ROUNDS;
	g[REG_R13] = (greg_t)address(t->start);
	g[REG_RDI] = (greg_t)(uintptr_t)t->log;
	enter(t, g, driver, false);
}

/* It stops: has it asked before? */
static void asked_in_vain(struct thread *t, uint64_t what)
{
	if (!*tcb(t, T_ASKED)) /* nobody listened */
		return;
	if (*tcb(t, T_ASKED) != what)
		fail("stops for %#llx, but asked for %#llx", (unsigned long long)what,
		     (unsigned long long)*tcb(t, T_ASKED));
	*(t->refused ? &refused : &withdrawn) += 1;
	t->refused = false;
	*tcb(t, T_ASKED) = 0;
}

static void on_trap(int sig, siginfo_t *si, void *context)
{
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	struct thread *t = self;
	uint32_t runtime;
	(void)sig, (void)si;
	pthread_mutex_lock(&lock);
	if (!t->inside) {
		begin(t, uc);
		pthread_mutex_unlock(&lock);
		return;
	}
	stops++;
	if (*tcb(t, T_ASK) || *tcb(t, T_ANSWER))
		fail("a question or an answer that nobody takes");
	const struct tr_stop *at =
		tr_stop_at(tr, (uint64_t)g[REG_RIP] - 1, (uint64_t)g[REG_R11], &runtime);
	if (runtime == STOP_RING_FULL) {
		*tcb(t, T_HEAD) = (uint64_t)(uintptr_t)tcb(t, T_RING);
		g[REG_RIP] += 4;
	} else if (runtime == STOP_IBL_MISS) {
		uint64_t pc = (uint64_t)g[REG_R11], f = *tcb(t, T_FLAGS);
		asked_in_vain(t, pc);
		if (pc == end) {
			leave(t, uc);
		} else {
			g[REG_RCX] = (greg_t)*tcb(t, T_SLOT(1));
			g[REG_EFL] &= ~(greg_t)DJ_FLAGS_ARITH;
			g[REG_EFL] |= (greg_t)((f >> 8 & 0xd5) | (f & 1 ? DJ_FLAG_OF : 0));
			enter(t, g, pc, true);
		}
	} else if (at && at->kind == TR_STOP_LINK) {
		asked_in_vain(t, (uint64_t)g[REG_R11]);
		enter(t, g, at->pc, false);
	} else {
		fail("strange stop at %#llx", (unsigned long long)g[REG_RIP] - 1);
	}
	pthread_mutex_unlock(&lock);
}

static void on_fault(int sig, siginfo_t *si, void *context)
{
	const ucontext_t *uc = context;
	fail("signal %d at %#llx, address %p", sig,
	     (unsigned long long)uc->uc_mcontext.gregs[REG_RIP], si->si_addr);
}

/* In a fragment, or in the stub right before it. A stub's length depends on the address that it
 * compares, on the steps it subtracts and on the flags it puts back; no stub is a page long. */
static bool located(uint64_t pc, struct tr_where *w)
{
	const struct tr_arena *a = tr_arena_at(tr, pc);
	for (unsigned k = 0; k < 4096; k++) {
		const struct tr_frag *f = tr_chunk_find(a, pc + k);
		if (!f)
			continue;
		bool before = f->stub && f->stub_chunk == TR_NO_CHUNK && f->stub <= pc;
		return (!k || (pc + k == f->entry && before)) && tr_locate(tr, pc + k, 0, w);
	}
	return false;
}

/* Sleep in the middle of things. Where that is must be known, however old the code. */
static void on_sleep(int sig, siginfo_t *si, void *context)
{
	const ucontext_t *uc = context;
	uint64_t pc = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
	if (!self) /* just born */
		return;
	struct timespec t = { .tv_nsec = (long)(random_next(&self->random) % 1500) * 1000 };
	struct tr_where w;
	int saved = errno;
	(void)sig, (void)si;
	for (int i = 0; i < 2; i++) {
		if (pc - arena_at[i] >= TR_ARENA_SIZE)
			continue;
		__atomic_fetch_add(&sleeps, 1, __ATOMIC_RELAXED);
		nanosleep(&t, NULL);
		pthread_mutex_lock(&lock);
		bool hot = pc - arena_at[i] >= CHUNK_HOT && pc - arena_at[i] < ARENA_HOT;
		if (hot && !located(pc, &w))
			fail("nobody knows what is at %#llx", (unsigned long long)pc);
		if (hot && self->n_slept < SLEEPS && !(w.spilled & 1u << DJ_RDI)) {
			/* the fragment may go on for all of a function's blocks */
			const uint32_t *log = (const uint32_t *)uc->uc_mcontext.gregs[REG_RDI];
			self->slept[self->n_slept].from = log + 2 * 5;
			self->slept[self->n_slept++].seen = now;
		}
		pthread_mutex_unlock(&lock);
	}
	errno = saved;
}

/* ---- threads
 * -------------------------------------------------------------------------------------- */

static void *run(void *arg)
{
	struct thread *t = self = arg;
	stack_t before;
	void *stack = area_enter(t->area, &before);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		uint32_t acc;
		t->start = (unsigned)(random_next(&t->random) % 24);
		__asm__ volatile("int3" : "=a"(acc) : : "memory");
		check_log(t, acc);
		t->progress++;
		__atomic_fetch_add(&runs, 1, __ATOMIC_RELAXED);
	}
	area_leave(stack, &before);
	return NULL;
}

static void make_thread(struct thread *t, int fd, unsigned number)
{
	t->area = area_map(fd, number);
	if (!t->area)
		fail("no memory for a thread's area: %s", strerror(errno));
	t->random = seed * (number + 3) | 1;
	t->log = malloc(LOG * sizeof(*t->log));
	t->stack = malloc(STACK);
	if (!t->log || !t->stack || pthread_create(&t->id, NULL, run, t))
		fail("no memory for a thread");
}

/* ---- who listens
 * -------------------------------------------------------------------------------------- */

/* What the thread is told, the lock being held. It stays in the epoch in which it has entered. */
static uint64_t answer(struct thread *t, uint64_t ask, uint64_t *random)
{
	struct tr_frag *f;
	bool indirect = ask == ASK_INDIRECT;
	const struct tr_stop *link = indirect ? NULL : tr_stop_of(tr, ask);
	uint64_t pc = indirect ? *tcb(t, T_ASKED) : link ? link->pc : 0;
	uint32_t lag = link ? link->lag : 0;
	if (!t->inside || (!indirect && (!link || link->kind != TR_STOP_LINK)))
		fail("asks for %#llx, which is no link", (unsigned long long)ask);
	if (pc == end || random_next(random) % 8 == 0)
		return ANSWER_STOP;
	if (indirect && random_next(random) % 3)
		tr_expect_indirect(tr);
	if (tr_fragment(tr, pc, &f) != TR_FOUND)
		return ANSWER_STOP;
	if (indirect)
		tr_add_indirect(tr, f);
	else if (tr_entry_lag(f) != lag)
		return ANSWER_STOP;
	uint64_t entry = indirect ? tr_indirect_entry(f) : tr_entry(f);
	if (!entry)
		return ANSWER_STOP;
	*(indirect ? &answered_indirect : &answered_links) += 1;
	return entry;
}

static bool look(struct thread *t, uint64_t *random)
{
	uint64_t ask = __atomic_exchange_n(tcb(t, T_ASK), 0, __ATOMIC_SEQ_CST);
	if (!ask)
		return false;
	if (random_next(random) % 64 == 0) /* then it waits, however long */
		usleep(500);
	pthread_mutex_lock(&lock);
	uint64_t where = answer(t, ask, random);
	if (where == ANSWER_STOP)
		t->refused = true;
	else
		*tcb(t, T_ASKED) = 0; /* whoever stops has not asked, then */
	pthread_mutex_unlock(&lock);
	if (random_next(random) % 64 == 0)
		usleep(500);
	__atomic_store_n(tcb(t, T_ANSWER), where, __ATOMIC_SEQ_CST);
	return true;
}

static void *listen_to_threads(void *arg)
{
	uint64_t random = seed ^ 0x7777;
	sigset_t none;
	(void)arg;
	sigfillset(&none);
	pthread_sigmask(SIG_BLOCK, &none, NULL);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		unsigned whom = (unsigned)random_next(&random);
		unsigned looks = (unsigned)(random_next(&random) % 4000);
		for (int i = 0; i < THREADS; i++)
			if (whom & 1u << i)
				__atomic_store_n(tcb(&threads[i], T_LISTEN), 1, __ATOMIC_SEQ_CST);
		if (whom >> 8 & 3)
			for (unsigned k = 0; k < looks; k++)
				for (int i = 0; i < THREADS; i++)
					look(&threads[i], &random);
		else
			usleep(1500); /* they give up */
		for (int i = 0; i < THREADS; i++)
			__atomic_store_n(tcb(&threads[i], T_LISTEN), 0, __ATOMIC_SEQ_CST);
		for (int i = 0; i < THREADS; i++)
			look(&threads[i], &random);
		usleep((unsigned)(random_next(&random) % 1000));
	}
	return NULL;
}

/* ---- who changes things
 * ---------------------------------------------------------------------------- */

static void rewrite(uint64_t *random)
{
	unsigned page = (unsigned)(random_next(random) % PAGES);
	if (now + 1 == VERSIONS)
		return;
	uint32_t v = now + 1, old = version[page];
	now = v;
	uint64_t at = address(page * PER_PAGE);
	bool asleep = random_next(random) % 2;
	if (asleep)
		tr_sleep(tr, at >> 12);
	write_page(page, v);
	if (asleep)
		tr_wake(tr, at >> 12, UINT64_MAX);
	else
		tr_invalidate(tr, at, 4096);
	__atomic_store_n(&ended[old], v, __ATOMIC_RELEASE);
	rewritings++;
}

/* A page is no code for a moment, and then what it was. */
static void nap(uint64_t *random)
{
	unsigned page = (unsigned)(random_next(random) % PAGES),
		 other = (unsigned)(random_next(random) % PAGES);
	tr_sleep(tr, address(page * PER_PAGE) >> 12);
	tr_sleep(tr, address(other * PER_PAGE) >> 12);
	tr_wake(tr, address(page * PER_PAGE) >> 12, 0);
	if (other != page)
		tr_wake(tr, address(other * PER_PAGE) >> 12, 0);
	naps++;
}

static bool all_outcomes(void)
{
	return answered_links > 9 && answered_indirect > 9 && refused > 9 && withdrawn > 9;
}

static void change(double seconds)
{
	uint64_t random = seed ^ 0x5555, last[THREADS] = { 0 };
	struct timespec from, t, pause = { 0 };
	double at, watched = 0;
	clock_gettime(CLOCK_MONOTONIC, &from);
	do {
		pthread_mutex_lock(&lock);
		/* more is left to be asked for if hardly anything is made ahead */
		tr_spare(tr, random_next(&random) % 4 ? 1 : 0);
		switch (random_next(&random) % 16) {
		case 0:
			if (random_next(&random) % 64 == 0) {
				tr_flush(tr);
				flushes++;
			}
			break;
		case 1:
			for (unsigned i = 0; i < 2 * PAGES; i++)
				rewrite(&random);
			break;
		case 2 ... 5:
			reclaim();
			break;
		case 6 ... 8:
			nap(&random);
			break;
		default:
			rewrite(&random);
		}
		pthread_mutex_unlock(&lock);
		if (random_next(&random) % 2)
			pthread_kill(threads[random_next(&random) % THREADS].id, SIGUSR1);
		pause.tv_nsec = (long)(random_next(&random) % 400) * 1000;
		nanosleep(&pause, NULL);
		clock_gettime(CLOCK_MONOTONIC, &t);
		at = (double)(t.tv_sec - from.tv_sec) + (double)(t.tv_nsec - from.tv_nsec) / 1e9;
		if (at - watched > 30) {
			watched = at;
			for (int i = 0; i < THREADS; i++) {
				if (threads[i].progress == last[i])
					fail("thread %d is stuck", i);
				last[i] = threads[i].progress;
			}
		}
	} while (at < seconds || (at < seconds + MORE && !all_outcomes()));
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 4;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)t.tv_nsec | 1;
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	int fd = area_file(THREADS);
	if (fd < 0)
		fail("no memory for the areas");
	for (int i = 0; i < 2; i++)
		if (mmap((void *)code_at[i], 2 << 20, PROT_READ | PROT_WRITE, fixed, -1, 0) !=
		    (void *)code_at[i])
			fail("no room for the program");
	for (unsigned page = 0; page < PAGES; page++)
		write_page(page, ++now);
	write_driver();
	uint8_t *tables = mmap(NULL, AREA_TABLES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct tr_ops ops = { NULL, read_code, translated };
	struct tr_config config = { .tables = tables, .policy = tr_policies[TR_POLICY_SHADOW] };
	tr = tr_new(&ops, &config);
	area_signal(SIGTRAP, on_trap, SIGUSR1); /* the lock is held in there */
	area_signal(SIGUSR1, on_sleep, 0);
	area_signal(SIGSEGV, on_fault, SIGUSR1);
	area_signal(SIGBUS, on_fault, SIGUSR1);
	area_signal(SIGILL, on_fault, SIGUSR1);
	for (unsigned i = 0; i < THREADS; i++)
		make_thread(&threads[i], fd, i);
	pthread_t listener;
	if (pthread_create(&listener, NULL, listen_to_threads, NULL))
		fail("no memory for a thread");
	change(seconds);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(listener, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i].id, NULL);
	struct tr_stats st;
	tr_stats(tr, &st);
	printf("%lu runs, %lu blocks, %lu stops, %lu sleeps; %lu rewritings, %lu reclaims, %lu "
	       "flushes, %lu naps; %llu fragments, %llu retired\n",
	       runs, blocks, stops, sleeps, rewritings, reclaims, flushes, naps,
	       (unsigned long long)st.fragments, (unsigned long long)st.retired);
	printf("asked %lu times: answered %lu for links, %lu for indirect branches, %lu refused, "
	       "%lu "
	       "withdrawn\n",
	       answered_links + answered_indirect + refused + withdrawn, answered_links,
	       answered_indirect, refused, withdrawn);
	if (!all_outcomes())
		fail("hardly anything was asked");
	if (runs < 10 || rewritings < 10 || naps < 10 || st.retired < 10)
		fail("hardly anything happened");
	tr_free(tr);
	return 0;
}
