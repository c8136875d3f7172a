/*
 * An engine's life, running it, and registers on their way between emulator and processor.
 */
#include "fast/fast-parts.h"
#include "emu/emu-flags.h"

#include <cpuid.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(FAST_BELOW + FAST_WHOSE <= EMU_BELOW, "the control block and the tables lie there");

#define SELDOM	    50	/* instructions between two that the emulator has to do */
#define STRETCH_MAX 512 /* instructions that it does then */

/* ---- whether it can be ------------------------------------------------------------------------
 */

#define HWCAP2_FSGSBASE 2 /* arch/x86/include/uapi/asm/hwcap2.h: wrgsbase may be executed */

/* What this host's processor has; insn_lacked() knows of what a program may have used beyond that.
 */
enum {
	HOST_KNOWN = 1,
	HOST_ALL = 2,	 /* everything that all of them may find */
	HOST_AVX512 = 4, /* F and VL: never a recorded program's, but notes' */
	HOST_BASE = 8,	 /* wrgsbase may be executed; else the kernel is asked for it */
};

/* HOST_*: what every recorded program may find in a processor (recorder/cpuid.c), and the rest. */
static unsigned find_features(void)
{
	unsigned a, b, c, d, xcr0, found = HOST_KNOWN;
	const unsigned c1 = 1u << 0 | 1u << 1 | 1u << 9 | 1u << 12 | 1u << 13 | 1u << 19 |
			    1u << 20 | 1u << 22 | 1u << 23 | 1u << 25 | 1u << 27 | 1u << 28 |
			    1u << 29;
	const unsigned b7 = 1u << 3 | 1u << 5 | 1u << 8;

	if (!__get_cpuid(1, &a, &b, &c, &d) || (c & c1) != c1)
		return found;
	__asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(d) : "c"(0));
	if ((xcr0 & 6) != 6 /* the kernel keeps ymm registers */ ||
	    !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & b7) != b7)
		return found;
	if ((b & (1u << 16 | 1u << 31)) == (1u << 16 | 1u << 31) && (xcr0 & 0xe6) == 0xe6)
		found |= HOST_AVX512;
	if (__get_cpuid(0x80000001, &a, &b, &c, &d) &&
	    (c & (1u << 5 | 1u << 0)) == (1u << 5 | 1u << 0))
		found |= HOST_ALL;
	found |= getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE ? HOST_BASE : 0;
	return found;
}

static bool host_has(unsigned features)
{
	static atomic_uint known; /* 0: nobody has asked; two threads may ask at once */
	unsigned found = known;

	if (!found)
		known = found = find_features();
	return (found & features) == features;
}

bool fast_has_avx512(void)
{
	return host_has(HOST_AVX512);
}

bool fast_base_by_program = true;

bool fast_sets_bases(void)
{
	return fast_base_by_program && host_has(HOST_BASE);
}

bool fast_possible(enum dj_cpu_kind kind)
{
	return host_has(HOST_ALL) && kind == dj_cpu_host();
}

bool fast_fits(const struct fast *f)
{
	const struct emu *e = f->e;
	const struct emu_observer *o = &e->observer;
	unsigned hooks = e->hooks;

	if (f->notes || e->watch_size)
		hooks &= ~(unsigned)EMU_HOOK_TRACK;
	return !hooks && !e->stop_at && e->mirror_stores &&
	       (o->others || (!o->see && !o->point && !o->rep && !o->counts));
}

bool fast_broken(const struct fast *f)
{
	return f->broken;
}

uint64_t fast_steps(const struct fast *f)
{
	return f->steps;
}

/* ---- registers --------------------------------------------------------------------------------
 */

/* Whether generated code can stand in: no exception of floating point is unmasked, strings go
 * forwards, no trap flag or alignment check. */
static bool can_enter(const struct emu *e)
{
	const uint64_t odd = DJ_FLAG_DF | 1u << 8 | 1u << 14 | 1u << 18;

	return !e->in_rep && !(e->cpu.other_flags & odd) && (e->cpu.mxcsr & 0x1f80) == 0x1f80 &&
	       !(e->cpu.mxcsr >> 16);
}

static bool upper_halves(const struct emu_cpu *c)
{
	uint64_t any = 0;

	for (unsigned i = 0; i < 16; i++)
		any |= c->v[i].q[2] | c->v[i].q[3];
	return any;
}

static void load(struct fast *f, uint64_t left)
{
	struct emu *e = f->e;
	uint32_t flags = emu_get_flags(e);

	FAST_U64(f, F_LEFT) = left;
	FAST_U64(f, F_FENCES) = 0;
	FAST_U64(f, F_ABOVE) = ~e->returns_above;
	FAST_U32(f, F_FLAGS) = (flags & 0xd5) << 8 | (flags & DJ_FLAG_OF ? 1 : 0);
	FAST_U32(f, F_MXCSR) = e->cpu.mxcsr;
	FAST_U32(f, F_WIDE) = upper_halves(&e->cpu);
}

/* Returns how many instructions were executed. */
static uint64_t store(struct fast *f, uint64_t left)
{
	struct emu *e = f->e;
	uint32_t flags = FAST_U32(f, F_FLAGS);
	uint64_t done = left - FAST_U64(f, F_LEFT), fences = FAST_U64(f, F_FENCES);

	emu_set_flags(e, (flags >> 8 & 0xd5) | (flags & 1 ? DJ_FLAG_OF : 0));
	e->cpu.mxcsr = FAST_U32(f, F_MXCSR);
	if (fences) {
		e->fences += fences;
		e->fence_steps = e->steps + (left - FAST_U64(f, F_FENCE_LEFT));
	}
	e->steps += done;
	f->steps += done;
	return done;
}

/* ---- running ----------------------------------------------------------------------------------
 */

/* The shadow is the calling thread's gs base. (Nobody else changes that. Where the processor or the
 * kernel does not let programs do it, as on some paravirtual machines, it takes a system call:
 * arch_prctl(2).) False if that is refused. */
static bool set_base(uint8_t *shadow)
{
	static _Thread_local const uint8_t *base;

	if (fast_sets_bases())
		__asm__ volatile("wrgsbase %0" : : "r"(shadow) : "memory");
	else if (base != shadow && syscall(FAST_ARCH_PRCTL, FAST_SET_GS, shadow))
		return false;
	base = shadow;
	return true;
}

/* Run from the block on. */
static const struct fast_exit *execute(struct fast *f, const struct fast_block *b, uint64_t until)
{
	static const struct fast_exit miss = { .kind = FAST_LINK };
	const struct fast_exit *x = &miss;
	struct emu *e = f->e;
	uint64_t from = e->steps, left = until - from - FAST_BIAS;

	/* fs is not this thread's own, so nothing but this engine's code has run in it since */
	const bool goes_on = f->notes && FAST_U32(f, F_NOTE_SET);

	if (!goes_on && !set_base(e->shadow)) {
		snprintf(e->why, sizeof(e->why), "the gs base cannot be set");
		f->broken = true;
		return NULL;
	}
	load(f, left);
	FAST_U64(f, F_LOG) = (uint64_t)(uintptr_t)f->log;
	FAST_U64(f, F_NO_X87) = !f->want_x87;
	if (f->want_x87)
		fast_x87_load(f);
	f->want_x87 = false;
	if (!goes_on)
		fast_running(e->shadow);
	fast_enter(b->entry);
	if (!f->notes || !FAST_U32(f, F_NOTE_SET))
		fast_running(NULL);
	fast_x87_store(f, !FAST_U64(f, F_FAULT));
	if (FAST_U64(f, F_FAULT)) {
		snprintf(e->why, sizeof(e->why), "exception %u in translated code",
			 (unsigned)FAST_U64(f, F_FAULT));
		f->broken = true;
		return NULL;
	}
	store(f, left);
	uint32_t exit = FAST_U32(f, F_EXIT);
	if (exit == FAST_EXIT_MISS) {
		e->cpu.rip = FAST_U64(f, F_TARGET);
	} else {
		x = &f->exits[exit];
		e->cpu.rip = x->target;
		if (f->counting && (x->kind == FAST_LINK || x->kind == FAST_STEP))
			f->counters[exit]++;
	}
	fast_tell_log(f, from, left);
	return x;
}

/* The block at rip, to which the exit leads that was taken (NULL: none). */
static struct fast_block *next_block(struct fast *f, const struct fast_exit *x)
{
	bool flushed, link = x && x->kind == FAST_LINK && x->site,
		      indirect = x && x->kind == FAST_LINK && !x->site;
	uint32_t exit = link ? (uint32_t)(x - f->exits) : 0;
	struct fast_block *b = fast_block_at(f, f->e->cpu.rip, &flushed);

	if (!b)
		return NULL;
	if (link && !flushed)
		fast_link(f, exit, b);
	if (indirect)
		fast_indirect(f, b);
	return b;
}

static bool bases_changed(struct fast *f)
{
	const uint64_t *base = f->e->cpu.segbase;

	if (base[1] == f->fs_base && base[2] == f->gs_base)
		return false;
	f->fs_base = base[1];
	f->gs_base = base[2];
	return true;
}

/* The emulator does the next instruction, and more where it has to be asked again and again: in and
 * out costs as much as it takes for dozens of instructions. */
static enum emu_stop emulate(struct fast *f, uint64_t until)
{
	struct emu *e = f->e;
	uint64_t to;

	if (e->steps - f->emulated > SELDOM)
		f->stretch = 1;
	else if (f->stretch < STRETCH_MAX)
		f->stretch *= 2;
	to = until - e->steps < f->stretch ? until : e->steps + f->stretch;
	enum emu_stop why = emu_run(e, to);
	f->emulated = e->steps;
	return why;
}

/* The emulator makes the access that was looked at; more of them if two take a page from each
 * other.
 */
static enum emu_stop meet(struct fast *f, uint64_t until)
{
	if (f->notes->met(f->notes->met_ctx, FAST_U64(f, F_MET)))
		return emulate(f, until);
	return emu_run(f->e, f->e->steps + 1);
}

/* Go on from rip. The exit that was taken then; NULL: to come back for reason *why. */
static const struct fast_exit *go_on(struct fast *f, const struct fast_exit *x, uint64_t until,
				     enum emu_stop *why)
{
	struct emu *e = f->e;
	struct fast_block *b = next_block(f, x);

	if (e->stop_requested) { /* code was looked for */
		e->stop_requested = false;
		*why = EMU_STOP_REQUEST;
		return NULL;
	}
	if (!b || !b->entry) {
		*why = emulate(f, until);
		return NULL;
	}
	x = execute(f, b, until);
	if (!x)
		*why = EMU_STOP_UNKNOWN;
	return x;
}

enum emu_stop fast_run(struct fast *f, uint64_t until)
{
	struct emu *e = f->e;
	const struct fast_exit *x = NULL;
	enum emu_stop why = EMU_STOP_STEPS;
	/* nobody has asked for that very position: it need not be come to */
	bool early = until > e->steps && until - e->steps > FAST_GO;

	if (early)
		until = e->steps + FAST_GO;
	f->want_x87 = false;
	if (bases_changed(f))
		fast_flush(f);
	while (e->steps < until && why == EMU_STOP_STEPS) {
		if (until - e->steps <= FAST_BIAS || (x && x->kind == FAST_LIMIT))
			return early ? EMU_STOP_STEPS : emu_run(e, until);
		if (!can_enter(e)) {
			why = emu_run(e, e->steps + FAST_BIAS);
			x = NULL;
			continue;
		}
		x = go_on(f, x, until, &why);
		f->want_x87 = x && x->kind == FAST_X87 && fast_x87_fits(e);
		if (x && x->kind == FAST_WHOM) {
			why = meet(f, until);
			x = NULL;
		}
		if (x && (x->kind == FAST_STEP || (x->kind == FAST_X87 && !f->want_x87))) {
			why = emulate(f, until);
			x = NULL;
		}
	}
	return why;
}

/* ---- life -------------------------------------------------------------------------------------
 */

static void forgotten(void *engine, uint64_t addr, uint64_t len)
{
	fast_forget(engine, addr, len);
}

#define COUNTERS (FAST_EXITS * sizeof(uint64_t))

/* Two mappings of the same memory, so that none is both writable and executable. Behind that which
 * is executed lie the counters, so that code reaches them. */
static bool map_code(struct fast *f)
{
	int fd = memfd_create("deja-code", MFD_CLOEXEC);
	bool good = fd >= 0 && !ftruncate(fd, FAST_CODE);

	f->ours = f->code = MAP_FAILED;
	if (good) {
		f->ours = mmap(NULL, FAST_CODE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		f->code = mmap(NULL, FAST_CODE + COUNTERS, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		good = f->ours != MAP_FAILED && f->code != MAP_FAILED &&
		       mmap(f->code, FAST_CODE, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, fd,
			    0) != MAP_FAILED;
		f->counters = (uint64_t *)(f->code + FAST_CODE);
	}
	if (fd >= 0)
		close(fd);
	return good;
}

struct fast *fast_new(struct emu *e)
{
	struct fast *f;

	if (!fast_possible(e->kind) || !fast_catch())
		return NULL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->e = e;
	if (!map_code(f) || mprotect(e->shadow - FAST_BELOW, FAST_BELOW, PROT_READ | PROT_WRITE)) {
		fast_free(f);
		return NULL;
	}
	FAST_U64(f, F_FAULT) = 0;
	FAST_U64(f, F_LEAVE) = (uint64_t)(uintptr_t)fast_leave;
	FAST_U64(f, F_OTHER) = (uint64_t)(uintptr_t)fast_other;
	FAST_U64(f, F_GPR) = (uint64_t)(uintptr_t)e->cpu.gpr;
	FAST_U64(f, F_VEC) = (uint64_t)(uintptr_t)e->cpu.v;
	FAST_U64(f, F_CODE) = (uint64_t)(uintptr_t)f->code;
	FAST_U64(f, F_CODE_END) = (uint64_t)(uintptr_t)f->code + FAST_CODE;
	if (!fast_blocks_begin(f) || !fast_tell_begin(f)) {
		fast_free(f);
		return NULL;
	}
	f->fs_base = e->cpu.segbase[1];
	f->gs_base = e->cpu.segbase[2];
	f->stretch = 1;
	e->forgotten = forgotten;
	e->tell_counts = fast_tell_all;
	e->forgotten_ctx = f;
	return f;
}

void fast_free(struct fast *f)
{
	if (!f)
		return;
	f->e->forgotten = NULL;
	f->e->tell_counts = NULL;
	fast_notes_free(f);
	if (f->ours != MAP_FAILED)
		munmap(f->ours, FAST_CODE);
	if (f->code != MAP_FAILED)
		munmap(f->code, FAST_CODE + COUNTERS);
	fast_blocks_end(f);
	fast_tell_end(f);
	free(f);
}
