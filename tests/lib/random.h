/*
 * Random numbers that are the same every time: splitmix64 (Steele, Lea, Flood, "Fast Splittable
 * Pseudorandom Number Generators", OOPSLA 2014). The state is a counter and may be any number; each
 * bit of a result depends on all of it, so that what `%` leaves of a number tells nothing of the
 * next. The counter's step may be any odd number; the usual one, the golden ratio's, is what tests
 * multiply their seeds by, which would make their sequences parts of one another.
 */
#ifndef DEJA_TESTS_LIB_RANDOM_H
#define DEJA_TESTS_LIB_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0xd1342543de82ef95ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

#endif
