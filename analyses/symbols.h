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
/* The same, preceded by those that were inlined into it there, innermost first. Returns how many,
 * at least 1. */
size_t ana_symbols_all_in(struct ana_symbols *s, size_t module, uint64_t offset,
			  struct ana_place places[ANA_PLACES]);

/* The functions that were inlined at an offset in a module's file, innermost first: how many. The
 * code of the symbol there begins at `first` and has `size` bytes. Quick where many places of a
 * function are asked for in a row; names stay valid until the next call. NULL when out of memory.
 */
struct ana_inlines;
struct ana_inlines *ana_inlines_new(struct ana_symbols *s);
void ana_inlines_free(struct ana_inlines *in);
size_t ana_inlines_at(struct ana_inlines *in, size_t module, uint64_t offset, uint64_t first,
		      uint64_t size, const char *names[ANA_PLACES]);

/* The source line there, if it is known: quick, and without what was inlined. The text stays. */
bool ana_symbols_line(struct ana_symbols *s, size_t module, uint64_t offset, const char **file,
		      int *line);
/* Where in a function the code there comes from, as compilers that are given a profile count: lines
 * from the function's own, of what was inlined that function's. */
struct ana_body {
	const char *function; /* as the compiler has it; the text stays */
	unsigned line, discriminator;
};
bool ana_symbols_body(struct ana_symbols *s, size_t module, uint64_t offset, struct ana_body *body);

/* All functions in a module's symbol table, in its order, by where they are in the file. Returns -1
 * if it has none, or cannot be read. Names are as the compiler has them. */
int ana_symbols_each(struct ana_symbols *s, size_t module,
		     void (*each)(void *ctx, const char *name, uint64_t offset, uint64_t size,
				  bool global),
		     void *ctx);
/* The linker's stubs of a module: "puts@plt". */
void ana_symbols_each_stub(struct ana_symbols *s, size_t module,
			   void (*each)(void *ctx, const char *name, uint64_t offset,
					uint64_t size),
			   void *ctx);
/* A name as it is in the source: a new string, or NULL if it is the same. */
char *ana_symbols_demangle(const char *name);

/* What is at this address at the moment: the function, preceded by those that were inlined into
 * it there, innermost first. Returns how many, at least 1. Texts stay valid until the next call. */
size_t ana_symbols_at(struct ana_symbols *s, uint64_t addr, struct ana_place places[ANA_PLACES]);

#endif
