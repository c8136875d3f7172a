/*
 * The commands that are analyses: deja NAME for each row of analyses/table.c. Here is what they
 * share: the options, positions, the choice of threads, progress, a child process that reads what
 * may be made to harm, and the errors.
 */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/confine.h"
#include "cli/process.h"
#include "cli/with.h"
#include "analyses/analysis.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	OPT_FROM = 500,
	OPT_TO,
	OPT_THREAD,
	OPT_PROCESS,
	OPT_JSON,
	OPT_EMULATE,
	OPT_WITH,
	OPT_HELP,
	OPT_OWN
};

static const char common_usage[] =
	"      --from POS      begin at this position: SEQ:STEPS[@TID] as gdb's `monitor when'\n"
	"                      says, a thread's instruction count, a time (1.5s, 20ms since the\n"
	"                      recording began), begin or end\n"
	"      --to POS        end there\n"
	"      --thread TID    only this thread (may be given again)\n"
	"      --process PID   only the threads of this process (a pid or a name)\n"
	"      --json          for programs\n"
	"      --with WORDS    answer another question of these in the same pass: the name of a\n"
	"                      command and its own options, as 'edges --limit 10' (may be\n"
	"                      given again)\n"
	"      --emulate       execute everything in the emulator, nothing in translated code\n"
	"  -h, --help          this text";

struct wanted {
	const struct ana_analysis *a;
	struct ana_job job;
	const char *from, *to;
	const char *only[64]; /* --thread and --process */
	bool is_process[64];
	size_t n_only;
	const char *files[8]; /* that are written to */
	size_t n_files;
	bool emulate;
	struct cli_with with[ANA_TOGETHER - 1];
	size_t n_with;
};

static bool shown; /* something is on the progress line */

/* ^C: the answer is what has been found by then. Once more: none. */
static volatile int interrupted; /* as sig_atomic_t is here */
static struct ana_job *working;

static void on_interrupt(int sig)
{
	interrupted = 1;
	if (working->moving)
		replay_interrupt(working->moving);
	signal(sig, SIG_DFL);
}

static void show_progress(uint64_t done, uint64_t total)
{
	static uint64_t told = UINT64_MAX;
	uint64_t percent = total ? done * 100 / total : 0;

	if (percent == told)
		return;
	told = percent;
	fprintf(stderr, "\r%3" PRIu64 "%% of %" PRIu64 " instructions ", percent, total);
	shown = true;
	fflush(stderr);
}

static void clear_progress(void)
{
	if (shown)
		fputs("\r\033[K", stderr);
	shown = false;
}

/* ---- options ---- */

static void make_options(const struct ana_analysis *a, struct option *out)
{
	static const struct option common[] = { { "from", required_argument, NULL, OPT_FROM },
						{ "to", required_argument, NULL, OPT_TO },
						{ "thread", required_argument, NULL, OPT_THREAD },
						{ "process", required_argument, NULL, OPT_PROCESS },
						{ "json", no_argument, NULL, OPT_JSON },
						{ "emulate", no_argument, NULL, OPT_EMULATE },
						{ "with", required_argument, NULL, OPT_WITH },
						{ "help", no_argument, NULL, OPT_HELP } };

	memcpy(out, common, sizeof(common));
	cli_own_options(a, out + sizeof(common) / sizeof(common[0]), OPT_OWN);
}

/* 0, or an exit status + 1. */
static int take_option(struct wanted *w, int c, int argc, char **argv)
{
	struct dj_error err = { 0 };

	switch (c) {
	case OPT_FROM:
		w->from = optarg;
		return 0;
	case OPT_TO:
		w->to = optarg;
		return 0;
	case OPT_THREAD:
	case OPT_PROCESS:
		if (w->n_only == sizeof(w->only) / sizeof(w->only[0]))
			return 1 + cli_usage(w->a->name, "too many threads and processes");
		w->is_process[w->n_only] = c == OPT_PROCESS;
		w->only[w->n_only++] = optarg;
		return 0;
	case OPT_JSON:
		w->job.out.json = true;
		return 0;
	case OPT_EMULATE:
		w->emulate = true;
		return 0;
	case OPT_WITH:
		if (w->n_with == sizeof(w->with) / sizeof(w->with[0]))
			return 1 + cli_usage(w->a->name, "too many --with");
		w->with[w->n_with++].words = optarg;
		return 0;
	case OPT_HELP:
	case 'h':
		fputs(w->a->usage, stdout);
		puts(common_usage);
		return 1 + cli_finish(CLI_GOOD);
	case '?':
	case ':':
		return 1 + cli_bad_option(w->a->name, argc, argv, c);
	default:
		if (w->a->options[c - OPT_OWN].is_to)
			w->to = optarg;
		if (w->a->options[c - OPT_OWN].writes) {
			if (w->n_files == sizeof(w->files) / sizeof(w->files[0]))
				return 1 + cli_usage(w->a->name, "too many files to write");
			w->files[w->n_files++] = optarg;
		}
		if (!w->a->option(w->job.state, (unsigned)(c - OPT_OWN), optarg, &err))
			return 0;
		return 1 + cli_usage(w->a->name, "%s", err.text);
	}
}

/* ---- threads and positions ---- */

static int choose_process(struct wanted *w, const char *word, bool *chosen, struct dj_error *err)
{
	uint32_t process, first;

	if (cli_find_process(w->job.t, word, &process, &first, err))
		return -1;
	for (size_t i = 0; i < dj_trace_threads(w->job.t); i++)
		chosen[i] |= dj_trace_thread(w->job.t, i)->process == process;
	return 0;
}

static int choose_thread(struct wanted *w, const char *word, bool *chosen, struct dj_error *err)
{
	uint64_t tid;
	bool any = false;

	if (!cli_number(word, &tid) || !tid || tid > INT32_MAX)
		return dj_fail(err, CLI_USAGE, "%s: no thread id: %s", w->a->name, word);
	for (size_t i = 0; i < dj_trace_threads(w->job.t); i++)
		if (dj_trace_thread(w->job.t, i)->tid == (int64_t)tid)
			any = chosen[i] = true;
	return any ? 0 : dj_fail(err, CLI_USAGE, "no thread %s in this trace", word);
}

/* Of several processes all, and so of threads; of both, the threads that are of the processes. */
static int choose_threads(struct wanted *w, struct dj_error *err)
{
	size_t n = dj_trace_threads(w->job.t), processes = 0, left = 0;
	bool *of_processes = calloc(n + 1, sizeof(*of_processes));
	int ret = 0;

	if (w->n_only)
		w->job.threads = calloc(n + 1, sizeof(*w->job.threads));
	if (!of_processes || (w->n_only && !w->job.threads))
		ret = dj_fail(err, CLI_USAGE, "out of memory");
	for (size_t i = 0; i < w->n_only && !ret; i++) {
		processes += w->is_process[i];
		ret = w->is_process[i] ? choose_process(w, w->only[i], of_processes, err)
				       : choose_thread(w, w->only[i], w->job.threads, err);
	}
	for (size_t i = 0; i < n && w->n_only && !ret; i++) {
		if (processes)
			w->job.threads[i] =
				of_processes[i] && (processes == w->n_only || w->job.threads[i]);
		left += w->job.threads[i];
	}
	if (w->n_only && !ret && !left)
		ret = dj_fail(err, CLI_USAGE, "none of these threads is of these processes");
	free(of_processes);
	return ret;
}

/* A position is found by going there: the numbers of events are known only to who replays. */
static int find_position(struct wanted *w, struct replay *r, const char *text,
			 struct replay_pos *pos, bool *has, struct dj_error *err)
{
	size_t chosen = 0;

	if (!text)
		return 0;
	*has = true;
	for (uint32_t i = 0; i < dj_trace_threads(w->job.t); i++)
		chosen += !w->job.threads || w->job.threads[i];
	if (chosen != 1 && replay_text_is_time(text))
		return dj_fail(err, CLI_USAGE,
			       "%s: a time says where one thread was; of several, choose one with "
			       "--thread",
			       text);
	for (uint32_t i = 0; w->job.threads && i < dj_trace_threads(w->job.t); i++)
		if (w->job.threads[i]) { /* a plain number is of the first chosen thread */
			struct replay_pos begin;
			replay_thread_begin(r, i, &begin);
			if (replay_seek(r, &begin, err))
				return -1;
			break;
		}
	if (replay_goto_text(r, text, err))
		return -1;
	replay_pos(r, pos);
	return 0;
}

static int find_positions(struct wanted *w, struct dj_error *err)
{
	struct ana_job *j = &w->job;

	if (!w->from && !w->to)
		return 0;
	struct replay *r = replay_open(dj_trace_path(j->t), err);
	int ret = !r || find_position(w, r, w->from, &j->from, &j->has_from, err) ||
				  find_position(w, r, w->to, &j->to, &j->has_to, err)
			  ? -1
			  : 0;
	replay_close(r);
	if (!ret && j->has_from && j->has_to && replay_pos_cmp(&j->from, &j->to) > 0)
		return dj_fail(err, CLI_USAGE, "--from %s comes after --to %s", w->from, w->to);
	return ret;
}

/* ---- the work ---- */

#define AGAIN 100 /* exit status of a child whose translated code went astray */

/* Translated code is executed only where it can do no harm (cli/confine.h), and nothing can be
 * opened there any more that is written to. */
static int confine(struct wanted *w, struct dj_error *err)
{
	bool translated = w->a->translated;

	for (size_t i = 0; i < w->n_files; i++)
		if (ana_file_open(&w->job, w->files[i], err))
			return -1;
	for (size_t i = 0; i < w->n_with; i++) {
		if (cli_with_files(&w->with[i], err))
			return -1;
		translated &= w->with[i].job.analysis->translated;
	}
	if (translated && !w->emulate)
		w->job.translate = cli_confine();
	return 0;
}

/* All of them in one pass; those of --with answer behind that of the command. */
static int run_all(struct wanted *w, struct dj_error *err)
{
	struct ana_job *last = &w->job;

	for (size_t i = 0; i < w->n_with; i++)
		last = cli_with_join(&w->with[i], last, &w->job);
	if (ana_run(last, err)) {
		w->job.again = last->again;
		return -1;
	}
	ana_out_end(&last->out);
	if (last != &w->job && last->out.json)
		fputs("}\n", last->out.f);
	w->job.cut = last->cut;
	return 0;
}

static int analyse(struct wanted *w)
{
	struct ana_job *j = &w->job;
	struct dj_error err = { 0 };
	struct winsize size;

	j->out.f = stdout;
	if (isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		j->out.width = size.ws_col;
	j->progress = isatty(STDERR_FILENO) ? show_progress : NULL;
	j->interrupt = &interrupted;
	j->functions = ana_functions_new(j->t);
	if (!j->functions)
		dj_fail(&err, CLI_USAGE, "out of memory");
	bool good = j->functions && !choose_threads(w, &err) && !find_positions(w, &err);
	if (good) {
		working = j;
		signal(SIGINT, on_interrupt);
		good = (!w->a->prepare || !w->a->prepare(j->state, j, &err)) && !confine(w, &err);
	}
	if (!good) {
		clear_progress();
		if (interrupted)
			err.exit_status = ANA_INTERRUPTED;
		return cli_error(&err);
	}
	if (run_all(w, &err)) {
		clear_progress();
		if (j->again)
			return AGAIN;
		if (interrupted)
			err.exit_status = ANA_INTERRUPTED;
		return cli_error(&err);
	}
	clear_progress();
	if (dj_trace_missing(j->t)) { /* what is there turned out to be something else */
		cli_warn("%s", dj_trace_missing(j->t));
		return CLI_BAD_TRACE;
	}
	if (j->cut) {
		fflush(stdout);
		return cli_error(&err);
	}
	return dj_trace_damage(j->t) ? CLI_BAD_TRACE : CLI_GOOD;
}

static int wait_for(pid_t child)
{
	int status;

	signal(SIGINT, SIG_IGN);
	if (waitpid(child, &status, 0) != child)
		return CLI_USAGE;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGPIPE) {
		signal(WTERMSIG(status), SIG_DFL);
		raise(WTERMSIG(status));
	}
	cli_warn("the symbols or debug information in the trace cannot be read: %s",
		 strsignal(WTERMSIG(status)));
	return CLI_BAD_TRACE;
}

static int run_apart(struct wanted *w)
{
	struct dj_error err = { 0 };

	fflush(NULL);
	pid_t child = fork();
	if (child < 0) {
		dj_fail_errno(&err, CLI_USAGE, "cannot make a process");
		return cli_error(&err);
	}
	if (child == 0) {
		int status = cli_finish(analyse(w));
		fflush(NULL);
		_exit(status);
	}
	return wait_for(child);
}

/* What translated code finds wrong only the emulator can confirm. */
static int run(struct wanted *w)
{
	int status = run_apart(w);

	if (status != AGAIN)
		return status;
	signal(SIGINT, SIG_DFL);
	w->emulate = true;
	return run_apart(w);
}

/* The options are read; the rest of the line are the operands and the file. */
static int work(struct wanted *w, int argc, char **argv)
{
	int status = 0;

	w->job.operands = argv + optind;
	w->job.n_operands = w->a->operands;
	optind += (int)w->a->operands;
	w->job.t = cli_open_whole(w->a->name, argc, argv, &status);
	if (w->job.t)
		status = run(w);
	dj_trace_close(w->job.t);
	return status;
}

int cmd_analysis(const struct ana_analysis *a, int argc, char **argv)
{
	struct option options[24];
	struct wanted w = { .a = a, .job = { .analysis = a, .state = calloc(1, a->size) } };
	int c, status = 0;

	if (!w.job.state) {
		cli_warn("out of memory");
		return CLI_USAGE;
	}
	make_options(a, options);
	opterr = 0;
	while (!status && (c = getopt_long(argc, argv, ":h", options, NULL)) != -1)
		status = take_option(&w, c, argc, argv);
	int first = optind;
	if (!status && argc - first < (int)a->operands)
		status = 1 + cli_usage(a->name, "too few arguments");
	for (size_t i = 0; !status && i < w.n_with; i++)
		status = cli_with_read(&w.with[i], a);
	optind = first;
	if (!status)
		status = work(&w, argc, argv) + 1;
	for (size_t i = 0; i < w.n_with; i++)
		cli_with_free(&w.with[i]);
	free(w.job.state);
	return status - 1;
}
