/* Conditions at random to stop a replay for: see conditions.h. */
#include "tests/cli/conditions.h"

#include "replayer/memview-page.h"
#include "tests/lib/random.h"

#include <sys/syscall.h>

uint64_t random_state = 88172645463325252ULL;

uint64_t rnd(void)
{
	return random_next(&random_state);
}

/* Now and then, by registers and what the thread knows of its stack. */
static bool seldom(void *ctx, uint32_t thread, uint64_t addr)
{
	struct replay *r = ctx;
	uint64_t word = 0, sum = thread + addr;

	replay_read(r, replay_gpr(r, DJ_RSP), &word, sizeof(word));
	for (unsigned i = 0; i < 16; i++)
		sum = (sum ^ word ^ replay_gpr(r, i)) * 0x9e3779b97f4a7c15ULL;
	return sum >> 59 == 0;
}

void condition(struct replay *r, unsigned how, uint64_t at)
{
	static const uint64_t seldom_made = SYS_munmap;

	replay_report_signals(r, how == 4 ? UINT64_MAX : 0);
	replay_catch_syscalls(r, how == 4, &seldom_made, 1);
	if (how == 0 || how == 3)
		replay_break_add(r, at);
	if (how == 3)
		replay_set_condition(r, seldom, r);
	else if (how == 1 || how == 2)
		replay_watch_add(r, at, 8, how == 1 ? REPLAY_WATCH_WRITE : REPLAY_WATCH_ACCESS);
}

/* A word of 8 bytes that the thread knows some of. */
uint64_t word_of(struct replay *r)
{
	const struct rp_memview *mv = r->mv;

	for (unsigned tries = 0; tries < 1000000; tries++) {
		const struct rp_memview_page *p = mv->hash[rnd() % mv->hash_size];
		unsigned w = rnd() % RP_WORDS;
		if (p && p->known[w])
			return (p->num << 12) + 64 * w +
			       ((unsigned)__builtin_ctzll(p->known[w]) & ~7u);
	}
	return replay_gpr(r, DJ_RSP) & ~7ULL; /* it has only begun */
}

/* One that several threads know of, by the ends of their histories. */
uint64_t shared_word(struct replay *r)
{
	const struct rp_thread_pos far = { .steps = UINT64_MAX };

	for (uint32_t i = 0; i < r->nthreads; i++)
		if (!rp_switch(r, i, NULL))
			replay_move(r, &far, NULL);
	for (unsigned tries = 0;; tries++) {
		rp_switch(r, rnd() % r->nthreads, NULL);
		uint64_t at = word_of(r), line = at >> 6 & 63;
		unsigned know = 0;
		for (uint32_t i = 0; i < r->nthreads; i++) {
			const struct rp_memview_page *p =
				rp_memview_page(r->threads[i].mv, at >> 12);
			know += p && p->known[line] >> (at & 63) & 0xff;
		}
		if (know > 1 || tries > 1000)
			return at;
	}
}
