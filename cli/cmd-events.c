/* deja events: system calls as strace prints them, signals, modules, threads. */
#include "analyses/events.h"
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/query.h"

#include <string.h>

static const char usage_text[] =
	"Usage: deja events [OPTIONS] [FILE]\n"
	"Print what happened between the program and the kernel, a line each, with the position\n"
	"before it: system calls as strace(1) prints them, signals, modules that were mapped,\n"
	"threads that began and ended.\n"
	"\n"
	"  -e, --only NAME    only system calls and signals of this name (openat, SIGSEGV), or "
	"all\n"
	"                     events of this kind (call, signal, module, thread, exit); may be\n"
	"                     repeated\n"
	"      --failed       only system calls that failed\n"
	"  -t, --times        and when that was, in seconds since the recording began, and in\n"
	"                     angle brackets how long it took, if the thread was seen there";

#define NAMES 32
struct wanted {
	const char *names[NAMES];
	unsigned n;
	bool failed, times;
};

static bool is_wanted(const struct wanted *w, const struct ana_event *e)
{
	if (w->failed &&
	    (e->kind != ANA_EVENT_CALL || !e->returned || e->result <= (uint64_t)-4096))
		return false;
	for (unsigned i = 0; i < w->n; i++)
		if (!strcmp(w->names[i], e->name) ||
		    !strcmp(w->names[i], ana_event_kind_name(e->kind)))
			return true;
	return !w->n;
}

static void show_time(struct query *q, const struct ana_event *e)
{
	if (q->json) {
		json_i64(&q->out, "us", (int64_t)e->us);
		json_i64(&q->out, "stayed", (int64_t)e->stayed);
	} else if (e->timed) {
		printf("%11.6f ", (double)e->us / 1e6);
	} else {
		printf("%11s ", "?");
	}
}

static bool show(void *ctx, const struct ana_event *e)
{
	struct query *q = ctx;
	const struct wanted *w = q->own;

	if (!is_wanted(w, e))
		return true;
	if (!query_begin(q, &e->pos))
		return false;
	if (w->times && (e->timed || !q->json))
		show_time(q, e);
	if (q->json) {
		json_i64(&q->out, "tid", dj_trace_thread(replay_trace(q->r), e->pos.thread)->tid);
		json_string(&q->out, "kind", ana_event_kind_name(e->kind));
		json_string(&q->out, "name", e->name);
		if (e->kind == ANA_EVENT_CALL && e->returned)
			json_i64(&q->out, "result", (int64_t)e->result);
		json_string(&q->out, "text", e->text);
	} else {
		cli_put(e->text);
		if (w->times && e->timed && e->stayed)
			printf(" <%.6f>", (double)e->stayed / 1e6);
	}
	query_end(q);
	return true;
}

static int run(struct query *q, struct dj_error *err)
{
	const struct wanted *w = q->own;

	for (unsigned i = 0; i < w->n; i++)
		if (!ana_event_is_name(w->names[i]))
			return dj_fail(err, CLI_USAGE,
				       "events: there is no system call, signal or kind of event "
				       "called %s",
				       w->names[i]);
	return ana_events(q->r, &q->part, show, q, err);
}

static bool option(struct query *q, int c, const char *arg)
{
	struct wanted *w = q->own;

	if (c == 'f')
		w->failed = true;
	else if (c == 't')
		w->times = true;
	else if (w->n < NAMES)
		w->names[w->n++] = arg;
	else
		return false;
	return true;
}

int cmd_events(int argc, char **argv)
{
	static const struct option options[] = { { "only", required_argument, NULL, 'e' },
						 { "failed", no_argument, NULL, 'f' },
						 { "times", no_argument, NULL, 't' },
						 { 0 } };
	static const struct query_command command = {
		.name = "events",
		.usage = usage_text,
		.options = options,
		.letters = ":he:t",
		.option = option,
		.run = run,
	};
	struct wanted w = { 0 };

	return query_main(&command, &w, argc, argv);
}
