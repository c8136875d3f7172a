/* Adding up a trace (cli/summary.h). */
#include "cli/summary.h"

#include "format/cpu.h"
#include "format/scatter.h"
#include "insn/insn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static int no_memory(struct dj_error *err)
{
	return dj_fail(err, 1, "out of memory");
}

/* The decoder's own name of the instruction; what it does not know, as Capstone calls it. */
static void mnemonic_of(enum dj_cpu_kind cpu, const struct dj_record *rec, char *buf, size_t size)
{
	struct insn in;
	char text[160];

	memset(&in, 0, sizeof(in));
	if (insn_decode_as(cpu, &in, rec->insn, rec->insn_len, 0) > 0 && in.id != INSN_EVEX) {
		snprintf(buf, size, "%s", insn_id_name(in.id));
		return;
	}
	memcpy(in.bytes, rec->insn, rec->insn_len);
	in.len = rec->insn_len;
	insn_text(&in, false, text, sizeof(text));
	text[strcspn(text, " \t")] = 0;
	snprintf(buf, size, "%.*s", (int)size - 1, text[0] ? text : "?");
}

static int count_effect(struct summary *s, enum dj_cpu_kind cpu, const struct dj_record *rec,
			struct dj_error *err)
{
	char name[sizeof(s->effects->mnemonic)];
	struct summary_effect *e;

	uint8_t why = rec->why < DJ_WHYS ? rec->why : DJ_WHYS;

	mnemonic_of(cpu, rec, name, sizeof(name));
	/* the one looked for is mostly among those that came often or lately */
	for (size_t i = s->neffects; i-- > 0;) {
		e = &s->effects[i];
		if (e->why != why || strcmp(e->mnemonic, name) != 0)
			continue;
		e->count++;
		if (i + 1 < s->neffects && e->count > e[1].count) {
			struct summary_effect other = e[1];
			e[1] = *e;
			*e = other;
		}
		return 0;
	}
	e = realloc(s->effects, (s->neffects + 1) * sizeof(*e));
	if (!e)
		return no_memory(err);
	s->effects = e;
	e += s->neffects++;
	memcpy(e->mnemonic, name, sizeof(name));
	e->why = why;
	e->count = 1;
	return 0;
}

static bool same_place(const struct summary_place *a, const struct summary_place *b)
{
	return a->module == b->module && a->at == b->at;
}

/* The place in a table by hash, or where it may go. */
static struct summary_place *find_place(const struct summary *s, const struct summary_place *what)
{
	size_t i = dj_scatter(dj_scatter_mix((uint64_t)what->module, what->at), s->cap_places);

	while (s->places[i &= s->cap_places - 1].count && !same_place(&s->places[i], what))
		i++;
	return &s->places[i];
}

static int grow_places(struct summary *s, struct dj_error *err)
{
	struct summary old = *s;

	s->cap_places = old.cap_places ? 2 * old.cap_places : 256;
	s->places = calloc(s->cap_places, sizeof(*s->places));
	if (!s->places) {
		*s = old;
		return no_memory(err);
	}
	for (size_t i = 0; i < old.cap_places; i++)
		if (old.places[i].count)
			*find_place(s, &old.places[i]) = old.places[i];
	free(old.places);
	return 0;
}

/* Where it was: behind it is where it led, unless it is one that leads elsewhere. */
static int count_place(struct summary *s, const struct dj_mappings *maps,
		       const struct dj_record *rec, struct dj_error *err)
{
	uint64_t at = rec->regs.rip - rec->insn_len;
	const struct dj_mapping *m = dj_mappings_find(maps, at);
	struct summary_place what = { -1, at, 0 }, *p;

	if (m && m->module >= 0) {
		what.module = m->module;
		what.at = at - m->start + m->offset;
	}
	if (2 * s->nplaces >= s->cap_places && grow_places(s, err))
		return -1;
	p = find_place(s, &what);
	if (!p->count) {
		*p = what;
		s->nplaces++;
	}
	p->count++;
	return 0;
}

/* Which module is where, at some time or other: few programs have two at one address. */
static void note_module(struct dj_mappings *maps, const struct dj_record *rec)
{
	struct dj_mapping m = { .start = rec->addr,
				.end = rec->addr + rec->length,
				.offset = rec->offset,
				.module = rec->module,
				.name = "" };

	if (rec->kind == DJ_REC_MAP && m.module >= 0 && m.end > m.start &&
	    !((m.start | m.end) & 4095))
		dj_mappings_put(maps, &m);
}

/* Keep a copy of a text that a record has. */
static int keep(char **text, const char *name, struct dj_error *err)
{
	free(*text);
	*text = strdup(name ? name : "");
	return *text ? 0 : no_memory(err);
}

static int add_thread(struct summary *s, enum dj_cpu_kind cpu, struct summary_thread *th,
		      struct dj_cursor *c, struct dj_error *err)
{
	struct summary_process *p = &s->processes[th->info->process];
	const struct dj_mappings *maps = &p->modules;
	const struct dj_record *rec;

	while ((rec = dj_cursor_next(c, err))) {
		s->records++;
		s->by_kind[rec->kind]++;
		th->exited = rec->kind == DJ_REC_EXIT;
		if (rec->kind == DJ_REC_EFFECTS &&
		    (count_effect(s, cpu, rec, err) || count_place(s, maps, rec, err)))
			return -1;
		if (rec->kind == DJ_REC_EXIT)
			th->status = rec->status;
		if (rec->kind == DJ_REC_MARK && rec->what == DJ_MARK_TIME) {
			th->last_time = (int64_t)rec->result;
			if (rec->steps == th->info->first_steps && !th->first_time)
				th->first_time = th->last_time;
		}
		if (rec->kind == DJ_REC_MARK && rec->what == DJ_MARK_COMMAND &&
		    keep(&p->command, rec->name, err))
			return -1;
		if (rec->kind == DJ_REC_END && keep(&th->stopped, rec->name, err))
			return -1;
	}
	return err->text[0] ? -1 : 0;
}

static int add_facts(struct summary *s, struct summary_process *p, struct dj_cursor *c,
		     struct dj_error *err)
{
	const struct dj_record *rec;

	while ((rec = dj_cursor_next(c, err))) {
		s->records++;
		s->by_kind[rec->kind]++;
		note_module(&p->modules, rec);
		p->unfollowed += rec->kind == DJ_REC_CHILD && rec->subject < 0;
		if (rec->kind == DJ_REC_EXEC && keep(&p->image, rec->name, err))
			return -1;
	}
	return err->text[0] ? -1 : 0;
}

static void add_to_process(struct summary *s, const struct summary_thread *th)
{
	struct summary_process *p = &s->processes[th->info->process];

	p->threads++;
	p->steps += th->steps;
	if (th->first_time && (!p->first_time || th->first_time < p->first_time))
		p->first_time = th->first_time;
	if (th->last_time > p->last_time)
		p->last_time = th->last_time;
	if (!p->first && th->info->tid == p->info->pid)
		p->first = th;
	if (!p->stopped && th->stopped)
		p->stopped = th;
}

/* A process that never had an image of its own: until it ended it was a thread in the memory of the
 * one that made it (vfork), with the same number. */
static void before_exec(struct summary *s, struct summary_process *p)
{
	for (size_t i = 0; i < s->nthreads && !p->threads; i++) {
		const struct summary_thread *th = &s->threads[i];

		if (th->info->tid != p->info->pid || (int32_t)th->info->process != p->info->parent)
			continue;
		p->first = th;
		p->stopped = th->stopped ? th : NULL;
		p->first_time = th->first_time;
		p->last_time = th->last_time;
	}
}

static int by_count(const void *a, const void *b)
{
	const struct summary_effect *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	return strcmp(x->mnemonic, y->mnemonic);
}

static int place_by_count(const void *a, const void *b)
{
	const struct summary_place *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	if (x->module != y->module)
		return x->module < y->module ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

int summary_make(struct summary *s, struct dj_trace *t, struct dj_error *err)
{
	enum dj_cpu_kind cpu = dj_cpu_kind_of(dj_trace_meta(t)->cpu);
	int r = 0;

	*s = (struct summary){ 0 };
	s->nthreads = dj_trace_threads(t);
	s->nprocesses = dj_trace_processes(t);
	s->threads = calloc(s->nthreads ? s->nthreads : 1, sizeof(*s->threads));
	s->processes = calloc(s->nprocesses ? s->nprocesses : 1, sizeof(*s->processes));
	if (!s->threads || !s->processes) {
		s->nthreads = s->nprocesses = 0;
		return no_memory(err);
	}
	/* each fact once, whosever it is and however many threads have it */
	for (size_t i = 0; i < s->nprocesses; i++) {
		struct dj_cursor *c = r ? NULL : dj_cursor_new_facts(t, i, err);

		s->processes[i].info = dj_trace_process(t, i);
		if (c ? add_facts(s, &s->processes[i], c, err) : !r)
			r = -1;
		dj_cursor_free(c);
	}
	for (size_t i = 0; i < s->nthreads; i++) {
		struct summary_thread *th = &s->threads[i];
		struct dj_cursor *c;

		th->info = dj_trace_thread(t, i);
		th->steps = th->info->last_steps - th->info->first_steps;
		s->steps += th->steps;
		c = r ? NULL : dj_cursor_new_own(t, i, err);
		if (c ? add_thread(s, cpu, th, c, err) : !r)
			r = -1;
		dj_cursor_free(c);
		add_to_process(s, th);
	}
	for (size_t i = 0; i < s->nprocesses; i++)
		before_exec(s, &s->processes[i]);
	if (s->neffects)
		qsort(s->effects, s->neffects, sizeof(*s->effects), by_count);
	if (s->cap_places) /* those that are empty come last */
		qsort(s->places, s->cap_places, sizeof(*s->places), place_by_count);
	return r;
}

void summary_free(struct summary *s)
{
	for (size_t i = 0; i < s->nthreads; i++)
		free(s->threads[i].stopped);
	for (size_t i = 0; i < s->nprocesses; i++) {
		free(s->processes[i].image);
		free(s->processes[i].command);
		dj_mappings_clear(&s->processes[i].modules);
	}
	free(s->threads);
	free(s->processes);
	free(s->effects);
	free(s->places);
}

static void status_text(int32_t status, char *buf, size_t size)
{
	if (WIFEXITED(status))
		snprintf(buf, size, "exited with status %d", WEXITSTATUS(status));
	else if (WIFSIGNALED(status))
		snprintf(buf, size, "killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(buf, size, "ended with wait status %#x", (unsigned)status);
}

void summary_end_text(const struct summary *s, const struct dj_trace *t, size_t process, char *buf,
		      size_t size)
{
	const struct summary_process *p = process < s->nprocesses ? &s->processes[process] : NULL;

	if (p && p->stopped && !(p->first && p->first->exited))
		snprintf(buf, size, "recording stopped before it ended: %s", p->stopped->stopped);
	else if (!process && dj_trace_end(t)->present)
		status_text(dj_trace_end(t)->status, buf, size);
	else if (process && p && p->first && p->first->exited)
		status_text(p->first->status, buf, size);
	else
		snprintf(buf, size, "recording was cut off");
}

/* The arguments that the recording began with. */
static char *first_command(const struct dj_trace *t)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789%+,-./:=@_^";
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	for (const char *const *a = dj_trace_meta(t)->argv; *a; a++) {
		if (a != dj_trace_meta(t)->argv)
			putc(' ', f);
		if (**a && !(*a)[strspn(*a, plain)]) {
			fputs(*a, f);
			continue;
		}
		putc('\'', f);
		for (const char *p = *a; *p; p++) {
			if (*p == '\'')
				fputs("'\\''", f);
			else if ((unsigned char)*p < ' ' || *p == 0x7f)
				putc('?', f); /* one line stays one line */
			else
				putc(*p, f);
		}
		putc('\'', f);
	}
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

char *summary_command(const struct summary *s, const struct dj_trace *t, size_t process)
{
	const struct summary_process *p = &s->processes[process];
	unsigned depth = 0;

	/* what a process is that was made while recording its latest exec says, or its parent */
	while (process && !p->image && p->info->parent >= 0 && p->info->parent < (int32_t)process &&
	       depth++ < 100) {
		process = (size_t)p->info->parent;
		p = &s->processes[process];
	}
	const char *known = p->command ? p->command : p->image;
	return process ? strdup(known ? known : "?") : first_command(t);
}
