/*

 * A session without a link: packets in, replies out. See stub-ask.h.
 */
#include "tests/lib/stub-ask.h"

#include <stdio.h>
#include <string.h>

struct replay *fake;
struct stub_session session;

void begin(void)
{
	struct dj_error err;
	fake = fake_replay_new();
	CU_ASSERT_EQUAL_FATAL(stub_session_init(&session, fake, NULL, &err), 0);
	session.looks_again = true;
}

void finish(void)
{
	stub_session_free(&session);
	replay_close(fake);
}

/* The reply to a packet as a string; "(none)" if nothing is to be sent. */
const char *ask_bytes(const char *packet, size_t len)
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

const char *ask(const char *packet)
{
	return ask_bytes(packet, strlen(packet));
}

bool check(const char *request, const char *expected, const char *got)
{
	if (strcmp(expected, got) == 0)
		return true;
	fprintf(stderr, "\n  %s: expected \"%s\", got \"%s\"\n", request, expected, got);
	return false;
}

const char *hex_of(const char *text)
{
	static char out[2048];
	size_t i;
	for (i = 0; text[i] && 2 * i + 3 < sizeof(out); i++)
		sprintf(out + 2 * i, "%02x", (unsigned char)text[i]);
	out[2 * i] = '\0';
	return out;
}

struct stub_scan scan_of(const char *text)
{
	return (struct stub_scan){ text, text + strlen(text) };
}

/* A stop reply without the registers: "T05" and what follows the thread. */
const char *stop_of(const char *reply)
{
	static char out[512];
	const char *thread = strstr(reply, "thread:");
	if (!thread)
		return reply;
	const char *rest = strchr(thread, ';');
	snprintf(out, sizeof(out), "%.3s %s", reply, rest ? rest + 1 : "");
	return out;
}

uint64_t position(void)
{
	struct replay_pos pos;
	replay_pos(fake, &pos);
	return pos.steps;
}

/* Read a qXfer object in pieces of `piece` bytes. */
char *read_object(const char *object, const char *annex, unsigned piece)
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

/* The thread of a stop reply. */
const char *thread_of(const char *reply)
{
	static char out[64];
	const char *thread = strstr(reply, "thread:");
	out[0] = '\0';
	if (thread)
		sscanf(thread, "thread:%63[^;]", out);
	return out;
}

uint64_t rax_now(void)
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
