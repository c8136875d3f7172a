/* deja ps: the recorded processes, one per line. */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/summary.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_process(const struct dj_trace *t, const struct summary *s, size_t i)
{
	char end[700], *command = summary_command(s, t, i);

	summary_end_text(s, t, i, end, sizeof(end));
	printf("%8d %7zu  ", s->processes[i].info->pid, s->processes[i].threads);
	cli_put(command && *command ? command : dj_trace_meta(t)->exe);
	printf("%*s ", command && strlen(command) < 32 ? 32 - (int)strlen(command) : 0, "");
	cli_put(end);
	putchar('\n');
	free(command);
}

int cmd_ps(int argc, char **argv)
{
	static const struct option options[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	struct dj_error err = { 0 };
	struct dj_trace *t;
	struct summary s;
	int c, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c != 'h')
			return cli_bad_option("ps", argc, argv, c);
		puts("Usage: deja ps [FILE]\n"
		     "List the processes recorded in FILE: number, threads, command, how it "
		     "ended.");
		return cli_finish(CLI_GOOD);
	}
	t = cli_open_trace("ps", argc, argv, &status);
	if (!t)
		return status;
	if (summary_make(&s, t, &err))
		status = cli_error(&err);
	printf("%8s %7s  %-32s %s\n", "PID", "THREADS", "COMMAND", "END");
	if (!s.nprocesses) /* cut off before its first thread */
		printf("%8d %7d  %-32s recording was cut off\n", dj_trace_meta(t)->pid, 0, "?");
	for (size_t i = 0; i < s.nprocesses; i++)
		print_process(t, &s, i);
	summary_free(&s);
	dj_trace_close(t);
	return cli_finish(status);
}
