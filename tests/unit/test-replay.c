/*
 * The replay against a made-up world (replay-world.h) in which every position is known. The tests
 * are in test-replay-*.c; here is what they share, one world and its replay. They come in one
 * order, so that each has the same random numbers every time.
 */
#include "tests/lib/random.h"
#include "tests/unit/test-replay.h"

#include <stdio.h>
#include <unistd.h>

char path[64];
struct world *world;
struct replay *rep;
static uint64_t seed = 20240611;

/* Asked by AddressSanitizer's library, if the program has that: it keeps much of what is freed, and
 * a replay looks at how much memory the process takes. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "quarantine_size_mb=8";
}

uint64_t rnd(void)
{
	return random_next(&seed);
}

struct dj_writer *write_by_hand(void)
{
	static const char *const none[] = { NULL };
	const struct dj_trace_meta meta = { .memory_model = 1,
					    .pid = 1,
					    .page_size = 4096,
					    .exe = "/p",
					    .cpu = "GenuineIntel",
					    .cwd = "/",
					    .machine = "test",
					    .deja_version = "test",
					    .argv = none,
					    .envp = none };
	struct dj_error err = { 0 };

	snprintf(path, sizeof(path), "/tmp/test-replay-%d.deja", (int)getpid());
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	return w;
}

void start(unsigned rounds, int predict, unsigned model)
{
	struct dj_error err = { 0 };

	snprintf(path, sizeof(path), "/tmp/test-replay-%d.deja", (int)getpid());
	world = world_record(path, rnd(), rounds, predict, model);
	rep = replay_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep);
	replay_report_signals(rep, 0);
}

void finish(void)
{
	replay_close(rep);
	/* nothing of what was kept is left over */
	CU_ASSERT_EQUAL(rp_versions_held(), 0);
	world_free(world);
	unlink(path);
}

/* Whether the replay is at the world's position i, in all that can be compared. */
bool same(size_t i)
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

bool go(size_t i)
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

int main(void)
{
	suites_begin();
	CU_pSuite s = CU_add_suite("replay", NULL, NULL);
	CU_add_test(s, "verify", test_verify);
	CU_add_test(s, "every step both ways", test_steps);
	CU_add_test(s, "random positions", test_seeks);
	CU_add_test(s, "interrupted on the way", test_interrupted);
	CU_add_test(s, "interrupted on the way to a breakpoint", test_interrupted_breaks);
	CU_add_test(s, "watchpoints", test_watch);
	CU_add_test(s, "breakpoints", test_breaks);
	CU_add_test(s, "conditions of breakpoints", test_conditions);
	CU_add_test(s, "checkpoints that are due and not wanted", test_overdue);
	CU_add_test(s, "searching in vain", test_search_in_vain);
	CU_add_test(s, "going ahead", test_ahead);
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
	CU_add_test(s, "verifying thousands of threads", test_verify_short);
	CU_add_test(s, "checkpoints and what was mapped", test_checkpoints_fair);
	CU_add_test(s, "memory of many threads", test_shared_memory);
	CU_add_test(s, "watching in many threads", test_all_watch);
	CU_add_test(s, "steps among many threads", test_all_steps);
	CU_add_test(s, "a copy of another thread", test_thread_copy);
	CU_add_test(s, "the order of positions", test_order);
	CU_add_test(s, "divergence", test_divergence);
	CU_add_test(s, "learned bytes", test_learned);
	CU_add_test(s, "times as text", test_time);
	CU_add_test(s, "beginning with a full keyframe", test_full_keyframe);
	CU_add_test(s, "an index and little room", test_index_room);
	CU_add_test(s, "checkpoints of much memory", test_checkpoints_light);
	CU_add_test(s, "an index and what was mapped", test_index_mapped);
	CU_add_test(s, "messages with many pages", test_wire_pages);
	CU_add_test(s, "pages of many messages", test_tail_pages);
	printf("seed %llu\n", (unsigned long long)seed);
	return suites_run();
}
