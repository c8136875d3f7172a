/*
 * What an image of the program executed at its start the next one is likely to execute, too: most
 * of that is the dynamic linker and the C library. So each stop for code that was not translated,
 * or for the target of an indirect branch that was in no table, is noted with the module, and when
 * another image comes to that module everything noted is translated in one go, without stops.
 */
#include "recorder/recorder.h"

#include <stdlib.h>
#include <string.h>

/* So much of each module, from its first stops on: later ones are the program's own. */
#define NOTES 256

struct rec_note {
	uint64_t offset; /* in the file */
	bool indirect;
};

static struct rec_module *module_at(struct rec_process *proc, uint64_t pc,
				    const struct dj_mapping **m)
{
	*m = rec_maps_find(proc, pc);
	return *m && (*m)->module >= 0 ? &proc->rec->modules[(*m)->module] : NULL;
}

void rec_ahead_note(struct rec_thread *t, uint64_t pc, bool indirect)
{
	const struct dj_mapping *m;
	struct rec_module *mod = module_at(t->proc, pc, &m);
	if (!mod || mod->n_notes == NOTES)
		return;
	if (!mod->notes) {
		mod->notes = calloc(NOTES, sizeof(*mod->notes));
		DJ_ASSERT(mod->notes, "out of memory for notes");
	}
	mod->notes[mod->n_notes++] = (struct rec_note){ m->offset + (pc - m->start), indirect };
}

/* Which image of the process has been given what is noted of the module. */
static uint64_t *noted_by(struct rec_process *proc, size_t module)
{
	if (module >= proc->n_noted) {
		size_t n = proc->rec->n_modules;
		proc->noted = realloc(proc->noted, n * sizeof(*proc->noted));
		DJ_ASSERT(proc->noted, "out of memory for notes");
		memset(proc->noted + proc->n_noted, 0, (n - proc->n_noted) * sizeof(*proc->noted));
		proc->n_noted = n;
	}
	return &proc->noted[module];
}

void rec_ahead(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	const struct dj_mapping *m;
	struct rec_module *mod = module_at(proc, t->regs.rip, &m);
	struct tr_frag *f;
	uint64_t *noted = mod ? noted_by(proc, (size_t)m->module) : NULL;
	if (!mod || t->area.forked || *noted == proc->image + 1ULL)
		return;
	/* the arena first: it is made where the thread stands */
	if (mod->n_notes && rec_fragment(t, t->regs.rip, &f) == TR_NO_ARENA)
		return;
	*noted = proc->image + 1ULL;
	for (unsigned i = 0; i < mod->n_notes; i++) {
		const struct rec_note *n = &mod->notes[i];
		uint64_t pc = m->start + (n->offset - m->offset);
		if (n->offset < m->offset || pc >= m->end)
			continue;
		if (rec_fragment(t, pc, &f) == TR_FOUND && n->indirect)
			tr_add_indirect(proc->tr, f);
	}
}
