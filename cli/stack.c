/* Call stacks as the commands show them (cli/stack.h). */
#include "cli/stack.h"
#include "analyses/places.h"
#include "analyses/unwind.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORTED 30 /* frames in a report */

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
static void print_frame(struct stack_output *o, size_t *number, const struct ana_frame *f)
{
	struct ana_place places[ANA_PLACES];
	/* a return address may be that of the next function: the call is what counts */
	size_t n = ana_symbols_at(o->symbols, f->exact ? f->pc : f->pc - 1, places);

	for (size_t i = 0; i < n; i++) {
		struct ana_place *p = &places[i];
		if (p->module && !f->exact)
			p->offset++;
		if (o->json) {
			json_place(o->json, f, p);
			continue;
		}
		printf("%s#%-3zu ", o->indent, (*number)++);
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

bool stack_frames(struct stack_output *o, const char **why)
{
	struct ana_frame *frames = calloc(o->limit, sizeof(*frames));
	size_t number = 0;

	*why = "out of memory";
	int n = frames ? ana_unwind(o->r, frames, o->limit, why) : -1;
	for (int i = 0; i < n; i++)
		print_frame(o, &number, &frames[i]);
	free(frames);
	return n >= 0;
}

int stack_apart(int (*run)(void *ctx), void *ctx)
{
	int status;

	fflush(NULL);
	pid_t child = fork();
	if (child < 0) {
		cli_warn("cannot make a process");
		return CLI_USAGE;
	}
	if (child == 0)
		_exit(cli_finish(run(ctx)));
	void (*before)(int) = signal(SIGINT, SIG_IGN); /* the child's answer to it counts */
	pid_t done = waitpid(child, &status, 0);
	signal(SIGINT, before);
	if (done != child)
		return CLI_USAGE;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (WTERMSIG(status) != SIGINT)
		cli_warn("the unwind or debug information in the trace cannot be read: %s",
			 strsignal(WTERMSIG(status)));
	return CLI_BAD_TRACE;
}

/* ---- reports -----------------------------------------------------------------------------------
 */

struct report {
	const char *path, *title;
	uint32_t thread;
	uint64_t steps;
	struct json *json;
};

/* There, or where the thread's replay diverges before. */
static bool go_there(struct replay *r, const struct report *p)
{
	struct replay_pos to = { .thread = p->thread, .steps = p->steps };
	struct dj_error err = { 0 };

	if (!replay_seek(r, &to, &err))
		return true;
	if (!to.steps)
		return false;
	to.steps--;
	return !replay_seek(r, &to, &err);
}

static int report(void *ctx)
{
	const struct report *p = ctx;
	struct dj_error err = { 0 };
	struct replay *r = replay_open(p->path, &err);
	struct stack_output o = { .r = r, .limit = REPORTED, .indent = "  ", .json = p->json };
	char position[ANA_POS_TEXT];
	const char *why = NULL;

	if (!r || !go_there(r, p) || !(o.symbols = ana_symbols_new(r)))
		return 1;
	replay_pos_text(r, position, sizeof(position));
	if (p->json) {
		json_string(p->json, "position", position);
		json_open(p->json, "frames", '[');
	} else {
		printf("%-14s%s\n", p->title, position);
	}
	stack_frames(&o, &why);
	if (p->json)
		json_close(p->json, ']');
	else if (why)
		printf("  (%s)\n", why);
	return 0;
}

void stack_report(const char *path, uint32_t thread, uint64_t steps, const char *title,
		  struct json *json)
{
	struct report p = { path, title, thread, steps, json };

	stack_apart(report, &p);
	if (json)
		json->more = true; /* which the child has printed */
}
