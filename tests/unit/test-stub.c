/*
 * The gdb remote protocol, against a replay whose history is a formula (tests/lib/fake-replay.h):
 * framing, every kind of packet, the throw-away copy, and packets that mean harm.
 */
#include "gdbstub/gdbstub.h"
#include "gdbstub/session.h"
#include "tests/lib/fake-replay.h"

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* ---- a session without a link: packets in, replies out ------------------------------------- */

static struct replay *fake;
static struct stub_session session;

static void begin(void)
{
	struct dj_error err;
	fake = fake_replay_new();
	CU_ASSERT_EQUAL_FATAL(stub_session_init(&session, fake, NULL, &err), 0);
	session.looks_again = true;
}

static void finish(void)
{
	stub_session_free(&session);
	replay_close(fake);
}

/* The reply to a packet as a string; "(none)" if nothing is to be sent. */
static const char *ask_bytes(const char *packet, size_t len)
{
	static char text[2 * LINK_PACKET_MAX];
	struct stub_scan a = { packet, packet + len };
	if (!stub_session_packet(&session, a))
		return "(none)";
	size_t n = session.reply.len < sizeof(text) ? session.reply.len : sizeof(text) - 1;
	if (n)
		memcpy(text, session.reply.p, n);
	text[n] = '\0';
	return text;
}

static const char *ask(const char *packet)
{
	return ask_bytes(packet, strlen(packet));
}

static bool check(const char *request, const char *expected, const char *got)
{
	if (strcmp(expected, got) == 0)
		return true;
	fprintf(stderr, "\n  %s: expected \"%s\", got \"%s\"\n", request, expected, got);
	return false;
}

#define EXPECT(request, expected)                                                                  \
	do {                                                                                       \
		const char *got_ = ask(request);                                                   \
		CU_ASSERT(check(request, expected, got_));                                         \
	} while (0)

static const char *hex_of(const char *text)
{
	static char out[2048];
	size_t i;
	for (i = 0; text[i] && 2 * i + 3 < sizeof(out); i++)
		sprintf(out + 2 * i, "%02x", (unsigned char)text[i]);
	out[2 * i] = '\0';
	return out;
}

/* A stop reply without the registers: "T05" and what follows the thread. */
static const char *stop_of(const char *reply)
{
	static char out[512];
	const char *thread = strstr(reply, "thread:");
	if (!thread)
		return reply;
	const char *rest = strchr(thread, ';');
	snprintf(out, sizeof(out), "%.3s %s", reply, rest ? rest + 1 : "");
	return out;
}

#define EXPECT_STOP(request, expected)                                                             \
	do {                                                                                       \
		const char *got_ = stop_of(ask(request));                                          \
		CU_ASSERT(check(request, expected, got_));                                         \
	} while (0)

static uint64_t position(void)
{
	struct replay_pos pos;
	replay_pos(fake, &pos);
	return pos.steps;
}

/* ---- buffers and readers -------------------------------------------------------------------- */

static struct stub_scan scan_of(const char *text)
{
	return (struct stub_scan){ text, text + strlen(text) };
}

static void test_scan(void)
{
	static const struct {
		const char *text;
		bool good;
		uint64_t value;
		/* clang-format off */
	} rows[] = {
		{ "0", true, 0 },
		{ "ffffffffffffffff", true, UINT64_MAX },
		{ "0000000000000000000000012", true, 0x12 },
		{ "10000000000000000", false, 0 },
		{ "", false, 0 },
		{ "g", false, 0 },
		{ "aBc;", true, 0xabc },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct stub_scan a = scan_of(rows[i].text);
		uint64_t x = 0;
		CU_ASSERT_EQUAL(stub_scan_hex(&a, &x), rows[i].good);
		if (rows[i].good)
			CU_ASSERT_EQUAL(x, rows[i].value);
	}
	uint8_t out[4];
	struct stub_scan odd = scan_of("123");
	CU_ASSERT_EQUAL(stub_scan_hexbytes(&odd, out, 4), -1);
	const char *escaped = "a}\x03}]}";
	struct stub_scan good = { escaped, escaped + 5 }, cut = { escaped, escaped + 6 };
	CU_ASSERT_EQUAL(stub_scan_binary(&good, out, 4), 3);
	CU_ASSERT_EQUAL(memcmp(out, "a#}", 3), 0);
	CU_ASSERT_EQUAL(stub_scan_binary(&cut, out, 4), -1);
	struct stub_scan many = scan_of("abcdef");
	CU_ASSERT_EQUAL(stub_scan_binary(&many, out, 4), -1);
}

static void test_textbuf(void)
{
	struct stub_textbuf b = { 0 };
	CU_ASSERT_EQUAL(stub_textbuf_binary(&b, "a#$}*b", 6, 100), 6);
	CU_ASSERT_EQUAL(b.len, 10);
	CU_ASSERT_EQUAL(memcmp(b.p, "a}\x03}\x04}]}\nb", 10), 0);
	stub_textbuf_reset(&b);
	CU_ASSERT_EQUAL(stub_textbuf_binary(&b, "######", 6, 5), 2);
	stub_textbuf_reset(&b);
	stub_textbuf_xml(&b, "<a&\"'>\x01");
	stub_textbuf_char(&b, '\0');
	CU_ASSERT_STRING_EQUAL(b.p, "&lt;a&amp;&quot;&apos;&gt;?");
	stub_textbuf_free(&b);
}

static void test_signals(void)
{
	static const struct {
		int linux_number, gdb;
	} rows[] = { { 11, 11 }, { 10, 30 }, { 12, 31 }, { 17, 20 }, { 7, 10 },	  { 31, 12 },
		     { 33, 45 }, { 63, 75 }, { 32, 77 }, { 64, 78 }, { 16, 143 }, { 0, 143 } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		CU_ASSERT_EQUAL(stub_gdbsignal_from_linux(rows[i].linux_number), rows[i].gdb);
	for (int n = 1; n <= 64; n++)
		if (n != 16)
			CU_ASSERT_EQUAL(
				stub_gdbsignal_to_linux((uint64_t)stub_gdbsignal_from_linux(n)), n);
	CU_ASSERT_EQUAL(stub_gdbsignal_to_linux(143), 0);
	CU_ASSERT_EQUAL(stub_gdbsignal_to_linux(999), 0);
}

/* ---- framing ------------------------------------------------------------------------------------
 */

/* What a link makes of a stream: packets separated by '|', '!' for bad ones. */
static void feed(const char *stream, size_t len, bool acks, char *got, char *sent, size_t size)
{
	int fds[2];
	struct stub_link l;
	struct stub_scan p;
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	CU_ASSERT_EQUAL_FATAL(write(fds[1], stream, len), (ssize_t)len);
	shutdown(fds[1], SHUT_WR);
	CU_ASSERT_EQUAL_FATAL(stub_link_init(&l, fds[0], fds[0]), 0);
	l.acks = acks;
	size_t n = 0;
	for (;;) {
		enum stub_link_got what = stub_link_receive(&l, &p);
		if (what == LINK_CLOSED)
			break;
		if (what == LINK_BAD)
			got[n++] = '!';
		else if (stub_scan_left(&p) < size - n) {
			memcpy(got + n, p.p, stub_scan_left(&p));
			n += stub_scan_left(&p);
		}
		got[n++] = '|';
	}
	got[n] = '\0';
	stub_link_free(&l);
	close(fds[0]);
	ssize_t m = read(fds[1], sent, size - 1);
	sent[m > 0 ? m : 0] = '\0';
	close(fds[1]);
}

static void test_framing(void)
{
	static const struct {
		const char *stream, *packets, *acks;
		/* clang-format off */
	} rows[] = {
		{ "$g#67", "g|", "+" },
		{ "+$g#67", "g|", "+" },
		{ "noise$g#67more$?#3f", "g|?|", "++" },
		{ "$g#68$g#67", "g|", "-+" },
		{ "$g#6g$g#67", "g|", "-+" },
		{ "$m0,$g#67", "g|", "+" }, /* cut off, then a new one */
		{ "$#00", "|", "+" },
		{ "$g", "", "" },
		{ "$g#", "", "" },
		{ "$g#6", "", "" },
		{ "", "", "" },
		{ "\x03$g#67", "g|", "+" },
		{ "$}\x03#80", "}\x03|", "+" },
	};
	/* clang-format on */
	char got[256], sent[256];
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		feed(rows[i].stream, strlen(rows[i].stream), true, got, sent, sizeof(got));
		CU_ASSERT(check(rows[i].stream, rows[i].packets, got));
		CU_ASSERT(check(rows[i].stream, rows[i].acks, sent));
	}
	feed("$g#68$g#67", 10, false, got, sent, sizeof(got));
	CU_ASSERT_STRING_EQUAL(got, "!|g|");
	CU_ASSERT_STRING_EQUAL(sent, "");
}

static void test_oversized(void)
{
	size_t len = LINK_PACKET_MAX + 1, n = 0;
	char *stream = malloc(len + 64), *got = malloc(64), sent[64];
	stream[n++] = '$';
	memset(stream + n, 'm', len);
	n += len;
	n += (size_t)sprintf(stream + n, "#%02x$g#67", (unsigned)('m' * len) & 0xff);
	int fds[2];
	CU_ASSERT_EQUAL_FATAL(pipe(fds), 0);
	/* a file, so that it can be larger than a pipe holds */
	FILE *f = tmpfile();
	fwrite(stream, 1, n, f);
	fflush(f);
	rewind(f);
	struct stub_link l;
	struct stub_scan p;
	CU_ASSERT_EQUAL_FATAL(stub_link_init(&l, fileno(f), fds[1]), 0);
	CU_ASSERT_EQUAL(stub_link_receive(&l, &p), LINK_BAD);
	CU_ASSERT_EQUAL(stub_link_receive(&l, &p), LINK_PACKET);
	CU_ASSERT_EQUAL(stub_scan_left(&p), 1);
	CU_ASSERT_EQUAL(stub_link_receive(&l, &p), LINK_CLOSED);
	stub_link_free(&l);
	CU_ASSERT_EQUAL(read(fds[0], sent, sizeof(sent)), 2);
	fclose(f);
	close(fds[0]);
	close(fds[1]);
	free(stream);
	free(got);
}

/* Undo run-length encoding, as gdb does. */
static size_t run_decode(const char *in, size_t n, char *out)
{
	size_t k = 0;
	for (size_t i = 0; i < n; i++) {
		if (in[i] == '*' && i + 1 < n && k > 0) {
			int more = in[++i] - 29;
			for (int r = 0; r < more; r++, k++)
				out[k] = out[k - 1];
		} else {
			out[k++] = in[i];
		}
	}
	return k;
}

static void test_run_length(void)
{
	char data[700], frame[1500], back[1500];
	for (size_t len = 0; len < 600; len++) {
		int fds[2];
		struct stub_link l;
		data[0] = 'a';
		memset(data + 1, '0', len);
		data[len + 1] = 'b';
		CU_ASSERT_EQUAL_FATAL(pipe(fds), 0);
		CU_ASSERT_EQUAL_FATAL(stub_link_init(&l, 0, fds[1]), 0);
		stub_link_send(&l, data, len + 2);
		stub_link_free(&l);
		ssize_t n = read(fds[0], frame, sizeof(frame));
		close(fds[0]);
		close(fds[1]);
		CU_ASSERT_FATAL(n >= 4 && frame[0] == '$' && frame[n - 3] == '#');
		unsigned sum = 0, said;
		for (ssize_t i = 1; i < n - 3; i++)
			sum += (unsigned char)frame[i];
		frame[n] = '\0';
		CU_ASSERT_EQUAL(sscanf(frame + n - 2, "%2x", &said), 1);
		CU_ASSERT_EQUAL(said, sum & 0xff);
		CU_ASSERT(!memchr(frame + 1, '#', (size_t)n - 4));
		CU_ASSERT(!memchr(frame + 1, '$', (size_t)n - 4));
		size_t m = run_decode(frame + 1, (size_t)n - 4, back);
		CU_ASSERT_EQUAL(m, len + 2);
		CU_ASSERT_EQUAL(memcmp(back, data, m), 0);
		CU_ASSERT(len < 8 || (size_t)n < len / 20 + 20);
	}
}

/* ---- packets
 * --------------------------------------------------------------------------------------- */

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

/* Read a qXfer object in pieces of `piece` bytes. */
static char *read_object(const char *object, const char *annex, unsigned piece)
{
	static char doc[65536];
	size_t n = 0;
	for (;;) {
		char request[128];
		snprintf(request, sizeof(request), "qXfer:%s:read:%s:%zx,%x", object, annex, n,
			 piece);
		struct stub_scan a = { request, request + strlen(request) };
		stub_session_packet(&session, a);
		if (session.reply.len == 0 || !strchr("lm", session.reply.p[0]))
			return NULL;
		struct stub_scan data = { session.reply.p + 1,
					  session.reply.p + session.reply.len };
		long got = stub_scan_binary(&data, doc + n, sizeof(doc) - n - 1);
		CU_ASSERT_FATAL(got >= 0);
		n += (size_t)got;
		if (session.reply.p[0] == 'l')
			break;
		CU_ASSERT_FATAL(got > 0);
	}
	doc[n] = '\0';
	return doc;
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

/* ---- moving
 * ------------------------------------------------------------------------------------------ */

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

/* The thread of a stop reply. */
static const char *thread_of(const char *reply)
{
	static char out[64];
	const char *thread = strstr(reply, "thread:");
	out[0] = '\0';
	if (thread)
		sscanf(thread, "thread:%63[^;]", out);
	return out;
}

static uint64_t rax_now(void)
{
	const char *regs = ask("g");
	uint64_t x = 0;
	for (int i = 7; i >= 0; i--) {
		unsigned byte = 0;
		sscanf(regs + 2 * i, "%2x", &byte);
		x = x << 8 | byte;
	}
	return x;
}

static void test_thread_list(void)
{
	begin();
	session.multiprocess = true;
	EXPECT("qfThreadInfo", "mp1092.1092");
	EXPECT("Tp1092.1093", "E03");
	EXPECT("Hgp1092.1093", "E03");
	EXPECT("qThreadExtraInfo,p1092.1093", "E03");
	ask("qRcmd,676f746f20333030"); /* goto 300 */
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	EXPECT("qsThreadInfo", "l");
	CU_ASSERT_PTR_NOT_NULL(strstr(read_object("threads", "", 400),
				      "<thread id=\"p1092.1093\" name=\"second\"/>"));
	EXPECT("qThreadExtraInfo,p1092.1093", hex_of("second"));
	EXPECT("Tp1092.1093", "OK");
	EXPECT("Tp1093.1093", "E03");
	EXPECT("T1094", "E03");
	EXPECT("Hgp1092.1093", "OK");
	ask("qRcmd,676f746f20383030"); /* goto 800: it has ended */
	EXPECT("qfThreadInfo", "mp1092.1092");
	EXPECT("Tp1092.1093", "E03");
	CU_ASSERT_EQUAL(rax_now(), 800000);
	finish();
}

/* A second thread is looked at without moving, and moves when it is named. */
static void test_thread_moves(void)
{
	begin();
	session.multiprocess = true;
	ask("qRcmd,676f746f20333030"); /* goto 300 */
	CU_ASSERT_EQUAL(rax_now(), 300000);
	EXPECT("Hgp1092.1093", "OK");
	EXPECT("qC", "QCp1092.1093");
	CU_ASSERT_EQUAL(rax_now(), 500300);
	CU_ASSERT_EQUAL(position(), 300);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s")), "p1092.1092");
	CU_ASSERT_EQUAL(rax_now(), 301000);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1093;c")), "p1092.1093");
	CU_ASSERT_EQUAL(rax_now(), 500302);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;c:p1092.1093;s:p1092.1092")), "p1092.1092");
	CU_ASSERT_EQUAL(position(), 303);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.-1")), "p1092.1092");
	EXPECT("vCont;s:p1092.1094", "E01");
	EXPECT("Hcp1092.1093", "OK");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("bs")), "p1092.1093");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("s")), "p1092.1093");
	EXPECT("Hc0", "OK");
	EXPECT("Hgp1092.1092", "OK");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("bs")), "p1092.1093"); /* the moment is its */
	/* what is changed by hand belongs to one thread */
	EXPECT("P0=0100000000000000", "OK");
	CU_ASSERT_EQUAL(session.scratch, SCRATCH_EDITS);
	EXPECT("Hgp1092.1092", "OK");
	CU_ASSERT_EQUAL(session.scratch, SCRATCH_NONE);
	finish();
}

/* Which request lets which threads have their say. */
static void test_scopes(void)
{
	static const struct {
		const char *request;
		enum replay_scope one, two; /* with one process, with two */
	} rows[] = {
		{ "vCont;c", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "vCont;c:p-1.-1", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "vCont;c:p1092.-1", REPLAY_PROCESS, REPLAY_PROCESS },
		{ "vCont;c:p1092", REPLAY_PROCESS, REPLAY_PROCESS },
		{ "vCont;c:p1092.1093", REPLAY_THREAD, REPLAY_THREAD },
		{ "vCont;s:p1092.1093", REPLAY_THREAD, REPLAY_THREAD },
		{ "vCont;s:p1092.1093;c", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "vCont;s:p1092.1093;c:p1092.-1", REPLAY_PROCESS, REPLAY_PROCESS },
		{ "vCont;s:p1092.1093;t", REPLAY_THREAD, REPLAY_THREAD },
		{ "vCont;r401000,401100:1093;c", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "Hc-1|s", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "Hc0|bs", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "Hcp1092.-1|bc", REPLAY_PROCESS, REPLAY_PROCESS },
		{ "Hcp1092.1093|bc", REPLAY_THREAD, REPLAY_THREAD },
		{ "Hcp1092.1093|c", REPLAY_THREAD, REPLAY_THREAD },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (int two = 0; two < 2; two++) {
			char request[64];
			begin();
			session.multiprocess = true;
			ask("qRcmd,676f746f20353130"); /* goto 510 */
			if (two)
				ask("vAttach;10cc");
			snprintf(request, sizeof(request), "%s", rows[i].request);
			char *second = strchr(request, '|');
			if (second)
				*second++ = '\0';
			ask(request);
			if (second)
				ask(second);
			CU_ASSERT_EQUAL(fake_scope(fake), two ? rows[i].two : rows[i].one);
			finish();
		}
	}
}

/* Breakpoints belong to a process; they are hit in whichever thread comes first, and while another
 * one steps. */
static void test_breaks_elsewhere(void)
{
	begin();
	session.multiprocess = true;
	EXPECT("QPassSignals:1e", "OK");
	ask("qRcmd,676f746f20333030"); /* goto 300 */
	EXPECT("Z0,402880,1", "OK");   /* FAKE_MARK2 */
	EXPECT("Z0,402980,1", "OK");   /* FAKE_MARK3 */
	const char *stop = ask("vCont;c");
	CU_ASSERT_STRING_EQUAL(thread_of(stop), "p1092.1093");
	CU_ASSERT_PTR_NOT_NULL(strstr(stop, "swbreak"));
	CU_ASSERT_EQUAL(position(), FAKE_MARK2_AT);
	ask("qRcmd,676f746f20333534"); /* goto 354 */
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1092;c")), "p1092.1093");
	ask("qRcmd,676f746f20333534");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1092")), "p1092.1092");
	ask("qRcmd,676f746f20343030"); /* goto 400 */
	CU_ASSERT_STRING_EQUAL(thread_of(ask("bc")), "p1092.1093");
	CU_ASSERT_EQUAL(position(), FAKE_MARK2_AT);
	/* one whose condition is false is none: the thread steps all the same */
	EXPECT("Z0,402880,1;X3,220027", "OK");
	ask("qRcmd,676f746f20333534");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1092;c")), "p1092.1092");
	/* in a process that is hidden, none stops, nor one of another process */
	ask("qRcmd,676f746f20363031"); /* goto 601 */
	EXPECT_STOP("vCont;c", "T05 replaylog:end;");
	ask("qRcmd,676f746f20363031");
	ask("vAttach;10cc");
	EXPECT_STOP("vCont;c", "T05 replaylog:end;");
	ask("qRcmd,676f746f20363031");
	EXPECT("Hgp10cc.10cc", "OK");
	EXPECT("Z0,402980,1", "OK");
	EXPECT("Hgp1092.1092", "OK");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;c")), "p10cc.10cc");
	CU_ASSERT_EQUAL(position(), FAKE_MARK3_AT);
	EXPECT("D;10cc", "OK");
	CU_ASSERT_EQUAL(fake_points(fake), 2); /* its own are gone */
	finish();
}

/* A process is there for the debugger when it attaches, and until it leaves it. */
static void test_attach(void)
{
	begin();
	session.multiprocess = true;
	ask("qRcmd,676f746f20343030"); /* goto 400 */
	EXPECT("vAttach;10cc", "E.process 4300 is not there at this moment; it begins at 5:1@4300");
	ask("qRcmd,676f746f20353530"); /* goto 550 */
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	EXPECT("Tp10cc.10cc", "E03");
	EXPECT("Hgp10cc.10cc", "E03");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vAttach;10cc")), "p10cc.10cc");
	CU_ASSERT_EQUAL(rax_now(), 700550);
	CU_ASSERT_EQUAL(position(), 550);
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093,p10cc.10cc");
	EXPECT("qThreadExtraInfo,p10cc.10cc", hex_of("child, in system call 1"));
	CU_ASSERT_PTR_NOT_NULL(strstr(read_object("threads", "", 400),
				      "<thread id=\"p10cc.10cc\" name=\"child\">in system call "
				      "1</thread>"));
	EXPECT("Tp10cc.10cc", "OK");
	EXPECT("Tp1092.10cc", "E03");
	EXPECT("Hgp10cc.-1", "OK");
	CU_ASSERT_EQUAL(rax_now(), 700550);
	EXPECT("Hgp1092.1093", "OK");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p10cc.10cc")), "p10cc.10cc");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;c:p1092.-1")), "p1092.1092"); /* its end */
	ask("qRcmd,676f746f20353530");
	EXPECT("Hgp10cc.10cc", "OK");
	EXPECT("D;10cc", "OK");
	CU_ASSERT(!session.no_process);
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("?")), "p1092.1092");
	EXPECT("D;1092", "OK");
	CU_ASSERT(session.no_process);
	EXPECT("qfThreadInfo", "l");
	session.no_process = session.done = false;
	/* nothing is looked at any more: it may be anywhere */
	ask("qRcmd,676f746f2030");
	session.no_process = true;
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vAttach;10cc")), "p10cc.10cc");
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT + 1);
	finish();
}

/* What gdb does at a fork, by its settings. */
static void test_fork_followed(void)
{
	begin();
	session.multiprocess = session.fork_events = true;
	ask("qRcmd,676f746f20343535"); /* goto 455 */
	EXPECT("Z0,402980,1", "OK");
	EXPECT_STOP("vCont;c:p1092.-1", "T05 fork:p10cc.10cc;");
	/* `detach-on-fork off`: the child is listed, looked at where it begins, and has breakpoints
	 */
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093,p10cc.10cc");
	EXPECT("Tp10cc.10cc", "OK");
	EXPECT("Hgp10cc.10cc", "OK");
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT);
	EXPECT("z0,402980,1", "OK");
	EXPECT("Z0,402980,1", "OK");
	CU_ASSERT_EQUAL(rax_now(), 700501);
	EXPECT("Hgp1092.1092", "OK");
	CU_ASSERT_EQUAL(rax_now(), 500000);
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT);
	EXPECT("Hgp10cc.10cc", "OK");
	CU_ASSERT_EQUAL(rax_now(), 700501);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1092")), "p1092.1092");
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT + 1);
	ask("qRcmd,676f746f20343939"); /* goto 499 */
	EXPECT_STOP("s", "T05 fork:p10cc.10cc;");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;c:p10cc.-1")), "p10cc.10cc");
	CU_ASSERT_EQUAL(position(), FAKE_MARK3_AT);
	/* backwards, too: but there it is no more */
	EXPECT("Hgp1092.1092", "OK");
	EXPECT("Hcp1092.-1", "OK");
	EXPECT_STOP("bc", "T05 fork:p1130.1130;");
	EXPECT("D;1130", "OK");
	EXPECT_STOP("bc", "T05 fork:p10cc.10cc;");
	EXPECT("D;10cc", "OK");
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	/* `follow-fork-mode child`: the parent is left */
	ask("qRcmd,676f746f20343939");
	EXPECT_STOP("vCont;s:p1092.1092;c:p1092.-1", "T05 fork:p10cc.10cc;");
	EXPECT("D;1092", "OK");
	CU_ASSERT(!session.no_process);
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT + 1);
	EXPECT("qfThreadInfo", "mp10cc.10cc");
	CU_ASSERT_EQUAL(rax_now(), 700501);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p10cc.10cc")), "p10cc.10cc");
	finish();
}

static void test_vfork(void)
{
	begin();
	session.multiprocess = session.fork_events = session.vfork_events = true;
	ask("qRcmd,676f746f20353535"); /* goto 555 */
	EXPECT_STOP("vCont;c:p1092.-1", "T05 vfork:p1130.1130;");
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	EXPECT("Hgp1130.1130", "OK");
	EXPECT("z0,402980,1", "OK");
	EXPECT("D;1130", "OK");
	EXPECT_STOP("vCont;c:p1092.-1", "T05 vforkdone:;");
	CU_ASSERT_EQUAL(position(), FAKE_VFORK_AT);
	EXPECT_STOP("vCont;c:p1092.-1", "T05 replaylog:end;");
	EXPECT_STOP("bc", "T05 vfork:p1130.1130;");
	EXPECT_STOP("bc", "T05 vforkdone:;");
	EXPECT_STOP("bc", "T05 fork:p10cc.10cc;");
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

/* ---- processes
 * ------------------------------------------------------------------------------------------- */

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

/* ---- the throw-away copy
 * ------------------------------------------------------------------------------------ */

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

/* ---- files and monitor commands
 * ---------------------------------------------------------------------------- */

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
		       hex_of("'x 1' is no position: SEQ:STEPS[+REP][@TID], a number, begin or "
			      "end\n"));
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
	EXPECT("qRcmd,6", "E01");
	CU_ASSERT(strlen(ask("qRcmd,")) > 100);
	CU_ASSERT(strlen(ask("qRcmd,696e666f")) > 100);
	CU_ASSERT(strlen(ask("qRcmd,6d617070696e6773")) > 100);
	finish();
}

/* ---- whole sessions over a socket
 * ------------------------------------------------------------------------------ */

static void *serve(void *arg)
{
	int fd = *(int *)arg;
	struct replay *r = fake_replay_new();
	struct dj_error err;
	gdbstub_serve(r, fd, fd, true, &err);
	replay_close(r);
	close(fd);
	return NULL;
}

static size_t frame(char *out, const char *data)
{
	unsigned sum = 0;
	for (const char *p = data; *p; p++)
		sum += (unsigned char)*p;
	return (size_t)sprintf(out, "$%s#%02x", data, sum & 0xff);
}

static void read_until(int fd, const char *what, char *buf, size_t size)
{
	size_t n = 0;
	buf[0] = '\0';
	while (n + 1 < size && !strstr(buf, what)) {
		ssize_t got = read(fd, buf + n, size - 1 - n);
		if (got <= 0)
			break;
		n += (size_t)got;
		buf[n] = '\0';
	}
	CU_ASSERT_PTR_NOT_NULL(strstr(buf, what));
}

static void test_session(void)
{
	int fds[2];
	pthread_t thread;
	char out[256], in[4096];
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, serve, &fds[0]), 0);
	struct timeval patience = { .tv_sec = 10 };
	setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
#define SAY(text) CU_ASSERT(write(fds[1], text, strlen(text)) == (ssize_t)strlen(text))
	frame(out, "QStartNoAckMode");
	SAY(out);
	read_until(fds[1], "+$OK#9a", in, sizeof(in));
	/* an interrupt right behind the packet, in pieces */
	size_t n = frame(out, "vCont;c");
	CU_ASSERT_EQUAL(write(fds[1], out, 3), 3);
	usleep(1000);
	strcpy(out + n, "\x03");
	SAY(out + 3);
	read_until(fds[1], "$T02", in, sizeof(in));
	frame(out, "M600000,1:05");
	SAY(out);
	read_until(fds[1], "$OK#9a", in, sizeof(in));
	frame(out, "bs"); /* forgets the change and says so */
	SAY(out);
	read_until(fds[1], "$O5b64656a613a", in, sizeof(in));
	if (!strstr(in, "$T05"))
		read_until(fds[1], "$T05", in, sizeof(in));
	SAY("$m600000,");
	close(fds[1]); /* in the middle of a packet */
	pthread_join(thread, NULL);
}

/* Packets changed at random, and streams of noise: nothing may go wrong, see also fuzz/. */
static uint64_t random_state = 88172645463325252ULL;
static uint32_t random32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 16);
}

static void test_hostile(void)
{
	/* clang-format off */
	static const char *const seeds[] = {
		"qSupported:multiprocess+", "m600000,40", "M600000,4:00112233", "X600000,2:ab", "g",
		"P10=0010400000000000", "vCont;s:p1092.1092;c", "vCont;r401000,401010:p1092.-1", "bc",
		"bs", "Z0,401000,1", "z0,401000,1", "Z0,401020,1;Xa,260001240000e2931327X3,220027", "Z2,600000,8", "qXfer:features:read:target.xml:0,fff",
		"qXfer:libraries-svr4:read::0,1000", "vFile:open:2f70726f632f343234322f6d617073,0,0",
		"vFile:pread:0,1000,0", "vFile:readlink:2f70726f632f343234322f657865", "qRcmd,676f746f20353030",
		"qSearch:memory:600000;1000;needle", "QPassSignals:e;10;14;17", "QCatchSyscalls:1;1;2",
		"qCRC:600000,100", "vRun;", "vKill;1092", "Hgp1092.1092", "D;1092", "R00", "!", "?",
	};
	/* clang-format on */
	printf("(seed %" PRIu64 ") ", random_state);
	begin();
	for (unsigned i = 0; i < 200000; i++) {
		char packet[128];
		const char *seed = seeds[random32() % (sizeof(seeds) / sizeof(*seeds))];
		size_t len = strlen(seed);
		memcpy(packet, seed, len);
		for (uint32_t k = random32() % 4; k > 0 && len > 0; k--) {
			uint32_t r = random32();
			switch (r % 4) {
			case 0:
				packet[r / 4 % len] = (char)random32();
				break;
			case 1:
				len = r / 4 % len;
				break;
			case 2:
				packet[r / 4 % len] = "0123456789abcdef,;:=.-pf"[random32() % 24];
				break;
			case 3:
				packet[len++] = 'f';
				break;
			}
		}
		ask_bytes(packet, len);
		session.done = false;
	}
	finish();
}

int main(void)
{
	static CU_TestInfo buffers[] = { { "scan", test_scan },
					 { "textbuf", test_textbuf },
					 { "signals", test_signals },
					 CU_TEST_INFO_NULL };
	static CU_TestInfo framing[] = { { "framing", test_framing },
					 { "oversized", test_oversized },
					 { "run-length", test_run_length },
					 CU_TEST_INFO_NULL };
	static CU_TestInfo packets[] = { { "simple", test_simple },
					 { "supported", test_supported },
					 { "crc", test_crc },
					 { "registers", test_registers },
					 { "objects", test_objects },
					 { "steps", test_steps },
					 { "list of threads", test_thread_list },
					 { "moves of threads", test_thread_moves },
					 { "scopes", test_scopes },
					 { "breakpoints elsewhere", test_breaks_elsewhere },
					 { "attaching", test_attach },
					 { "forks", test_fork_followed },
					 { "vfork", test_vfork },
					 { "breakpoints", test_breakpoints },
					 { "conditions", test_conditions },
					 { "watchpoints", test_watchpoints },
					 { "events", test_events },
					 { "processes", test_processes },
					 { "files", test_files },
					 { "monitor", test_monitor },
					 CU_TEST_INFO_NULL };
	static CU_TestInfo copy[] = { { "edits", test_edits },
				      { "calls", test_calls },
				      CU_TEST_INFO_NULL };
	static CU_TestInfo sessions[] = { { "session", test_session },
					  { "hostile", test_hostile },
					  CU_TEST_INFO_NULL };
	static CU_SuiteInfo suites[] = { { "buffers", NULL, NULL, NULL, NULL, buffers },
					 { "framing", NULL, NULL, NULL, NULL, framing },
					 { "packets", NULL, NULL, NULL, NULL, packets },
					 { "copy", NULL, NULL, NULL, NULL, copy },
					 { "sessions", NULL, NULL, NULL, NULL, sessions },
					 CU_SUITE_INFO_NULL };
	CU_initialize_registry();
	CU_register_suites(suites);
	CU_basic_set_mode(CU_BRM_NORMAL);
	CU_basic_run_tests();
	unsigned failed = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failed != 0;
}
