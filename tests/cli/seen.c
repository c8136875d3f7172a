/* What is to be seen at a position of a recording: see seen.h. */
#include "tests/cli/seen.h"

#include "replayer/memview-page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct replay *open_or_exit(const char *path)
{
	struct dj_error err;
	struct replay *r = replay_open(path, &err);

	if (!r) {
		fprintf(stderr, "%s\n", err.text);
		exit(2);
	}
	return r;
}

/* A checksum of some pages of each mapping, others at each position, and of which bytes are known.
 */
static uint64_t sample(struct replay *r, uint64_t which)
{
	const struct replay_mapping *maps;
	size_t n = replay_mappings(r, &maps);
	uint64_t sum = 1;
	uint8_t buf[4096];

	for (size_t i = 0; i < n; i++) {
		uint64_t pages = (maps[i].end - maps[i].start) / 4096;
		uint64_t page = pages ? (which * 0x9e3779b97f4a7c15ULL >> 20) % pages : 0;
		/* where the kernel has put what is no file's */
		if (!pages || maps[i].start >> 47)
			continue;
		for (size_t at = 0, got; at < sizeof(buf); at += got + 64) {
			got = replay_read(r, maps[i].start + page * 4096 + at, buf + at,
					  sizeof(buf) - at);
			for (size_t k = 0; k < got; k++)
				sum = (sum ^ buf[at + k]) * 0x100000001b3ULL;
			sum = (sum ^ got) * 0x100000001b3ULL;
		}
	}
	return sum;
}

/* A checksum of all bytes that the thread has met, and of what each is to it. */
static uint64_t met(struct replay *r)
{
	static uint8_t state[RP_PAGE], value[RP_PAGE];
	uint64_t sum = 0;

	for (size_t i = 0; i < r->mv->hash_size; i++)
		for (const struct rp_memview_page *p = r->mv->hash[i]; p; p = p->hash_next) {
			if (!rp_memview_bytes(r->mv, p->num, state, value))
				continue;
			for (unsigned k = 0; k < RP_PAGE; k++)
				if (state[k] != RP_BYTE_HAS)
					value[k] = 0;
			sum += XXH3_64bits_withSeed(state, sizeof(state), p->num) * 3 +
			       XXH3_64bits_withSeed(value, sizeof(value), p->num);
		}
	return sum;
}

void look(struct replay *r, struct state *s, bool all)
{
	memset(s, 0, sizeof(*s));
	replay_pos(r, &s->pos);
	replay_regs(r, &s->regs);
	s->known = replay_read(r, s->regs.gpr[DJ_RSP], s->stack, STACK);
	memset(s->stack + s->known, 0, STACK - s->known);
	for (unsigned i = 0; i < SPARSE; i++)
		s->sparse_known[i] =
			replay_read(r, s->regs.gpr[DJ_RSP] - SPARSE / 3 + i, &s->sparse[i], 1) == 1;
	s->samples = all ? sample(r, s->pos.steps) : 0;
	s->met = all ? met(r) : 0;
}

/* The first byte that is another one, or known in one of them only. */
static void say_byte(const struct state *was, const struct state *now)
{
	unsigned i = 0;

	while (i < SPARSE && was->sparse_known[i] == now->sparse_known[i] &&
	       was->sparse[i] == now->sparse[i])
		i++;
	if (i < SPARSE)
		printf("  at %#" PRIx64 ", rsp%+d: %s %02x became %s %02x\n",
		       now->regs.gpr[DJ_RSP] - SPARSE / 3 + i, (int)i - SPARSE / 3,
		       was->sparse_known[i] ? "known" : "unknown", was->sparse[i],
		       now->sparse_known[i] ? "known" : "unknown", now->sparse[i]);
}

unsigned compare(struct replay *r, const struct state *was, const char *what)
{
	struct state now;
	uint64_t parts;

	look(r, &now, was->samples != 0);
	if (!memcmp(&now, was, sizeof(now)))
		return 0;
	parts = dj_regs_diff(&now.regs, &was->regs);
	printf("%s: %" PRIu64 "/%u+%" PRIu64 " became %" PRIu64 "/%u+%" PRIu64
	       "%s%s, stack %s, byte by byte %s, samples %s, what was met %s\n",
	       what, was->pos.steps, was->pos.signals, was->pos.rep, now.pos.steps, now.pos.signals,
	       now.pos.rep, parts ? ", " : "", parts ? dj_regs_part_name(parts) : "",
	       now.known != was->known || memcmp(now.stack, was->stack, STACK) ? "differs" : "same",
	       memcmp(now.sparse, was->sparse, SPARSE) ||
			       memcmp(now.sparse_known, was->sparse_known, SPARSE)
		       ? "differs"
		       : "same",
	       now.samples != was->samples ? "differ" : "same",
	       now.met != was->met ? "differs" : "same");
	say_byte(was, &now);
	return 1;
}
