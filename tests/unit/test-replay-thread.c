/*
 * One thread: verifying, every position by steps and by seeking, what stops a continue, signals,
 * system calls, positions as text and in their order, what is learned ahead, and the throw-away
 * copy.
 */
#include "tests/unit/test-replay.h"

#include <stdio.h>
#include <string.h>

void test_verify(void)
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
void test_steps(void)
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
void test_seeks(void)
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
			/* what one checkpoint takes, and the fewest there are, apart */
			bad += rp_versions_held() > limits[k].budget + (16u << 20);
			bad += rep->cs->n > limits[k].max;
		}
		CU_ASSERT_EQUAL(bad, 0);
		finish();
	}
}

/* Who is interrupted on the way to a position stands where he was. */
void test_interrupted(void)
{
	struct dj_error err;
	size_t bad = 0, interrupted = 0;

	start(300, 1, 1);
	replay_limits(rep, 1000000, 200, 1 << 28);
	for (int n = 0; n < 600 && bad < 3; n++) {
		const struct world_pos *p = &world->pos[n % 3 ? rnd() % world->n : 0];
		struct replay_pos to = { .steps = p->steps, .signals = p->signals, .rep = p->rep };

		const size_t from = rnd() % world->n;
		bad += !go(from);
		rep->patience.allowance = rnd() % (n % 2 ? 100 : 100000);
		const bool stays = replay_seek(rep, &to, &err) != 0;
		rep->patience.allowance = UINT64_MAX;
		bad += !same(stays ? from : (size_t)(p - world->pos));
		interrupted += stays;
	}
	CU_ASSERT_EQUAL(bad, 0);
	CU_ASSERT(interrupted > 100);
	finish();
}

static unsigned looks, last_look;

static bool at_last_look(void *ctx)
{
	(void)ctx;
	rep->patience.due = 0; /* it looks each time that it could */
	return ++looks >= last_look;
}

/* Wherever the way to a breakpoint is interrupted, that stops, and so does the one behind the block
 * of code that begins there. Each time from the beginning, where no code is known yet. */
void test_interrupted_breaks(void)
{
	const uint64_t at[] = { world_label("function"), world_label("code") + 51 };
	size_t bad = 0, interrupted = 0, late = 0, first = 0, second;
	struct replay_stop stop;
	struct dj_error err;

	start(10, 0, 1);
	while (first < world->n && world->pos[first].rip != at[0])
		first++;
	for (second = first; second < world->n && world->pos[second].rip != at[1];)
		second++;
	CU_ASSERT_FATAL(second < world->n);
	for (last_look = 1; last_look < 200 && bad < 3; last_look++) {
		replay_close(rep);
		CU_ASSERT_PTR_NOT_NULL_FATAL(rep = replay_open(path, &err));
		replay_report_signals(rep, 0);
		replay_break_add(rep, at[0]);
		replay_break_add(rep, at[1]);
		looks = 0;
		replay_set_poll(rep, at_last_look, NULL);
		rep->patience.due = 0;
		replay_continue(rep, REPLAY_FORWARD, &stop);
		replay_set_poll(rep, NULL, NULL);
		if (looks < last_look)
			break;
		interrupted += stop.reason == REPLAY_INTERRUPTED;
		if (stop.reason == REPLAY_INTERRUPTED)
			replay_continue(rep, REPLAY_FORWARD, &stop);
		else
			late++; /* it was noticed when it had come there */
		bad += stop.reason != REPLAY_BREAK || !same(first);
		replay_continue(rep, REPLAY_FORWARD, &stop);
		bad += stop.reason != REPLAY_BREAK || !same(second);
	}
	CU_ASSERT(last_look < 200);
	CU_ASSERT(interrupted && late);
	CU_ASSERT_EQUAL(bad, 0);
	finish();
}

/* Walk back with continue from the end and compare with the world's positions that `want` says. */
struct hunt {
	enum replay_reason reason;
	bool (*want)(size_t i); /* the condition holds at i, or by the step from i */
	bool on_the_way;	/* by the step: forward stops are one later */
};

static void hunt_forward(const struct hunt *h)
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
}

static void hunt(const struct hunt *h)
{
	struct replay_stop stop;
	size_t bad = 0, i;

	hunt_forward(h);
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
	/* over ground that has been covered */
	hunt_forward(h);
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

void test_watch(void)
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

void test_breaks(void)
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

/* Breakpoints at some of the addresses there are, each with a condition that only now and then is
 * true. */
static struct {
	uint64_t at[8];
	size_t n;
	unsigned seldom; /* once in so many times */
	unsigned asked;
} some;

#define STORED 3 /* in the world's function, the instruction before has stored rax */

static bool is_some(uint64_t rip, uint64_t digest)
{
	return world_hash(rip, digest) % some.seldom == 0;
}

static bool holds(void *ctx, uint32_t thread, uint64_t addr)
{
	struct dj_regs regs;
	uint64_t stored = 0;

	(void)ctx;
	(void)thread;
	replay_regs(rep, &regs);
	some.asked++;
	for (unsigned i = 0; i < 16; i++)
		if (replay_gpr(rep, i) != regs.gpr[i])
			return true;
	/* behind a store of rax */
	if (some.n > STORED && addr == some.at[STORED] &&
	    (replay_read(rep, regs.gpr[DJ_RSP] + 8, &stored, 8) != 8 ||
	     le64toh(stored) != regs.gpr[DJ_RAX]))
		return true;
	return regs.rip == addr && is_some(addr, dj_regs_digest(&regs));
}

static bool at_some(size_t i)
{
	const struct world_pos *p = &world->pos[i];

	for (size_t k = 0; k < some.n; k++)
		if (p->rip == some.at[k] && !p->rep)
			return is_some(p->rip, p->digest);
	return false;
}

/* Also in a block with others, where most are false for many checkpoints in a row, and where few of
 * those have memory. */
void test_conditions(void)
{
	static const struct {
		unsigned seldom;
		size_t n, budget;
	} cases[] = { { 3, 1, 1 << 22 },  { 5, 8, 1 << 22 },  { 97, 8, 1 << 22 }, { 3, 1, 1 << 16 },
		      { 23, 4, 1 << 16 }, { 97, 8, 1 << 16 }, { 3, 8, 1 },	  { 97, 8, 1 } };

	for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
		size_t n;
		start(300, 0, 1);
		replay_limits(rep, 200, 200, cases[k].budget);
		some.seldom = cases[k].seldom;
		some.asked = 0;
		/* one, and what is executed behind it, most of it in the same block */
		size_t first = 0;
		while (!at_function(first))
			first++;
		for (n = 0; n < cases[k].n; n++) {
			some.at[n] = world->pos[first + n].rip;
			replay_break_add(rep, some.at[n]);
		}
		some.n = n;
		replay_set_condition(rep, holds, NULL);
		hunt(&(struct hunt){ REPLAY_BREAK, at_some, false });
		CU_ASSERT(some.asked > 100);
		finish();
	}
}

/* What it costs to go from the beginning to there, as the patience of who waits has it. */
static uint64_t work_to(const struct rp_thread_pos *to, bool pass)
{
	const struct rp_thread_pos begin = { .steps = rep->th->info->first_steps };
	const uint64_t much = 1ULL << 40;
	struct rp_thread_pos now;

	CU_ASSERT_FATAL(!rp_checkpoint_go(rep->cs, &begin, NULL));
	rep->patience.allowance = much;
	enum rp_thread_stop res = pass ? rp_pass_to(rep, to, 0) : replay_run_to(rep, to, 0, false);
	uint64_t work = much - rep->patience.allowance;
	rep->patience.allowance = UINT64_MAX;
	rp_thread_pos(rep->th, &now);
	CU_ASSERT(res == THREAD_LIMIT && !rp_thread_pos_cmp(&now, to));
	return work;
}

/* Where a checkpoint is due, and not wanted because there is one soon, the thread is not stopped
 * again and again to look. */
void test_overdue(void)
{
	struct rp_thread_pos to = { .steps = 3999 };

	start(300, 0, 1);
	replay_limits(rep, 2000, 30, 1 << 28);
	CU_ASSERT_FATAL(rp_pass_to(rep, &to, 0) == THREAD_LIMIT && rep->th->e->steps == to.steps);
	rp_checkpoint_take(rep->cs);
	CU_ASSERT(rep->cs->n == 1);
	uint64_t least = work_to(&to, true);
	CU_ASSERT(work_to(&to, false) < least + 100);
	CU_ASSERT(rep->cs->n == 1);
	finish();
}

static bool never(void *ctx, uint32_t thread, uint64_t addr)
{
	(void)thread;
	(void)addr;
	++*(unsigned *)ctx;
	return false;
}

/* Searching back in vain over checkpoints of which few have memory is no more work than twice the
 * way forward, and hardly more questions than there are arrivals. */
void test_search_in_vain(void)
{
	const uint64_t much = 1ULL << 40;
	struct rp_thread_pos end = { .steps = 0 };
	struct replay_stop stop;
	unsigned asked = 0, arrivals = 0;

	start(300, 0, 1);
	end.steps = world->pos[world->n - 1].steps;
	uint64_t forward = work_to(&end, true);
	replay_limits(rep, 300, 100, 1 << 16);
	CU_ASSERT_FATAL(go(0) && go(world->n - 1));
	const size_t n = rep->cs->n;
	size_t full = 0;
	for (size_t i = 0; i < n; i++)
		full += !rep->cs->list[i]->light;
	CU_ASSERT(n > 30 && full > 1 && full < n / 2);
	for (size_t i = 0; i < world->n; i++)
		arrivals += at_function(i);
	replay_break_add(rep, world_label("function"));
	replay_set_condition(rep, never, &asked);
	rep->patience.allowance = much;
	replay_continue(rep, REPLAY_BACKWARD, &stop);
	uint64_t back = much - rep->patience.allowance;
	rep->patience.allowance = UINT64_MAX;
	CU_ASSERT(stop.reason == REPLAY_BEGIN);
	CU_ASSERT(back < 2 * forward);
	CU_ASSERT(asked >= arrivals && asked < arrivals + 2 * n);
	finish();
}

static bool after_some_time(void *ctx)
{
	return (*(unsigned *)ctx)-- == 0;
}

/* Going ahead is not to be noticed, wherever it is interrupted. */
void test_ahead(void)
{
	uint64_t done, all, before = 0;
	size_t bad = 0;

	start(300, 0, 1);
	replay_limits(rep, 700, 30, 1 << 22);
	for (unsigned n = 0; n < 30 && bad < 3; n++) {
		size_t i = rnd() % world->n;
		unsigned patience = (unsigned)(rnd() % 2);
		bad += !go(i);
		replay_ahead(rep, after_some_time, &patience);
		bad += !same(i);
		replay_ahead_progress(rep, &done, &all);
		bad += done < before || done > all;
		before = done;
	}
	unsigned patience = UINT32_MAX;
	replay_ahead(rep, after_some_time, &patience);
	replay_ahead_progress(rep, &done, &all);
	CU_ASSERT(all > 0 && done == all);
	CU_ASSERT_EQUAL(bad, 0);
	finish();
}

void test_signals(void)
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

void test_syscalls(void)
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

void test_text(void)
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
void test_copy(void)
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

void test_order(void)
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

/* A time is the microsecond that its digits say, though few of them are numbers of a processor. */
void test_time(void)
{
	static const char *const wrong[] = { "",
					     "5",
					     "1.5.2s",
					     "s",
					     "0x5us",
					     "1e3us",
					     "-1s",
					     "5 us",
					     "5m",
					     "nans",
					     "1234567890123456789012us",
					     "9999999999s" };
	char text[40];
	uint64_t us, bad = 0;

	for (uint64_t want = 0; want < 3000000; want += 1 + want / 5000) {
		static const struct {
			const char *unit;
			uint64_t us;
			int digits;
		} units[] = { { "us", 1, 0 }, { "ms", 1000, 3 }, { "s", 1000000, 6 } };

		for (size_t i = 0; i < 3; i++) {
			int n = snprintf(text, sizeof(text), "%.*f%s", units[i].digits,
					 (double)want / (double)units[i].us, units[i].unit);

			us = want + 1;
			bad += !replay_time(text, (size_t)n, &us) || us != want;
		}
	}
	CU_ASSERT_EQUAL(bad, 0);
	CU_ASSERT(replay_time("1.5s@7", 4, &us) && us == 1500000);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CU_ASSERT(!replay_time(wrong[i], strlen(wrong[i]), &us));
}

/* What is learned of a byte at a position: `want`, or -1 for nothing. */
static bool learned(const struct rp_lookahead *l, uint64_t steps, uint32_t signals, uint64_t addr,
		    int want)
{
	const struct rp_thread_pos pos = { .steps = steps, .signals = signals };
	uint8_t value;

	return rp_lookahead_byte(l, &pos, addr, &value) ? value == want : want == -1;
}

/* A byte that is read twice, with something that may write it before, between and after. */
void test_learned(void)
{
	static const uint64_t at = 0x7fff12345678, line = 0x7fff12345640;
	struct rp_lookahead l = { 0 };
	uint8_t a[64], b[64];

	memset(a, 'a', sizeof(a));
	memset(b, 'b', sizeof(b));
	rp_lookahead_spoil(&l, (struct rp_thread_pos){ .steps = 10 }, at - 100, at);
	rp_lookahead_meet(&l, line, 0xffull << 56, a);
	rp_lookahead_spoil(&l, (struct rp_thread_pos){ .steps = 20 }, at, at);
	rp_lookahead_meet(&l, line, 0xfull << 56, b);
	rp_lookahead_spoil(&l, (struct rp_thread_pos){ .steps = 30, .signals = 1 }, 0, UINT64_MAX);
	rp_lookahead_meet(&l, line, 1ull << 56, NULL);
	rp_lookahead_meet(&l, line, 1ull << 60, a);

	CU_ASSERT(learned(&l, 9, 0, at, -1));
	CU_ASSERT(learned(&l, 9, 3, at + 1, 'a')); /* spoilt is its neighbour only */
	CU_ASSERT(learned(&l, 10, 0, at, 'a'));
	CU_ASSERT(learned(&l, 19, 9, at, 'a'));
	CU_ASSERT(learned(&l, 20, 0, at, 'b'));
	CU_ASSERT(learned(&l, 30, 0, at, 'b'));
	CU_ASSERT(learned(&l, 30, 1, at, -1)); /* written first */
	CU_ASSERT(learned(&l, 30, 0, at + 4, 'a'));
	CU_ASSERT(learned(&l, 30, 1, at + 4, 'a'));
	CU_ASSERT(learned(&l, 30, 1, at + 7, -1)); /* not met again */
	CU_ASSERT(learned(&l, 10, 0, at + 8, -1)); /* never met */
	rp_lookahead_clear(&l);
}
