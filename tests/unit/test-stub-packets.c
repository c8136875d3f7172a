/*

 * Packets that ask: what is supported, registers, checksums, the objects of qXfer, files, and
 monitor
 * commands.
 */
#include "tests/unit/test-stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_simple(void)
{
	static const struct {
		const char *request, *reply;
		/* clang-format off */
	} rows[] = {
		{ "vMustReplyEmpty", "" },
		{ "qTStatus", "" },
		{ "qUnknown", "" },
		{ "QNonStop:0", "OK" },
		{ "QNonStop:1", "E.a replay is all-stop" },
		{ "qC", "QCp1092.1092" },
		{ "qfThreadInfo", "mp1092.1092" },
		{ "qsThreadInfo", "l" },
		{ "qAttached:1092", "1" },
		{ "qHostInfo", "triple:7838365f36342d70632d6c696e75782d676e75;ptrsize:8;endian:little;ostype:linux;" },
		{ "qProcessInfo", "pid:1092;triple:7838365f36342d70632d6c696e75782d676e75;ptrsize:8;endian:little;ostype:linux;" },
		{ "qMemoryRegionInfo:0", "start:0;size:401000;" },
		{ "qMemoryRegionInfo:x", "E01" },
		{ "qShlibInfoAddr", "602008" }, /* of the value of DT_DEBUG */
		{ "qShlibInfoAddr,", "E01" },
		{ "qSymbol::", "qSymbol:5f7468726561645f64625f6c696e6b5f6d61705f6c5f746c735f6d6f646964" },
		{ "qSymbol::5f7468", "OK" },
		{ "qSymbol:1234:5f7468", "OK" },
		{ "qGetTLSAddr:1", "E01" },
		{ "QProgramSignals:0;1;", "OK" },
		{ "QPassSignals:zz", "E01" },
		{ "Hgp1092.1092", "OK" },
		{ "Hg0", "OK" },
		{ "Hc-1", "OK" },
		{ "Hgp0.0", "OK" },
		{ "Hgp99.99", "E03" },
		{ "Hg", "E01" },
		{ "H", "E01" },
		{ "Tp1092.1092", "OK" },
		{ "Tp1092.7", "E03" },
		{ "T", "E03" },
		{ "vCont?", "vCont;c;C;s;S;t;r" },
		{ "vCont;", "E01" },
		{ "vCont;q", "E01" },
		{ "vCont;s:zz", "E01" },
		{ "vCont;r1", "E01" },
		{ "m600000,8", "0000000000000000" },
		{ "m600000,0", "" },
		{ "m0,8", "E0e" },
		{ "m60fffc,100", "00000000" },
		{ "mfffffffffffffff8,100", "E0e" },
		{ "m600000", "E01" },
		{ "m600000,8x", "E01" },
		{ "x600200,8", "bneedle}]}\x03" },
		{ "x600200,0", "b" },
		{ "p10", "0010400000000000" },
		{ "p7", "00f0600000000000" },
		{ "p27", "00000000" },
		{ "p4c", "E01" },
		{ "pffffffffffffffff", "E01" },
		{ "qSearch:memory:600000;1000;needle", "1,600200" },
		{ "qSearch:memory:600201;1000;needle", "0" },
		{ "qSearch:memory:600000;1000;", "E01" },
		{ "qSearch:memory:0;1000;x", "E0e" },
		{ "qCRC:600000,0", "Cffffffff" },
		{ "qCRC:0,1", "E0e" },
		{ "qThreadExtraInfo,p1092.1092", "66616b653c7468726561643e" },
		{ "X600000,0:", "OK" },
		{ "M600000,1", "E01" },
		{ "M600000,2:0", "E01" },
		{ "M600000,ffffffffffffffff:00", "E01" },
		{ "Z9,1,1", "" },
		{ "Z0,1", "E01" },
		{ "Z", "E01" },
		{ "Z2,600000,0", "E.cannot watch 0 bytes" },
		{ "z0,1,1", "OK" },
		{ "vAttach;1", "E.there is no process 1 in this recording" },
		{ "G12", "E01" },
		{ "G1", "E01" },
		{ "G0000000000000000", "OK" },
		{ "P0=00", "E01" },
		{ "P99=00", "E01" },
	};
	/* clang-format on */
	begin();
	session.multiprocess = true;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		EXPECT(rows[i].request, rows[i].reply);
	CU_ASSERT_EQUAL(fake_points(fake), 0);
	finish();
}

static void test_supported(void)
{
	begin();
	const char *r = ask("qSupported:multiprocess+;exec-events+;xmlRegisters=i386");
	CU_ASSERT(session.multiprocess && session.exec_events);
	CU_ASSERT(strncmp(r, "PacketSize=20000;", 17) == 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(r, ";ReverseStep+;ReverseContinue+;"));
	CU_ASSERT_PTR_NOT_NULL(strstr(r, ";qXfer:features:read+;"));
	finish();
	begin();
	ask("qSupported");
	CU_ASSERT(!session.multiprocess);
	EXPECT("qC", "QC1092");
	EXPECT("qfThreadInfo", "m1092");
	finish();
}

/* CRC-32 of "123456789" in this form (poly 04c11db7, not reflected, no final xor), as gdb's
 * own libiberty xcrc32 documents it, is 0x0376e6e7 with initial value ffffffff. */
static void test_crc(void)
{
	begin();
	EXPECT("M600300,9:313233343536373839", "OK");
	EXPECT("qCRC:600300,9", "C376e6e7");
	finish();
}

static void test_registers(void)
{
	begin();
	const char *g = ask("g");
	/* 16 general, rip: 8 bytes; eflags, 6 selectors: 4; 8 st: 10; 8 control: 4; 16 xmm; mxcsr;
	 * orig_rax, two bases: 8; 16 upper halves */
	CU_ASSERT_EQUAL(strlen(g), 2 * (17 * 8 + 7 * 4 + 80 + 32 + 256 + 4 + 24 + 256));
	CU_ASSERT_EQUAL(strncmp(g + 2 * 17 * 8, "02020000", 8), 0);
	char *all = strdup(g);
	/* p says the same as g, register by register */
	size_t at = 0;
	char request[8];
	for (unsigned i = 0; i < 76; i++) {
		sprintf(request, "p%x", i);
		const char *p = ask(request);
		CU_ASSERT_EQUAL(strncmp(all + at, p, strlen(p)), 0);
		at += strlen(p);
	}
	CU_ASSERT_EQUAL(at, strlen(all));
	EXPECT("p18", "0000000000000080ff3f"); /* st0 = 1.0 */
	EXPECT("p22", "ff3f0000");	       /* tags: R7 valid, others empty */
	EXPECT("p39", "ffffffffffffffff");     /* orig_rax */
	/* writing back what was read changes nothing and makes no copy */
	char *write = malloc(strlen(all) + 2);
	sprintf(write, "G%s", all);
	EXPECT(write, "OK");
	CU_ASSERT(!replay_in_copy(fake));
	free(write);
	free(all);
	finish();
}

static void test_objects(void)
{
	begin();
	session.multiprocess = true;
	char *whole = strdup(read_object("features", "target.xml", 0x10000));
	CU_ASSERT_PTR_NOT_NULL(strstr(whole, "i386:x86-64"));
	CU_ASSERT_PTR_NOT_NULL(strstr(whole, "name=\"ymm15h\" bitsize=\"128\""));
	CU_ASSERT_STRING_EQUAL(read_object("features", "target.xml", 0x100), whole);
	CU_ASSERT_STRING_EQUAL(read_object("features", "target.xml", 7), whole);
	free(whole);
	CU_ASSERT_STRING_EQUAL(read_object("exec-file", "1092", 100), FAKE_EXE);
	CU_ASSERT_STRING_EQUAL(
		read_object("threads", "", 50),
		"<?xml version=\"1.0\"?>\n<threads>\n"
		"<thread id=\"p1092.1092\" name=\"fake&lt;thread&gt;\"/>\n</threads>\n");
	CU_ASSERT_STRING_EQUAL(read_object("libraries-svr4", "", 1000),
			       "<library-list-svr4 version=\"1.0\" main-lm=\"0x604000\">\n"
			       "<library name=\"" FAKE_LIB "\" lm=\"0x604100\" l_addr=\"0x700000\" "
			       "l_ld=\"0x700800\" lmid=\"0x603000\"/>\n</library-list-svr4>\n");
	EXPECT("qXfer:auxv:read::0,8", "m\x03");
	EXPECT("qXfer:siginfo:read::0,80", "E00");
	EXPECT("qXfer:features:read:other.xml:0,100", "E00");
	EXPECT("qXfer:features:read:target.xml:fffffff,100", "E01");
	EXPECT("qXfer:features:read:target.xml:zz", "E01");
	EXPECT("qXfer:features:write:target.xml:0:xx", "");
	EXPECT("qXfer:nothing:read::0,100", "");
	EXPECT("qXfer:features", "");
	EXPECT("qRcmd,676f746f20333333", hex_of("at 3:33, pc 0x401084 in /usr/bin/fake\n"));
	CU_ASSERT_EQUAL(ask("qXfer:siginfo:read::0,80")[1], 10);
	CU_ASSERT_EQUAL(session.reply.len, 129);
	finish();
}

/* ---- files and monitor commands ---- */

static const char *file_request(const char *op, const char *path, const char *rest)
{
	static char out[4096];
	snprintf(out, sizeof(out), "vFile:%s:%s%s", op, hex_of(path), rest);
	return out;
}

static void test_files(void)
{
	static const struct {
		const char *path, *reply;
		/* clang-format off */
	} opens[] = {
		{ FAKE_EXE, "F0" },
		{ "/bin/fake", "F0" },
		{ FAKE_LIB, "F0" },
		{ "/lib/x86_64-linux-gnu/libfake.so.1.2.3", "F0" },
		{ "/opt/libfake.so.1", "F0" },
		{ "/proc/4242/maps", "F0" },
		{ "/proc/4242/task/4242/maps", "F0" },
		{ "/proc/4242/task/1/maps", "F-1,2" },
		{ "/proc/1/maps", "F-1,2" },
		{ "/etc/passwd", "F-1,2" },
		{ "../../etc/passwd", "F-1,2" },
		{ "/proc/4242/../../etc/passwd", "F-1,2" },
		{ "libfake.so.1.2", "F0" },
		{ "fake", "F-1,2" },
	};
	/* clang-format on */
	begin();
	EXPECT("vFile:setfs:0", "F0");
	for (size_t i = 0; i < sizeof(opens) / sizeof(*opens); i++) {
		EXPECT(file_request("open", opens[i].path, ",0,0"), opens[i].reply);
		if (opens[i].reply[1] == '0')
			EXPECT("vFile:close:0", "F0");
	}
	EXPECT(file_request("open", FAKE_EXE, ",1,0"), "F-1,1e");
	EXPECT(file_request("open", FAKE_EXE, ",0,0"), "F0");
	EXPECT("vFile:pread:0,100,0", "F6;\177ELF}]}\n");
	EXPECT("vFile:pread:0,2,4", "F2;}]}\n");
	EXPECT("vFile:pread:0,100,6", "F0;");
	EXPECT("vFile:pread:0,100,ffffffffffffffff", "F0;");
	EXPECT("vFile:pread:0,100", "F-1,16");
	EXPECT("vFile:pread:1,100,0", "F-1,9");
	EXPECT("vFile:pread:ffffffffffffffff,100,0", "F-1,9");
	EXPECT("vFile:close:7", "F-1,9");
	ask("vFile:fstat:0");
	CU_ASSERT(session.reply.len >= 64 + 4 && memcmp(session.reply.p, "F40;", 4) == 0);
	EXPECT("vFile:close:0", "F0");
	EXPECT(file_request("readlink", "/proc/4242/exe", ""), "Fd;" FAKE_EXE);
	EXPECT(file_request("readlink", "/proc/4242/cwd", ""), "F5;/home");
	EXPECT(file_request("readlink", FAKE_EXE, ""), "F-1,2");
	EXPECT("vFile:unlink:2f", "F-1,1e");
	EXPECT("vFile:open:2f00,0,0", "F-1,16");
	EXPECT("vFile:open:2", "F-1,16");
	EXPECT("vFile:open:", "F-1,16");
	EXPECT("vFile:none:", "");
	for (unsigned i = 0; i < SESSION_FILES; i++)
		CU_ASSERT_NOT_EQUAL(ask(file_request("open", "/proc/4242/maps", ",0,0"))[1], '-');
	EXPECT(file_request("open", "/proc/4242/maps", ",0,0"), "F-1,18");
	finish();
}

static void test_monitor(void)
{
	static const struct {
		const char *command, *reply;
		/* clang-format off */
	} rows[] = {
		{ "when", "0:0\n" },
		{ "goto 123", "at 1:23, pc 0x40105c in /usr/bin/fake\n" },
		{ "  when  ", "1:23\n" },
		{ "end", "at 10:0, pc 0x401000 in /usr/bin/fake\n" },
		{ "restart", "at 0:0, pc 0x401000 in /usr/bin/fake\n" },
		{ "goto nowhere", "\"nowhere\" is not a position\n" },
		{ "dance", "no monitor command \"dance\"; \"monitor help\" lists them\n" },
	};
	/* clang-format on */
	begin();
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char request[2100];
		snprintf(request, sizeof(request), "qRcmd,%s", hex_of(rows[i].command));
		const char *got = ask(request);
		CU_ASSERT(check(rows[i].command, hex_of(rows[i].reply), got));
	}
	/* a client that keeps what it has read sees nothing of it before it moves the program */
	static const char *const moves[] = { "vCont;c", "s", "bs", "bc",
					     "vCont;r401000,401010:1092" };
	for (size_t i = 0; i < sizeof(moves) / sizeof(*moves); i++) {
		session.looks_again = i == 0;
		ask("qRcmd,626567696e"); /* begin */
		session.looks_again = false;
		EXPECT("qRcmd,676f746f203132333435",
		       hex_of("Type stepi, or anything that moves the program, to be at 12345\n"));
		EXPECT("qRcmd,676f746f20313233",
		       hex_of("Type stepi, or anything that moves the program, to be at 123\n"));
		EXPECT("qRcmd,676f746f20782031",
		       hex_of("'x 1' is no position: SEQ:STEPS[+REP][@TID], a number, a time "
			      "(1.5s), begin or end\n"));
		EXPECT("qRcmd,7768656e", hex_of("0:0, and on the way to 123\n"));
		EXPECT_STOP(moves[i], "T00 ");
		EXPECT("qRcmd,7768656e", hex_of("1:23\n"));
		EXPECT("qRcmd,6c6174657220393939393939",
		       hex_of("Type stepi, or anything that moves the program, to be at 999999\n"));
		EXPECT_STOP(moves[i], "T00 "); /* there is no such place */
		EXPECT("qRcmd,7768656e", hex_of("1:23\n"));
		ask("qRcmd,6c617465722030"); /* later 0 */
		EXPECT_STOP("s", "T00 ");
	}
	session.looks_again = true;
	/* unknown memory is zeros until the program is moved, by a command of ours, too */
	ask("qRcmd,756e6b6e6f776e207a65726f"); /* unknown zero */
	CU_ASSERT(session.blank);
	ask("qRcmd,676f746f20313233"); /* goto 123 */
	CU_ASSERT(!session.blank);
	EXPECT("qRcmd,6", "E01");
	CU_ASSERT(strlen(ask("qRcmd,")) > 100);
	CU_ASSERT(strlen(ask("qRcmd,696e666f")) > 100);
	CU_ASSERT(strlen(ask("qRcmd,6d617070696e6773")) > 100);
	finish();
}

CU_TestInfo stub_packets[] = {
	{ "simple", test_simple },   { "supported", test_supported },
	{ "crc", test_crc },	     { "registers", test_registers },
	{ "objects", test_objects }, { "files", test_files },
	{ "monitor", test_monitor }, CU_TEST_INFO_NULL,
};
