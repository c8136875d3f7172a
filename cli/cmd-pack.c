/*
 * deja pack: make a recording that needs no other file; remove what no recording needs any more.
 */
#include "cli/cli.h"
#include "cli/cmd.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char help_text[] =
	"Usage: deja pack [-o OUT] [FILE]\n"
	"       deja pack --prune [DIR]\n"
	"Put the program and its libraries, which recordings without a name of their own share, "
	"into\n"
	"FILE itself, so that it can be moved and replayed anywhere.\n"
	"\n"
	"  -o, --output OUT   write the whole recording to OUT and leave FILE as it is\n"
	"      --prune        remove what no recording in DIR (where recordings without a name\n"
	"                     are) shares any more, instead\n"
	"  -h, --help         this text\n";

static int prune(int argc, char **argv)
{
	struct dj_store_pruned result;
	struct dj_error err = { 0 };
	char *dir = NULL;

	if (argc - optind > 1)
		return cli_usage("pack", "one directory at a time, not also %s", argv[optind + 1]);
	if (optind == argc && !(dir = cli_trace_dir(false, &err)))
		return cli_error(&err);
	int r = dj_store_prune(dir ? dir : argv[optind], &result, &err);
	free(dir);
	if (r)
		return cli_error(&err);
	printf("%zu files removed, %" PRIu64 " bytes; %zu are in use\n", result.removed,
	       result.bytes, result.kept);
	return CLI_GOOD;
}

static int pack(const char *out, int argc, char **argv)
{
	struct dj_error err = { 0 };
	size_t files;
	uint64_t bytes;
	int status;
	struct dj_trace *t = cli_open_whole("pack", argc, argv, &status);

	if (!t)
		return status;
	/* one that is whole already need not be written again */
	if ((out || dj_trace_store(t, &files, &bytes)) &&
	    dj_trace_pack(t, out ? out : dj_trace_path(t), &err))
		status = cli_error(&err);
	dj_trace_close(t);
	return status;
}

int cmd_pack(int argc, char **argv)
{
	static const struct option options[] = { { "output", required_argument, NULL, 'o' },
						 { "prune", no_argument, NULL, 'p' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	const char *out = NULL;
	bool pruning = false;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
		switch (c) {
		case 'o':
			out = optarg;
			break;
		case 'p':
			pruning = true;
			break;
		case 'h':
			fputs(help_text, stdout);
			return cli_finish(CLI_GOOD);
		default:
			return cli_bad_option("pack", argc, argv, c);
		}
	}
	if (pruning && out)
		return cli_usage("pack", "--prune writes no file: -o makes no sense with it");
	return cli_finish(pruning ? prune(argc, argv) : pack(out, argc, argv));
}
