/*
 * Instructions whose result nobody can know, for the end-to-end tests: LSL, RDRAND, RDSEED, RDPID
 * and XGETBV, with registers of all kinds, flags before them and behind them looked at or not.
 * What they leave alone, and what is known of the result, is summed up: the sum is the same in
 * every run with the same seed.
 *
 * usage: results SEED CASES
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARITH 0x8d5u
#define CF    1u
#define ZF    0x40u
#define RSP   4

static uint64_t seed;

static uint32_t any(uint32_t below)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)((seed >> 33) % below);
}

static uint8_t *p;

static void put(unsigned b)
{
	*p++ = (uint8_t)b;
}

static void put64(uint64_t v)
{
	memcpy(p, &v, 8);
	p += 8;
}

static unsigned reg(void)
{
	unsigned r = any(15);
	return r < RSP ? r : r + 1;
}

/* All registers but rsp into an array that lies at `at`; flags are left alone. */
static void put_store(const uint64_t *at)
{
	put(0x50);					      /* push rax */
	put(0x48), put(0xb8), put64((uint64_t)(uintptr_t)at); /* mov rax, at */
	for (unsigned r = 1; r < 16; r++)
		put(0x48 | (r >> 3) << 2), put(0x89), put(0x40 | (r & 7) << 3), put(8 * r);
	put(0x8f), put(0x00);		 /* pop [rax] */
	put(0x48), put(0x8b), put(0x00); /* mov rax, [rax] */
}

enum kind { LSL, RDRAND, RDSEED, RDPID, XGETBV, KINDS };

static void put_insn(enum kind kind, unsigned size, unsigned d, unsigned s)
{
	unsigned rex = (size == 8 ? 8 : 0) | d >> 3;
	if (size == 2 && kind != XGETBV && kind != RDPID)
		put(0x66);
	switch (kind) {
	case LSL:
		rex = (size == 8 ? 8 : 0) | (d >> 3) << 2 | s >> 3;
		put(0x40 | rex), put(0x0f), put(0x03), put(0xc0 | (d & 7) << 3 | (s & 7));
		break;
	case RDRAND:
		put(0x40 | rex), put(0x0f), put(0xc7), put(0xf0 | (d & 7));
		break;
	case RDSEED:
		put(0x40 | rex), put(0x0f), put(0xc7), put(0xf8 | (d & 7));
		break;
	case RDPID:
		put(0xf3), put(0x40 | d >> 3), put(0x0f), put(0xc7), put(0xf8 | (d & 7));
		break;
	default:
		put(0x0f), put(0x01), put(0xd0);
	}
}

static uint64_t is_there(void)
{
	unsigned a, b, c, d, there = 1u << LSL;
	__cpuid(1, a, b, c, d);
	there |= (c >> 30 & 1) << RDRAND | (c >> 27 & 1) << XGETBV;
	__cpuid_count(7, 0, a, b, c, d);
	return there | (b >> 18 & 1) << RDSEED | (c >> 22 & 1) << RDPID;
}

static uint64_t in[16], out[17], sum;

static void add(uint64_t v)
{
	sum = (sum ^ v) * 0x9e3779b97f4a7c15 >> 1;
	sum ^= sum >> 29;
}

/* What is not known is not added up. (RDRAND and RDSEED may have nothing to give, with all flags
 * clear.) */
static void look(enum kind kind, unsigned size, unsigned d, uint64_t before, int seen)
{
	uint64_t flags = out[16] & ARITH;
	for (unsigned r = 0; r < 16; r++) {
		if (r == RSP || r == d || (kind == XGETBV && r == 2))
			continue;
		add(out[r]);
		if (out[r] != in[r])
			printf("kind %d size %u: register %u is %llx, was %llx\n", kind, size, r,
			       (unsigned long long)out[r], (unsigned long long)in[r]);
	}
	switch (kind) {
	case LSL:
		add(out[d]);
		add(seen ? flags : 0);
		if (seen && (flags ^ before) & ~ZF)
			printf("lsl: flags %llx, were %llx\n", (unsigned long long)flags,
			       (unsigned long long)before);
		break;
	case RDRAND:
	case RDSEED:
		if (seen && flags & ~CF)
			printf("random: flags %llx\n", (unsigned long long)flags);
		if (size == 4 && out[d] >> 32)
			printf("random: %llx in 32 bits\n", (unsigned long long)out[d]);
		if (size == 2 && (out[d] ^ in[d]) >> 16)
			printf("random: %llx in 16 bits\n", (unsigned long long)out[d]);
		break;
	case RDPID:
		if (out[d] >> 32)
			printf("processor %llx\n", (unsigned long long)out[d]);
		add(seen ? flags : 0);
		break;
	default:
		add(out[0] & 7);
		add(out[2]);
		add(seen ? flags : 0);
	}
}

static void one(uint8_t *code, uint64_t there)
{
	static const uint16_t selectors[] = { 0, 0x2b, 0x33, 0x23, 0x1b, 0x77, 0x10, 0xfff8 };
	static const uint8_t sizes[] = { 2, 4, 8 };
	enum kind kind = any(KINDS);
	unsigned size = sizes[any(3)], d = reg(), s = reg(), rounds = 1 + any(3);
	uint64_t before = 0x202 | (any(0x1000) & ARITH);
	int seen = (int)any(2);

	while (!(there >> kind & 1))
		kind = any(KINDS);
	for (unsigned r = 0; r < 16; r++)
		in[r] = (uint64_t)any(1u << 31) << 33 ^ any(1u << 31);
	in[s] = (in[s] & ~0xffffULL) | selectors[any(8)];
	if (kind == XGETBV)
		d = 0, in[1] = 0;
	p = code;
	/* push rbx, rbp, r12 ... r15 */
	put(0x53), put(0x55), put(0x41), put(0x54), put(0x41), put(0x55), put(0x41), put(0x56),
		put(0x41), put(0x57);
	for (unsigned r = 0; r < 16; r++)
		if (r != RSP)
			put(0x48 | r >> 3), put(0xb8 | (r & 7)), put64(in[r]);
	put(0x68), memcpy(p, &before, 4), p += 4, put(0x9d); /* push flags; popf */
	for (unsigned i = 0; i < rounds; i++) {
		put_insn(kind, size, d, s);
		if (kind == LSL && d == s) /* what was loaded is no selector any more */
			break;
		if (i + 1 < rounds && any(2))
			put(0x40 | d >> 3), put(0x85), put(0xc0 | (d & 7)); /* test r32, eax */
		if (i + 1 < rounds)
			put(0x68), memcpy(p, &before, 4), p += 4, put(0x9d);
	}
	if (seen) { /* pushf; pop [out + 16] */
		put(0x9c), put(0x50), put(0x48), put(0xb8), put64((uint64_t)(uintptr_t)&out[16]);
		put(0x48), put(0x83), put(0xc4), put(8); /* add rsp, 8 */
		put(0x8f), put(0x00);
		put(0x48), put(0x8b), put(0x44), put(0x24), put(0xf0); /* mov rax, [rsp - 16] */
	} else {
		put(0x31), put(0xc0 | 5 << 3 | 5); /* xor ebp, ebp: all flags are new */
		put(0x48), put(0xbd), put64(d == 5 ? 0 : in[5]);
		if (d == 5)
			in[5] = 0;
	}
	put_store(out);
	put(0x41), put(0x5f), put(0x41), put(0x5e), put(0x41), put(0x5d), put(0x41), put(0x5c),
		put(0x5d), put(0x5b), put(0xc3);
	((void (*)(void))(uintptr_t)code)();
	look(kind, size, d, before & ARITH, seen);
}

int main(int argc, char **argv)
{
	unsigned cases = argc > 2 ? (unsigned)atoi(argv[2]) : 300;
	uint64_t there = is_there(), a = 0, b = 0;
	uint8_t *code = mmap(NULL, 65536, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	if (code == MAP_FAILED)
		return 2;
	for (unsigned i = 0; i < cases; i++)
		one(code + i % 64 * 1024, there);
	for (int i = 0; i < 1000; i++) {
		int cpu = sched_getcpu();
		a += cpu >= 0 && cpu < CPU_SETSIZE;
		if (there >> RDRAND & 1) {
			uint64_t v;
			uint8_t good;
			__asm__ volatile("rdrand %0; setc %1" : "=r"(v), "=r"(good) : : "cc");
			b ^= v; /* the replay takes the way that this says */
			for (volatile uint64_t k = v & 15; good && k; k--)
				;
		}
	}
	printf("%u cases: %llx; on a processor %d times\n", cases, (unsigned long long)sum, (int)a);
	return b == 0 && there >> RDRAND & 1;
}
