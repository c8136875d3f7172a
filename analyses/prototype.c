/* What a function takes and gives (analyses/prototype.h). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "analyses/prototype.h"
#include "analyses/symbols-internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_LIBDW
#include <dwarf.h>

#define MAX_DEPTH    32	  /* of types that name types */
#define MAX_CHILDREN 1000 /* that are looked at for parameters */

/* The type behind its names and qualifiers; false: void, or nothing that can be read. */
static bool plain_type(Dwarf_Die *die, Dwarf_Die *type)
{
	Dwarf_Attribute attr;

	if (!dwarf_attr_integrate(die, DW_AT_type, &attr) || !dwarf_formref_die(&attr, type))
		return false;
	for (unsigned depth = 0; depth < MAX_DEPTH; depth++) {
		switch (dwarf_tag(type)) {
		case DW_TAG_typedef:
		case DW_TAG_const_type:
		case DW_TAG_volatile_type:
		case DW_TAG_restrict_type:
		case DW_TAG_atomic_type:
			if (!dwarf_attr_integrate(type, DW_AT_type, &attr) ||
			    !dwarf_formref_die(&attr, type))
				return false;
			break;
		default:
			return true;
		}
	}
	return false;
}

static enum ana_value base_value(Dwarf_Die *type)
{
	Dwarf_Attribute attr;
	Dwarf_Word encoding;

	if (!dwarf_attr_integrate(type, DW_AT_encoding, &attr) || dwarf_formudata(&attr, &encoding))
		return ANA_VALUE_OTHER;
	switch (encoding) {
	case DW_ATE_signed:
	case DW_ATE_signed_char:
		return ANA_VALUE_SIGNED;
	case DW_ATE_unsigned:
	case DW_ATE_unsigned_char:
	case DW_ATE_UTF:
		return ANA_VALUE_UNSIGNED;
	case DW_ATE_boolean:
		return ANA_VALUE_BOOL;
	case DW_ATE_float:
		return ANA_VALUE_FLOAT;
	default:
		return ANA_VALUE_OTHER;
	}
}

static void read_type(Dwarf_Die *die, struct ana_parameter *p)
{
	Dwarf_Word size = 0;
	Dwarf_Die type;

	if (!plain_type(die, &type)) {
		p->value = ANA_VALUE_NONE;
		return;
	}
	switch (dwarf_tag(&type)) {
	case DW_TAG_pointer_type:
	case DW_TAG_reference_type:
	case DW_TAG_rvalue_reference_type:
		p->value = ANA_VALUE_POINTER;
		p->size = 8;
		return;
	case DW_TAG_enumeration_type:
		p->value = ANA_VALUE_SIGNED;
		break;
	case DW_TAG_base_type:
		p->value = base_value(&type);
		break;
	default:
		p->value = ANA_VALUE_OTHER;
	}
	p->size = dwarf_aggregate_size(&type, &size) ? 0 : size;
}

static void read_function(Dwarf_Die *function, struct ana_prototype *proto)
{
	Dwarf_Die child;
	unsigned seen = 0;

	proto->known = true;
	read_type(function, &proto->result);
	if (dwarf_child(function, &child))
		return;
	do {
		int tag = dwarf_tag(&child);

		if (tag == DW_TAG_unspecified_parameters)
			proto->more = true;
		if (tag != DW_TAG_formal_parameter)
			continue;
		if (proto->n == ANA_PARAMETERS) {
			proto->more = true;
			break;
		}
		struct ana_parameter *p = &proto->p[proto->n++];
		Dwarf_Attribute attr;
		const char *name = dwarf_attr_integrate(&child, DW_AT_name, &attr)
					   ? dwarf_formstring(&attr)
					   : NULL;
		snprintf(p->name, sizeof(p->name), "%s", name ? name : "");
		read_type(&child, p);
	} while (!dwarf_siblingof(&child, &child) && ++seen < MAX_CHILDREN);
}

static void read_debug(struct ana_symbols *s, size_t module, uint64_t offset,
		       struct ana_prototype *proto)
{
	ANA_LIBDW_WORKS(NULL);
	Dwfl_Module *mod = ana_symbols_module(s, module);
	Dwarf_Die *scopes = NULL, *cu;
	Dwarf_Addr bias;
	uint64_t addr;

	if (!mod || !ana_symbols_address(s, module, offset, &addr))
		return;
	cu = dwfl_module_addrdie(mod, addr, &bias);
	int n = cu ? dwarf_getscopes(cu, addr - bias, &scopes) : 0;
	for (int i = 0; i < n; i++)
		if (dwarf_tag(&scopes[i]) == DW_TAG_subprogram) {
			read_function(&scopes[i], proto);
			break;
		}
	free(scopes);
}

#else

static void read_debug(struct ana_symbols *s, size_t module, uint64_t offset,
		       struct ana_prototype *proto)
{
	(void)s;
	(void)module;
	(void)offset;
	(void)proto;
}

#endif

/* Functions of the C library that everybody asks for, whose debug information is rarely there:
 * letters for the result and the parameters. */
static const struct {
	const char *name, *types;
	const char *parameters[3];
} common[] = {
	{ "malloc", "pu", { "size" } },
	{ "calloc", "puu", { "nmemb", "size" } },
	{ "realloc", "ppu", { "ptr", "size" } },
	{ "free", "vp", { "ptr" } },
	{ "strlen", "up", { "s" } },
	{ "strcmp", "ipp", { "s1", "s2" } },
	{ "strcpy", "ppp", { "dst", "src" } },
	{ "memcpy", "pppu", { "dest", "src", "n" } },
	{ "memset", "ppiu", { "s", "c", "n" } },
	{ "read", "lipu", { "fd", "buf", "count" } },
	{ "write", "lipu", { "fd", "buf", "count" } },
	{ "close", "ii", { "fd" } },
	{ "exit", "vi", { "status" } },
};

static void set_type(struct ana_parameter *p, char letter)
{
	p->value = letter == 'p'   ? ANA_VALUE_POINTER
		   : letter == 'u' ? ANA_VALUE_UNSIGNED
		   : letter == 'v' ? ANA_VALUE_NONE
				   : ANA_VALUE_SIGNED;
	p->size = letter == 'i' ? 4 : 8;
}

static void read_common(const char *name, struct ana_prototype *proto)
{
	for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
		if (strcmp(common[i].name, name) != 0)
			continue;
		proto->known = true;
		set_type(&proto->result, common[i].types[0]);
		for (; common[i].types[proto->n + 1]; proto->n++) {
			struct ana_parameter *p = &proto->p[proto->n];
			snprintf(p->name, sizeof(p->name), "%s", common[i].parameters[proto->n]);
			set_type(p, common[i].types[proto->n + 1]);
		}
	}
}

void ana_prototype_of(struct ana_symbols *s, size_t module, uint64_t offset,
		      struct ana_prototype *proto)
{
	struct ana_place place;

	memset(proto, 0, sizeof(*proto));
	read_debug(s, module, offset, proto);
	if (proto->known)
		return;
	ana_symbols_in(s, module, offset, &place);
	if (place.function)
		read_common(place.function, proto);
}

/* ---- values ------------------------------------------------------------------------------------
 */

static void value_text(const struct ana_parameter *p, uint64_t v, char *buf, size_t size)
{
	unsigned bits = p->size && p->size < 8 ? (unsigned)p->size * 8 : 64;
	uint64_t low = bits == 64 ? v : v & ((1ULL << bits) - 1);
	double d;
	float f;

	switch (p->value) {
	case ANA_VALUE_SIGNED:
		snprintf(buf, size, "%" PRId64, (int64_t)(low << (64 - bits)) >> (64 - bits));
		break;
	case ANA_VALUE_UNSIGNED:
		snprintf(buf, size, "%" PRIu64, low);
		break;
	case ANA_VALUE_POINTER:
		snprintf(buf, size, "%#" PRIx64, v);
		break;
	case ANA_VALUE_BOOL:
		snprintf(buf, size, "%s", low ? "true" : "false");
		break;
	case ANA_VALUE_FLOAT:
		if (p->size == 4) {
			uint32_t word = (uint32_t)v;
			memcpy(&f, &word, sizeof(f));
			d = f;
		} else {
			memcpy(&d, &v, sizeof(d));
		}
		snprintf(buf, size, "%.9g", d);
		break;
	default:
		snprintf(buf, size, "?");
	}
}

/* Registers and words of the stack that are taken so far. */
struct taken {
	unsigned gpr, xmm, stack;
};

/* Where the next parameter is passed: its value if that is in one piece. */
static bool next_value(const struct ana_parameter *p, const struct ana_entry *e, struct taken *t,
		       uint64_t *v)
{
	unsigned words = (unsigned)((p->size + 7) / 8);

	if (p->value == ANA_VALUE_FLOAT && p->size <= 8 && t->xmm < 8) {
		*v = e->xmm[t->xmm++];
		return true;
	}
	if (p->value != ANA_VALUE_FLOAT && p->size && p->size <= 16 && t->gpr + words <= 6) {
		*v = e->gpr[t->gpr];
		t->gpr += words;
		return words == 1;
	}
	*v = t->stack < ANA_STACK_WORDS ? e->stack[t->stack] : 0;
	bool there = words == 1 && t->stack < ANA_STACK_WORDS;
	t->stack = words < ANA_STACK_WORDS ? t->stack + words : ANA_STACK_WORDS;
	return there;
}

void ana_arguments_text(const struct ana_prototype *proto, const struct ana_entry *e, char *buf,
			size_t size)
{
	static const char *const names[] = { "rdi", "rsi", "rdx", "rcx" };
	struct taken t = { 0 };
	size_t n = 0;

	*buf = 0;
	for (unsigned i = 0; !proto->known && i < 4 && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s=%#" PRIx64, i ? ", " : "", names[i],
				      e->gpr[i]);
	/* a great result is put where a hidden first argument points to */
	if (proto->result.value == ANA_VALUE_OTHER && proto->result.size > 16)
		t.gpr = 1;
	for (unsigned i = 0; i < proto->n && n < size; i++) {
		const struct ana_parameter *p = &proto->p[i];
		char value[40] = "?";
		uint64_t v;

		if (next_value(p, e, &t, &v))
			value_text(p, v, value, sizeof(value));
		n += (size_t)snprintf(buf + n, size - n, "%s%s%s%s", i ? ", " : "", p->name,
				      p->name[0] ? "=" : "", value);
	}
	if (proto->more && n < size)
		snprintf(buf + n, size - n, "%s...", proto->n ? ", " : "");
}

void ana_result_text(const struct ana_prototype *proto, uint64_t rax, uint64_t xmm, char *buf,
		     size_t size)
{
	if (!proto->known)
		snprintf(buf, size, "%#" PRIx64, rax);
	else if (proto->result.value == ANA_VALUE_NONE)
		snprintf(buf, size, "%s", "");
	else
		value_text(&proto->result, proto->result.value == ANA_VALUE_FLOAT ? xmm : rax, buf,
			   size);
}
