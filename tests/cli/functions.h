/*
 * Code enough to be worth leaving to the next image of a program: functions with some branches
 * each, which compute something else for each VERSION. For heir.c and heirlib.c.
 */
#ifndef DEJA_TESTS_FUNCTIONS_H
#define DEJA_TESTS_FUNCTIONS_H

#include <stdint.h>

#define F(n)                                                                                       \
	__attribute__((noinline)) static uint64_t f##n(uint64_t x)                                 \
	{                                                                                          \
		if (x & 1)                                                                         \
			x = x * (2 * n + 3) + VERSION;                                             \
		else                                                                               \
			x ^= x >> 7;                                                               \
		return x % (n + 5) == 0 ? x + n : x - n;                                           \
	}
#define F8(n)  F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)
#define F64(n) F8(n##0) F8(n##1) F8(n##2) F8(n##3) F8(n##4) F8(n##5) F8(n##6) F8(n##7)
#define N(n)   f##n,
#define N8(n)  N(n##0) N(n##1) N(n##2) N(n##3) N(n##4) N(n##5) N(n##6) N(n##7)
#define N64(n) N8(n##0) N8(n##1) N8(n##2) N8(n##3) N8(n##4) N8(n##5) N8(n##6) N8(n##7)
/* clang-format off */
F64(1) F64(2) F64(3) F64(4) F64(5) F64(6) F64(7) F64(8)
static uint64_t (*const functions[])(uint64_t) = {
	N64(1) N64(2) N64(3) N64(4) N64(5) N64(6) N64(7) N64(8)
};
/* clang-format on */
#define FUNCTIONS (sizeof(functions) / sizeof(*functions))

/* Through most of them, in an order that x says. */
static inline uint64_t through(uint64_t x, unsigned rounds)
{
	for (unsigned i = 0; i < rounds * FUNCTIONS; i++)
		x = functions[(x >> 11) % FUNCTIONS](x) + i;
	return x;
}

#endif
