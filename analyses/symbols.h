/*
 * Names for addresses: function, source file and line, out of the symbols and debug information of
 * the recorded modules (elfutils' libdw, and separate debug files that are installed here under
 * the module's build id). C++ names are shown as in the source.
 */
#ifndef DEJA_ANALYSES_SYMBOLS_H
#define DEJA_ANALYSES_SYMBOLS_H

#include "replayer/replay.h"

struct ana_symbols;

struct ana_place {
	const char *module;   /* path of the module, or "[vdso]"; NULL if the address is in none */
	const char *function; /* NULL if not known */
	uint64_t offset;      /* of the address within the function, or within the module's file */
	const char *file;     /* source file; NULL if not known */
	int line;
	bool inlined; /* into the place that follows, at the line that is told there */
};

/* Nothing is read before it is asked for. NULL when out of memory. The replay must outlive it. */
struct ana_symbols *ana_symbols_new(struct replay *r);
void ana_symbols_free(struct ana_symbols *s);

/* The same of a trace of which no moment is asked: only for ana_symbols_in(). */
struct ana_symbols *ana_symbols_of(struct dj_trace *t);
/* Which function is at this offset in a module's file. Texts stay valid until the next call. */
void ana_symbols_in(struct ana_symbols *s, size_t module, uint64_t offset, struct ana_place *place);

#define ANA_PLACES 32

/* What is at this address at the moment: the function, preceded by those that were inlined into
 * it there, innermost first. Returns how many, at least 1. Texts stay valid until the next call. */
size_t ana_symbols_at(struct ana_symbols *s, uint64_t addr, struct ana_place places[ANA_PLACES]);

#endif
