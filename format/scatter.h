/*
 * Where something goes in a hash table.
 *
 * Most keys come from a trace, or from what the program in it does: addresses, numbers of pages,
 * names. Whoever writes a trace must not be able to choose keys that all meet in one place, where
 * each look would cost as much as there are of them. So the factor is an odd number that each
 * process chooses at random (multiply-shift hashing: Dietzfelbinger, Hagerup, Katajainen,
 * Penttonen, "A reliable randomized algorithm for the closest-pair problem", Journal of Algorithms
 * 25, 1997): whatever two keys are, they meet in one of n places with a probability of at most 2/n.
 *
 * For the same reason nothing that is shown may depend on where in a table something is.
 */
#ifndef DEJA_FORMAT_SCATTER_H
#define DEJA_FORMAT_SCATTER_H

#include <stddef.h>
#include <stdint.h>

/* A random number; where the kernel has none yet, one that nobody knows beforehand. */
uint64_t dj_random(void);

/* Of this process and of the children that it forks. The first is odd. */
extern uint64_t dj_scatter_secret[2];

/* A place among `places`, which are a power of two. */
static inline size_t dj_scatter(uint64_t key, size_t places)
{
	return (size_t)((unsigned __int128)(key * dj_scatter_secret[0]) * places >> 64);
}

/* A key for several numbers, one after the other; `key` is what the ones before gave, at first 0.
 */
static inline uint64_t dj_scatter_mix(uint64_t key, uint64_t next)
{
	unsigned __int128 p =
		(unsigned __int128)(key ^ next ^ dj_scatter_secret[1]) * dj_scatter_secret[0];
	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* A key for a text. */
uint64_t dj_scatter_text(const char *text);

#endif
