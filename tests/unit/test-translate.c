/*
 * The translator: its encodings against the decoder, its liveness of flags, and what it makes of
 * random programs against the CPU and the emulator (translate-run.c, translate-gen.c).
 */
#include "tests/lib/random.h"
#include "tests/lib/suites.h"
#include "translator/build.h"
#include "tests/lib/oracle.h"
#include "tests/lib/translate-run.h"

#include "format/regs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define rnd    gen_rnd
#define chance gen_chance

/* ---- encodings --------------------------------------------------------------------------- */

#define CG_AT 0x1012340000

static uint8_t buf[64];
static struct cg cg;

static struct cg *fresh(void)
{
	memset(buf, 0xcc, sizeof(buf));
	cg = (struct cg){ .p = buf,
			  .end = buf + sizeof(buf),
			  .delta = CG_AT - (uint64_t)(uintptr_t)buf };
	return &cg;
}

/* What was written is one instruction. */
static bool decoded(struct insn *in)
{
	int n = insn_decode(in, buf, sizeof(buf), CG_AT);
	return n > 0 && n == cg.p - buf && !cg.overflow;
}

static struct ea random_ea(void)
{
	struct ea m = { .base = -1, .index = -1, .scale = 1, .gs = chance(40), .a32 = chance(40) };
	if (chance(10)) {
		m.rip = true;
		m.a32 = false;
		m.target = CG_AT - (1 << 30) + rnd(1u << 31);
		return m;
	}
	if (chance(85))
		m.base = (int8_t)rnd(16);
	if (chance(40))
		m.index = (int8_t)rnd(16);
	if (m.index == 4)
		m.index = -1;
	if (m.index >= 0)
		m.scale = (uint8_t)(1u << rnd(4));
	m.disp = chance(20)   ? 0
		 : chance(50) ? (int32_t)(rnd(300) - 150)
			      : (int32_t)random_next(&gen_seed);
	return m;
}

static bool same_ea(const struct insn *in, const struct ea *m)
{
	if (!in->has_mem || in->seg != (m->gs ? 5 : 0) || in->addr32 != m->a32)
		return false;
	if (m->rip)
		return in->base == INSN_RIP && in->target == m->target;
	return in->base == (m->base < 0 ? INSN_NOREG : m->base) &&
	       in->index == (m->index < 0 ? INSN_NOREG : m->index) &&
	       (m->index < 0 || in->scale == m->scale) && in->disp == m->disp;
}

static unsigned wrong;

static void show(const char *what)
{
	static unsigned printed;
	if (printed++ > 20)
		return;
	fprintf(stderr, "%s: ", what);
	for (const uint8_t *p = buf; p < cg.p; p++)
		fprintf(stderr, "%02x", *p);
	fputc('\n', stderr);
}

static void check(bool ok, const char *what)
{
	if (!ok)
		show(what);
	wrong += !ok;
}

static void test_rm_rr(void)
{
	struct insn in;
	wrong = 0;
	for (int i = 0; i < 20000; i++) {
		unsigned size = 1u << rnd(4), reg = rnd(16), rm = rnd(16);
		struct ea m = random_ea();
		cg_rm(fresh(), size, size == 1 ? 0x8a : 0x8b, reg, &m, 0);
		check(decoded(&in) && in.id == INSN_MOV && in.opnd[0].kind == OPND_GPR &&
			      in.opnd[0].reg == reg && in.opnd[0].size == size &&
			      in.mem_size == size && same_ea(&in, &m),
		      "cg_rm load");
		cg_store_size(fresh(), size, reg, &m);
		check(decoded(&in) && in.id == INSN_MOV && in.opnd[1].reg == reg &&
			      in.mem_size == size && in.mem_access == INSN_W && same_ea(&in, &m),
		      "cg_store_size");
		cg_load_zx(fresh(), size, reg, &m);
		check(decoded(&in) && in.id == (size < 4 ? INSN_MOVZX : INSN_MOV) &&
			      in.opnd[0].reg == reg && in.gpr_full == 1u << reg &&
			      in.mem_size == size && same_ea(&in, &m),
		      "cg_load_zx");
		cg_cmp(fresh(), size, reg, &m);
		check(decoded(&in) && in.id == INSN_CMP && in.opnd[0].reg == reg &&
			      in.mem_size == size && same_ea(&in, &m),
		      "cg_cmp");
		unsigned n = size == 8 ? 4 : size;
		uint32_t imm = (uint32_t)random_next(&gen_seed);
		cg_rm(fresh(), size, size == 1 ? 0x80 : 0x81, 0, &m, n);
		cg_bytes(&cg, &imm, n);
		int64_t want = n == 1 ? (int8_t)imm : n == 2 ? (int16_t)imm : (int32_t)imm;
		check(decoded(&in) && in.id == INSN_ADD && same_ea(&in, &m) &&
			      !((uint64_t)(in.imm ^ want) << (64 - 8 * size)),
		      "cg_rm with an immediate");
		cg_rr(fresh(), size, size == 1 ? 0x88 : 0x89, reg, rm);
		check(decoded(&in) && in.id == INSN_MOV && in.opnd[0].kind == OPND_GPR &&
			      in.opnd[1].kind == OPND_GPR && in.opnd[0].reg == rm &&
			      in.opnd[1].reg == reg && in.opnd[0].size == size,
		      "cg_rr");
		cg_rr(fresh(), 4, 0x0fb6, reg, rm);
		check(decoded(&in) && in.id == INSN_MOVZX && in.opnd[0].reg == reg,
		      "cg_rr of two bytes");
		bool l = chance(50);
		unsigned v = rnd(16);
		cg_vex_rm(fresh(), VMOVUPS_LOAD, l, reg, 0, &m);
		check(decoded(&in) && in.id == INSN_MOVUPS && in.opnd[0].reg == reg &&
			      in.mem_size == (l ? 32 : 16) && same_ea(&in, &m),
		      "cg_vex_rm");
		cg_vex_rr(fresh(), VXORPS, l, reg, v, rm);
		check(decoded(&in) && in.id == INSN_XORPS && in.opnd[0].reg == reg &&
			      in.opnd[1].reg == v && in.opnd[2].reg == rm &&
			      in.opnd[0].size == (l ? 32 : 16),
		      "cg_vex_rr");
	}
	CU_ASSERT(wrong == 0);
}

static void test_imm(void)
{
	struct insn in;
	wrong = 0;
	for (int i = 0; i < 5000; i++) {
		uint64_t v = random_next(&gen_seed);
		v = (uint64_t)((int64_t)v >> rnd(64));
		if (chance(30))
			v = (uint32_t)v;
		unsigned r = rnd(16);
		cg_imm(fresh(), r, v);
		bool ok = decoded(&in) && in.id == INSN_MOV && in.opnd[0].reg == r &&
			  !in.flags_written;
		uint64_t got = in.opnd[0].size == 4 ? (uint32_t)in.imm : (uint64_t)in.imm;
		check(ok && in.gpr_full == 1u << r && got == v, "cg_imm");
		cg_imm_gs(fresh(), T_SLOT(3), (uint32_t)v);
		check(decoded(&in) && in.id == INSN_MOV && in.seg == 5 && in.mem_size == 4 &&
			      in.disp == T_SLOT(3) && (uint32_t)in.imm == (uint32_t)v,
		      "cg_imm_gs");
		cg_store_gs(fresh(), r, T_HEAD);
		check(decoded(&in) && in.seg == 5 && in.disp == T_HEAD && in.opnd[1].reg == r &&
			      in.base == INSN_NOREG && in.mem_size == 8,
		      "cg_store_gs");
	}
	for (int i = 0; i < 1000; i++) {
		uint64_t to = CG_AT - (1 << 30) + rnd(1u << 31);
		unsigned cond = rnd(16);
		uint8_t *at = cg_jcc(fresh(), cond, 0);
		cg_patch32(at, cg.delta, to);
		check(decoded(&in) && in.id == INSN_JCC && in.cond == cond &&
			      (uint64_t)in.imm == to,
		      "cg_jcc");
		cg_jmp(fresh(), to);
		check(decoded(&in) && in.id == INSN_JMP && (uint64_t)in.imm == to, "cg_jmp");
	}
	CU_ASSERT(wrong == 0);
}

/* Any instruction with a memory operand, or none. */
static bool random_insn(struct insn *in)
{
	uint8_t c[INSN_MAX], *p = c;
	for (size_t i = 0; i < sizeof(c); i++)
		c[i] = (uint8_t)rnd(256);
	unsigned map = rnd(4);
	bool vex = map && chance(50);
	if (chance(10))
		*p++ = 0x67;
	if (chance(10))
		*p++ = 0x64;
	if (vex && map == 1 && chance(40)) {
		*p++ = 0xc5;
		p++;
	} else if (vex) {
		*p++ = 0xc4;
		*p++ = (uint8_t)(rnd(8) << 5 | map);
		p++;
	} else {
		if (chance(20))
			*p++ = 0xf0;
		if (chance(20))
			*p++ = 0x66;
		if (chance(20))
			*p++ = chance(50) ? 0xf2 : 0xf3;
		if (chance(50))
			*p++ = (uint8_t)(0x40 | rnd(16));
		if (map)
			*p++ = 0x0f;
		if (map > 1)
			*p++ = map == 2 ? 0x38 : 0x3a;
	}
	return insn_decode(in, c, sizeof(c), 0x12345000) > 0 && in->modrm_off;
}

/* All but the memory operand, its address registers and LOCK is the same. */
static bool same_but_memory(const struct insn *a, const struct insn *b)
{
	if (a->id != b->id || a->nopnd != b->nopnd || a->mem_size != b->mem_size ||
	    a->mem_access != b->mem_access || a->opsize != b->opsize ||
	    a->imm_size != b->imm_size || (a->imm_size && a->imm != b->imm) ||
	    a->vex_l != b->vex_l || a->vex_vvvv != b->vex_vvvv || a->flags_read != b->flags_read ||
	    a->flags_written != b->flags_written || a->gpr_written != b->gpr_written)
		return false;
	for (unsigned i = 0; i < a->nopnd; i++)
		if (memcmp(&a->opnd[i], &b->opnd[i], sizeof(a->opnd[i])))
			return false;
	return true;
}

static void test_reencode(void)
{
	struct insn in, out;
	unsigned done = 0, regs = 0, opaque = 0;
	wrong = 0;
	for (int i = 0; i < 150000; i++) {
		if (!random_insn(&in) || !in.has_mem || !in.mem_access)
			continue;
		bool vsib = false;
		for (unsigned k = 0; k < in.nopnd; k++)
			vsib |= in.opnd[k].kind == OPND_VSIB;
		if (vsib || in.attr & (INSN_A_PRIV | INSN_A_BRANCH))
			continue;
		struct ea m = random_ea();
		if (in.id == INSN_EVEX || in.id == INSN_XOP) {
			opaque++;
			check(!cg_reencode(fresh(), &in, &m) && cg.p == buf, "opaque");
			continue;
		}
		if (cg_reencode(fresh(), &in, &m)) {
			done++;
			check(decoded(&out) && same_ea(&out, &m) && same_but_memory(&in, &out) &&
				      !out.lock,
			      insn_id_name(in.id));
		} else {
			check(cg.p == buf, "failed, but left bytes");
		}
		/* the form with registers, where the translator uses it */
		if (in.id >= INSN_MOVS || in.vex || in.mem_size > 8 || in.id == INSN_MOVBE ||
		    (in.attr & (INSN_A_STACK | INSN_A_STRING | INSN_A_BITSTRING)) ||
		    in.id == INSN_CMPXCHG8B || in.id == INSN_CMPXCHG16B || in.id == INSN_MOVNTI)
			continue;
		bool plain = true;
		for (unsigned k = 0; k < in.nopnd; k++)
			plain &= in.opnd[k].kind == OPND_GPR || in.opnd[k].kind == OPND_IMM ||
				 in.opnd[k].kind == OPND_MEM;
		unsigned rm = rnd(16);
		int reg = -1, named = -1;
		for (unsigned k = 0; k < in.nopnd; k++)
			if (in.opnd[k].kind == OPND_GPR && in.opnd[k].reg == in.reg &&
			    !(in.id >= INSN_ROL && in.id <= INSN_SHRD)) /* cl, by no field */
				named = (int)k;
		if (named >= 0 && chance(50))
			reg = (int)rnd(16);
		if (!plain || !cg_reencode_reg(fresh(), &in, rm, reg))
			continue;
		regs++;
		bool ok = decoded(&out) && out.id == in.id && !out.has_mem &&
			  out.nopnd == in.nopnd && out.opsize == in.opsize && !out.lock;
		for (unsigned k = 0; ok && k < in.nopnd; k++) {
			const struct insn_opnd *o = &in.opnd[k], *n = &out.opnd[k];
			if (o->kind == OPND_MEM)
				ok = n->kind == OPND_GPR && n->reg == rm && n->size == o->size;
			else if (o->kind == OPND_GPR)
				ok = n->kind == OPND_GPR && n->size == o->size &&
				     n->reg == (reg >= 0 && (int)k == named ? reg : o->reg);
		}
		check(ok && (!in.imm_size || out.imm == in.imm), insn_id_name(in.id));
	}
	printf("(%u and %u instructions, %u refused) ", done, regs, opaque);
	CU_ASSERT(wrong == 0);
	CU_ASSERT(done > 10000 && regs > 1000 && opaque > 100);
}

/* ---- flags ---------------------------------------------------------------------------------- */

#define AT 0x400000

static const char *text;
static size_t text_len;

static size_t read_text(void *ctx, uint64_t pc, uint8_t *to, size_t len, bool *changing)
{
	(void)ctx;
	*changing = false;
	if (pc < AT || pc >= AT + text_len)
		return 0;
	size_t n = AT + text_len - pc < len ? AT + text_len - pc : len;
	memcpy(to, text + (pc - AT), n);
	return n;
}

#define ALL	    DJ_FLAGS_ARITH
#define CF	    DJ_FLAG_CF
#define ZF	    DJ_FLAG_ZF
#define CODE(bytes) bytes, sizeof(bytes) - 1

static const struct {
	const char *what, *code;
	size_t len;
	uint32_t live;
	/* clang-format off */
} snippets[] = {
	{"unknown code", CODE(""), ALL},
	{"add", CODE("\x01\xc8\xc3"), 0},
	{"cmp", CODE("\x39\xc8\xc3"), 0},
	{"sub with memory", CODE("\x2b\x03\xc3"), 0},
	{"test clears AF", CODE("\x85\xc0\xc3"), 0},
	{"xor clears AF", CODE("\x31\xc0\xc3"), 0},
	{"andn does not", CODE("\xc4\xe2\x70\xf2\xc0\xc3"), DJ_FLAG_AF | DJ_FLAG_PF},
	{"shl by 3", CODE("\xc1\xe0\x03\xc3"), 0},
	{"shl by 0", CODE("\xc1\xe0\x00\xc3"), ALL},
	{"ror by 3 may leave OF", CODE("\xc1\xc8\x03\xc3"), ALL & ~CF},
	{"test, cmp", CODE("\x85\xc0\x39\xc8\xc3"), 0},
	{"mov, cmp", CODE("\x89\xc8\x39\xc8\xc3"), 0},
	{"jz, both sides cmp", CODE("\x74\x02\x39\xc8\x39\xc8\xc3"), ZF},
	{"jz, taken side setc", CODE("\x74\x03\x39\xc8\xc3\x0f\x92\xc0\x39\xc8"), ZF | CF},
	{"jz, taken side jc, too deep", CODE("\x74\x03\x39\xc8\xc3\x72\x00\x39\xc8"), ALL},
	{"jz, other side jc", CODE("\x74\x04\x72\x02\x39\xc8\x39\xc8"), ZF | CF},
	{"jz to nowhere", CODE("\x74\x60\x39\xc8\xc3"), ALL},
	{"jbe", CODE("\x76\x00\x39\xc8"), ZF | CF},
	{"jl", CODE("\x7c\x00\x39\xc8"), DJ_FLAG_SF | DJ_FLAG_OF},
	{"jp", CODE("\x7a\x00\x39\xc8"), DJ_FLAG_PF},
	{"adc", CODE("\x11\xc8"), CF},
	{"sbb", CODE("\x19\xc8"), CF},
	{"sete", CODE("\x0f\x94\xc0\x39\xc8"), ZF},
	{"cmovs", CODE("\x0f\x48\xc1\x39\xc8"), DJ_FLAG_SF},
	{"inc keeps CF", CODE("\xff\xc0\x72\x00\x39\xc8"), CF},
	{"inc, cmp", CODE("\xff\xc0\x39\xc8"), 0},
	{"dec, ret", CODE("\xff\xc8\xc3"), CF},
	{"cmc", CODE("\xf5\x39\xc8"), CF},
	{"clc, ret", CODE("\xf8\xc3"), ALL & ~CF},
	{"rcl", CODE("\xd1\xd0\x39\xc8"), CF},
	{"rcl by cl", CODE("\xd3\xd0\x39\xc8"), CF},
	{"shl by cl, cmp", CODE("\xd3\xe0\x39\xc8"), 0},
	{"shl by cl, jz", CODE("\xd3\xe0\x74\x00\x39\xc8"), ZF},
	{"shl by cl, ret", CODE("\xd3\xe0\xc3"), ALL},
	/* a signal may come in the midst of it */
	{"repe cmps, cmp", CODE("\xf3\xa6\x39\xc8"), ALL},
	{"rep movs, cmp", CODE("\xf3\xa4\x39\xc8"), ALL},
	{"cmps, cmp", CODE("\xa6\x39\xc8"), 0},
	{"cmps", CODE("\xa6\xc3"), 0},
	{"lahf", CODE("\x9f\x39\xc8"), ALL & ~DJ_FLAG_OF},
	{"sahf, ret", CODE("\x9e\xc3"), DJ_FLAG_OF},
	{"pushf", CODE("\x9c\x39\xc8"), ALL},
	{"popf", CODE("\x9d\xc3"), 0},
	{"ret", CODE("\xc3"), ALL},
	{"jmp rax", CODE("\xff\xe0"), ALL},
	{"call rax", CODE("\xff\xd0\x39\xc8"), ALL},
	{"jmp over jc", CODE("\xeb\x02\x72\x00\x39\xc8"), 0},
	{"call to cmp", CODE("\xe8\x02\x00\x00\x00\x72\x00\x39\xc8"), 0},
	{"syscall", CODE("\x0f\x05\x39\xc8"), ALL},
	{"cpuid", CODE("\x0f\xa2\x39\xc8"), ALL},
	{"loop to itself", CODE("\xeb\xfe"), ALL},
	{"adcx", CODE("\x66\x0f\x38\xf6\xc1\x39\xc8"), CF},
	{"adox", CODE("\xf3\x0f\x38\xf6\xc1\x39\xc8"), DJ_FLAG_OF},
	{"bsf", CODE("\x0f\xbc\xc1\xc3"), 0}, /* but for processors where it keeps them */
	{"tzcnt leaves the others undefined", CODE("\xf3\x0f\xbc\xc1\xc3"), ALL & ~(ZF | CF)},
};
/* clang-format on */

static void test_liveness(void)
{
	static const struct tr_ops ops = { .read_code = read_text };
	static const struct tr_config config = { 0 };
	struct translator *tr = tr_new(&ops, &config);
	for (size_t i = 0; i < sizeof(snippets) / sizeof(*snippets); i++) {
		uint32_t want = snippets[i].live;
		text = snippets[i].code;
		text_len = snippets[i].len;
		if (dj_cpu_host() == DJ_CPU_AMD_KEEPS && !strcmp(snippets[i].what, "bsf"))
			want = ALL & ~ZF;
		for (int again = 0; again < 2; again++) {
			struct tr_look look = { .n = 0 };
			uint32_t live = tr_flags_live_at(tr, AT, 1, &look);
			if (live != want)
				fprintf(stderr, "%s: %#x, expected %#x\n", snippets[i].what, live,
					want);
			CU_ASSERT(live == want);
		}
		tr_invalidate(tr, 0, UINT64_MAX);
	}
	tr_free(tr);
}

/* ---- room ------------------------------------------------------------------------------------ */

static const char *every; /* the code at every multiple of 16 or 128 */
static size_t every_len, period;

static size_t read_every(void *ctx, uint64_t pc, uint8_t *to, size_t len, bool *changing)
{
	(void)ctx;
	*changing = false;
	for (size_t i = 0; i < len; i++)
		to[i] = (pc + i) % period < every_len ? (uint8_t)every[(pc + i) % period] : 0xcc;
	return len;
}

static uint64_t nothing(void *ctx, uint64_t pc, size_t len)
{
	(void)ctx, (void)pc, (void)len;
	return 0;
}

static void *sparse(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CU_ASSERT_FATAL(p != MAP_FAILED);
	return p;
}

static uint8_t *some_tables, *some_arena;

static struct translator *in_no_program(const char *code, size_t len)
{
	static const struct tr_ops ops = { NULL, read_every, nothing };
	every = code;
	every_len = len;
	period = len < 16 ? 16 : 128;
	some_tables = sparse(AREA_TABLES);
	some_arena = sparse(TR_ARENA_SIZE);
	struct tr_config config = { some_tables, tr_policies[TR_POLICY_SHADOW] };
	return tr_new(&ops, &config);
}

static void end_no_program(struct translator *tr)
{
	tr_free(tr);
	munmap(some_tables, AREA_TABLES);
	munmap(some_arena, TR_ARENA_SIZE);
}

/* What rt_other finds: where it would jump, 0 for a miss. */
static uint64_t probe(const struct translator *tr, uint64_t pc, unsigned *places)
{
	const uint64_t *at = (uint64_t *)(void *)(some_tables + T_TARGETS - T_TABLES);
	uint32_t i = (uint32_t)(pc * (uint64_t)(int32_t)AREA_TARGET_MIX >> 32);
	for (*places = 1;; i++, ++*places) {
		i &= (1u << tr->target_bits) - 1;
		if (at[2 * i] == pc)
			return at[2 * i + 1];
		if (!at[2 * i])
			return 0;
	}
}

/* Spread at random: runs of places with a key get long. */
static uint64_t target(uint64_t i)
{
	i = (i + 1) * 0xbf58476d1ce4e5b9ULL;
	i = (i ^ i >> 31) * 0x94d049bb133111ebULL;
	return AT + (i >> 38) * 16;
}

static void many_targets(uint64_t n, bool too_many)
{
	struct translator *tr = in_no_program("\xc3", 1);
	struct tr_frag *f = NULL;
	unsigned places, longest = 0, found = 0, missed = 0;
	wrong = 0;
	CU_ASSERT(tr_fragment(tr, AT, &f) == TR_NO_ARENA);
	tr_add_arena(tr, 0x30000000, some_arena);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t pc = target(i);
		CU_ASSERT_FATAL(tr_fragment(tr, pc, &f) == TR_FOUND);
		tr_add_indirect(tr, f);
		wrong += probe(tr, pc, &places) != f->stub; /* later ones may push it out */
	}
	for (uint64_t i = 0; i < n; i++) {
		uint64_t to = probe(tr, target(i), &places);
		if (places > longest)
			longest = places;
		found += to && to == tr_find(tr, target(i))->stub;
		missed += !to;
	}
	CU_ASSERT(tr->target_bits == AREA_TARGET_BITS); /* there are more places than at first */
	CU_ASSERT(wrong == 0);
	CU_ASSERT(found + missed == n);
	CU_ASSERT(found > n / 8);
	CU_ASSERT(longest <= 65);
	struct tr_stats st;
	tr_stats(tr, &st);
	CU_ASSERT(too_many ? st.clears > 0 : !missed);

	/* one goes, another one is displaced: nobody finds what is not there */
	f = tr_find(tr, target(n - 1));
	uint64_t old = f->stub;
	CU_ASSERT(probe(tr, f->pc, &places) == old);
	tr_invalidate(tr, f->pc & ~4095ULL, 4096);
	CU_ASSERT(probe(tr, target(n - 1), &places) != old);
	CU_ASSERT(!tr_find(tr, target(n - 1)));
	CU_ASSERT(tr_fragment(tr, target(n - 1), &f) == TR_FOUND);
	tr_add_indirect(tr, f);
	CU_ASSERT(probe(tr, f->pc, &places) == f->stub && f->stub != old);
	printf("(%u found, %u missed, at most %u places) ", found, missed, longest);
	end_no_program(tr);
}

static void test_targets(void)
{
	many_targets(300000, false);
	many_targets(700000, true); /* than there is room for */
}

/* An arena is full, and old code cannot be given up yet. */
static void test_full(void)
{
	char code[61];
	for (int i = 0; i < 60; i += 2)
		memcpy(code + i, "\x87\x18", 2); /* xchg [rax], ebx */
	code[60] = (char)0xc3;
	struct translator *tr = in_no_program(code, sizeof(code));
	struct tr_frag *f = NULL;
	unsigned n = 0, rounds = 0;
	enum tr_found found = tr_fragment(tr, AT, &f);
	CU_ASSERT(found == TR_NO_ARENA);
	tr_add_arena(tr, 0x20000000, some_arena);
	uint64_t pinned = tr_epoch(tr);
	CU_ASSERT(tr_fragment(tr, AT, &f) == TR_FOUND);
	uint64_t entry = tr_entry(f);
	uint8_t first[64];
	memcpy(first, some_arena + (entry - 0x20000000), sizeof(first));
	for (; rounds < 4; n++) {
		found = tr_fragment(tr, AT, &f);
		if (found == TR_FOUND) {
			tr_invalidate(tr, AT, 1);
			tr_reclaim(tr, pinned);
		} else if (found == TR_NO_ARENA) {
			tr_no_arena(tr);
		} else {
			CU_ASSERT_FATAL(found == TR_FULL);
			rounds++;
		}
	}
	/* a thread may still be in the first one: it must be there, and known */
	struct tr_where w;
	CU_ASSERT(!memcmp(first, some_arena + (entry - 0x20000000), sizeof(first)));
	CU_ASSERT(tr_locate(tr, entry, 0, &w) && w.pc == AT && w.boundary);
	tr_reclaim(tr, tr_epoch(tr));
	CU_ASSERT(!tr_locate(tr, entry, 0, &w));
	/* now there is room for as much again */
	for (unsigned k = 0; k < n / 2; k++) {
		CU_ASSERT_FATAL(tr_fragment(tr, AT, &f) == TR_FOUND);
		tr_invalidate(tr, AT, 1);
	}
	printf("(%u fragments) ", n);
	end_no_program(tr);
}

/* ---- programs ----------------------------------------------------------------------------------
 */

/* On a busy machine some of the programs find no lock held. */
static unsigned long waits;

static void programs(unsigned n, unsigned insns, bool branches)
{
	static struct gen g;
	unsigned bad = 0;
	if (!oracle_available()) {
		printf("(no such CPU) ");
		return;
	}
	memset(&run_counts, 0, sizeof(run_counts));
	for (unsigned i = 0; i < n; i++) {
		g.base = run_place(chance(40));
		g.branches = branches;
		g.x87 = chance(25);
		gen_program(&g, 1 + rnd(insns));
		bad += !run_program(&g, chance(50));
	}
	printf("(%lu programs, %lu faults, %lu steps, %lu imports, %lu natives, %lu misses, %lu "
	       "boundaries, %lu ordered, %lu numbers, %lu waits, %lu faults under locks) ",
	       run_counts.programs, run_counts.faults, run_counts.steps, run_counts.imports,
	       run_counts.natives, run_counts.misses, run_counts.boundaries, run_counts.ordered,
	       run_counts.numbers, run_counts.waits, run_counts.locked_faults);
	CU_ASSERT(bad == 0);
	CU_ASSERT(run_counts.ordered > n / 50);
	CU_ASSERT(run_counts.orders > n / 50);
	CU_ASSERT(run_counts.exact > run_counts.boundaries / 10);
	CU_ASSERT(run_counts.numbers > n / 200);
	waits += run_counts.waits;
	if (bad)
		fprintf(stderr, "%u of %u programs\n", bad, n);
}

static unsigned times = 1;

static void test_single(void)
{
	programs(times * 2000, 1, false);
}

static void test_straight(void)
{
	programs(times * 2500, 20, false);
}

static void test_branches(void)
{
	programs(times * 2000, 12, true);
	CU_ASSERT(run_counts.found_again[0] > 0 || !oracle_available());
	CU_ASSERT(run_counts.found_again[1] > 0 || !oracle_available());
	CU_ASSERT(waits > 0 || !oracle_available());
}

int main(int argc, char **argv)
{
	if (argc > 1)
		gen_seed = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		times = (unsigned)atoi(argv[2]);
	printf("seed %llu\n", (unsigned long long)gen_seed);
	suites_begin();
	CU_pSuite parts = CU_add_suite("parts", NULL, NULL);
	CU_pSuite whole =
		CU_add_suite("whole", oracle_available() ? run_set_up : NULL, run_tear_down);
	CU_add_test(parts, "operands", test_rm_rr);
	CU_add_test(parts, "immediates and jumps", test_imm);
	CU_add_test(parts, "encoding again", test_reencode);
	CU_add_test(parts, "which flags are live", test_liveness);
	CU_add_test(parts, "many targets of indirect branches", test_targets);
	CU_add_test(parts, "a full arena", test_full);
	CU_add_test(whole, "single instructions", test_single);
	CU_add_test(whole, "straight code", test_straight);
	CU_add_test(whole, "branches, calls, loops", test_branches);
	return suites_run();
}
