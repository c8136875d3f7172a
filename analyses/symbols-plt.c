/*
 * Names for the linker's stubs: code in .plt and its like has no symbols, and jumps to where an
 * entry of the table says that a relocation is for. As gdb and objdump do, puts()'s is called
 * "puts@plt".
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "analyses/symbols-internal.h"

#ifdef HAVE_LIBDW

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STUB 16 /* bytes; of some linkers' .plt.got 8 */

/* Where the stub's `jmp *GOT(%rip)` reads its target from: it comes first, but for endbr64 and a
 * prefix. False if it is another instruction, as that of the stub which binds the others. */
static bool table_entry(const uint8_t *code, size_t size, uint64_t addr, uint64_t *entry)
{
	int32_t displacement;
	size_t at = 0;

	if (size >= 4 && !memcmp(code, "\xf3\x0f\x1e\xfa", 4))
		at = 4;
	if (at < size && code[at] == 0xf2)
		at++;
	if (size < at + 6 || code[at] != 0xff || code[at + 1] != 0x25)
		return false;
	memcpy(&displacement, code + at + 2, sizeof(displacement));
	*entry = addr + at + 6 + (uint64_t)(int64_t)displacement;
	return true;
}

/* What the loader writes where. */
struct entry {
	uint64_t at;
	const char *name;
};
struct entries {
	struct entry *e;
	size_t n, cap;
};

static bool add_entry(struct entries *all, uint64_t at, const char *name)
{
	if (all->n == all->cap) {
		size_t cap = all->cap ? 2 * all->cap : 256;
		struct entry *grown = reallocarray(all->e, cap, sizeof(*grown));
		if (!grown)
			return false;
		all->e = grown;
		all->cap = cap;
	}
	all->e[all->n++] = (struct entry){ at, name };
	return true;
}

static void read_relocations(Elf *elf, Elf_Scn *section, const GElf_Shdr *header,
			     struct entries *all)
{
	Elf_Data *data = elf_getdata(section, NULL);
	Elf_Scn *table = elf_getscn(elf, header->sh_link);
	Elf_Data *names = table ? elf_getdata(table, NULL) : NULL;
	GElf_Shdr symbols;
	GElf_Rela rela;
	GElf_Sym sym;

	if (!data || !names || !gelf_getshdr(table, &symbols))
		return;
	for (int i = 0; gelf_getrela(data, i, &rela); i++) {
		uint64_t type = GELF_R_TYPE(rela.r_info);
		if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) ||
		    !gelf_getsym(names, (int)GELF_R_SYM(rela.r_info), &sym))
			continue;
		const char *name = elf_strptr(elf, symbols.sh_link, sym.st_name);
		if (name && *name && !add_entry(all, rela.r_offset, name))
			return;
	}
}

static int by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static void read_stubs(Elf_Scn *section, const GElf_Shdr *header, const struct entries *all,
		       void (*each)(void *ctx, const char *name, uint64_t addr, uint64_t size),
		       void *ctx)
{
	Elf_Data *code = elf_rawdata(section, NULL);
	uint64_t size = header->sh_entsize == 8 ? 8 : STUB;
	char name[256];

	for (uint64_t at = 0; code && code->d_buf && at < code->d_size; at += size) {
		struct entry key = { 0 }, *found;
		if (!table_entry((const uint8_t *)code->d_buf + at, code->d_size - at,
				 header->sh_addr + at, &key.at))
			continue;
		found = bsearch(&key, all->e, all->n, sizeof(*all->e), by_place);
		if (!found)
			continue;
		snprintf(name, sizeof(name), "%s@plt", found->name);
		each(ctx, name, header->sh_addr + at, size);
	}
}

static bool are_stubs(Elf *elf, size_t names, const GElf_Shdr *header)
{
	const char *name = elf_strptr(elf, names, header->sh_name);

	return header->sh_type == SHT_PROGBITS && name && !strncmp(name, ".plt", 4);
}

void ana_symbols_stubs(Dwfl_Module *mod,
		       void (*each)(void *ctx, const char *name, uint64_t addr, uint64_t size),
		       void *ctx)
{
	struct entries all = { 0 };
	Elf_Scn *section = NULL;
	Dwarf_Addr bias;
	Elf *elf = dwfl_module_getelf(mod, &bias);
	GElf_Ehdr file;
	GElf_Shdr header;
	size_t names;

	if (!elf || !gelf_getehdr(elf, &file) || file.e_machine != EM_X86_64 ||
	    elf_getshdrstrndx(elf, &names))
		return;
	while ((section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type == SHT_RELA &&
		    header.sh_flags & SHF_ALLOC)
			read_relocations(elf, section, &header, &all);
	if (all.n)
		qsort(all.e, all.n, sizeof(*all.e), by_place);
	while (all.n && (section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && are_stubs(elf, names, &header))
			read_stubs(section, &header, &all, each, ctx);
	free(all.e);
}

struct asked {
	uint64_t addr, *offset;
	char *name;
	size_t size;
	bool found;
};

static void is_it(void *ctx, const char *name, uint64_t addr, uint64_t size)
{
	struct asked *a = ctx;

	if (a->addr - addr >= size)
		return;
	snprintf(a->name, a->size, "%s", name);
	*a->offset = a->addr - addr;
	a->found = true;
}

bool ana_symbols_stub(Dwfl_Module *mod, uint64_t addr, char *name, size_t size, uint64_t *offset)
{
	struct asked a = { .addr = addr, .offset = offset, .name = name, .size = size };

	ana_symbols_stubs(mod, is_it, &a);
	return a.found;
}

#endif
