/*
 * softfp.c and hostfp.h against the CPU's SSE: random operands and MXCSR, results and flags
 * compared; then the same with exceptions unmasked, where the CPU's flags at SIGFPE count.
 * On other machines hostfp.h and softfp.c are compared with one another only.
 */
#include "format/cpu.h"
#include "emu/hostfp.h"
#include "emu/softfp.h"
#include "tests/lib/fp-operands.h"
#include "tests/lib/random.h"
#include "tests/lib/suites.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define SEED  20261121u
#define CASES 60000

typedef uint64_t fn(uint64_t a, uint64_t b, uint64_t c, uint32_t *csr);

/* ---- ours: results and flags like an instruction ------------------------------------------ */

#define SOFT(NAME, CALL)                                                                           \
	static uint64_t soft_##NAME(uint64_t a, uint64_t b, uint64_t c, uint32_t *csr)             \
	{                                                                                          \
		struct sfp sfp = { .csr = *csr }, *s = &sfp;                                       \
		(void)a, (void)b, (void)c;                                                         \
		uint64_t r = CALL;                                                                 \
		*csr |= s->flags;                                                                  \
		return r;                                                                          \
	}
#define SOFT_BOTH(NAME, CALL32, CALL64) SOFT(NAME##32, CALL32) SOFT(NAME##64, CALL64)
#define BINARY(NAME)                                                                               \
	SOFT_BOTH(NAME, sfp_##NAME##32((uint32_t)a, (uint32_t)b, s), sfp_##NAME##64(a, b, s))
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(min)
BINARY(max)
SOFT_BOTH(sqrt, sfp_sqrt32((uint32_t)b, s), sfp_sqrt64(b, s))
SOFT_BOTH(fma, sfp_fma32((uint32_t)a, (uint32_t)b, (uint32_t)c, 0, s), sfp_fma64(a, b, c, 0, s))
SOFT_BOTH(fnmsub, sfp_fma32((uint32_t)a, (uint32_t)b, (uint32_t)c, 3, s), sfp_fma64(a, b, c, 3, s))
SOFT_BOTH(cmplt, sfp_cmp32((uint32_t)a, (uint32_t)b, true, s) & SFP_LT ? ~0u : 0,
	  sfp_cmp64(a, b, true, s) & SFP_LT ? ~0ull : 0)
SOFT_BOTH(cmpeq, sfp_cmp32((uint32_t)a, (uint32_t)b, false, s) & SFP_EQ ? ~0u : 0,
	  sfp_cmp64(a, b, false, s) & SFP_EQ ? ~0ull : 0)
SOFT_BOTH(rint, sfp_rint32((uint32_t)b, sfp_rm(s), s), sfp_rint64(b, sfp_rm(s), s))
SOFT_BOTH(toi32, sfp_f32_to_i32((uint32_t)b, sfp_rm(s), s), sfp_f64_to_i32(b, sfp_rm(s), s))
SOFT_BOTH(toi64, sfp_f32_to_i64((uint32_t)b, sfp_rm(s), s), sfp_f64_to_i64(b, sfp_rm(s), s))
SOFT_BOTH(truncate, sfp_f32_to_i64((uint32_t)b, SFP_ZERO, s), sfp_f64_to_i64(b, SFP_ZERO, s))
SOFT_BOTH(fromi32, sfp_i32_to_f32((int32_t)b, s), sfp_i32_to_f64((int32_t)b, s))
SOFT_BOTH(fromi64, sfp_i64_to_f32((int64_t)b, s), sfp_i64_to_f64((int64_t)b, s))
SOFT(widen32, sfp_f32_to_f64((uint32_t)b, s))
SOFT(narrow64, sfp_f64_to_f32(b, s))
SOFT(fromhalf32, sfp_f16_to_f32((uint16_t)b, s))
static bool on_amd;
SOFT(tohalf32, on_amd ? sfp_f32_to_f16((uint32_t)b, sfp_rm(s), s)
		      : sfp_f32_to_f16_intel((uint32_t)b, sfp_rm(s), s))

/* The host's operation as the emulator uses it. */
#define HOSTED(NAME, W, ...)                                                                       \
	static uint64_t host_##NAME##W(uint64_t a, uint64_t b, uint64_t c, uint32_t *csr)          \
	{                                                                                          \
		uint##W##_t r;                                                                     \
		(void)a, (void)b, (void)c;                                                         \
		if (!(*csr & SFP_RC) &&                                                            \
		    hostfp_##NAME##W(__VA_ARGS__, (*csr & 0x1020) != 0x1020, &r))                  \
			return r;                                                                  \
		return soft_##NAME##W(a, b, c, csr);                                               \
	}
#define HOSTED_BOTH(NAME)                                                                          \
	HOSTED(NAME, 32, (uint32_t)a, (uint32_t)b)                                                 \
	HOSTED(NAME, 64, a, b)
HOSTED_BOTH(add)
HOSTED_BOTH(sub)
HOSTED_BOTH(mul)
HOSTED_BOTH(div)
HOSTED(sqrt, 32, (uint32_t)b)
HOSTED(sqrt, 64, b)
HOSTED(fma, 32, (uint32_t)a, (uint32_t)b, (uint32_t)c)
HOSTED(fma, 64, a, b, c)

/* ---- the CPU ------------------------------------------------------------------------------ */

#ifdef __x86_64__
static const uint32_t default_csr = 0x1f80;

/* Load operands, then MXCSR, one instruction, MXCSR back, our own MXCSR. */
#define AROUND(TEXT) "ldmxcsr %[csr]\n\t" TEXT "\n\tstmxcsr %[csr]\n\tldmxcsr %[own]"
#define CPU_XMM(NAME, TEXT)                                                                        \
	static uint64_t cpu_##NAME(uint64_t a, uint64_t b, uint64_t c, uint32_t *csr)              \
	{                                                                                          \
		__m128i x = _mm_cvtsi64_si128((int64_t)a), y = _mm_cvtsi64_si128((int64_t)b),      \
			z = _mm_cvtsi64_si128((int64_t)c);                                         \
		__asm__ volatile(AROUND(TEXT)                                                      \
				 : [x] "+x"(x), [csr] "+m"(*csr)                                   \
				 : [y] "x"(y), [z] "x"(z), [own] "m"(default_csr));                \
		return (uint64_t)_mm_cvtsi128_si64(x);                                             \
	}
#define CPU_TO_GPR(NAME, TEXT)                                                                     \
	static uint64_t cpu_##NAME(uint64_t a, uint64_t b, uint64_t c, uint32_t *csr)              \
	{                                                                                          \
		__m128i y = _mm_cvtsi64_si128((int64_t)b);                                         \
		uint64_t r;                                                                        \
		(void)a, (void)c;                                                                  \
		__asm__ volatile(AROUND(TEXT)                                                      \
				 : [x] "=&r"(r), [csr] "+m"(*csr)                                  \
				 : [y] "x"(y), [own] "m"(default_csr));                            \
		return r;                                                                          \
	}
#define CPU_FROM_GPR(NAME, TEXT)                                                                   \
	static uint64_t cpu_##NAME(uint64_t a, uint64_t b, uint64_t c, uint32_t *csr)              \
	{                                                                                          \
		__m128i x = _mm_setzero_si128();                                                   \
		(void)a, (void)c;                                                                  \
		__asm__ volatile(AROUND(TEXT)                                                      \
				 : [x] "+x"(x), [csr] "+m"(*csr)                                   \
				 : [y] "r"(b), [own] "m"(default_csr));                            \
		return (uint64_t)_mm_cvtsi128_si64(x);                                             \
	}
#define CPU_XMM_BOTH(NAME, MNEMONIC, REST)                                                         \
	CPU_XMM(NAME##32, MNEMONIC "ss " REST) CPU_XMM(NAME##64, MNEMONIC "sd " REST)
CPU_XMM_BOTH(add, "add", "%[y], %[x]")
CPU_XMM_BOTH(sub, "sub", "%[y], %[x]")
CPU_XMM_BOTH(mul, "mul", "%[y], %[x]")
CPU_XMM_BOTH(div, "div", "%[y], %[x]")
CPU_XMM_BOTH(min, "min", "%[y], %[x]")
CPU_XMM_BOTH(max, "max", "%[y], %[x]")
CPU_XMM_BOTH(sqrt, "sqrt", "%[y], %[x]")
CPU_XMM_BOTH(fma, "vfmadd132", "%[y], %[z], %[x]")
CPU_XMM_BOTH(fnmsub, "vfnmsub132", "%[y], %[z], %[x]")
CPU_XMM_BOTH(cmplt, "cmplt", "%[y], %[x]")
CPU_XMM_BOTH(cmpeq, "cmpeq", "%[y], %[x]")
CPU_XMM_BOTH(rint, "round", "$4, %[y], %[x]")
CPU_TO_GPR(toi3232, "cvtss2si %[y], %k[x]")
CPU_TO_GPR(toi3264, "cvtsd2si %[y], %k[x]")
CPU_TO_GPR(toi6432, "cvtss2si %[y], %[x]")
CPU_TO_GPR(toi6464, "cvtsd2si %[y], %[x]")
CPU_TO_GPR(truncate32, "cvttss2si %[y], %[x]")
CPU_TO_GPR(truncate64, "cvttsd2si %[y], %[x]")
CPU_FROM_GPR(fromi3232, "cvtsi2ss %k[y], %[x]")
CPU_FROM_GPR(fromi3264, "cvtsi2sd %k[y], %[x]")
CPU_FROM_GPR(fromi6432, "cvtsi2ss %q[y], %[x]")
CPU_FROM_GPR(fromi6464, "cvtsi2sd %q[y], %[x]")
CPU_XMM(widen32, "cvtss2sd %[y], %[x]")
CPU_XMM(narrow64, "cvtsd2ss %[y], %[x]")
CPU_XMM(fromhalf32, "vcvtph2ps %[y], %[x]")
CPU_XMM(tohalf32, "vcvtps2ph $4, %[y], %[x]")
#define CPU(NAME) cpu_##NAME
static bool have_cpu(void)
{
	return __builtin_cpu_supports("avx2");
}
#else
#define CPU(NAME) soft_##NAME
static bool have_cpu(void)
{
	return false;
}
#endif

/* ---- comparing ----------------------------------------------------------------------------- */

enum { FLOATS, INTEGERS, HALVES };

static const struct op {
	const char *name;
	int width, result, kind; /* bits of operands and result */
	fn *cpu, *soft, *host;
	/* clang-format off */
} ops[] = {
#define OP(NAME, W, WR, KIND) {#NAME #W, W, WR, KIND, CPU(NAME##W), soft_##NAME##W, NULL},
#define OPH(NAME, W) {#NAME #W, W, W, FLOATS, CPU(NAME##W), soft_##NAME##W, host_##NAME##W},
	OPH(add, 32) OPH(add, 64) OPH(sub, 32) OPH(sub, 64) OPH(mul, 32) OPH(mul, 64)
	OPH(div, 32) OPH(div, 64) OPH(sqrt, 32) OPH(sqrt, 64) OPH(fma, 32) OPH(fma, 64)
	OP(fnmsub, 32, 32, FLOATS) OP(fnmsub, 64, 64, FLOATS)
	OP(min, 32, 32, FLOATS) OP(min, 64, 64, FLOATS)
	OP(max, 32, 32, FLOATS) OP(max, 64, 64, FLOATS)
	OP(cmplt, 32, 32, FLOATS) OP(cmplt, 64, 64, FLOATS)
	OP(cmpeq, 32, 32, FLOATS) OP(cmpeq, 64, 64, FLOATS)
	OP(rint, 32, 32, FLOATS) OP(rint, 64, 64, FLOATS)
	OP(toi32, 32, 32, FLOATS) OP(toi32, 64, 32, FLOATS)
	OP(toi64, 32, 64, FLOATS) OP(toi64, 64, 64, FLOATS)
	OP(truncate, 32, 64, FLOATS) OP(truncate, 64, 64, FLOATS)
	OP(fromi32, 32, 32, INTEGERS) OP(fromi32, 64, 64, INTEGERS)
	OP(fromi64, 32, 32, INTEGERS) OP(fromi64, 64, 64, INTEGERS)
	OP(widen, 32, 64, FLOATS) OP(narrow, 64, 32, FLOATS)
	OP(fromhalf, 32, 32, HALVES) OP(tohalf, 32, 16, FLOATS)
};
/* clang-format on */

static uint64_t operand(const struct op *o, uint64_t *seed, uint64_t near)
{
	if (o->kind == INTEGERS) {
		uint64_t r = random_next(seed);
		return (uint64_t)((int64_t)random_next(seed) >> (r & 63)) << (r >> 8 & 31);
	}
	if (o->kind == HALVES)
		return fp_rand_operand(seed, 10, 5, near);
	if (o->width == 32)
		return fp_rand_operand(seed, 23, 8, near);
	/* doubles at the edges of floats and halves */
	if (!strncmp(o->name, "narrow", 6) && random_next(seed) % 2)
		return fp_rand_operand(seed, 52, 11,
				       (uint64_t)(1023 + (random_next(seed) & 1 ? 127 : -127))
					       << 52);
	return fp_rand_operand(seed, 52, 11, near);
}

static uint64_t narrow_to(int bits, uint64_t x)
{
	return bits == 64 ? x : x & ((1ULL << bits) - 1);
}

static int complaints;

static bool compare(const struct op *o, const char *who, const uint64_t in[3], uint32_t csr,
		    uint64_t want, uint32_t want_csr, uint64_t got, uint32_t got_csr)
{
	want = narrow_to(o->result, want);
	got = narrow_to(o->result, got);
	if (want == got && want_csr == got_csr)
		return true;
	if (complaints++ < 40)
		fprintf(stderr,
			"\n%s %s(%#llx, %#llx, %#llx) mxcsr %#x: want %#llx mxcsr %#x, got %#llx "
			"mxcsr %#x",
			who, o->name, (long long)in[0], (long long)in[1], (long long)in[2], csr,
			(long long)want, want_csr, (long long)got, got_csr);
	return false;
}

static void inputs(const struct op *o, uint64_t *seed, uint64_t in[3])
{
	in[0] = operand(o, seed, 0x3ff0000000000000ULL);
	if (o->width == 32 && o->kind == FLOATS)
		in[0] = operand(o, seed, 0x3f800000);
	in[1] = operand(o, seed, in[0]);
	in[2] = operand(o, seed, in[0]);
	/* fma: addends about as large as the product */
	if ((!strncmp(o->name, "fma", 3) || !strncmp(o->name, "fnm", 3)) && random_next(seed) % 2) {
		uint32_t csr = 0x1f80 | (random_next(seed) & 3) << 13;
		uint64_t p = o->width == 32 ? soft_mul32(in[0], in[1], 0, &csr)
					    : soft_mul64(in[0], in[1], 0, &csr);
		in[2] = operand(o, seed, p);
		if (random_next(seed) & 1)
			in[2] = p ^ (random_next(seed) & 1) << (o->width - 1) ^
				(random_next(seed) & 1);
	}
}

static void test_masked(void)
{
	uint64_t seed = SEED, bad = 0;

	for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
		const struct op *o = &ops[k];
		for (int n = 0; n < CASES; n++) {
			uint64_t in[3];
			uint32_t csr = fp_rand_csr(&seed), a = csr, b = csr, c = csr;
			inputs(o, &seed, in);
			uint64_t r = have_cpu() ? o->cpu(in[0], in[1], in[2], &a)
						: o->soft(in[0], in[1], in[2], &a);
			uint64_t s = o->soft(in[0], in[1], in[2], &b);
			bad += !compare(o, "soft", in, csr, r, a, s, b);
			if (o->host) {
				s = o->host(in[0], in[1], in[2], &c);
				bad += !compare(o, "host", in, csr, r, a, s, c);
			}
		}
	}
	CU_ASSERT_EQUAL(bad, 0);
}

#ifdef __x86_64__
static sigjmp_buf back;
static volatile uint32_t fault_csr;

static void on_fpe(int sig, siginfo_t *si, void *context)
{
	ucontext_t *uc = context;
	(void)sig, (void)si;
	fault_csr = uc->uc_mcontext.fpregs->mxcsr;
	siglongjmp(back, 1);
}

/* What emu_fp_raise() in emu-fp.c leaves in MXCSR. */
static bool raises(uint32_t before, uint32_t flags, uint32_t *after)
{
	uint32_t unmasked = flags & ~(before >> SFP_MASK_SHIFT) & SFP_FLAGS;
	if (unmasked & (SFP_IE | SFP_DE | SFP_ZE))
		flags &= SFP_IE | SFP_DE | SFP_ZE;
	*after = before | flags;
	return unmasked;
}

static void test_unmasked(void)
{
	struct sigaction sa = { .sa_sigaction = on_fpe, .sa_flags = SA_SIGINFO | SA_NODEFER }, old;
	static uint64_t seed = SEED + 1, bad, in[3], r, s;
	static uint32_t csr, a, b;
	static size_t k;
	static int n;

	if (!have_cpu())
		return;
	sigaction(SIGFPE, &sa, &old);
	for (k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
		const struct op *o = &ops[k];
		for (n = 0; n < CASES / 20; n++) {
			csr = fp_rand_csr(&seed) & ~(random_next(&seed) & 0x1f80);
			inputs(o, &seed, in);
			a = csr;
			bool fault = sigsetjmp(back, 1);
			if (!fault)
				r = o->cpu(in[0], in[1], in[2], &a);
			else
				a = fault_csr;
			struct sfp flags = { .csr = csr };
			b = csr & ~SFP_FLAGS;
			s = o->soft(in[0], in[1], in[2], &b);
			flags.flags = b & SFP_FLAGS;
			bool want = raises(csr, flags.flags, &b);
			if (fault != want) {
				bad++;
				fprintf(stderr, "\n%s raised %d, not %d: %#llx mxcsr %#x to %#x",
					o->name, fault, want, (long long)in[1], csr, a);
			}
			bad += !compare(o, fault ? "fault" : "no fault", in, csr, fault ? 0 : r, a,
					fault ? 0 : s, b);
		}
	}
	sigaction(SIGFPE, &old, NULL);
	CU_ASSERT_EQUAL(bad, 0);
}

/* Packed: the elements' flags together decide. */
#define CPU_PACKED(NAME)                                                                           \
	static void cpu_##NAME(const uint32_t *a, const uint32_t *b, uint32_t *csr)                \
	{                                                                                          \
		__m128i x = _mm_loadu_si128((const void *)a);                                      \
		__asm__ volatile(                                                                  \
			AROUND(#NAME " %[y], %[x]")                                                \
			: [x] "+x"(x), [csr] "+m"(*csr)                                            \
			: [y] "x"(_mm_loadu_si128((const void *)b)), [own] "m"(default_csr));      \
	}
CPU_PACKED(addps)
CPU_PACKED(mulps)
CPU_PACKED(divps)
CPU_PACKED(sqrtps)

static void test_unmasked_packed(void)
{
	static const struct {
		void (*cpu)(const uint32_t *, const uint32_t *, uint32_t *);
		fn *soft;
	} packed[] = { { cpu_addps, soft_add32 },
		       { cpu_mulps, soft_mul32 },
		       { cpu_divps, soft_div32 },
		       { cpu_sqrtps, soft_sqrt32 } };
	struct sigaction sa = { .sa_sigaction = on_fpe, .sa_flags = SA_SIGINFO | SA_NODEFER }, old;
	static uint64_t seed = SEED + 2;
	static uint32_t in[2][4], csr, a, b, all;
	static unsigned bad, k;
	static int n;

	if (!have_cpu())
		return;
	sigaction(SIGFPE, &sa, &old);
	for (k = 0; k < 4; k++) {
		for (n = 0; n < CASES / 5; n++) {
			all = 0;
			csr = fp_rand_csr(&seed) &
			      ~(random_next(&seed) & random_next(&seed) & 0x1f80);
			for (int i = 0; i < 4; i++) {
				bool tame = random_next(&seed) & 1;
				in[0][i] = (uint32_t)fp_rand_operand(&seed, 23, 8, 0x3f800000);
				in[1][i] = (uint32_t)fp_rand_operand(&seed, 23, 8, in[0][i]);
				if (tame)
					in[0][i] = in[1][i] = 0x3f800000;
				b = csr & ~SFP_FLAGS;
				packed[k].soft(in[0][i], in[1][i], 0, &b);
				all |= b & SFP_FLAGS;
			}
			a = csr;
			bool fault = sigsetjmp(back, 1);
			if (!fault)
				packed[k].cpu(in[0], in[1], &a);
			else
				a = fault_csr;
			bool want = raises(csr, all, &b);
			if ((fault != want || a != b) && bad++ < 10)
				fprintf(stderr, "\npacked %u: %#x to %#x (%d), ours %#x (%d)", k,
					csr, a, fault, b, want);
		}
	}
	sigaction(SIGFPE, &old, NULL);
	CU_ASSERT_EQUAL(bad, 0);
}
#else
static void test_unmasked(void)
{
}
static void test_unmasked_packed(void)
{
}
#endif

/* A denormal with underflow unmasked: inexact only on Intel's. */
static void test_kinds(void)
{
	struct sfp intel = { .csr = 0x1780 }, amd = intel;

	sfp_f32_to_f16_intel(0x400000, SFP_NEAREST, &intel);
	sfp_f32_to_f16(0x400000, SFP_NEAREST, &amd);
	CU_ASSERT_EQUAL(intel.flags, SFP_DE | SFP_UE | SFP_PE);
	CU_ASSERT_EQUAL(amd.flags, SFP_DE | SFP_UE);
}

int main(void)
{
	CU_pSuite suite;

	suites_begin();
	printf("seed %u\n", SEED);
	on_amd = dj_cpu_host() != DJ_CPU_INTEL;
	suite = CU_add_suite("softfp", NULL, NULL);
	CU_add_test(suite, "results and flags", test_masked);
	CU_add_test(suite, "unmasked exceptions", test_unmasked);
	CU_add_test(suite, "unmasked exceptions, packed", test_unmasked_packed);
	CU_add_test(suite, "as either kind of processor", test_kinds);
	return suites_run();
}
