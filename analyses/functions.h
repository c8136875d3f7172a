/*
 * The functions that code belongs to: quick answers for many instructions, where analyses/symbols.h
 * gives one good one. A function is known by where its symbol begins in a module's file; code in no
 * function belongs to a nameless one, of which each module (and each process, for code made at run
 * time) has one.
 */
#ifndef DEJA_ANALYSES_FUNCTIONS_H
#define DEJA_ANALYSES_FUNCTIONS_H

#include "analyses/symbols.h"
#include "replayer/pass.h"

struct ana_function {
	const char *name;	 /* as in the source; NULL: nameless */
	const char *symbol;	 /* as the compiler has it; NULL: nameless */
	const char *module;	 /* path; NULL: code made at run time */
	struct replay_code code; /* where it begins */
	uint64_t size;
	bool stub; /* of the linker's: named as what it leads to, "puts@plt"; has no symbol */
};

struct ana_functions;
/* The trace must outlive it. NULL when out of memory. */
struct ana_functions *ana_functions_new(struct dj_trace *t);
void ana_functions_free(struct ana_functions *f);
struct ana_symbols *ana_functions_symbols(struct ana_functions *f);

/* Never NULL; the same for all code of a function, for as long as the table lives. What a module
 * has is read when it is first asked for: in a pass, callers hold replay_run_lock(). */
const struct ana_function *ana_function_of(struct ana_functions *f, const struct replay_code *code);
/* Whether a function begins there (and is no stub, and not a part of another that was put
 * elsewhere). */
bool ana_function_begins(struct ana_functions *f, const struct replay_code *code);

/* The functions of this name, as in the source (without parameters, or with), in any module: calls
 * `each`; returns how many. All modules' symbols are read for that. */
size_t ana_functions_named(struct ana_functions *f, const char *name,
			   void (*each)(void *ctx, const struct ana_function *fn), void *ctx);

/* Of a path what is behind the last slash. */
const char *ana_base(const char *path);
/* "NAME", "NAME (MODULE)" or "?? (MODULE)". */
void ana_function_text(const struct ana_function *fn, char *buf, size_t size);

#endif
