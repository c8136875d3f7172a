/*
 * What threads are called, and from when on: the facts of a trace that say so.
 */
#include "replayer/replay-internal.h"

#include <stdlib.h>
#include <string.h>

/* What a hostile trace may make us keep. */
#define MAX_NAMES (1u << 20)

struct rp_thread_name {
	uint32_t subject, order; /* the thread; which of all names this is */
	uint32_t thread;	 /* who gave it, and where */
	uint64_t steps, seq;
	char *text;
};

static bool add(struct rp_thread_names *names, const struct dj_record *rec)
{
	if (names->n % 64 == 0) {
		struct rp_thread_name *grown =
			realloc(names->list, (names->n + 64) * sizeof(*grown));
		if (!grown)
			return false;
		names->list = grown;
	}
	char *text = strdup(rec->name ? rec->name : "");
	if (!text)
		return false;
	names->list[names->n] = (struct rp_thread_name){ .subject = (uint32_t)rec->subject,
							 .order = (uint32_t)names->n,
							 .thread = (uint32_t)rec->thread,
							 .steps = rec->steps,
							 .seq = rec->seq,
							 .text = text };
	names->n++;
	return true;
}

static int compare(const void *a, const void *b)
{
	const struct rp_thread_name *x = a, *y = b;

	if (x->subject != y->subject)
		return x->subject < y->subject ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

static void load(struct replay *r)
{
	struct rp_thread_names *names = &r->thread_names;
	bool room = true;

	names->loaded = true;
	for (size_t p = 0; p < dj_trace_processes(r->t) && room; p++) {
		struct dj_error err = { 0 };
		struct dj_cursor *c = dj_cursor_new_facts(r->t, p, &err);
		const struct dj_record *rec;

		while (c && room && (rec = dj_cursor_next(c, &err)))
			if (rec->kind == DJ_REC_THREAD && rec->what == DJ_THREAD_NAMED &&
			    rec->subject >= 0 && rec->thread >= 0)
				room = names->n < MAX_NAMES && add(names, rec);
		dj_cursor_free(c);
	}
	if (names->n)
		qsort(names->list, names->n, sizeof(*names->list), compare);
}

static bool given(const struct rp_thread_name *name, const struct replay_pos *moment)
{
	if (name->thread == moment->thread)
		return name->steps <= moment->steps;
	return name->seq != DJ_SEQ_UNKNOWN &&
	       (name->seq < moment->seq ||
		(name->seq == moment->seq && name->thread < moment->thread));
}

const char *rp_thread_name(struct replay *r, uint32_t thread)
{
	struct rp_thread_names *names = &r->thread_names;
	const char *text = dj_trace_thread(r->t, thread)->name;
	struct replay_pos moment;
	size_t lo = 0, hi;

	if (!names->loaded)
		load(r);
	replay_pos(r, &moment);
	for (hi = names->n; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;
		if (names->list[mid].subject < thread)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < names->n && names->list[lo].subject == thread; lo++)
		if (given(&names->list[lo], &moment))
			text = names->list[lo].text;
	return text ? text : "";
}

void rp_thread_names_free(struct rp_thread_names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->list[i].text);
	free(names->list);
}
