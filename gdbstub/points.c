/*
 * Breakpoints and watchpoints: what Z and z packets insert and remove. Each belongs to a process,
 * that of the thread that is selected.
 */
#include "gdbstub/session.h"

#include <stdlib.h>

static void point_drop(struct stub_session *s, struct stub_session_point *p)
{
	free(p->conditions);
	if (p->type <= '1')
		replay_break_del(s->r, p->addr);
	else
		replay_watch_del(s->r, p->id);
}

void stub_session_points_clear(struct stub_session *s, uint32_t process)
{
	size_t kept = 0;
	for (size_t i = 0; i < s->n_points; i++)
		if (process == REPLAY_ALL || s->points[i].process == process)
			point_drop(s, &s->points[i]);
		else
			s->points[kept++] = s->points[i];
	s->n_points = kept;
}

static struct stub_session_point *point_find(struct stub_session *s, char type, uint64_t addr,
					     uint64_t len)
{
	const uint32_t process = stub_threads_process_now(s);
	for (size_t i = 0; i < s->n_points; i++) {
		struct stub_session_point *p = &s->points[i];
		if (p->type == type && p->addr == addr && p->len == len && p->process == process)
			return p;
	}
	return NULL;
}

static size_t watchpoints(const struct stub_session *s)
{
	size_t n = 0;
	for (size_t i = 0; i < s->n_points; i++)
		n += s->points[i].type >= '2';
	return n;
}

const struct stub_session_point *stub_session_point(struct stub_session *s, int id)
{
	for (size_t i = 0; i < s->n_points; i++)
		if (s->points[i].type >= '2' && s->points[i].id == id)
			return &s->points[i];
	return NULL;
}

static bool scan_point(struct stub_scan *a, char *type, uint64_t *addr, uint64_t *len)
{
	if (a->p == a->end)
		return false;
	*type = *a->p++;
	return stub_scan_char(a, ',') && stub_scan_hex(a, addr) && stub_scan_char(a, ',') &&
	       stub_scan_hex(a, len);
}

bool stub_handle_point_insert(struct stub_session *s, struct stub_scan *a)
{
	static const unsigned kinds[] = { REPLAY_WATCH_WRITE, REPLAY_WATCH_READ,
					  REPLAY_WATCH_ACCESS };
	struct stub_session_point p = { .id = -1 };
	if (!scan_point(a, &p.type, &p.addr, &p.len))
		return stub_reply_error(s, 1);
	if (p.type < '0' || p.type > '4')
		return stub_reply_empty(s);
	if (p.type <= '1' && !stub_agent_scan_conditions(a, &p.conditions, &p.conditions_len))
		return stub_reply_error(s, 1);
	struct stub_session_point *same = point_find(s, p.type, p.addr, p.len);
	if (same) { /* the manual wants these packets idempotent, but conditions may be new */
		free(same->conditions);
		same->conditions = p.conditions;
		same->conditions_len = p.conditions_len;
		return stub_reply_ok(s);
	}
	p.process = stub_threads_process_now(s);
	if (s->n_points == SESSION_POINTS) {
		free(p.conditions);
		return stub_reply_error_text(s, "more than %d breakpoints", SESSION_POINTS);
	}
	if (p.type <= '1') {
		if (replay_break_add(s->r, p.addr) != 0) {
			free(p.conditions);
			return stub_reply_error(s, 12);
		}
	} else {
		if (watchpoints(s) == SESSION_WATCHES)
			return stub_reply_error_text(s, "more than %d watchpoints",
						     SESSION_WATCHES);
		if (p.len == 0 || p.len > (1u << 20))
			return stub_reply_error_text(s, "cannot watch %llu bytes",
						     (unsigned long long)p.len);
		p.id = replay_watch_add(s->r, p.addr, p.len, kinds[p.type - '2']);
		if (p.id < 0)
			return stub_reply_error(s, 12);
	}
	s->points[s->n_points++] = p;
	return stub_reply_ok(s);
}

bool stub_handle_point_remove(struct stub_session *s, struct stub_scan *a)
{
	char type;
	uint64_t addr, len;
	if (!scan_point(a, &type, &addr, &len))
		return stub_reply_error(s, 1);
	struct stub_session_point *p = point_find(s, type, addr, len);
	if (p) {
		point_drop(s, p);
		*p = s->points[--s->n_points];
	}
	return stub_reply_ok(s);
}

bool stub_session_breakpoint_at(struct stub_session *s, uint64_t addr)
{
	for (size_t i = 0; i < s->n_points; i++)
		if (s->points[i].type <= '1' && s->points[i].addr == addr)
			return true;
	return false;
}
