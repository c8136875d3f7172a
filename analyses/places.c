/* Positions and ranges of them (analyses/places.h). */
#include "analyses/places.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ana_pos_text(struct dj_trace *t, const struct replay_pos *pos, char buf[ANA_POS_TEXT])
{
	char rep[24] = "", tid[16] = "";

	if (pos->rep)
		snprintf(rep, sizeof(rep), "+%" PRIu64, pos->rep);
	if (dj_trace_threads(t) > 1 && pos->thread < dj_trace_threads(t))
		snprintf(tid, sizeof(tid), "@%" PRId32, dj_trace_thread(t, pos->thread)->tid);
	snprintf(buf, ANA_POS_TEXT, "%" PRIu64 ":%" PRIu64 "%s%s", pos->seq, pos->within, rep, tid);
}

/* Before its exec a child in its parent's memory (vfork) is a thread there, with the number that
 * its process has: that one's is meant, unless the other process is chosen. */
static int find_thread(struct dj_trace *t, uint64_t tid, struct ana_part *part,
		       struct dj_error *err)
{
	bool found = false;

	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		const struct dj_thread_info *info = dj_trace_thread(t, i);
		bool first = dj_trace_process(t, info->process)->pid == info->tid;

		if (info->tid != (int64_t)tid || (found && !first) ||
		    (part->process != REPLAY_ALL && part->process != info->process))
			continue;
		part->thread = (uint32_t)i;
		found = true;
		if (first)
			break;
	}
	return found ? 0 : dj_fail(err, 1, "there is no thread %" PRIu64 " in this recording", tid);
}

static int find_process(struct dj_trace *t, uint64_t pid, struct ana_part *part,
			struct dj_error *err)
{
	for (size_t i = 0; i < dj_trace_processes(t); i++)
		if (dj_trace_process(t, i)->pid == (int64_t)pid) {
			part->process = (uint32_t)i;
			return 0;
		}
	return dj_fail(err, 1, "there is no process %" PRIu64 " in this recording", pid);
}

int ana_part_parse(struct replay *r, const char *from, const char *to, uint64_t tid, uint64_t pid,
		   struct ana_part *part, struct dj_error *err)
{
	struct dj_trace *t = replay_trace(r);

	if (((from && replay_text_is_time(from)) || (to && replay_text_is_time(to))) && !tid &&
	    dj_trace_threads(t) > 1)
		return dj_fail(
			err, 1,
			"a time says where one thread was; of several, choose one with --thread");
	*part = (struct ana_part){ .thread = REPLAY_ALL, .process = REPLAY_ALL };
	if ((pid && find_process(t, pid, part, err)) || (tid && find_thread(t, tid, part, err)))
		return -1;
	replay_begin_pos(r, &part->from);
	replay_end_pos(r, &part->to);
	if (tid) {
		struct replay_pos begin;
		replay_thread_begin(r, part->thread, &begin);
		if (replay_seek(r, &begin, err))
			return -1;
	}
	if (to) {
		if (replay_goto_text(r, to, err))
			return -1;
		replay_pos(r, &part->to);
	}
	if (from) {
		if (replay_goto_text(r, from, err))
			return -1;
		replay_pos(r, &part->from);
	}
	if (to && replay_pos_cmp(&part->to, &part->from) < 0)
		return dj_fail(err, 1, "%s lies before %s", to, from ? from : "the beginning");
	return 0;
}

bool ana_part_has(const struct ana_part *part, struct dj_trace *t, const struct replay_pos *pos)
{
	if (part->thread != REPLAY_ALL && pos->thread != part->thread)
		return false;
	if (part->process != REPLAY_ALL &&
	    dj_trace_thread(t, pos->thread)->process != part->process)
		return false;
	return replay_pos_cmp(pos, &part->from) >= 0 && replay_pos_cmp(pos, &part->to) <= 0;
}

int ana_part_begin(struct replay *r, const struct ana_part *part, struct dj_error *err)
{
	struct dj_trace *t = replay_trace(r);
	struct replay_pos at = part->from, begin;
	uint32_t thread = part->thread;

	if (thread == REPLAY_ALL && part->process == REPLAY_ALL) {
		replay_set_scope(r, REPLAY_PROCESSES);
		return replay_seek(r, &at, err);
	}
	if (thread == REPLAY_ALL)
		for (thread = 0; dj_trace_thread(t, thread)->process != part->process;)
			thread++;
	replay_thread_begin(r, thread, &begin);
	if (replay_pos_cmp(&begin, &at) > 0)
		at = begin;
	if (replay_seek(r, &at, err) || replay_select(r, thread, err))
		return -1;
	replay_set_scope(r, part->thread == REPLAY_ALL ? REPLAY_PROCESS : REPLAY_THREAD);
	return 0;
}
