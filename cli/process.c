/* Which of the recorded processes somebody means (cli/process.h). */
#include "cli/process.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Whether it executed a program of that name. */
static bool executed(struct dj_trace *t, size_t process, const char *name)
{
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new_facts(t, process, &err);
	const struct dj_record *rec;
	bool found = false;

	while (c && !found && (rec = dj_cursor_next(c, &err)))
		found = rec->kind == DJ_REC_EXEC && rec->name &&
			!strcmp(last_part(rec->name), name);
	dj_cursor_free(c);
	return found;
}

int cli_find_process(struct dj_trace *t, const char *word, uint32_t *process, uint32_t *thread,
		     struct dj_error *err)
{
	size_t n = dj_trace_processes(t), nthreads = dj_trace_threads(t), found = 0;
	bool *named = calloc(n + 1, sizeof(*named));
	uint64_t pid;
	bool number = cli_number(word, &pid);

	if (!named)
		return dj_fail(err, CLI_USAGE, "out of memory");
	for (size_t i = 0; i < nthreads && !number; i++) {
		const struct dj_thread_info *info = dj_trace_thread(t, i);
		named[info->process] |= info->name && !strcmp(info->name, word);
	}
	for (size_t i = 0; i < n; i++) {
		if (number ? (uint64_t)dj_trace_process(t, i)->pid != pid
			   : !named[i] && !executed(t, i, word))
			continue;
		if (found++ == 0)
			*process = (uint32_t)i;
	}
	free(named);
	if (!found)
		return dj_fail(err, CLI_USAGE, "there is no process %s in %s; deja ps lists them",
			       word, dj_trace_path(t));
	if (found > 1)
		cli_warn("%zu processes are called %s; the first of them, %d, is taken", found,
			 word, (int)dj_trace_process(t, *process)->pid);
	for (*thread = 0; *thread < nthreads; ++*thread)
		if (dj_trace_thread(t, *thread)->process == *process)
			return 0;
	return dj_fail(err, CLI_BAD_TRACE, "nothing of process %s was recorded", word);
}
