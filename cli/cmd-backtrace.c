/* deja backtrace: call stacks at a moment, unwound with the tables of the recorded modules. */
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/cmd.h"
#include "cli/stack.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage_text[] =
	"Usage: deja backtrace [OPTIONS] [FILE] [POSITION]\n"
	"Show the call stack at POSITION (SEQ:STEPS as gdb's `monitor when' says, an instruction\n"
	"count, a time as 1.5s, begin or end; the end if it is left out).\n"
	"\n"
	"  -t, --thread TID  of this thread\n"
	"  -a, --all         of all threads that are alive then\n"
	"  -n, --limit N     at most N frames (1000)\n"
	"      --json        for programs\n"
	"  -h, --help        this text";

struct wanted {
	const char *file, *position;
	uint64_t thread, limit;
	bool all, json;
};

struct output {
	struct replay *r;
	struct stack_output stack;
	const struct wanted *wanted;
	struct json json;
	bool began; /* something is printed */
};

/* ---- printing ---------------------------------------------------------------------------- */

/* What stands above the frames. */
static void print_thread(struct output *o, const struct replay_thread *t)
{
	char position[120];

	replay_pos_text(o->r, position, sizeof(position));
	if (o->wanted->json) {
		json_open(&o->json, NULL, '{');
		json_i64(&o->json, "tid", t->tid);
		json_string(&o->json, "name", t->name);
		json_string(&o->json, "position", position);
		json_open(&o->json, "frames", '[');
		return;
	}
	printf("thread %d", t->tid);
	if (t->name[0]) {
		fputs(" (", stdout);
		cli_put(t->name);
		putchar(')');
	}
	printf(" at %s\n", position);
}

static int print_stack(struct output *o, const struct replay_thread *t)
{
	const char *why;

	if (o->wanted->json && !o->began)
		json_open(&o->json, NULL, '[');
	o->began = true;
	print_thread(o, t);
	bool good = stack_frames(&o->stack, &why);
	if (!good)
		cli_warn("%s", why);
	if (o->wanted->json) {
		json_close(&o->json, ']');
		json_string(&o->json, "incomplete", why);
		json_close(&o->json, '}');
	} else if (good && why) {
		putchar('(');
		cli_put(why);
		puts(")");
	}
	return good ? CLI_GOOD : CLI_USAGE;
}

/* ---- which threads -------------------------------------------------------------------------- */

static int print_all(struct output *o, struct dj_error *err)
{
	size_t n = replay_threads(o->r, REPLAY_ALL, NULL, 0), i = 0;
	struct replay_thread *all = calloc(n + 1, sizeof(*all));
	int status = CLI_GOOD;

	if (!all)
		return dj_fail(err, CLI_USAGE, "out of memory");
	n = replay_threads(o->r, REPLAY_ALL, all, n);
	for (; i < n && status == CLI_GOOD; i++) {
		if (replay_select(o->r, all[i].number, err)) {
			status = -1;
			break;
		}
		if (i && !o->wanted->json)
			putchar('\n');
		status = print_stack(o, &all[i]);
	}
	free(all);
	return status;
}

/* -1 with err, or an exit status. */
static int print(struct output *o, struct dj_error *err)
{
	struct replay_thread t;

	if (replay_goto_text(o->r, o->wanted->position, err))
		return -1;
	if (o->wanted->all)
		return print_all(o, err);
	replay_thread(o->r, &t);
	if (o->wanted->thread) {
		if (!replay_thread_find(o->r, 0, (int32_t)o->wanted->thread, &t))
			return dj_fail(err, CLI_USAGE, "there is no thread %" PRIu64 " at %s",
				       o->wanted->thread, o->wanted->position);
		if (replay_select(o->r, t.number, err))
			return -1;
	}
	return print_stack(o, &t);
}

static int backtrace(struct replay *r, const struct wanted *wanted)
{
	struct dj_error err = { 0 };
	struct output o = { .r = r, .wanted = wanted, .json = { .f = stdout } };
	int status = -1;

	o.stack = (struct stack_output){ .r = r,
					 .symbols = ana_symbols_new(r),
					 .limit = wanted->limit,
					 .indent = "",
					 .json = wanted->json ? &o.json : NULL };
	if (!o.stack.symbols) {
		dj_fail(&err, CLI_USAGE, "out of memory");
	} else {
		cli_interruptible(r);
		status = print(&o, &err);
		cli_uninterruptible();
		if (cli_interrupted() && status >= 0) {
			fflush(stdout);
			cli_warn("interrupted: there may be more");
			status = CLI_INTERRUPTED;
		}
	}
	if (wanted->json && o.began) {
		json_close(&o.json, ']');
		putchar('\n');
	}
	if (status < 0) {
		if (cli_interrupted())
			err.exit_status = CLI_INTERRUPTED;
		status = cli_error(&err);
	}
	ana_symbols_free(o.stack.symbols);
	return status;
}

struct job {
	const char *path;
	const struct wanted *wanted;
};

static int run(void *ctx)
{
	const struct job *job = ctx;
	struct dj_error err = { 0 };
	struct replay *r = replay_open(job->path, &err);

	return r ? backtrace(r, job->wanted) : cli_error(&err);
}

/* ---- the command ------------------------------------------------------------------------------
 */

/* A word alone is a position if it looks like one and no file has that name. */
static bool looks_like_position(const char *word)
{
	return access(word, F_OK) &&
	       (!strcmp(word, "begin") || !strcmp(word, "end") || strspn(word, "0123456789") > 0);
}

int cmd_backtrace(int argc, char **argv)
{
	static const struct option options[] = {
		{ "thread", required_argument, NULL, 't' }, { "all", no_argument, NULL, 'a' },
		{ "limit", required_argument, NULL, 'n' },  { "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },	    { 0 }
	};
	struct wanted w = { .position = "end", .limit = 1000 };
	int c, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":t:an:h", options, NULL)) != -1) {
		switch (c) {
		case 't':
			if (!cli_number(optarg, &w.thread) || !w.thread || w.thread > INT32_MAX)
				return cli_usage("backtrace", "no thread id: %s", optarg);
			break;
		case 'n':
			if (!cli_number(optarg, &w.limit) || !w.limit || w.limit > 1000000)
				return cli_usage("backtrace", "no number of frames: %s", optarg);
			break;
		case 'a':
			w.all = true;
			break;
		case 'j':
			w.json = true;
			break;
		case 'h':
			puts(usage_text);
			return cli_finish(CLI_GOOD);
		default:
			return cli_bad_option("backtrace", argc, argv, c);
		}
	}
	if (argc - optind == 2 || (argc - optind == 1 && looks_like_position(argv[optind])))
		w.position = argv[--argc];
	struct dj_trace *t = cli_open_whole("backtrace", argc, argv, &status);
	if (!t)
		return status;
	status = stack_apart(run, &(struct job){ dj_trace_path(t), &w });
	dj_trace_close(t);
	return status;
}
