/*

 * Packets that move one thread: steps both ways, breakpoints and their conditions, watchpoints,
 events;
 * and what ends and starts again.
 */
#include "tests/unit/test-stub.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void test_steps(void)
{
	begin();
	EXPECT_STOP("?", "T05 ");
	EXPECT_STOP("s", "T05 ");
	EXPECT_STOP("vCont;s:1092;c", "T05 ");
	EXPECT_STOP("vCont;S05:1092;c", "T05 ");
	CU_ASSERT_EQUAL(position(), 3);
	EXPECT_STOP("bs", "T05 ");
	CU_ASSERT_EQUAL(position(), 2);
	EXPECT_STOP("vCont;r401000,401020:1092", "T05 ");
	CU_ASSERT_EQUAL(position(), 8);
	EXPECT_STOP("vCont;c:7;s", "T05 ");
	CU_ASSERT_EQUAL(position(), 9);
	EXPECT_STOP("bc", "T05 replaylog:begin;");
	CU_ASSERT_EQUAL(position(), 0);
	EXPECT_STOP("bs", "T05 replaylog:begin;");
	EXPECT("s1234", "E.history cannot be left by a jump");
	EXPECT("Szz", "E01");
	/* the reply carries rbp, rsp and rip */
	EXPECT("s", "T0506:ed03000000000000;07:00f0600000000000;10:0410400000000000;thread:1092;");
	finish();
}

/* 45 instructions from the beginning, when what is told of lines is told, and one of them back. */
static void tell_lines(const char *packet)
{
	ask("bc");
	CU_ASSERT_EQUAL(position(), 0);
	EXPECT_STOP("vCont;r401000,4010b4:1092", "T05 ");
	CU_ASSERT_EQUAL(position(), 45);
	EXPECT(packet, "OK");
	EXPECT_STOP("bs", "T05 ");
	CU_ASSERT_EQUAL(position(), 44);
}

static void test_lines_back(void)
{
	begin();
	fake_one_frame(true);
	EXPECT_STOP("bc", "T05 replaylog:begin;");
	tell_lines("QDejaLines:401020,40;401080,40");
	EXPECT_STOP("bs", "T05 ");
	CU_ASSERT_EQUAL(position(), 32); /* the first of that range */
	for (unsigned n = 31; n >= 23; n--) {
		EXPECT_STOP("bs", "T05 ");
		CU_ASSERT_EQUAL(position(), n);
	}
	EXPECT("Z0,401030,1", "OK"); /* then gdb has thought about it, and one is one again */
	EXPECT_STOP("bs", "T05 ");
	CU_ASSERT_EQUAL(position(), 22);
	CU_ASSERT_EQUAL(strlen(ask("m401000,4")), 8);
	EXPECT_STOP("bs", "T05 ");
	CU_ASSERT_EQUAL(position(), 12); /* where that is */
	EXPECT_STOP("bs", "T05 ");
	CU_ASSERT_EQUAL(position(), 8);
	EXPECT("z0,401030,1", "OK");
	/* not before it has been asked for twice, nor after a request that no such command makes */
	static const char *const others[] = { "qfThreadInfo", "?", "vCont;s", "Tp1092.1092",
					      "QDejaLines:" };
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		tell_lines(i ? "QDejaLines:401020,40;401080,40" : "QDejaLines");
		ask(others[i]);
		uint64_t at = position();
		EXPECT_STOP("bs", "T05 ");
		EXPECT_STOP("bs", "T05 ");
		CU_ASSERT_EQUAL(position(), at - 2);
	}
	/* nor where the frame may be another one */
	tell_lines("QDejaLines:401020,40;401080,40");
	fake_one_frame(false);
	EXPECT_STOP("bs", "T05 ");
	CU_ASSERT_EQUAL(position(), 43);
	/* nor of ranges that are none */
	EXPECT("QDejaLines:401080,40;401020,40", "E01");
	EXPECT("QDejaLines:401020,40;401030,40", "E01");
	EXPECT("QDejaLines:401020,0", "E01");
	EXPECT("QDejaLines:401020", "E01");
	EXPECT("QDejaLines:ffffffffffffffff,2", "E01");
	EXPECT("QDejaLine", "");
	finish();
}

static void test_breakpoints(void)
{
	begin();
	EXPECT("QPassSignals:1e", "OK");
	CU_ASSERT(!(fake_signal_mask(fake) >> 10 & 1));
	EXPECT("Z0,401020,1", "OK");
	EXPECT("Z0,401020,1", "OK");
	CU_ASSERT_EQUAL(fake_points(fake), 1);
	EXPECT_STOP("vCont;c", "T05 swbreak:;");
	CU_ASSERT_EQUAL(position(), 8);
	EXPECT_STOP("c", "T05 swbreak:;");
	CU_ASSERT_EQUAL(position(), 58);
	EXPECT_STOP("C05", "T05 swbreak:;");
	EXPECT_STOP("bc", "T05 swbreak:;");
	CU_ASSERT_EQUAL(position(), 58);
	EXPECT("Z1,401020,1", "OK");
	EXPECT("z0,401020,1", "OK");
	EXPECT_STOP("c", "T05 hwbreak:;");
	EXPECT("z1,401020,1", "OK");
	CU_ASSERT_EQUAL(fake_points(fake), 0);
	/* the fork is passed over: this client does not know fork events */
	EXPECT_STOP("c", "T05 replaylog:end;");
	CU_ASSERT_EQUAL(position(), FAKE_STEPS);
	EXPECT_STOP("c", "T05 replaylog:end;");
	EXPECT_STOP("bs", "T05 ");
	CU_ASSERT_EQUAL(position(), FAKE_STEPS - 1);
	for (unsigned i = 0; i < SESSION_POINTS; i++) {
		char request[32];
		sprintf(request, "Z0,%x,1", i);
		EXPECT(request, "OK");
	}
	EXPECT("Z0,ffff,1", "E.more than 4096 breakpoints");
	finish();
	begin();
	for (unsigned i = 0; i < SESSION_WATCHES; i++) {
		char request[32];
		sprintf(request, "Z2,%x,1", 0x600000 + i);
		EXPECT(request, "OK");
	}
	EXPECT("Z3,700000,1", "E.more than 128 watchpoints");
	EXPECT("z2,600000,1", "OK");
	EXPECT("Z3,700000,1", "OK");
	finish();
}

static void test_conditions(void)
{
	static const struct {
		const char *code; /* hexadecimal */
		bool good;
		uint64_t value;
		/* clang-format off */
	} rows[] = {
		{ "220527", true, 5 },
		{ "22ff160827", true, UINT64_MAX },
		{ "22ff2a0427", true, 15 },
		{ "23123427", true, 0x1234 },
		{ "250123456789abcdef27", true, 0x0123456789abcdef },
		{ "220722030227", true, 10 },
		{ "220722030327", true, 4 },
		{ "220722030427", true, 21 },
		{ "220722030527", true, 2 },
		{ "220722000527", false, 0 },
		{ "220722000827", false, 0 },
		{ "220722030727", true, 1 },
		{ "220722030927", true, 56 },
		{ "220722030f27", true, 3 },
		{ "220722031427", true, 0 },
		{ "220322071427", true, 1 },
		{ "22000e27", true, 1 },
		{ "26001027", true, FAKE_CODE },
		{ "26002827", false, 0 }, /* a vector register */
		{ "2600ff27", false, 0 },
		{ "24006002001727", true, 'n' },
		{ "24006002001927", true, 0x6465656e },
		{ "22001a27", false, 0 },
		{ "2201200008220927220827", true, 8 },
		{ "2200200008220927220827", true, 9 },
		{ "22012202220333292927", true, 3 },
		{ "220122022b27", true, 1 },
		{ "22012202320127", true, 1 },
		{ "2201320527", false, 0 },
		{ "210000", false, 0 }, /* a loop */
		{ "2201280021000227", false, 0 },
		{ "27", false, 0 },
		{ "02", false, 0 },
		{ "22", false, 0 },
		{ "0d27", false, 0 },
		{ "", false, 0 },
	};
	/* clang-format on */
	begin();
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint8_t code[64];
		uint64_t value = 0;
		struct stub_scan a = scan_of(rows[i].code);
		long n = stub_scan_hexbytes(&a, code, sizeof(code));
		bool good = stub_agent_eval(&session, code, (size_t)n, &value);
		CU_ASSERT_EQUAL(good, rows[i].good);
		if (good != rows[i].good || (good && value != rows[i].value))
			fprintf(stderr, "\n  %s: %d %" PRIx64 "\n", rows[i].code, good, value);
		if (rows[i].good)
			CU_ASSERT_EQUAL(value, rows[i].value);
	}
	/* rbx == 1000 * 58 + 3, that is at the second round, or the register cannot be had */
	EXPECT("QPassSignals:1e", "OK");
	EXPECT("Z0,401020,1;Xa,26000124"
	       "0000e293"
	       "1327",
	       "OK");
	EXPECT_STOP("c", "T05 swbreak:;");
	CU_ASSERT_EQUAL(position(), 58);
	EXPECT_STOP("c", "T05 replaylog:end;");
	EXPECT_STOP("bc", "T05 swbreak:;");
	CU_ASSERT_EQUAL(position(), 58);
	EXPECT("Z0,401020,1;X3,220027X4,2600ff27", "OK");
	EXPECT_STOP("c", "T05 swbreak:;");
	CU_ASSERT_EQUAL(position(), 108);
	EXPECT("Z0,401020,1;X3,220027", "OK");
	EXPECT_STOP("bc", "T05 replaylog:begin;");
	EXPECT_STOP("vCont;r401000,401024:1092", "T05 ");
	CU_ASSERT_EQUAL(position(), 9);
	EXPECT("Z0,401020,1;X3,22", "E01");
	EXPECT("Z0,401020,1;Xffffffff,22", "E01");
	EXPECT("Z0,401020,1;X0,", "E01");
	finish();
}

static void test_watchpoints(void)
{
	begin();
	EXPECT("QPassSignals:1e", "OK");
	EXPECT("Z2,600000,8", "OK");
	EXPECT("Z3,600100,8", "OK");
	EXPECT_STOP("c", "T05 rwatch:600100;");
	CU_ASSERT_EQUAL(position(), 4);
	EXPECT_STOP("c", "T05 watch:600000;");
	CU_ASSERT_EQUAL(position(), 10);
	EXPECT("z3,600100,8", "OK");
	EXPECT_STOP("c", "T05 watch:600000;");
	CU_ASSERT_EQUAL(position(), 20);
	EXPECT_STOP("bc", "T05 watch:600000;");
	CU_ASSERT_EQUAL(position(), 19);
	EXPECT("z2,600000,8", "OK");
	EXPECT("Z4,600100,4", "OK");
	EXPECT_STOP("c", "T05 awatch:600100;");
	EXPECT("z4,600100,4", "OK");
	CU_ASSERT_EQUAL(fake_points(fake), 0);
	finish();
}

static void test_events(void)
{
	begin();
	EXPECT("QCatchSyscalls:1;1;3", "OK");
	EXPECT_STOP("c", "T05 syscall_entry:1;");
	EXPECT("p39", "0100000000000000"); /* orig_rax */
	EXPECT_STOP("c", "T05 syscall_return:1;");
	EXPECT("QCatchSyscalls:0", "OK");
	EXPECT("QCatchSyscalls:1;zz", "E01");
	EXPECT("QCatchSyscalls:2", "E01");
	EXPECT_STOP("c", "T1e ");
	CU_ASSERT_EQUAL(position(), FAKE_SIGNAL_AT);
	EXPECT_STOP("?", "T1e ");
	EXPECT("QCatchSyscalls:1", "OK");
	EXPECT_STOP("C1e", "T05 syscall_entry:3;");
	EXPECT("QCatchSyscalls:0", "OK");
	session.multiprocess = session.fork_events = true;
	EXPECT_STOP("c", "T05 fork:p10cc.10cc;");
	EXPECT("Z0,401010,1", "OK");
	EXPECT("Hgp10cc.10cc", "OK");
	EXPECT("z0,401010,1", "OK");
	CU_ASSERT_EQUAL(fake_points(fake), 1);
	EXPECT("Hgp1092.1092", "OK");
	EXPECT("D;10cc", "OK");
	EXPECT("z0,401010,1", "OK");
	CU_ASSERT_EQUAL(fake_points(fake), 0);
	CU_ASSERT(!session.no_process);
	finish();
}

static void test_processes(void)
{
	begin();
	EXPECT("!", "OK");
	EXPECT("Z0,401020,1", "OK");
	EXPECT_STOP("c", "T05 swbreak:;");
	EXPECT("vKill;1092", "OK");
	CU_ASSERT(!session.done);
	CU_ASSERT_EQUAL(fake_points(fake), 0);
	EXPECT("?", "W00");
	EXPECT("g", "E03");
	EXPECT("qfThreadInfo", "l");
	EXPECT_STOP("vRun;66616b65;61", "T05 ");
	CU_ASSERT_EQUAL(position(), 0);
	EXPECT_STOP("s", "T05 ");
	EXPECT("R00", "(none)");
	CU_ASSERT_EQUAL(position(), 0);
	EXPECT("D;1092", "OK");
	EXPECT_STOP("vAttach;1092", "T05 ");
	EXPECT("k", "(none)");
	CU_ASSERT(session.done);
	finish();
	begin();
	EXPECT("D", "OK");
	CU_ASSERT(session.done);
	finish();
}

CU_TestInfo stub_moving[] = {
	{ "steps", test_steps },
	{ "steps back through lines", test_lines_back },
	{ "breakpoints", test_breakpoints },
	{ "conditions", test_conditions },
	{ "watchpoints", test_watchpoints },
	{ "events", test_events },
	{ "processes", test_processes },
	CU_TEST_INFO_NULL,
};
