/* deja record: run a program and record it. */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/terminal.h"
#include "cli/background.h"
#include "recorder/record.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char help_text[] =
	"Usage: deja record [OPTIONS] [--] PROGRAM [ARG...]\n"
	"Run PROGRAM and record it. Its input, output and working directory are its own; deja ends "
	"as\n"
	"PROGRAM ended, with the same exit status or by the same signal.\n"
	"\n"
	"  -o, --output FILE         write the trace to FILE (default: PROGRAM-N.deja in\n"
	"                            $DEJA_TRACE_DIR, else $XDG_DATA_HOME/deja, else\n"
	"                            ~/.local/share/deja, and `latest' there points at it)\n"
	"      --predict MODE        how loads are predicted: shadow (default), last, none; the\n"
	"                            latter two are for comparison\n"
	"      --order MODEL         which events order threads: kernel (system calls and "
	"signals),\n"
	"                            fence (default: locked instructions, fences and imports, "
	"too),\n"
	"                            acqrel (and loads), load (and stores; slow)\n"
	"      --exact-flags         keep arithmetic flags that nothing but the handler of a "
	"signal\n"
	"                            can see, which comes in a long loop\n"
	"      --randomize           leave address space layout randomization on: programs lie "
	"at\n"
	"                            other addresses in each recording\n"
	"      --digest-interval N   instructions between register digests (default 10000000)\n"
	"      --keyframes N         instructions between places from which a thread's history can "
	"be\n"
	"                            replayed without what lies before (default: 500M and more, "
	"where\n"
	"                            that costs little; 0: none); N may have K, M or G behind it, "
	"and\n"
	"                            counts others with e (ordered events), s or ms (time), or B\n"
	"                            (bytes of the trace): 20K, 5000e, 10s, 64MB\n"
	"      --full-keyframes N    the same of those that have stacks, variables and other "
	"memory for\n"
	"                            a debugger, which all threads make at about the same time\n"
	"                            (default: as often as others, where that costs little)\n"
	"      --shadow-memory SIZE  what deja's copies of memory may take in all threads together "
	"before\n"
	"                            those of threads that sleep are given up (K, M, G; default: "
	"an\n"
	"                            eighth of the machine's memory; 0: no limit)\n"
	"      --call-data BYTES     how much of what a system call wrote is kept for the "
	"debugger\n"
	"                            (default 400; 0: nothing)\n"
	"      --cache DIR           where translated code and packed modules are kept for "
	"later\n"
	"                            recordings (default: $XDG_CACHE_HOME/deja, else "
	"~/.cache/deja)\n"
	"      --no-cache            translate everything anew, and keep nothing\n"
	"      --follow              record the processes that PROGRAM starts, too (default)\n"
	"      --no-follow           record PROGRAM alone; the processes that it starts run "
	"natively\n"
	"      --no-wait             end when PROGRAM has ended; processes of its that go on are\n"
	"                            recorded in the background\n"
	"  -v, --verbose             statistics on stderr at the end\n"
	"  -h, --help                this text\n";

/* The file to execute, as execvp(3) finds it: a new string, or NULL with errno. */
static char *find_program(const char *name)
{
	if (strchr(name, '/'))
		return strdup(name);
	const char *path = getenv("PATH");
	if (!path || !*path)
		path = "/usr/local/bin:/bin:/usr/bin";
	int saved = ENOENT;
	for (const char *p = path;;) {
		size_t n = strcspn(p, ":");
		char *full = NULL;
		if (asprintf(&full, "%.*s%s%s", (int)n, p, n ? "/" : "./", name) < 0)
			return NULL;
		struct stat st;
		if (stat(full, &st) == 0 && S_ISREG(st.st_mode)) {
			if (access(full, X_OK) == 0)
				return full;
			saved = EACCES;
		}
		free(full);
		if (!p[n])
			break;
		p += n + 1;
	}
	errno = saved;
	return NULL;
}

/* PROGRAM-N.deja in the trace directory, with the first N that is free; `latest` will point there.
 */
static char *default_output(const char *program, struct dj_error *err)
{
	char *dir = cli_trace_dir(true, err);
	if (!dir)
		return NULL;
	const char *base = strrchr(program, '/') ? strrchr(program, '/') + 1 : program;
	for (unsigned n = 0;; n++) {
		char *path = NULL;
		if (asprintf(&path, "%s/%s-%u.deja", dir, base, n) < 0)
			break;
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0) {
			close(fd);
			char *link = NULL, *tmp = NULL;
			if (asprintf(&link, "%s/latest", dir) > 0 &&
			    asprintf(&tmp, "%s/.latest-%d", dir, getpid()) > 0) {
				unlink(tmp);
				if (symlink(strrchr(path, '/') + 1, tmp) || rename(tmp, link))
					cli_warn("cannot point %s at the new trace: %s", link,
						 strerror(errno));
			}
			free(link);
			free(tmp);
			free(dir);
			return path;
		}
		if (errno != EEXIST) {
			dj_fail_errno(err, 1, "cannot create %s", path);
			free(path);
			break;
		}
		free(path);
	}
	free(dir);
	return NULL;
}

/* What can be said before starting: not executable, set-uid (which tracing would defeat). */
static int check_program(const char *file, struct dj_error *err)
{
	struct stat st;
	if (stat(file, &st))
		return dj_fail_errno(err, errno == ENOENT ? 127 : 126, "%s", file);
	if (S_ISDIR(st.st_mode))
		return dj_fail(err, 126, "%s: is a directory", file);
	if (access(file, X_OK))
		return dj_fail_errno(err, 126, "%s", file);
	if (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
	    ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getegid()))
		return dj_fail(err, 126,
			       "%s is set-uid or set-gid, and would run without its privileges "
			       "under deja; "
			       "record it as the user it runs as",
			       file);
	unsigned char id[20] = { 0 };
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, id, sizeof(id)) : 0;
	if (fd >= 0)
		close(fd);
	if (n >= 20 && !memcmp(id, "\177ELF", 4) && (id[4] != 2 || id[18] != 62))
		return dj_fail(
			err, 126,
			"%s is not an x86-64 program (%s); only x86-64 programs can be recorded",
			file, id[4] != 2 ? "32-bit" : "another processor's");
	return 0;
}

int cli_end_like(int status)
{
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (WIFSIGNALED(status)) {
		struct rlimit none = { 0, 0 };
		int sig = WTERMSIG(status);
		sigset_t one;
		setrlimit(RLIMIT_CORE, &none);
		signal(sig, SIG_DFL);
		sigemptyset(&one);
		sigaddset(&one, sig);
		sigprocmask(SIG_UNBLOCK, &one, NULL);
		kill(getpid(), sig);
		return 128 + sig;
	}
	return 1;
}

/* For a person at the shell: what there is now, and what to do with it. */
static void say_where(const struct rec_options *opt, const struct rec_result *result, bool latest)
{
	struct stat st;
	if (!isatty(2) || stat(opt->output, &st) || !S_ISREG(st.st_mode))
		return;
	uint64_t kb = ((uint64_t)st.st_size + 999) / 1000;
	fprintf(stderr,
		"deja: %llu instructions in %llu.%llu MB, %s; to go back in time: deja "
		"replay%s%s\n",
		(unsigned long long)result->instructions, (unsigned long long)kb / 1000,
		(unsigned long long)kb % 1000 / 100, opt->output, latest ? "" : " ",
		latest ? "" : opt->output);
}

static bool predict_of(const char *name, enum dj_predict *predict)
{
	static const char *const names[] = { "shadow", "last", "none" };
	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(name, names[i])) {
			*predict = (enum dj_predict)i;
			return true;
		}
	return false;
}

static bool model_of(const char *name, uint32_t *model)
{
	static const char *const names[] = { "kernel", "fence", "acqrel", "load" };

	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i])) {
			*model = DJ_ORDER_KERNEL + i;
			return true;
		}
	return false;
}

/* Record the program with these arguments; returns deja's exit status. */
static int record(char **args, struct rec_options *opt)
{
	struct dj_error err = { 0 };
	char *file = find_program(args[0]);
	if (!file) {
		int missing = errno == ENOENT;
		cli_warn("%s: %s", args[0], missing ? "program not found" : strerror(errno));
		return missing ? 127 : 126;
	}
	char *output = NULL;
	if (check_program(file, &err) ||
	    (!opt->output && !(output = default_output(args[0], &err)))) {
		free(file);
		return cli_error(&err);
	}
	if (output) {
		opt->output = output;
		opt->share = true;
	}
	if (opt->first_ended && cli_background()) {
		dj_fail(&err, 1, "no process for the recorder: %s", strerror(errno));
		free(output);
		free(file);
		return cli_error(&err);
	}
	char *cache = opt->cache_asked ? NULL : cli_cache_dir();
	if (!opt->cache_asked)
		opt->cache = cache;
	else if (opt->cache)
		(void)!mkdir(opt->cache, 0700); /* if it fails, opening it tells */
	struct rec_result result;
	struct cli_terminal terminal;
	cli_terminal_keep(&terminal);
	int rc = rec_program(file, args, environ, opt, &result, &err);
	if (rc || (result.cut && !result.went_on))
		cli_terminal_restore(&terminal);
	if (!rc && !cli_in_background())
		say_where(opt, &result, output != NULL);
	free(cache);
	free(output);
	free(file);
	if (rc || (result.cut && !result.went_on))
		return cli_error(&err);
	return cli_end_like(result.status);
}

static const struct option options[] = { { "output", required_argument, NULL, 'o' },
					 { "predict", required_argument, NULL, 'p' },
					 { "order", required_argument, NULL, 'm' },
					 { "digest-interval", required_argument, NULL, 'd' },
					 { "keyframes", required_argument, NULL, 'k' },
					 { "full-keyframes", required_argument, NULL, 'F' },
					 { "shadow-memory", required_argument, NULL, 's' },
					 { "exact-flags", no_argument, NULL, 'x' },
					 { "randomize", no_argument, NULL, 'r' },
					 { "call-data", required_argument, NULL, 'c' },
					 { "cache", required_argument, NULL, 'C' },
					 { "no-cache", no_argument, NULL, 'N' },
					 { "follow", no_argument, NULL, 'f' },
					 { "no-follow", no_argument, NULL, 'n' },
					 { "no-wait", no_argument, NULL, 'w' },
					 { "verbose", no_argument, NULL, 'v' },
					 { "help", no_argument, NULL, 'h' },
					 { NULL, 0, NULL, 0 } };

/*
 * The interval that a text names: a number, perhaps with K, M or G (a thousand, a million, a
 * thousand million) behind it, of instructions, or with an e of ordered events; a number of seconds
 * (s) or milliseconds (ms); bytes of the trace as for cli_size() with a B behind. False if it is
 * not one.
 */
static bool take_interval(const char *text, struct rec_interval *out)
{
	static const struct {
		const char *end;
		uint64_t each;
		int unit;
	} ends[] = { { "B", 0, REC_TRACE_BYTES },
		     { "ms", 1000000, REC_NANOSECONDS },
		     { "s", 1000000000, REC_NANOSECONDS },
		     { "Ke", 1000, REC_EVENTS },
		     { "Me", 1000000, REC_EVENTS },
		     { "Ge", 1000000000, REC_EVENTS },
		     { "e", 1, REC_EVENTS },
		     { "K", 1000, REC_INSTRUCTIONS },
		     { "M", 1000000, REC_INSTRUCTIONS },
		     { "G", 1000000000, REC_INSTRUCTIONS } };
	char number[32];
	size_t n = strlen(text), digits = strspn(text, "0123456789");
	out->unit = REC_INSTRUCTIONS;
	if (!digits || n >= sizeof(number))
		return false;
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		size_t k = strlen(ends[i].end);
		if (n <= k || strcmp(text + n - k, ends[i].end) != 0)
			continue;
		if (digits + !ends[i].each < n - k) /* it is hexadecimal, perhaps */
			break;
		memcpy(number, text, n - k);
		number[n - k] = 0;
		out->unit = ends[i].unit;
		if (!ends[i].each)
			return cli_size(number, &out->n);
		if (!cli_number(number, &out->n) || out->n > UINT64_MAX / ends[i].each)
			return false;
		out->n *= ends[i].each;
		return true;
	}
	return cli_number(text, &out->n);
}

/* An option with a number: NULL, or what is wrong with `optarg`. */
static const char *take_number(int c, struct rec_options *opt)
{
	static char what[100];
	switch (c) {
	case 'd':
		if (cli_number(optarg, &opt->digest_interval) && opt->digest_interval)
			return NULL;
		return "--digest-interval takes a number of instructions";
	case 'k':
		opt->keyframes_cheap = false;
		if (take_interval(optarg, &opt->keyframes))
			return NULL;
		return "--keyframes takes a number of instructions, such as 20M, or 5000e, 10s or "
		       "64MB";
	case 'F':
		opt->full_keyframes_cheap = false;
		if (take_interval(optarg, &opt->full_keyframes))
			return NULL;
		return "--full-keyframes takes a number of instructions, such as 20M, or 5000e, "
		       "10s or 64MB";
	case 's':
		if (cli_size(optarg, &opt->shadow_memory))
			return NULL;
		return "--shadow-memory takes a number of bytes, such as 512M";
	default:
		if (cli_number(optarg, &opt->call_data) && opt->call_data <= REC_CALL_DATA_MAX)
			return NULL;
		snprintf(what, sizeof(what), "--call-data takes a number of bytes up to %u",
			 REC_CALL_DATA_MAX);
		return what;
	}
}

int cmd_record(int argc, char **argv)
{
	struct rec_options opt = { .predict = DJ_PREDICT_SHADOW,
				   .follow = true,
				   .memory_model = DJ_ORDER_FENCE,
				   .keyframes = { .n = REC_KEYFRAMES },
				   .keyframes_cheap = true,
				   .full_keyframes = { .n = REC_KEYFRAMES },
				   .full_keyframes_cheap = true,
				   .shadow_memory = rec_shadow_memory(),
				   .call_data = REC_CALL_DATA };
	int c;
	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:o:vh", options, NULL)) != -1) {
		switch (c) {
		case 'o':
			opt.output = optarg;
			break;
		case 'p':
			if (!predict_of(optarg, &opt.predict))
				return cli_usage("record",
						 "--predict is shadow, last or none, not %s",
						 optarg);
			break;
		case 'm':
			if (!model_of(optarg, &opt.memory_model))
				return cli_usage("record",
						 "--order is kernel, fence, acqrel or load, not %s",
						 optarg);
			break;
		case 'd':
		case 'k':
		case 'F':
		case 'c':
		case 's': {
			const char *what = take_number(c, &opt);
			if (what)
				return cli_usage("record", "%s, not %s", what, optarg);
			break;
		}
		case 'r':
			opt.randomize = true;
			break;
		case 'x':
			opt.exact_flags = true;
			break;
		case 'C':
			opt.cache = optarg;
			opt.cache_asked = true;
			break;
		case 'N':
			opt.cache = NULL;
			opt.cache_asked = true;
			break;
		case 'f':
		case 'n':
			opt.follow = c == 'f';
			break;
		case 'w':
			opt.first_ended = cli_background_ended;
			break;
		case 'v':
			opt.verbose = true;
			break;
		case 'h':
			fputs(help_text, stdout);
			return cli_finish(CLI_GOOD);
		default:
			return cli_bad_option("record", argc, argv, c);
		}
	}
	if (optind >= argc)
		return cli_usage("record", "which program?");

	return record(argv + optind, &opt);
}
