/*
 * Random programs for the translator.
 *
 * Opcodes are tried at random with random prefixes and registers; what the decoder takes for an
 * instruction that may run here is kept. A few registers are reserved per program: three point into
 * memory, one is a small index, one counts loops. All memory operands are made of these,
 * of rsp, or are absolute or relative to rip. It is one file, since every kind of instruction is
 * one throw of the same dice, and has to keep off the same registers.
 */
#include "tests/lib/random.h"
#include "tests/lib/translate-gen.h"

#include "tests/lib/oracle.h"

#include <string.h>

const uint64_t gen_region[GEN_REGIONS] = { ORACLE_MEM, 0x2a0000000000 + ORACLE_MEM,
					   0x2a0100000000 - GEN_REGION / 2 };

uint64_t gen_seed = 20261122;

unsigned gen_rnd(unsigned n)
{
	return (unsigned)(random_next(&gen_seed) >> 20) % n;
}

bool gen_chance(unsigned percent)
{
	return gen_rnd(100) < percent;
}

#define rnd    gen_rnd
#define chance gen_chance

static void put(uint8_t *at, uint64_t x, unsigned size)
{
	for (unsigned i = 0; i < size; i++)
		at[i] = (uint8_t)(x >> (8 * i));
}

static void emit(struct gen *g, const void *bytes, size_t n)
{
	if (g->n + n <= GEN_CODE - 64) {
		memcpy(g->code + g->n, bytes, n);
		g->n += n;
	}
}

static bool reserved(const struct gen *g, unsigned r)
{
	return g->reserved >> r & 1;
}

/* A displacement that keeps an aligned pointer aligned, half of the time. */
static int32_t displacement(void)
{
	return chance(15)   ? 0
	       : chance(60) ? (int32_t)(rnd(32) - 16) * 32
			    : (int32_t)(rnd(400) - 200);
}

/* modrm, SIB and displacement for register field `reg` and an operand in memory; returns their
 * length and the REX.XB bits. `rip`: patch the displacement once the length is known. */
static size_t memory(const struct gen *g, uint8_t *p, unsigned reg, uint8_t *xb, bool *rip)
{
	uint8_t *start = p;
	unsigned kind = rnd(10), base = kind == 0 ? DJ_RSP : g->ptr[rnd(3)];
	int32_t disp = displacement();
	reg = (reg & 7) << 3;
	*rip = kind == 1;
	*xb = 0;
	if (kind == 1) {
		*p++ = (uint8_t)(reg | 5);
		put(p, 0, 4);
		return 5;
	}
	if (kind == 2) {
		*p++ = (uint8_t)(reg | 4);
		*p++ = 0x25;
		put(p, gen_region[0] + GEN_REGION / 2 + (uint64_t)(int64_t)disp, 4);
		return 6;
	}
	bool index = chance(30), sib = index || (base & 7) == 4;
	bool d8 = disp >= -128 && disp < 128 && chance(90);
	unsigned mod = disp == 0 && (base & 7) != 5 && chance(80) ? 0 : d8 ? 1 : 2;
	*p++ = (uint8_t)(mod << 6 | reg | (sib ? 4 : base & 7));
	*xb = (uint8_t)(base >> 3);
	if (sib) {
		unsigned x = index ? g->idx : 4;
		*p++ = (uint8_t)(rnd(4) << 6 | (x & 7) << 3 | (base & 7));
		*xb |= (uint8_t)(x >> 3 << 1);
	}
	if (mod) {
		put(p, (uint32_t)disp, mod == 1 ? 1 : 4);
		p += mod == 1 ? 1 : 4;
	}
	return (size_t)(p - start);
}

static bool acceptable(struct gen *g, const struct insn *in)
{
	uint32_t writes = in->gpr_written & (g->reserved | 1u << DJ_RSP);
	if (in->attr & (INSN_A_BRANCH | INSN_A_SYSCALL | INSN_A_PRIV | INSN_A_NONDET |
			INSN_A_XSTATE | INSN_A_BITSTRING | INSN_A_STRING) ||
	    in->seg == 4)
		return false;
	for (unsigned i = 0; i < in->nopnd; i++)
		if (in->opnd[i].kind == OPND_VSIB || in->opnd[i].kind == OPND_CR ||
		    in->opnd[i].kind == OPND_SEG)
			return false;
	if (in->attr & INSN_A_STACK) {
		if (in->id != INSN_PUSH && in->id != INSN_POP &&
		    (in->id != INSN_PUSHF || in->opsize16))
			return false;
		if (in->id == INSN_POP && in->opnd[0].kind == OPND_GPR &&
		    (in->opnd[0].reg == DJ_RSP || reserved(g, in->opnd[0].reg)))
			return false;
		if (in->id == INSN_PUSHF)
			g->no_step = true;
		return true;
	}
	if (writes)
		return false;
	switch (in->id) {
	case INSN_XLAT:
	case INSN_MASKMOVDQU:
	case INSN_MASKMOVQ:
		return false; /* addresses that are not ours to choose */
	case INSN_RCPPS:
	case INSN_RCPSS:
	case INSN_RSQRTPS:
	case INSN_RSQRTSS:
		return true; /* executed natively */
	case INSN_DIV:
	case INSN_IDIV:
	case INSN_LDMXCSR:
	case INSN_VLDMXCSR:
		if (chance(80))
			return false; /* these fault most of the time */
	}
	if (!g->x87 && in->attr & (INSN_A_X87 | INSN_A_MMX))
		return false;
	return insn_is_emulated(in);
}

/* One instruction with this opcode, if it can be had. */
static bool try_insn(struct gen *g, unsigned map, unsigned op, bool vex)
{
	uint8_t c[40], *p = c, tail[8], xb = 0;
	unsigned reg = g->same && chance(75) ? g->ptr[0] : rnd(16), rm = rnd(16);
	bool rip = false, mem = g->same || chance(55);
	if (!mem && rm == DJ_RSP && chance(80))
		rm = 0;
	size_t n_tail = 1;
	if (mem)
		n_tail = memory(g, tail, reg, &xb, &rip);
	else
		tail[0] = (uint8_t)(0xc0 | (reg & 7) << 3 | (rm & 7));
	if (!mem)
		xb = (uint8_t)(rm >> 3);
	if (chance(5))
		*p++ = 0x67;
	if (mem && chance(5))
		*p++ = 0x65;
	if (vex) {
		*p++ = 0xc4;
		*p++ = (uint8_t)((reg & 8 ? 0 : 0x80) | (xb & 2 ? 0 : 0x40) | (xb & 1 ? 0 : 0x20) |
				 map);
		*p++ = (uint8_t)(rnd(2) << 7 | (chance(40) ? 15 : rnd(16)) << 3 | rnd(2) << 2 |
				 rnd(4));
		if (map == 1 && chance(50) && (c[p - c - 2] & 0x60) == 0x60 && !(p[-1] & 0x80)) {
			/* the two-byte form */
			p[-3] = 0xc5;
			p[-2] = (uint8_t)((p[-2] & 0x80) | (p[-1] & 0x7f));
			p--;
		}
	} else {
		if (mem && chance(15))
			*p++ = 0xf0;
		if (chance(20))
			*p++ = 0x66;
		if (chance(20))
			*p++ = chance(50) ? 0xf2 : 0xf3;
		uint8_t rex = (uint8_t)(0x40 | (chance(40) ? 8 : 0) | (reg & 8) >> 1 | xb);
		if (rex != 0x40 || chance(20))
			*p++ = rex;
		if (map)
			*p++ = 0x0f;
		if (map > 1)
			*p++ = map == 2 ? 0x38 : 0x3a;
	}
	*p++ = (uint8_t)op;
	size_t at = (size_t)(p - c);
	memcpy(p, tail, n_tail);
	for (p += n_tail; p < c + sizeof(c); p++)
		*p = (uint8_t)rnd(256);
	struct insn in;
	uint64_t pc = g->base + g->n;
	if (insn_decode(&in, c, INSN_MAX, pc) <= 0 || in.map != map || in.opcode != op ||
	    (in.vex != 0) != vex || (in.modrm_off && in.modrm_off != at))
		return false;
	if (in.has_mem && !in.modrm_off)
		put(c + in.disp_off, gen_region[0] + 4096 + (uint64_t)(int64_t)displacement(),
		    in.disp_size);
	else if (in.has_mem && rip)
		put(c + in.disp_off,
		    gen_region[pc >> 32 != 0] + 4096 + (uint64_t)(int64_t)displacement() -
			    (pc + in.len),
		    4);
	if (!acceptable(g, &in))
		return false;
	emit(g, c, in.len);
	return true;
}

/* Opcodes that are frequent in programs, or that the translator treats apart. */
static const struct {
	uint8_t map, first, count;
} picks[] = {
	{ 0, 0x10, 16 }, /* adc sbb */
	{ 0, 0x00, 4 },	 { 0, 0x28, 4 }, { 0, 0x38, 4 }, { 0, 0x84, 4 },
	{ 1, 0x90, 16 }, /* setcc */
	{ 1, 0x40, 16 }, /* cmovcc */
	{ 0, 0x50, 16 }, /* push pop */
	{ 0, 0x88, 4 },	 { 0, 0xc6, 2 }, { 1, 0xb6, 2 }, { 1, 0xbe, 2 },
	{ 0, 0x63, 1 },	 { 0, 0xc0, 2 }, { 0, 0xd0, 4 }, { 1, 0xa4, 2 },
	{ 1, 0xac, 2 },	 { 0, 0xfe, 2 }, { 0, 0xf6, 2 }, { 0, 0x80, 4 },
	{ 0, 0x86, 2 },	 { 0, 0x8f, 1 }, { 0, 0x9c, 1 }, { 1, 0xb0, 2 },
	{ 1, 0xc0, 2 },	 { 1, 0xc7, 1 }, { 0, 0x9e, 2 }, { 0, 0xf5, 1 },
	{ 0, 0xf8, 2 },	 { 0, 0xfc, 2 }, { 1, 0x6f, 1 }, { 1, 0x7f, 1 },
	{ 1, 0x10, 2 },	 { 1, 0x28, 2 }, { 1, 0xd6, 1 }, { 1, 0xba, 1 },
	{ 0, 0x8d, 1 },	 { 2, 0xf0, 2 }, { 2, 0xf6, 1 },
};

static void any_insn(struct gen *g)
{
	for (unsigned k = 0; k < 1000; k++) {
		unsigned map, op = rnd(256);
		bool vex = false;
		if (chance(50)) {
			unsigned i = rnd(sizeof(picks) / sizeof(*picks));
			map = picks[i].map;
			op = picks[i].first + rnd(picks[i].count);
		} else {
			map = rnd(4);
			vex = map && chance(50);
		}
		if (try_insn(g, map, op, vex))
			return;
	}
}

/* mov reg, value */
static void set_reg(struct gen *g, unsigned r, uint64_t v)
{
	uint8_t c[10] = { (uint8_t)(0x48 | r >> 3), (uint8_t)(0xb8 | (r & 7)) };
	put(c + 2, v, 8);
	emit(g, c, 10);
}

static uint64_t somewhere(void)
{
	uint64_t a = gen_region[rnd(GEN_REGIONS)] + GEN_REGION / 2;
	return a +
	       (uint64_t)(int64_t)(chance(70) ? ((int)rnd(32) - 16) * 32 : (int)rnd(1000) - 500);
}

static void string_insn(struct gen *g)
{
	static const uint8_t ops[] = { 0xa4, 0xaa, 0xac, 0xa6, 0xae };
	if (g->reserved & (1u << DJ_RCX | 1u << DJ_RSI | 1u << DJ_RDI | 1u << DJ_RAX))
		return;
	bool low = chance(5); /* with 32-bit addresses, and so in low memory */
	uint64_t from = somewhere(), to = chance(50) ? from + rnd(40) - 20 : somewhere();
	if (low)
		from = (uint32_t)from % GEN_REGION / 2 + gen_region[0] + 2048,
		to = from + rnd(40) - 20;
	set_reg(g, DJ_RSI, from);
	set_reg(g, DJ_RDI, to);
	bool rep = chance(70);
	if (rep)
		set_reg(g, DJ_RCX, chance(15) ? 0 : 1 + rnd(chance(20) ? 100 : 24));
	uint8_t c[5];
	size_t n = 0;
	if (low)
		c[n++] = 0x67;
	if (chance(25))
		c[n++] = 0x66;
	if (rep)
		c[n++] = chance(50) ? 0xf2 : 0xf3;
	if (chance(30))
		c[n++] = 0x48;
	c[n++] = (uint8_t)(ops[rnd(5)] + rnd(2));
	emit(g, c, n);
}

/* popf, of something harmless */
static void popf(struct gen *g)
{
	uint8_t c[9] = { 0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0, 0x9d };
	put(c + 4, (random_next(&gen_seed) & 0xcd5) | 0x202, 4);
	emit(g, c, 9);
	g->no_step = true;
}

static void leave(struct gen *g)
{
	if (reserved(g, DJ_RBP))
		return;
	emit(g, "\x48\x8d\x6c\x24\xe8\xc9", 6); /* lea rbp, [rsp-24]; leave */
}

/* cmpxchg that succeeds: the accumulator is loaded from the place before */
static void cmpxchg(struct gen *g)
{
	if (reserved(g, DJ_RAX))
		return;
	uint8_t tail[8], xb, c[24], *p = c;
	bool rip, wide = chance(50);
	unsigned reg = rnd(16);
	size_t n;
	do
		n = memory(g, tail, 0, &xb, &rip);
	while (rip);
	*p++ = (uint8_t)(0x40 | wide << 3 | xb);
	*p++ = 0x8b;
	memcpy(p, tail, n);
	p += n;
	if (chance(70))
		*p++ = 0xf0;
	*p++ = (uint8_t)(0x40 | wide << 3 | (reg & 8) >> 1 | xb);
	*p++ = 0x0f;
	*p++ = 0xb1;
	tail[0] |= (uint8_t)((reg & 7) << 3);
	memcpy(p, tail, n);
	emit(g, c, (size_t)(p - c) + n);
}

/* ---- instructions that need to be prepared ------------------------------------------------ */

/* A register that may be overwritten. */
static unsigned free_reg(const struct gen *g)
{
	unsigned r;
	do
		r = rnd(16);
	while (r == DJ_RSP || reserved(g, r));
	return r;
}

/* An address, at times one at the edge of what is mapped. */
static uint64_t edge(unsigned percent)
{
	uint64_t a = gen_region[rnd(GEN_REGIONS)];
	if (!chance(percent))
		return somewhere();
	return chance(50) ? a + GEN_REGION - rnd(40) : a - rnd(40);
}

struct vex_insn {
	unsigned map, pp, w, l, op, reg, v;
};

static uint8_t *vex_prefix(uint8_t *p, const struct vex_insn *x, unsigned xb)
{
	*p++ = 0xc4;
	*p++ = (uint8_t)((x->reg & 8 ? 0 : 0x80) | (xb & 2 ? 0 : 0x40) | (xb & 1 ? 0 : 0x20) |
			 x->map);
	*p++ = (uint8_t)(x->w << 7 | (~x->v & 15) << 3 | x->l << 2 | x->pp);
	*p++ = (uint8_t)x->op;
	return p;
}

static void vex_rr(struct gen *g, struct vex_insn x, unsigned rm, int imm)
{
	uint8_t c[8], *p = vex_prefix(c, &x, rm >> 3);
	*p++ = (uint8_t)(0xc0 | (x.reg & 7) << 3 | (rm & 7));
	if (imm >= 0)
		*p++ = (uint8_t)imm;
	emit(g, c, (size_t)(p - c));
}

/* Vector register m gets a mask: none, all, or what is there. */
static void set_mask(struct gen *g, unsigned m)
{
	if (chance(40))
		vex_rr(g, (struct vex_insn){ 1, 1, 0, 1, chance(80) ? 0x76 : 0xef, m, m }, m, -1);
	else if (chance(40)) /* signs of another one's elements, by vpslld, vpsllq */
		vex_rr(g, (struct vex_insn){ 1, 1, 0, 1, chance(50) ? 0x72 : 0x73, 6, m }, rnd(16),
		       (int)rnd(64));
}

static void masked(struct gen *g)
{
	static const uint8_t ops[] = { 0x2c, 0x2d, 0x2e, 0x2f, 0x8c, 0x8e };
	struct vex_insn x = { 2, 1, 0, rnd(2), ops[rnd(6)], rnd(16), rnd(16) };
	unsigned r = free_reg(g);
	uint8_t c[24], *p = c, *q, tail[8], xb;
	size_t n;
	bool rip;
	if (x.op >= 0x80)
		x.w = rnd(2);
	set_mask(g, x.v);
	if (chance(30)) { /* [r + disp8] */
		set_reg(g, r, edge(60));
		tail[0] = (uint8_t)(0x44 | (x.reg & 7) << 3);
		tail[1] = (uint8_t)(0x20 | (r & 7));
		tail[2] = (uint8_t)(rnd(32) - 16);
		xb = (uint8_t)(r >> 3);
		n = 3;
		rip = false;
	} else {
		n = memory(g, tail, x.reg, &xb, &rip);
	}
	if (chance(8))
		*p++ = 0x65;
	if (chance(5))
		*p++ = 0x67;
	q = vex_prefix(p, &x, xb);
	memcpy(q, tail, n);
	q += n;
	if (rip) {
		uint64_t pc = g->base + g->n + (size_t)(q - c);
		put(q - 4,
		    gen_region[pc >> 32 != 0] + 4096 + (uint64_t)(int64_t)displacement() - pc, 4);
	}
	emit(g, c, (size_t)(q - c));
}

/* Vector register x, with the help of y, gets these 32 bytes. */
static void set_vector(struct gen *g, unsigned x, unsigned y, const uint64_t v[4])
{
	unsigned r = free_reg(g);
	for (unsigned i = 0; i < 4; i++) {
		unsigned to = i < 2 ? x : y;
		set_reg(g, r, v[i]);
		if (i & 1) /* vpinsrq */
			vex_rr(g, (struct vex_insn){ 3, 1, 1, 0, 0x22, to, to }, r, 1);
		else /* vmovq */
			vex_rr(g, (struct vex_insn){ 1, 1, 1, 0, 0x6e, to, 0 }, r, -1);
	}
	vex_rr(g, (struct vex_insn){ 3, 1, 0, 1, 0x38, x, x }, y, 1); /* vinserti128 */
}

static void gather(struct gen *g)
{
	struct vex_insn x = { 2, 1, rnd(2), rnd(2), 0x90 + rnd(4), rnd(16), 0 };
	unsigned index, shift = rnd(4), base = free_reg(g), edges = chance(20) ? 15 : 0;
	bool d8 = chance(50), no_base = chance(5), wide = x.op & 1;
	int32_t disp = d8 ? (int32_t)(rnd(200) - 100) : displacement();
	uint64_t at = somewhere(), v[4] = { 0 }, one = edge(edges), first = somewhere();
	do {
		index = rnd(16);
		x.v = rnd(16);
	} while ((index == x.v || index == x.reg || x.v == x.reg) && chance(99));
	if (no_base) {
		at = 0;
		d8 = false;
		disp = (int32_t)gen_region[0] + GEN_REGION / 2;
	}
	for (unsigned i = 0; i < (wide ? 4 : 8); i++) {
		/* somewhere, near the first, at a place already taken, or with the same shadow */
		unsigned how = rnd(8);
		uint64_t to = how < 2	? edge(edges)
			      : how < 5 ? first + rnd(256)
			      : how < 6 ? one
					: first ^ 0x2a0000000000;
		int64_t k = (int64_t)(to - at - (uint64_t)(int64_t)disp) >> shift;
		if (!wide && k != (int32_t)k)
			k = (int64_t)rnd(256) - 128;
		if (wide)
			v[i] = (uint64_t)k;
		else
			v[i / 2] |= (uint64_t)(uint32_t)k << (32 * (i & 1));
	}
	set_vector(g, index, x.reg, v);
	set_mask(g, x.v);
	if (chance(50)) { /* a destination to be merged with */
		vex_rr(g, (struct vex_insn){ 1, 0, 0, 1, 0x28, x.reg, 0 }, rnd(16), -1);
	}
	set_reg(g, base, at);
	uint8_t c[16], *p = c;
	if (chance(8))
		*p++ = 0x65;
	if (chance(5))
		*p++ = 0x67;
	p = vex_prefix(p, &x, (index >> 3) << 1 | (no_base ? 0 : base >> 3));
	*p++ = (uint8_t)((no_base ? 0 : d8 ? 0x40 : 0x80) | (x.reg & 7) << 3 | 4);
	*p++ = (uint8_t)(shift << 6 | (index & 7) << 3 | (no_base ? 5 : base & 7));
	put(p, (uint32_t)disp, 4);
	emit(g, c, (size_t)(p - c) + (d8 ? 1 : 4));
}

/* bt and its kind, of a bit string in memory */
static void bit_string(struct gen *g)
{
	uint8_t c[24], *p = c, tail[8], xb;
	unsigned r = free_reg(g), op = rnd(4);
	bool rip, wide = chance(40), narrow = chance(30);
	/* not so far away that the address is none: then it would matter which registers it is made
	 * of */
	int64_t k = (int64_t)rnd(24000) - 12000;
	if (chance(5))
		k = (int64_t)(random_next(&gen_seed) >> (20 + rnd(40)));
	size_t n;
	if (!wide && chance(50)) /* and what lies above the operand does not count */
		k = (k & (narrow ? 0xffff : 0xffffffff)) |
		    (int64_t)(random_next(&gen_seed) << (narrow ? 16 : 32));
	set_reg(g, r, (uint64_t)k);
	do
		n = memory(g, tail, r, &xb, &rip);
	while (rip && chance(50));
	if (op && chance(30))
		*p++ = 0xf0;
	if (chance(5))
		*p++ = 0x67;
	if (chance(8))
		*p++ = 0x65;
	if (narrow)
		*p++ = 0x66;
	*p++ = (uint8_t)(0x40 | wide << 3 | (r & 8) >> 1 | xb);
	*p++ = 0x0f;
	*p++ = (uint8_t)(0xa3 + 8 * op);
	memcpy(p, tail, n);
	p += n;
	if (rip) {
		uint64_t pc = g->base + g->n + (size_t)(p - c);
		put(p - 4, gen_region[pc >> 32 != 0] + 4096 - pc, 4);
	}
	emit(g, c, (size_t)(p - c));
}

/* maskmovdqu, maskmovq */
static void masked_bytes(struct gen *g)
{
	uint8_t c[8], *p = c;
	unsigned a = rnd(16), m = rnd(16);
	if (reserved(g, DJ_RDI))
		return;
	if (g->x87 && chance(30)) {
		set_reg(g, DJ_RDI,
			somewhere()); /* a fault would leave the x87 state half changed */
		*p++ = 0x0f;
		*p++ = 0xf7;
		a &= 7;
	} else if (chance(50)) {
		set_reg(g, DJ_RDI, edge(10));
		set_mask(g, m);
		p = vex_prefix(p, &(struct vex_insn){ 1, 1, 0, 0, 0xf7, a, 0 }, m >> 3);
	} else {
		set_reg(g, DJ_RDI, edge(10));
		*p++ = 0x66;
		*p++ = (uint8_t)(0x40 | (a & 8) >> 1 | m >> 3);
		*p++ = 0x0f;
		*p++ = 0xf7;
	}
	*p++ = (uint8_t)(0xc0 | (a & 7) << 3 | (m & 7));
	emit(g, c, (size_t)(p - c));
}

static void xlat(struct gen *g)
{
	if (g->reserved & (1u << DJ_RAX | 1u << DJ_RBX))
		return;
	set_reg(g, DJ_RBX, edge(5));
	emit(g, "\xd7", 1);
}

static void enter(struct gen *g)
{
	uint8_t c[5] = { 0xc8, (uint8_t)rnd(80), 0, 0, 0xc9 };
	if (!reserved(g, DJ_RBP))
		emit(g, c, 5); /* and leave */
}

/* An instruction whose operands include the register that its address is made of; what loads or
 * modifies memory then often overwrites its own address. */
static void own_address(struct gen *g)
{
	unsigned ptr[3] = { g->ptr[0], g->ptr[1], g->ptr[2] };
	unsigned r = free_reg(g), kind = rnd(6);
	if (kind < 3 && !reserved(g, kind == 2 ? DJ_RDX : DJ_RAX))
		r = kind == 2 ? DJ_RDX : DJ_RAX;
	uint64_t at = edge(8);
	uint8_t c[16], *p = c, disp = (uint8_t)(rnd(16) - 8);
	bool wide = chance(50);
	if (kind == 1 && r == DJ_RAX) { /* cmpxchg that finds its own address there */
		set_reg(g, r, at);
		uint8_t store[4] = { 0x48, 0x89, 0x40, disp };
		emit(g, store, 4);
		if (chance(50))
			*p++ = 0xf0;
		*p++ = (uint8_t)(0x40 | wide << 3);
		*p++ = 0x0f;
		*p++ = 0xb1;
		*p++ = (uint8_t)(0x40 | (chance(30) ? 0 : rnd(8)) << 3);
		*p++ = disp;
		emit(g, c, (size_t)(p - c));
		return;
	}
	if (kind < 4 && !reserved(g, DJ_RAX) && !reserved(g, DJ_RDX)) { /* cmpxchg8b, cmpxchg16b */
		set_reg(g, r, chance(95) ? at & ~15ULL : at);
		if (chance(50))
			*p++ = 0xf0;
		*p++ = (uint8_t)(0x40 | wide << 3 | r >> 3);
		*p++ = 0x0f;
		*p++ = 0xc7;
		*p++ = (uint8_t)(0x48 | (r & 7));
		if ((r & 7) == 4)
			*p++ = 0x24;
		*p++ = (uint8_t)(16 * (rnd(4) - 2));
		emit(g, c, (size_t)(p - c));
		return;
	}
	set_reg(g, r, at);
	g->ptr[0] = g->ptr[1] = g->ptr[2] = r;
	g->same = true;
	static const uint8_t ops[] = { 0xc0, 0xc1, 0xb0, 0xb1 };
	if (chance(30))
		any_insn(g);
	else
		for (unsigned k = 0; k < 20 && !try_insn(g, 1, ops[rnd(4)], false); k++)
			;
	g->same = false;
	memcpy(g->ptr, ptr, sizeof(ptr));
}

static void block(struct gen *g, unsigned insns, bool flow);

/* A conditional or unconditional jump over a few instructions. */
static void forward(struct gen *g)
{
	size_t at;
	unsigned kind = rnd(20);
	bool near = kind < 8;
	if (near) {
		uint8_t c[6] = { 0x0f, (uint8_t)(0x80 | rnd(16)) };
		emit(g, c, 6);
	} else if (kind < 9) {
		emit(g, "\xe9\0\0\0\0", 5);
		near = true;
	} else {
		uint8_t c[2] = { (uint8_t)(kind < 17	? 0x70 | rnd(16)
					   : kind == 17 ? 0xeb
							: 0xe3),
				 0 };
		if (kind == 18 && !reserved(g, DJ_RCX))
			c[0] = (uint8_t)(0xe0 | rnd(3)); /* loop and its kind, forwards */
		emit(g, c, 2);
	}
	at = g->n;
	block(g, 1 + rnd(2), false);
	if (near)
		put(g->code + at - 4, g->n - at, 4);
	else if (g->n - at < 128)
		g->code[at - 1] = (uint8_t)(g->n - at);
}

struct call {
	size_t at; /* of the rel32 or absolute address */
	bool relative;
};

static struct call calls[64];
static unsigned n_calls;

static void call(struct gen *g)
{
	if (n_calls == 64)
		return;
	unsigned r = DJ_RAX;
	while (r == DJ_RSP || reserved(g, r))
		r = rnd(16);
	if (chance(40)) {
		emit(g, "\xe8\0\0\0\0", 5);
		calls[n_calls++] = (struct call){ g->n - 4, true };
		return;
	}
	set_reg(g, r, 0);
	calls[n_calls++] = (struct call){ g->n - 8, false };
	if (chance(50)) { /* call reg */
		uint8_t c[3] = { 0x41, 0xff, (uint8_t)(0xd0 | (r & 7)) };
		emit(g, c + (r < 8), r < 8 ? 2 : 3);
	} else { /* mov [ptr+64], reg; call [ptr+64] */
		unsigned b = g->ptr[0];
		uint8_t c[16] = { (uint8_t)(0x48 | r >> 3 << 2 | b >> 3),
				  0x89,
				  (uint8_t)(0x84 | (r & 7) << 3),
				  (uint8_t)(0x20 | (b & 7)),
				  64,
				  0,
				  0,
				  0,
				  (uint8_t)(0x40 | b >> 3),
				  0xff,
				  0x94,
				  (uint8_t)(0x20 | (b & 7)),
				  64,
				  0,
				  0,
				  0 };
		emit(g, c, 16);
	}
}

/* A loop with the test first: its jump back is one that is always taken. */
static void loop_with_a_head(struct gen *g)
{
	unsigned r = g->cnt;
	set_reg(g, r, 2 + rnd(8));
	size_t top = g->n;
	uint8_t c[9] = { (uint8_t)(0x48 | r >> 3), 0xff, (uint8_t)(0xc8 | (r & 7)), 0x0f, 0x84 };
	emit(g, c, 9);
	size_t at = g->n;
	block(g, 1 + rnd(5), false);
	uint8_t back[5] = { 0xe9 };
	put(back + 1, top - (g->n + 5), 4);
	emit(g, back, 5);
	put(g->code + at - 4, g->n - at, 4);
}

/* The body twice to nine times. */
static void loop(struct gen *g)
{
	unsigned r = g->cnt;
	if (chance(30) && g->n < GEN_CODE / 3) {
		loop_with_a_head(g);
		return;
	}
	set_reg(g, r, 2 + rnd(8));
	size_t top = g->n;
	block(g, 1 + rnd(5), false);
	if (chance(60))
		call(g);
	if (chance(50))
		forward(g);
	if (g->n == top)
		emit(g, "\x90",
		     1); /* single-stepping would not see an instruction that repeats itself */
	if (r == DJ_RCX && g->n + 2 - top < 128 && chance(50)) {
		uint8_t c[2] = { 0xe2, (uint8_t)(top - (g->n + 2)) };
		emit(g, c, 2);
		return;
	}
	uint8_t c[9] = { (uint8_t)(0x48 | r >> 3), 0xff, (uint8_t)(0xc8 | (r & 7)), 0x0f, 0x85 };
	put(c + 5, top - (g->n + 9), 4);
	emit(g, c, 9);
}

static void fence(struct gen *g)
{
	static const uint8_t modrm[3] = { 0xe8, 0xf0, 0xf8 }; /* lfence, mfence, sfence */
	uint8_t c[3] = { 0x0f, 0xae, modrm[rnd(3)] };
	emit(g, c, 3);
}

static void block(struct gen *g, unsigned insns, bool flow)
{
	for (unsigned i = 0; i < insns; i++) {
		unsigned k = rnd(100);
		if (k < 7)
			string_insn(g);
		else if (k < 9)
			popf(g);
		else if (k < 11)
			leave(g);
		else if (k < 15)
			cmpxchg(g);
		else if (k < 19)
			masked(g);
		else if (k < 23)
			gather(g);
		else if (k < 26)
			bit_string(g);
		else if (k < 27)
			masked_bytes(g);
		else if (k < 28)
			chance(50) ? xlat(g) : enter(g);
		else if (k < 30)
			fence(g);
		else if (k < 34)
			own_address(g);
		else if (k < 45 && flow)
			forward(g);
		else if (k < 52 && flow)
			call(g);
		else if (k < 57 && flow && g->n < GEN_CODE / 2)
			loop(g);
		else
			any_insn(g);
	}
}

static void program(struct gen *g, unsigned insns)
{
	oracle_random_regs(&g->regs, &gen_seed);
	g->n = 0;
	g->no_step = g->same = false;
	g->reserved = 0;
	n_calls = 0;
	unsigned *const own[] = { &g->ptr[0], &g->ptr[1], &g->ptr[2], &g->idx, &g->cnt };
	bool strings = chance(60); /* leave the string registers alone */
	uint32_t no = 1u << DJ_RSP | (strings ? 0xc3u : 0);
	if (strings && chance(50)) {
		no &= ~2u; /* but perhaps rcx counts loops */
	}
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
		unsigned r;
		do
			r = rnd(16);
		while ((g->reserved | no) >> r & 1);
		*own[i] = r;
		g->reserved |= 1u << r;
	}
	for (unsigned i = 0; i < 3; i++)
		g->regs.gpr[g->ptr[i]] = somewhere();
	g->regs.gpr[g->idx] = rnd(64) - 32ULL;
	g->regs.gpr[DJ_RSP] = somewhere() & ~(chance(90) ? 7ULL : 0);
	g->regs.rip = g->base;

	block(g, insns, g->branches);
	if (g->branches) {
		emit(g, "\xe9\0\0\0\0", 5);
		size_t out = g->n, f[2];
		for (unsigned i = 0; i < 2; i++) {
			f[i] = g->n;
			for (unsigned k = rnd(4); k > 0; k--) {
				/* whatever does not move the stack */
				size_t before = g->n;
				struct insn in;
				any_insn(g);
				if (g->n > before &&
				    insn_decode(&in, g->code + before, g->n - before,
						g->base + before) > 0 &&
				    in.attr & INSN_A_STACK)
					g->n = before;
			}
			if (chance(80))
				emit(g, "\xc3", 1);
			else
				emit(g, "\xc2\x08\0", 3);
		}
		put(g->code + out - 4, g->n - out, 4);
		for (unsigned i = 0; i < n_calls; i++) {
			size_t to = f[rnd(2)];
			if (calls[i].relative)
				put(g->code + calls[i].at, to - (calls[i].at + 4), 4);
			else
				put(g->code + calls[i].at, g->base + to, 8);
		}
	}
	g->end = g->base + g->n;
}

void gen_program(struct gen *g, unsigned insns)
{
	do
		program(g, insns);
	while (g->n > GEN_CODE - 128); /* something may have been left out */
}
