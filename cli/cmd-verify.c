/*
 * deja verify: replay a whole trace and compare everything in it that is there to be compared.
 */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "replayer/replay.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static bool shown; /* something is on the progress line */

static void show_progress(uint64_t done, uint64_t total)
{
	if (total)
		fprintf(stderr, "\r%3.0f%% of %" PRIu64 " instructions ",
			100.0 * (double)done / (double)total, total);
	shown = true;
	fflush(stderr);
}

static int print_result(const struct replay_verify_result *res, bool damaged)
{
	double rate = res->seconds > 0 ? (double)res->instructions / res->seconds : 0;

	printf("instructions  %" PRIu64 "\n", res->instructions);
	printf("events        %" PRIu64 "\n", res->events);
	printf("imports       %" PRIu64 "\n", res->imports);
	printf("side effects  %" PRIu64 "\n", res->effects);
	printf("digests       %" PRIu64 "%s\n", res->digests,
	       res->div.found ? ""
	       : res->digests ? " (all match)"
			      : " (nothing was compared)");
	printf("compared      registers %" PRIu64 " times, arithmetic flags %" PRIu64
	       " times, %" PRIu64 " bytes of memory\n",
	       res->digests, res->flags, res->memory);
	printf("seconds       %.2f\n", res->seconds);
	printf("speed         %.1f million instructions per second\n", rate / 1e6);
	if (!res->div.found && !res->digests) {
		fflush(stdout);
		if (!damaged) /* else it has been said that there is no more */
			cli_warn("nothing was compared: the trace has no digests");
		return 1;
	}
	if (!res->div.found)
		return CLI_GOOD;
	printf("divergence    %s\n", res->div.text);
	fflush(stdout);
	if (damaged)
		return CLI_BAD_TRACE; /* no wonder, and said already when it was opened */
	cli_warn("the replay diverges: %s", res->div.text);
	return 1;
}

int cmd_verify(int argc, char **argv)
{
	static const struct option options[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	struct replay_verify_result res;
	struct dj_error err = { 0 };
	struct dj_trace *t;
	int c, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c != 'h')
			return cli_bad_option("verify", argc, argv, c);
		puts("Usage: deja verify [FILE]\n"
		     "Replay everything in FILE and compare registers, flags and memory with what\n"
		     "the recorder found. Exit status: 0 if all match, 1 at the first divergence,\n"
		     "which is printed, and if there was nothing to compare, 2 if FILE is not a\n"
		     "good trace.");
		return cli_finish(CLI_GOOD);
	}
	t = cli_open_whole("verify", argc, argv, &status);
	if (!t)
		return status;
	int ret = replay_verify(t, &res, NULL, isatty(STDERR_FILENO) ? show_progress : NULL, &err);
	if (shown)
		fputs("\r\033[K", stderr);
	if (dj_trace_missing(t)) { /* what is there turned out to be something else */
		cli_warn("%s", dj_trace_missing(t));
		status = CLI_BAD_TRACE;
	} else {
		status = ret ? cli_error(&err) : print_result(&res, dj_trace_damage(t) != NULL);
	}
	dj_trace_close(t);
	return cli_finish(status);
}
