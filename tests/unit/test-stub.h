/*
 * The parts of test-stub, each with tests of its own and all with what stub-ask.h has.
 */
#ifndef DEJA_TESTS_UNIT_TEST_STUB_H
#define DEJA_TESTS_UNIT_TEST_STUB_H

#include "tests/lib/stub-ask.h"

extern CU_TestInfo stub_framing[], stub_packets[], stub_moving[], stub_threads[], stub_copy[],
	stub_sessions[];

#endif
