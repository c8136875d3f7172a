/* The analyses there are, one row each, and what they share (analyses/analysis.h). */
#include "analyses/analysis.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off: a line for each */
#define ROWS(X)                                                                                    \
	X(accesses)                                                                                \
	X(calls)                                                                                   \
	X(coverage)                                                                                \
	X(count)                                                                                   \
	X(diff)                                                                                    \
	X(edges)                                                                                   \
	X(heap)                                                                                    \
	X(origin)                                                                                  \
	X(profile)                                                                                 \
	X(races)                                                                                   \
	X(rep)                                                                                     \
	X(stacks)
/* clang-format on */

#define X(name) extern const struct ana_analysis ana_##name;
ROWS(X)
#undef X

#define X(name) &ana_##name,
static const struct ana_analysis *const table[] = { ROWS(X) };
#undef X

const struct ana_analysis *ana_nth(size_t i)
{
	return i < sizeof(table) / sizeof(table[0]) ? table[i] : NULL;
}

const struct ana_analysis *ana_find(const char *name)
{
	for (size_t i = 0; ana_nth(i); i++)
		if (!strcmp(ana_nth(i)->name, name))
			return ana_nth(i);
	return NULL;
}

int ana_run(struct ana_job *job, struct dj_error *err)
{
	return job->analysis->run(job->state, job, err);
}

/* An answer begins, of several. */
static void begin_answer(struct ana_job *job)
{
	struct ana_out *out = &job->out;
	bool first = !job->with;

	job->was_told = true;
	if (first && !job->n_others)
		return;
	if (out->json)
		fprintf(out->f, "%s\"%s\":\n", first ? "{" : ",\n", job->analysis->name);
	else
		fprintf(out->f, "%sdeja %s:\n\n", first ? "" : "\n", job->analysis->name);
}

static int pass(struct ana_job *job, const struct replay_listener *const *listeners, size_t n,
		struct dj_error *err);

/* All of them in one pass, which the other makes. */
static int pass_with(struct ana_job *job, const struct replay_listener *const *listeners, size_t n,
		     struct dj_error *err)
{
	struct ana_job *with = job->with;

	with->others = listeners;
	with->n_others = n;
	with->in_order |= job->in_order;
	if (ana_run(with, err)) {
		job->again = with->again;
		return -1;
	}
	if (!with->was_told) { /* it found that it need not look */
		begin_answer(with);
		ana_out_end(&with->out);
		return pass(job, listeners, n, err);
	}
	ana_out_end(&with->out);
	job->passed = with->passed;
	job->cut = with->cut;
	return 0;
}

int ana_pass(struct ana_job *job, const struct replay_listener *const *listeners, size_t n,
	     struct dj_error *err)
{
	const struct replay_listener *all[ANA_TOGETHER];
	int res;

	if (job->was_told) /* another pass, of its own */
		return pass(job, listeners, n, err);
	if (n + job->n_others > ANA_TOGETHER)
		return dj_fail(err, 1, "too many analyses at once");
	memcpy(all, listeners, n * sizeof(*all));
	if (job->n_others)
		memcpy(all + n, job->others, job->n_others * sizeof(*all));
	res = (job->with ? pass_with : pass)(job, all, n + job->n_others, err);
	if (!res)
		begin_answer(job);
	return res;
}

static int went_astray(struct ana_job *job, struct dj_error *err)
{
	job->again = true;
	return dj_fail(err, 1, "translated code went astray");
}

static int pass(struct ana_job *job, const struct replay_listener *const *listeners, size_t n,
		struct dj_error *err)
{
	struct replay_pass pass = { .from = job->has_from && !job->all ? &job->from : NULL,
				    .to = job->has_to ? &job->to : NULL,
				    .threads = job->all ? NULL : job->threads,
				    .listeners = listeners,
				    .n = n,
				    .progress = job->progress,
				    .interrupt = job->interrupt,
				    .in_order = job->in_order,
				    .translate = job->translate };
	int res = replay_pass(job->t, &pass, &job->passed, err);
	char reached[64];

	if (job->passed.astray)
		return went_astray(job, err);
	if (res)
		return -1;
	if (job->passed.interrupted) {
		replay_pass_text(job->t, &job->passed.reached, reached, sizeof(reached));
		job->cut = true;
		dj_fail(err, ANA_INTERRUPTED, "interrupted: this is what was found up to %s%s",
			reached,
			dj_trace_threads(job->t) > 1 ? ", and of some threads beyond" : "");
		return 0;
	}
	if (!job->passed.div.found)
		return 0;
	job->cut = true;
	dj_fail(err, 2, "the history is told up to where the replay diverges: %s",
		job->passed.div.text);
	return 0;
}

static void *nothing(void *ctx, struct replay_run *run)
{
	(void)ctx;
	(void)run;
	return NULL;
}

/* Of all threads and from the beginning, whatever was asked for. */
static int pass_all(int (*make)(struct ana_job *, const struct replay_listener *const *, size_t,
				struct dj_error *),
		    struct ana_job *job, const struct replay_listener *const *listeners, size_t n,
		    struct dj_error *err)
{
	job->all = true;
	int res = make(job, listeners, n, err);
	job->all = false;
	return res;
}

int ana_pass_history(struct ana_job *job, const struct replay_listener *const *listeners, size_t n,
		     struct dj_error *err)
{
	const struct replay_listener none = { .begin = nothing, .translated = true };
	const struct replay_listener *no_more[] = { &none };

	if ((!job->has_from && !job->threads) || job->was_told || (!job->with && !job->n_others))
		return pass_all(ana_pass, job, listeners, n, err);
	/* the others are to be told of no more than was asked for */
	if (pass_all(pass, job, listeners, n, err))
		return -1;
	const bool cut = job->cut;
	int res = ana_pass(job, no_more, 1, err);
	job->cut |= cut;
	return res;
}

int ana_pass_whole(struct ana_job *job, struct dj_trace *t, struct replay_pass *pass,
		   struct dj_error *err)
{
	struct replay_passed passed;

	pass->progress = job->progress;
	pass->interrupt = job->interrupt;
	pass->translate = job->translate;
	if (replay_pass(t, pass, &passed, err))
		return -1;
	if (passed.astray)
		return went_astray(job, err);
	return passed.interrupted ? dj_fail(err, ANA_INTERRUPTED, "interrupted") : 0;
}

int ana_file_open(struct ana_job *job, const char *name, struct dj_error *err)
{
	size_t i = 0, n = sizeof(job->files) / sizeof(job->files[0]);

	while (i < n && job->files[i].name && strcmp(job->files[i].name, name) != 0)
		i++;
	if (i == n)
		return dj_fail(err, 1, "too many files to write");
	if (job->files[i].f)
		return 0;
	/* what it contains is lost only when there is an answer */
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		return dj_fail_errno(err, 1, "cannot write %s", name);
	job->files[i] = (struct ana_file){ name, f };
	return 0;
}

FILE *ana_create(struct ana_job *job, const char *name, struct dj_error *err)
{
	struct stat st;

	if (ana_file_open(job, name, err))
		return NULL;
	for (struct ana_file *file = job->files;; file++)
		if (file->f && !strcmp(file->name, name)) {
			FILE *f = file->f;
			file->f = NULL;
			if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) ||
			    !ftruncate(fileno(f), 0))
				return f;
			dj_fail_errno(err, 1, "cannot write %s", name);
			fclose(f);
			return NULL;
		}
}

static bool parse(const char *text, const char *end, uint64_t *value)
{
	char *stop;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &stop, 0);
	return !errno && stop == end;
}

int ana_number(const char *option, const char *text, uint64_t least, uint64_t *value,
	       struct dj_error *err)
{
	if (parse(text, text + strlen(text), value) && *value >= least)
		return 0;
	return dj_fail(err, 1, "--%s takes a number of at least %" PRIu64 ", not %s", option, least,
		       text);
}

/* ---- ranges of code ---- */

static int add(struct ana_ranges *ranges, const struct ana_range *range)
{
	if (ranges->n == ranges->cap) {
		size_t cap = ranges->cap ? ranges->cap * 2 : 16;
		struct ana_range *grown = realloc(ranges->r, cap * sizeof(*grown));
		if (!grown)
			return -1;
		ranges->r = grown;
		ranges->cap = cap;
	}
	ranges->r[ranges->n++] = *range;
	return 0;
}

struct adding {
	struct ana_ranges *ranges;
	uint64_t offset;
	bool one; /* the instruction there, not all of the function */
	bool beyond, failed;
};

static void add_function(void *ctx, const struct ana_function *fn)
{
	struct adding *a = ctx;
	struct ana_range range = { .code = fn->code, .size = a->one ? 0 : fn->size };

	if (a->one && a->offset >= fn->size) {
		a->beyond = true;
		return;
	}
	range.code.offset += a->offset;
	a->failed |= add(a->ranges, &range) != 0;
}

/* A module by its path, or by the name at its end. */
static int add_module(struct ana_job *job, struct ana_ranges *ranges, const char *name, size_t len,
		      const char *offset)
{
	int found = 0;
	uint64_t at = 0;

	if (offset && !parse(offset, offset + strlen(offset), &at))
		return 0;
	for (size_t i = 0; i < dj_trace_modules(job->t); i++) {
		const char *path = dj_trace_module(job->t, i)->path, *base = ana_base(path);
		if ((strlen(path) != len || strncmp(path, name, len) != 0) &&
		    (strlen(base) != len || strncmp(base, name, len) != 0))
			continue;
		struct ana_range range = { .code = { .module = (int32_t)i, .offset = at },
					   .size = offset ? 0 : UINT64_MAX };
		if (add(ranges, &range))
			return -1;
		found++;
	}
	return found;
}

int ana_ranges_add(struct ana_job *job, struct ana_ranges *ranges, const char *word,
		   struct dj_error *err)
{
	const char *plus = strrchr(word, '+');
	struct ana_range range = { .absolute = true, .code = { .module = -1 } };
	struct adding a = { .ranges = ranges };
	uint64_t end;

	const char *dash = strchr(word, '-');
	if (parse(word, word + strlen(word), &range.code.offset) ||
	    (dash && parse(word, dash, &range.code.offset) &&
	     parse(dash + 1, word + strlen(word), &end) && end > range.code.offset &&
	     (range.size = end - range.code.offset)))
		return add(ranges, &range) ? dj_fail(err, 1, "out of memory") : 0;
	if (ana_functions_named(job->functions, word, add_function, &a))
		return a.failed ? dj_fail(err, 1, "out of memory") : 0;
	if (plus && parse(plus + 1, word + strlen(word), &a.offset)) {
		char *name = strndup(word, (size_t)(plus - word));
		a.one = true;
		size_t n = name ? ana_functions_named(job->functions, name, add_function, &a) : 0;
		free(name);
		if (n && a.beyond)
			return dj_fail(err, 1, "%s is beyond the function's end", word);
		if (n)
			return a.failed ? dj_fail(err, 1, "out of memory") : 0;
	}
	const char *end_of = plus ? plus : word + strlen(word);
	int n = add_module(job, ranges, word, (size_t)(end_of - word), plus ? plus + 1 : NULL);
	if (n > 0)
		return 0;
	return dj_fail(err, 1,
		       n < 0 ? "out of memory"
			     : "the modules in the recording have no function '%s' (a stripped "
			       "module's code is named by MODULE+OFFSET or by addresses)",
		       word);
}

bool ana_ranges_have(const struct ana_ranges *ranges, const struct replay_code *code, uint64_t addr)
{
	for (size_t i = 0; i < ranges->n; i++) {
		const struct ana_range *r = &ranges->r[i];
		uint64_t at = r->absolute ? addr : code->offset;
		if (!r->absolute && (r->code.module != code->module ||
				     (code->module < 0 && r->code.process != code->process)))
			continue;
		if (at - r->code.offset < (r->size ? r->size : 1))
			return true;
	}
	return false;
}

void ana_ranges_free(struct ana_ranges *ranges)
{
	free(ranges->r);
	*ranges = (struct ana_ranges){ 0 };
}
