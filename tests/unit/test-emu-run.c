/*
 * The emulator's memory and run loop, on any host: small programs whose every effect is known.
 * The families' tests compare single instructions with the processor's.
 */
#include "emu/emu.h"

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#define CODE   0x401000u
#define SHADOW (1ULL << 32)

static const uint8_t *code;
static size_t code_len;

static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	uint64_t off = addr - CODE;

	(void)ctx;
	if (off >= code_len)
		return 0;
	if (len > code_len - off)
		len = code_len - off;
	memcpy(buf, code + off, len);
	return len;
}

static struct emu *start(const uint8_t *bytes, size_t len)
{
	struct emu *e = emu_new(NULL);
	struct dj_regs regs = { .rip = CODE, .rflags = 0x202, .mxcsr = 0x1f80 };

	CU_ASSERT_FATAL(e != NULL);
	code = bytes;
	code_len = len;
	e->fetch = fetch;
	emu_set_regs(e, &regs, DJ_REG_ALL);
	return e;
}

/* An access that goes past 2^32 goes on at 0, from both sides. */
static void test_edge(void)
{
	static const uint8_t prog[] = {
		0x48, 0x89, 0x03, /* mov [rbx], rax */
		0x8b, 0x09,	  /* mov ecx, [rcx] */
		0x89, 0x02,	  /* mov [rdx], eax */
		0x48, 0x8b, 0x03, /* mov rax, [rbx] */
	};
	struct emu *e = start(prog, sizeof(prog));

	e->cpu.gpr[DJ_RAX] = 0x8877665544332211;
	e->cpu.gpr[DJ_RBX] = 7 * SHADOW - 3;
	e->cpu.gpr[DJ_RCX] = 1;
	e->cpu.gpr[DJ_RDX] = 3 * SHADOW;
	CU_ASSERT(emu_run(e, 4) == EMU_STOP_STEPS);
	CU_ASSERT(e->cpu.gpr[DJ_RCX] == 0x88776655);
	CU_ASSERT(e->cpu.gpr[DJ_RAX] == 0x8844332211332211);
	CU_ASSERT(!memcmp(e->shadow, "\x11\x22\x33\x44\x88", 6));
	/* the same far behind the first page */
	CU_ASSERT(!memcmp(e->shadow, e->shadow + SHADOW, 4096));
	emu_free(e);
}

/* Memory is zero everywhere after a reset, and only its own emulator's. */
static void test_reset(void)
{
	static const uint32_t places[] = { 0, 5, 0xfff8, 0xfffc, 0x10000, 0x7fffffff, 0xfffffff8 };
	struct emu *e = start(NULL, 0), *other = start(NULL, 0);

	for (unsigned round = 0; round < 3; round++) {
		for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
			CU_ASSERT(emu_load64(e, places[i]) == 0);
			CU_ASSERT(emu_load64(other, places[i]) == 0);
		}
		for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
			emu_store64(e, places[i], 0x0101010101010101);
		CU_ASSERT(emu_load32(e, 0xfffffffe) == 0x01010101);
		CU_ASSERT(emu_load8(e, 0x10003) == 1);
		emu_reset_memory(e);
	}
	emu_free(other);
	emu_free(e);
}

int main(void)
{
	if (CU_initialize_registry() != CUE_SUCCESS)
		return 1;
	CU_pSuite s = CU_add_suite("emu-run", NULL, NULL);
	if (!s || !CU_add_test(s, "the shadow's edge", test_edge) ||
	    !CU_add_test(s, "memory anew", test_reset))
		return 1;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	unsigned failed = CU_get_number_of_failures() + CU_get_number_of_suites_failed();
	CU_cleanup_registry();
	return failed != 0;
}
