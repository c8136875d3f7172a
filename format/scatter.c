/*
 * Where something goes in a hash table: see scatter.h.
 */
#include "format/scatter.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t dj_scatter_secret[2];

uint64_t dj_random(void)
{
	struct timespec now;
	uint64_t number;

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == sizeof(number))
		return number;
	clock_gettime(CLOCK_REALTIME, &now);
	return XXH3_64bits_withSeed(&now, sizeof(now), (uint64_t)getpid());
}

__attribute__((constructor)) static void choose(void)
{
	dj_scatter_secret[0] = dj_random() | 1;
	dj_scatter_secret[1] = dj_random();
}

uint64_t dj_scatter_text(const char *text)
{
	return XXH3_64bits_withSeed(text, strlen(text), dj_scatter_secret[0]);
}
