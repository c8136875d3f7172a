/*
 * deja verify: replay a whole trace and compare everything in it that is there to be compared.
 */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/confine.h"
#include "cli/stack.h"
#include "replayer/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
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

static int print_result(const char *path, const struct replay_verify_result *res, bool damaged)
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
	printf("translated    %.1f %% of the instructions, the others emulated\n",
	       res->instructions ? 100.0 * (double)res->translated / (double)res->instructions : 0);
	if (res->again)
		printf("emulated      %" PRIu64 " threads, after translated code had gone astray\n",
		       res->again);
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
	printf("divergence    ");
	cli_put(res->div.text);
	putchar('\n');
	stack_report(path, res->div.pos.thread, res->div.pos.steps, "stack at", NULL);
	fflush(stdout);
	if (damaged)
		return CLI_BAD_TRACE; /* no wonder, and said already when it was opened */
	cli_warn("the replay diverges: %s", res->div.text);
	return 1;
}

/* What the process that replays tells the one that asked it to. */
struct answer {
	int ret;
	struct replay_verify_result res;
	struct dj_error err;
	bool damaged;
	char missing[sizeof(((struct dj_error *)0)->text)];
};

static bool emulate, tell; /* tell: how far it is */

static void verify(struct dj_trace *t, struct answer *a)
{
	memset(a, 0, sizeof(*a));
	a->ret = replay_verify(t, &a->res, NULL, tell ? show_progress : NULL, &a->err);
	if (shown)
		fputs("\r\033[K", stderr);
	a->damaged = dj_trace_damage(t);
	if (dj_trace_missing(t))
		snprintf(a->missing, sizeof(a->missing), "%s", dj_trace_missing(t));
}

static bool transfer(int fd, void *buf, size_t size, bool out)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = out ? write(fd, (char *)buf + done, size - done)
				: read(fd, (char *)buf + done, size - done);
		if (n <= 0 && !(n < 0 && errno == EINTR))
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* Of a process that a trace may have taken over: its texts end where they must. */
static void end_texts(struct answer *a)
{
	a->res.div.part[sizeof(a->res.div.part) - 1] = 0;
	a->res.div.text[sizeof(a->res.div.text) - 1] = 0;
	a->err.text[sizeof(a->err.text) - 1] = 0;
	a->missing[sizeof(a->missing) - 1] = 0;
}

/* Generated code is executed only by a process that has nothing to lose. What is known is in *a
 * then; if that process dies, CLI_USAGE or CLI_BAD_TRACE, which it or this one has told of. */
static int verify_apart(struct dj_trace *t, struct answer *a)
{
	int fd[2] = { -1, -1 }, ended;
	pid_t parent = getpid(), child;

	fflush(NULL);
	tell = isatty(STDERR_FILENO);
	child = emulate || pipe2(fd, O_CLOEXEC) ? -1 : fork();
	if (child < 0) {
		replay_translate(false);
		verify(t, a);
		return CLI_GOOD;
	}
	if (!child) {
		close(fd[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		replay_translate(cli_confine());
		verify(t, a);
		_exit(!transfer(fd[1], a, sizeof(*a), true));
	}
	close(fd[1]);
	bool good = transfer(fd[0], a, sizeof(*a), false);
	close(fd[0]);
	while (waitpid(child, &ended, 0) < 0 && errno == EINTR)
		;
	if (good) {
		end_texts(a);
		return CLI_GOOD;
	}
	if (WIFEXITED(ended) && WEXITSTATUS(ended) == CLI_BAD_TRACE)
		return CLI_BAD_TRACE; /* cli_catch_cut() */
	cli_warn("what replays the trace has died: %s",
		 WIFSIGNALED(ended) ? strsignal(WTERMSIG(ended)) : "it cannot answer");
	return CLI_USAGE;
}

int cmd_verify(int argc, char **argv)
{
	static const struct option options[] = { { "help", no_argument, NULL, 'h' },
						 { "emulate", no_argument, NULL, 'e' },
						 { 0 } };
	struct dj_trace *t;
	int c, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 'e') {
			emulate = true;
			continue;
		}
		if (c != 'h')
			return cli_bad_option("verify", argc, argv, c);
		puts("Usage: deja verify [--emulate] [FILE]\n"
		     "Replay everything in FILE and compare registers, flags and memory with what\n"
		     "the recorder found. Exit status: 0 if all match, 1 at the first divergence,\n"
		     "which is printed, and if there was nothing to compare, 2 if FILE is not a\n"
		     "good trace.\n"
		     "  --emulate  execute everything in the emulator, nothing in translated code");
		return cli_finish(CLI_GOOD);
	}
	t = cli_open_whole("verify", argc, argv, &status);
	if (!t)
		return status;
	struct answer a;
	status = verify_apart(t, &a);
	if (status) {
		dj_trace_close(t);
		return cli_finish(status);
	}
	if (a.missing[0]) { /* what is there turned out to be something else */
		cli_warn("%s", a.missing);
		status = CLI_BAD_TRACE;
	} else {
		status = a.ret ? cli_error(&a.err)
			       : print_result(dj_trace_path(t), &a.res, a.damaged);
	}
	dj_trace_close(t);
	return cli_finish(status);
}
