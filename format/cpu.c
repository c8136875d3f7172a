/* Telling processors apart (format/cpu.h). CPUID: SDM vol. 2A; AMD64 APM vol. 3, appendix E. */
#include "format/cpu.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char keeps[] = ", BSF keeps flags";

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static void vendor(char text[13])
{
	uint32_t r[4] = { 0 };

	__get_cpuid(0, &r[0], &r[1], &r[2], &r[3]);
	memcpy(text, &r[1], 4);
	memcpy(text + 4, &r[3], 4);
	memcpy(text + 8, &r[2], 4);
	text[12] = 0;
}

static void brand(char text[49])
{
	uint32_t r[12] = { 0 };

	for (unsigned i = 0; i < 3; i++)
		__get_cpuid(0x80000002 + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
	memcpy(text, r, 48);
	text[48] = 0;
	for (size_t n = strlen(text); n && text[n - 1] == ' '; n--)
		text[n - 1] = 0;
	memmove(text, text + strspn(text, " "), strlen(text + strspn(text, " ")) + 1);
}

static bool bsf_keeps_flags(void)
{
	uint64_t to = 0, from = 1;
	bool carry;

	__asm__ volatile("stc\n\tbsf %2, %0" : "+r"(to), "=@ccc"(carry) : "r"(from));
	return carry;
}

void dj_cpu_describe(char *buf, size_t size)
{
	char name[49], maker[13];
	uint32_t a = 0, ignored;

	brand(name);
	vendor(maker);
	__get_cpuid(1, &a, &ignored, &ignored, &ignored);
	unsigned family = a >> 8 & 15, model = a >> 4 & 15;
	if (family == 6 || family == 15)
		model |= a >> 12 & 0xf0;
	if (family == 15)
		family += a >> 20 & 0xff;
	snprintf(buf, size, "%s (%s family %u model %u%s)", name[0] ? name : "unnamed", maker,
		 family, model, bsf_keeps_flags() ? keeps : "");
}

bool dj_cpu_has(enum dj_cpu_extension which)
{
	static _Atomic uint64_t known; /* bit 31: it has been asked */
	uint32_t a, b = 0, c = 0, d;

	if (!known) {
		__get_cpuid_count(7, 0, &a, &b, &c, &d);
		known = (uint64_t)b << 32 | c | 1u << 31;
	}
	return known >> which & 1;
}

#else

bool dj_cpu_has(enum dj_cpu_extension which)
{
	(void)which;
	return false;
}

void dj_cpu_describe(char *buf, size_t size)
{
	snprintf(buf, size, "unknown");
}

#endif

enum dj_cpu_kind dj_cpu_host(void)
{
	static atomic_int known = -1; /* CPUID takes long in a virtual machine */

	if (known < 0) {
		char line[128];
		dj_cpu_describe(line, sizeof(line));
		known = dj_cpu_kind_of(line);
	}
	return (enum dj_cpu_kind)known;
}

enum dj_cpu_kind dj_cpu_kind_of(const char *line)
{
	static const char *const amd[] = { "AuthenticAMD", "HygonGenuine" };

	if (!line || strstr(line, "GenuineIntel"))
		return DJ_CPU_INTEL;
	for (size_t i = 0; i < sizeof(amd) / sizeof(amd[0]); i++)
		if (strstr(line, amd[i]))
			return strstr(line, keeps) ? DJ_CPU_AMD_KEEPS : DJ_CPU_AMD;
	return !strncmp(line, "AMD ", 4) || !strncmp(line, "Hygon ", 6) ? DJ_CPU_AMD : DJ_CPU_INTEL;
}
