/*
 * Files of /proc that a debugger reads about the program, made from the trace: what gdb's
 * "info proc" wants (proc(5) describes the formats).
 */
#include "gdbstub/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROT_R = 1, PROT_W = 2, PROT_X = 4, FLAG_SHARED = 1 };

void stub_put_mappings(struct stub_session *s, struct stub_textbuf *out)
{
	const struct replay_mapping *maps;
	size_t n = replay_mappings(s->r, &maps);
	for (size_t i = 0; i < n && !out->failed; i++) {
		const struct replay_mapping *m = &maps[i];
		const char *name = m->name ? m->name : "";
		stub_textbuf_printf(
			out, "%08llx-%08llx %c%c%c%c %08llx 00:00 %-10d ",
			(unsigned long long)m->start, (unsigned long long)m->end,
			m->prot & PROT_R ? 'r' : '-', m->prot & PROT_W ? 'w' : '-',
			m->prot & PROT_X ? 'x' : '-', m->flags & FLAG_SHARED ? 's' : 'p',
			(unsigned long long)m->offset, m->module >= 0 ? m->module + 1 : 0);
		if (*name)
			stub_textbuf_str(out, "                ");
		stub_textbuf_name(out, name);
		stub_textbuf_char(out, '\n');
	}
}

static void put_strings(const char *const *list, struct stub_textbuf *out)
{
	for (; list && *list; list++) {
		stub_textbuf_name(out, *list);
		stub_textbuf_char(out, '\0');
	}
}

static void make_cmdline(struct stub_session *s, struct stub_textbuf *out)
{
	put_strings(dj_trace_meta(replay_trace(s->r))->argv, out);
}

static void make_environ(struct stub_session *s, struct stub_textbuf *out)
{
	put_strings(dj_trace_meta(replay_trace(s->r))->envp, out);
}

static void make_auxv(struct stub_session *s, struct stub_textbuf *out)
{
	const struct stub_session_image *image = stub_session_image(s);
	stub_textbuf_bytes(out, image->auxv, image->auxv_len);
}

static void make_comm(const struct replay_thread *t, struct stub_textbuf *out)
{
	stub_textbuf_name(out, t->name);
	stub_textbuf_char(out, '\n');
}

static void make_status(const struct replay_thread *t, struct stub_textbuf *out)
{
	stub_textbuf_str(out, "Name:\t");
	stub_textbuf_name(out, t->name);
	stub_textbuf_printf(out, "\nState:\tt (tracing stop)\nTgid:\t%d\nPid:\t%d\n", t->pid,
			    t->tid);
}

/* About the process, or about one of its threads. */
static const struct {
	const char *name;
	void (*make)(struct stub_session *s, struct stub_textbuf *out);
	void (*make_of)(const struct replay_thread *t, struct stub_textbuf *out);
} files[] = {
	{ "maps", stub_put_mappings, NULL }, { "cmdline", make_cmdline, NULL },
	{ "environ", make_environ, NULL },   { "auxv", make_auxv, NULL },
	{ "comm", NULL, make_comm },	     { "status", NULL, make_status },
};

/* The part after /proc/PID/ or /proc/PID/task/TID/, or NULL if that is not a process which the
 * debugger has; and the thread that it is about, of the process whichever if it does not say. */
static const char *own_part(struct stub_session *s, const char *path, struct replay_thread *t)
{
	char *end;
	long pid, tid = -1;
	if (strncmp(path, "/proc/", 6) != 0)
		return NULL;
	pid = strtol(path + 6, &end, 10);
	if (*end != '/' || pid <= 0 || pid > INT32_MAX)
		return NULL;
	path = end + 1;
	if (strncmp(path, "task/", 5) == 0) {
		tid = strtol(path + 5, &end, 10);
		if (*end != '/' || tid <= 0 || tid > INT32_MAX)
			return NULL;
		path = end + 1;
	}
	return stub_session_thread(s, (int32_t)pid, (int32_t)tid, t) ? path : NULL;
}

/* Look at the process that a path is about, and back at what was looked at before. A child that was
 * made just now is looked at where it begins. */
struct glance {
	uint32_t before; /* thread */
	bool child;
};

static const char *look(struct stub_session *s, const char *path, struct replay_thread *t,
			struct glance *g)
{
	struct replay_thread now;
	struct dj_error err;
	long pid = strncmp(path, "/proc/", 6) == 0 ? strtol(path + 6, NULL, 10) : 0;
	g->child = !s->in_child && stub_threads_new_child(s) && pid == s->child;
	if (g->child) {
		s->in_child = true;
		stub_threads_visit(s);
	}
	replay_thread(s->r, &now);
	g->before = now.number;
	const char *name = own_part(s, path, t);
	if (name && t->process != now.process && replay_select(s->r, t->number, &err) != 0)
		return NULL;
	return name;
}

static void look_back(struct stub_session *s, const struct glance *g)
{
	struct dj_error err;
	if (g->child)
		stub_threads_return(s);
	else
		replay_select(s->r, g->before, &err);
}

static bool make_file(struct stub_session *s, const char *name, const struct replay_thread *t,
		      struct stub_textbuf *out)
{
	for (size_t i = 0; name && i < sizeof(files) / sizeof(*files); i++)
		if (strcmp(files[i].name, name) == 0) {
			if (files[i].make)
				files[i].make(s, out);
			else
				files[i].make_of(t, out);
			return true;
		}
	return false;
}

bool stub_procfs_read(struct stub_session *s, const char *path, struct stub_textbuf *out)
{
	struct replay_thread t;
	struct glance g;
	const char *name = look(s, path, &t, &g);
	bool found = make_file(s, name, &t, out);
	look_back(s, &g);
	return found;
}

bool stub_procfs_readlink(struct stub_session *s, const char *path, struct stub_textbuf *out)
{
	struct replay_thread t;
	struct glance g;
	const char *name = look(s, path, &t, &g), *target = NULL;
	if (name && strcmp(name, "exe") == 0)
		target = stub_session_exe(s);
	else if (name && strcmp(name, "cwd") == 0)
		target = dj_trace_meta(replay_trace(s->r))->cwd;
	else if (name && strcmp(name, "root") == 0)
		target = "/";
	if (target && *target)
		stub_textbuf_name(out, target);
	look_back(s, &g);
	return target && *target;
}
