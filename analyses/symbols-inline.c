/*
 * What was inlined where (analyses/symbols.h: ana_inlines), for who asks about all instructions of
 * a program. libdw finds the scopes around an address by going through those of its unit, which
 * takes a third of a millisecond; here those of a function are gone through once, and kept as
 * ranges.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "analyses/symbols-internal.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_LIBDW
#include <dwarf.h>

#define DEPTH  200	  /* of scopes in each other, in debug information that makes sense */
#define PIECES (1u << 20) /* of one function */

struct piece {
	uint64_t lo, hi;
	size_t name;
};

struct ana_inlines {
	struct ana_symbols *s;
	size_t module;
	uint64_t lo, hi; /* addresses in the file that `pieces` is about */
	uint64_t nothing_lo, nothing_hi;
	struct piece *pieces; /* what encloses another comes before it */
	size_t n, cap;
	char **names;
	size_t n_names, cap_names;
	bool failed;
};

struct ana_inlines *ana_inlines_new(struct ana_symbols *s)
{
	struct ana_inlines *in = calloc(1, sizeof(*in));

	if (in)
		in->s = s;
	return in;
}

static void forget(struct ana_inlines *in)
{
	while (in->n_names)
		free(in->names[--in->n_names]);
	in->n = 0;
	in->lo = in->hi = 0;
}

void ana_inlines_free(struct ana_inlines *in)
{
	if (!in)
		return;
	forget(in);
	free(in->pieces);
	free(in->names);
	free(in);
}

static bool add_name(struct ana_inlines *in, Dwarf_Die *die)
{
	Dwarf_Attribute attr;
	const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &attr));

	name = name ? name : dwarf_diename(die);
	name = name ? name : "?";
	if (in->n_names == in->cap_names) {
		size_t cap = in->cap_names ? 2 * in->cap_names : 64;
		char **grown = reallocarray(in->names, cap, sizeof(*grown));
		if (!grown)
			return false;
		in->names = grown;
		in->cap_names = cap;
	}
	char *readable = ana_symbols_demangle(name);
	readable = readable ? readable : strdup(name);
	if (readable)
		in->names[in->n_names++] = readable;
	return readable != NULL;
}

static bool add_piece(struct ana_inlines *in, uint64_t lo, uint64_t hi)
{
	if (in->n == in->cap) {
		size_t cap = in->cap ? 2 * in->cap : 64;
		struct piece *grown =
			cap <= PIECES ? reallocarray(in->pieces, cap, sizeof(*grown)) : NULL;
		if (!grown)
			return false;
		in->pieces = grown;
		in->cap = cap;
	}
	in->pieces[in->n++] = (struct piece){ lo, hi, in->n_names - 1 };
	return true;
}

static void add_inlined(struct ana_inlines *in, Dwarf_Die *die, Dwarf_Addr bias)
{
	Dwarf_Addr base, lo, hi;
	ptrdiff_t at = 0;

	in->failed |= !add_name(in, die);
	while (!in->failed && (at = dwarf_ranges(die, at, &base, &lo, &hi)) > 0)
		in->failed |= !add_piece(in, lo + bias, hi + bias);
}

static void collect(struct ana_inlines *in, Dwarf_Die *parent, Dwarf_Addr bias, unsigned depth)
{
	Dwarf_Die die;
	int more = depth < DEPTH ? dwarf_child(parent, &die) : -1;

	for (; !more && !in->failed; more = dwarf_siblingof(&die, &die)) {
		int tag = dwarf_tag(&die);
		if (tag == DW_TAG_inlined_subroutine)
			add_inlined(in, &die, bias);
		if (tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block)
			collect(in, &die, bias, depth + 1);
	}
}

/* The function whose code is around the address: its range, and what was inlined there. */
static void read_function(struct ana_inlines *in, uint64_t addr)
{
	ANA_LIBDW_WORKS(NULL);
	Dwarf_Die *scopes = NULL;
	Dwarf_Addr bias, base, lo, hi;
	int n = ana_symbols_scopes(in->s, in->module, addr, &scopes, &bias), i = 0;
	ptrdiff_t at = 0;

	while (i < n && dwarf_tag(&scopes[i]) != DW_TAG_subprogram)
		i++;
	while (i < n && (at = dwarf_ranges(&scopes[i], at, &base, &lo, &hi)) > 0)
		if (addr - bias >= lo && addr - bias < hi) {
			in->lo = lo + bias;
			in->hi = hi + bias;
			collect(in, &scopes[i], bias, 0);
			break;
		}
	free(scopes);
}

size_t ana_inlines_at(struct ana_inlines *in, size_t module, uint64_t offset, uint64_t first,
		      uint64_t size, const char *names[ANA_PLACES])
{
	uint64_t addr;
	size_t n = 0;

	if (module != in->module) {
		forget(in);
		in->nothing_lo = in->nothing_hi = 0;
		in->module = module;
	}
	if (offset >= in->nothing_lo && offset < in->nothing_hi)
		return 0;
	if (!ana_symbols_address(in->s, module, offset, &addr))
		return 0;
	if (addr < in->lo || addr >= in->hi) {
		forget(in);
		in->failed = false;
		read_function(in, addr);
	}
	if (in->lo == in->hi) { /* there is nothing about the function */
		in->nothing_lo = first;
		in->nothing_hi = first + size;
		return 0;
	}
	for (size_t i = 0; i < in->n && n + 1 < ANA_PLACES; i++)
		if (addr >= in->pieces[i].lo && addr < in->pieces[i].hi)
			names[n++] = in->names[in->pieces[i].name];
	for (size_t i = 0; i < n / 2; i++) {
		const char *outer = names[i];
		names[i] = names[n - 1 - i];
		names[n - 1 - i] = outer;
	}
	return n;
}

#else

struct ana_inlines *ana_inlines_new(struct ana_symbols *s)
{
	return (struct ana_inlines *)s;
}

void ana_inlines_free(struct ana_inlines *in)
{
	(void)in;
}

size_t ana_inlines_at(struct ana_inlines *in, size_t module, uint64_t offset, uint64_t first,
		      uint64_t size, const char *names[ANA_PLACES])
{
	(void)in;
	(void)module;
	(void)offset;
	(void)first;
	(void)size;
	(void)names;
	return 0;
}

#endif
