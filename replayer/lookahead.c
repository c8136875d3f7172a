/*
 * Learned bytes: see lookahead.h.
 */
#include "replayer/lookahead.h"
#include "replayer/memview.h"
#include "replayer/replay-internal.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_STEPS 500000u  /* how far to look: some milliseconds; */
#define LOOK_WORK  5000000u /* what REP instructions and records may add, */
#define LOOK_PAGES 20000u   /* and how much is learned */

void rp_lookahead_clear(struct rp_lookahead *l)
{
	for (size_t i = 0; i < LOOKAHEAD_HASH; i++) {
		for (struct rp_lookahead_page *p = l->hash[i], *next; p; p = next) {
			next = p->next;
			free(p);
		}
		l->hash[i] = NULL;
	}
	l->pages = 0;
}

static struct rp_lookahead_page *find(const struct rp_lookahead *l, uint64_t num)
{
	struct rp_lookahead_page *p = l->hash[num % LOOKAHEAD_HASH];

	while (p && p->num != num)
		p = p->next;
	return p;
}

void rp_lookahead_meet(struct rp_lookahead *l, uint64_t line, uint64_t mask, const uint8_t *bytes)
{
	struct rp_lookahead_page *p = find(l, line >> 12);
	unsigned w = line >> 6 & 63;

	if (!p) {
		p = l->pages < LOOK_PAGES ? calloc(1, sizeof(*p)) : NULL;
		if (!p)
			return;
		l->pages++;
		p->num = line >> 12;
		p->next = l->hash[p->num % LOOKAHEAD_HASH];
		l->hash[p->num % LOOKAHEAD_HASH] = p;
	}
	mask &= ~p->decided[w];
	p->decided[w] |= mask;
	if (!bytes)
		return;
	p->known[w] |= mask;
	for (unsigned i = 0; i < 64; i++)
		if (mask >> i & 1)
			p->data[w * 64 + i] = bytes[i];
}

bool rp_lookahead_byte(const struct rp_lookahead *l, uint64_t addr, uint8_t *value)
{
	const struct rp_lookahead_page *p = find(l, addr >> 12);
	unsigned off = addr & 4095;

	if (!p || !(p->known[off / 64] >> off % 64 & 1))
		return false;
	*value = p->data[off];
	return true;
}

/* Run on from here, learning, and come back. */
static void look(struct replay *r)
{
	struct rp_thread_pos here, to;
	struct dj_error err;

	rp_thread_pos(r->th, &here);
	rp_lookahead_clear(&r->look);
	r->looked = true;
	r->look_pos = here;
	rp_checkpoint_take(r->cs);
	struct rp_checkpoint *c = rp_checkpoint_newest(r->cs);
	if (!c || rp_thread_pos_cmp(&c->pos, &here))
		return;
	to = (struct rp_thread_pos){ .steps = here.steps + LOOK_STEPS };
	bool told = r->signal_told, cancelled = r->cancelled;
	r->patience.allowance = LOOK_WORK;
	r->mv->look = &r->look;
	r->th->e->stop_at = NULL;
	/* behind its next event it may find what others have written until then */
	if (rp_sharing(r))
		r->th->seq_stop = rp_thread_next_seq(r->th);
	for (;;) {
		uint64_t sysno;
		if (rp_thread_signal_here(r->th) || (rp_thread_syscall_here(r->th, &sysno) &&
						     !rp_memview_knows_syscall(r->th->e->cpu.gpr)))
			break;
		if (rp_thread_run(r->th, &to,
				  THREAD_EV_SYSCALL | THREAD_EV_SIGNAL | THREAD_EV_EXEC) !=
			    THREAD_EVENT ||
		    r->th->event == THREAD_EV_EXEC || r->th->event == THREAD_EV_ORDER)
			break;
	}
	r->th->seq_stop = UINT64_MAX;
	r->mv->look = NULL;
	r->patience.allowance = UINT64_MAX;
	rp_checkpoint_back(r->cs, &here, &err);
	r->signal_told = told;
	r->cancelled = cancelled;
}

size_t rp_lookahead_read(struct replay *r, uint64_t addr, uint8_t *buf, size_t len)
{
	size_t done = 0;
	struct rp_thread_pos here;

	rp_thread_pos(r->th, &here);
	if (r->in_copy || r->th->div.found || rp_thread_at_end(r->th))
		return 0;
	if (!r->looked || rp_thread_pos_cmp(&here, &r->look_pos))
		look(r);
	while (done < len && rp_lookahead_byte(&r->look, addr + done, &buf[done]))
		done++;
	return done;
}
