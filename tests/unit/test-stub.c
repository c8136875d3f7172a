/*
 * The gdb remote protocol, against a replay whose history is a formula (tests/lib/fake-replay.h).
 * The tests are in test-stub-*.c.
 */
#include "tests/unit/test-stub.h"
#include "tests/lib/suites.h"

int main(void)
{
	static CU_SuiteInfo suites[] = {
		{ "framing", NULL, NULL, NULL, NULL, stub_framing },
		{ "packets", NULL, NULL, NULL, NULL, stub_packets },
		{ "moving", NULL, NULL, NULL, NULL, stub_moving },
		{ "threads", NULL, NULL, NULL, NULL, stub_threads },
		{ "copy", NULL, NULL, NULL, NULL, stub_copy },
		{ "sessions", NULL, NULL, NULL, NULL, stub_sessions },
		CU_SUITE_INFO_NULL,
	};

	suites_begin();
	CU_register_suites(suites);
	return suites_run();
}
