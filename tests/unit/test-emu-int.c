/*
 * Integer and string instructions against the CPU, through the emulator's own run loop.
 *
 * Encodings are not listed: every opcode byte of every map is tried with random prefixes,
 * operands and registers, and what the decoder says belongs here is run on both sides,
 * often behind another instruction that leaves its flags lazily. Memory operands, stack,
 * string registers and branch targets are made to lie where both sides can go. All six
 * flags must agree, undefined ones too. At the end every instruction of the two lists must have
 * been seen often enough. What the CPU cannot be asked is in test-emu-int-alone.c.
 */
#include "format/error.h"
#include "tests/unit/test-emu-int.h"
#include "tests/lib/random.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_MAX INSN_IDS
#define ENOUGH 200 /* cases of each instruction */
#define FLAGS  (DJ_FLAGS_ARITH | DJ_FLAG_DF | 0x200000)

/* Where an instruction was found: map, opcode and whether VEX. */
struct place {
	uint8_t map, opcode;
	bool vex;
};

uint64_t seed = 20261121;
static struct place place_of[ID_MAX];
static unsigned seen[ID_MAX][2], bad[ID_MAX], faults[ID_MAX]; /* seen: without and with memory */
static bool ours[ID_MAX];

unsigned rnd(unsigned n)
{
	return (unsigned)(random_next(&seed) >> 20) % n;
}

bool chance(unsigned percent)
{
	return rnd(100) < percent;
}

static void put(uint8_t *at, uint64_t x, unsigned size)
{
	for (unsigned i = 0; i < size; i++)
		at[i] = (uint8_t)(x >> (8 * i));
}

static uint64_t get(const uint8_t *at, unsigned size)
{
	uint64_t x = 0;

	for (unsigned i = 0; i < size; i++)
		x |= (uint64_t)at[i] << (8 * i);
	return x;
}

/* An address with room on both sides. */
static uint64_t somewhere(void)
{
	uint64_t a = ORACLE_MEM + 3072 + rnd(128) * 16;

	return chance(50) ? a : a + rnd(64);
}

static uint8_t *at_mem(struct trial *t, uint64_t addr)
{
	return addr - ORACLE_MEM < ORACLE_MEM_SIZE - 8 ? t->mem + (addr - ORACLE_MEM) : NULL;
}

/* ---- making cases --------------------------------------------------------------------- */

/* Random bytes that begin with the given opcode of a map (0 to 3), VEX-encoded or not. */
static void encode(uint8_t *code, unsigned map, unsigned opcode, bool vex)
{
	uint8_t *p = code;

	for (int i = 0; i < 20; i++)
		p[i] = (uint8_t)rnd(256);
	bool string = map == 0 && (opcode & 0xf4) == 0xa4;
	if (chance(string ? 30 : 6))
		*p++ = 0x67;
	if (vex) {
		*p++ = 0xc4;
		*p++ = (uint8_t)(rnd(8) << 5 | map);
		*p++ = (uint8_t)(rnd(2) << 7 | (chance(50) ? 15 : rnd(16)) << 3 | rnd(4));
		*p++ = (uint8_t)opcode;
	} else {
		if (chance(8))
			*p++ = 0xf0;
		if (chance(25))
			*p++ = 0x66;
		if (chance(25))
			*p++ = chance(50) ? 0xf2 : 0xf3;
		if (chance(60))
			*p++ = (uint8_t)(0x40 | rnd(16));
		if (map)
			*p++ = 0x0f;
		if (map > 1)
			*p++ = map == 2 ? 0x38 : 0x3a;
		*p++ = (uint8_t)opcode;
	}
	if (map == 0 && opcode == 0xc8)
		p[2] = 0; /* enter, level 0 */
	else if (map == 1 && opcode == 0x1e && p - code > 2 && p[-3] == 0xf3 && chance(50))
		*p = 0xfa; /* endbr64 */
	else if (chance(30))
		*p |= 0xc0;
	else if (chance(20)) /* a SIB byte */
		*p = (*p & ~7) | 4;
}

/* Place the memory operand. False if this encoding cannot be made to lie within reach. */
static bool aim(struct trial *t, uint64_t at)
{
	struct insn *in = &t->in;
	uint8_t *code = t->code + t->main_at;
	uint64_t to = somewhere(), off = 0;

	if (!in->has_mem)
		return true;
	if (in->base < 16 && in->disp_size == 4 && (in->base == DJ_RSP || chance(50))) {
		put(code + in->disp_off, (uint64_t)(int64_t)((int)rnd(256) - 128), 4);
		if (insn_decode(in, code, INSN_MAX, at) <= 0)
			return false;
	}
	if (in->index < 16) {
		if (in->base == in->index)
			return false;
		if (in->index == DJ_RBP && in->id == INSN_LEAVE)
			return false;
		t->regs.gpr[in->index] = rnd(64) - 32ULL;
		off = t->regs.gpr[in->index] * in->scale;
	}
	if (in->base < 16) {
		uint64_t *r = &t->regs.gpr[in->base];
		*r = to - off - (uint64_t)in->disp;
		if (in->addr32 && in->base != DJ_RSP)
			*r = (uint32_t)*r | random_next(&seed) << 32;
		return true;
	}
	if (in->disp_size != 4 && in->disp_size != 8)
		return false;
	if (in->base == INSN_RIP)
		off = at + in->len;
	put(code + in->disp_off, to - off, in->disp_size);
	return insn_decode(in, code, INSN_MAX, at) > 0;
}

static uint64_t ea_of(const struct trial *t)
{
	const struct insn *in = &t->in;
	uint64_t a = in->base == INSN_RIP ? in->target : (uint64_t)in->disp;

	if (in->base < 16)
		a += t->regs.gpr[in->base];
	if (in->index < 16)
		a += t->regs.gpr[in->index] * in->scale;
	return in->addr32 ? (uint32_t)a : a;
}

/* Registers and memory that the instruction uses without saying so. */
static bool prepare(struct trial *t)
{
	struct insn *in = &t->in;
	uint64_t *g = t->regs.gpr;
	uint8_t *p;

	if (in->attr & INSN_A_STRING) {
		g[DJ_RSI] = somewhere();
		g[DJ_RDI] = chance(50) ? g[DJ_RSI] + rnd(33) - 16 : somewhere();
		if (in->attr & INSN_A_REP) {
			g[DJ_RCX] = chance(10) ? 0 : rnd(24);
		}
		/* what lies above 32 bits must not matter */
		for (unsigned r = DJ_RCX; in->addr32 && r <= DJ_RDI; r++)
			if (r == DJ_RSI || r == DJ_RDI || (r == DJ_RCX && in->attr & INSN_A_REP))
				g[r] |= random_next(&seed) << 32;
		/* let comparisons find something equal and something different */
		if (chance(60)) {
			memset(t->mem + 2048, (int)(g[DJ_RAX] & 0xff), 4096);
			for (int i = 0; i < 80; i++)
				t->mem[2048 + rnd(4096)] = (uint8_t)rnd(4);
			if (chance(80))
				g[DJ_RAX] = 0x0101010101010101 * (g[DJ_RAX] & 0xff);
		}
		return true;
	}
	switch (in->id) {
	case INSN_LEAVE:
		g[DJ_RBP] = somewhere();
		break;
	case INSN_ENTER: /* the new top of stack must be there, too */
		t->code[t->main_at + in->imm_off + 1] &= 3;
		return insn_decode(in, t->code + t->main_at, INSN_MAX, in->addr) > 0;
	case INSN_XLAT:
		g[DJ_RBX] = somewhere();
		break;
	case INSN_POPF: /* no traps, no alignment checks, no nested tasks */
		put(at_mem(t, g[DJ_RSP]), random_next(&seed) & ~0x44100ULL, 8);
		break;
	case INSN_LDMXCSR:
	case INSN_VLDMXCSR:
		p = at_mem(t, ea_of(t));
		if (p && chance(80))
			put(p, rnd(0x10000), 4);
		break;
	case INSN_DIV:
	case INSN_IDIV:
		if (in->base == DJ_RDX || in->index == DJ_RDX)
			break;
		if (chance(60))
			g[DJ_RDX] = in->id == INSN_IDIV && g[DJ_RAX] >> 63 ? ~0ULL : 0;
		else if (chance(50))
			g[DJ_RDX] = rnd(1000);
		break;
	case INSN_BT:
	case INSN_BTS:
	case INSN_BTR:
	case INSN_BTC:
		if (in->attr & INSN_A_BITSTRING) {
			unsigned bits = in->opsize * 8u;
			uint64_t x = rnd(16384) - 8192ULL, high = random_next(&seed);
			if (in->reg == in->base || in->reg == in->index || in->reg == DJ_RSP)
				return false;
			g[in->reg] = bits == 64 ? x : (x & ~(~0ULL << bits)) | high << bits;
		}
		break;
	case INSN_CMPXCHG8B:
	case INSN_CMPXCHG16B:
	case INSN_CMPXCHG:
		/* equal half of the time */
		p = in->has_mem ? at_mem(t, ea_of(t)) : NULL;
		if (p && chance(50) && in->base != DJ_RAX && in->base != DJ_RDX &&
		    in->index != DJ_RAX && in->index != DJ_RDX) {
			bool pair = in->id == INSN_CMPXCHG8B;
			g[DJ_RAX] = get(p, 8);
			if (in->id != INSN_CMPXCHG)
				g[DJ_RDX] = get(pair ? p + 4 : p + 8, 8);
		} else if (!p && in->rm != DJ_RSP && chance(50)) {
			g[in->rm] = g[DJ_RAX];
		}
		break;
	}
	return true;
}

/* A branch goes to its end or over one instruction that stands behind it. */
static bool prepare_branch(struct trial *t, uint64_t at)
{
	struct insn *in = &t->in;
	uint8_t *code = t->code + t->main_at;
	uint64_t end = at + in->len, target = end + (chance(50) ? 2 : 0);
	uint8_t *p = NULL;

	if (!(in->attr & INSN_A_INDIRECT) && !(in->attr & INSN_A_RET)) {
		put(code + in->imm_off, target - end, in->imm_size);
		if (insn_decode(in, code, INSN_MAX, at) <= 0)
			return false;
	} else if (in->attr & INSN_A_RET) {
		p = at_mem(t, t->regs.gpr[DJ_RSP]);
	} else if (in->opnd[0].kind == OPND_MEM) {
		p = at_mem(t, ea_of(t));
	} else if (in->opnd[0].reg != DJ_RSP) {
		t->regs.gpr[in->opnd[0].reg] = target;
		return true;
	}
	if (p)
		put(p, target, 8);
	else if (in->attr & (INSN_A_INDIRECT | INSN_A_RET))
		return false;
	if (in->id == INSN_LOOP || in->id == INSN_LOOPE || in->id == INSN_LOOPNE ||
	    in->id == INSN_JRCXZ)
		t->regs.gpr[DJ_RCX] = rnd(3) | (uint64_t)rnd(2) << 32;
	return true;
}

/* An instruction on registers `d` and `s` (8 to 15) that leaves flags behind. */
static size_t flag_setter(uint8_t *p, unsigned d, unsigned s)
{
	uint8_t *start = p;
	unsigned wide = rnd(2), kind = rnd(8);

	if (wide && chance(30))
		*p++ = 0x66;
	*p++ = (uint8_t)(0x45 | (wide && chance(50) ? 8 : 0));
	if (kind < 4) { /* add or adc sbb and sub xor cmp */
		*p++ = (uint8_t)(rnd(8) << 3 | wide);
	} else if (kind == 4) { /* inc dec */
		*p++ = (uint8_t)(0xfe | wide);
		s = 8 + rnd(2);
	} else if (kind == 5) { /* rotates and shifts by an immediate */
		*p++ = (uint8_t)(0xc0 | wide);
		s = 8 + rnd(8);
	} else if (kind == 6) { /* test */
		*p++ = (uint8_t)(0x84 | wide);
	} else { /* imul */
		*p++ = 0x0f;
		*p++ = 0xaf;
	}
	*p++ = (uint8_t)(0xc0 | (s & 7) << 3 | (d & 7));
	if (kind == 5)
		*p++ = (uint8_t)rnd(256);
	return (size_t)(p - start);
}

static bool is_ours(const struct insn *in)
{
	if (!ours[in->id] || !insn_is_emulated(in) || in->seg)
		return false;
	return !(in->attr & (INSN_A_PRIV | INSN_A_NONDET));
}

static bool make(struct trial *t, unsigned map, unsigned opcode, bool vex)
{
	encode(t->code, map, opcode, vex);
	t->main_at = 0;
	if (insn_decode(&t->in, t->code, INSN_MAX, ORACLE_CODE) <= 0 || !is_ours(&t->in))
		return false;

	/* perhaps something before it, on registers it has nothing to do with */
	uint32_t used = t->in.gpr_read | t->in.gpr_written;
	unsigned d = 8 + rnd(8), s = 8 + rnd(8);
	t->insns = 1;
	if (chance(50) && !(used >> d & 1) && !(used >> s & 1)) {
		uint8_t main_code[INSN_MAX];
		memcpy(main_code, t->code, sizeof(main_code));
		t->main_at = flag_setter(t->code, d, s);
		memcpy(t->code + t->main_at, main_code, sizeof(main_code));
		t->insns++;
	}
	uint64_t at = ORACLE_CODE + t->main_at;
	if (insn_decode(&t->in, t->code + t->main_at, INSN_MAX, at) <= 0)
		return false;

	oracle_random_regs(&t->regs, &seed);
	for (size_t i = 0; i < sizeof(t->mem); i += 8)
		put(t->mem + i, chance(30) ? rnd(256) : random_next(&seed), 8);
	if (!aim(t, at) || !prepare(t))
		return false;
	t->n = t->main_at + t->in.len;
	if (t->in.attr & INSN_A_BRANCH) {
		if (!prepare_branch(t, at))
			return false;
		t->code[t->n++] = 0xb0; /* mov al, 0x77 */
		t->code[t->n++] = 0x77;
		t->insns++;
	}
	return true;
}

/* ---- the emulator ----------------------------------------------------------------------- */

struct emu *emu;
const struct trial *current;
static unsigned n_loads, n_stores, hook_errors;

static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	uint64_t off = addr - ORACLE_CODE;

	(void)ctx;
	if (off >= current->n)
		return 0;
	size_t n = current->n - off < len ? current->n - off : len;
	memcpy(buf, current->code + off, n);
	return n;
}

void before_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx;
	n_loads++;
	if ((uint32_t)addr - ORACLE_MEM + size > ORACLE_MEM_SIZE || e->ordinal > 1) {
		hook_errors++;
		fprintf(stderr, "%s: load %u at 0x%llx\n", insn_id_name(current->in.id), e->ordinal,
			(unsigned long long)addr);
	}
}

static void after_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx, (void)addr, (void)size;
	hook_errors += e->ordinal == 0;
}

static void before_store(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx, (void)e, (void)addr, (void)size;
	n_stores++;
}

static void after_store(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			const uint8_t *bytes)
{
	(void)ctx;
	hook_errors += memcmp(e->shadow + (uint32_t)addr, bytes, size) != 0;
}

enum way { WHOLE, HOOKED, STEPPED, WAYS };

/* Run the case on the emulator in one of three ways. */
static enum emu_stop run_emu(const struct trial *t, enum way way, struct dj_regs *out, uint8_t *mem)
{
	enum emu_stop stop = EMU_STOP_STEPS;
	uint64_t end = ORACLE_CODE + t->n;

	current = t;
	emu_forget_code(emu, ORACLE_CODE, sizeof(t->code));
	emu_set_regs(emu, &t->regs, DJ_REG_ALL);
	emu->cpu.rip = ORACLE_CODE;
	memcpy(emu->shadow + ORACLE_MEM, t->mem, ORACLE_MEM_SIZE);
	emu->steps = 0;
	emu->hooks = way == HOOKED ? EMU_HOOK_IMPORT | EMU_HOOK_TRACK : 0;
	if (way == STEPPED) {
		for (unsigned i = 0; i < 100 && !stop && emu->cpu.rip != end; i++)
			stop = emu_step(emu);
	} else if (t->in.attr & INSN_A_BRANCH) {
		while (!stop && emu->cpu.rip != end && emu->steps < t->insns)
			stop = emu_run(emu, emu->steps + 1 + rnd(2));
		if (stop == EMU_STOP_FETCH && emu->cpu.rip == end)
			stop = EMU_STOP_STEPS;
	} else {
		stop = emu_run(emu, t->insns);
	}
	emu_get_regs(emu, out);
	memcpy(mem, emu->shadow + ORACLE_MEM, ORACLE_MEM_SIZE);
	return stop;
}

/* ---- comparison --------------------------------------------------------------------------- */

/* What a fault must leave alone: everything before the instruction under test is done. */
static bool fault_is_clean(const struct trial *t, const struct dj_regs *out, const uint8_t *mem)
{
	uint32_t used = t->in.gpr_read | t->in.gpr_written;

	for (unsigned i = 0; i < 16; i++)
		if ((used >> i & 1) && out->gpr[i] != t->regs.gpr[i])
			return false;
	return out->rip == ORACLE_CODE + t->main_at && emu->steps == (t->main_at != 0) &&
	       out->mxcsr == t->regs.mxcsr && !memcmp(mem, t->mem, ORACLE_MEM_SIZE);
}

static void complain(const struct trial *t, const char *what)
{
	static unsigned printed;

	if (printed++ >= 60)
		return;
	fprintf(stderr, "%s [", insn_id_name(t->in.id));
	for (size_t i = 0; i < t->n; i++)
		fprintf(stderr, "%02x", t->code[i]);
	fprintf(stderr, "]: %s\n", what);
}

static bool compare(const struct trial *t)
{
	const uint64_t parts = 0xffff | DJ_REG_RFLAGS | DJ_REG_RIP | DJ_REG_MXCSR;
	static uint8_t mem_cpu[ORACLE_MEM_SIZE], mem_emu[ORACLE_MEM_SIZE];
	struct dj_regs cpu, out;
	char text[240];

	memcpy(mem_cpu, t->mem, sizeof(mem_cpu));
	int sig = oracle_cpu(t->code, t->n, &t->regs, &cpu, mem_cpu);
	if (sig == SIGILL && insn_lacked(&t->in))
		return true;
	for (enum way way = WHOLE; way < WAYS; way++) {
		enum emu_stop stop = run_emu(t, way, &out, mem_emu);
		if (sig) {
			bool refused = sig == SIGILL && stop == EMU_STOP_UNKNOWN;
			if (stop != EMU_STOP_FAULT && !refused) {
				snprintf(text, sizeof(text),
					 "signal %d, emulator stops with %d (%s)", sig, stop,
					 emu->why);
				complain(t, text);
				return false;
			}
			if (!fault_is_clean(t, &out, mem_emu)) {
				complain(t, "a fault changed something");
				return false;
			}
			continue;
		}
		if (stop) {
			snprintf(text, sizeof(text), "emulator stops with %d: %s", stop, emu->why);
			complain(t, text);
			return false;
		}
		if (!oracle_log(&out, mem_emu)) {
			complain(t, "another result than on x86-64");
			return false;
		}
		if (!oracle_same(insn_id_name(t->in.id), t->code, t->n, &t->regs, &cpu, &out, parts,
				 FLAGS, mem_cpu, mem_emu))
			return false;
		if (!(t->in.attr & INSN_A_BRANCH) && emu->steps != t->insns) {
			complain(t, "wrong number of steps");
			return false;
		}
		if (emu->cpu.gpr[EMU_ZERO_REG]) {
			complain(t, "the zero register was written");
			return false;
		}
	}
	faults[t->in.id] += sig != 0;
	return true;
}

static void try_opcode(unsigned map, unsigned opcode, bool vex, unsigned times)
{
	static struct trial t;
	unsigned made = 0;

	for (unsigned i = 0; i < times || (made && made < times && i < 4 * times); i++) {
		if (!make(&t, map, opcode, vex))
			continue;
		made++;
		seen[t.in.id][t.in.has_mem]++;
		if (t.in.map == map && t.in.opcode == opcode) /* no prefix byte */
			place_of[t.in.id] = (struct place){ (uint8_t)map, (uint8_t)opcode, vex };
		if (!compare(&t))
			bad[t.in.id]++;
	}
}

static void test_against_cpu(void)
{
	static const uint16_t no_cpu[] = { INSN_UD, INSN_INT3 };

	if (!oracle_ready()) {
		printf("(no such CPU) ");
		return;
	}
	for (unsigned op = 0; op < 256; op++) {
		if (op != 0x0f)
			try_opcode(0, op, false, 350);
		try_opcode(1, op, false, 350);
		try_opcode(2, op, false, 150);
		try_opcode(2, op, true, 300);
		try_opcode(3, op, true, 100);
	}
	try_opcode(1, 0xae, true, 4000);
	/* those that share their opcode with many others */
	for (unsigned id = 0; id < ID_MAX; id++) {
		const struct place *p = &place_of[id];
		for (unsigned i = 0; i < 40 && ours[id] && seen[id][0] + seen[id][1] < ENOUGH &&
				     (seen[id][0] || seen[id][1]);
		     i++)
			try_opcode(p->map, p->opcode, p->vex, 200);
	}
	for (size_t i = 0; i < sizeof(no_cpu) / sizeof(no_cpu[0]); i++)
		ours[no_cpu[i]] = false;
	unsigned total = 0, faulted = 0;
	for (unsigned id = 0; id < ID_MAX; id++) {
		unsigned n = seen[id][0] + seen[id][1];
		total += n;
		faulted += faults[id];
		if (bad[id])
			fprintf(stderr, "%s: %u of %u wrong\n", insn_id_name(id), bad[id], n);
		CU_ASSERT(bad[id] == 0);
		if (ours[id] && n < ENOUGH)
			fprintf(stderr, "%s: only %u cases\n", insn_id_name(id), n);
		CU_ASSERT(!ours[id] || n >= ENOUGH);
	}
	CU_ASSERT(hook_errors == 0);
	CU_ASSERT(n_loads && n_stores);
	printf("(%u cases, %u of them faults) ", total, faulted);
}

static int set_up(void)
{
	struct dj_error err;

#define X(name) ours[INSN_##name] = true;
	INSN_LIST_INT(X)
	INSN_LIST_STRING(X)
#undef X
	ours[INSN_LDMXCSR] = ours[INSN_STMXCSR] = true;
	ours[INSN_VLDMXCSR] = ours[INSN_VSTMXCSR] = true;
	emu = emu_new(&err);
	if (!emu) {
		fprintf(stderr, "%s\n", err.text);
		return -1;
	}
	emu->fetch = fetch;
	emu->before_load = before_load;
	emu->after_load = after_load;
	emu->before_store = before_store;
	emu->after_store = after_store;
	emu->exact = true;
	emu->kind = oracle_kind();
	return 0;
}

static int tear_down(void)
{
	emu_free(emu);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)seed);
	suites_begin();
	CU_pSuite s = CU_add_suite("emu-int", set_up, tear_down);
	CU_add_test(s, "integer and string instructions against the CPU", test_against_cpu);
	CU_add_test(s, "REP at once and by elements", test_rep_in_bulk);
	CU_add_test(s, "runs cut anywhere", test_cuts);
	CU_add_test(s, "as either kind of processor", test_kinds);
	return suites_run();
}
