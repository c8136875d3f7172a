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

/* Where the kernel has nothing random, what nobody knows beforehand. */
__attribute__((constructor)) static void choose(void)
{
	uint64_t *s = dj_scatter_secret;
	struct timespec now;

	if (getrandom(s, sizeof(dj_scatter_secret), GRND_NONBLOCK) !=
	    (ssize_t)sizeof(dj_scatter_secret)) {
		clock_gettime(CLOCK_REALTIME, &now);
		s[0] = XXH3_64bits_withSeed(&now, sizeof(now), (uint64_t)getpid());
		s[1] = XXH3_64bits_withSeed(&now, sizeof(now), (uint64_t)(uintptr_t)&now);
	}
	s[0] |= 1;
}

uint64_t dj_scatter_text(const char *text)
{
	return XXH3_64bits_withSeed(text, strlen(text), dj_scatter_secret[0]);
}
