/*
 * deja accesses: every read, write and execution of a place, with position, value and code; and
 * every system call that wrote there.
 */
#include "analyses/call-writes.h"
#include "analyses/log.h"
#include "analyses/syscall.h"
#include "analyses/variable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 100000 /* unless --limit or --all says something else */
#define SHOWN 16     /* bytes of a value */

enum kind { READ = 1, WRITE = 2, EXECUTION = 4, CALL = 8 };

struct touch {
	struct replay_pos pos;
	struct replay_code code;
	uint64_t addr, length;
	uint8_t bytes[SHOWN];
	uint8_t kind;
	bool unknown; /* what was written */
	uint16_t nr;  /* CALL: which */
};

struct accesses {
	uint64_t limit;
	unsigned kinds;
	struct ana_place_ranges places;
	struct ana_ranges code;
	struct ana_log log;
};

struct thread {
	const struct accesses *all;
	struct replay_run *run;
	struct ana_log log;
	uint32_t process;
	uint16_t nr; /* of the call that is being looked at */
};

static void *begin(void *ctx, struct replay_run *run)
{
	struct accesses *a = ctx;
	struct thread *th = calloc(1, sizeof(*th));

	if (!th) {
		replay_run_fail(run, "out of memory");
		return NULL;
	}
	th->all = a;
	th->run = run;
	th->process = replay_run_info(run)->process;
	th->log = (struct ana_log){ .size = sizeof(struct touch), .limit = a->limit };
	return th;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct accesses *a = ctx;
	struct thread *th = data;

	(void)run;
	ana_log_join(&a->log, &th->log);
	free(th);
}

static struct touch *note(struct thread *th, enum kind kind, uint64_t addr, uint64_t length)
{
	struct touch *t = ana_log_add(&th->log);

	if (!t) {
		if (th->log.failed)
			replay_run_fail(th->run, "there is no room to note what is found");
		else
			replay_run_stop(th->run); /* others have no more than this that count */
		return NULL;
	}
	replay_run_pos(th->run, &t->pos);
	replay_run_code(th->run, replay_run_rip(th->run), &t->code);
	t->kind = kind;
	t->addr = addr;
	t->length = length;
	return t;
}

static void access(void *data, struct replay_run *run, const struct replay_access *a)
{
	struct thread *th = data;
	enum kind kind = a->write ? WRITE : READ;
	uint64_t first, length;

	(void)run;
	if (!(th->all->kinds & kind) || !ana_place_ranges_have(&th->all->places, th->process,
							       a->addr, a->size, &first, &length))
		return;
	struct touch *t = note(th, kind, first, length);
	if (t && a->bytes)
		memcpy(t->bytes, a->bytes + (first - a->addr), length < SHOWN ? length : SHOWN);
	else if (t)
		t->unknown = true;
}

static bool within(void *data, struct replay_run *run, uint64_t *first, uint64_t *last)
{
	const struct thread *th = data;

	(void)run;
	return ana_place_ranges_all(&th->all->places, th->process, first, last);
}

/* ---- executions -------------------------------------------------------------------------------
 */

static bool executes(const struct thread *th, const struct replay_code *code, const struct insn *in)
{
	uint64_t first, length;

	return ana_ranges_have(&th->all->code, code, in->addr) ||
	       ana_place_ranges_have(&th->all->places, th->process, in->addr, in->len, &first,
				     &length);
}

static unsigned wants(void *data, struct replay_run *run, const struct insn *in)
{
	const struct thread *th = data;
	struct replay_code code;

	replay_run_code(run, in->addr, &code);
	return executes(th, &code, in) ? REPLAY_WANT_POINT : 0;
}

static void point(void *data, struct replay_run *run, const struct insn *in)
{
	struct thread *th = data;
	struct replay_code code;

	replay_run_code(run, in->addr, &code);
	if (!executes(th, &code, in))
		return;
	struct touch *t = note(th, EXECUTION, in->addr, in->len);
	if (t)
		memcpy(t->bytes, in->bytes, in->len < SHOWN ? in->len : SHOWN);
}

/* ---- system calls ---- */

static void wrote(void *ctx, uint64_t addr, uint64_t length)
{
	struct thread *th = ctx;
	uint64_t first, part;

	if (!length ||
	    !ana_place_ranges_have(&th->all->places, th->process, addr, length, &first, &part))
		return;
	struct touch *t = note(th, CALL, first, part);
	if (t) {
		t->nr = th->nr;
		t->unknown = true;
	}
}

static void event(void *data, struct replay_run *run, const struct replay_event *e)
{
	((struct thread *)data)->nr = (uint16_t)e->number;
	ana_call_wrote(run, e, wrote, data);
}

/* ---- the answer ---- */

static void value_text(const struct touch *t, char *buf, size_t size)
{
	uint64_t v = 0;
	size_t n = 0;

	*buf = 0;
	if (t->unknown)
		return;
	if (t->length <= 8 && t->kind != EXECUTION) {
		for (unsigned i = (unsigned)t->length; i-- > 0;)
			v = v << 8 | t->bytes[i];
		snprintf(buf, size, "%#" PRIx64, v);
		return;
	}
	for (unsigned i = 0; i < t->length && i < SHOWN; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%02x", i ? " " : "", t->bytes[i]);
	if (t->length > SHOWN)
		snprintf(buf + n, size - n, "...");
}

static const char *kind_name(const struct touch *t, char *buf, size_t size)
{
	char name[40];

	switch (t->kind) {
	case READ:
		return "read";
	case WRITE:
		return "write";
	case EXECUTION:
		return "execution";
	default:
		snprintf(buf, size, "call %s", ana_syscall_name(t->nr, name, sizeof(name)));
		return buf;
	}
}

static void print(const struct accesses *a, struct ana_job *job)
{
	struct ana_table *t =
		ana_table_new("accesses", (struct ana_column[]){ { "position", ANA_TEXT },
								 { "kind", ANA_TEXT },
								 { "address", ANA_HEX },
								 { "size", ANA_NUMBER },
								 { "value", ANA_TEXT },
								 { "code", ANA_TEXT },
								 { 0 } });

	ana_table_stream(t, &job->out);
	for (size_t i = 0; i < a->log.n && !ferror(job->out.f); i++) {
		const struct touch *touch = ana_log_at(&a->log, i);
		char position[64], value[3 * SHOWN + 4], code[300], kind[60];

		replay_pass_text(job->t, &touch->pos, position, sizeof(position));
		value_text(touch, value, sizeof(value));
		ana_code_text(job->functions, &touch->code, code, sizeof(code));
		ana_table_row(t,
			      (struct ana_cell[]){ { .text = position },
						   { .text = kind_name(touch, kind, sizeof(kind)) },
						   { .number = touch->addr },
						   { .number = touch->length },
						   { .text = value, .none = touch->unknown },
						   { .text = code } });
	}
	ana_table_end(&job->out, t);
	if (a->log.more)
		ana_out_lack(&job->out,
			     "These are the first %" PRIu64
			     " accesses; --limit says how many are wanted.",
			     a->limit);
}

/* What the word names: data, or code. */
static int find_place(struct accesses *a, struct ana_job *job, struct dj_error *err)
{
	const char *word = job->operands[0];
	int n = ana_place_ranges_add(job, &a->places, word, err);

	if (n)
		return n < 0 ? -1 : 0;
	if (ana_ranges_add(job, &a->code, word, err))
		return dj_fail(err, 1,
			       "the modules in the recording have no variable or function '%s'",
			       word);
	for (size_t i = 0; i < a->code.n; i++)
		a->code.r[i].size = 0; /* entered, that is */
	return 0;
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct accesses *a = state;

	if (!a->limit)
		a->limit = LIMIT;
	if (!a->kinds)
		a->kinds = READ | WRITE | EXECUTION | CALL;
	a->log = (struct ana_log){ .size = sizeof(struct touch), .limit = a->limit };
	if (find_place(a, job, err))
		return -1;
	bool data = a->places.n != 0;
	const struct replay_listener listener = {
		.ctx = a,
		.begin = begin,
		.end = end,
		.access = data && a->kinds & (READ | WRITE) ? access : NULL,
		.wants = wants,
		.point = a->kinds & EXECUTION ? point : NULL,
		.event = data && a->kinds & CALL ? event : NULL,
		.translated = true,
		.within = within,
	};
	const struct replay_listener *listeners[] = { &listener };
	if (ana_pass(job, listeners, 1, err))
		return -1;
	if (a->log.failed)
		return dj_fail(err, 1, "out of memory");
	ana_log_sort(&a->log);
	print(a, job);
	ana_log_free(&a->log);
	ana_place_ranges_free(&a->places);
	ana_ranges_free(&a->code);
	return 0;
}

static int option(void *state, unsigned option, const char *arg, struct dj_error *err)
{
	static const unsigned kinds[] = { READ, WRITE | CALL, EXECUTION };
	struct accesses *a = state;

	if (option == 3)
		return ana_number("limit", arg, 1, &a->limit, err);
	if (option == 4) {
		a->limit = UINT64_MAX;
		return 0;
	}
	a->kinds |= kinds[option];
	return 0;
}

const struct ana_analysis ana_accesses = {
	.name = "accesses",
	.args = "[OPTIONS] PLACE [FILE]",
	.help = "every read, write and execution of a place",
	.usage =
		"Usage: deja accesses [OPTIONS] PLACE [FILE]\n"
		"Every read, write and execution of PLACE, with position, value and code, and "
		"every\n"
		"system call that wrote there. PLACE is ADDRESS or VARIABLE[+OFFSET], either with\n"
		":LENGTH behind it, ADDRESS-ADDRESS, or a FUNCTION, for its first instruction.\n"
		"\n"
		"      --reads         these only (and those of the other options)\n"
		"      --writes\n"
		"      --executions\n"
		"      --limit N       at most the first N accesses (100000)\n"
		"      --all           as many as there are\n",
	.operands = 1,
	.options = { { "reads", false },
		     { "writes", false },
		     { "executions", false },
		     { "limit", true },
		     { "all", false } },
	.translated = true,
	.size = sizeof(struct accesses),
	.option = option,
	.run = run,
};
