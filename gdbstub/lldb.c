/*
 * Requests that only lldb makes (lldb's docs/lldb-gdb-remote.txt): what kind of machine and process
 * this is, without which it looks for no libraries, and what is mapped where.
 */
#include "gdbstub/session.h"

#include <string.h>

#define TRIPLE "x86_64-pc-linux-gnu"

static void put_kind(struct stub_session *s)
{
	stub_textbuf_str(&s->reply, "triple:");
	stub_textbuf_hex(&s->reply, TRIPLE, strlen(TRIPLE));
	stub_textbuf_str(&s->reply, ";ptrsize:8;endian:little;ostype:linux;");
}

bool stub_handle_host_info(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	put_kind(s);
	return true;
}

bool stub_handle_process_info(struct stub_session *s, struct stub_scan *a)
{
	if (a->p != a->end) /* about another process */
		return stub_reply_empty(s);
	if (s->no_process)
		return stub_reply_error(s, 3);
	struct replay_thread t;
	replay_thread(s->r, &t);
	stub_textbuf_printf(&s->reply, "pid:%x;", (unsigned)t.pid);
	put_kind(s);
	return true;
}

bool stub_handle_memory_region(struct stub_session *s, struct stub_scan *a)
{
	const struct replay_mapping *maps;
	uint64_t addr, from = 0;
	if (!stub_scan_hex(a, &addr) || a->p != a->end)
		return stub_reply_error(s, 1);
	size_t n = replay_mappings(s->r, &maps);
	for (size_t i = 0; i < n; i++) { /* they are in order */
		const struct replay_mapping *m = &maps[i];
		if (addr >= m->end) {
			from = m->end;
			continue;
		}
		if (addr < m->start) {
			stub_textbuf_printf(&s->reply, "start:%llx;size:%llx;",
					    (unsigned long long)from,
					    (unsigned long long)(m->start - from));
			return true;
		}
		stub_textbuf_printf(&s->reply, "start:%llx;size:%llx;permissions:%s%s%s;",
				    (unsigned long long)m->start,
				    (unsigned long long)(m->end - m->start), m->prot & 1 ? "r" : "",
				    m->prot & 2 ? "w" : "", m->prot & 4 ? "x" : "");
		if (m->name && *m->name) {
			stub_textbuf_str(&s->reply, "name:");
			stub_textbuf_hex(&s->reply, m->name, strlen(m->name));
			stub_textbuf_char(&s->reply, ';');
		}
		return true;
	}
	stub_textbuf_printf(&s->reply, "start:%llx;size:%llx;", (unsigned long long)from,
			    (unsigned long long)(0 - from));
	return true;
}
