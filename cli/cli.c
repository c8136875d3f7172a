/* What the commands share (cli/cli.h). */
#include "cli/cli.h"

#include "format/text.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the user's terminal takes UTF-8, by the locale (POSIX, 8.2). */
static bool terminal_utf8(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
	const char *value = NULL;

	for (size_t i = 0; i < 3 && !(value && *value); i++)
		value = getenv(names[i]);
	return value && (strcasestr(value, "utf-8") || strcasestr(value, "utf8"));
}

static void put(FILE *f, const char *text)
{
	bool utf8 = terminal_utf8();

	while (*text) {
		size_t n = dj_text_letter(text);

		/* to another terminal some bytes of a letter are control characters */
		if (n == 1)
			putc_unlocked(*text, f);
		else if (n && utf8)
			fwrite(text, 1, n, f);
		else
			putc('?', f);
		text += n ? n : 1;
	}
}

void cli_warn(const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	fflush(stdout); /* in order, when both go to the same place */
	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	fputs("deja: ", stderr);
	put(stderr, n < 0 ? "out of memory" : text);
	fputc('\n', stderr);
	if (n >= 0)
		free(text);
}

static void cut(int signo, siginfo_t *info, void *context)
{
	static const char text[] =
		"deja: a file is shorter than when it was opened, or cannot be read\n";

	(void)context;
	if (info->si_code != BUS_ADRERR) {
		signal(signo, SIG_DFL); /* happens again */
		return;
	}
	ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(n < 0 ? CLI_USAGE : CLI_BAD_TRACE);
}

void cli_catch_cut(void)
{
	struct sigaction sa = { .sa_sigaction = cut, .sa_flags = SA_SIGINFO };

	sigaction(SIGBUS, &sa, NULL);
}

int cli_error(const struct dj_error *err)
{
	cli_warn("%s", err->text);
	return err->exit_status ? err->exit_status : CLI_USAGE;
}

int cli_usage(const char *command, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	cli_warn("%s: %s (deja %s --help shows how it is used)", command, text, command);
	return CLI_USAGE;
}

int cli_bad_option(const char *command, int argc, char **argv, int what)
{
	const char *arg = optind > 0 && optind <= argc ? argv[optind - 1] : "";
	const char short_name[] = { '-', (char)optopt, 0 };
	bool is_long = !strncmp(arg, "--", 2);

	return cli_usage(command, what == ':' ? "option %s needs an argument" : "bad option %s",
			 is_long || !optopt ? arg : short_name);
}

/* mkdir -p -m MODE */
static int make_dirs(char *path, mode_t mode, struct dj_error *err)
{
	for (char *p = path + 1;; p++) {
		char c = *p;

		if (c != '/' && c != 0)
			continue;
		*p = 0;
		if (mkdir(path, mode) && errno != EEXIST)
			return dj_fail_errno(err, 1, "cannot make directory %s", path);
		*p = c;
		if (!c)
			return 0;
	}
}

static const char *env(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

char *cli_trace_dir(bool create, struct dj_error *err)
{
	const char *base;
	char *dir = NULL;
	int n;

	if ((base = env("DEJA_TRACE_DIR"))) {
		n = asprintf(&dir, "%s", base);
	} else if ((base = env("XDG_DATA_HOME"))) {
		n = asprintf(&dir, "%s/deja", base);
	} else if ((base = env("HOME"))) {
		n = asprintf(&dir, "%s/.local/share/deja", base);
	} else {
		dj_fail(err, 1,
			"no place for traces: none of DEJA_TRACE_DIR, XDG_DATA_HOME and "
			"HOME is set");
		return NULL;
	}
	if (n < 0) {
		dj_fail(err, 1, "out of memory");
		return NULL;
	}
	if (create && make_dirs(dir, 0777, err)) {
		free(dir);
		return NULL;
	}
	return dir;
}

/* A directory of the user's own, to which nobody else may write. */
static bool is_own(const char *dir)
{
	struct stat st;

	return !stat(dir, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 022);
}

/* Made only in what is the user's: root with somebody's HOME would leave a directory there that its
 * owner could not use. */
static bool made_in(const char *above, const char *dir)
{
	return access(dir, F_OK) == 0 || (is_own(above) && mkdir(dir, 0700) == 0);
}

char *cli_cache_dir(void)
{
	const char *home = env("HOME"), *base = env("XDG_CACHE_HOME");
	char *above = NULL, *dir = NULL;

	/* The XDG base directory specification: what is not absolute is to be ignored, what is not
	 * there is to be made, for nobody else to look into. */
	bool named = base && *base == '/';
	struct dj_error err = { 0 };
	if (named)
		above = strdup(base);
	else if (home && *home == '/' && asprintf(&above, "%s/.cache", home) < 0)
		above = NULL;
	if (!above || asprintf(&dir, "%s/deja", above) < 0)
		dir = NULL;
	bool made = dir && (named ? !make_dirs(above, 0700, &err) : made_in(home, above)) &&
		    made_in(above, dir);
	free(above);
	if (made)
		return dir;
	free(dir);
	return NULL;
}

char *cli_trace_path(const char *named, struct dj_error *err)
{
	char *path = NULL, *dir;
	int n;

	if (named) {
		path = strdup(named);
		if (!path)
			dj_fail(err, 1, "out of memory");
		return path;
	}
	dir = cli_trace_dir(false, err);
	if (!dir)
		return NULL;
	n = asprintf(&path, "%s/latest", dir);
	free(dir);
	if (n < 0) {
		dj_fail(err, 1, "out of memory");
		return NULL;
	}
	if (access(path, F_OK)) {
		dj_fail(err, 1, "no trace named, and there is no latest one (%s)", path);
		free(path);
		return NULL;
	}
	return path;
}

struct dj_trace *cli_open_trace(const char *command, int argc, char **argv, int *status)
{
	struct dj_error err = { 0 };
	struct dj_trace *t;
	char *path;

	if (argc - optind > 1) {
		*status = cli_usage(command, "one trace at a time, not also %s", argv[optind + 1]);
		return NULL;
	}
	path = cli_trace_path(optind < argc ? argv[optind] : NULL, &err);
	t = path ? dj_trace_open(path, &err) : NULL;
	free(path);
	if (!t) {
		*status = cli_error(&err);
		return NULL;
	}
	if (dj_trace_damage(t))
		cli_warn("%s: %s", dj_trace_path(t), dj_trace_damage(t));
	*status = CLI_GOOD;
	return t;
}

struct dj_trace *cli_open_whole(const char *command, int argc, char **argv, int *status)
{
	struct dj_trace *t = cli_open_trace(command, argc, argv, status);

	if (!t || !dj_trace_missing(t))
		return t;
	cli_warn("%s", dj_trace_missing(t));
	*status = CLI_BAD_TRACE;
	dj_trace_close(t);
	return NULL;
}

bool cli_number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

bool cli_size(const char *text, uint64_t *value)
{
	static const char units[] = "KMG";
	char number[32];
	size_t n = strlen(text);
	const char *unit = n ? strchr(units, text[n - 1]) : NULL;

	if (unit && *unit)
		n--;
	if (n >= sizeof(number))
		return false;
	memcpy(number, text, n);
	number[n] = 0;
	if (!cli_number(number, value))
		return false;
	unsigned shift = unit && *unit ? 10 * (unsigned)(unit - units + 1) : 0;
	if (*value > UINT64_MAX >> shift)
		return false;
	*value <<= shift;
	return true;
}

void cli_put(const char *text)
{
	put(stdout, text);
}

int cli_finish(int status)
{
	bool bad = ferror(stdout);
	int saved = errno;

	errno = 0;
	if (fclose(stdout))
		bad = true;
	if (!bad)
		return status;
	cli_warn("cannot write standard output: %s", strerror(errno ? errno : saved));
	return status ? status : CLI_USAGE;
}
