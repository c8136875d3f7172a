/*
 * What memory an instruction read and wrote that was executed natively when it was recorded, for
 * who looks at memory. Where that was, the decoder knows and the registers tell; what was there is
 * in no record that the replay needs (doc/recorder.md), so mostly nobody knows.
 *
 * Of a mask in AVX-512's own registers nothing is recorded, so all that it chooses from is told;
 * nor of vectors' upper halves beyond ymm15, so of a gather or scatter only elements whose index
 * lies below.
 */
#include "replayer/thread-internal.h"

#include "replayer/memview.h"

#define MOST (64u << 20) /* bytes; of more than that a record lies */

/* One instruction. */
struct native {
	struct rp_thread *th;
	const struct dj_record *r;
	struct insn in;
};

static void tell(const struct native *n, uint64_t addr, uint64_t size, bool write,
		 const uint8_t *bytes)
{
	const struct rp_thread *th = n->th;
	const unsigned some = (unsigned)(size < MOST ? size : MOST);

	if (!size)
		return;
	if (write)
		th->e->unseen_store(th->e->ctx, th->e, addr, some, bytes);
	else if (th->hearer && th->hearer->access)
		th->hearer->access(th->hearer->ctx, addr, some, false, bytes);
}

static uint64_t before(const struct native *n, unsigned reg)
{
	return n->th->e->cpu.gpr[reg];
}

static uint64_t after(const struct native *n, unsigned reg)
{
	return n->r->mask & DJ_REG_GPR(reg) ? n->r->regs.gpr[reg] : before(n, reg);
}

static uint64_t segment(const struct native *n)
{
	const uint64_t *base = n->th->e->cpu.segbase;

	return n->in.seg == 4 ? base[1] : n->in.seg == 5 ? base[2] : 0;
}

/* ---- strings and the stack ---- */

static void string_at(const struct native *n, unsigned reg, bool write)
{
	const uint64_t size = n->in.opsize, mask = n->in.addr32 ? UINT32_MAX : UINT64_MAX;
	uint64_t times = 1, at = before(n, reg) & mask;

	if (n->in.attr & INSN_A_REP)
		times = (before(n, DJ_RCX) - after(n, DJ_RCX)) & mask;
	if (times > MOST)
		return;
	if (times && n->th->e->cpu.other_flags & DJ_FLAG_DF)
		at -= (times - 1) * size;
	if (reg == DJ_RSI)
		at += segment(n);
	tell(n, at, times * size, write, NULL);
}

static void string(const struct native *n)
{
	const unsigned id = n->in.id;

	if (id == INSN_MOVS || id == INSN_LODS || id == INSN_CMPS)
		string_at(n, DJ_RSI, false);
	if (id == INSN_CMPS || id == INSN_SCAS)
		string_at(n, DJ_RDI, false);
	if (id == INSN_MOVS || id == INSN_STOS)
		string_at(n, DJ_RDI, true);
}

static void stack(const struct native *n)
{
	const unsigned level = n->in.imm2 & 31, id = n->in.id;
	const uint64_t pushed = before(n, DJ_RSP) - after(n, DJ_RSP), popped = -pushed;

	if (id == INSN_ENTER) {
		if (level > 1)
			tell(n, before(n, DJ_RBP) - 8 * (level - 1), 8 * (level - 1), false, NULL);
		tell(n, before(n, DJ_RSP) - 8 * (1 + level), 8 * (1 + level), true, NULL);
	} else if (id == INSN_LEAVE) {
		tell(n, before(n, DJ_RBP), n->in.opsize, false, NULL);
	} else if (id == INSN_RET) {
		tell(n, before(n, DJ_RSP), n->in.opsize, false, NULL);
	} else if (pushed <= 16) {
		tell(n, before(n, DJ_RSP) - pushed, pushed, true, NULL);
	} else if (popped <= 16) {
		tell(n, before(n, DJ_RSP), popped, false, NULL);
	}
}

/* ---- several elements ---- */

static unsigned vector_byte(const struct native *n, unsigned reg, unsigned i)
{
	return n->th->e->cpu.v[reg].q[i / 8] >> i % 8 * 8 & 0xff;
}

/* maskmovq, maskmovdqu: bytes, by their masks' highest bits. */
static void masked_bytes(const struct native *n)
{
	const bool mmx = n->in.id == INSN_MASKMOVQ;
	const uint64_t mask = n->in.addr32 ? UINT32_MAX : UINT64_MAX;
	const struct insn_opnd *o = n->in.opnd;
	const uint64_t *mant = n->th->e->cpu.x87_mant;

	for (unsigned i = 0; i < (mmx ? 8 : 16); i++) {
		const uint64_t addr = ((before(n, DJ_RDI) + i) & mask) + segment(n);
		const unsigned chosen =
			mmx ? mant[o[1].reg & 7] >> 8 * i & 0xff : vector_byte(n, o[1].reg & 15, i);
		const uint8_t byte = (uint8_t)(mmx ? mant[o[0].reg & 7] >> 8 * i
						   : vector_byte(n, o[0].reg & 15, i));
		if (chosen & 0x80)
			tell(n, addr, 1, true, &byte);
	}
}

/* vmaskmovps and its kin, of which the second operand is the mask. */
static void masked_elements(const struct native *n, uint64_t addr)
{
	const bool wide = n->in.id == INSN_VMASKMOVPD || n->in.id == INSN_VPMASKMOVQ;
	const unsigned size = wide ? 8 : 4;

	for (unsigned i = 0; i < n->in.mem_size && i < 32; i += size)
		if (vector_byte(n, n->in.opnd[1].reg & 15, i + size - 1) & 0x80)
			tell(n, addr + i, size, n->in.mem_access & INSN_W, NULL);
}

/* With an index for each element (SDM vol. 2A, 2.3.12). */
static void scattered(const struct native *n, const struct insn_opnd *indices)
{
	const struct emu_cpu *cpu = &n->th->e->cpu;
	const struct insn *in = &n->in;
	const unsigned size = in->opcode & 1 ? 8 : 4, known = in->vex == 4 || in->vex_l ? 32 : 16;
	const uint64_t base = (in->base < 16 ? cpu->gpr[in->base] : 0) + (uint64_t)in->disp,
		       mask = in->addr32 ? UINT32_MAX : UINT64_MAX;
	/* with VEX there is a mask in a vector register; elements are as many as both have */
	const bool masked = in->vex != 4 && in->nopnd > 2 && in->opnd[2].kind == OPND_VEC;

	if (indices->reg > 15)
		return;
	for (unsigned i = 0; (i + 1) * size <= indices->size && (i + 1) * size <= known; i++) {
		uint64_t index = 0;

		if (masked &&
		    !(vector_byte(n, in->opnd[2].reg & 15, (i + 1) * in->mem_size - 1) & 0x80))
			continue;
		for (unsigned k = size; k-- > 0;)
			index = index << 8 | vector_byte(n, indices->reg, i * size + k);
		if (size == 4)
			index = (uint64_t)(int64_t)(int32_t)index;
		tell(n, ((base + index * in->scale) & mask) + segment(n), in->mem_size,
		     in->mem_access & INSN_W, NULL);
	}
}

static const struct insn_opnd *vector_of_indices(const struct insn *in)
{
	for (unsigned i = 0; i < in->nopnd; i++)
		if (in->opnd[i].kind == OPND_VSIB)
			return &in->opnd[i];
	return NULL;
}

/* ---- memory operands ---- */

/* AMX's loads and stores of tiles: the index register is the distance of rows, of which how many
 * there are is known to the processor only. */
static bool is_tile(const struct insn *in)
{
	return in->id == INSN_EVEX && in->vex != 4 && in->map == 2 &&
	       (in->opcode == 0x4a || in->opcode == 0x4b);
}

static void operand(struct native *n)
{
	const struct emu_cpu *cpu = &n->th->e->cpu;
	struct insn *in = &n->in;
	const struct insn_opnd *indices = vector_of_indices(in);

	if (!in->has_mem)
		return;
	if (indices) {
		scattered(n, indices);
		return;
	}
	if (is_tile(in))
		in->index = INSN_NOREG;
	const uint64_t addr = insn_address(in, cpu->gpr, cpu->segbase[1], cpu->segbase[2]);
	switch (in->id) {
	case INSN_XSAVE:
	case INSN_XSAVEC:
	case INSN_XSAVEOPT:
	case INSN_FXSAVE:
		emu_tell_saved(n->th->e, in, addr);
		return;
	case INSN_VMASKMOVPS:
	case INSN_VMASKMOVPD:
	case INSN_VPMASKMOVD:
	case INSN_VPMASKMOVQ:
		masked_elements(n, addr);
		return;
	}
	if (in->mem_access & INSN_R)
		tell(n, addr, in->mem_size, false, NULL);
	if (in->id == INSN_MOVDIR64B)
		tell(n, before(n, in->reg & 15), 64, true, NULL);
	if (in->mem_access & INSN_W)
		tell(n, addr, in->mem_size, true, NULL);
}

void rp_thread_native_accesses(struct rp_thread *th, const struct dj_record *r)
{
	struct native n = { .th = th, .r = r };

	if (!r->insn_len || r->insn_len > sizeof(r->insn) ||
	    insn_decode_as(th->e->kind, &n.in, r->insn, r->insn_len, th->e->cpu.rip) <= 0)
		return;
	/* call and push read their operand first, pop writes it last */
	const bool pops = n.in.attr & INSN_A_STACK && n.in.mem_access & INSN_W;
	if (!pops)
		operand(&n);
	if (n.in.attr & INSN_A_STRING)
		string(&n);
	else if (n.in.attr & INSN_A_STACK)
		stack(&n);
	else if (n.in.id == INSN_MASKMOVQ || n.in.id == INSN_MASKMOVDQU)
		masked_bytes(&n);
	else if (n.in.id == INSN_CLZERO)
		tell(&n, before(&n, DJ_RAX) & ~63ULL, 64, true, NULL);
	if (pops)
		operand(&n);
}
