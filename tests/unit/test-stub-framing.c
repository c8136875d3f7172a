/*

 * What packets are made of: numbers and texts in them, frames, acknowledgements, run lengths.
 */
#include "tests/unit/test-stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- buffers and readers ---- */

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

/* ---- frames ---- */

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

CU_TestInfo stub_framing[] = {
	{ "scan", test_scan },
	{ "textbuf", test_textbuf },
	{ "signals", test_signals },
	{ "framing", test_framing },
	{ "oversized", test_oversized },
	{ "run-length", test_run_length },
	CU_TEST_INFO_NULL,
};
