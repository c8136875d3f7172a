/*

 * The throw-away copy: registers and memory that the client writes, and functions that it calls.
 */
#include "tests/unit/test-stub.h"

static void test_edits(void)
{
	begin();
	EXPECT_STOP("s", "T05 ");
	EXPECT("M600000,1:2a", "OK");
	CU_ASSERT(replay_in_copy(fake));
	EXPECT("m600000,1", "2a");
	EXPECT("X600001,2:}\x03z", "OK");
	EXPECT("m600000,3", "2a237a");
	EXPECT("P0=0500000000000000", "OK");
	EXPECT("p0", "0500000000000000");
	CU_ASSERT(session.scratch_edited);
	EXPECT_STOP("s", "T05 ");
	CU_ASSERT(!replay_in_copy(fake));
	CU_ASSERT_EQUAL(position(), 2);
	EXPECT("m600000,1", "00");
	EXPECT("p0", "d007000000000000");
	EXPECT("M0,1:00", "E.no memory is known at 0");
	EXPECT_STOP("bs", "T05 ");
	EXPECT("P1=0500000000000000", "OK");
	EXPECT("qRcmd,676f746f2035", hex_of("at 0:5, pc 0x401014 in /usr/bin/fake\n"));
	CU_ASSERT(!replay_in_copy(fake));
	finish();
}

/* What gdb sends to call the function at 0x402000 and take its result. */
static void start_call(void)
{
	EXPECT("M60effc,4:00000000", "OK"); /* above the red zone: as if nothing */
	EXPECT("M60ef00,8:0020600000000000", "OK");
	EXPECT("P7=00ef600000000000", "OK");
	EXPECT("P10=0020400000000000", "OK");
	EXPECT("Z0,602000,1", "OK");
}

static void end_call(void)
{
	EXPECT("z0,602000,1", "OK");
	EXPECT("P0=8813000000000000", "OK");
	EXPECT("P7=00f0600000000000", "OK");
	EXPECT("P10=1410400000000000", "OK");
}

static void test_calls(void)
{
	begin();
	EXPECT("qRcmd,676f746f2035", hex_of("at 0:5, pc 0x401014 in /usr/bin/fake\n"));
	start_call();
	EXPECT_STOP("vCont;c", "T05 swbreak:;");
	CU_ASSERT_EQUAL(session.scratch, SCRATCH_CALL);
	EXPECT("p0", "4d00000000000000");
	end_call();
	CU_ASSERT_EQUAL(session.scratch, SCRATCH_EDITS);
	EXPECT_STOP("s", "T05 ");
	CU_ASSERT(!replay_in_copy(fake));
	CU_ASSERT_EQUAL(position(), 6);

	/* stopped within the call, which goes on; then dropped by going back */
	EXPECT("bs", ask("?"));
	start_call();
	EXPECT("Z0,402008,1", "OK");
	EXPECT_STOP("vCont;c", "T05 swbreak:;");
	EXPECT_STOP("vCont;s", "T05 ");
	CU_ASSERT(replay_in_copy(fake));
	EXPECT("p10", "0c20400000000000");
	EXPECT("z0,402008,1", "OK");
	EXPECT("z0,602000,1", "OK");
	EXPECT_STOP("bs", "T05 ");
	CU_ASSERT(!replay_in_copy(fake));
	CU_ASSERT_EQUAL(position(), 4);

	/* a system call in the copy fails it; going on leaves it */
	start_call();
	EXPECT("P10=0030400000000000", "OK");
	EXPECT_STOP("vCont;c", "T0c ");
	CU_ASSERT(replay_in_copy(fake));
	EXPECT("z0,602000,1", "OK");
	EXPECT_STOP("vCont;s", "T05 ");
	CU_ASSERT(!replay_in_copy(fake));
	CU_ASSERT_EQUAL(position(), 5);
	finish();
}

CU_TestInfo stub_copy[] = {
	{ "edits", test_edits },
	{ "calls", test_calls },
	CU_TEST_INFO_NULL,
};
