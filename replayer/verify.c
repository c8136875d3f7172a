/*
 * Verification: every thread is replayed from its start, without a memory view, as fast as the
 * emulator goes; the digests in its stream are compared on the way.
 */
#include "replayer/replay.h"
#include "replayer/thread.h"

#include <string.h>
#include <time.h>

#define SLICE 20000000u /* instructions between two reports of progress */

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static enum rp_thread_stop run_thread(struct rp_thread *th, uint64_t before, uint64_t total,
				      void (*progress)(uint64_t done, uint64_t total))
{
	enum rp_thread_stop res = rp_thread_begin(th);

	while (res == THREAD_LIMIT) {
		struct rp_thread_pos to = { .steps = th->e->steps + SLICE };
		if (progress)
			progress(before + th->e->steps - th->info->first_steps, total);
		if (to.steps < th->e->steps)
			to.steps = UINT64_MAX;
		res = rp_thread_run(th, &to, 0);
	}
	return res;
}

int replay_verify(struct dj_trace *t, struct replay_verify_result *out,
		  const struct replay_observer *o, void (*progress)(uint64_t done, uint64_t total),
		  struct dj_error *err)
{
	struct rp_space_names names = { 0 };
	struct rp_patience patience;
	uint64_t total = 0;
	double start = now();
	int ret = 0;

	memset(out, 0, sizeof(*out));
	rp_patience_init(&patience, NULL, NULL);
	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		const struct dj_thread_info *info = dj_trace_thread(t, i);
		total += info->last_steps - info->first_steps;
	}
	for (size_t i = 0; i < dj_trace_threads(t) && !ret && !out->div.found; i++) {
		struct rp_thread *th = rp_thread_new(t, i, &names, err);
		if (!th) {
			ret = -1;
			break;
		}
		th->patience = &patience;
		if (o)
			rp_thread_observe(th, o);
		enum rp_thread_stop res = run_thread(th, out->instructions, total, progress);
		out->instructions += th->e->steps - th->info->first_steps;
		out->events += th->events;
		out->digests += th->count_digests;
		out->flags += th->count_flags;
		out->memory += th->count_memory;
		out->imports += th->count_imports;
		out->effects += th->count_effects;
		out->div = th->div;
		if (res == THREAD_FAILED && !th->div.found)
			ret = dj_fail(err, th->err.exit_status, "%s", th->err.text);
		rp_thread_free(th);
	}
	rp_space_names_free(&names);
	rp_patience_free(&patience);
	out->seconds = now() - start;
	return ret;
}
