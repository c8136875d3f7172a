/* When a thread was where (analyses/when.h). */
#include "analyses/when.h"

#include <stdlib.h>

struct ana_when {
	struct dj_time *time;
	size_t n, at; /* n is not 0; `at`: where it was looked last */
	uint64_t every;
	uint64_t *before; /* of snapshots that found it running: how many before each time */
};

int ana_when_new(struct dj_trace *t, size_t thread, struct ana_when **when, struct dj_error *err)
{
	struct dj_time *time;
	size_t n;

	*when = NULL;
	if (dj_trace_times(t, thread, &time, &n, err))
		return -1;
	if (!n)
		return 0;
	*when = calloc(1, sizeof(**when));
	if (!*when) {
		free(time);
		return dj_fail(err, 1, "out of memory");
	}
	(*when)->time = time;
	(*when)->n = n;
	return 0;
}

void ana_when_free(struct ana_when *when)
{
	if (!when)
		return;
	free(when->time);
	free(when->before);
	free(when);
}

/* The first note that has so many instructions, or more; n: none has. */
static size_t find(struct ana_when *w, uint64_t steps)
{
	size_t a = 0, b = w->n;

	if (w->at && w->time[w->at - 1].steps < steps)
		a = w->at;
	if (a < w->n && w->time[a].steps >= steps)
		b = a; /* where it was last, as in most cases */
	while (a < b) {
		size_t mid = a + (b - a) / 2;

		if (w->time[mid].steps < steps)
			a = mid + 1;
		else
			b = mid;
	}
	return w->at = a;
}

/* Between note i - 1 and note i. */
static uint64_t between(const struct ana_when *w, size_t i, uint64_t steps)
{
	const struct dj_time *to = &w->time[i], *from = to - 1;
	double part = (double)(steps - from->steps) / (double)(to->steps - from->steps);

	return from->us + (uint64_t)(part * (double)(to->us - from->us));
}

uint64_t ana_when_reached(struct ana_when *w, uint64_t steps)
{
	size_t i = find(w, steps);

	if (i == w->n)
		return w->time[i - 1].us;
	return i && w->time[i].steps > steps ? between(w, i, steps) : w->time[i].us;
}

uint64_t ana_when_left(struct ana_when *w, uint64_t steps)
{
	size_t i = find(w, steps);

	while (i + 1 < w->n && w->time[i + 1].steps == steps)
		i++;
	return i < w->n && w->time[i].steps == steps ? w->time[i].us : ana_when_reached(w, steps);
}

void ana_when_between(struct ana_when *w, uint64_t from, uint64_t to,
		      void (*tell)(void *ctx, const struct dj_time *from, const struct dj_time *to),
		      void *ctx)
{
	struct dj_time last = { ana_when_reached(w, from), from };

	for (size_t i = find(w, from); i < w->n && w->time[i].steps <= to; i++) {
		tell(ctx, &last, &w->time[i]);
		last = w->time[i];
	}
	if (last.steps < to)
		tell(ctx, &last, &(struct dj_time){ ana_when_reached(w, to), to });
}

/* ---- snapshots ------------------------------------------------------------------------------ */

/* So many of the moments 0, every, 2 * every... are before this one. */
static uint64_t moments(const struct ana_when *w, uint64_t us)
{
	return us / w->every + (us % w->every != 0);
}

int ana_when_sample(struct ana_when *w, uint64_t every, bool running)
{
	w->every = every;
	if (!running)
		return 0;
	w->before = calloc(w->n, sizeof(*w->before));
	if (!w->before)
		return -1;
	for (size_t i = 1; i < w->n; i++)
		w->before[i] = w->before[i - 1] +
			       (w->time[i].steps > w->time[i - 1].steps
					? moments(w, w->time[i].us) - moments(w, w->time[i - 1].us)
					: 0);
	return 0;
}

uint64_t ana_when_samples(struct ana_when *w, uint64_t steps, bool end)
{
	uint64_t us = end ? ana_when_left(w, steps) : ana_when_reached(w, steps);
	size_t i;

	if (!w->before)
		return moments(w, us);
	i = find(w, steps);
	if (i == w->n)
		return w->before[i - 1];
	return w->time[i].steps == steps || !i
		       ? w->before[i]
		       : w->before[i - 1] + moments(w, us) - moments(w, w->time[i - 1].us);
}
