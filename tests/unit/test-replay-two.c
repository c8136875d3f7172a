/*
 * Two threads, of one process or of two: where the one stands while the other moves.
 */
#include "tests/unit/test-replay.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
void test_threads(void)
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

/* Going by text, stops, and the ends of history. */
void test_thread_positions(void)
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
void test_thread_copy(void)
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
