/* Memory that is written by instructions of which the emulator does not make the stores, and read
 * by such, in functions of their own. What lies there afterwards is printed, a line for each: the
 * function, and the bytes from the beginning of `areas` on. Before it is 0xa5 everywhere, headers
 * are 0. */
#include <cpuid.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define KEEP __attribute__((noinline, noclone))
#define AREA 1024

unsigned char areas[AREA] __attribute__((aligned(64)));
static const uint64_t vector[4] = { 0x1111222233334444, 0x5555666677778888, 0x9999aaaabbbbcccc,
				    0xddddeeeeffff0000 };

KEEP void with_fxsave(void)
{
	__asm__ volatile("fldpi\n\tmovdqu %1, %%xmm3\n\tfxsave64 %0\n\tfstp %%st(0)"
			 : "+m"(areas)
			 : "m"(vector)
			 : "xmm3");
}

#define SAVE(name, instruction, mask)                                                              \
	KEEP void name(void)                                                                       \
	{                                                                                          \
		__asm__ volatile("fldpi\n\tvmovdqu %1, %%ymm3\n\t" instruction                     \
				 " %0\n\tfstp %%st(0)\n\tvzeroupper"                               \
				 : "+m"(areas)                                                     \
				 : "m"(vector), "a"(mask), "d"(0)                                  \
				 : "xmm3");                                                        \
	}
SAVE(with_xsave, "xsave64", 7)
SAVE(with_xsave_6, "xsave64", 6)
SAVE(with_xsavec, "xsavec64", 7)
SAVE(with_xsavec_2, "xsavec64", 2)
SAVE(with_xsaveopt, "xsaveopt64", 7)

KEEP void with_fnsave(void)
{
	__asm__ volatile("fldpi\n\tfnsave %0" : "+m"(areas));
}

KEEP void with_pushfw(void)
{
	unsigned char *top = areas + 64;
	__asm__ volatile("xchg %0, %%rsp\n\tpushfw\n\txchg %0, %%rsp" : "+r"(top) : : "memory");
}

KEEP void with_stos(void)
{
	void *to = areas + 100;
	long n = 7;
	__asm__ volatile("addr32 rep stosw" : "+D"(to), "+c"(n) : "a"(0x1234) : "memory");
}

KEEP void with_stos_down(void)
{
	void *to = areas + 100;
	long n = 5;
	__asm__ volatile("std\n\taddr32 rep stosb\n\tcld"
			 : "+D"(to), "+c"(n)
			 : "a"(0x12)
			 : "memory");
}

/* The first, third and eleventh byte of 16, with fs before the address. */
KEEP void with_maskmov(void)
{
	static const unsigned char chosen[16] = { 0x80, 0, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0xc0 };
	__asm__ volatile("mov %%fs:0, %%rax\n\tlea %0, %%rdi\n\tsub %%rax, %%rdi\n\t"
			 "movdqu %1, %%xmm1\n\tmovdqu %2, %%xmm2\n\t"
			 "fs maskmovdqu %%xmm2, %%xmm1"
			 : "+m"(areas)
			 : "m"(vector), "m"(chosen)
			 : "rax", "rdi", "xmm1", "xmm2");
}

/* mm registers are the x87 stack's: of 8 bytes, the second and the last. */
KEEP void with_maskmovq(void)
{
	static const unsigned char chosen[8] = { 0, 0x80, 0, 0, 0, 0, 0, 0x80 };
	__asm__ volatile("mov %%fs:0, %%rax\n\tlea %0, %%rdi\n\tsub %%rax, %%rdi\n\t"
			 "movq %1, %%mm1\n\tmovq %2, %%mm2\n\t"
			 "fs maskmovq %%mm2, %%mm1\n\temms"
			 : "+m"(areas)
			 : "m"(vector), "m"(chosen)
			 : "rax", "rdi", "mm1", "mm2");
}

#define WIDE(name, instructions)                                                                   \
	KEEP void name(void)                                                                       \
	{                                                                                          \
		static const int places[8] = { 0, 3, 50, 9, 20, 21, 30, 40 };                      \
		__asm__ volatile("vmovdqu %1, %%ymm3\n\tvmovdqu %2, %%ymm4\n\t"                    \
				 "lea %0, %%rdi\n\txor %%ecx, %%ecx\n\tmov $0x35, %%eax\n\t"       \
				 "kmovb %%eax, %%k1\n\t" instructions "\n\tvzeroupper"             \
				 : "+m"(areas)                                                     \
				 : "m"(vector), "m"(places)                                        \
				 : "rax", "rcx", "rdi", "xmm3", "xmm4", "xmm5");                   \
	}
WIDE(with_zmm, "vmovdqu64 %%zmm3, 128(%%rdi, %%rcx, 2)")
WIDE(with_ymm_masked, "vmovdqu32 %%ymm3, 32(%%rdi)%{%%k1%}")
WIDE(with_narrow, "vpmovdb %%zmm3, 16(%%rdi)")
WIDE(with_part, "vextracti32x4 $1, %%ymm3, 48(%%rdi)%{%%k1%}")
WIDE(with_scalar, "%{evex%} vmovss %%xmm3, 12(%%rdi)")
WIDE(with_scatter, "kxnorb %%k2, %%k2, %%k2\n\tvpscatterdd %%ymm3, 8(%%rdi, %%ymm4, 4)%{%%k2%}")
WIDE(reads_zmm, "vpaddd 64(%%rdi), %%zmm3, %%zmm3")
WIDE(reads_one, "vpaddd 4(%%rdi)%{1to16%}, %%zmm3, %%zmm3")
WIDE(reads_gather, "kxnorb %%k2, %%k2, %%k2\n\tvpgatherdq (%%rdi, %%xmm4, 2), %%ymm5%{%%k2%}")

KEEP void reads_rcpps(void)
{
	__asm__ volatile("rcpps 16+%0, %%xmm3" : "+m"(areas) : : "xmm3");
}

KEEP void reads_environment(void)
{
	__asm__ volatile("fnstenv 64+%0\n\tfldenv 64+%0" : "+m"(areas));
}

KEEP void reads_strings(void)
{
	void *from = areas + 200, *to = areas + 300;
	long n = 3;
	__asm__ volatile("addr32 rep movsl" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static void look(const char *name, void (*save)(void))
{
	memset(areas, 0xa5, sizeof(areas));
	memset(areas + 512, 0, 64);
	save();
	printf("%s ", name);
	for (unsigned i = 0; i < AREA; i++)
		printf("%02x", areas[i]);
	puts("");
}
#define LOOK(name) look(#name, name)

/* What CPUID says while a program is recorded is no. */
static int wide_vectors(void)
{
	char line[8192];
	FILE *f = fopen("/proc/cpuinfo", "r");
	int is = 0;

	while (f && fgets(line, sizeof(line), f))
		is |= !strncmp(line, "flags", 5) && strstr(line, " avx512vl") &&
		      strstr(line, " avx512dq");
	if (f)
		fclose(f);
	return is;
}

int main(void)
{
	unsigned a, b, c, d;

	LOOK(with_fxsave);
	LOOK(with_fnsave);
	LOOK(with_pushfw);
	LOOK(with_stos);
	LOOK(with_stos_down);
	LOOK(with_maskmov);
	LOOK(with_maskmovq);
	reads_rcpps();
	reads_environment();
	reads_strings();
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
		return 0;
	LOOK(with_xsave);
	LOOK(with_xsave_6);
	if (!__get_cpuid_count(13, 1, &a, &b, &c, &d))
		return 0;
	if (a & 1)
		LOOK(with_xsaveopt);
	if (a & 2) {
		LOOK(with_xsavec);
		LOOK(with_xsavec_2);
	}
	if (wide_vectors()) {
		LOOK(with_zmm);
		LOOK(with_ymm_masked);
		LOOK(with_narrow);
		LOOK(with_part);
		LOOK(with_scalar);
		LOOK(with_scatter);
		reads_zmm();
		reads_one();
		reads_gather();
	}
	return 0;
}
