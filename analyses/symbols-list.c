/* All functions that a module has symbols for (analyses/symbols.h). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "analyses/symbols-internal.h"

#ifdef HAVE_LIBDW
#ifdef HAVE_LIBIBERTY
#include <libiberty/demangle.h>
#endif

/* Where in the file an address of it is. */
static bool offset_in_file(Dwfl_Module *mod, uint64_t addr, uint64_t *offset)
{
	GElf_Phdr ph;
	bool found = ana_symbols_segment(mod, false, addr, &ph);

	if (found)
		*offset = addr - ph.p_vaddr + ph.p_offset;
	return found;
}

/* A function without a size reaches no further than its section. */
static uint64_t section_left(Elf *elf, const GElf_Sym *sym)
{
	Elf_Scn *section = elf ? elf_getscn(elf, sym->st_shndx) : NULL;
	GElf_Shdr header;

	if (!section || !gelf_getshdr(section, &header) ||
	    sym->st_value - header.sh_addr >= header.sh_size)
		return 1;
	return header.sh_size - (sym->st_value - header.sh_addr);
}

int ana_symbols_each(struct ana_symbols *s, size_t module,
		     void (*each)(void *ctx, const char *name, uint64_t offset, uint64_t size,
				  bool global),
		     void *ctx)
{
	ANA_LIBDW_WORKS(NULL);
	Dwfl_Module *mod = ana_symbols_module(s, module);
	int n = mod ? dwfl_module_getsymtab(mod) : -1;

	for (int i = 1; i < n; i++) {
		GElf_Sym sym;
		GElf_Addr addr;
		uint64_t offset;
		Elf *elf = NULL;
		const char *name = dwfl_module_getsym_info(mod, i, &sym, &addr, NULL, &elf, NULL);
		unsigned type = GELF_ST_TYPE(sym.st_info);
		if (name && *name && (type == STT_FUNC || type == STT_GNU_IFUNC) && sym.st_shndx &&
		    offset_in_file(mod, sym.st_value, &offset))
			each(ctx, name, offset, sym.st_size ? sym.st_size : section_left(elf, &sym),
			     GELF_ST_BIND(sym.st_info) == STB_GLOBAL);
	}
	return n > 1 ? 0 : -1;
}

struct listing {
	Dwfl_Module *mod;
	void (*each)(void *ctx, const char *name, uint64_t offset, uint64_t size);
	void *ctx;
};

static void list_stub(void *ctx, const char *name, uint64_t addr, uint64_t size)
{
	const struct listing *l = ctx;
	uint64_t offset;

	if (offset_in_file(l->mod, addr, &offset))
		l->each(l->ctx, name, offset, size);
}

void ana_symbols_each_stub(struct ana_symbols *s, size_t module,
			   void (*each)(void *ctx, const char *name, uint64_t offset,
					uint64_t size),
			   void *ctx)
{
	ANA_LIBDW_WORKS(NULL);
	struct listing l = { ana_symbols_module(s, module), each, ctx };

	if (l.mod)
		ana_symbols_stubs(l.mod, list_stub, &l);
}

char *ana_symbols_demangle(const char *name)
{
#ifdef HAVE_LIBIBERTY
	return name[0] == '_' ? cplus_demangle_v3(name, DMGL_PARAMS | DMGL_ANSI) : NULL;
#else
	(void)name;
	return NULL;
#endif
}

#else

int ana_symbols_each(struct ana_symbols *s, size_t module,
		     void (*each)(void *ctx, const char *name, uint64_t offset, uint64_t size,
				  bool global),
		     void *ctx)
{
	(void)s, (void)module, (void)each, (void)ctx;
	return -1;
}

void ana_symbols_each_stub(struct ana_symbols *s, size_t module,
			   void (*each)(void *ctx, const char *name, uint64_t offset,
					uint64_t size),
			   void *ctx)
{
	(void)s, (void)module, (void)each, (void)ctx;
}

char *ana_symbols_demangle(const char *name)
{
	(void)name;
	return NULL;
}

#endif
