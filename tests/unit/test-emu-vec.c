/*
 * Vector moves, integer and crypto instructions against the CPU.
 *
 * Encodings are not listed: every opcode of the maps 0F, 0F38 and 0F3A is tried with every
 * mandatory prefix, legacy and VEX, with register and memory operands, and what the decoder
 * says belongs to this family is run with random registers on both sides. At the end every
 * instruction of INSN_LIST_VEC must have been seen.
 */
#include "insn/insn.h"
#include "emu/emu.h"
#include "tests/lib/oracle.h"
#include "tests/lib/random.h"
#include "tests/lib/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ORACLE_FAMILY(emu_bind_vec);

#define RUNS 120 /* of each encoding */

enum { SEEN_LEGACY, SEEN_128, SEEN_256, SEEN_MMX, SEEN_FORMS };

static uint64_t seed = 20240611;
static unsigned seen[INSN_IDS][SEEN_FORMS][2]; /* [id][form][has memory operand] */
static unsigned bad[INSN_IDS], unbound[INSN_IDS], faulted[INSN_IDS], loads_wrong[INSN_IDS];

static const char *const names[INSN_IDS] = {
#define X(name) [INSN_##name] = #name,
	INSN_LIST_VEC(X)
#undef X
};

struct encoding {
	unsigned map, opcode, pp; /* 0 none, 1 66, 2 F3, 3 F2, as VEX.pp */
	bool vex, memory;
	unsigned l, w;
};

static unsigned rnd(unsigned n)
{
	return (unsigned)(random_next(&seed) >> 20) % n;
}

/* Random bytes that begin as the encoding wants. */
static void encode(uint8_t *code, const struct encoding *c)
{
	static const uint8_t prefix[] = { 0, 0x66, 0xf3, 0xf2 };
	uint8_t *p = code, modrm = (uint8_t)rnd(256);

	for (int i = 0; i < 24; i++)
		code[i] = (uint8_t)rnd(256);
	if (rnd(16) == 0)
		*p++ = 0x67;
	if (!c->vex) {
		unsigned rex = 0x40 | rnd(8) | c->w << 3;

		if (c->pp)
			*p++ = prefix[c->pp];
		if (c->w || rnd(2))
			*p++ = (uint8_t)rex;
		*p++ = 0x0f;
		if (c->map > 1)
			*p++ = c->map == 2 ? 0x38 : 0x3a;
	} else {
		unsigned vvvv = rnd(2) ? 15 : rnd(16);

		*p++ = 0xc4;
		*p++ = (uint8_t)(rnd(8) << 5 | c->map);
		*p++ = (uint8_t)(c->w << 7 | vvvv << 3 | c->l << 2 | c->pp);
	}
	*p++ = (uint8_t)c->opcode;
	if (!c->memory)
		modrm |= 0xc0;
	else if (modrm >= 0xc0)
		modrm &= 0x7f;
	if (c->memory && rnd(4) == 0) /* a SIB byte, which gathers must have */
		modrm = (modrm & ~7) | 4;
	*p = modrm;
}

static void put32(uint8_t *at, uint64_t x)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(x >> (8 * i));
}

/* Choose registers (or patch the displacement) so that the memory operand lies in the oracle's
 * memory; false if this encoding cannot be made to. */
static bool aim(struct insn *in, uint8_t *code, struct dj_regs *r)
{
	bool vsib = in->attr & INSN_A_MASKED && in->nopnd > 1 && in->opnd[1].kind == OPND_VSIB;
	uint64_t to = ORACLE_MEM + 2048 + rnd(128) * 32, off = 0;

	if (rnd(2))
		to += rnd(64);
	if (vsib) {
		bool qword = in->opcode & 1; /* 91 and 93: qword indices */

		for (unsigned i = 0; i < 32; i += qword ? 8 : 4) {
			int32_t x = (int32_t)rnd(128) - 64;

			put32(r->ymm[in->index] + i, (uint64_t)(int64_t)x);
			if (qword)
				put32(r->ymm[in->index] + i + 4, (uint64_t)(int64_t)(x >> 31));
		}
	} else if (in->index < 16) {
		r->gpr[in->index] = rnd(16) - 8ULL;
		off = r->gpr[in->index] * in->scale;
	}
	if (in->base < 16) {
		if (in->base == in->index && !vsib)
			return false;
		r->gpr[in->base] = to - off - (uint64_t)in->disp;
		/* What lies above must not matter. But where a hypervisor goes in and out while rsp
		 * is no address the program gets a fault. */
		uint64_t above = random_next(&seed) & (in->base == DJ_RSP ? 0x7fff : UINT32_MAX);
		if (in->addr32)
			r->gpr[in->base] = (uint32_t)r->gpr[in->base] | above << 32;
		return true;
	}
	if (in->disp_size != 4)
		return false;
	if (in->base == INSN_RIP)
		off = ORACLE_CODE + in->len;
	put32(code + in->disp_off, to - off);
	return insn_decode(in, code, INSN_MAX, ORACLE_CODE) > 0;
}

static int form_of(const struct insn *in)
{
	for (int i = 0; i < in->nopnd; i++)
		if (in->opnd[i].kind == OPND_MMX)
			return SEEN_MMX;
	return !in->vex ? SEEN_LEGACY : in->vex_l ? SEEN_256 : SEEN_128;
}

/* One, or as many as the mask (operand 1 of masked moves, 2 of gathers) selects. */
static unsigned loads_expected(const struct insn *in, const struct dj_regs *r)
{
	unsigned n = 0, bytes, elements;

	if (!(in->mem_access & INSN_R))
		return 0;
	if (!(in->attr & INSN_A_MASKED))
		return 1;
	if (in->opnd[1].kind == OPND_VSIB) {
		bytes = in->vex_w ? 8 : 4;
		elements = (in->vex_l ? 32u : 16u) / (in->opcode & 1 || bytes == 8 ? 8 : 4);
		for (unsigned i = 0; i < elements; i++)
			n += r->ymm[in->opnd[2].reg][i * bytes + bytes - 1] >> 7;
		return n;
	}
	bytes = in->id == INSN_VMASKMOVPS || in->id == INSN_VPMASKMOVD ? 4 : 8;
	for (unsigned i = bytes - 1; i < (in->vex_l ? 32u : 16u); i += bytes)
		n += r->ymm[in->opnd[1].reg][i] >> 7;
	return n;
}

/* Runs one random instance; false if the encoding is not of this family. */
static bool run_one(const struct encoding *c)
{
	static uint8_t mem[ORACLE_MEM_SIZE], mem_cpu[ORACLE_MEM_SIZE], mem_emu[ORACLE_MEM_SIZE];
	static unsigned age;
	uint8_t code[32];
	struct insn in;
	struct dj_regs r, cpu, emu;
	int sig;

	encode(code, c);
	if (insn_decode(&in, code, INSN_MAX, ORACLE_CODE) <= 0 || in.id >= INSN_IDS ||
	    !names[in.id])
		return false;
	oracle_random_regs(&r, &seed);
	if (rnd(2)) {
		unsigned top = rnd(8), c3 = rnd(2);
		r.fsw = (uint16_t)(top << 11 | c3 << 14);
		r.ftw = (uint8_t)rnd(256);
		for (int i = 0; i < 8; i++) {
			r.st_mant[i] = random_next(&seed);
			r.st_exp[i] = (uint16_t)rnd(65536);
		}
	}
	if (in.id == INSN_PCMPESTRI || in.id == INSN_PCMPESTRM) {
		r.gpr[DJ_RAX] = rnd(4) ? rnd(20) : r.gpr[DJ_RAX];
		r.gpr[DJ_RDX] = rnd(4) ? rnd(20) : r.gpr[DJ_RDX];
	}
	if (rnd(4) == 0) { /* equal operands, or nearly; compilers do not agree on an order */
		unsigned to = rnd(16), from = rnd(16), size = 16 + 16 * rnd(2);
		memmove(r.ymm[to], r.ymm[from], size);
		unsigned at = rnd(16), byte = rnd(32);
		r.ymm[at][byte] = (uint8_t)rnd(4);
	}
	if (in.id == INSN_MASKMOVDQU)
		r.gpr[DJ_RDI] = ORACLE_MEM + rnd(4096);
	else if (in.has_mem && !aim(&in, code, &r))
		return true;
	if (age++ % 64 == 0)
		for (int i = 0; i < ORACLE_MEM_SIZE; i++) {
			uint8_t any = (uint8_t)random_next(&seed);
			mem[i] = any & (rnd(4) ? 0xff : 0x03);
		}

	memcpy(mem_cpu, mem, sizeof(mem));
	memcpy(mem_emu, mem, sizeof(mem));
	sig = oracle_cpu(code, in.len, &r, &cpu, mem_cpu);
	if (sig) {
		/* a misaligned operand, or a gather that names a register twice */
		bool gather = in.nopnd > 1 && in.opnd[1].kind == OPND_VSIB;

		if (sig == SIGILL && insn_lacked(&in))
			return true;
		if (sig != (gather ? SIGILL : SIGSEGV) && !faulted[in.id]++)
			fprintf(stderr, "%s: signal %d, opcode %02x map %u\n", names[in.id], sig,
				in.opcode, in.map);
		return true;
	}
	seen[in.id][form_of(&in)][in.has_mem]++;
	if (oracle_emu(code, in.len, &r, &emu, mem_emu)) {
		if (!unbound[in.id]++)
			fprintf(stderr, "%s: not bound, opcode %02x map %u\n", names[in.id],
				in.opcode, in.map);
		return true;
	}
	if (!oracle_same(names[in.id], code, in.len, &r, &cpu, &emu,
			 DJ_REG_ALL & ~(DJ_REG_SEGS | DJ_REG_FS_BASE | DJ_REG_GS_BASE),
			 DJ_FLAGS_ARITH | DJ_FLAG_DF, mem_cpu, mem_emu))
		bad[in.id]++;
	if (oracle_emu_loads != loads_expected(&in, &r))
		loads_wrong[in.id]++;
	return true;
}

static void test_all(void)
{
	struct encoding c = { 0 };
	unsigned runs = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	for (c.map = 1; c.map <= 3; c.map++)
		for (c.opcode = 0; c.opcode < 256; c.opcode++)
			for (unsigned k = 0; k < 64; k++) {
				c.pp = k & 3;
				c.vex = k >> 2 & 1;
				c.memory = k >> 3 & 1;
				c.w = k >> 4 & 1;
				c.l = k >> 5 & 1;
				if (!c.vex && c.l)
					continue;
				/* some opcodes are told apart by modrm, some need a certain one */
				bool picky = (c.map == 1 && c.opcode >= 0x71 && c.opcode <= 0x73) ||
					     (c.map == 2 && c.opcode >= 0x90 && c.opcode <= 0x93);
				int wanted = picky ? 10 * RUNS : RUNS;

				for (int i = 0, hits = 0; i < wanted && 3 * hits + 30 > i;
				     i++, runs++)
					hits += run_one(&c) || picky;
			}
	printf("%u runs\n", runs);
}

static void test_coverage(void)
{
	for (unsigned id = 0; id < INSN_IDS; id++) {
		unsigned n = 0;

		if (!names[id])
			continue;
		for (int f = 0; f < SEEN_FORMS; f++)
			n += seen[id][f][0] + seen[id][f][1];
		const struct insn any = { .id = (uint16_t)id };
		bool enough = n >= 50 || insn_lacked(&any);
		if (!enough || bad[id] || unbound[id] || loads_wrong[id] || faulted[id] ||
		    getenv("VERBOSE"))
			fprintf(stderr,
				"%-18s legacy %u+%u, 128 %u+%u, 256 %u+%u, mmx %u+%u: %u wrong, "
				"%u not bound, %u with wrong loads, %u strange faults\n",
				names[id], seen[id][0][0], seen[id][0][1], seen[id][1][0],
				seen[id][1][1], seen[id][2][0], seen[id][2][1], seen[id][3][0],
				seen[id][3][1], bad[id], unbound[id], loads_wrong[id], faulted[id]);
		CU_ASSERT_EQUAL(bad[id], 0);
		CU_ASSERT_EQUAL(faulted[id], 0);
		CU_ASSERT_EQUAL(unbound[id], 0);
		CU_ASSERT_EQUAL(loads_wrong[id], 0);
		CU_ASSERT(enough);
	}
}

int main(void)
{
	CU_pSuite s;

	if (!oracle_ready())
		return 77;
	suites_begin();
	s = CU_add_suite("vector instructions against the CPU", NULL, NULL);
	CU_add_test(s, "same results", test_all);
	CU_add_test(s, "every instruction seen", test_coverage);
	return suites_run();
}
