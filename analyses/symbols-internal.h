/* What analyses/symbols.c gives to those that read more of the debug information. */
#ifndef DEJA_ANALYSES_SYMBOLS_INTERNAL_H
#define DEJA_ANALYSES_SYMBOLS_INTERNAL_H

#include "analyses/budget.h"
#include "analyses/symbols.h"

#ifdef HAVE_LIBDW
#include <elfutils/libdwfl.h>

/* The module as libdw knows it, without a bias; NULL if it cannot be read. */
Dwfl_Module *ana_symbols_module(struct ana_symbols *s, size_t module);
/* The segment in which a place of the file lies, or an address as the file has it. */
bool ana_symbols_segment(Dwfl_Module *mod, bool in_file, uint64_t at, GElf_Phdr *ph);
/* The scopes around an address in the file, innermost first, by where their code is: how many, in
 * a new array. */
int ana_symbols_scopes(struct ana_symbols *s, size_t module, uint64_t addr, Dwarf_Die **scopes,
		       Dwarf_Addr *bias);
/* The address that the file gives what lies at an offset in it. */
bool ana_symbols_address(struct ana_symbols *s, size_t module, uint64_t offset, uint64_t *addr);
/* All of the linker's stubs, by addresses in the file. */
void ana_symbols_stubs(Dwfl_Module *mod,
		       void (*each)(void *ctx, const char *name, uint64_t addr, uint64_t size),
		       void *ctx);
/* If one of the linker's stubs is there: whose, and how far in it. */
bool ana_symbols_stub(Dwfl_Module *mod, uint64_t addr, char *name, size_t size, uint64_t *offset);
#endif

#endif
