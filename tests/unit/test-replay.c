/*
 * The replay against a made-up world (replay-world.h) in which every position is known.
 */
#include "replayer/replay-internal.h"
#include "tests/lib/replay-world.h"
#include "tests/lib/suites.h"

#include <endian.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static struct world *world;
static struct replay *rep;
static uint64_t seed = 20240611;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void start(unsigned rounds, int predict, unsigned model)
{
	struct dj_error err = { 0 };

	snprintf(path, sizeof(path), "/tmp/test-replay-%d.deja", (int)getpid());
	world = world_record(path, rnd(), rounds, predict, model);
	rep = replay_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep);
	replay_report_signals(rep, 0);
}

static void finish(void)
{
	replay_close(rep);
	world_free(world);
	unlink(path);
}

/* Whether the replay is at the world's position i, in all that can be compared. */
static bool same(size_t i)
{
	const struct world_pos *p = &world->pos[i];
	struct replay_pos at;
	struct dj_regs regs;

	struct replay_thread t;
	struct replay_doings does;

	replay_thread(rep, &t);
	if (replay_thread_doings(rep, t.number, &does, NULL))
		return false;
	at = does.pos;
	replay_regs(rep, &regs);
	if (at.steps != p->steps || at.signals != p->signals || at.rep != p->rep ||
	    regs.rip != p->rip || regs.rflags != p->rflags || dj_regs_digest(&regs) != p->digest) {
		fprintf(stderr,
			"\n  position %zu: wanted %llu/%u+%llu rip %llx, have %llu/%u+%llu rip "
			"%llx\n",
			i, (unsigned long long)p->steps, p->signals, (unsigned long long)p->rep,
			(unsigned long long)p->rip, (unsigned long long)at.steps, at.signals,
			(unsigned long long)at.rep, (unsigned long long)regs.rip);
		return false;
	}
	if (!p->seen)
		return true;
	/* looking ahead must leave everything as it is */
	uint8_t all[REGION];
	if (i % 4 == 0)
		replay_read(rep, DATA_AT, all, REGION);
	uint64_t h = 0;
	for (size_t r = 1; r < 4; r++)
		for (size_t k = 0; k < REGION; k++) {
			uint8_t b;
			size_t n = rp_memview_read(rep->mv, world->region[r].start + k, &b, 1);
			h = world_hash(h, n ? b : 256);
		}
	if (h != p->seen)
		fprintf(stderr, "\n  position %zu: memory differs\n", i);
	return h == p->seen;
}

static bool go(size_t i)
{
	const struct world_pos *p = &world->pos[i];
	struct replay_pos to = { .thread = (uint32_t)world->tid - 1,
				 .steps = p->steps,
				 .signals = p->signals,
				 .rep = p->rep };
	struct dj_error err = { 0 };

	if (!replay_seek(rep, &to, &err))
		return true;
	fprintf(stderr, "\n  %s\n", err.text);
	return false;
}

static void test_verify(void)
{
	for (int predict = 0; predict < 3; predict++) {
		struct replay_verify_result res;
		struct dj_error err = { 0 };
		start(300, predict, 1);
		CU_ASSERT_EQUAL(replay_verify(replay_trace(rep), &res, NULL, NULL, &err), 0);
		CU_ASSERT_FALSE(res.div.found);
		CU_ASSERT_EQUAL(res.instructions, world->e->steps);
		CU_ASSERT_EQUAL(res.events, world->events);
		CU_ASSERT_EQUAL(res.imports, world->imports);
		CU_ASSERT_EQUAL(res.effects, world->effects);
		CU_ASSERT_EQUAL(res.digests, world->digests);
		CU_ASSERT_EQUAL(res.flags, world->digests);
		CU_ASSERT_EQUAL(res.memory, world->digests * 4 * REGION);
		if (res.div.found)
			fprintf(stderr, "%s\n", res.div.text);
		finish();
	}
}

/* Every position by steps, to the end and all the way back. */
static void test_steps(void)
{
	for (int predict = 0; predict < 3; predict++) {
		struct replay_stop stop;
		size_t i, bad = 0;
		start(40, predict, 1);
		replay_limits(rep, 1000, 50, 1 << 20);
		for (i = 0; i < world->n && bad < 3; i++) {
			bad += !same(i);
			replay_step(rep, REPLAY_FORWARD, &stop);
			if (stop.reason != (i + 1 < world->n ? REPLAY_STEPPED : REPLAY_END)) {
				fprintf(stderr, "reason %d at %zu of %zu: %s\n", stop.reason, i,
					world->n, stop.err.text);
				bad++;
			}
		}
		CU_ASSERT_EQUAL(bad, 0);
		CU_ASSERT(stop.exited && stop.status == 0x300);
		for (i = world->n; i-- > 0 && bad < 3;) {
			bad += !same(i);
			replay_step(rep, REPLAY_BACKWARD, &stop);
			bad += stop.reason != (i ? REPLAY_STEPPED : REPLAY_BEGIN);
		}
		CU_ASSERT_EQUAL(bad, 0);
		finish();
	}
}

/* Random positions, with ample and with hardly any checkpoints. */
static void test_seeks(void)
{
	static const struct {
		uint64_t spacing;
		size_t max, budget;
	} limits[] = { { 1000000, 200, 1 << 28 },
		       { 500, 20, 1 << 28 },
		       { 100, 3, 20000 },
		       { 50, 1000, 30000 } };

	for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]); k++) {
		size_t bad = 0;
		start(300, (int)k % 3, 1);
		replay_limits(rep, limits[k].spacing, limits[k].max, limits[k].budget);
		for (int n = 0; n < 400 && bad < 3; n++) {
			size_t i = rnd() % world->n;
			if (n % 3 == 0) /* one whose memory is known */
				i = i / world->seen_every * world->seen_every + world->seen_every -
				    1;
			if (n % 5 == 1 && i > 40) { /* from a little later */
				bad += !go(i);
				i -= rnd() % 40;
			}
			if (i >= world->n)
				continue;
			bad += !go(i) || !same(i);
		}
		CU_ASSERT_EQUAL(bad, 0);
		finish();
	}
}

/* Walk back with continue from the end and compare with the world's positions that `want` says. */
struct hunt {
	enum replay_reason reason;
	bool (*want)(size_t i); /* the condition holds at i, or by the step from i */
	bool on_the_way;	/* by the step: forward stops are one later */
};

static void hunt(const struct hunt *h)
{
	struct replay_stop stop;
	size_t bad = 0, found = 0, i;

	CU_ASSERT_FATAL(go(0));
	for (i = 0; i + 1 < world->n && bad < 3; i++) {
		size_t at = i + h->on_the_way;
		if (!h->want(i) || (!h->on_the_way && i == 0))
			continue;
		replay_continue(rep, REPLAY_FORWARD, &stop);
		if (stop.reason != h->reason || !same(at)) {
			fprintf(stderr, "  forward: reason %d, wanted %d at %zu %s\n", stop.reason,
				h->reason, at, stop.err.text);
			bad++;
		}
		found++;
	}
	replay_continue(rep, REPLAY_FORWARD, &stop);
	bad += stop.reason != REPLAY_END;
	CU_ASSERT(found > 3);
	CU_ASSERT_EQUAL(bad, 0);
	for (i = world->n - 1; i-- > 0 && bad < 3;) {
		if (!h->want(i))
			continue;
		replay_continue(rep, REPLAY_BACKWARD, &stop);
		if (stop.reason != h->reason || !same(i)) {
			fprintf(stderr, "  backward: reason %d, wanted %d at %zu %s\n", stop.reason,
				h->reason, i, stop.err.text);
			bad++;
		}
	}
	replay_continue(rep, REPLAY_BACKWARD, &stop);
	bad += stop.reason != REPLAY_BEGIN || !same(0);
	CU_ASSERT_EQUAL(bad, 0);
}

static bool writes_watched(size_t i)
{
	return world->pos[i].watch;
}

static bool writes_watched2(size_t i)
{
	return world->pos[i].watch2;
}

static bool reads_watched(size_t i)
{
	return world->pos[i].reads;
}

static bool at_function(size_t i)
{
	return world->pos[i].rip == world_label("function") && !world->pos[i].rep;
}

static bool at_rep(size_t i)
{
	return world->pos[i].rip == world_label("rep") && !world->pos[i].rep;
}

static bool at_signal(size_t i)
{
	return world->pos[i].signal;
}

static void test_watch(void)
{
	static const struct {
		uint64_t addr;
		unsigned kind;
		bool (*want)(size_t i);
	} cases[] = { { WATCHED, REPLAY_WATCH_WRITE, writes_watched },
		      { WATCHED2, REPLAY_WATCH_WRITE, writes_watched2 },
		      { WATCHED, REPLAY_WATCH_READ, reads_watched } };

	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		start(100, (int)k, 1);
		replay_limits(rep, 700, 30, 1 << 22);
		int id = replay_watch_add(rep, cases[k].addr, 8, cases[k].kind);
		CU_ASSERT(id >= 0);
		hunt(&(struct hunt){ REPLAY_WATCH, cases[k].want, true });
		replay_watch_del(rep, id);
		finish();
	}
}

static void test_breaks(void)
{
	static const struct {
		const char *label;
		bool (*want)(size_t i);
	} cases[] = { { "function", at_function }, { "rep", at_rep } };

	for (size_t k = 0; k < 2; k++) {
		start(100, 0, 1);
		replay_limits(rep, 700, 30, 1 << 22);
		replay_break_add(rep, world_label(cases[k].label));
		hunt(&(struct hunt){ REPLAY_BREAK, cases[k].want, false });
		finish();
	}
}

static void test_signals(void)
{
	uint8_t info[128];

	start(200, 0, 1);
	replay_limits(rep, 700, 30, 1 << 22);
	replay_report_signals(rep, 1 << 10);
	hunt(&(struct hunt){ REPLAY_SIGNAL, at_signal, false });
	for (size_t i = 0; i < world->n; i += 1 + rnd() % 9)
		if (world->pos[i].signal && go(i)) {
			CU_ASSERT(replay_siginfo(rep, info) && info[0] == 10);
		}
	finish();
}

static void test_syscalls(void)
{
	static const uint64_t nr[] = { 39 };
	struct replay_stop stop;
	size_t bad = 0;

	start(100, 0, 1);
	replay_limits(rep, 700, 30, 1 << 22);
	replay_catch_syscalls(rep, true, nr, 1);
	for (size_t i = 0; i + 1 < world->n && bad < 3; i++) {
		if (world->pos[i].rip != world_label("syscall") || !world->pos[i].syscall)
			continue;
		replay_continue(rep, REPLAY_FORWARD, &stop);
		bad += stop.reason != REPLAY_SYSCALL_ENTRY || stop.sysno != 39 || !same(i);
		replay_continue(rep, REPLAY_FORWARD, &stop);
		bad += stop.reason != REPLAY_SYSCALL_RETURN || stop.sysno != 39 || !same(i + 1);
	}
	replay_continue(rep, REPLAY_FORWARD, &stop);
	CU_ASSERT_EQUAL(stop.reason, REPLAY_END);
	CU_ASSERT_EQUAL(bad, 0);
	for (size_t i = world->n - 1; i-- > 0 && bad < 3;) {
		if (world->pos[i].rip != world_label("syscall") || !world->pos[i].syscall)
			continue;
		replay_continue(rep, REPLAY_BACKWARD, &stop);
		bad += stop.reason != REPLAY_SYSCALL_RETURN || !same(i + 1);
		replay_continue(rep, REPLAY_BACKWARD, &stop);
		bad += stop.reason != REPLAY_SYSCALL_ENTRY || !same(i);
	}
	CU_ASSERT_EQUAL(bad, 0);
	finish();
}

static void test_text(void)
{
	static const char *const wrong[] = {
		"",	      "x",  "1:",	   "1:x",  "999999999:0",
		"0:99999999", "5+", "99999999999", "3+77", "1:0+1x"
	};
	struct dj_error err;
	char text[80], again[80];

	for (unsigned model = 1; model <= 2; model++) {
		size_t bad = 0;
		start(100, 0, model);
		replay_limits(rep, 700, 30, 1 << 22);
		for (int n = 0; n < 150 && bad < 3; n++) {
			size_t i = rnd() % world->n;
			const struct world_pos *p = &world->pos[i];
			if (p->rep)
				snprintf(text, sizeof(text), "%llu:%llu+%llu",
					 (unsigned long long)p->seq, (unsigned long long)p->within,
					 (unsigned long long)p->rep);
			else
				snprintf(text, sizeof(text), "%llu:%llu",
					 (unsigned long long)p->seq, (unsigned long long)p->within);
			if (replay_goto_text(rep, text, &err)) {
				fprintf(stderr, "  %s: %s\n", text, err.text);
				bad++;
				continue;
			}
			replay_pos_text(rep, again, sizeof(again));
			bad += strcmp(text, again) || !same(i);
		}
		CU_ASSERT_EQUAL(bad, 0);
		CU_ASSERT(go(world->n / 2));
		for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
			CU_ASSERT(replay_goto_text(rep, wrong[k], &err) != 0);
			CU_ASSERT(same(world->n / 2));
		}
		CU_ASSERT(!replay_goto_text(rep, "end", &err) && same(world->n - 1));
		CU_ASSERT(!replay_goto_text(rep, "begin", &err) && same(0));
		finish();
	}
}

/* Call the program's function in a copy, then find everything as it was. */
static void test_copy(void)
{
	for (int predict = 0; predict < 3; predict++) {
		size_t bad = 0;
		start(100, predict, 1);
		for (int n = 0; n < 30; n++) {
			struct replay_stop stop;
			struct dj_regs regs;
			struct dj_error err;
			size_t i = 2000 + rnd() % (world->n - 3000);
			uint64_t x = rnd() & 0xffff, y = rnd() & 0xffff, sp, back = CODE_AT + 7;
			if (n % 2)
				i = i / world->seen_every * world->seen_every - 1;
			bad += !go(i) || !same(i) || replay_fork_copy(rep, &err);
			replay_regs(rep, &regs);
			sp = regs.gpr[DJ_RSP] - 0x400;
			regs.gpr[DJ_RSP] = sp;
			regs.gpr[DJ_RAX] = x;
			regs.gpr[DJ_RBX] = DATA_AT;
			regs.rip = world_label("function");
			bad += replay_set_regs(rep, &regs, DJ_REG_ALL) != 0;
			const uint64_t to_back = htole64(back), operand = htole64(y);
			bad += replay_write(rep, sp, &to_back, 8) != 0;
			bad += replay_write(rep, DATA_AT + 0x110, &operand, 8) != 0;
			replay_break_add(rep, back);
			replay_continue(rep, REPLAY_FORWARD, &stop);
			replay_regs(rep, &regs);
			bad += stop.reason != REPLAY_BREAK || regs.rip != back ||
			       regs.gpr[DJ_RAX] != 3 + y + 3 * x;
			replay_break_del(rep, back);
			replay_discard(rep);
			bad += !same(i);
			replay_step(rep, REPLAY_FORWARD, &stop);
			bad += !same(i + 1);
		}
		CU_ASSERT_EQUAL(bad, 0);
		finish();
	}
}

/* ---- observers ------------------------------------------------------------------------------- */

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

static void test_observers(void)
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

/* ---- several threads --------------------------------------------------------------------- */

static struct world *two[2];
static unsigned processes;

static int32_t pid_of(int x)
{
	return processes == 2 ? x + 1 : 1;
}

static void start_two(unsigned model, unsigned n)
{
	processes = n;
	struct dj_error err = { 0 };

	snprintf(path, sizeof(path), "/tmp/test-replay-%d.deja", (int)getpid());
	world_record_two(path, rnd(), (const unsigned[2]){ 60, 90 }, model, n, two);
	rep = replay_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep);
	replay_report_signals(rep, 0);
	world = two[0];
}

static void finish_two(void)
{
	replay_close(rep);
	world_free(two[0]);
	world_free(two[1]);
	unlink(path);
}

/* Where thread x stands while the other one is at its position i: SIZE_MAX, it has not begun. */
static size_t stands(int x, size_t i)
{
	uint64_t seq = two[!x]->pos[i].seq;
	size_t k = two[x]->n;

	/* the first thread's positions come before the second's with the same event */
	while (k-- > 0)
		if (x == 0 ? two[x]->pos[k].seq <= seq : two[x]->pos[k].seq < seq)
			return k;
	return SIZE_MAX;
}

static bool selected(int x)
{
	struct replay_thread t;

	replay_thread(rep, &t);
	return t.number == (uint32_t)x && t.tid == x + 1 && t.pid == pid_of(x);
}

/* That thread x, at position i of its own, is the moment, and the other one is where it belongs. */
static bool both(int x, size_t i)
{
	struct replay_thread list[4], found;
	struct replay_process proc[2];
	struct replay_pos before, after;
	struct dj_error err;
	size_t j = stands(!x, i), n = replay_threads(rep, REPLAY_ALL, list, 4);
	bool gone = j == SIZE_MAX || j + 1 == two[!x]->n, good;

	replay_pos(rep, &before);
	world = two[x];
	good = selected(x) && same(i) && before.thread == (uint32_t)x &&
	       before.seq == world->pos[i].seq && before.within == world->pos[i].within &&
	       n == (gone ? 1 : 2) && list[gone ? 0 : x].tid == x + 1 &&
	       replay_processes(rep, proc, 2) == (gone ? 1 : processes) &&
	       proc[gone || processes == 1 ? 0 : x].pid == pid_of(x) &&
	       replay_threads(rep, (uint32_t)pid_of(x) - 1, NULL, 0) == (processes == 2 ? 1 : n) &&
	       replay_thread_find(rep, pid_of(!x), 2 - x, &found) == !gone &&
	       !replay_thread_find(rep, 3, x + 1, &found);
	if (gone) {
		good &= replay_select(rep, !x, &err) != 0;
	} else {
		good &= !replay_select(rep, !x, &err) && selected(!x);
		world = two[!x];
		good &= same(j);
		replay_pos(rep, &after);
		good &= !memcmp(&before, &after, sizeof(before)) && !replay_select(rep, x, &err);
		world = two[x];
	}
	good &= selected(x) && same(i);
	if (!good)
		fprintf(stderr, "\n  thread %d at %zu, the other at %zd: wrong\n", x + 1, i,
			(ssize_t)j);
	return good;
}

/* Random positions of either; from there both threads take a step, either way. */
static void test_threads(void)
{
	for (unsigned kind = 0; kind < 4; kind++) {
		size_t bad = 0, steps = 0;
		start_two(1 + (kind & 1), 1 + (kind >> 1));
		replay_limits(rep, 700, 30, 1 << 22);
		bad += !both(0, 0);
		for (int n = 0; n < 100 && bad < 3; n++) {
			int x = rnd() & 1;
			size_t i = rnd() % two[x]->n;
			enum replay_dir dir = rnd() & 1 ? REPLAY_FORWARD : REPLAY_BACKWARD;
			struct replay_stop stop;
			struct dj_error err;
			world = two[x];
			bad += !go(i) || !both(x, i);
			size_t j = stands(!x, i);
			if (replay_select(rep, !x, &err))
				continue;
			if (dir == REPLAY_BACKWARD && !j)
				continue;
			replay_step(rep, dir, &stop);
			j += dir == REPLAY_FORWARD ? 1 : (size_t)-1;
			bad += stop.reason != REPLAY_STEPPED || stop.pid != pid_of(!x) ||
			       stop.tid != 2 - x || stop.pos.thread != (uint32_t)!x || !both(!x, j);
			steps++;
		}
		CU_ASSERT(steps > 30);
		CU_ASSERT_EQUAL(bad, 0);
		finish_two();
	}
}

/* ---- many threads of one process --------------------------------------------------------- */

static struct world *many[WORLD_THREADS];
static unsigned nmany;

/* All positions of all threads in their order. */
static struct one {
	unsigned thread;
	size_t i;
} * line;
static size_t nline;

static const struct world_pos *at(size_t k)
{
	return &many[line[k].thread]->pos[line[k].i];
}

static int by_order(const void *a, const void *b)
{
	const struct one *x = a, *y = b;
	uint64_t s = many[x->thread]->pos[x->i].seq, t = many[y->thread]->pos[y->i].seq;

	if (s != t)
		return s < t ? -1 : 1;
	if (x->thread != y->thread)
		return x->thread < y->thread ? -1 : 1;
	return x->i < y->i ? -1 : x->i > y->i;
}

static void start_many(unsigned n, unsigned rounds, unsigned model, bool racy)
{
	struct dj_error err = { 0 };

	snprintf(path, sizeof(path), "/tmp/test-replay-%d.deja", (int)getpid());
	nmany = n;
	world_record_many(path, rnd(), n, rounds, model, racy, many);
	rep = replay_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep);
	replay_report_signals(rep, 0);
	rep->open_max = rnd() & 1 ? 2 : 1000; /* those that are over come and go, or stay */
	nline = 0;
	for (unsigned t = 0; t < n; t++)
		nline += many[t]->n;
	line = malloc(nline * sizeof(*line));
	CU_ASSERT_PTR_NOT_NULL_FATAL(line);
	nline = 0;
	for (unsigned t = 0; t < n; t++)
		for (size_t i = 0; i < many[t]->n; i++)
			line[nline++] = (struct one){ t, i };
	qsort(line, nline, sizeof(*line), by_order);
	world = many[0];
}

static void finish_many(void)
{
	replay_close(rep);
	for (unsigned t = 0; t < nmany; t++)
		world_free(many[t]);
	free(line);
	unlink(path);
}

/* Whether the moment is position k of the order, with its thread selected. */
static bool there(size_t k)
{
	struct replay_pos pos;
	struct replay_thread t;

	replay_pos(rep, &pos);
	replay_thread(rep, &t);
	world = many[line[k].thread];
	if (t.number == line[k].thread && pos.thread == t.number && pos.seq == at(k)->seq &&
	    pos.within == at(k)->within && same(line[k].i))
		return true;
	fprintf(stderr, "\n  wanted %llu:%llu of %u, have %llu:%llu of %u, %u selected\n",
		(unsigned long long)at(k)->seq, (unsigned long long)at(k)->within, line[k].thread,
		(unsigned long long)pos.seq, (unsigned long long)pos.within, pos.thread, t.number);
	return false;
}

static bool go_there(size_t k)
{
	world = many[line[k].thread];
	return go(line[k].i);
}

/* Which conditions are looked for. */
static struct {
	bool function, rep, signals, calls, watch;
} wanted;

/* A write watch is hit on the way to position k of the order. */
static bool watch_at(size_t k)
{
	return wanted.watch && line[k].i && at(k)[-1].all_watch2;
}

/* What position k of the order stops a continue for; `arrival`: also what its thread did last. */
static enum replay_reason reason_at(size_t k, bool arrival)
{
	const struct world_pos *p = at(k), *before = line[k].i ? p - 1 : NULL;

	if (arrival && watch_at(k))
		return REPLAY_WATCH;
	if (arrival && wanted.calls && before && before->syscall &&
	    before->rip == world_label("syscall"))
		return REPLAY_SYSCALL_RETURN;
	if (wanted.signals && p->signal)
		return REPLAY_SIGNAL;
	if (wanted.calls && p->syscall && p->rip == world_label("syscall"))
		return REPLAY_SYSCALL_ENTRY;
	if (wanted.function && p->rip == world_label("function") && !p->rep)
		return REPLAY_BREAK;
	if (wanted.rep && p->rip == world_label("rep") && !p->rep)
		return REPLAY_BREAK;
	return REPLAY_STEPPED;
}

static int watch_id;
static bool may_watch;

static void want_some(void)
{
	static const uint64_t nr[] = { 39 };
	unsigned kinds = 1 + (unsigned)(rnd() % 15);

	memset(&wanted, 0, sizeof(wanted));
	wanted.watch = may_watch && rnd() & 1;
	if (wanted.watch)
		watch_id = replay_watch_add(rep, WATCHED2, 8, REPLAY_WATCH_WRITE);
	wanted.function = kinds & 1;
	wanted.rep = kinds & 2;
	wanted.signals = kinds & 4;
	wanted.calls = kinds & 8;
	if (wanted.function)
		replay_break_add(rep, world_label("function"));
	if (wanted.rep)
		replay_break_add(rep, world_label("rep"));
	replay_report_signals(rep, wanted.signals ? 1 << 10 : 0);
	replay_catch_syscalls(rep, wanted.calls, nr, 1);
}

static void want_none(void)
{
	if (wanted.watch)
		replay_watch_del(rep, watch_id);
	if (wanted.function)
		replay_break_del(rep, world_label("function"));
	if (wanted.rep)
		replay_break_del(rep, world_label("rep"));
	replay_report_signals(rep, 0);
	replay_catch_syscalls(rep, false, NULL, 0);
	memset(&wanted, 0, sizeof(wanted));
}

/* Some continues forward from position k of the order, against the order itself. */
static bool walk_forward(size_t k, int stops)
{
	struct replay_stop stop;
	bool told = false;

	while (stops--) {
		/* a signal that arrives where one goes on from is told, too, if it was not */
		if (!told && wanted.signals && at(k)->signal) {
			replay_continue(rep, REPLAY_FORWARD, &stop);
			if (stop.reason != REPLAY_SIGNAL || !there(k))
				return false;
			told = true;
			continue;
		}
		enum replay_reason reason = REPLAY_END;
		for (k++; k < nline && (reason = reason_at(k, true)) == REPLAY_STEPPED; k++)
			;
		if (k == nline)
			reason = REPLAY_END;
		replay_continue(rep, REPLAY_FORWARD, &stop);
		told = reason == REPLAY_SIGNAL;
		if (stop.reason != reason || stop.pos.thread != line[k - (k == nline)].thread ||
		    !there(k - (k == nline))) {
			fprintf(stderr, "  forward: reason %d, wanted %d at %zu of %zu %s\n",
				stop.reason, reason, k, nline, stop.err.text);
			return false;
		}
		if (k == nline)
			break;
	}
	return true;
}

static void test_all_forward(void)
{
	for (unsigned kind = 0; kind < 6; kind++) {
		size_t bad = 0;
		start_many(2 + kind % 4, 40, 1 + (kind & 1), kind & 2);
		replay_limits(rep, 700, 30, 1 << 22);
		bad += !there(0) || !walk_forward(0, 1);
		for (int n = 0; n < 25 && bad < 3; n++) {
			size_t k = rnd() % nline;
			bad += !go_there(k);
			want_some();
			/* whoever is selected, it goes on from the moment */
			uint32_t other = (uint32_t)(rnd() % nmany);
			struct dj_error err;
			if (rnd() & 1 && !(wanted.signals && at(k)->signal))
				replay_select(rep, other, &err);
			bad += !walk_forward(k, 12);
			want_none();
		}
		CU_ASSERT_EQUAL(bad, 0);
		finish_many();
	}
}

/* What position k of the order stops a continue back for. */
static enum replay_reason reason_back(size_t k)
{
	enum replay_reason reason = reason_at(k, false);

	if (reason == REPLAY_STEPPED)
		reason = reason_at(k, true);
	return reason == REPLAY_WATCH ? REPLAY_STEPPED : reason;
}

/* Whether the moment is position k of the order, and thread t selected and where it belongs. */
static bool there_with(size_t k, unsigned t)
{
	struct replay_pos pos;
	struct replay_thread who;
	size_t i = k;

	replay_pos(rep, &pos);
	replay_thread(rep, &who);
	while (line[i].thread != t)
		i--;
	world = many[t];
	return pos.thread == line[k].thread && pos.seq == at(k)->seq &&
	       pos.within == at(k)->within && who.number == t && same(line[i].i);
}

static bool walk_backward(size_t k, int stops)
{
	struct replay_stop stop;
	bool untold = false; /* position k has conditions of its own that were not stopped for */

	while (stops--) {
		enum replay_reason reason = REPLAY_BEGIN;
		size_t from = k, now = k;
		unsigned t = line[k].thread;
		if (untold && (reason = reason_back(k)) == REPLAY_STEPPED)
			reason = REPLAY_BEGIN;
		for (; reason == REPLAY_BEGIN && k > 0; k = now) {
			now = k - 1;
			t = line[k].thread;
			if (watch_at(k)) {
				reason = REPLAY_WATCH;
			} else if ((reason = reason_back(now)) != REPLAY_STEPPED) {
				t = line[now].thread;
			} else {
				reason = REPLAY_BEGIN;
				t = line[now].thread;
			}
		}
		untold = reason == REPLAY_WATCH && t != line[k].thread;
		replay_continue(rep, REPLAY_BACKWARD, &stop);
		if (stop.reason != reason || stop.pos.thread != line[k].thread ||
		    !there_with(k, t)) {
			fprintf(stderr,
				"  backward from %zu: reason %d, wanted %d of %u at %zu of %zu "
				"%s\n",
				from, stop.reason, reason, t, k, nline, stop.err.text);
			return false;
		}
		if (reason == REPLAY_BEGIN)
			break;
	}
	return true;
}

static void test_all_backward(void)
{
	for (unsigned kind = 0; kind < 6; kind++) {
		size_t bad = 0;
		start_many(2 + kind % 4, 40, 1 + (kind & 1), kind & 2);
		replay_limits(rep, 700, 30, 1 << 22);
		bad += !go_there(nline - 1) || !walk_backward(nline - 1, 1);
		for (int n = 0; n < 25 && bad < 3; n++) {
			size_t k = rnd() % nline;
			bad += !go_there(k);
			want_some();
			uint32_t other = (uint32_t)(rnd() % nmany);
			struct dj_error err;
			if (rnd() & 1)
				replay_select(rep, other, &err);
			bad += !walk_backward(k, 8);
			if (n % 3 == 0) {
				replay_break_add(rep, world_label("handler"));
				replay_break_del(rep, world_label("handler"));
				k = rnd() % nline;
				bad += !go_there(k) || !walk_forward(k, 3);
			}
			want_none();
		}
		CU_ASSERT_EQUAL(bad, 0);
		finish_many();
	}
}

/* What the selected thread's memory is shown as, without looking ahead. */
static uint64_t shown_hash(void)
{
	uint64_t h = 0;

	for (size_t r = 1; r < 4; r++)
		for (size_t k = 0; k < REGION; k++) {
			uint8_t b;
			size_t n = rp_shared_read(rep, many[0]->region[r].start + k, &b, 1);
			h = world_hash(h, n ? b : 256);
		}
	return h;
}

/* Memory at random moments, as each of the threads is to be shown it. */
static void test_shared_memory(void)
{
	for (unsigned kind = 0; kind < 6; kind++) {
		size_t bad = 0, seen = 0;
		start_many(2 + kind % 4, 60, 1 + (kind & 1), false);
		replay_limits(rep, kind < 3 ? 700 : 1000000, 30, 1 << 22);
		for (int n = 0; n < 60 && bad < 3; n++) {
			size_t k = rnd() % nline;
			const struct world_pos *p;
			struct dj_error err;
			/* where it is known what is to be seen */
			while (k < nline && (line[k].i + 1) % 200)
				k++;
			if (k == nline || !at(k)->seen_by[0])
				continue;
			p = at(k);
			bad += !go_there(k);
			for (unsigned t = 0; t < nmany && bad < 3 && n % 2 == 0; t++) {
				if (replay_select(rep, (t + line[k].thread) % nmany, &err))
					continue;
				seen++;
				if (shown_hash() != p->seen_by[(t + line[k].thread) % nmany]) {
					fprintf(stderr, "\n  at %zu thread %u: memory differs\n", k,
						t);
					bad++;
				}
			}
			replay_select(rep, line[k].thread, &err);
			bad += !there(k);
		}
		CU_ASSERT(seen > 20);
		CU_ASSERT_EQUAL(bad, 0);
		finish_many();
	}
}

/* Write watches, with other conditions and without, both ways. Where threads take turns only before
 * events, what really was in memory is what the order says. */
static void test_all_watch(void)
{
	may_watch = true;
	for (unsigned kind = 0; kind < 6; kind++) {
		size_t bad = 0, watched = 0;
		start_many(2 + kind % 4, 40, 1 + (kind & 1), false);
		replay_limits(rep, kind < 3 ? 700 : 1000000, 30, 1 << 22);
		for (int n = 0; n < 16 && bad < 3; n++) {
			size_t k = rnd() % nline;
			bad += !go_there(k);
			want_some();
			watched += wanted.watch;
			bad += !(n & 1 ? walk_backward(k, 8) : walk_forward(k, 10));
			want_none();
		}
		CU_ASSERT(watched > 2);
		CU_ASSERT_EQUAL(bad, 0);
		finish_many();
	}
	may_watch = false;
}

/* The next (or last) position of the order that is thread t's, from k on; nline if there is none.
 */
static size_t next_of(unsigned t, size_t k, bool back)
{
	while (k < nline && line[k].thread != t)
		k += back ? (size_t)-1 : 1;
	return k < nline ? k : nline;
}

/* Steps of any thread from any moment, with others' conditions and without. */
static void test_all_steps(void)
{
	for (unsigned kind = 0; kind < 6; kind++) {
		size_t bad = 0, taken = 0, stopped = 0;
		start_many(2 + kind % 4, 40, 1 + (kind & 1), kind & 2);
		replay_limits(rep, 700, 30, 1 << 22);
		for (int n = 0; n < 150 && bad < 3; n++) {
			size_t k = rnd() % nline;
			uint32_t t = (uint32_t)(rnd() % nmany);
			bool back = rnd() & 1, alone = rnd() & 1;
			struct replay_stop stop;
			struct dj_error err;
			size_t mine = next_of(t, k, true), to, at_stop = nline;
			if (n % 2) {
				/* a thread's last position before an event, or the next */
				while (k + 1 < nline && line[k].thread == line[k + 1].thread)
					k++;
				t = line[k].thread;
				mine = k;
				back = false;
				if (n % 4 == 1 && (mine = next_of(t, k + 1, false)) < nline) {
					k = mine;
					back = true;
				} else {
					mine = k;
				}
			}
			bad += !go_there(k);
			if (mine == nline || replay_select(rep, t, &err))
				continue;
			to = back ? (mine ? next_of(t, mine - 1, true) : nline)
				  : next_of(t, mine + 1, false);
			if (to == nline)
				continue;
			want_some();
			replay_report_signals(rep, 0);
			replay_catch_syscalls(rep, false, NULL, 0);
			wanted.signals = wanted.calls = false;
			replay_set_scope(rep, alone ? REPLAY_THREAD : REPLAY_PROCESS);
			for (size_t i = back ? k - 1 : k + 1; !alone && i != to && at_stop == nline;
			     i += back ? (size_t)-1 : 1)
				if (line[i].thread != t && reason_at(i, false) == REPLAY_BREAK)
					at_stop = i;
			replay_step(rep, back ? REPLAY_BACKWARD : REPLAY_FORWARD, &stop);
			if (at_stop == nline) {
				bad += stop.reason != REPLAY_STEPPED || !there(to);
				taken++;
			} else {
				bad += stop.reason != REPLAY_BREAK || !there(at_stop);
				stopped++;
			}
			replay_set_scope(rep, REPLAY_PROCESS);
			want_none();
		}
		CU_ASSERT_EQUAL(bad, 0);
		CU_ASSERT(taken > 20);
		CU_ASSERT(stopped > 3);
		finish_many();
	}
}

/* What was mapped before a thread began, by another, is fresh memory to it as well. */
static void test_mapped_before(void)
{
	static const uint8_t code[] = { 0x0f, 0x05, 0x90, 0x90 }; /* syscall */
	static const char *const none[] = { NULL };
	struct dj_trace_meta meta = { .memory_model = 1,
				      .pid = 1,
				      .page_size = 4096,
				      .exe = "/p",
				      .cpu = "GenuineIntel",
				      .cwd = "/",
				      .machine = "test",
				      .deja_version = "test",
				      .argv = none,
				      .envp = none };
	struct dj_record r = { .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
	struct dj_error err = { 0 };
	struct replay_pos at;
	uint8_t bytes[8] = { 1 };

	snprintf(path, sizeof(path), "/tmp/test-replay-%d.deja", (int)getpid());
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	dj_writer_module(w, "/p", code, sizeof(code), &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *a = dj_writer_thread(w, p, 1, "a", &err), *b;
	r.regs.rip = CODE_AT;
	dj_stream_record(a, &r, &err);
	r = (struct dj_record){ .kind = DJ_REC_MAP, .addr = CODE_AT, .length = 4096, .prot = 5 };
	dj_stream_record(a, &r, &err);
	r = (struct dj_record){ .kind = DJ_REC_SYSCALL };
	dj_stream_record(a, &r, &err);
	r = (struct dj_record){ .kind = DJ_REC_MAP,
				.steps = 1,
				.seq = 1,
				.addr = DATA_AT,
				.length = 4096,
				.prot = 3,
				.flags = 0x22,
				.module = -1 };
	dj_stream_record(a, &r, &err);
	dj_stream_flush(a, 1, 1, &err);
	b = dj_writer_thread(w, p, 2, "b", &err);
	dj_stream_flush(b, 0, 1, &err);
	r = (struct dj_record){ .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
	r.regs.rip = CODE_AT + 2;
	dj_stream_record(b, &r, &err);
	dj_stream_facts(b, 0, 2, &err);
	dj_stream_flush(b, 1, 1, &err);
	CU_ASSERT_FATAL(!dj_writer_close(w, &(struct dj_trace_end){ .status = 0 }, &err));
	rep = replay_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep);
	replay_thread_begin(rep, 1, &at);
	CU_ASSERT(!replay_seek(rep, &at, &err));
	CU_ASSERT_EQUAL(replay_read(rep, DATA_AT, bytes, 8), 8);
	CU_ASSERT(!bytes[0] && !bytes[7]);
	/* but not what the image began with */
	CU_ASSERT_EQUAL(replay_read(rep, CODE_AT, bytes, 4), 4);
	CU_ASSERT(!memcmp(bytes, code, 4));
	replay_close(rep);
	unlink(path);
}

/* ---- verifying on several processors -------------------------------------------------------- */

static uint64_t told_total, told_last;
static bool told_back;

static void told(uint64_t done, uint64_t total)
{
	told_back |= done < told_last || done > total;
	told_last = done;
	told_total = total;
}

/* Let this test have so many processors, or fewer where there are fewer. */
static void processors(int n)
{
	static cpu_set_t all;
	cpu_set_t some;

	if (!CPU_COUNT(&all))
		sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&some);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&some) < n; i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &some);
	sched_setaffinity(0, sizeof(some), &some);
}

static void test_verify_many(void)
{
	struct replay_verify_result res[2];
	struct dj_error err = { 0 };

	for (unsigned kind = 0; kind < 6; kind++) {
		uint64_t steps = 0, events = 0, digests = 0;
		/* nothing wrong, or a digest each of two threads or more */
		for (unsigned t = 0; t < WORLD_THREADS; t++)
			world_spoil[t] = kind < 2 ? 0 : kind < 4 && t > 1 ? 0 : 1 + rnd() % 4;
		start_many(4, 60, 1 + (kind & 1), true);
		memset(world_spoil, 0, sizeof(world_spoil));
		for (unsigned t = 0; t < nmany; t++) {
			steps += many[t]->e->steps;
			events += many[t]->events;
			digests += many[t]->digests;
		}
		for (int cpus = 1; cpus <= 2; cpus++) {
			struct replay_verify_result *r = &res[cpus - 1];
			processors(cpus);
			told_last = told_total = 0;
			told_back = false;
			CU_ASSERT_EQUAL(replay_verify(replay_trace(rep), r, NULL, told, &err), 0);
			CU_ASSERT(told_total == steps && !told_back);
			CU_ASSERT_EQUAL(r->div.found, kind >= 2);
			if (kind < 2)
				CU_ASSERT(r->instructions == steps && r->digests == digests &&
					  (kind == 1 || r->events == events));
		}
		processors(CPU_SETSIZE);
		res[0].seconds = res[1].seconds;
		CU_ASSERT(!memcmp(&res[0], &res[1], sizeof(res[0])));
		/* no other thread's divergence comes before that in the order */
		for (unsigned t = 0; kind >= 2 && t < nmany; t++) {
			struct replay_pos at = { .thread = t, .steps = UINT64_MAX };
			struct replay_stop stop;
			CU_ASSERT_FATAL(!replay_goto_text(rep, "begin", &err));
			replay_thread_begin(rep, t, &at);
			if (replay_seek(rep, &at, &err))
				continue;
			replay_set_scope(rep, REPLAY_THREAD);
			replay_continue(rep, REPLAY_FORWARD, &stop);
			replay_set_scope(rep, REPLAY_PROCESS);
			if (stop.reason == REPLAY_FAILED)
				CU_ASSERT(replay_pos_cmp(&res[0].div.pos, &stop.pos) <= 0);
		}
		finish_many();
	}
}

/* Going by text, stops, and the ends of history. */
static void test_thread_positions(void)
{
	struct replay_stop stop;
	struct replay_pos pos;
	struct dj_error err;
	char text[80], again[80];
	size_t bad = 0;

	start_two(1, 1);
	replay_limits(rep, 700, 30, 1 << 22);
	for (int n = 0; n < 60 && bad < 3; n++) {
		int x = rnd() & 1;
		size_t i = rnd() % two[x]->n;
		const struct world_pos *p = &two[x]->pos[i];
		if (p->rep)
			continue;
		snprintf(text, sizeof(text), "%llu:%llu@%d", (unsigned long long)p->seq,
			 (unsigned long long)p->within, x + 1);
		bad += replay_goto_text(rep, text, &err) != 0 || !both(x, i);
		replay_pos_text(rep, again, sizeof(again));
		bad += strcmp(text, again) != 0;
		/* without the thread: another may have it, too */
		bad += replay_goto_text(rep, "999999:0", &err) == 0 || !both(x, i);
		bad += replay_goto_text(rep, "1:1@3", &err) == 0 || !both(x, i);
		/* a breakpoint stops the thread that goes on, if it goes on alone */
		replay_set_scope(rep, REPLAY_THREAD);
		replay_break_add(rep, world_label("function"));
		replay_continue(rep, REPLAY_FORWARD, &stop);
		bad += !selected(x) || stop.tid != x + 1 ||
		       (stop.reason != REPLAY_BREAK && stop.reason != REPLAY_END);
		replay_break_del(rep, world_label("function"));
		replay_set_scope(rep, REPLAY_PROCESS);
	}
	CU_ASSERT_EQUAL(bad, 0);
	CU_ASSERT(!replay_goto_text(rep, "begin", &err) && both(0, 0));
	CU_ASSERT(!replay_goto_text(rep, "end", &err) && both(1, two[1]->n - 1));
	replay_begin_pos(rep, &pos);
	CU_ASSERT(pos.thread == 0 && pos.steps == 0);
	for (uint32_t x = 0; x < 2; x++) {
		replay_thread_end(rep, x, &pos);
		CU_ASSERT(!replay_seek(rep, &pos, &err) && both((int)x, two[x]->n - 1));
		replay_thread_begin(rep, x, &pos);
		CU_ASSERT(!replay_seek(rep, &pos, &err) && both((int)x, 0));
	}
	pos.thread = 2;
	CU_ASSERT(replay_seek(rep, &pos, &err) != 0 && both(1, 0));
	finish_two();
}

/* A copy of a thread that is not the moment's: it comes and goes, and the moment stays. */
static void test_thread_copy(void)
{
	struct replay_pos before, after;
	struct replay_stop stop;
	struct dj_error err;
	size_t i, j;

	start_two(1, 1);
	world = two[0];
	i = two[0]->n / 2;
	j = stands(1, i);
	CU_ASSERT_FATAL(go(i) && j != SIZE_MAX && !replay_select(rep, 1, &err));
	replay_pos(rep, &before);
	CU_ASSERT_FATAL(!replay_fork_copy(rep, &err));
	CU_ASSERT(replay_threads(rep, REPLAY_ALL, NULL, 0) == 2);
	CU_ASSERT(replay_select(rep, 0, &err) != 0 && selected(1));
	struct dj_regs regs;
	replay_regs(rep, &regs);
	regs.rip = world_label("function");
	CU_ASSERT(!replay_set_regs(rep, &regs, DJ_REG_ALL));
	replay_step(rep, REPLAY_FORWARD, &stop);
	CU_ASSERT(stop.reason == REPLAY_STEPPED && stop.tid == 2);
	replay_discard(rep);
	replay_pos(rep, &after);
	CU_ASSERT(!memcmp(&before, &after, sizeof(before)));
	world = two[1];
	CU_ASSERT(selected(1) && same(j));
	CU_ASSERT(!replay_select(rep, 0, &err) && both(0, i));
	finish_two();
}

static void test_order(void)
{
	/* each sorts before the next */
	static const struct replay_pos list[] = {
		{ .seq = 0, .thread = 0, .steps = 9 },
		{ .seq = 0, .thread = 1, .steps = 2 },
		{ .seq = 1, .thread = 1, .steps = 3 },
		{ .seq = 1, .thread = 1, .steps = 3, .rep = 5 },
		{ .seq = 1, .thread = 1, .steps = 3, .signals = 1 },
		{ .seq = 1, .thread = 1, .steps = 4 },
		{ .seq = 1, .thread = 2, .steps = 0 },
		{ .seq = 2, .thread = 0, .steps = 12 },
	};
	const size_t n = sizeof(list) / sizeof(*list);

	for (size_t a = 0; a < n; a++)
		for (size_t b = 0; b < n; b++) {
			int d = replay_pos_cmp(&list[a], &list[b]);
			CU_ASSERT(a < b ? d < 0 : a > b ? d > 0 : d == 0);
		}
}

/* 3: with a wrong flag, 4: with a wrong sum, 5: cut short. */
static const uint8_t *spoilt_check(struct dj_record *r, int kind, uint8_t *bytes)
{
	struct dj_check c;

	CU_ASSERT_FATAL(dj_check_unpack(&c, r->bytes, r->length));
	if (kind == 3)
		c.flags ^= DJ_FLAG_AF;
	if (kind == 4)
		c.piece[3].sum ^= 0x100;
	r->length = dj_check_pack(&c, bytes) - (kind == 5);
	return bytes;
}

static void test_divergence(void)
{
	struct dj_error err = { 0 };
	struct replay_verify_result res;

	start(60, 0, 1);
	/* the same program with a wrong digest, with records out of order, with a wrong number of
	 * events, a wrong flag, a wrong byte of memory, and with a check that is none */
	for (int kind = 0; kind < 6; kind++) {
		struct dj_trace *t = replay_trace(rep);
		struct dj_writer *w;
		char other[80];
		size_t size;
		snprintf(other, sizeof(other), "%s.x", path);
		w = dj_writer_create(other, dj_trace_meta(t), &err);
		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		const uint8_t *module = dj_trace_module_bytes(t, 0, &size, &err);
		dj_writer_module(w, "/program", module, size, &err);
		struct dj_stream *process = dj_writer_process(w, 1, NULL, &err);
		struct dj_stream *thread = dj_writer_thread(w, process, 1, "program", &err);
		struct dj_cursor *c = dj_cursor_new(t, 0, &err);
		const struct dj_record *r;
		uint64_t bad_steps = 0;
		int digests = 0;
		while ((r = dj_cursor_next(c, &err))) {
			struct dj_record copy = *r;
			uint8_t bytes[DJ_CODE_MAX];
			if (copy.kind == DJ_REC_CHECK && digests == 5 && kind > 2) {
				bad_steps = copy.steps;
				copy.bytes = spoilt_check(&copy, kind, bytes);
			}
			if (copy.kind == DJ_REC_DIGEST && ++digests == 5) {
				bad_steps = copy.steps;
				if (kind < 2)
					copy.digest ^= 4;
				else if (kind == 2)
					copy.seq += 7;
				if (kind == 1)
					copy.kind = DJ_REC_SYSCALL;
			}
			dj_stream_record(thread, &copy, &err);
		}
		dj_cursor_free(c);
		dj_writer_close(w, &(struct dj_trace_end){ .status = 0 }, &err);
		t = dj_trace_open(other, &err);
		CU_ASSERT_PTR_NOT_NULL_FATAL(t);
		int ret = replay_verify(t, &res, NULL, NULL, &err);
		/* where a system call happens to be, the extra one puts the order wrong */
		CU_ASSERT((ret == -1 && (kind == 1 || kind == 5) && err.exit_status == 2) ||
			  (res.div.found && res.div.pos.steps == bad_steps));
		if (kind == 2) {
			char want[80];
			snprintf(want, sizeof(want),
				 "%llu ordered events have been passed, expected "
				 "%llu",
				 (unsigned long long)res.div.pos.seq,
				 (unsigned long long)res.div.pos.seq + 7);
			CU_ASSERT_PTR_NOT_NULL(strstr(res.div.text, want));
		}
		if (kind == 3)
			CU_ASSERT_PTR_NOT_NULL(strstr(res.div.text, ": rflags is "));
		if (kind == 4)
			CU_ASSERT_PTR_NOT_NULL(strstr(res.div.text, "4096 bytes of memory at 0x"));
		dj_trace_close(t);
		unlink(other);
	}
	finish();
}

int main(void)
{
	suites_begin();
	CU_pSuite s = CU_add_suite("replay", NULL, NULL);
	CU_add_test(s, "verify", test_verify);
	CU_add_test(s, "every step both ways", test_steps);
	CU_add_test(s, "random positions", test_seeks);
	CU_add_test(s, "watchpoints", test_watch);
	CU_add_test(s, "breakpoints", test_breaks);
	CU_add_test(s, "signals", test_signals);
	CU_add_test(s, "system calls", test_syscalls);
	CU_add_test(s, "positions as text", test_text);
	CU_add_test(s, "throw-away copy", test_copy);
	CU_add_test(s, "observers", test_observers);
	CU_add_test(s, "two threads", test_threads);
	CU_add_test(s, "positions of two threads", test_thread_positions);
	CU_add_test(s, "all threads forward", test_all_forward);
	CU_add_test(s, "all threads backward", test_all_backward);
	CU_add_test(s, "mapped before a thread began", test_mapped_before);
	CU_add_test(s, "verifying many threads", test_verify_many);
	CU_add_test(s, "memory of many threads", test_shared_memory);
	CU_add_test(s, "watching in many threads", test_all_watch);
	CU_add_test(s, "steps among many threads", test_all_steps);
	CU_add_test(s, "a copy of another thread", test_thread_copy);
	CU_add_test(s, "the order of positions", test_order);
	CU_add_test(s, "divergence", test_divergence);
	printf("seed %llu\n", (unsigned long long)seed);
	return suites_run();
}
