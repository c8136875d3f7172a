/*
 * Text for people: mnemonics from the id list, disassembly by Capstone.
 */
#include "insn/insn.h"

#include <capstone/capstone.h>
#include <stdio.h>
#include <string.h>

/* Ids whose name in insn-ids.h is not quite the mnemonic. */
static const char *special_name(unsigned id)
{
	switch (id) {
	case INSN_INVALID:
		return "(bad)";
	case INSN_CMPSDX:
		return "cmpsd";
	case INSN_JCC:
		return "jcc";
	case INSN_MOVSEG:
	case INSN_MOVCR:
		return "mov";
	case INSN_JMPFAR:
		return "ljmp";
	case INSN_CALLFAR:
		return "lcall";
	case INSN_RETFAR:
		return "retf";
	case INSN_POPSEG:
		return "pop";
	case INSN_PUSHSEG:
		return "push";
	case INSN_ENDBR:
		return "endbr64";
	}
	return NULL;
}

#define NAME_MAX_LEN 20
static char names[INSN_IDS][NAME_MAX_LEN];

__attribute__((constructor)) static void build_names(void)
{
	/* clang-format off */
	static const char *const upper[] = {
		[INSN_INVALID] = "",
#define X(name) [INSN_##name] = #name,
		INSN_LIST(X)
#undef X
	};
	/* clang-format on */

	for (unsigned id = 0; id < INSN_IDS; id++) {
		const char *s = special_name(id);
		snprintf(names[id], NAME_MAX_LEN, "%s", s ? s : upper[id]);
		for (char *p = names[id]; *p; p++)
			if (*p >= 'A' && *p <= 'Z')
				*p += 'a' - 'A';
	}
}

const char *insn_id_name(unsigned id)
{
	return id < INSN_IDS ? names[id] : names[INSN_INVALID];
}

void insn_text(const struct insn *in, bool att, char *buf, size_t size)
{
	/* a handle for each syntax and thread, made when first wanted */
	static _Thread_local csh handles[2];
	static _Thread_local bool made[2];
	cs_insn *cs;

	if (!made[att]) {
		made[att] = cs_open(CS_ARCH_X86, CS_MODE_64, &handles[att]) == CS_ERR_OK;
		if (made[att])
			cs_option(handles[att], CS_OPT_SYNTAX,
				  att ? CS_OPT_SYNTAX_ATT : CS_OPT_SYNTAX_INTEL);
	}
	if (made[att] && cs_disasm(handles[att], in->bytes, in->len, in->addr, 1, &cs) == 1) {
		if (cs->op_str[0])
			snprintf(buf, size, "%s %s", cs->mnemonic, cs->op_str);
		else
			snprintf(buf, size, "%s", cs->mnemonic);
		cs_free(cs, 1);
		return;
	}
	snprintf(buf, size, "%s", insn_id_name(in->id));
}
