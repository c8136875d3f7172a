/*
 * What a replay may cost: see patience.h.
 *
 * Memory: a replay keeps the recorded program's memory as far as it was touched (the shadow), what
 * is known of it. That is in proportion to what the program had
 * mapped; what a trace touches beyond its own mappings no program touched. And never more than
 * three quarters of what this host has, or than DEJA_MEMORY says. Checkpoints (checkpoint.h) come
 * on top of that, with a budget of their own, unless DEJA_MEMORY says how much all may take. That
 * budget, too, is in proportion to what the program had mapped: a trace that touches what is not
 * there would otherwise have each of its pages kept in checkpoints besides.
 */
#include "replayer/patience.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL    10		   /* milliseconds between two looks at all */
#define FREE	    (480ULL << 20) /* bytes that any trace may take */
#define FREE_KEPT   (48ULL << 20)  /* bytes that any trace's checkpoints may take */
#define KEPT_MAPPED 64		   /* of each byte mapped: in checkpoints */
#define FOR_MAPPED  5 / 2	   /* of each byte mapped: shadow, copy of its own, what is known */

uint64_t rp_patience_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* A number of bytes, with K, M, G or T behind it or not; 0 if it is none. */
static uint64_t size_of(const char *text)
{
	static const char units[] = "KMGT";
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	for (unsigned i = 0; i < 4; i++)
		if (*end == units[i] && !end[1] && n < 1ULL << 24)
			return n << 10 * (i + 1);
	return *end ? 0 : n;
}

/* What the control group of this process may have, as far as that is easily told. */
static uint64_t group_limit(void)
{
	FILE *f = fopen("/sys/fs/cgroup/memory.max", "re");
	unsigned long long n = 0;

	if (!f)
		return UINT64_MAX;
	if (fscanf(f, "%llu", &n) != 1)
		n = 0;
	fclose(f);
	return n ? n : UINT64_MAX;
}

void rp_patience_init(struct rp_patience *p, bool (*poll)(void *ctx), void *ctx)
{
	const char *wanted = getenv("DEJA_MEMORY");
	uint64_t group = group_limit();

	*p = (struct rp_patience){ .poll = poll, .ctx = ctx, .allowance = UINT64_MAX };
	p->machine = wanted ? size_of(wanted) : 0;
	p->fixed = p->machine != 0;
	if (!p->fixed) {
		p->machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
		if (group < p->machine)
			p->machine = group;
		p->machine = p->machine / 4 * 3;
	}
	p->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

void rp_patience_free(struct rp_patience *p)
{
	if (p->statm >= 0)
		close(p->statm);
	p->statm = -1;
}

uint64_t rp_patience_limit(const struct rp_patience *p, uint64_t claim)
{
	uint64_t honest;

	if (p->fixed || claim > p->machine)
		return p->machine;
	/* each thread has a shadow of its own, of what may be much more memory than this one's */
	uint64_t most = __atomic_load_n(p->most ? p->most : &p->own, __ATOMIC_RELAXED);
	if (p->users > 1 && claim < most)
		claim = most;
	if (p->users > 1)
		claim = claim > p->machine / p->users ? p->machine : claim * p->users;
	honest = FREE + claim * FOR_MAPPED;
	return honest < p->machine ? honest : p->machine;
}

uint64_t rp_patience_kept(const struct rp_patience *p, uint64_t claim)
{
	uint64_t most = __atomic_load_n(p->most ? p->most : &p->own, __ATOMIC_RELAXED);

	if (claim < most)
		claim = most;
	if (p->fixed || claim > p->machine / KEPT_MAPPED)
		return UINT64_MAX;
	return FREE_KEPT + claim * KEPT_MAPPED;
}

/* Bytes of memory that this process has for itself: not those of files, a trace's among them
 * (proc(5): resident pages, pages of files and shared memory). */
uint64_t rp_patience_taken(const struct rp_patience *p)
{
	char text[128];
	unsigned long long resident, shared;
	ssize_t n = p->statm < 0 ? -1 : pread(p->statm, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return 0;
	text[n] = 0;
	if (sscanf(text, "%*u %llu %llu", &resident, &shared) != 2 || shared > resident)
		return 0;
	uint64_t bytes = (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t kept = p->kept && !p->fixed ? p->kept() : 0;
	return bytes > kept ? bytes - kept : 0;
}

enum rp_patience_end rp_patience_look(struct rp_patience *p, uint64_t work, uint64_t claim)
{
	uint64_t t;

	if (p->allowance != UINT64_MAX) {
		if (p->allowance <= work) {
			p->allowance = 0;
			return PATIENCE_INTERRUPTED;
		}
		p->allowance -= work;
	}
	t = rp_patience_now();
	if (t < p->due)
		return PATIENCE_LASTS;
	p->due = t + INTERVAL;
	uint64_t *most = p->most ? p->most : &p->own;
	if (__atomic_load_n(most, __ATOMIC_RELAXED) < claim)
		__atomic_store_n(most, claim, __ATOMIC_RELAXED);
	uint64_t taken = rp_patience_taken(p), limit = rp_patience_limit(p, claim);
	if (taken > p->machine || (taken > p->before && taken - p->before > limit))
		return PATIENCE_MEMORY;
	return p->poll && p->poll(p->ctx) ? PATIENCE_INTERRUPTED : PATIENCE_LASTS;
}
