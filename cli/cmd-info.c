/* deja info: what a recording contains, for people or (--json) for programs. */
#include "analyses/symbols.h"
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/json.h"
#include "cli/stack.h"
#include "cli/summary.h"

#include <getopt.h>
#include <stdlib.h>
#include <time.h>

static const char *const predict_names[] = { "shadow", "last", "none" };

static const char *memory_model_name(uint32_t model)
{
	static const char *const names[] = { "unknown", "kernel", "fence", "acqrel", "load" };

	return names[model < 5 ? model : 0];
}

/* 1234567 as 1,234,567; in one of a few static buffers, enough for one printf. */
static const char *grouped(uint64_t n)
{
	static char bufs[8][32];
	static unsigned turn;
	char *buf = bufs[turn++ % 8], *p = buf + sizeof(bufs[0]) - 1;

	*p = 0;
	for (int digits = 0; n || !digits; n /= 10, digits++) {
		if (digits && digits % 3 == 0)
			*--p = ',';
		*--p = (char)('0' + n % 10);
	}
	return p;
}

static double per_instruction(uint64_t bytes, uint64_t steps)
{
	return steps ? 8.0 * (double)bytes / (double)steps : 0;
}

static double share(const struct summary *s)
{
	return s->steps ? (double)s->by_kind[DJ_REC_EFFECTS] / (double)s->steps : 0;
}

static double duration(const struct dj_trace *t)
{
	return (double)(dj_trace_end(t)->end_time_ns - dj_trace_meta(t)->start_time_ns) * 1e-9;
}

static void time_text(int64_t ns, const char *format, bool utc, char *buf, size_t size)
{
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;

	if (!(utc ? gmtime_r(&seconds, &tm) : localtime_r(&seconds, &tm)) ||
	    !strftime(buf, size, format, &tm))
		snprintf(buf, size, "unknown");
}

/* ---- for people ------------------------------------------------------------------- */

#define LABEL "%-14s"

static void print_line(const char *label, const char *text)
{
	printf(LABEL, label);
	cli_put(text);
	putchar('\n');
}

static void print_recording(const struct dj_trace *t, const struct summary *s)
{
	const struct dj_trace_meta *m = dj_trace_meta(t);
	char when[64], end[700], *command = s->nprocesses ? summary_command(s, t, 0) : NULL;

	time_text(m->start_time_ns, "%Y-%m-%d %H:%M:%S %z", false, when, sizeof(when));
	summary_end_text(s, t, 0, end, sizeof(end));
	print_line("command", command ? command : "");
	free(command);
	print_line("program", m->exe);
	print_line("directory", m->cwd);
	printf(LABEL "%d, ", "process", m->pid);
	cli_put(end);
	printf("\n" LABEL "%s", "recorded", when);
	if (dj_trace_end(t)->present)
		printf(", for %.3f s", duration(t));
	printf(", by deja ");
	cli_put(m->deja_version);
	putchar('\n');
	print_line("machine", m->machine);
	print_line("processor", m->cpu);
	printf(LABEL "%s, shadow of 2^%u bytes; %s memory model; ", "prediction",
	       predict_names[m->predict], m->shadow_bits, memory_model_name(m->memory_model));
	if (m->digest_interval)
		printf("a digest every %s instructions\n", grouped(m->digest_interval));
	else
		printf("no digests\n");
}

static void print_processes(const struct dj_trace *t, const struct summary *s)
{
	if (s->nprocesses < 2) /* the line `process` says it all */
		return;
	printf(LABEL "%zu\n", "processes", s->nprocesses);
	for (size_t i = 0; i < s->nprocesses; i++) {
		char end[700], *command = summary_command(s, t, i);

		summary_end_text(s, t, i, end, sizeof(end));
		printf("  %-12d", s->processes[i].info->pid);
		cli_put(command ? command : "");
		printf(": %zu threads, %s facts; ", s->processes[i].threads,
		       grouped(s->processes[i].info->facts));
		cli_put(end);
		putchar('\n');
		free(command);
	}
}

static void print_threads(const struct summary *s)
{
	printf(LABEL "%zu\n", "threads", s->nthreads);
	for (size_t i = 0; i < s->nthreads; i++) {
		const struct summary_thread *th = &s->threads[i];

		printf("  %-12d", th->info->tid);
		cli_put(th->info->name);
		if (s->nprocesses > 1)
			printf(" of %d", s->processes[th->info->process].info->pid);
		printf(": %s instructions, %s records\n", grouped(th->steps),
		       grouped(th->info->records));
	}
}

/* Which modules are not in the file. */
static void print_store(const struct dj_trace *t)
{
	size_t files;
	uint64_t bytes;
	const char *store = dj_trace_store(t, &files, &bytes);

	if (!store)
		return;
	printf(LABEL, "shared");
	cli_put(store);
	printf(": %zu modules, %s bytes\n", files, grouped(bytes));
}

static void print_sizes(const struct dj_trace *t, const struct summary *s)
{
	const struct dj_trace_usage *u = dj_trace_usage(t);

	printf(LABEL "%s\n", "instructions", grouped(s->steps));
	printf(LABEL "%s bytes: records %s, %zu modules %s, start memory %s, description %s\n",
	       "file", grouped(dj_trace_file_size(t)), grouped(u->streams), dj_trace_modules(t),
	       grouped(u->modules), grouped(u->snapshots), grouped(u->meta));
	print_store(t);
	printf(LABEL "%.3f for the records, %.3f for the whole file\n", "bits per insn",
	       per_instruction(u->streams, s->steps),
	       per_instruction(dj_trace_file_size(t), s->steps));
	printf(LABEL "%s\n", "records", grouped(s->records));
	for (int k = 1; k < DJ_REC_KINDS; k++)
		if (s->by_kind[k])
			printf("  %-12s%s\n", dj_record_kind_name(k), grouped(s->by_kind[k]));
}

static void print_effects(const struct summary *s)
{
	printf(LABEL "%s instructions, %.4f%% of all\n", "side effects",
	       grouped(s->by_kind[DJ_REC_EFFECTS]), 100 * share(s));
	for (size_t i = 0; i < s->neffects; i++)
		printf("  %-12s%s (%s)\n", s->effects[i].mnemonic, grouped(s->effects[i].count),
		       dj_why_name(s->effects[i].why));
}

#define PLACES 12 /* of those that there are */

static void print_place(struct ana_symbols *names, const struct summary_place *p)
{
	struct ana_place at = { .offset = p->at };

	if (p->module >= 0 && names)
		ana_symbols_in(names, (size_t)p->module, p->at, &at);
	printf("  %-12s", grouped(p->count));
	if (at.function)
		cli_put(at.function);
	if (at.function && at.module)
		printf("+%#llx in ", (unsigned long long)at.offset);
	if (at.module)
		cli_put(at.module);
	if (!at.function)
		printf("%s%#llx", at.module ? "+" : "", (unsigned long long)p->at);
	putchar('\n');
}

static void print_places(struct dj_trace *t, const struct summary *s)
{
	struct ana_symbols *names = ana_symbols_of(t);

	if (s->nplaces)
		printf(LABEL "%s%s\n", "at", grouped(s->nplaces), " places; most often");
	for (size_t i = 0; i < s->nplaces && i < PLACES; i++)
		print_place(names, &s->places[i]);
	ana_symbols_free(names);
}

static void print_counts(const struct dj_trace *t)
{
	size_t n;
	const struct dj_trace_count *c = dj_trace_counts(t, &n);

	if (n)
		printf(LABEL "%s\n", "recorder", "what it did:");
	for (size_t i = 0; i < n; i++) {
		if (!c[i].value)
			continue;
		printf("  %-12s", grouped(c[i].value));
		cli_put(c[i].name);
		putchar('\n');
	}
}

/* ---- crashes ----------------------------------------------------------------------- */

/* A stack at the end is found by replaying all that comes before, which is done for this many
 * instructions: a few seconds. */
#define REPLAYED 300000000u
#define CRASHES	 3 /* whose stacks are shown */

/* The thread that took process `process` with it: of those that died by a signal the one that came
 * last to an ordered event, as the signal was one. -1: it did not end so, or nobody knows. */
static int32_t crashed(const struct summary *s, size_t process)
{
	int32_t last = -1;

	for (size_t i = 0; i < s->nthreads; i++) {
		const struct summary_thread *th = &s->threads[i];

		if (th->info->process == process && th->exited && (th->status & 0x7f) &&
		    (last < 0 || (th->info->last_seq != DJ_SEQ_UNKNOWN &&
				  th->info->last_seq > s->threads[last].info->last_seq)))
			last = (int32_t)i;
	}
	return last;
}

static void print_crashes(const struct dj_trace *t, const struct summary *s, struct json *j)
{
	unsigned shown = 0;

	if (j)
		json_open(j, "crashes", '[');
	for (size_t i = 0; i < s->nprocesses; i++) {
		int32_t thread = crashed(s, i);
		char title[40];

		if (thread < 0)
			continue;
		const struct dj_thread_info *info = s->threads[thread].info;
		snprintf(title, sizeof(title), "%d died at", s->processes[i].info->pid);
		if (j) {
			json_open(j, NULL, '{');
			json_i64(j, "pid", s->processes[i].info->pid);
			json_i64(j, "tid", info->tid);
		}
		if (s->steps <= REPLAYED && shown++ < CRASHES && !dj_trace_missing(t))
			stack_report(dj_trace_path(t), (uint32_t)thread, info->last_steps, title,
				     j);
		else if (!j)
			printf(LABEL "deja backtrace shows its stack\n", title);
		if (j)
			json_close(j, '}');
	}
	if (j)
		json_close(j, ']');
}

static void print_text(struct dj_trace *t, const struct summary *s)
{
	print_line("trace", dj_trace_path(t));
	if (dj_trace_damage(t))
		print_line("damage", dj_trace_damage(t));
	print_recording(t, s);
	print_processes(t, s);
	print_threads(s);
	print_sizes(t, s);
	print_effects(s);
	print_places(t, s);
	print_counts(t);
	print_crashes(t, s, NULL);
}

/* ---- for programs ------------------------------------------------------------------ */

static void json_strings(struct json *j, const char *key, const char *const *strings)
{
	json_open(j, key, '[');
	for (; *strings; strings++)
		json_string(j, NULL, *strings);
	json_close(j, ']');
}

static void json_recording(struct json *j, const struct dj_trace *t, const struct summary *s)
{
	const struct dj_trace_meta *m = dj_trace_meta(t);
	const struct dj_trace_end *end = dj_trace_end(t);
	char text[700];

	json_strings(j, "argv", m->argv);
	json_strings(j, "environment", m->envp);
	json_string(j, "program", m->exe);
	json_string(j, "directory", m->cwd);
	json_i64(j, "pid", m->pid);
	json_string(j, "deja_version", m->deja_version);
	json_string(j, "machine", m->machine);
	json_string(j, "processor", m->cpu);
	json_string(j, "prediction", predict_names[m->predict]);
	json_u64(j, "shadow_bits", m->shadow_bits);
	json_string(j, "memory_model", memory_model_name(m->memory_model));
	json_u64(j, "digest_interval", m->digest_interval);
	time_text(m->start_time_ns, "%Y-%m-%dT%H:%M:%SZ", true, text, sizeof(text));
	json_string(j, "started", text);
	json_i64(j, "start_time_ns", m->start_time_ns);
	json_bool(j, "complete", end->present);
	summary_end_text(s, t, 0, text, sizeof(text));
	json_string(j, "end", text);
	if (end->present) {
		json_i64(j, "end_time_ns", end->end_time_ns);
		json_double(j, "seconds", duration(t));
		json_i64(j, "wait_status", end->status);
	}
}

static void json_processes(struct json *j, const struct dj_trace *t, const struct summary *s)
{
	json_open(j, "processes", '[');
	for (size_t i = 0; i < s->nprocesses; i++) {
		const struct summary_process *p = &s->processes[i];
		char end[700], *command = summary_command(s, t, i);

		summary_end_text(s, t, i, end, sizeof(end));
		json_open(j, NULL, '{');
		json_i64(j, "pid", p->info->pid);
		if (p->info->parent >= 0)
			json_i64(j, "parent", p->info->parent);
		json_string(j, "command", command);
		json_u64(j, "threads", p->threads);
		json_u64(j, "facts", p->info->facts);
		json_string(j, "end", end);
		json_close(j, '}');
		free(command);
	}
	json_close(j, ']');
}

static void json_threads(struct json *j, const struct summary *s)
{
	json_open(j, "threads", '[');
	for (size_t i = 0; i < s->nthreads; i++) {
		const struct summary_thread *th = &s->threads[i];

		json_open(j, NULL, '{');
		json_i64(j, "tid", th->info->tid);
		json_u64(j, "process", th->info->process);
		json_string(j, "name", th->info->name);
		json_u64(j, "first", th->info->first_steps);
		json_u64(j, "last", th->info->last_steps);
		json_u64(j, "records", th->info->records);
		if (th->exited)
			json_i64(j, "wait_status", th->status);
		if (th->stopped)
			json_string(j, "stopped", th->stopped);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void json_modules(struct json *j, const struct dj_trace *t)
{
	json_open(j, "modules", '[');
	for (size_t i = 0; i < dj_trace_modules(t); i++) {
		const struct dj_module_info *m = dj_trace_module(t, i);
		char id[2 * sizeof(m->build_id) + 1] = "";

		for (unsigned k = 0; k < m->build_id_len; k++)
			snprintf(id + 2 * k, 3, "%02x", m->build_id[k]);
		json_open(j, NULL, '{');
		json_string(j, "path", m->path);
		json_string(j, "build_id", id);
		json_u64(j, "size", m->size);
		json_bool(j, "stored", m->stored);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void json_store(struct json *j, const struct dj_trace *t)
{
	size_t files;
	uint64_t bytes;
	const char *store = dj_trace_store(t, &files, &bytes);

	if (!store)
		return;
	json_open(j, "shared", '{');
	json_string(j, "directory", store);
	json_u64(j, "files", files);
	json_u64(j, "bytes", bytes);
	json_close(j, '}');
}

static void json_sizes(struct json *j, const struct dj_trace *t, const struct summary *s)
{
	const struct dj_trace_usage *u = dj_trace_usage(t);

	json_u64(j, "instructions", s->steps);
	json_u64(j, "file_size", dj_trace_file_size(t));
	json_open(j, "file_parts", '{');
	json_u64(j, "records", u->streams);
	json_u64(j, "modules", u->modules);
	json_u64(j, "start_memory", u->snapshots);
	json_u64(j, "description", u->meta);
	json_close(j, '}');
	json_double(j, "bits_per_instruction", per_instruction(u->streams, s->steps));
	json_double(j, "file_bits_per_instruction",
		    per_instruction(dj_trace_file_size(t), s->steps));
	json_open(j, "records", '{');
	for (int k = 1; k < DJ_REC_KINDS; k++)
		json_u64(j, dj_record_kind_name(k), s->by_kind[k]);
	json_close(j, '}');
	json_double(j, "side_effect_share", share(s));
	json_open(j, "side_effects", '[');
	for (size_t i = 0; i < s->neffects; i++) {
		json_open(j, NULL, '{');
		json_string(j, "instruction", s->effects[i].mnemonic);
		json_string(j, "why", dj_why_name(s->effects[i].why));
		json_u64(j, "count", s->effects[i].count);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void json_places(struct json *j, struct dj_trace *t, const struct summary *s)
{
	struct ana_symbols *names = ana_symbols_of(t);

	json_open(j, "side_effect_places", '[');
	for (size_t i = 0; i < s->nplaces && i < 8 * PLACES; i++) {
		const struct summary_place *p = &s->places[i];
		struct ana_place at = { 0 };

		if (p->module >= 0 && names)
			ana_symbols_in(names, (size_t)p->module, p->at, &at);
		json_open(j, NULL, '{');
		json_u64(j, "count", p->count);
		json_string(j, "module", at.module);
		json_u64(j, at.module ? "file_offset" : "address", p->at);
		json_string(j, "function", at.function);
		json_close(j, '}');
	}
	json_close(j, ']');
	ana_symbols_free(names);
}

static void json_counts(struct json *j, const struct dj_trace *t)
{
	size_t n;
	const struct dj_trace_count *c = dj_trace_counts(t, &n);

	json_open(j, "recorder", '{');
	for (size_t i = 0; i < n; i++)
		json_u64(j, c[i].name, c[i].value);
	json_close(j, '}');
}

static void print_json(struct dj_trace *t, const struct summary *s)
{
	struct json j = { .f = stdout };

	json_open(&j, NULL, '{');
	json_string(&j, "trace", dj_trace_path(t));
	json_string(&j, "damage", dj_trace_damage(t));
	json_recording(&j, t, s);
	json_processes(&j, t, s);
	json_threads(&j, s);
	json_modules(&j, t);
	json_store(&j, t);
	json_sizes(&j, t, s);
	json_places(&j, t, s);
	json_counts(&j, t);
	print_crashes(t, s, &j);
	json_close(&j, '}');
}

int cmd_info(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct dj_error err = { 0 };
	struct dj_trace *t;
	struct summary s;
	bool json = false;
	int c, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 'h') {
			puts("Usage: deja info [--json] [FILE]\n"
			     "Say what a recording contains: machine, command, threads, "
			     "instructions, records.");
			return cli_finish(CLI_GOOD);
		}
		if (c != 'j')
			return cli_bad_option("info", argc, argv, c);
		json = true;
	}
	t = cli_open_trace("info", argc, argv, &status);
	if (!t)
		return status;
	if (dj_trace_missing(t)) /* of which nothing is needed here, but names of functions */
		cli_warn("%s", dj_trace_missing(t));
	if (summary_make(&s, t, &err))
		status = cli_error(&err);
	if (json)
		print_json(t, &s);
	else
		print_text(t, &s);
	summary_free(&s);
	dj_trace_close(t);
	return cli_finish(status);
}
