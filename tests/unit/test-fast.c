/*
 * Translated replay against the emulator: random programs, run by both to random positions, must
 * have the same registers, flags, memory, steps and ordered events everywhere; and what is special
 * about generated code: operands that straddle 4 GiB, code that changes, exceptions, wild jumps.
 */
#include "tests/lib/suites.h"
#include "fast/fast.h"
#include "tests/lib/oracle.h"
#include "tests/lib/translate-gen.h"

#include "format/error.h"

#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define STEPS  3000
#define AT     0x2a0020000000
#define AROUND 65536 /* bytes of the shadow that are compared around each region */

static struct emu *slow, *quick;
static struct fast *fast;
static struct gen *prog;
static unsigned broken; /* times that generated code raised an exception */
static bool notes;	/* generated code makes some */
static bool apart;	/* and looks whose the pages are */
static bool seldom;	/* stops: at each the emulator has accessed much by itself */
static uint8_t *met[2]; /* what the emulator alone reads and writes, as the engine's tables are */

static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	(void)ctx;
	if (addr < prog->base || addr >= prog->base + prog->n)
		return 0;
	size_t n = prog->base + prog->n - addr;
	n = n < len ? n : len;
	memcpy(buf, prog->code + (addr - prog->base), n);
	return n;
}

static int set_up(void)
{
	struct dj_error err = { 0 };

	slow = emu_new(&err);
	quick = emu_new(&err);
	if (!slow || !quick)
		return -1;
	slow->fetch = quick->fetch = fetch;
	fast = fast_new(quick);
	return 0;
}

/* ---- whose the pages are ----------------------------------------------------------------- */

#define PAGES	  ((uint64_t)1 << 20)
#define SET_SLOTS (1u << 16)

/* Pages that the emulator alone has accessed, and those of which the engine has said so: generated
 * code that it looks, the emulator that it makes an access. */
static uint64_t accessed[SET_SLOTS], said[SET_SLOTS];
static uint64_t whose[PAGES]; /* by page of the shadow: number of a page and 1, or 0 */
static uint64_t looks;

static bool in_set(uint64_t *set, uint64_t num, bool put)
{
	uint64_t i = num * 0x9e3779b97f4a7c15 >> 48;

	while (set[i] && set[i] != num + 1)
		i = (i + 1) % SET_SLOTS;
	if (!set[i] && put) {
		set[i] = num + 1;
		return true;
	}
	return set[i] != 0;
}

static void put_pages(uint64_t *set, uint64_t addr, unsigned size)
{
	for (uint64_t num = addr >> 12; num != ((addr + size - 1) >> 12) + 1; num++)
		in_set(set, num, true);
}

static bool is_whose(uint64_t num)
{
	return whose[num % PAGES] == num + 1;
}

/* The page and those beside it become that address's, as replayer/trail.c has it. */
static bool looked_at(void *ctx, uint64_t addr)
{
	const uint64_t num = addr >> 12;

	(void)ctx;
	looks++;
	for (uint64_t i = num - 1; i != num + 2; i++) {
		whose[i % PAGES] = i + 1;
		in_set(said, i, true);
	}
	for (uint64_t i = num - 2; i != num + 3; i++) {
		uint64_t idx = i % PAGES, own = whose[idx] - 1;
		if (idx > FAST_NOTE_FIRST / FAST_NOTE_PAGE && idx < PAGES - 1 && whose[idx] &&
		    is_whose(own - 1) && is_whose(own + 1))
			fast_whose_set(fast, idx, (uint32_t)(own >> 20));
		else
			fast_whose_none(fast, idx);
	}
	return false;
}

/* From now on nobody has accessed anything, and all pages are nobody's. */
static void forget_pages(void)
{
	if (!apart)
		return;
	memset(accessed, 0, sizeof(accessed));
	memset(said, 0, sizeof(said));
	memset(whose, 0, sizeof(whose));
	fast_whose_clear(fast);
}

static bool all_said(void)
{
	unsigned bad = 0;

	for (unsigned i = 0; i < SET_SLOTS; i++)
		if (accessed[i] && !in_set(said, accessed[i] - 1, false) && !bad++)
			printf("\n  nobody has looked at page %llx",
			       (unsigned long long)(accessed[i] - 1));
	return !bad;
}

/* ---- what is read and written ------------------------------------------------------------ */

static void mark(struct emu *e, bool wrote, uint64_t addr, unsigned size)
{
	uint32_t at = (uint32_t)addr;

	if (apart)
		put_pages(e == slow ? accessed : said, addr, size);
	if (e == slow)
		memset(met[wrote] + at, 0xff, size);
	else if (at >= FAST_NOTE_FIRST)
		memset(fast_note_byte(fast, wrote, at), 0xff, size);
}

static void after_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx;
	mark(e, false, addr, size);
}

static void before_store(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx;
	mark(e, true, addr, size);
}

static void after_store(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			const uint8_t *bytes)
{
	(void)ctx;
	(void)e;
	(void)addr;
	(void)size;
	(void)bytes;
}

static void hear(struct emu *e)
{
	e->hooks = notes ? EMU_HOOK_TRACK : 0;
	e->after_load = after_load;
	e->before_store = before_store;
	e->after_store = after_store;
}

static unsigned char there[FAST_NOTE_PAGES];
static bool small_files;

/* From now on nothing has been met. */
static void forget_met(void)
{
	for (int wrote = 0; notes && wrote < 2; wrote++)
		madvise(met[wrote], FAST_NOTE_TABLE, MADV_DONTNEED);
	if (notes)
		fast_note_forget(fast);
	forget_pages();
}

/* Where notes are made in parts the addresses of those behind the end begin again. */
static bool noted_whole(void)
{
	return fast_note_by_avx512 && __builtin_cpu_supports("avx512vl");
}

/* Bytes of the range that only one of the two has met, or that only the emulator has written. */
static unsigned met_differs(uint64_t at, size_t n)
{
	unsigned bad = 0;
	uint64_t end = at + n;

	if (!noted_whole() && end > 1ULL << 32)
		end = 1ULL << 32;
	for (uint64_t i = at < FAST_NOTE_FIRST ? FAST_NOTE_FIRST : at; i < end; i++) {
		unsigned page = there[i / FAST_NOTE_PAGE];
		bool read = page & FAST_NOTE_FOUND && *fast_note_byte(fast, false, i);
		bool wrote = page & FAST_NOTE_WROTE && *fast_note_byte(fast, true, i);
		bad += (met[0][i] || met[1][i]) != (read || wrote);
		bad += met[1][i] && !wrote;
		bad += met[0][i] && !read;
	}
	return bad;
}

/* It can be looked at, and is a note or none. */
static bool no_note(const volatile uint8_t *byte)
{
	return *byte && *byte != 0xff;
}

/* Asked for one page alone: nothing is missed, and what is there can be looked at. */
static unsigned missed_at(uint64_t page)
{
	static unsigned char alone[FAST_NOTE_PAGES];
	unsigned bad;

	alone[page] = 0;
	fast_note_there(fast, page, page + 1, alone);
	bad = (there[page] & ~alone[page]) != 0;
	bad += alone[page] & FAST_NOTE_FOUND &&
	       no_note(fast_note_byte(fast, false, page * FAST_NOTE_PAGE));
	bad += alone[page] & FAST_NOTE_WROTE &&
	       no_note(fast_note_byte(fast, true, page * FAST_NOTE_PAGE));
	return bad;
}

static bool same_met(void)
{
	unsigned bad = 0;

	if (!notes)
		return true;
	memset(there, 0, sizeof(there));
	fast_note_there(fast, 0, FAST_NOTE_PAGES, there);
	for (unsigned r = 0; r < GEN_REGIONS; r++) {
		bad += met_differs((uint32_t)gen_region[r], GEN_REGION);
		bad += missed_at((uint32_t)gen_region[r] / FAST_NOTE_PAGE);
		bad += missed_at((uint32_t)(gen_region[r] + FAST_NOTE_PAGE) / FAST_NOTE_PAGE);
	}
	bad += met_differs(FAST_NOTE_FIRST, AROUND) + met_differs((1ULL << 32) - AROUND, AROUND);
	if (bad)
		printf("\n  %u bytes are noted wrongly", bad);
	return !bad && all_said();
}

/* With `small_files` no file may be as large as the tables of notes. */
static bool begin_notes(struct fast *f)
{
	struct rlimit was, small;

	if (!small_files)
		return fast_note_begin(f);
	getrlimit(RLIMIT_FSIZE, &was);
	small = was;
	small.rlim_cur = 1 << 20;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	bool good = fast_note_begin(f);
	setrlimit(RLIMIT_FSIZE, &was);
	signal(SIGXFSZ, SIG_DFL);
	return good;
}

static struct fast *new_fast(void)
{
	struct fast *f = fast_new(quick);

	if (f && notes && !begin_notes(f)) {
		fast_free(f);
		return NULL;
	}
	if (f && notes && apart)
		CU_ASSERT(fast_whose_begin(f, looked_at, NULL));
	return f;
}

static int tear_down(void)
{
	fast_free(fast);
	emu_free(quick);
	emu_free(slow);
	return 0;
}

static void begin(struct emu *e, const struct dj_regs *regs)
{
	emu_forget_code(e, AT, GEN_CODE);
	emu_set_regs(e, regs, ~0ULL);
	e->cpu.segbase[1] = 0x123456;
	e->cpu.segbase[2] = GEN_GS;
	e->steps = e->fences = e->fence_steps = 0;
	e->in_rep = false;
	e->rep_iter = 0;
}

static uint8_t *around(struct emu *e, unsigned region, size_t *len)
{
	uint32_t at = (uint32_t)gen_region[region];

	*len = GEN_REGION;
	return e->shadow + at;
}

/* The first and last bytes of the shadow, where most goes that goes astray, and the regions. */
static bool same_memory(void)
{
	bool same = true;

	for (unsigned r = 0; r < GEN_REGIONS; r++) {
		size_t n;
		uint8_t *a = around(slow, r, &n), *b = around(quick, r, &n);
		same &= !memcmp(a, b, n);
	}
	return same && !memcmp(slow->shadow, quick->shadow, AROUND) &&
	       !memcmp(slow->shadow + (1ULL << 32) - AROUND, quick->shadow + (1ULL << 32) - AROUND,
		       AROUND);
}

static void fill_memory(void)
{
	emu_reset_memory(slow);
	emu_reset_memory(quick);
	for (unsigned r = 0; r < GEN_REGIONS; r++) {
		size_t n;
		uint8_t *a = around(slow, r, &n), *b = around(quick, r, &n);
		for (size_t i = 0; i < n; i++)
			a[i] = b[i] = (uint8_t)gen_rnd(256);
	}
}

/* Both at the same position in the same state; says what differs if not. */
static bool same(uint64_t to)
{
	struct dj_regs a, b;

	emu_get_regs(slow, &a);
	emu_get_regs(quick, &b);
	uint64_t differ = dj_regs_diff(&a, &b);
	bool good = !differ && slow->steps == quick->steps && slow->fences == quick->fences &&
		    slow->fence_steps == quick->fence_steps && same_memory();
	if (!good)
		printf("\n  at %llu of a program at %llx: parts %llx differ, rip %llx and %llx, "
		       "rflags %llx and %llx, steps %llu and %llu, fences %llu and %llu, memory "
		       "%s\n",
		       (unsigned long long)to, (unsigned long long)prog->base,
		       (unsigned long long)differ, (unsigned long long)a.rip,
		       (unsigned long long)b.rip, (unsigned long long)a.rflags,
		       (unsigned long long)b.rflags, (unsigned long long)slow->steps,
		       (unsigned long long)quick->steps, (unsigned long long)slow->fences,
		       (unsigned long long)quick->fences, same_memory() ? "same" : "differs");
	return good;
}

/* As far as the emulator goes with the program: to its end, to what it does not execute, to a
 * fault. */
static uint64_t length_of(const struct dj_regs *regs)
{
	begin(slow, regs);
	emu_run(slow, STEPS); /* up to a REP instruction that takes for ever, at most */
	return slow->steps;
}

/* The processor wants some operands aligned, the emulator does not care. */
static bool run_fast_to(uint64_t to)
{
	while (quick->steps < to) {
		enum emu_stop why = fast_run(fast, to);
		if (fast_broken(fast))
			return false;
		if (why != EMU_STOP_STEPS) {
			printf("\n  stopped for reason %d: %s\n", why, quick->why);
			return false;
		}
	}
	return true;
}

enum { DIFFERENT, SAME, EXCEPTION };

/* Both run the first `n` steps. */
static int compare_to(struct gen *g, uint64_t n)
{
	uint64_t at = 0;

	begin(slow, &g->regs);
	begin(quick, &g->regs);
	forget_met();
	while (at < n) {
		at += 1 + gen_rnd(gen_chance(30) ? 40 : 2000) + (seldom ? 20000 : 0);
		at = at < n ? at : n;
		enum emu_stop why = emu_run(slow, at);
		if (why != EMU_STOP_STEPS) {
			printf("\n  the emulator stops for reason %d: %s\n", why, slow->why);
			return DIFFERENT;
		}
		if (!run_fast_to(at))
			return fast_broken(fast) ? EXCEPTION : DIFFERENT;
		if (!same(at) || !same_met())
			return DIFFERENT;
		if (apart && gen_chance(10))
			forget_pages();
	}
	return SAME;
}

/* At an exception the program is too long: a shorter one, then. */
static bool compare(struct gen *g)
{
	uint64_t seed = gen_seed;
	int answer;

	prog = g;
	fill_memory();
	uint64_t n = length_of(&g->regs);
	for (;;) {
		gen_seed = seed; /* the same memory again */
		fill_memory();
		answer = compare_to(g, n);
		if (answer != EXCEPTION)
			return answer == SAME;
		broken++;
		n /= 2;
		fast_free(fast);
		fast = new_fast();
	}
}

static void random_programs(bool branches, unsigned insns, unsigned n)
{
	unsigned bad = 0;
	uint64_t translated = 0, steps = 0;
	static struct gen g;

	if (!fast) {
		printf("(this host cannot) ");
		return;
	}
	for (unsigned i = 0; i < n && bad < 5; i++) {
		g.base = AT;
		g.branches = branches;
		g.x87 = gen_chance(40);
		gen_program(&g, 1 + gen_rnd(insns));
		uint64_t before = fast_steps(fast);
		bad += !compare(&g);
		steps += quick->steps;
		translated += fast_steps(fast) - (fast_steps(fast) < before ? 0 : before);
	}
	printf("(%u exceptions, %llu of %llu steps translated) ", broken,
	       (unsigned long long)translated, (unsigned long long)steps);
	CU_ASSERT(bad == 0);
	CU_ASSERT(translated > steps / (apart ? 30 : 10)); /* each look leads to the emulator */
}

static void test_straight(void)
{
	random_programs(false, GEN_INSNS, 800);
}

static void test_branches(void)
{
	random_programs(true, GEN_INSNS, 250);
}

static struct gen special;

/* From now on the program is this. */
static void set_program(const void *code, size_t n)
{
	memset(&special, 0, sizeof(special));
	memcpy(special.code, code, n);
	special.base = special.regs.rip = AT;
	special.n = n;
	special.regs.rflags = 0x202;
	special.regs.mxcsr = 0x1f80;
	special.regs.fcw = 0x37f;
	special.regs.gpr[DJ_RSP] = 0x7ffffffff000;
	prog = &special;
	if (fast)
		fill_memory();
}
#define PROGRAM(...)                                                                               \
	do {                                                                                       \
		static const uint8_t bytes_[] = { __VA_ARGS__ };                                   \
		set_program(bytes_, sizeof(bytes_));                                               \
	} while (0)

/* Most of it is done by generated code: at least once, as short stretches are the emulator's. */
static void check_same(uint64_t n)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < 10 && most <= n / 2; i++) {
		uint64_t before = fast_steps(fast);
		fill_memory();
		CU_ASSERT(compare_to(prog, n) == SAME);
		if (fast_steps(fast) - before > most)
			most = fast_steps(fast) - before;
	}
	CU_ASSERT(most > n / 2);
}

/* mov [rsp+8], rax; pop [rsp+8], which is another place; sub rsp, 40; jmp: what is noted once is
 * not noted again, but for that the registers must be the same. */
static void noted_by_pop(void)
{
	PROGRAM(0x48, 0x89, 0x44, 0x24, 0x08, 0x8f, 0x44, 0x24, 0x08, 0x48, 0x83, 0xec, 0x28, 0xeb,
		0xf1);
	check_same(400);
}

/* vmovdqu ymm0, [rsi]; vmovups [rdi], ymm0; movups xmm1, [rsi+r9*2+0x1f]; vmovdqu
 * [r12+rax*4-0x40], ymm1; vmovups ymm2, [rip+0x1000]; movups [rsp+0x20], xmm1; vmovdqu ymm3,
 * [rsp+0x7e0]; vpaddb ymm3, ymm3, [r13+0x21]; lea rsi, [rsi+0x1fd]; lea rdi, [rdi+0x2b]; lea rsp,
 * [rsp-0x11]; jmp: operands of 16 and 32 bytes in all places of a line, across pages, and across
 * the end of the shadow. */
static void noted_wide(void)
{
	const unsigned n = noted_whole() ? 3 : 2;
	uint64_t before = fast_steps(fast);

	for (unsigned i = 0; i < n * 33; i++) {
		uint64_t *gpr = special.regs.gpr, off = 2 * i / n;
		PROGRAM(0xc5, 0xfe, 0x6f, 0x06, 0xc5, 0xfc, 0x11, 0x07, 0x42, 0x0f, 0x10, 0x4c,
			0x4e, 0x1f, 0xc4, 0xc1, 0x7e, 0x7f, 0x4c, 0x84, 0xc0, 0xc5, 0xfc, 0x10,
			0x15, 0x00, 0x10, 0x00, 0x00, 0x0f, 0x11, 0x4c, 0x24, 0x20, 0xc5, 0xfe,
			0x6f, 0x9c, 0x24, 0xe0, 0x07, 0x00, 0x00, 0xc4, 0xc1, 0x65, 0xfc, 0x5d,
			0x21, 0x48, 0x8d, 0xb6, 0xfd, 0x01, 0x00, 0x00, 0x48, 0x8d, 0x7f, 0x2b,
			0x48, 0x8d, 0x64, 0x24, 0xef, 0xeb, 0xbd);
		gpr[DJ_RSI] = gen_region[i % n] + 64 + off;
		gpr[DJ_RDI] = gen_region[(i + 1) % n] + 4096 - 13 * 0x2b - 1 - off;
		gpr[DJ_R12] = gen_region[(i + 2) % n] + 2048;
		gpr[DJ_RAX] = off;
		gpr[DJ_R9] = 5 * off;
		gpr[DJ_R13] = gen_region[n - 1] + 4096 - off;
		gpr[DJ_RSP] = gen_region[n - 1] + 4096 - 0x21 - off;
		CU_ASSERT(compare_to(prog, 12 * 14) == SAME);
	}
	CU_ASSERT(fast_steps(fast) - before > (apart ? 3 : 33) * 12 * 14);
}

/* outer: mov ecx, 40; inner: push rax; push rbx; mov [rsp+0x18], rdx; sub rsp, 0x6400; mov [rsp+8],
 * rax; add rsp, 0x6400; pop rbx; pop rax; lea rsp, [rsp-0x3000]; push rax; lea rsp, [rsp+0x3008];
 * mov rdx, [rsi+r9*8-0x40]; add rdx, [rsi+r9*8-0x38]; lea r9, [r9+0xc00]; add rdx, [rsi+r9*8-0x40];
 * lea r9, [r9-0xc00]; mov [rdi+0x10], rdx; mov [rdi+0x18], rdx; mov [rdi+0x6010], rdx; mov r11,
 * fs:[r8]; add r11, [r10+r11]; mov [rip+0x3000], rax; dec ecx; jne inner; xor rsp, r12; lea rsp,
 * [rsp-0x138]; xor rsi, r13; lea rsi, [rsi+0x218]; lea rdi, [rdi+0x3f3]; lea r8, [r8+0x15d]; jmp
 * outer: the same code has its memory now here, now 4 GiB and more away, and near the end of a
 * page; what lies near what was looked at is told from what does not. (After a look the rest is
 * another block, which looks for itself. So some are made twice.) */
static void looked_everywhere(void)
{
	uint64_t *gpr = special.regs.gpr, before = looks;

	PROGRAM(0xb9, 0x28, 0x00, 0x00, 0x00, 0x50, 0x53, 0x48, 0x89, 0x54, 0x24, 0x18, 0x48, 0x81,
		0xec, 0x00, 0x64, 0x00, 0x00, 0x48, 0x89, 0x44, 0x24, 0x08, 0x48, 0x81, 0xc4, 0x00,
		0x64, 0x00, 0x00, 0x5b, 0x58, 0x48, 0x8d, 0xa4, 0x24, 0x00, 0xd0, 0xff, 0xff, 0x50,
		0x48, 0x8d, 0xa4, 0x24, 0x08, 0x30, 0x00, 0x00, 0x4a, 0x8b, 0x54, 0xce, 0xc0, 0x4a,
		0x03, 0x54, 0xce, 0xc8, 0x4d, 0x8d, 0x89, 0x00, 0x0c, 0x00, 0x00, 0x4a, 0x03, 0x54,
		0xce, 0xc0, 0x4d, 0x8d, 0x89, 0x00, 0xf4, 0xff, 0xff, 0x48, 0x89, 0x57, 0x10, 0x48,
		0x89, 0x57, 0x18, 0x48, 0x89, 0x97, 0x10, 0x60, 0x00, 0x00, 0x64, 0x4d, 0x8b, 0x18,
		0x4f, 0x03, 0x1c, 0x1a, 0x48, 0x89, 0x05, 0x00, 0x30, 0x00, 0x00, 0xff, 0xc9, 0x75,
		0x94, 0x4c, 0x31, 0xe4, 0x48, 0x8d, 0xa4, 0x24, 0xc8, 0xfe, 0xff, 0xff, 0x4c, 0x31,
		0xee, 0x48, 0x8d, 0xb6, 0x18, 0x02, 0x00, 0x00, 0x48, 0x8d, 0xbf, 0xf3, 0x03, 0x00,
		0x00, 0x4d, 0x8d, 0x80, 0x5d, 0x01, 0x00, 0x00, 0xe9, 0x67, 0xff, 0xff, 0xff);
	gpr[DJ_RSP] = 0x2a1000200040;
	gpr[DJ_RSI] = 0x2a1001400f00;
	gpr[DJ_R9] = 3;
	gpr[DJ_RDI] = 0x2a1002600000;
	gpr[DJ_R8] = 0x2a1003800e00;
	gpr[DJ_R10] = 0x2a3000200100;
	gpr[DJ_R12] = 1ULL << 32;
	gpr[DJ_R13] = 5ULL << 32;
	seldom = true;
	check_same(60000);
	seldom = false;
	CU_ASSERT(looks - before > 100);
}

static void test_notes(void)
{
	unsigned was = broken;

#ifdef __SANITIZE_ADDRESS__
	printf("(its shadow lies where the notes are to lie) ");
	return;
#endif
	if (!fast)
		return;
	fast_free(fast);
	notes = true;
	fast = new_fast();
	CU_ASSERT(fast != NULL);
	for (int wrote = 0; wrote < 2; wrote++)
		met[wrote] = mmap(NULL, FAST_NOTE_TABLE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	hear(slow);
	hear(quick);
	broken = 0;
	if (fast && met[0] != MAP_FAILED && met[1] != MAP_FAILED)
		random_programs(true, GEN_INSNS, 400);
	if (fast)
		noted_by_pop();
	if (fast)
		noted_wide();
	if (fast && apart) {
		looked_everywhere();
		CU_ASSERT(looks > 1000);
	}
	for (int wrote = 0; wrote < 2; wrote++)
		munmap(met[wrote], FAST_NOTE_TABLE);
	fast_free(fast);
	notes = false;
	broken = was;
	hear(slow);
	hear(quick);
	fast = new_fast();
}

static void test_notes_apart(void)
{
	apart = true;
	test_notes();
	apart = false;
	printf("(%llu looks) ", (unsigned long long)looks);
}

static void test_notes_without_file(void)
{
	small_files = true;
	test_notes();
	small_files = false;
}

static void test_notes_plain(void)
{
	fast_note_by_avx512 = false;
	test_notes();
	fast_note_by_avx512 = true;
}

static void test_notes_asking(void)
{
	fast_base_by_program = false;
	test_notes();
	fast_base_by_program = true;
}

/* ---- what is special ------------------------------------------------------------------------ */

/* imul rdi, rdi, 1664525; add rdi, 1013904223; mov rsi, rdi; ror rsi, 13; mov
 * [rsi+rdi*8+0x7fffffff], rax; add rax, [rsi-8]; mov r11, [rdi]; add r11, rsi; mov [r11+rsi], r11;
 * jmp: anywhere in 64 bits, and by way of the register that is not in its place. */
static void test_wild(void)
{
	if (!fast)
		return;
	PROGRAM(0x48, 0x69, 0xff, 0x0d, 0x66, 0x19, 0x00, 0x48, 0x81, 0xc7, 0x5f, 0xf3, 0x6e, 0x3c,
		0x48, 0x89, 0xfe, 0x48, 0xc1, 0xce, 0x0d, 0x48, 0x89, 0x84, 0xfe, 0xff, 0xff, 0xff,
		0x7f, 0x48, 0x03, 0x46, 0xf8, 0x4c, 0x8b, 0x1f, 0x49, 0x01, 0xf3, 0x4d, 0x89, 0x1c,
		0x33, 0xeb, 0xd3);
	check_same(20000);
}

/* mov ecx, 1000; dec ecx; jne; jmp rdi: to where there is no code, and to an address that cannot
 * be. */
static void test_nowhere(void)
{
	static const uint64_t to[] = { 0, 0x8000123456789abc, AT + 100000, ~0ULL };

	if (!fast)
		return;
	for (unsigned i = 0; i < 4; i++) {
		PROGRAM(0xb9, 0xe8, 0x03, 0x00, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xff, 0xe7);
		special.regs.gpr[DJ_RDI] = to[i];
		begin(quick, &special.regs);
		CU_ASSERT(fast_run(fast, 100000) == EMU_STOP_FETCH);
		CU_ASSERT(quick->steps == 2002 && quick->cpu.rip == to[i]);
	}
}

/* A call to a function that is then another: mov ecx, 100; call f; dec ecx; jne; hlt; f: inc eax;
 * ret */
static void test_changed(void)
{
	if (!fast)
		return;
	PROGRAM(0xb9, 0x64, 0x00, 0x00, 0x00, 0xe8, 0x05, 0x00, 0x00, 0x00, 0xff, 0xc9, 0x75, 0xf7,
		0xf4, 0xff, 0xc0, 0xc3);
	begin(quick, &special.regs);
	CU_ASSERT(run_fast_to(1 + 5 * 50));
	CU_ASSERT(quick->cpu.gpr[DJ_RAX] == 50 && quick->cpu.gpr[DJ_RCX] == 50);
	special.code[16] = 0xc8; /* dec eax */
	emu_forget_code(quick, AT + 15, 2);
	CU_ASSERT(run_fast_to(1 + 5 * 100));
	CU_ASSERT(quick->cpu.gpr[DJ_RAX] == 0 && quick->cpu.gpr[DJ_RCX] == 0);
}

/* mov ecx, 100; movaps [rsp+1], xmm0; dec ecx; jne: the processor refuses. The engine says so. */
static void test_exception(void)
{
	if (!fast)
		return;
	PROGRAM(0xb9, 0x64, 0x00, 0x00, 0x00, 0x0f, 0x29, 0x44, 0x24, 0x01, 0xff, 0xc9, 0x75, 0xf7);
	begin(quick, &special.regs);
	CU_ASSERT(fast_run(fast, 200) == EMU_STOP_UNKNOWN && fast_broken(fast));
	fast_free(fast);
	fast = fast_new(quick);
	CU_ASSERT(fast && !fast_broken(fast));
}

/* Nobody waits for a loop for longer than FAST_GO instructions: jmp itself */
static void test_endless(void)
{
	if (!fast)
		return;
	PROGRAM(0xeb, 0xfe);
	begin(quick, &special.regs);
	CU_ASSERT(fast_run(fast, UINT64_MAX) == EMU_STOP_STEPS && quick->steps > FAST_GO / 2 &&
		  quick->steps <= FAST_GO);
}

int main(void)
{
	suites_begin();
	CU_pSuite s = CU_add_suite("fast", set_up, tear_down);
	CU_add_test(s, "random straight programs", test_straight);
	CU_add_test(s, "random programs with branches", test_branches);
	CU_add_test(s, "what is read and written", test_notes);
	CU_add_test(s, "the same without files of that size", test_notes_without_file);
	CU_add_test(s, "the same without AVX-512", test_notes_plain);
	CU_add_test(s, "the same where the kernel sets bases", test_notes_asking);
	CU_add_test(s, "the same, and whose it is", test_notes_apart);
	CU_add_test(s, "accesses all over the place", test_wild);
	CU_add_test(s, "jumps to nowhere", test_nowhere);
	CU_add_test(s, "code that changes", test_changed);
	CU_add_test(s, "an exception in generated code", test_exception);
	CU_add_test(s, "an endless loop", test_endless);
	return suites_run();
}
