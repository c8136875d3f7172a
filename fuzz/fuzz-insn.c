/*
 * Fuzz target: the decoder, and the emulator on what it decodes.
 *
 * The input is the kind of processor, registers, then code. Each instruction is decoded with ever
 * more bytes of it, as text, and executed by the emulator. What must hold: no access out of bounds;
 * what the decoder says of an instruction lies within it; it needs as many bytes as it has, and
 * more do not change it; an emulated instruction comes to an end or says why not.
 */
#include "emu/emu.h"
#include "fuzz/fuzz.h"
#include "tests/lib/code-bytes.h"

#include <stdlib.h>
#include <string.h>

#define CODE_AT	  0x10000u
#define STEPS_MAX 64
#define PLACES	  48u /* where decoding begins */
#define PARTS_MAX 8   /* of a REP instruction that takes long */

static struct code_bytes code = { .at = CODE_AT };

static void require(bool is)
{
	if (!is)
		abort();
}

/* What is said of where things are. */
static void check_places(const struct insn *in, int len)
{
	require(in->len == len && len <= INSN_MAX);
	require(in->nopnd <= sizeof(in->opnd) / sizeof(in->opnd[0]));
	require(in->opcode_off < len && in->modrm_off < len && in->sib_off < len);
	require(in->rex_off < len && in->disp_off + in->disp_size <= len);
	require(in->imm_off + in->imm_size <= len);
	require((in->gpr_full & ~in->gpr_written) == 0);
	require((in->flags_undefined & ~in->flags_written) == 0);
}

static void decode(enum dj_cpu_kind cpu, const uint8_t *bytes, size_t avail)
{
	struct insn in, again;
	char text[160];
	int len = insn_decode_as(cpu, &in, bytes, avail, CODE_AT);

	require(len <= (int)(avail < INSN_MAX ? avail : INSN_MAX));
	for (size_t n = 0; n <= avail && n <= INSN_MAX; n++) {
		/* of exactly this size: a sanitizer sees a byte too many */
		uint8_t *exact = malloc(n ? n : 1);
		memcpy(exact, bytes, n);
		int got = insn_decode_as(cpu, &again, exact, n, CODE_AT);
		free(exact);
		require(len <= 0 || got == ((int)n < len ? 0 : len));
		require(got <= (int)n);
	}
	if (len <= 0)
		return;
	check_places(&in, len);
	insn_text(&in, false, text, sizeof(text));
	insn_text(&in, true, text, 8);
	require(strlen(text) < 8);
}

static void execute(struct emu *e, const struct dj_regs *regs)
{
	enum emu_stop why = EMU_STOP_STEPS;
	unsigned parts = 0;

	emu_set_regs(e, regs, DJ_REG_ALL);
	e->steps = 0;
	e->in_rep = false;
	e->rep_iter = 0;
	while (e->steps < STEPS_MAX && parts < PARTS_MAX) {
		uint64_t before = e->steps, iter = e->rep_iter;
		/* by turns in a block and alone */
		why = before & 1 ? emu_step(e) : emu_run(e, before + 1);
		require(e->steps <= before + 1);
		if (why == EMU_STOP_STEPS && e->steps == before)
			require(e->in_rep && e->rep_iter == iter + 1);
		parts += why == EMU_STOP_YIELD || e->in_rep;
		if (why != EMU_STOP_STEPS && why != EMU_STOP_YIELD)
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static struct emu *e;
	struct dj_regs regs = { .rip = CODE_AT, .rflags = 0x202, .mxcsr = 0x1f80, .fcw = 0x37f };

	if (len < 18)
		return 0;
	if (!e) {
		e = emu_new(NULL);
		if (!e)
			return 0;
		e->fetch = code_bytes_fetch;
		e->ctx = &code;
	}
	e->kind = bytes[0] & 1 ? DJ_CPU_AMD : DJ_CPU_INTEL;
	regs.rflags |= bytes[0] & 2 ? DJ_FLAG_DF : 0;
	regs.rflags |= bytes[1] & 0xd5;
	for (unsigned i = 0; i < 16; i++)
		regs.gpr[i] = bytes[2 + i] & 0x80 ? ~0ull << (bytes[2 + i] & 0x3f)
						  : 0x20000ull + bytes[2 + i];
	memcpy(regs.ymm, bytes, len < sizeof(regs.ymm) ? len : sizeof(regs.ymm));
	code.bytes = bytes + 18;
	code.len = len - 18 < 4096 ? len - 18 : 4096;
	for (size_t i = 0; i < code.len && i < PLACES; i++)
		decode(e->kind, code.bytes + i,
		       code.len - i < INSN_MAX + 3 ? code.len - i : INSN_MAX + 3);
	emu_forget_code(e, CODE_AT, 8192);
	execute(e, &regs);
	return 0;
}
