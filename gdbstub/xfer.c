/*
 * qXfer objects: documents that the debugger reads in pieces. A document is made when its
 * beginning is asked for and kept until another one is, or the replay moves, so that the pieces
 * fit together.
 */
#include "gdbstub/session.h"

#include <stdlib.h>
#include <string.h>

static bool make_features(struct session *s, struct scan annex, struct textbuf *b)
{
	(void)s;
	if (!scan_word(&annex, "target.xml") || annex.p != annex.end)
		return false;
	put_target_xml(b);
	return true;
}

static bool make_auxv(struct session *s, struct scan annex, struct textbuf *b)
{
	(void)annex;
	const struct session_image *image = session_image(s);
	textbuf_bytes(b, image->auxv, image->auxv_len);
	return true;
}

static bool make_exec_file(struct session *s, struct scan annex, struct textbuf *b)
{
	(void)annex;
	const char *exe = session_exe(s);
	textbuf_str(b, exe);
	return *exe != '\0';
}

static bool make_libraries(struct session *s, struct scan annex, struct textbuf *b)
{
	(void)annex;
	put_library_list(s, b);
	return true;
}

static bool make_siginfo(struct session *s, struct scan annex, struct textbuf *b)
{
	uint8_t info[128];
	(void)annex;
	if (!replay_siginfo(s->r, info))
		return false;
	textbuf_bytes(b, info, sizeof info);
	return true;
}

#define LISTED_THREADS 4096

static bool make_threads(struct session *s, struct scan annex, struct textbuf *b)
{
	static int32_t tids[LISTED_THREADS];
	(void)annex;
	size_t n = s->no_process ? 0 : replay_threads(s->r, tids, LISTED_THREADS);
	textbuf_str(b, "<?xml version=\"1.0\"?>\n<threads>\n");
	for (size_t i = 0; i < n && i < LISTED_THREADS; i++) {
		textbuf_str(b, s->multiprocess ? "<thread id=\"p" : "<thread id=\"");
		if (s->multiprocess)
			textbuf_printf(b, "%x.", (unsigned)s->pid);
		textbuf_printf(b, "%x\" name=\"", (unsigned)tids[i]);
		textbuf_xml(b, session_thread_name(s, tids[i]));
		textbuf_str(b, "\"/>\n");
	}
	textbuf_str(b, "</threads>\n");
	return true;
}

static const struct {
	const char *object;
	bool (*make)(struct session *s, struct scan annex, struct textbuf *b);
} objects[] = {
	{ "features", make_features },	{ "auxv", make_auxv },
	{ "exec-file", make_exec_file }, { "libraries-svr4", make_libraries },
	{ "siginfo", make_siginfo },	{ "threads", make_threads },
};

void xfer_forget(struct session *s)
{
	free(s->doc_key);
	s->doc_key = NULL;
}

static bool scan_is(struct scan a, const char *word)
{
	return scan_word(&a, word) && a.p == a.end;
}

/* OBJECT:read:ANNEX:OFFSET,LENGTH */
bool handle_xfer(struct session *s, struct scan *a)
{
	const char *key = a->p;
	struct scan object = scan_until(a, ':');
	struct scan verb = scan_until(a, ':');
	struct scan annex = scan_until(a, ':');
	size_t key_len = (size_t)(a->p - key);
	uint64_t offset, length;
	size_t i, n = sizeof objects / sizeof *objects;
	for (i = 0; i < n && !scan_is(object, objects[i].object); i++)
		;
	if (i == n || !scan_is(verb, "read"))
		return reply_empty(s);
	if (!scan_hex(a, &offset) || !scan_char(a, ',') || !scan_hex(a, &length))
		return reply_error(s, 1);
	if (offset == 0 || !s->doc_key || strlen(s->doc_key) != key_len ||
	    memcmp(s->doc_key, key, key_len) != 0) {
		xfer_forget(s);
		textbuf_reset(&s->doc);
		if (!objects[i].make(s, annex, &s->doc))
			return reply_error(s, 0);
		s->doc_key = s->doc.failed ? NULL : strndup(key, key_len);
		if (!s->doc_key)
			return reply_error(s, 12);
	}
	if (offset > s->doc.len)
		return reply_error(s, 1);
	size_t left = s->doc.len - offset;
	size_t want = length < left ? length : left;
	textbuf_char(&s->reply, 'l');
	size_t put = textbuf_binary(&s->reply, s->doc.p + offset, want, LINK_PACKET_ANNOUNCED);
	if (!s->reply.failed && put < left)
		s->reply.p[0] = 'm';
	return true;
}
