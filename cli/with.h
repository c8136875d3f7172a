/* --with: another analysis that is answered by the same pass as the command's (cmd-analysis.c). */
#ifndef DEJA_CLI_WITH_H
#define DEJA_CLI_WITH_H

#include "analyses/analysis.h"

struct option; /* getopt_long()'s */

struct cli_with {
	const char *words; /* as given */
	char *text, *word[64];
	int n;
	const char *files[8]; /* that are written to */
	size_t n_files;
	struct ana_job job;
};

/* The options that an analysis has of its own, numbered from `first` on, and a last one of zeros.
 */
void cli_own_options(const struct ana_analysis *a, struct option *out, int first);

/* Take w->words apart: `beside` is the command's own. 0, or an exit status + 1. */
int cli_with_read(struct cli_with *w, const struct ana_analysis *beside);
/* Open what it writes to. */
int cli_with_files(struct cli_with *w, struct dj_error *err);
/* Ask for the same as `command` does and make one pass with `before` and those before it. The
 * answer is its job. */
struct ana_job *cli_with_join(struct cli_with *w, struct ana_job *before,
			      const struct ana_job *command);
void cli_with_free(struct cli_with *w);

#endif
