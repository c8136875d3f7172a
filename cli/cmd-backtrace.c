/*
 * deja backtrace: call stacks at a moment, unwound with the tables of the recorded modules.
 *
 * Tables and debug information come from the trace, and libraries read them that were not written
 * for those who mean harm. So a child process does the work, and its parent says so if it dies.
 */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/json.h"
#include "analyses/symbols.h"
#include "analyses/unwind.h"

#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage_text[] =
	"Usage: deja backtrace [OPTIONS] [FILE] [POSITION]\n"
	"Show the call stack at POSITION (SEQ:STEPS as gdb's `monitor when' says, an instruction\n"
	"count, begin or end; the end if it is left out).\n"
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
	struct ana_symbols *symbols;
	struct ana_frame *frames;
	const struct wanted *wanted;
	struct json json;
};

static struct replay *running;

static void on_interrupt(int sig)
{
	(void)sig;
	replay_interrupt(running);
}

/* ---- printing ---------------------------------------------------------------------------- */

static void print_place(const struct ana_place *p)
{
	if (p->function) {
		cli_put(p->function);
		if (p->offset && !p->inlined)
			printf("+%#" PRIx64, p->offset);
	} else {
		fputs("??", stdout);
	}
	if (p->file) {
		fputs(" at ", stdout);
		cli_put(p->file);
		printf(":%d", p->line);
	} else if (p->module) {
		fputs(" from ", stdout);
		cli_put(p->module);
		if (!p->function)
			printf("+%#" PRIx64, p->offset);
	}
	putchar('\n');
}

static void json_place(struct json *j, const struct ana_frame *f, const struct ana_place *p)
{
	json_open(j, NULL, '{');
	json_u64(j, "pc", f->pc);
	json_u64(j, "sp", f->sp);
	json_bool(j, "inlined", p->inlined);
	json_bool(j, "signal", f->signalled);
	json_string(j, "function", p->function);
	json_string(j, "module", p->module);
	if (p->function || p->module)
		json_u64(j, "offset", p->offset);
	json_string(j, "file", p->file);
	if (p->file)
		json_i64(j, "line", p->line);
	json_close(j, '}');
}

/* A frame, and those of functions inlined there, which are numbered like frames. */
static void print_frame(struct output *o, size_t *number, const struct ana_frame *f)
{
	struct ana_place places[ANA_PLACES];
	/* a return address may be that of the next function: the call is what counts */
	size_t n = ana_symbols_at(o->symbols, f->exact ? f->pc : f->pc - 1, places);

	for (size_t i = 0; i < n; i++) {
		struct ana_place *p = &places[i];
		if (p->module && !f->exact)
			p->offset++;
		if (o->wanted->json) {
			json_place(&o->json, f, p);
			continue;
		}
		printf("#%-3zu ", (*number)++);
		if (f->signalled) {
			puts("<signal handler called>");
			continue;
		}
		if (p->inlined)
			printf("%21s ", "inlined");
		else
			printf("0x%016" PRIx64 " in ", f->pc);
		print_place(p);
	}
}

static int print_stack(struct output *o, const struct replay_thread *t)
{
	const char *why;
	int n = ana_unwind(o->r, o->frames, o->wanted->limit, &why);
	char position[120];

	if (n < 0) {
		cli_warn("%s", why);
		return CLI_USAGE;
	}
	replay_pos_text(o->r, position, sizeof(position));
	if (o->wanted->json) {
		json_open(&o->json, NULL, '{');
		json_i64(&o->json, "tid", t->tid);
		json_string(&o->json, "name", t->name);
		json_string(&o->json, "position", position);
		json_open(&o->json, "frames", '[');
	} else {
		printf("thread %d", t->tid);
		if (t->name[0]) {
			fputs(" (", stdout);
			cli_put(t->name);
			putchar(')');
		}
		printf(" at %s\n", position);
	}
	size_t number = 0;
	for (int i = 0; i < n; i++)
		print_frame(o, &number, &o->frames[i]);
	if (o->wanted->json) {
		json_close(&o->json, ']');
		json_string(&o->json, "incomplete", why);
		json_close(&o->json, '}');
	} else if (why) {
		putchar('(');
		cli_put(why);
		puts(")");
	}
	return CLI_GOOD;
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

	o.frames = calloc(wanted->limit, sizeof(*o.frames));
	o.symbols = ana_symbols_new(r);
	if (!o.frames || !o.symbols) {
		dj_fail(&err, CLI_USAGE, "out of memory");
	} else {
		running = r;
		signal(SIGINT, on_interrupt);
		if (wanted->json)
			json_open(&o.json, NULL, '[');
		status = print(&o, &err);
		signal(SIGINT, SIG_DFL);
	}
	if (status < 0) {
		status = cli_error(&err);
	} else if (wanted->json) {
		json_close(&o.json, ']');
		putchar('\n');
	}
	ana_symbols_free(o.symbols);
	free(o.frames);
	return status;
}

static int wait_for(pid_t child)
{
	int status;

	signal(SIGINT, SIG_IGN); /* the child's answer to it counts */
	if (waitpid(child, &status, 0) != child)
		return CLI_USAGE;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	cli_warn("the unwind or debug information in the trace cannot be read: %s",
		 strsignal(WTERMSIG(status)));
	return CLI_BAD_TRACE;
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
	struct dj_error err = { 0 };
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
	fflush(NULL);
	pid_t child = fork();
	if (child < 0) {
		dj_fail_errno(&err, CLI_USAGE, "cannot make a process");
		status = cli_error(&err);
	} else if (child == 0) {
		struct replay *r = replay_open(dj_trace_path(t), &err);
		status = r ? backtrace(r, &w) : cli_error(&err);
		_exit(cli_finish(status));
	} else {
		status = wait_for(child);
	}
	dj_trace_close(t);
	return status;
}
