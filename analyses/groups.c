/* Which process of the kernel's a thread was of (analyses/groups.h). */
#include "analyses/groups.h"

#include <stdlib.h>

/* The recorder tells of such a child as of a thread and directly behind that as of a process. */
static void note(struct dj_trace *t, size_t process, uint32_t *groups)
{
	struct dj_error err;
	struct dj_cursor *c = dj_cursor_new_facts(t, process, &err);
	const struct dj_record *rec;
	int32_t made = -1, pid = 0;

	while (c && (rec = dj_cursor_next(c, &err))) {
		if (rec->kind == DJ_REC_CHILD && rec->what == DJ_CHILD_VFORK && made >= 0 &&
		    rec->pid == pid && rec->subject >= 0)
			groups[made] = (uint32_t)rec->subject;
		made = rec->kind == DJ_REC_THREAD && rec->what == DJ_THREAD_MADE ? rec->subject
										 : -1;
		pid = rec->pid;
	}
	dj_cursor_free(c);
}

uint32_t *ana_groups(struct dj_trace *t, struct dj_error *err)
{
	size_t n = dj_trace_threads(t);
	uint32_t *groups = malloc((n + 1) * sizeof(*groups));

	if (!groups) {
		dj_fail(err, 1, "out of memory");
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		groups[i] = dj_trace_thread(t, i)->process;
	for (size_t i = 0; i < dj_trace_processes(t); i++)
		note(t, i, groups);
	return groups;
}

int ana_group_thread(const struct dj_trace *t, const uint32_t *groups, uint32_t memory,
		     uint64_t pid)
{
	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		const struct dj_thread_info *info = dj_trace_thread(t, i);

		if (info->tid == (int64_t)pid && info->process == memory && groups[i] != memory)
			return (int)i;
	}
	return -1;
}
