/*
 * The x87 state between emulator and processor. It is large, and most programs hardly use it: so
 * generated code asks for it where it is needed, and it goes back whenever the code is left.
 *
 * The addresses of the last instruction and operand (fop, fip, fdp) are the emulator's: it does not
 * follow them, and here they would be those of generated code.
 */
#include "fast/fast-parts.h"

/* SDM vol. 1, 13.4: the legacy region of an XSAVE area, and its header. */
struct area {
	uint16_t fcw, fsw;
	uint8_t ftw, zero;
	uint16_t fop;
	uint64_t fip, fdp;
	uint32_t mxcsr, mxcsr_mask;
	struct {
		uint64_t mant;
		uint16_t exp;
		uint8_t more[6];
	} st[8];
	uint8_t xmm[16][16], unused[96];
	uint64_t xstate_bv, xcomp_bv, header[6];
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct area) == 576, "as the processor has it");

#define X87 1 /* of the state components */
#define TOP 0x3800u

bool fast_x87_fits(const struct emu *e)
{
	return (e->cpu.fcw & 0x3f) == 0x3f && !(e->cpu.fsw & 0x80);
}

void fast_x87_load(struct fast *f)
{
	const struct emu_cpu *c = &f->e->cpu;
	struct area a = { .fcw = c->fcw, .ftw = c->x87_ftw, .mxcsr = 0x1f80, .xstate_bv = X87 };

	a.fsw = (uint16_t)((c->fsw & ~TOP) | (c->x87_top & 7u) << 11);
	for (unsigned i = 0; i < 8; i++) {
		a.st[i].mant = c->x87_mant[(c->x87_top + i) & 7];
		a.st[i].exp = c->x87_exp[(c->x87_top + i) & 7];
	}
	__asm__ volatile("xrstor %0" : : "m"(a), "a"(X87), "d"(0) : "memory");
}

void fast_x87_store(struct fast *f, bool keep)
{
	struct emu_cpu *c = &f->e->cpu;
	struct area a = { .fcw = 0 };

	if (FAST_U64(f, F_NO_X87))
		return;
	__asm__ volatile("xsave %0\n\tfninit" : "+m"(a) : "a"(X87), "d"(0) : "memory");
	if (!keep)
		return;
	c->x87_top = a.fsw >> 11 & 7;
	c->fsw = (uint16_t)(a.fsw & ~TOP);
	c->fcw = a.fcw;
	c->x87_ftw = a.ftw;
	for (unsigned i = 0; i < 8; i++) {
		c->x87_mant[(c->x87_top + i) & 7] = a.st[i].mant;
		c->x87_exp[(c->x87_top + i) & 7] = a.st[i].exp;
	}
}
