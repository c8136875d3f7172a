/* Memory that is written by instructions of which the emulator does not make the stores, in
 * functions of their own. What lies there afterwards is printed, a line for each: the function, and
 * the bytes from the beginning of `areas` on. Before it is 0xa5 everywhere, headers are 0. */
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

int main(void)
{
	unsigned a, b, c, d;

	LOOK(with_fxsave);
	LOOK(with_fnsave);
	LOOK(with_pushfw);
	LOOK(with_stos);
	LOOK(with_stos_down);
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
	return 0;
}
