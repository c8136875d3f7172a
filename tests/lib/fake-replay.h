/*
 * An implementation of the replay interface (and of what the gdb stub asks of a trace) whose
 * history is a formula, so that tests know every answer:
 *
 *   position n of 0..FAKE_STEPS   rip walks FAKE_LOOP instructions of 4 bytes round and round;
 *                                 general register r holds 1000 n + r (rsp is FAKE_STACK)
 *   FAKE_COUNTER                  8 bytes holding n / 10: written by every tenth instruction
 *   FAKE_PROBE                    8 bytes read by every instruction n with n % 7 == 3
 *   n % 100 == 50                 a system call, number (n / 100) % 4
 *   FAKE_SIGNAL_AT                SIGUSR1 arrives
 *   FAKE_FORK_AT, FAKE_VFORK_AT   a child is made: FAKE_CHILD by fork, FAKE_CHILD2 by vfork
 *   the end                       exit status 3
 *   FAKE_TID2                     a second thread, from position FAKE_BEGIN2 until before
 * FAKE_END2; its general register r holds 500000 + n + r, its rip stays FAKE_CODE2 but for
 * FAKE_MARK2 at position FAKE_MARK2_AT, and whichever thread moves, it moves along n
 *   FAKE_CHILD                    a process of its own with one thread, after FAKE_FORK_AT until
 * before FAKE_CHILD_END; likewise with 700000, FAKE_CODE3, FAKE_MARK3 and FAKE_MARK3_AT.
 * FAKE_CHILD2 is not recorded A breakpoint in a thread of the scope that is not selected stops the
 * replay there.
 *
 * In the throw-away copy an instruction adds 4 to rip; at FAKE_RET it returns instead, and
 * at FAKE_SYSCALL it fails.
 */
#ifndef DEJA_TESTS_LIB_FAKE_REPLAY_H
#define DEJA_TESTS_LIB_FAKE_REPLAY_H

#include "replayer/replay.h"

#define FAKE_PID       4242
#define FAKE_TID2      4243
#define FAKE_BEGIN2    200
#define FAKE_END2      800
#define FAKE_CHILD     4300
#define FAKE_CHILD_END 900
#define FAKE_CHILD2    4400
#define FAKE_STEPS     1000
#define FAKE_CODE      0x401000ULL
#define FAKE_CODE2     0x402800ULL
#define FAKE_MARK2     0x402880ULL
#define FAKE_MARK2_AT  355
#define FAKE_CODE3     0x402900ULL
#define FAKE_MARK3     0x402980ULL
#define FAKE_MARK3_AT  655
#define FAKE_LOOP      50
#define FAKE_RET       0x402010ULL
#define FAKE_SYSCALL   0x403010ULL
#define FAKE_DATA      0x600000ULL
#define FAKE_DATA_SIZE 0x10000ULL
#define FAKE_COUNTER   0x600000ULL
#define FAKE_PROBE     0x600100ULL
#define FAKE_TEXT      0x600200ULL /* "needle}#$*" */
#define FAKE_PHDR      0x601000ULL
#define FAKE_STACK     0x60f000ULL
#define FAKE_SIGNAL_AT 333
#define FAKE_FORK_AT   500
#define FAKE_VFORK_AT  600
#define FAKE_EXE       "/usr/bin/fake"
#define FAKE_LIB       "/usr/lib/x86_64-linux-gnu/libfake.so.1.2.3"
#define FAKE_LIB_AT    0x700000ULL

struct replay *fake_replay_new(void);
/* Whether rbp is FAKE_STACK everywhere, as if all were one function's. */
void fake_one_frame(bool on);
/* How often replay_report_signals and the like were called with what. */
uint64_t fake_signal_mask(const struct replay *r);
size_t fake_points(const struct replay *r);
enum replay_scope fake_scope(const struct replay *r);

#endif
