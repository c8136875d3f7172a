/*
 * What the parts of test-replay share: a world, its replay, and where that should be.
 */
#ifndef DEJA_TESTS_UNIT_TEST_REPLAY_H
#define DEJA_TESTS_UNIT_TEST_REPLAY_H

#include "replayer/replay-internal.h"
#include "tests/lib/replay-world.h"
#include "tests/lib/suites.h"

extern char path[64];
extern struct world *world;
extern struct replay *rep;

uint64_t rnd(void);
/* Begin a trace that no world comes with, at `path`. */
struct dj_writer *write_by_hand(void);

/* A world of one thread. */
void start(unsigned rounds, int predict, unsigned model);
void finish(void);

/* Whether the replay is at the world's position i, in all that can be compared; go there. */
bool same(size_t i);
bool go(size_t i);

/* Many threads of one process. */
extern struct world *many[WORLD_THREADS];
extern unsigned nmany;
void start_many(unsigned n, unsigned rounds, unsigned model, bool racy);
void finish_many(void);

/* ---- the tests, in the order of their files ---- */

/* test-replay-thread.c */
void test_verify(void);
void test_steps(void);
void test_seeks(void);
void test_interrupted(void);
void test_interrupted_breaks(void);
void test_watch(void);
void test_breaks(void);
void test_conditions(void);
void test_overdue(void);
void test_search_in_vain(void);
void test_ahead(void);
void test_signals(void);
void test_syscalls(void);
void test_text(void);
void test_copy(void);
void test_order(void);
void test_learned(void);
void test_time(void);

/* test-replay-observers.c */
void test_observers(void);

/* test-replay-two.c */
void test_threads(void);
void test_thread_positions(void);
void test_thread_copy(void);

/* test-replay-many.c */
void test_all_forward(void);
void test_all_backward(void);
void test_shared_memory(void);
void test_all_watch(void);
void test_all_steps(void);
void test_mapped_before(void);

/* test-replay-verify.c */
void test_verify_many(void);
void test_verify_short(void);
void test_divergence(void);
void test_checkpoints_fair(void);

/* test-replay-begin.c */
void test_full_keyframe(void);

/* test-replay-index.c */
void test_index_room(void);
void test_checkpoints_light(void);
void test_index_mapped(void);
void test_wire_pages(void);
void test_tail_pages(void);

#endif
