/*
 * qXfer objects: documents that the debugger reads in pieces. A document is made when its
 * beginning is asked for and kept until another one is, or the replay moves, so that the pieces
 * fit together.
 */
#include "gdbstub/session.h"

#include <stdlib.h>
#include <string.h>

static bool make_features(struct stub_session *s, struct stub_scan annex, struct stub_textbuf *b)
{
	(void)s;
	if (!stub_scan_word(&annex, "target.xml") || annex.p != annex.end)
		return false;
	stub_put_target_xml(b);
	return true;
}

static bool make_auxv(struct stub_session *s, struct stub_scan annex, struct stub_textbuf *b)
{
	(void)annex;
	const struct stub_session_image *image = stub_session_image(s);
	stub_textbuf_bytes(b, image->auxv, image->auxv_len);
	return true;
}

static bool make_exec_file(struct stub_session *s, struct stub_scan annex, struct stub_textbuf *b)
{
	(void)annex;
	const char *exe = stub_session_exe(s);
	stub_textbuf_name(b, exe);
	return *exe != '\0';
}

static bool make_libraries(struct stub_session *s, struct stub_scan annex, struct stub_textbuf *b)
{
	(void)annex;
	stub_put_library_list(s, b);
	return true;
}

static bool make_siginfo(struct stub_session *s, struct stub_scan annex, struct stub_textbuf *b)
{
	uint8_t info[128];
	(void)annex;
	if (!replay_siginfo(s->r, info))
		return false;
	stub_textbuf_bytes(b, info, sizeof(info));
	return true;
}

static bool make_threads(struct stub_session *s, struct stub_scan annex, struct stub_textbuf *b)
{
	(void)annex;
	stub_put_threads_xml(s, b);
	return true;
}

static const struct {
	const char *object;
	bool (*make)(struct stub_session *s, struct stub_scan annex, struct stub_textbuf *b);
	/* clang-format off */
} objects[] = {
	{ "features", make_features },	{ "auxv", make_auxv },
	{ "exec-file", make_exec_file }, { "libraries-svr4", make_libraries },
	{ "siginfo", make_siginfo },	{ "threads", make_threads },
};
/* clang-format on */

void stub_xfer_forget(struct stub_session *s)
{
	free(s->doc_key);
	s->doc_key = NULL;
	stub_threads_forget(s);
}

static bool scan_is(struct stub_scan a, const char *word)
{
	return stub_scan_word(&a, word) && a.p == a.end;
}

/* OBJECT:read:ANNEX:OFFSET,LENGTH */
bool stub_handle_xfer(struct stub_session *s, struct stub_scan *a)
{
	const char *key = a->p;
	struct stub_scan object = stub_scan_until(a, ':');
	struct stub_scan verb = stub_scan_until(a, ':');
	struct stub_scan annex = stub_scan_until(a, ':');
	size_t key_len = (size_t)(a->p - key);
	uint64_t offset, length;
	size_t i, n = sizeof(objects) / sizeof(*objects);
	for (i = 0; i < n && !scan_is(object, objects[i].object); i++)
		;
	if (i == n || !scan_is(verb, "read"))
		return stub_reply_empty(s);
	if (!stub_scan_hex(a, &offset) || !stub_scan_char(a, ',') || !stub_scan_hex(a, &length))
		return stub_reply_error(s, 1);
	if (offset == 0 || !s->doc_key || strlen(s->doc_key) != key_len ||
	    memcmp(s->doc_key, key, key_len) != 0) {
		stub_xfer_forget(s);
		stub_textbuf_reset(&s->doc);
		if (!objects[i].make(s, annex, &s->doc))
			return stub_reply_error(s, 0);
		s->doc_key = s->doc.failed ? NULL : strndup(key, key_len);
		if (!s->doc_key)
			return stub_reply_error(s, 12);
	}
	if (offset > s->doc.len)
		return stub_reply_error(s, 1);
	size_t left = s->doc.len - offset;
	size_t want = length < left ? length : left;
	stub_textbuf_char(&s->reply, 'l');
	size_t put = stub_textbuf_binary(&s->reply, s->doc.p + offset, want, LINK_PACKET_ANNOUNCED);
	if (!s->reply.failed && put < left)
		s->reply.p[0] = 'm';
	return true;
}
