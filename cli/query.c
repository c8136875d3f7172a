/* What the commands that ask questions of a history share (cli/query.h). */
#include "cli/query.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/stack.h"

#include <stdlib.h>
#include <string.h>

static const char common_usage[] =
	"\n"
	"      --from POS     only from this position on (SEQ:STEPS, an instruction\n"
	"                     count, a time as 1.5s)\n"
	"      --to POS       only up to it\n"
	"      --thread TID   only in this thread\n"
	"      --process PID  only in this process\n"
	"      --limit N      at most N answers\n"
	"      --json         for programs\n"
	"  -h, --help         this text";

enum { OPT_FROM = 1000, OPT_TO, OPT_THREAD, OPT_PROCESS, OPT_LIMIT, OPT_JSON };
static const struct option common[] = {
	{ "from", required_argument, NULL, OPT_FROM },
	{ "to", required_argument, NULL, OPT_TO },
	{ "thread", required_argument, NULL, OPT_THREAD },
	{ "process", required_argument, NULL, OPT_PROCESS },
	{ "limit", required_argument, NULL, OPT_LIMIT },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, 'h' },
};
#define COMMON (sizeof(common) / sizeof(common[0]))

/* ---- answers --------------------------------------------------------------------------------- */

bool query_begin(struct query *q, const struct replay_pos *pos)
{
	char text[ANA_POS_TEXT];

	if (q->shown >= q->limit) {
		q->truncated = true;
		return false;
	}
	q->shown++;
	ana_pos_text(replay_trace(q->r), pos, text);
	if (q->json) {
		json_open(&q->out, NULL, '{');
		json_string(&q->out, "position", text);
	} else {
		printf("%-18s ", text);
	}
	return true;
}

void query_end(struct query *q)
{
	if (q->json)
		json_close(&q->out, '}');
	else
		putchar('\n');
}

/* ---- the process that answers ------------------------------------------------------------------
 */

static int answer(const struct query_command *c, struct query *q, const char *path)
{
	struct dj_error err = { 0 };
	int res = -1, status;

	q->r = replay_open(path, &err);
	if (!q->r)
		return cli_error(&err);
	q->symbols = ana_symbols_new(q->r);
	q->out.f = stdout;
	cli_interruptible(q->r);
	if (!q->symbols)
		dj_fail(&err, CLI_USAGE, "out of memory");
	else if (!ana_part_parse(q->r, q->from, q->to, q->tid, q->pid, &q->part, &err)) {
		if (q->json && !c->no_array)
			json_open(&q->out, NULL, '[');
		res = c->run(q, &err);
		if (q->json && !c->no_array)
			json_close(&q->out, ']');
	}
	cli_uninterruptible();
	/* that it is damaged has been said */
	const bool damaged = dj_trace_damage(replay_trace(q->r)) != NULL;
	status = res < 0 ? cli_error(&err) : damaged ? CLI_BAD_TRACE : CLI_GOOD;
	if (res > 0) {
		cli_warn("interrupted: there may be more");
		status = CLI_INTERRUPTED;
	} else if (q->truncated) {
		cli_warn("these are the first %" PRIu64
			 " answers; --limit says how many are wanted",
			 q->limit);
	}
	ana_symbols_free(q->symbols);
	replay_close(q->r);
	return status;
}

struct job {
	const struct query_command *command;
	struct query *query;
	const char *path;
};

static int run(void *ctx)
{
	const struct job *job = ctx;

	return answer(job->command, job->query, job->path);
}

/* ---- arguments ---------------------------------------------------------------------------------
 */

static bool common_option(struct query *q, int c)
{
	switch (c) {
	case OPT_FROM:
		q->from = optarg;
		return true;
	case OPT_TO:
		q->to = optarg;
		return true;
	case OPT_THREAD:
		return cli_number(optarg, &q->tid) && q->tid && q->tid <= INT32_MAX;
	case OPT_PROCESS:
		return cli_number(optarg, &q->pid) && q->pid && q->pid <= INT32_MAX;
	case OPT_LIMIT:
		return cli_number(optarg, &q->limit);
	case OPT_JSON:
		q->json = true;
		return true;
	default:
		return false;
	}
}

/* Returns -1, or an exit status if there is nothing more to do. */
static int parse(const struct query_command *c, struct query *q, int argc, char **argv)
{
	struct option options[32] = { 0 };
	size_t n = 0;
	int opt;

	for (; c->options && c->options[n].name && n < 16; n++)
		options[n] = c->options[n];
	memcpy(options + n, common, sizeof(common));
	opterr = 0;
	while ((opt = getopt_long(argc, argv, c->letters ? c->letters : ":h", options, NULL)) !=
	       -1) {
		if (opt == 'h') {
			puts(c->usage);
			puts(common_usage + 1);
			return cli_finish(CLI_GOOD);
		}
		if (opt == '?' || opt == ':')
			return cli_bad_option(c->name, argc, argv, opt);
		bool good = opt >= OPT_FROM ? common_option(q, opt) : c->option(q, opt, optarg);
		if (!good)
			return cli_usage(c->name, "no good argument of an option: %s",
					 optarg ? optarg : argv[optind - 1]);
	}
	if ((unsigned)(argc - optind) < c->words)
		return cli_usage(c->name, "%s", c->lacks);
	for (unsigned i = 0; i < c->words; i++)
		q->word[i] = argv[optind++];
	return -1;
}

int query_main(const struct query_command *c, void *own, int argc, char **argv)
{
	struct query q = { .command = c->name, .limit = UINT64_MAX, .own = own };
	int status = parse(c, &q, argc, argv);

	if (status >= 0)
		return status;
	struct dj_trace *t = cli_open_whole(c->name, argc, argv, &status);
	if (!t)
		return status;
	status = stack_apart(run, &(struct job){ c, &q, dj_trace_path(t) });
	dj_trace_close(t);
	return status;
}
