/*
 * Observers, who are told what a replay passes.
 */
#include "tests/unit/test-replay.h"

#include <stdlib.h>

struct seen {
	size_t n, cap;
	struct replay_edge *edges;
};

static void see(void *ctx, const struct replay_edge *edge)
{
	struct seen *s = ctx;

	if (s->n == s->cap) {
		s->cap = s->cap * 2 + 1000;
		s->edges = realloc(s->edges, s->cap * sizeof(*s->edges));
		CU_ASSERT_FATAL(s->edges != NULL);
	}
	s->edges[s->n++] = *edge;
}

/* What the world's positions say must be seen. */
static void expected_edges(struct seen *s)
{
	struct dj_error err;
	size_t size;
	const uint8_t *code = dj_trace_module_bytes(replay_trace(rep), 0, &size, &err);

	for (size_t i = 0; i + 1 < world->n; i++) {
		const struct world_pos *p = &world->pos[i], *next = p + 1;
		struct replay_edge edge = { .from = p->rip, .to = next->rip, .steps = next->steps };
		uint64_t at = p->rip - CODE_AT;
		struct insn in;
		CU_ASSERT_FATAL(insn_decode(&in, code + at, size - at, p->rip) > 0);
		if (p->signal) {
			edge.kind = REPLAY_SEE_SIGNAL;
		} else if (p->syscall && next->rip != p->rip + in.len) {
			edge.kind = REPLAY_SEE_ENTRY; /* sigreturn */
			edge.from += in.len;
		} else if (!(in.attr & INSN_A_BRANCH)) {
			continue;
		} else if (in.attr & (INSN_A_CALL | INSN_A_RET)) {
			edge.kind = in.attr & INSN_A_CALL ? REPLAY_SEE_CALL : REPLAY_SEE_RETURN;
		} else {
			edge.kind =
				next->rip == p->rip + in.len ? REPLAY_SEE_FALL : REPLAY_SEE_JUMP;
		}
		see(s, &edge);
	}
}

/* Edges of the wanted kinds from the world's position `first` on. */
static bool same_edges(const struct seen *want, const struct seen *have, unsigned kinds,
		       uint64_t first)
{
	size_t n = 0;

	for (size_t i = 0; i < want->n; i++) {
		const struct replay_edge *a = &want->edges[i], *b = &have->edges[n];
		if (!(a->kind & kinds) || a->steps <= first)
			continue;
		if (n == have->n || a->kind != b->kind || a->from != b->from || a->to != b->to ||
		    a->steps != b->steps || b->thread != 0)
			return false;
		n++;
	}
	return n > 3 && n == have->n;
}

void test_observers(void)
{
	static const unsigned kinds[] = { REPLAY_SEE_BLOCKS, REPLAY_SEE_CALL | REPLAY_SEE_RETURN,
					  REPLAY_SEE_SIGNAL | REPLAY_SEE_ENTRY, REPLAY_SEE_FALL };
	struct replay_verify_result res;
	struct replay_stop stop;
	struct dj_error err;
	struct seen want = { 0 }, have = { 0 };

	start(100, 0, 1);
	replay_limits(rep, 700, 30, 1 << 22);
	expected_edges(&want);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		struct replay_observer o = { .kinds = kinds[k], .ctx = &have, .see = see };
		have.n = 0;
		CU_ASSERT(!replay_verify(replay_trace(rep), &res, &o, NULL, &err) &&
			  !res.div.found);
		CU_ASSERT(same_edges(&want, &have, kinds[k], 0));

		/* on the way forward, in one go, with stops, and by steps; not on the way back, nor
		 * when it is looked ahead or gone to a place */
		for (int way = 0; way < 4; way++) {
			uint8_t all[REGION];
			size_t from = way == 3 ? world->n / 2 : 0;
			CU_ASSERT_FATAL(go(from));
			replay_observe(rep, &o);
			have.n = 0;
			if (way == 1)
				replay_break_add(rep, world_label("function"));
			do {
				if (way < 2 || rnd() % 100 == 0)
					replay_continue(rep, REPLAY_FORWARD, &stop);
				else
					replay_step(rep, REPLAY_FORWARD, &stop);
				if (rnd() % 50 == 0)
					replay_read(rep, DATA_AT, all, REGION);
			} while (stop.reason != REPLAY_END && stop.reason != REPLAY_FAILED);
			CU_ASSERT(same_edges(&want, &have, kinds[k], world->pos[from].steps));
			size_t n = have.n;
			for (int i = 0; i < 5; i++)
				replay_step(rep, REPLAY_BACKWARD, &stop);
			replay_continue(rep, REPLAY_BACKWARD, &stop);
			replay_break_del(rep, world_label("function"));
			CU_ASSERT(go(world->n / 3) && go(world->n - 1) && have.n == n);
		}
		replay_observe(rep, NULL);
		CU_ASSERT_FATAL(go(0));
		have.n = 0;
		replay_continue(rep, REPLAY_FORWARD, &stop);
		CU_ASSERT(have.n == 0);
	}
	free(want.edges);
	free(have.edges);
	finish();
}
