/*
 * --with WORDS: the name of an analysis, its operands and its own options, in one argument. Words
 * are parted by spaces; what stands in quotes is one word.
 */
#include "cli/cli.h"
#include "cli/with.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

void cli_own_options(const struct ana_analysis *a, struct option *out, int first)
{
	size_t n = 0, most = sizeof(a->options) / sizeof(a->options[0]);

	for (; n < most && a->options[n].name; n++)
		out[n] = (struct option){ a->options[n].name,
					  a->options[n].argument ? required_argument : no_argument,
					  NULL, first + (int)n };
	out[n] = (struct option){ 0 };
}

/* False if there are too many, or a quote is open. */
static bool split(struct cli_with *w)
{
	const int most = (int)(sizeof(w->word) / sizeof(w->word[0])) - 1;
	bool inside = false;
	char *to = w->text, quote = 0;

	for (const char *at = w->words; *at; at++) {
		bool opens = !quote && (*at == '\'' || *at == '"'), closes = quote && *at == quote;
		if (*at == ' ' && !quote) {
			if (inside)
				*to++ = 0;
			inside = false;
			continue;
		}
		if (!inside && w->n == most)
			return false;
		if (!inside)
			w->word[w->n++] = to;
		inside = true;
		if (opens || closes)
			quote = opens ? *at : 0;
		else
			*to++ = *at;
	}
	*to = 0;
	return !quote;
}

/* One that can be in another's pass, or NULL. */
static const struct ana_analysis *find(const struct cli_with *w)
{
	const struct ana_analysis *a = w->n ? ana_find(w->word[0]) : NULL;

	return a && !a->alone ? a : NULL;
}

static int take_option(struct cli_with *w, unsigned which)
{
	const struct ana_analysis *a = w->job.analysis;
	struct dj_error err = { 0 };

	if (a->options[which].is_to)
		return 1 +
		       cli_usage(a->name, "--%s is no option for --with", a->options[which].name);
	if (a->options[which].writes) {
		if (w->n_files == sizeof(w->files) / sizeof(w->files[0]))
			return 1 + cli_usage(a->name, "too many files to write");
		w->files[w->n_files++] = optarg;
	}
	if (!a->option(w->job.state, which, optarg, &err))
		return 0;
	return 1 + cli_usage(a->name, "%s", err.text);
}

int cli_with_read(struct cli_with *w, const struct ana_analysis *beside)
{
	struct option options[24];
	int c, status = 0;

	w->text = malloc(strlen(w->words) + 1);
	if (!w->text || !split(w))
		return 1 + cli_usage(beside->name, "--with cannot be read: %s", w->words);
	const struct ana_analysis *a = find(w);
	if (!a || beside->alone)
		return 1 + cli_usage(beside->name,
				     "--with takes a question that can be asked beside %s, not %s",
				     beside->name, w->n ? w->word[0] : "nothing");
	w->job.analysis = a;
	w->job.state = calloc(1, a->size);
	if (!w->job.state)
		return 1 + cli_usage(a->name, "out of memory");
	cli_own_options(a, options, 0x1000);
	optind = 0; /* getopt(3): begin anew */
	while (!status && (c = getopt_long(w->n, w->word, ":", options, NULL)) != -1) {
		if (c == '?' || c == ':')
			status = 1 + cli_usage(a->name, "--with takes its own options only: %s",
					       w->words);
		else
			status = take_option(w, (unsigned)c - 0x1000);
	}
	if (!status && w->n - optind != (int)a->operands)
		status = 1 + cli_usage(a->name, "--with has too %s words: %s",
				       w->n - optind < (int)a->operands ? "few" : "many", w->words);
	w->job.operands = w->word + optind;
	w->job.n_operands = a->operands;
	return status;
}

int cli_with_files(struct cli_with *w, struct dj_error *err)
{
	for (size_t i = 0; i < w->n_files; i++)
		if (ana_file_open(&w->job, w->files[i], err))
			return -1;
	return 0;
}

struct ana_job *cli_with_join(struct cli_with *w, struct ana_job *before,
			      const struct ana_job *command)
{
	struct ana_job *j = &w->job;

	j->t = command->t;
	j->from = command->from;
	j->to = command->to;
	j->has_from = command->has_from;
	j->has_to = command->has_to;
	j->threads = command->threads;
	j->progress = command->progress;
	j->interrupt = command->interrupt;
	j->functions = command->functions;
	j->translate = command->translate;
	j->out = (struct ana_out){ .f = command->out.f,
				   .json = command->out.json,
				   .width = command->out.width };
	j->with = before;
	return j;
}

void cli_with_free(struct cli_with *w)
{
	free(w->job.state);
	free(w->text);
}
