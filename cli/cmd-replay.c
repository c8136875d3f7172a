/*
 * deja replay: stock gdb on a pipe from "deja serve --stdio". This process becomes gdb, so its
 * exit status is gdb's.
 *
 * gdb reads the few settings it needs from scripts in memory, before the user's own
 * configuration, which may change them. What keeps a trace from running code in gdb is said again
 * after that (doc/security.md): gdb looks for scripts beside and inside the files it reads symbols
 * from, and these are a trace's.
 */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/process.h"
#include "cli/replay-files.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char usage_text[] =
	"Usage: deja replay [--goto POSITION | --at-end] [-p PROCESS] [FILE] [-- GDB-OPTIONS]\n"
	"Debug a recording in gdb, forwards and backwards; the latest one without FILE.\n\n"
	"  --goto POSITION  stand there at first: SEQ:STEPS[+REP] as \"monitor when\" prints it,\n"
	"                   a number of instructions, or a time since the recording began (1.5s)\n"
	"  --at-end         stand at the end of the recording\n"
	"  -p, --process PROCESS\n"
	"                   a number or a name: debug that process, from its beginning on\n"
	"  --checkpoints SIZE\n"
	"                   memory that checkpoints may take, from which one gets to any moment\n"
	"                   quickly (K, M, G; default: 1G, or a quarter of the machine's if that\n"
	"                   is less)\n"
	"  --no-index       neither use nor write FILE.index (deja index)\n\n"
	"\"monitor help\" in gdb lists what deja adds to gdb's own commands.";

/* No file of a trace brings scripts with it, in whichever language and wherever gdb would look for
 * them. */
#define NO_SCRIPTS "set auto-load no"

static const char settings[] =
	NO_SCRIPTS "\n"
		   /* the user's own, where the shell stands */
		   "set auto-load local-gdbinit on\n"
		   /* a called function that the copy cannot finish is taken back at once */
		   "set unwindonsignal on\n"
		   /* else gdb takes all breakpoints out at each stop, and inserts them again */
		   "set breakpoint always-inserted on\n"
		   /* monitor commands may move the replay, which gdb cannot know */
		   "define hookpost-monitor\n"
		   "pipe maintenance flush register-cache | cat >/dev/null\n"
		   "pipe maintenance flush dcache | cat >/dev/null\n"
		   /* other libraries may be there now */
		   "pipe sharedlibrary | cat >/dev/null\n"
		   "end\n";

/* cli/replay.py, as a script for gdb. */
static const char python[] = "python\n"
#include "cli/replay-python.h"
			     "end\n";

/* Where a gdb that knows Python keeps its modules. */
#define GDB_PYTHON "/usr/share/gdb/python/gdb/__init__.py"

/* A slow answer (a long way back, say) is no reason for gdb to give up. Seconds. */
#define PATIENCE "100000"

/* `text` as one word for the shell; a new string. */
static char *shell_word(const char *text)
{
	char *word = malloc(4 * strlen(text) + 3), *p = word;
	if (!word)
		return NULL;
	*p++ = '\'';
	for (; *text; text++) {
		if (*text == '\'') {
			memcpy(p, "'\\''", 4);
			p += 4;
		} else {
			*p++ = *text;
		}
	}
	*p++ = '\'';
	*p = '\0';
	return word;
}

static bool no_index;
static uint64_t checkpoints; /* bytes; 0: as deja serve has it */

static char *target_command(const char *trace, const char *position, const char *process,
			    struct dj_error *err)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0) {
		dj_fail_errno(err, 1, "cannot find the deja program");
		return NULL;
	}
	self[n] = '\0';
	char *full = realpath(trace, NULL); /* gdb may be told to change directory */
	char *program = shell_word(self), *file = shell_word(full ? full : trace), *command = NULL;
	char *where = shell_word(position), *whose = shell_word(process ? process : "");
	char budget[48] = "", messages[32] = "";
	/* not through gdb, which gives its children what was open when it was started */
	int fd = fcntl(STDERR_FILENO, F_DUPFD, STDERR_FILENO + 1);
	if (checkpoints)
		snprintf(budget, sizeof(budget), " --checkpoints %" PRIu64, checkpoints);
	if (fd >= 0)
		snprintf(messages, sizeof(messages), " --messages %d", fd);
	if (!program || !file || !where || !whose ||
	    asprintf(&command,
		     "target extended-remote | exec %s serve --stdio --at-once%s%s%s --goto %s%s%s "
		     "-- %s",
		     program, no_index ? " --no-index" : "", budget, messages, where,
		     process ? " --process " : "", process ? whose : "", file) < 0) {
		dj_fail(err, 1, "out of memory");
		command = NULL;
	}
	free(program);
	free(where);
	free(whose);
	free(file);
	free(full);
	return command;
}

/* A variable of Python's: whatever is in the text, it is a text there. */
static bool python_text(int fd, const char *name, const char *text)
{
	bool good = dprintf(fd, "python %s = bytes.fromhex('", name) > 0;

	for (; *text && good; text++)
		good = dprintf(fd, "%02x", (unsigned char)*text) > 0;
	return good && dprintf(fd, "')\n") > 0;
}

/* The path of a script with our settings. Symbols come out of the trace: from copies of its files,
 * or else through the remote protocol. */
static int make_script(const char *trace, const char *files, char *path, size_t size,
		       struct dj_error *err)
{
	char self[4096] = "";
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *full = realpath(trace, NULL); /* gdb may be told to change directory */
	int fd = memfd_create("deja-gdb", 0);
	bool good = fd >= 0 &&
		    dprintf(fd, "set sysroot %s\n%s", files ? files : "target:", settings) > 0;
	if (good && access(GDB_PYTHON, R_OK) == 0)
		good = n > 0 && python_text(fd, "_deja_program", self) &&
		       python_text(fd, "_deja_trace", full ? full : trace) &&
		       dprintf(fd, "%s", python) > 0;
	free(full);
	if (!good)
		return dj_fail_errno(err, 1, "cannot write settings for gdb");
	snprintf(path, size, "/proc/self/fd/%d", fd);
	return 0;
}

static int run_gdb(const char *trace, const char *position, const char *process, const char *files,
		   char **gdb_options, struct dj_error *err)
{
	char script[64];
	size_t n = 0, extra = 0;
	while (gdb_options[extra])
		extra++;
	char **argv = calloc(extra + 10, sizeof(*argv));
	char *target = target_command(trace, position, process, err);
	if (!argv || !target) {
		free(argv);
		return target ? dj_fail(err, 1, "out of memory") : -1;
	}
	if (make_script(trace, files, script, sizeof(script), err) != 0)
		return -1;
	argv[n++] = "gdb";
	argv[n++] = "-l";
	argv[n++] = PATIENCE;
	argv[n++] = "-ix";
	argv[n++] = script;
	argv[n++] = "-ex";
	argv[n++] = NO_SCRIPTS;
	argv[n++] = "-ex";
	argv[n++] = target;
	memcpy(argv + n, gdb_options, extra * sizeof(*argv));
#ifndef __x86_64__
	execvp("gdb-multiarch", argv); /* where this host's own gdb knows no x86-64 */
#endif
	execvp("gdb", argv);
	if (errno == ENOENT)
		dj_fail(err, 1,
			"gdb is not installed; install it, or use another client with "
			"deja serve");
	else
		dj_fail_errno(err, 1, "cannot run gdb");
	free(target);
	free(argv);
	return -1;
}

int cmd_replay(int argc, char **argv)
{
	static const struct option options[] = {
		{ "goto", required_argument, NULL, 'g' },
		{ "at-end", no_argument, NULL, 'e' },
		{ "process", required_argument, NULL, 'p' },
		{ "no-index", no_argument, NULL, 'i' },
		{ "checkpoints", required_argument, NULL, 'k' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const char *position = "begin", *process = NULL;
	int own = 1, c;

	while (own < argc && strcmp(argv[own], "--") != 0)
		own++;
	char **gdb_options = argv + own + (own < argc);

	opterr = 0;
	while ((c = getopt_long(own, argv, ":hp:", options, NULL)) != -1) {
		switch (c) {
		case 'g':
			position = optarg;
			break;
		case 'p':
			process = optarg;
			break;
		case 'i':
			no_index = true;
			break;
		case 'k':
			if (!cli_size(optarg, &checkpoints) || !checkpoints)
				return cli_usage("replay", CLI_CHECKPOINTS);
			break;
		case 'e':
			position = "end";
			break;
		case 'h':
			puts(usage_text);
			return cli_finish(CLI_GOOD);
		default:
			return cli_bad_option("replay", own, argv, c);
		}
	}
	/* a trace that cannot be read is said here, in one line, not in the middle of gdb's */
	struct dj_error err = { 0 };
	int status;
	struct dj_trace *t = cli_open_whole("replay", own, argv, &status);
	if (!t)
		return status;
	uint32_t number, thread;
	if (process && cli_find_process(t, process, &number, &thread, &err) != 0) {
		dj_trace_close(t);
		return cli_error(&err);
	}
	char *path = strdup(dj_trace_path(t)), *files = replay_files(t);
	dj_trace_close(t);
	if (!path)
		dj_fail(&err, 1, "out of memory");
	else
		run_gdb(path, position, process, files, gdb_options, &err);
	free(files);
	free(path);
	return cli_error(&err);
}
