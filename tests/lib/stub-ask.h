/*
 * A session of the gdb remote protocol without a link: packets in, replies out, against a replay
 * whose history is a formula (fake-replay.h).
 */
#ifndef DEJA_TESTS_LIB_STUB_ASK_H
#define DEJA_TESTS_LIB_STUB_ASK_H

#include "gdbstub/session.h"
#include "tests/lib/fake-replay.h"

#include <CUnit/CUnit.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern struct replay *fake;
extern struct stub_session session;

/* The session and its replay. */
void begin(void);
void finish(void);

/* The reply to a packet as a string; "(none)" if nothing is to be sent. */
const char *ask(const char *packet);
const char *ask_bytes(const char *packet, size_t len);

/* Whether the reply is as expected; it says so if not. */
bool check(const char *request, const char *expected, const char *got);

#define EXPECT(request, expected)                                                                  \
	do {                                                                                       \
		const char *got_ = ask(request);                                                   \
		CU_ASSERT(check(request, expected, got_));                                         \
	} while (0)

#define EXPECT_STOP(request, expected)                                                             \
	do {                                                                                       \
		const char *got_ = stop_of(ask(request));                                          \
		CU_ASSERT(check(request, expected, got_));                                         \
	} while (0)

/* A stop reply without the registers: "T05" and what follows the thread; and its thread. */
const char *stop_of(const char *reply);
const char *thread_of(const char *reply);

/* Texts as the protocol has them: in hexadecimal digits, and to be read from. */
const char *hex_of(const char *text);
struct stub_scan scan_of(const char *text);

/* An object of qXfer, read in pieces of that many bytes. */
char *read_object(const char *object, const char *annex, unsigned piece);

/* Where the session's replay is, and rax there. */
uint64_t position(void);
uint64_t rax_now(void);

#endif
