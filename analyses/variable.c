/* Data that a user names (analyses/variable.h). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "analyses/variable.h"
#include "analyses/symbols-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RANGES 4096 /* a trace may map a module as often as it likes */

static int add(struct ana_place_ranges *ranges, const struct ana_place_range *range)
{
	for (size_t i = 0; i < ranges->n; i++)
		if (ranges->r[i].process == range->process && ranges->r[i].start == range->start)
			return 0;
	if (ranges->n == RANGES)
		return 0;
	struct ana_place_range *grown = reallocarray(ranges->r, ranges->n + 1, sizeof(*grown));
	if (!grown)
		return -1;
	ranges->r = grown;
	ranges->r[ranges->n++] = *range;
	return 0;
}

static bool number(const char *text, size_t len, uint64_t *v)
{
	char buf[32], *end;

	if (!len || len >= sizeof(buf) || text[0] < '0' || text[0] > '9')
		return false;
	memcpy(buf, text, len);
	buf[len] = 0;
	errno = 0;
	*v = strtoull(buf, &end, 0);
	return !*end && !errno;
}

/* ---- variables ----------------------------------------------------------------------------------
 */

#ifdef HAVE_LIBDW
/* Where modules were loaded: all that MAP records of a process say. */
struct loading {
	struct ana_job *job;
	size_t module;
	uint64_t addr, size; /* of the variable, as the file has it */
	struct ana_place_ranges *ranges;
};

/* How far a mapping of the module has been moved; false: it is none of a segment. A page of the
 * file may belong to two segments: then it is as far as those before it, `last`, if that is
 * possible. */
static bool moved(const struct loading *l, const struct dj_record *rec, const uint64_t *last,
		  uint64_t *bias)
{
	ANA_LIBDW_WORKS(NULL);
	Dwfl_Module *mod = ana_symbols_module(ana_functions_symbols(l->job->functions), l->module);
	Dwarf_Addr none;
	Elf *elf = mod ? dwfl_module_getelf(mod, &none) : NULL;
	size_t headers = 0;
	bool found = false;
	GElf_Phdr ph;

	if (!elf || elf_getphdrnum(elf, &headers))
		return false;
	for (size_t i = 0; i < headers; i++)
		if (gelf_getphdr(elf, (int)i, &ph) && ph.p_type == PT_LOAD &&
		    rec->offset >= (ph.p_offset & -4096ULL) &&
		    rec->offset < ph.p_offset + ph.p_filesz) {
			uint64_t this = rec->addr - rec->offset + ph.p_offset - ph.p_vaddr;

			if (!found || (last && this == *last))
				*bias = this;
			found = true;
		}
	return found;
}

static int find_loaded(const struct loading *l)
{
	struct dj_trace *t = l->job->t;
	struct dj_error err = { 0 };
	int ret = 0;

	for (size_t i = 0; i < dj_trace_processes(t) && !ret; i++) {
		struct dj_cursor *c = dj_cursor_new_facts(t, i, &err);
		const struct dj_record *rec;
		uint64_t bias = 0, last = 0;
		bool any = false;

		while (c && !ret && (rec = dj_cursor_next(c, &err))) {
			if (rec->kind != DJ_REC_MAP || rec->module != (int32_t)l->module ||
			    !moved(l, rec, any ? &last : NULL, &bias) || (any && bias == last))
				continue;
			any = true;
			last = bias;
			ret = add(l->ranges, &(struct ana_place_range){ .process = (uint32_t)i,
									.start = l->addr + bias,
									.last = l->addr + bias +
										l->size - 1 });
		}
		dj_cursor_free(c);
	}
	return ret;
}

static bool is_called(const char *symbol, const char *name)
{
	if (!strcmp(symbol, name))
		return true;
	if (strncmp(symbol, "_Z", 2) != 0)
		return false;
	char *plain = ana_symbols_demangle(symbol);
	bool same = plain && !strcmp(plain, name);
	free(plain);
	return same;
}

/* -1: out of memory; else how many variables have the name. */
static int variables_in(struct ana_job *job, size_t module, const char *name, uint64_t offset,
			uint64_t length, struct ana_place_ranges *ranges)
{
	ANA_LIBDW_WORKS(NULL);
	Dwfl_Module *mod = ana_symbols_module(ana_functions_symbols(job->functions), module);
	int n = mod ? dwfl_module_getsymtab(mod) : 0, found = 0;

	for (int i = 1; i < n; i++) {
		GElf_Sym sym;
		GElf_Addr addr;
		const char *s = dwfl_module_getsym_info(mod, i, &sym, &addr, NULL, NULL, NULL);

		if (!s || GELF_ST_TYPE(sym.st_info) != STT_OBJECT || sym.st_shndx == SHN_UNDEF ||
		    !is_called(s, name))
			continue;
		struct loading l = { .job = job,
				     .module = module,
				     .addr = addr + offset,
				     .size = length		    ? length
					     : sym.st_size > offset ? sym.st_size - offset
								    : 1,
				     .ranges = ranges };
		if (find_loaded(&l))
			return -1;
		found++;
	}
	return found;
}
#else
static int variables_in(struct ana_job *job, size_t module, const char *name, uint64_t offset,
			uint64_t length, struct ana_place_ranges *ranges)
{
	(void)job;
	(void)module;
	(void)name;
	(void)offset;
	(void)length;
	(void)ranges;
	return 0;
}
#endif

static int variables(struct ana_job *job, const char *word, size_t len, uint64_t length,
		     struct ana_place_ranges *ranges, struct dj_error *err)
{
	const char *plus = memrchr(word, '+', len);
	size_t before = ranges->n;
	uint64_t offset = 0;

	if (plus && !number(plus + 1, (size_t)(word + len - plus - 1), &offset))
		plus = NULL;
	char *name = strndup(word, plus ? (size_t)(plus - word) : len);
	/* the program comes first: what it calls so is meant, not what a library has inside */
	for (size_t i = 0; name && ranges->n == before && i < dj_trace_modules(job->t); i++)
		if (variables_in(job, i, name, offset, length, ranges) < 0) {
			free(name);
			name = NULL;
		}
	if (!name)
		return dj_fail(err, 1, "out of memory");
	free(name);
	return (int)(ranges->n - before);
}

/* ---- the interface ------------------------------------------------------------------------------
 */

int ana_place_ranges_add(struct ana_job *job, struct ana_place_ranges *ranges, const char *word,
			 struct dj_error *err)
{
	const char *colon = strrchr(word, ':'), *dash;
	struct ana_place_range r = { .process = REPLAY_ALL };
	size_t len = strlen(word);
	uint64_t length = 0, end;

	/* C++ has colons in names */
	if (colon && number(colon + 1, strlen(colon + 1), &length)) {
		len = (size_t)(colon - word);
		if (!length)
			return dj_fail(err, 1, "%s: a place of no bytes", word);
	}
	dash = memchr(word, '-', len);
	if (dash && number(word, (size_t)(dash - word), &r.start) &&
	    number(dash + 1, (size_t)(word + len - dash - 1), &end)) {
		if (end <= r.start)
			return dj_fail(err, 1, "%s: the range ends before it begins", word);
		length = end - r.start;
	} else if (!number(word, len, &r.start)) {
		return variables(job, word, len, length, ranges, err);
	}
	r.last = r.start + (length ? length : 1) - 1;
	if (r.last < r.start)
		return dj_fail(err, 1, "%s: beyond the end of memory", word);
	return add(ranges, &r) ? dj_fail(err, 1, "out of memory") : 1;
}

bool ana_place_ranges_have(const struct ana_place_ranges *ranges, uint32_t process, uint64_t addr,
			   uint64_t size, uint64_t *first, uint64_t *length)
{
	for (size_t i = 0; i < ranges->n; i++) {
		const struct ana_place_range *r = &ranges->r[i];

		if (addr > r->last || r->start - addr >= size) {
			if (addr < r->start || addr > r->last)
				continue;
		}
		if (r->process != REPLAY_ALL && r->process != process)
			continue;
		uint64_t last = addr + size - 1 < r->last ? addr + size - 1 : r->last;
		*first = addr > r->start ? addr : r->start;
		*length = last - *first + 1;
		return true;
	}
	return false;
}

bool ana_place_ranges_all(const struct ana_place_ranges *ranges, uint32_t process, uint64_t *first,
			  uint64_t *last)
{
	*first = UINT64_MAX;
	*last = 0;
	for (size_t i = 0; i < ranges->n; i++) {
		const struct ana_place_range *r = &ranges->r[i];

		if (r->process != REPLAY_ALL && r->process != process)
			continue;
		*first = r->start < *first ? r->start : *first;
		*last = r->last > *last ? r->last : *last;
	}
	return *first <= *last;
}

void ana_place_ranges_free(struct ana_place_ranges *ranges)
{
	free(ranges->r);
	*ranges = (struct ana_place_ranges){ 0 };
}
