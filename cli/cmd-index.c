/*
 * deja index: go through a recording once and keep what that finds out beside it.
 */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "format/trace.h"
#include "replayer/replay.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char help_text[] =
	"Usage: deja index [FILE]\n"
	"Go through all of a recording once, and keep beside it, in FILE.index, where what "
	"happened\n"
	"and checkpoints to go to, so that deja replay finds its way quickly from the start.\n"
	"deja replay does so by itself while it waits for commands, as far as it comes.\n"
	"\n"
	"  -h, --help   this text\n";

static struct replay *replay;
static volatile sig_atomic_t asked_to_stop;

static void stop(int sig)
{
	(void)sig;
	asked_to_stop = 1;
}

/* Asked every now and then. */
static bool progress(void *ctx)
{
	static unsigned told = 101;
	uint64_t done, all;

	(void)ctx;
	if (!isatty(STDERR_FILENO))
		return asked_to_stop;
	replay_ahead_progress(replay, &done, &all);
	unsigned now = all ? (unsigned)(100.0 * (double)done / (double)all) : 100;
	if (now != told)
		fprintf(stderr, "\r%u%%", now);
	told = now;
	return asked_to_stop;
}

int cmd_index(int argc, char **argv)
{
	static const struct option options[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	struct dj_error err = { 0 };
	int c, res, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c != 'h')
			return cli_bad_option("index", argc, argv, c);
		fputs(help_text, stdout);
		return cli_finish(CLI_GOOD);
	}
	struct dj_trace *t = cli_open_whole("index", argc, argv, &status);
	if (!t)
		return status;
	replay = replay_open(dj_trace_path(t), &err);
	dj_trace_close(t);
	if (!replay)
		return cli_error(&err);
	signal(SIGINT, stop);
	replay_set_poll(replay, progress, NULL);
	res = replay_cover(replay, &err);
	if (isatty(STDERR_FILENO))
		fputs("\r    \r", stderr);
	/* as far as it came */
	if (res >= 0)
		res = replay_keep(replay, true, &err) ? -1 : res;
	replay_close(replay);
	if (res < 0)
		return cli_error(&err);
	return res ? 128 + SIGINT : CLI_GOOD;
}
