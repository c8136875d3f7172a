/*
 * What XSAVE, FXSAVE and their kin store (SDM vol. 1, 13.4 and 10.5.1), for who asks. The shadow
 * does not have it (emu/emu-int.c).
 *
 * The registers are as the recorded processor had them. What else there is only it knows: the
 * pointers to x87's last instruction and operand, the mask of MXCSR, the header. XSAVEC and
 * XSAVEOPT leave out what is in its initial state as the processor sees it (13.6), which it need
 * not notice; XSAVEOPT also what is as XRSTOR has loaded it. So of some bytes nobody knows whether
 * they were stored. What is reserved between the legacy area and the header the processors that
 * this was tried on leave as it was.
 */
#include "emu/emu-int.h"

/* Components of the state; and XCR0, as the recorded program sees it. */
#define STATE_X87 1u
#define STATE_SSE 2u
#define STATE_AVX 4u
#define STATE_ALL 7u

#define MXCSR_INITIAL 0x1f80u
#define FCW_INITIAL   0x37fu

static void tell(struct emu *e, uint64_t addr, unsigned size, const uint8_t *bytes)
{
	e->unseen_store(e->ctx, e, addr, size, bytes);
}

/* Registers that lie 16 bytes apart, as words, and are `size` bytes long. */
static void tell_registers(struct emu *e, uint64_t addr, const uint64_t *q, unsigned n,
			   unsigned size, bool known)
{
	for (unsigned i = 0; i < n; i++, addr += 16) {
		const uint64_t le[2] = { htole64(q[2 * i]), htole64(q[2 * i + 1]) };

		tell(e, addr, size, known ? (const uint8_t *)le : NULL);
		if (size < 16) /* reserved; they may become zero */
			tell(e, addr + size, 16 - size, NULL);
	}
}

static bool all_zero(const uint64_t *q, unsigned n)
{
	uint64_t any = 0;

	for (unsigned i = 0; i < 2 * n; i++)
		any |= q[i];
	return !any;
}

/* `known`: what is stored, if it is not in its initial state; `always`: and if it is. */
static void tell_x87(struct emu *e, uint64_t area, bool known, bool always)
{
	const struct emu_cpu *c = &e->cpu;
	uint64_t st[16];

	for (unsigned i = 0; i < 8; i++) {
		st[2 * i] = c->x87_mant[(c->x87_top + i) & 7];
		st[2 * i + 1] = c->x87_exp[(c->x87_top + i) & 7];
	}
	bool initial =
		c->fcw == FCW_INITIAL && !c->fsw && !c->x87_top && !c->x87_ftw && all_zero(st, 8);
	tell(e, area, 24, NULL);
	tell_registers(e, area + 32, st, 8, 10, always || (known && !initial));
}

static void tell_vectors(struct emu *e, uint64_t addr, unsigned half, bool known, bool always)
{
	uint64_t part[32];

	for (unsigned i = 0; i < 16; i++) {
		part[2 * i] = e->cpu.v[i].q[2 * half];
		part[2 * i + 1] = e->cpu.v[i].q[2 * half + 1];
	}
	tell_registers(e, addr, part, 16, 16, always || (known && !all_zero(part, 16)));
}

void emu_tell_saved(struct emu *e, const struct insn *in, uint64_t area)
{
	const bool fxsave = in->id == INSN_FXSAVE;
	const unsigned what =
		fxsave ? STATE_X87 | STATE_SSE : (unsigned)e->cpu.gpr[DJ_RAX] & STATE_ALL;
	const bool always = fxsave || in->id == INSN_XSAVE;
	const bool known = always || in->id == INSN_XSAVEC;

	if (!e->unseen_store)
		return;
	if (what & STATE_X87)
		tell_x87(e, area, known, always);
	if (what & (STATE_SSE | STATE_AVX)) {
		const uint32_t mxcsr = htole32(e->cpu.mxcsr);

		tell(e, area + 24, 4,
		     always || (known && e->cpu.mxcsr != MXCSR_INITIAL) ? (const uint8_t *)&mxcsr
									: NULL);
		tell(e, area + 28, 4, NULL);
	}
	if (what & STATE_SSE)
		tell_vectors(e, area + 160, 0, known, always);
	if (fxsave)
		return;
	tell(e, area + 512, in->id == INSN_XSAVEC ? 16 : 8, NULL);
	if (what & STATE_AVX)
		tell_vectors(e, area + 576, 1, known, always);
}
