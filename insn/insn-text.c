/*
 * Text for people: mnemonics from the id list, disassembly by Capstone.
 *
 * Capstone is loaded when there is something to disassemble, which most runs of deja do not: it has
 * tables with 77,000 addresses that are relocated as it is loaded, a third of the time in which
 * deja starts. That works in confined processes, too (cli/confine.h). Without it there is the
 * mnemonic only.
 */
#include "insn/insn.h"

#include <capstone/capstone.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

#define TEXT(x)	 TEXT_(x)
#define TEXT_(x) #x

/* Its functions that are used; `good` if they are there. */
static struct {
	bool good;
	cs_err (*open)(cs_arch arch, cs_mode mode, csh *handle);
	cs_err (*close)(csh *handle);
	cs_err (*option)(csh handle, cs_opt_type type, size_t value);
	size_t (*disasm)(csh handle, const uint8_t *code, size_t size, uint64_t address,
			 size_t count, cs_insn **insn);
	void (*free)(cs_insn *insn, size_t count);
} capstone;

/* One of them; ISO C has no conversion of what dlsym(3) returns. */
static bool find(void *library, const char *name, void *function)
{
	void *at = dlsym(library, name);
	memcpy(function, &at, sizeof(at));
	return at != NULL;
}

static void load(void)
{
	void *library = dlopen("libcapstone.so." TEXT(CS_API_MAJOR), RTLD_NOW | RTLD_LOCAL);
	capstone.good = library && find(library, "cs_open", &capstone.open) &&
			find(library, "cs_close", &capstone.close) &&
			find(library, "cs_option", &capstone.option) &&
			find(library, "cs_disasm", &capstone.disasm) &&
			find(library, "cs_free", &capstone.free);
}

/* What a thread has of Capstone: a handle for each syntax, made when first wanted. */
struct handles {
	csh handle[2];
	bool made[2];
};

static pthread_key_t handles_key;
static pthread_once_t handles_once = PTHREAD_ONCE_INIT;
static bool handles_good;

static void end_handles(void *arg)
{
	struct handles *h = arg;

	for (unsigned i = 0; i < 2; i++)
		if (h->made[i])
			capstone.close(&h->handle[i]);
	free(h);
}

static void begin_handles(void)
{
	load();
	handles_good = capstone.good && pthread_key_create(&handles_key, end_handles) == 0;
}

/* The thread's handle, or NULL. */
static const csh *handle(bool att)
{
	pthread_once(&handles_once, begin_handles);
	struct handles *h = handles_good ? pthread_getspecific(handles_key) : NULL;

	if (handles_good && !h) {
		h = calloc(1, sizeof(*h));
		if (h && pthread_setspecific(handles_key, h)) {
			free(h);
			h = NULL;
		}
	}
	if (h && !h->made[att]) {
		h->made[att] = capstone.open(CS_ARCH_X86, CS_MODE_64, &h->handle[att]) == CS_ERR_OK;
		if (h->made[att])
			capstone.option(h->handle[att], CS_OPT_SYNTAX,
					att ? CS_OPT_SYNTAX_ATT : CS_OPT_SYNTAX_INTEL);
	}
	return h && h->made[att] ? &h->handle[att] : NULL;
}

void insn_text(const struct insn *in, bool att, char *buf, size_t size)
{
	const csh *h = handle(att);
	cs_insn *cs;

	if (h && capstone.disasm(*h, in->bytes, in->len, in->addr, 1, &cs) == 1) {
		if (cs->op_str[0])
			snprintf(buf, size, "%s %s", cs->mnemonic, cs->op_str);
		else
			snprintf(buf, size, "%s", cs->mnemonic);
		capstone.free(cs, 1);
		return;
	}
	snprintf(buf, size, "%s", insn_id_name(in->id));
}
