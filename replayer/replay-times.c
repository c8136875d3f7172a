/*
 * Positions by time: "1.5s" after the recording began, by what the recorder noted of when threads
 * were where (dj_trace_times()).
 */
#include "replayer/replay-internal.h"
#include "replayer/replay-times.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool replay_time(const char *word, size_t len, uint64_t *us)
{
	static const struct {
		const char *name;
		double us;
	} units[] = { { "us", 1 }, { "ms", 1e3 }, { "s", 1e6 } };
	size_t digits = strspn(word, "0123456789.");
	char *end;
	double value;

	if (!digits || digits >= 20 || digits > len)
		return false;
	value = strtod(word, &end);
	if (end != word + digits) /* "1.5.2s" */
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (len == digits + strlen(units[i].name) &&
		    !strncmp(word + digits, units[i].name, len - digits) &&
		    value * units[i].us < 1e15) {
			/* 0.000251 times a million is less than 251. */
			*us = (uint64_t)(value * units[i].us + 0.5);
			return true;
		}
	return false;
}

/* A time, and perhaps "@TID" behind it; without, `*tid` is 0. */
static bool parse(const char *text, uint64_t *us, uint64_t *tid)
{
	size_t len = strcspn(text, "@");
	char *end;

	*tid = 0;
	if (text[len] == '@') {
		*tid = strtoull(text + len + 1, &end, 10);
		if (!*tid || *end)
			return false;
	}
	return replay_time(text, len, us);
}

bool replay_text_is_time(const char *text)
{
	uint64_t us, tid;

	return parse(text, &us, &tid);
}

/* How many instructions the thread had executed at a moment; false if it did not live then. */
static bool steps_at(struct replay *r, uint32_t thread, uint64_t us, uint64_t *steps,
		     uint64_t *last)
{
	struct dj_time *v;
	struct dj_error err;
	bool lived = false;
	size_t n, i = 0;

	if (dj_trace_times(r->t, thread, &v, &n, &err) || !n)
		return false;
	if (v[n - 1].us > *last)
		*last = v[n - 1].us;
	while (i < n && v[i].us <= us)
		i++;
	if (i) {
		lived = i < n || v[n - 1].us == us;
		*steps = v[i - 1].steps;
		if (i < n)
			*steps += (uint64_t)((double)(v[i].steps - v[i - 1].steps) *
					     (double)(us - v[i - 1].us) /
					     (double)(v[i].us - v[i - 1].us));
	}
	free(v);
	return lived;
}

static int go(struct replay *r, uint32_t thread, uint64_t steps, struct dj_error *err)
{
	struct rp_thread_pos to = { .steps = steps };

	if (steps < dj_trace_thread(r->t, thread)->first_steps)
		to.steps = dj_trace_thread(r->t, thread)->first_steps;
	return rp_switch(r, thread, err) || replay_move(r, &to, err) ? -1 : 0;
}

int rp_goto_time(struct replay *r, const char *text, struct dj_error *err)
{
	uint64_t us = 0, tid = 0, steps, last = 0;
	bool any = false;

	if (!parse(text, &us, &tid))
		return dj_fail(err, 1, "'%s' is no time", text);
	if (!tid && steps_at(r, r->selected, us, &steps, &last))
		return go(r, r->selected, steps, err);
	for (uint32_t i = 0; i < r->nthreads; i++) {
		if (tid && dj_trace_thread(r->t, i)->tid != (int64_t)tid)
			continue;
		any = true;
		if (steps_at(r, i, us, &steps, &last))
			return go(r, i, steps, err);
	}
	if (!any)
		return dj_fail(err, 1, "no thread %" PRIu64 " in this trace", tid);
	if (!last)
		return dj_fail(err, 1, "the recording does not say when its threads were where");
	return dj_fail(err, 1, "%s there at that time; the last moment is %.6fs",
		       tid ? "the thread was not" : "no thread was", (double)last / 1e6);
}
