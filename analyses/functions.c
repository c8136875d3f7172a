/* The functions that code belongs to (analyses/functions.h). */
#include "analyses/functions.h"
#include "analyses/perfmap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES 64 /* nameless functions of processes are kept by number modulo this */

struct module {
	bool tried;
	bool sorted;
	struct ana_function nameless;
	struct ana_function *fn; /* by offset, none inside another */
	size_t n, cap;
};

/* Code of a process that is in no module: what it has given names to, and the rest. */
struct nameless {
	struct ana_function fn;
	struct ana_perf_map *map;
	struct ana_function *named; /* as the map's entries */
	struct nameless *next;
};

struct ana_functions {
	struct dj_trace *t;
	struct ana_symbols *symbols;
	struct module *modules;
	size_t n;
	struct nameless *processes[PROCESSES];
	struct ana_function unknown;
};

struct ana_functions *ana_functions_new(struct dj_trace *t)
{
	struct ana_functions *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->t = t;
	f->n = dj_trace_modules(t);
	f->symbols = ana_symbols_of(t);
	f->modules = calloc(f->n + 1, sizeof(*f->modules));
	f->unknown.code.module = -1;
	if (!f->symbols || !f->modules) {
		ana_functions_free(f);
		return NULL;
	}
	for (size_t i = 0; i < f->n; i++) {
		f->modules[i].nameless.module = dj_trace_module(t, i)->path;
		f->modules[i].nameless.code.module = (int32_t)i;
	}
	return f;
}

static void free_names(struct ana_function *fn)
{
	if (fn->name != fn->symbol)
		free((char *)(uintptr_t)fn->name);
	free((char *)(uintptr_t)fn->symbol);
}

void ana_functions_free(struct ana_functions *f)
{
	if (!f)
		return;
	for (size_t i = 0; f->modules && i < f->n; i++) {
		for (size_t k = 0; k < f->modules[i].n; k++)
			free_names(&f->modules[i].fn[k]);
		free(f->modules[i].fn);
	}
	for (size_t i = 0; i < PROCESSES; i++)
		while (f->processes[i]) {
			struct nameless *p = f->processes[i];
			f->processes[i] = p->next;
			ana_perf_map_free(p->map);
			free(p->named);
			free(p);
		}
	ana_symbols_free(f->symbols);
	free(f->modules);
	free(f);
}

struct ana_symbols *ana_functions_symbols(struct ana_functions *f)
{
	return f->symbols;
}

/* ---- a module's functions ---- */

struct reading {
	struct module *m;
	int32_t number;
};

static void add(void *ctx, const char *name, uint64_t offset, uint64_t size, bool global)
{
	struct reading *r = ctx;
	struct module *m = r->m;

	if (m->n == m->cap) {
		size_t cap = m->cap ? m->cap * 2 : 256;
		struct ana_function *grown = realloc(m->fn, cap * sizeof(*grown));
		if (!grown)
			return; /* fewer names, that is all */
		m->fn = grown;
		m->cap = cap;
	}
	char *readable = ana_symbols_demangle(name), *symbol = strdup(name);
	if (!symbol) {
		free(readable);
		return;
	}
	m->fn[m->n] = (struct ana_function){
		.name = readable ? readable : symbol,
		.symbol = symbol,
		.module = m->nameless.module,
		.code = { .module = r->number, .offset = offset, .process = global },
		.size = size,
	};
	m->n++;
}

static void add_stub(void *ctx, const char *name, uint64_t offset, uint64_t size)
{
	struct reading *r = ctx;
	size_t n = r->m->n;

	add(ctx, name, offset, size, false);
	if (r->m->n == n)
		return;
	struct ana_function *fn = &r->m->fn[n];
	if (fn->name != fn->symbol)
		free((char *)(uintptr_t)fn->name);
	fn->name = fn->symbol;
	fn->symbol = NULL;
	fn->stub = true;
}

static unsigned underscores(const char *s)
{
	return (unsigned)strspn(s, "_");
}

/* By offset; of several at one place first the one that people would call it: global (which is in
 * `process` until they are sorted), with the fewest underscores, the shortest. */
static int by_place(const void *a, const void *b)
{
	const struct ana_function *x = a, *y = b;

	if (x->code.offset != y->code.offset)
		return x->code.offset < y->code.offset ? -1 : 1;
	if (x->code.process != y->code.process)
		return x->code.process ? -1 : 1;
	if (underscores(x->name) != underscores(y->name))
		return underscores(x->name) < underscores(y->name) ? -1 : 1;
	size_t l = strlen(x->name), m = strlen(y->name);
	return l != m ? (l < m ? -1 : 1) : strcmp(x->name, y->name);
}

static struct module *module_of(struct ana_functions *f, int32_t number)
{
	struct module *m = &f->modules[number];
	struct reading r = { m, number };
	size_t kept = 0;

	if (m->tried)
		return m;
	m->tried = true;
	if (!ana_symbols_each(f->symbols, (size_t)number, add, &r))
		ana_symbols_each_stub(f->symbols, (size_t)number, add_stub, &r);
	if (m->n)
		qsort(m->fn, m->n, sizeof(*m->fn), by_place);
	for (size_t i = 0; i < m->n; i++) {
		m->fn[i].code.process = 0;
		if (kept && m->fn[kept - 1].code.offset == m->fn[i].code.offset)
			free_names(&m->fn[i]);
		else
			m->fn[kept++] = m->fn[i];
	}
	m->n = kept;
	for (size_t i = 0; i < m->n; i++) {
		uint64_t next = i + 1 < m->n ? m->fn[i + 1].code.offset : UINT64_MAX;
		uint64_t room = next - m->fn[i].code.offset;
		if (m->fn[i].size > room)
			m->fn[i].size = room;
	}
	return m;
}

/* ---- asking ---- */

static void name_code(struct ana_functions *f, struct nameless *p, uint32_t process)
{
	const struct ana_perf_entry *e;
	size_t n;

	p->map = ana_perf_map_new(f->t, process);
	if (!p->map)
		return;
	e = ana_perf_map_entries(p->map, &n);
	p->named = calloc(n + 1, sizeof(*p->named));
	for (size_t i = 0; p->named && i < n; i++)
		p->named[i] = (struct ana_function){
			.name = e[i].name,
			.symbol = e[i].name,
			.code = { .module = -1, .process = process, .offset = e[i].start },
			.size = e[i].size
		};
}

static struct nameless *process_of(struct ana_functions *f, uint32_t process)
{
	struct nameless **p = &f->processes[process % PROCESSES];

	while (*p && (*p)->fn.code.process != process)
		p = &(*p)->next;
	if (!*p && (*p = calloc(1, sizeof(**p)))) {
		(*p)->fn.code = (struct replay_code){ .module = -1, .process = process };
		name_code(f, *p, process);
	}
	return *p;
}

static const struct ana_function *of_process(struct ana_functions *f,
					     const struct replay_code *code)
{
	struct nameless *p = process_of(f, code->process);
	const struct ana_perf_entry *e =
		p && p->named ? ana_perf_map_at(p->map, code->offset) : NULL;
	size_t n;

	if (!p)
		return &f->unknown;
	return e ? &p->named[e - ana_perf_map_entries(p->map, &n)] : &p->fn;
}

const struct ana_function *ana_function_of(struct ana_functions *f, const struct replay_code *code)
{
	if (code->module < 0 || (size_t)code->module >= f->n)
		return of_process(f, code);
	struct module *m = module_of(f, code->module);
	size_t low = 0, high = m->n;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (m->fn[mid].code.offset <= code->offset)
			low = mid + 1;
		else
			high = mid;
	}
	if (low && code->offset - m->fn[low - 1].code.offset < m->fn[low - 1].size)
		return &m->fn[low - 1];
	return &m->nameless;
}

bool ana_function_begins(struct ana_functions *f, const struct replay_code *code)
{
	const struct ana_function *fn = ana_function_of(f, code);

	return fn->name && !fn->stub && fn->code.offset == code->offset &&
	       !strstr(fn->name, ".cold");
}

static bool ends(char c)
{
	return !c || c == '(' || c == '@';
}

/* Behind the template's arguments that begin here; NULL if they are none. */
static const char *behind_arguments(const char *s)
{
	unsigned depth = 0;

	for (; *s; s++) {
		depth += *s == '<';
		if (*s == '>' && !--depth)
			return s + 1;
	}
	return NULL;
}

static bool is_called_here(const char *have, const char *name, size_t len)
{
	const char *rest;

	if (strncmp(have, name, len) != 0)
		return false;
	if (ends(have[len]))
		return true;
	rest = have[len] == '<' ? behind_arguments(have + len) : NULL;
	return rest && ends(*rest);
}

/* "ns::f" is the name of "ns::f(int)", too, and "f" and "f<int>" are names of "void f<int>(int)":
 * of what was made of a template, what it returns is said, too. */
static bool is_called(const char *have, const char *name)
{
	size_t len = strlen(name);
	unsigned depth = 0;

	if (is_called_here(have, name, len))
		return true;
	if (!strchr(have, '<'))
		return false;
	for (const char *s = have; *s && (*s != '(' || depth || s == have); s++) {
		depth += *s == '<' || *s == '(';
		depth -= depth && (*s == '>' || *s == ')');
		if (*s == ' ' && !depth && (s - have < 8 || strncmp(s - 8, "operator", 8) != 0) &&
		    is_called_here(s + 1, name, len))
			return true;
	}
	return false;
}

/* A search for a function by one of its other names: of several a function is known by one only. */
struct aliases {
	struct ana_functions *f;
	int32_t module;
	const char *name;
	void (*each)(void *ctx, const struct ana_function *fn);
	void *ctx;
	const struct ana_function *told[16];
	size_t n;
};

static void alias(void *ctx, const char *name, uint64_t offset, uint64_t size, bool global)
{
	struct aliases *a = ctx;
	const struct replay_code code = { .module = a->module, .offset = offset };

	(void)size;
	(void)global;
	if (!is_called(name, a->name) || a->n == sizeof(a->told) / sizeof(a->told[0]))
		return;
	const struct ana_function *fn = ana_function_of(a->f, &code);
	if (!fn->name || fn->code.offset != offset || is_called(fn->name, a->name))
		return;
	for (size_t i = 0; i < a->n; i++)
		if (a->told[i] == fn)
			return;
	a->told[a->n++] = fn;
	a->each(a->ctx, fn);
}

static size_t named_at_run_time(struct ana_functions *f, const char *name,
				void (*each)(void *ctx, const struct ana_function *fn), void *ctx)
{
	size_t found = 0, n = 0;

	for (uint32_t i = 0; i < dj_trace_processes(f->t); i++) {
		const struct nameless *p = process_of(f, i);
		if (p && p->named)
			ana_perf_map_entries(p->map, &n);
		for (size_t k = 0; p && p->named && k < n; k++)
			if (is_called(p->named[k].name, name)) {
				each(ctx, &p->named[k]);
				found++;
			}
	}
	return found;
}

size_t ana_functions_named(struct ana_functions *f, const char *name,
			   void (*each)(void *ctx, const struct ana_function *fn), void *ctx)
{
	size_t found = named_at_run_time(f, name, each, ctx);

	for (size_t i = 0; i < f->n; i++) {
		struct module *m = module_of(f, (int32_t)i);
		struct aliases a = { f, (int32_t)i, name, each, ctx, { NULL }, 0 };

		for (size_t k = 0; k < m->n; k++)
			if (m->fn[k].stub ? !strcmp(m->fn[k].name, name)
					  : is_called(m->fn[k].name, name)) {
				each(ctx, &m->fn[k]);
				found++;
			}
		ana_symbols_each(f->symbols, i, alias, &a);
		found += a.n;
	}
	return found;
}

const char *ana_base(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash && slash[1] ? slash + 1 : path ? path : "code made at run time";
}

void ana_function_text(const struct ana_function *fn, char *buf, size_t size)
{
	if (fn->name)
		snprintf(buf, size, "%s", fn->name);
	else
		snprintf(buf, size, "?? (%s)", ana_base(fn->module));
}
