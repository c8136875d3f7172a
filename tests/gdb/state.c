/*
 * What instructions write without the replay's knowing it: registers stored by fxsave and its kin,
 * and what is executed natively. The places are full of 'U's before. At here() the program has not
 * looked at them yet, nor does it for so long that nobody looks ahead to where it does: what the
 * debugger shows then must be what copies() finds.
 */
#include <cpuid.h>
#include <string.h>

#define BYTES 832

static _Alignas(64) unsigned char places[5][BYTES], copies[5][BYTES];
static volatile unsigned long counted;

static __attribute__((noinline)) void here(void)
{
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void done(void)
{
	__asm__ volatile("" ::: "memory");
}

static int has_xsavec(void)
{
	unsigned a, b, c, d;

	return __get_cpuid_count(0xd, 1, &a, &b, &c, &d) && (a & 2);
}

/* Headers must be zero for XSAVE, which changes bits of them only (SDM vol. 1, 13.7). */
static void store(void)
{
	static const double values[4] = { 1.5, 2.5, 3.5, 4.5 };

	memset(places[0] + 512, 0, 64);
	__asm__ volatile("movupd (%0), %%xmm7; movupd 16(%0), %%xmm3; fld1; fldpi" ::"r"(values));
	__asm__ volatile("xsave64 %0" : "+m"(places[0]) : "a"(~0), "d"(~0));
	if (has_xsavec()) {
		__asm__ volatile("xsavec64 %0" : "+m"(places[1]) : "a"(6), "d"(0));
		__asm__ volatile("xsavec %0" : "+m"(places[2]) : "a"(3), "d"(~0));
	}
	__asm__ volatile("fxsave64 (%1)" : "+m"(places[3]) : "r"(places[3]));
	__asm__ volatile("fnsave %0; frstor %0; fstp %%st(0); fstp %%st(0)"
			 : "+m"(places[4])::"memory");
}

int main(void)
{
	memset(places, 'U', sizeof(places));
	store();
	here();
	for (counted = 0; counted < 300000;)
		counted++;
	memcpy(copies, places, sizeof(copies));
	done();
	return 0;
}
