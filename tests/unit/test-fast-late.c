/*
 * Notes where the kernel is asked for fs (fast/fast-fault.c): it is asked when C needs its own, not
 * each time that generated code is entered, and what is noted is right, also where C's own would
 * be.
 */
#include "tests/lib/suites.h"

#include "fast/fast-parts.h"
#include "format/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT     0x2a0020000000
#define STEPS  43 /* of a round of the program */
#define ROUNDS 64u
#define BYTES  0x1f8u /* from what a round reads to what the next one does */

static struct emu *e;
static struct fast *fast;
static uint8_t code[48];
static unsigned char there[FAST_NOTE_PAGES];

static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	(void)ctx;
	if (addr < AT || addr >= AT + sizeof(code))
		return 0;
	size_t n = AT + sizeof(code) - addr;
	n = n < len ? n : len;
	memcpy(buf, code + (addr - AT), n);
	return n;
}

static void after_load(void *ctx, struct emu *emu, uint64_t addr, unsigned size)
{
	(void)ctx;
	(void)emu;
	memset(fast_note_byte(fast, false, (uint32_t)addr), 0xff, size);
}

/* mov rax, [rdi]; add rdi, rsi; nop (40 times); jmp */
static int set_up(void)
{
	static const uint8_t insns[] = { 0x48, 0x8b, 0x07, 0x48, 0x01, 0xf7 };
	struct dj_error err = { 0 };

	memset(code, 0x90, sizeof(code));
	memcpy(code, insns, sizeof(insns));
	code[46] = 0xeb;
	code[47] = 0xd0;
	e = emu_new(&err);
	if (!e)
		return -1;
	e->fetch = fetch;
	e->after_load = after_load;
	e->hooks = EMU_HOOK_TRACK;
	fast_base_by_program = false;
	return 0;
}

static int tear_down(void)
{
	fast_base_by_program = true;
	emu_free(e);
	return 0;
}

static void begin(uint64_t from)
{
	struct dj_regs regs = { .rip = AT, .rflags = 0x202, .mxcsr = 0x1f80, .fcw = 0x37f };

	regs.gpr[DJ_RDI] = from;
	regs.gpr[DJ_RSI] = BYTES;
	emu_set_regs(e, &regs, ~0ULL);
	e->steps = 0;
	fast_note_forget(fast);
}

/* The program reads eight bytes each round, from there on; who drives it needs fs now and then. How
 * many bytes' notes are wrong. */
static unsigned wrong_from(uint64_t from)
{
	unsigned wrong = 0;

	begin(from);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		while (e->steps < i * STEPS && !fast_broken(fast))
			CU_ASSERT(fast_run(fast, i * STEPS) == EMU_STOP_STEPS);
		if (i % 16 == 0) {
			errno = (int)i;
			CU_ASSERT(errno == (int)i);
		}
	}
	CU_ASSERT(!fast_broken(fast));
	memset(there, 0, sizeof(there));
	fast_note_there(fast, 0, FAST_NOTE_PAGES, there);
	for (uint64_t i = 0; i < ROUNDS * BYTES; i++) {
		const uint32_t at = (uint32_t)(from + i);
		const bool noted = there[at / FAST_NOTE_PAGE] & FAST_NOTE_FOUND &&
				   *fast_note_byte(fast, false, at);
		wrong += noted != (i % BYTES < 8);
	}
	fast_rest(fast);
	return wrong;
}

static bool have_notes(void)
{
#ifdef __SANITIZE_ADDRESS__
	printf("(its shadow lies where the notes are to lie) ");
	return false;
#endif
	fast = fast_new(e);
	if (!fast) {
		printf("(this host cannot) ");
		return false;
	}
	CU_ASSERT_FATAL(fast_note_begin(fast));
	return true;
}

static void test_late(void)
{
	if (!have_notes())
		return;
	CU_ASSERT(wrong_from(0x2b0000040000) == 0);
	if (EMU_OWN_JUMPS) {
		CU_ASSERT(FAST_U32(fast, F_NOTE_ASKS) == FAST_NOTE_LATE);
		CU_ASSERT(fast->notes->faults >= 4 && fast->notes->faults < 20);
	}
	fast_free(fast);
}

/* From just before the first address modulo 2^32, and behind it: there lies what a thread has. */
static void test_near(void)
{
	static const uint64_t from[] = { 0x2b0100000000 - BYTES * 8, 0x2b0000000000, 0x2b0000000a00,
					 0x2b00000017f8 };

	for (size_t i = 0; i < sizeof(from) / sizeof(*from); i++) {
		if (!have_notes())
			return;
		CU_ASSERT(wrong_from(from[i]) == 0);
		CU_ASSERT(FAST_U32(fast, F_NOTE_ASKS) == FAST_NOTE_ASKS);
		CU_ASSERT(fast->notes->faults < 20);
		CU_ASSERT(wrong_from(0x2b0000040000) == 0);
		fast_free(fast);
	}
}

int main(void)
{
	suites_begin();
	CU_pSuite s = CU_add_suite("fast-late", set_up, tear_down);
	CU_add_test(s, "the kernel is asked when C needs fs", test_late);
	CU_add_test(s, "notes where C's own would be", test_near);
	return suites_run();
}
