/*
 * deja ps: the tree of recorded processes, one per line, each below and right of the one that made
 * it.
 */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/json.h"
#include "cli/summary.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Who made whom, and whose threads are whose, as lists. The trace says what it likes: whoever is
 * not below an earlier one is nobody's child, so that there are no circles. */
struct tree {
	const struct dj_trace *t;
	const struct summary *s;
	size_t *child, *next;	 /* the first child, the next of the same parent; or NONE */
	size_t *thread, *follow; /* the first thread, the next of the same process; or NONE */
	size_t first;		 /* of those that are nobody's */
};

#define NONE SIZE_MAX

static size_t parent_of(const struct summary *s, size_t i)
{
	int32_t parent = s->processes[i].info->parent;

	return parent >= 0 && (size_t)parent < i ? (size_t)parent : NONE;
}

static int make_tree(struct tree *t)
{
	const struct summary *s = t->s;
	size_t n = s->nprocesses;

	t->first = NONE;
	t->child = malloc((n + 1) * sizeof(*t->child));
	t->next = malloc((n + 1) * sizeof(*t->next));
	t->thread = malloc((n + 1) * sizeof(*t->thread));
	t->follow = malloc((s->nthreads + 1) * sizeof(*t->follow));
	if (!t->child || !t->next || !t->thread || !t->follow)
		return -1;
	for (size_t i = 0; i < n; i++)
		t->child[i] = t->thread[i] = NONE;
	for (size_t i = n; i-- > 0;) { /* so that the lists are in order */
		size_t parent = parent_of(s, i);
		size_t *head = parent == NONE ? &t->first : &t->child[parent];

		t->next[i] = *head;
		*head = i;
	}
	for (size_t i = s->nthreads; i-- > 0;) {
		size_t *head = &t->thread[s->threads[i].info->process];

		t->follow[i] = *head;
		*head = i;
	}
	return 0;
}

static void free_tree(struct tree *t)
{
	free(t->child);
	free(t->next);
	free(t->thread);
	free(t->follow);
}

/* The one behind i in the order of printing. */
static size_t next_in_tree(const struct tree *t, size_t i, unsigned *depth)
{
	if (t->child[i] != NONE) {
		++*depth;
		return t->child[i];
	}
	while (t->next[i] == NONE) {
		i = parent_of(t->s, i);
		if (i == NONE)
			return NONE;
		--*depth;
	}
	return t->next[i];
}

static int32_t parent_pid(const struct summary *s, size_t i)
{
	size_t parent = parent_of(s, i);

	return parent == NONE ? 0 : s->processes[parent].info->pid;
}

/* When it began and ended: the first one as the whole recording, others by their own marks. */
static void times_of(const struct tree *t, size_t i, int64_t *from, int64_t *to)
{
	const struct summary_process *p = &t->s->processes[i];

	*from = i ? p->first_time : dj_trace_meta(t->t)->start_time_ns;
	*to = p->last_time;
	if (!i && !*to && dj_trace_end(t->t)->present)
		*to = dj_trace_end(t->t)->end_time_ns;
}

/* ---- for people -------------------------------------------------------------------------- */

#define COMMAND_WIDTH 32
#define MAX_DEPTH     40 /* that is shown */

/* Seconds after the recording began. */
static void print_time(const struct tree *t, int64_t at)
{
	if (at)
		printf(" %8.3f", ((double)at - (double)dj_trace_meta(t->t)->start_time_ns) * 1e-9);
	else
		printf(" %8s", "?");
}

static void print_threads(const struct tree *t, size_t process, unsigned indent)
{
	for (size_t i = t->thread[process]; i != NONE; i = t->follow[i]) {
		const struct summary_thread *th = &t->s->threads[i];

		printf("%8d %7s %7s %12" PRIu64, th->info->tid, "", "thread", th->steps);
		print_time(t, !process && th->info->tid == t->s->processes[0].info->pid
				      ? dj_trace_meta(t->t)->start_time_ns
				      : th->first_time);
		print_time(t, th->last_time);
		printf("  %*s", (int)indent + 2, "");
		cli_put(th->info->name ? th->info->name : "");
		putchar('\n');
	}
}

static void print_process(const struct tree *t, size_t i, unsigned indent)
{
	const struct summary_process *p = &t->s->processes[i];
	char end[700], *command = summary_command(t->s, t->t, i);
	const char *text = command && *command ? command : dj_trace_meta(t->t)->exe;
	int64_t from, to;
	size_t len = strlen(text) + indent;

	summary_end_text(t->s, t->t, i, end, sizeof(end));
	times_of(t, i, &from, &to);
	printf("%8d %7d %7zu %12" PRIu64, p->info->pid, parent_pid(t->s, i), p->threads, p->steps);
	print_time(t, from);
	print_time(t, to);
	printf("  %*s", (int)indent, "");
	cli_put(text);
	printf("%*s ", len < COMMAND_WIDTH ? COMMAND_WIDTH - (int)len : 0, "");
	cli_put(end);
	if (p->unfollowed)
		printf("; %" PRIu64 " %s not recorded", p->unfollowed,
		       p->unfollowed == 1 ? "child" : "children");
	putchar('\n');
	free(command);
}

static void print_text(const struct tree *t, bool threads)
{
	unsigned depth = 0;

	printf("%8s %7s %7s %12s %8s %8s  %-*s %s\n", "PID", "PPID", "THREADS", "INSTRUCTIONS",
	       "BEGIN", "END", COMMAND_WIDTH, "COMMAND", "HOW IT ENDED");
	if (!t->s->nprocesses) /* cut off before its first thread */
		printf("%8d %7d %7d %12d %8s %8s  %-*s recording was cut off\n",
		       dj_trace_meta(t->t)->pid, 0, 0, 0, "?", "?", COMMAND_WIDTH, "?");
	for (size_t i = t->first; i != NONE; i = next_in_tree(t, i, &depth)) {
		unsigned indent = 2 * (depth < MAX_DEPTH ? depth : MAX_DEPTH);

		print_process(t, i, indent);
		if (threads)
			print_threads(t, i, indent);
	}
}

/* ---- for programs ------------------------------------------------------------------------ */

static void json_threads(struct json *j, const struct tree *t, size_t process)
{
	json_open(j, "threads", '[');
	for (size_t i = t->thread[process]; i != NONE; i = t->follow[i]) {
		const struct summary_thread *th = &t->s->threads[i];

		json_open(j, NULL, '{');
		json_i64(j, "tid", th->info->tid);
		json_string(j, "name", th->info->name);
		json_u64(j, "instructions", th->steps);
		if (th->first_time)
			json_i64(j, "start_time_ns", th->first_time);
		if (th->last_time)
			json_i64(j, "end_time_ns", th->last_time);
		if (th->exited)
			json_i64(j, "wait_status", th->status);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void json_status(struct json *j, const struct tree *t, size_t i)
{
	const struct summary_process *p = &t->s->processes[i];
	int32_t status;

	if (!i && dj_trace_end(t->t)->present)
		status = dj_trace_end(t->t)->status;
	else if (p->first && p->first->exited)
		status = p->first->status;
	else
		return;
	if (WIFEXITED(status))
		json_i64(j, "exit_status", WEXITSTATUS(status));
	else if (WIFSIGNALED(status))
		json_i64(j, "signal", WTERMSIG(status));
}

static void json_process(struct json *j, const struct tree *t, size_t i)
{
	const struct summary_process *p = &t->s->processes[i];
	char end[700], *command = summary_command(t->s, t->t, i);
	int64_t from, to;

	summary_end_text(t->s, t->t, i, end, sizeof(end));
	times_of(t, i, &from, &to);
	json_open(j, NULL, '{');
	json_i64(j, "pid", p->info->pid);
	if (parent_of(t->s, i) != NONE)
		json_i64(j, "ppid", parent_pid(t->s, i));
	json_string(j, "command", command);
	json_u64(j, "instructions", p->steps);
	json_u64(j, "children_not_recorded", p->unfollowed);
	if (from)
		json_i64(j, "start_time_ns", from);
	if (to)
		json_i64(j, "end_time_ns", to);
	json_string(j, "end", end);
	json_status(j, t, i);
	json_threads(j, t, i);
	json_close(j, '}');
	free(command);
}

static void print_json(const struct tree *t)
{
	struct json j = { .f = stdout };
	unsigned depth = 0;

	json_open(&j, NULL, '[');
	for (size_t i = t->first; i != NONE; i = next_in_tree(t, i, &depth))
		json_process(&j, t, i);
	json_close(&j, ']');
	putchar('\n');
}

static const char usage_text[] =
	"Usage: deja ps [--threads] [--json] [FILE]\n"
	"List the tree of processes recorded in FILE: number, parent, threads, instructions, "
	"seconds\n"
	"after the recording began at which each began and ended, command, how it ended.\n\n"
	"  -t, --threads  and the threads of each\n"
	"      --json     for programs";

int cmd_ps(int argc, char **argv)
{
	static const struct option options[] = { { "threads", no_argument, NULL, 't' },
						 { "json", no_argument, NULL, 'j' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	struct dj_error err = { 0 };
	struct dj_trace *t;
	struct summary s;
	bool threads = false, json = false;
	int c, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":th", options, NULL)) != -1) {
		switch (c) {
		case 't':
			threads = true;
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			puts(usage_text);
			return cli_finish(CLI_GOOD);
		default:
			return cli_bad_option("ps", argc, argv, c);
		}
	}
	t = cli_open_trace("ps", argc, argv, &status);
	if (!t)
		return status;
	if (summary_make(&s, t, &err))
		status = cli_error(&err);
	struct tree tree = { .t = t, .s = &s };
	if (make_tree(&tree)) {
		dj_fail(&err, CLI_USAGE, "out of memory");
		status = cli_error(&err);
	} else if (json) {
		print_json(&tree);
	} else {
		print_text(&tree, threads);
	}
	free_tree(&tree);
	summary_free(&s);
	dj_trace_close(t);
	return cli_finish(status);
}
