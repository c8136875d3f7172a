/* Names for addresses (analyses/symbols.h). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "analyses/symbols.h"
#include "analyses/budget.h"
#include "analyses/image.h"
#include "analyses/perfmap.h"
#include "analyses/symbols-internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_LIBDW
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#ifdef HAVE_LIBIBERTY
#include <libiberty/demangle.h>
#endif

#define SHRINK 32u	   /* a file of that times what it is, not compressed, is believed */
#define SMALL  (16u << 20) /* and of so many bytes */

/* A module as it was loaded once. Its addresses are given to libdw without the bias, so a module
 * needs to be reported once however often and wherever it is mapped. */
struct loaded {
	struct ana_symbols *all;
	int32_t module;
	bool tried;
	Elf *elf;
	Dwfl *dwfl;
	Dwfl_Module *mod;
	Dwarf_Die *cu; /* where an address was found last without a table */
	Dwarf_Addr cu_bias;
};

struct ana_symbols {
	struct replay *r; /* or NULL */
	struct dj_trace *t;
	struct loaded *loaded; /* by number of the module */
	size_t n;
	char *demangled[ANA_PLACES];
	unsigned n_demangled;
	struct ana_perf_map *map; /* of the process that was asked about last */
	uint32_t map_of;	  /* its number, plus 1 */
	char name[64], stub[256];
};

/* A module's file is in the trace. */
static int find_elf(Dwfl_Module *mod, void **userdata, const char *name, Dwarf_Addr base,
		    char **file, Elf **elf)
{
	struct loaded *l = *userdata;

	(void)mod;
	(void)name;
	(void)base;
	*file = NULL;
	*elf = l->elf; /* it is libdw's from now on */
	l->elf = NULL;
	return -1;
}

/* By build id only, in one directory of this machine: no name in a trace leads to a file. */
static int find_debuginfo(Dwfl_Module *mod, void **userdata, const char *name, Dwarf_Addr base,
			  const char *file, const char *link, GElf_Word crc, char **found)
{
	return dwfl_build_id_find_debuginfo(mod, userdata, name, base, file, link, crc, found);
}

static char debug_path[] = "/usr/lib/debug", *debug_paths = debug_path;
static const Dwfl_Callbacks callbacks = {
	.find_elf = find_elf,
	.find_debuginfo = find_debuginfo,
	.debuginfo_path = &debug_paths,
};

/* What its sections say that they are when they are not compressed any more. libelf takes them at
 * their word, and a module is hostile: debug information shrinks to a third or so, never to a
 * hundredth. */
static bool sizes_are_honest(Elf *elf, size_t size)
{
	uint64_t claimed = 0, most = (uint64_t)size * SHRINK + SMALL;
	Elf_Scn *section = NULL;
	GElf_Chdr compressed;
	GElf_Shdr header;

	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, &header) || !(header.sh_flags & SHF_COMPRESSED))
			continue;
		if (!gelf_getchdr(section, &compressed) || compressed.ch_size > most - claimed)
			return false;
		claimed += compressed.ch_size;
	}
	return true;
}

static const char *path_of(const struct ana_symbols *s, size_t module)
{
	return module < s->n ? dj_trace_module(s->t, module)->path : NULL;
}

static void load(struct loaded *l)
{
	struct dj_trace *t = l->all->t;
	struct dj_error err = { 0 };
	size_t size = 0, headers = 0;
	GElf_Phdr ph;
	void **userdata = NULL;
	uint64_t low = UINT64_MAX, high = 0;

	l->tried = true;
	const uint8_t *bytes = dj_trace_module_bytes(t, (size_t)l->module, &size, &err);
	ANA_LIBDW_WORKS(dj_trace_module(t, (size_t)l->module)->path);
	ana_budget_module(size);
	elf_version(EV_CURRENT);
	l->elf = bytes ? elf_memory((char *)(uintptr_t)bytes, size) : NULL;
	if (!l->elf || elf_getphdrnum(l->elf, &headers) || !sizes_are_honest(l->elf, size))
		return;
	for (size_t i = 0; i < headers; i++)
		if (gelf_getphdr(l->elf, (int)i, &ph) && ph.p_type == PT_LOAD) {
			uint64_t begin = ph.p_vaddr & -4096ULL;
			low = begin < low ? begin : low;
			high = ph.p_vaddr + ph.p_memsz > high ? ph.p_vaddr + ph.p_memsz : high;
		}
	l->dwfl = low < high ? dwfl_begin(&callbacks) : NULL;
	if (!l->dwfl)
		return;
	l->mod = dwfl_report_module(l->dwfl, "module", low, high);
	if (l->mod)
		dwfl_module_info(l->mod, &userdata, NULL, NULL, NULL, NULL, NULL, NULL);
	if (userdata)
		*userdata = l;
	else
		l->mod = NULL;
	dwfl_report_end(l->dwfl, NULL, NULL);
}

struct ana_symbols *ana_symbols_of(struct dj_trace *t)
{
	struct ana_symbols *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->t = t;
	s->n = dj_trace_modules(t);
	s->loaded = calloc(s->n + 1, sizeof(*s->loaded));
	if (!s->loaded) {
		free(s);
		return NULL;
	}
	for (size_t i = 0; i < s->n; i++)
		s->loaded[i] = (struct loaded){ .all = s, .module = (int32_t)i };
	return s;
}

struct ana_symbols *ana_symbols_new(struct replay *r)
{
	struct ana_symbols *s = ana_symbols_of(replay_trace(r));

	if (s)
		s->r = r;
	return s;
}

static void forget_names(struct ana_symbols *s)
{
	while (s->n_demangled)
		free(s->demangled[--s->n_demangled]);
}

void ana_symbols_free(struct ana_symbols *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++) {
		if (s->loaded[i].dwfl)
			dwfl_end(s->loaded[i].dwfl);
		if (s->loaded[i].elf)
			elf_end(s->loaded[i].elf);
	}
	forget_names(s);
	ana_perf_map_free(s->map);
	free(s->loaded);
	free(s);
}

static const char *as_in_source(struct ana_symbols *s, const char *name)
{
#ifdef HAVE_LIBIBERTY
	char *readable = name[0] == '_' && s->n_demangled < ANA_PLACES
				 ? cplus_demangle_v3(name, DMGL_PARAMS | DMGL_ANSI)
				 : NULL;

	if (!readable)
		return name;
	s->demangled[s->n_demangled++] = readable;
	return readable;
#else
	(void)s;
	return name;
#endif
}

/* What the debug information calls a function: the compiler's own name, where symbols may have
 * several for one function. NULL if it has none. */
static const char *die_name(struct ana_symbols *s, Dwarf_Die *die)
{
	Dwarf_Attribute attr;
	const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &attr));

	name = name ? name : dwarf_diename(die);
	return name ? as_in_source(s, name) : NULL;
}

static int number(Dwarf_Die *die, unsigned attribute)
{
	Dwarf_Attribute attr;
	Dwarf_Word value = 0;

	if (dwarf_formudata(dwarf_attr(die, attribute, &attr), &value) || value > 1u << 30)
		return 0;
	return (int)value;
}

/* Where the function that was inlined is called. */
static void call_site(Dwarf_Die *cu, Dwarf_Die *inlined, struct ana_place *place)
{
	Dwarf_Files *files;
	size_t n, file = (size_t)number(inlined, DW_AT_call_file);

	place->file = file && !dwarf_getsrcfiles(cu, &files, &n) && file < n
			      ? dwarf_filesrc(files, file, NULL, NULL)
			      : NULL;
	place->line = number(inlined, DW_AT_call_line);
}

/* The scopes around an address, innermost first, by where their code is. (dwarf_getscopes() goes on
 * with where an inlined function was defined.) */
static int scopes_at(struct loaded *l, Dwarf_Die *cu, Dwarf_Addr addr, Dwarf_Die **scopes)
{
	Dwarf_Addr bias;
	Dwarf *dwarf = dwfl_module_getdwarf(l->mod, &bias);
	Dwarf_Die innermost;
	int n = dwarf_getscopes(cu, addr, scopes);

	if (n <= 0)
		return 0;
	bool found = dwarf_offdie(dwarf, dwarf_dieoffset(&(*scopes)[0]), &innermost);
	free(*scopes);
	*scopes = NULL;
	return found ? dwarf_getscopes_die(&innermost, scopes) : 0;
}

/* The unit that the code at an address comes from. A table for that (.debug_aranges) is not what
 * every compiler makes. */
static Dwarf_Die *unit_at(struct loaded *l, uint64_t addr, Dwarf_Addr *bias)
{
	Dwarf_Die *cu = dwfl_module_addrdie(l->mod, addr, bias);

	if (cu)
		return cu;
	if (l->cu && dwarf_haspc(l->cu, addr - l->cu_bias) > 0) {
		*bias = l->cu_bias;
		return l->cu;
	}
	while ((cu = dwfl_module_nextcu(l->mod, cu, bias)))
		if (dwarf_haspc(cu, addr - *bias) > 0) {
			l->cu = cu;
			l->cu_bias = *bias;
			return cu;
		}
	return NULL;
}

/* The line that the code at an address comes from. */
static Dwarf_Line *line_at(struct loaded *l, uint64_t addr)
{
	Dwfl_Line *line = dwfl_module_getsrc(l->mod, addr);
	Dwarf_Addr bias;

	if (line)
		return dwfl_dwarf_line(line, &bias);
	Dwarf_Die *cu = unit_at(l, addr, &bias);
	return cu ? dwarf_getsrc_die(cu, addr - bias) : NULL;
}

/* The functions that were inlined at `addr`, before the one that they were inlined into, whose
 * name is put in if its code begins at `entry` or lies around it. places[0] has the line of `addr`.
 * Returns the index of the latter. */
static size_t inlined_at(struct ana_symbols *s, struct loaded *l, uint64_t addr, uint64_t entry,
			 struct ana_place *places)
{
	Dwarf_Addr bias;
	Dwarf_Die *cu = unit_at(l, addr, &bias), *scopes = NULL;
	int n = cu ? scopes_at(l, cu, addr - bias, &scopes) : 0;
	size_t k = 0;

	for (int i = 0; i < n && k + 1 < ANA_PLACES; i++) {
		if (dwarf_tag(&scopes[i]) == DW_TAG_inlined_subroutine) {
			places[k + 1] = places[k];
			places[k].inlined = true;
			places[k].function = die_name(s, &scopes[i]);
			call_site(cu, &scopes[i], &places[++k]);
		} else if (dwarf_tag(&scopes[i]) == DW_TAG_subprogram) {
			/* a part that was put elsewhere keeps its symbol, which the offset is for
			 */
			if (dwarf_haspc(&scopes[i], entry - bias) > 0 &&
			    !(places[k].function && strstr(places[k].function, ".cold")))
				places[k].function = die_name(s, &scopes[i]);
			break;
		}
	}
	free(scopes);
	return k;
}

static size_t look_up(struct ana_symbols *s, struct loaded *l, uint64_t addr,
		      struct ana_place *places)
{
	GElf_Off off;
	GElf_Sym sym;
	const char *name = dwfl_module_addrinfo(l->mod, addr, &off, &sym, NULL, NULL, NULL);
	Dwarf_Line *line = line_at(l, addr);

	if ((!name || !*name) &&
	    ana_symbols_stub(l->mod, addr, s->stub, sizeof(s->stub), &places->offset))
		places->function = s->stub;
	if (!name || !*name)
		return 1;
	places->function = name;
	places->offset = off;
	/* behind the last line of a piece of code there is none, until the next piece begins */
	bool past = false;
	if (line && !dwarf_lineendsequence(line, &past) && !past) {
		places->file = dwarf_linesrc(line, NULL, NULL);
		dwarf_lineno(line, &places->line);
	}
	size_t last = inlined_at(s, l, addr, addr - off, places);
	if (places[last].function == name)
		places[last].function = as_in_source(s, name);
	return last + 1;
}

/* Code made at run time. */
static void in_no_module(struct ana_symbols *s, uint64_t addr, struct ana_place *place)
{
	struct replay_thread th;

	replay_thread(s->r, &th);
	uint32_t process = dj_trace_thread(s->t, th.number)->process;
	if (s->map_of != process + 1) {
		ana_perf_map_free(s->map);
		s->map = ana_perf_map_new(s->t, process);
		s->map_of = process + 1;
	}
	const struct ana_perf_entry *e = s->map ? ana_perf_map_at(s->map, addr) : NULL;
	if (e) {
		place->function = e->name;
		place->offset = addr - e->start;
	}
}

size_t ana_symbols_at(struct ana_symbols *s, uint64_t addr, struct ana_place places[ANA_PLACES])
{
	struct ana_image image;

	ANA_LIBDW_WORKS(NULL);
	forget_names(s);
	memset(places, 0, sizeof(*places));
	if (!ana_image_at(s->r, addr, &image)) {
		in_no_module(s, addr, places);
		return 1;
	}
	places->offset = addr - image.bias;
	if (image.module < 0 || (size_t)image.module >= s->n) {
		memcpy(s->name, image.name, sizeof(s->name));
		places->module = s->name;
		return 1;
	}
	places->module = dj_trace_module(replay_trace(s->r), (size_t)image.module)->path;
	struct loaded *l = &s->loaded[image.module];
	if (!l->tried)
		load(l);
	return l->mod ? look_up(s, l, addr - image.bias, places) : 1;
}

/* The address that the file gives what lies at an offset in it. */
bool ana_symbols_segment(Dwfl_Module *mod, bool in_file, uint64_t at, GElf_Phdr *ph)
{
	Dwarf_Addr bias;
	Elf *elf = dwfl_module_getelf(mod, &bias);
	size_t headers = 0;

	if (!elf || elf_getphdrnum(elf, &headers))
		return false;
	for (size_t i = 0; i < headers; i++)
		if (gelf_getphdr(elf, (int)i, ph) && ph->p_type == PT_LOAD &&
		    at - (in_file ? ph->p_offset : ph->p_vaddr) < ph->p_filesz)
			return true;
	return false;
}

static bool address_in_file(struct loaded *l, uint64_t offset, uint64_t *addr)
{
	GElf_Phdr ph;
	bool found = ana_symbols_segment(l->mod, true, offset, &ph);

	if (found)
		*addr = offset - ph.p_offset + ph.p_vaddr;
	return found;
}

Dwfl_Module *ana_symbols_module(struct ana_symbols *s, size_t module)
{
	ANA_LIBDW_WORKS(path_of(s, module));

	if (module >= s->n)
		return NULL;
	if (!s->loaded[module].tried)
		load(&s->loaded[module]);
	return s->loaded[module].mod;
}

int ana_symbols_scopes(struct ana_symbols *s, size_t module, uint64_t addr, Dwarf_Die **scopes,
		       Dwarf_Addr *bias)
{
	struct loaded *l = &s->loaded[module];
	Dwarf_Die *cu = ana_symbols_module(s, module) ? unit_at(l, addr, bias) : NULL;

	return cu ? scopes_at(l, cu, addr - *bias, scopes) : 0;
}

bool ana_symbols_address(struct ana_symbols *s, size_t module, uint64_t offset, uint64_t *addr)
{
	return ana_symbols_module(s, module) && address_in_file(&s->loaded[module], offset, addr);
}

size_t ana_symbols_all_in(struct ana_symbols *s, size_t module, uint64_t offset,
			  struct ana_place places[ANA_PLACES])
{
	struct loaded *l = module < s->n ? &s->loaded[module] : NULL;
	uint64_t addr;

	ANA_LIBDW_WORKS(path_of(s, module));
	forget_names(s);
	memset(places, 0, sizeof(*places));
	if (!l)
		return 1;
	places->module = dj_trace_module(s->t, module)->path;
	places->offset = offset;
	if (!l->tried)
		load(l);
	return l->mod && address_in_file(l, offset, &addr) ? look_up(s, l, addr, places) : 1;
}

bool ana_symbols_line(struct ana_symbols *s, size_t module, uint64_t offset, const char **file,
		      int *line)
{
	ANA_LIBDW_WORKS(path_of(s, module));
	struct loaded *l = module < s->n ? &s->loaded[module] : NULL;
	uint64_t addr;

	if (l && !l->tried)
		load(l);
	if (!l || !l->mod || !address_in_file(l, offset, &addr))
		return false;
	Dwarf_Line *found = line_at(l, addr);
	*file = found ? dwarf_linesrc(found, NULL, NULL) : NULL;
	return *file && !dwarf_lineno(found, line) && *line > 0;
}

bool ana_symbols_body(struct ana_symbols *s, size_t module, uint64_t offset, struct ana_body *body)
{
	ANA_LIBDW_WORKS(path_of(s, module));
	struct loaded *l = module < s->n ? &s->loaded[module] : NULL;
	Dwarf_Die *scopes = NULL, *cu;
	Dwarf_Addr bias;
	uint64_t addr;
	int line = 0, own = 0;

	if (l && !l->tried)
		load(l);
	if (!l || !l->mod || !address_in_file(l, offset, &addr))
		return false;
	Dwarf_Line *raw = line_at(l, addr);
	cu = unit_at(l, addr, &bias);
	int n = raw && cu ? scopes_at(l, cu, addr - bias, &scopes) : 0, i = 0;
	while (i < n && dwarf_tag(&scopes[i]) != DW_TAG_subprogram &&
	       dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine)
		i++;
	body->function = NULL;
	body->discriminator = 0;
	if (i < n) {
		Dwarf_Attribute attr;
		Dwarf_Word decl = 0;
		body->function = dwarf_formstring(
			dwarf_attr_integrate(&scopes[i], DW_AT_linkage_name, &attr));
		if (!body->function)
			body->function = dwarf_diename(&scopes[i]);
		if (!dwarf_formudata(dwarf_attr_integrate(&scopes[i], DW_AT_decl_line, &attr),
				     &decl))
			own = (int)decl;
		dwarf_lineno(raw, &line);
		dwarf_linediscriminator(raw, &body->discriminator);
	}
	free(scopes);
	/* sixteen bits, as LLVM has them */
	body->line = (unsigned)(line - own) & 0xffff;
	return body->function && line && own;
}

#else

struct ana_symbols {
	struct replay *r;
	struct dj_trace *t;
	char name[64];
};

struct ana_symbols *ana_symbols_of(struct dj_trace *t)
{
	struct ana_symbols *s = calloc(1, sizeof(*s));

	if (s)
		s->t = t;
	return s;
}

size_t ana_symbols_all_in(struct ana_symbols *s, size_t module, uint64_t offset,
			  struct ana_place places[ANA_PLACES])
{
	memset(places, 0, sizeof(*places));
	if (module < dj_trace_modules(s->t))
		places->module = dj_trace_module(s->t, module)->path;
	places->offset = offset;
	return 1;
}

struct ana_symbols *ana_symbols_new(struct replay *r)
{
	struct ana_symbols *s = ana_symbols_of(replay_trace(r));

	if (s)
		s->r = r;
	return s;
}

void ana_symbols_free(struct ana_symbols *s)
{
	free(s);
}

size_t ana_symbols_at(struct ana_symbols *s, uint64_t addr, struct ana_place place[ANA_PLACES])
{
	struct ana_image image;

	memset(place, 0, sizeof(*place));
	if (!ana_image_at(s->r, addr, &image))
		return 1;
	place->offset = addr - image.bias;
	memcpy(s->name, image.name, sizeof(s->name));
	place->module = image.module < 0
				? s->name
				: dj_trace_module(replay_trace(s->r), (size_t)image.module)->path;
	return 1;
}

bool ana_symbols_body(struct ana_symbols *s, size_t module, uint64_t offset, struct ana_body *body)
{
	(void)s, (void)module, (void)offset, (void)body;
	return false;
}

bool ana_symbols_line(struct ana_symbols *s, size_t module, uint64_t offset, const char **file,
		      int *line)
{
	(void)s, (void)module, (void)offset, (void)file, (void)line;
	return false;
}

#endif

void ana_symbols_in(struct ana_symbols *s, size_t module, uint64_t offset, struct ana_place *place)
{
	struct ana_place places[ANA_PLACES];

	*place = places[ana_symbols_all_in(s, module, offset, places) - 1];
}
