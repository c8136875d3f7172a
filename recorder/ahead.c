/*
 * What has to be translated without anybody having stopped for it, because others of its kind did.
 *
 * What an image of a program executes the next one of the same program is likely to, too: a
 * compiler is started again and again. So each stop for code that was not translated, or for the
 * target of an indirect branch that was in no table, is noted with the module and the program, in
 * the order in which they came. When another image of that program makes a stop that was noted,
 * what was noted behind it is translated in one go, without stops: a few at first, more and more of
 * them as long as it goes on as it went then. (Mostly it is only made once more:
 * translator/translate-keep.c.) All at once would be a stop less here and there; but what a
 * compiler was seen to do in a day is ten times what it does with one small file. Of a program that
 * is new there is at least its start, the dynamic linker and the C library's, which is the same for
 * all: what any program stopped for before it came to code of its own.
 *
 * What stands behind a note was executed behind it only within a row, of stops that one image made
 * one behind the other. Images that run at the same time note theirs by turns, so each note says
 * which one follows in its row; a new one follows the stop before it, or the image's last new one,
 * whichever has nothing behind it yet. (When a row was what lay side by side, two compilers of a
 * `make -j2` left rows of a note or two, and the next build stopped for code 51,500 times instead
 * of 7,800.) An image that begins like those before it makes hardly a stop, and of these few some
 * were never noted: they were made along with others until then. Such a note stands before what the
 * same image noted when it left the known path, much later. So translating ahead ends where a row
 * does, and begins with few again there. (When it did not, an `echo` of bash made half as much
 * again as it needs once bash had been seen to do more. A compiler's runs make a third more stops
 * for it, of a thousand, and take the same time or less: they make an eighth less.)
 *
 * Only the first of them are made while the program waits; the rest while it goes on. What was kept
 * is put beside the code that it executes as it would be beside that of another thread
 * (doc/code-cache.md): nothing is recorded for it, and nothing is taken away. The program comes to
 * the rest soon, and may come to a place before we do: then it stops there, as it would have.
 *
 * And what one forked child executes the next one is likely to, too: subshells, workers. What a
 * child had to stop for is noted with the processes that it comes from, by address, and the next
 * child of any of them begins with it. (Tried: giving the child a copy of everything that its
 * parent has. A shell has ten thousand fragments, of which a subshell executes some hundreds, and
 * to copy 13 MB of code and tables took half as long as translating what was needed.)
 */
#include "recorder/ahead.h"
#include "recorder/notes.h"

#include <stdlib.h>
#include <string.h>

/* So many are translated in one go, at first and at last. */
#define FIRST 32u
#define MOST  1024u
/* So many notes at most are translated between two new ones of an image that are in a row. */
#define NEAR MOST
/* So many while the program waits, if it need not wait for all. */
#define AT_FIRST 8u
/* So many are looked at between two looks at what has stopped. */
#define AT_ONCE 16u
/* Runs of which something is left, of a process: the oldest goes. */
#define RESTS 4u

/* Notes of a row: those before `end` (number plus 1, 0: the row has ended) were translated, the
 * last `window` of them at once. */
struct run {
	unsigned end, window;
};

/* Of a process and a module: how far an image has come in its notes, and how far before it last
 * left their order. Where a string begins decides how the C library goes through it: so a stop now
 * and then is one that was noted much later, and what comes after it goes on where it was. */
struct rec_noted {
	uint64_t image; /* plus 1 */
	uint64_t notes; /* which they are: their serial number */
	unsigned last;	/* note that it stopped for, plus 1 */
	unsigned own;	/* the last one that was new, plus 1 */
	unsigned since; /* so many notes were translated ahead since then */
	struct run now, before;
};

/* Of a process: what is left of runs of notes, to be made while it goes on. The newest is last. */
struct rec_rests {
	uint64_t turn;		      /* when something of it was made */
	bool no_room;		      /* for the next, until the process has been in hand again */
	unsigned in_cache, elsewhere; /* so many of its threads; see look_at_threads() */
	unsigned n;
	struct rest {
		uint64_t notes; /* their serial number */
		int32_t module;
		uint64_t base;	    /* of the module: an address minus its offset */
		unsigned at, count; /* the next one, plus 1; so many of them */
	} rest[RESTS];
};

static struct rec_module *module_at(struct rec_process *proc, uint64_t pc,
				    const struct dj_mapping **m)
{
	*m = rec_maps_find(proc, pc);
	return *m && (*m)->module >= 0 ? &proc->rec->modules[(*m)->module] : NULL;
}

/* ---- copies ------------------------------------------------------------------------------- */

/* What children stopped for, of one process. */
#define WANTED 1024

static void want(struct rec_process *proc, uint64_t pc, bool indirect)
{
	if (!proc->wanted) {
		proc->wanted = calloc(WANTED, sizeof(*proc->wanted));
		DJ_ASSERT(proc->wanted, "out of memory for notes");
	}
	for (unsigned i = 0; i < proc->n_wanted; i++)
		if (proc->wanted[i].offset == pc && proc->wanted[i].indirect == indirect)
			return;
	if (proc->n_wanted < WANTED)
		proc->wanted[proc->n_wanted++] =
			(struct rec_note){ .offset = pc, .indirect = indirect };
}

/* If the thread is not in hand it runs, and asks. */
static enum tr_found fragment(struct rec_thread *t, uint64_t pc, struct tr_frag **f)
{
	return t->in_hand ? rec_fragment(t, pc, f) : tr_fragment_beside(t->proc->tr, pc, f);
}

static void translate(struct rec_thread *t, uint64_t pc, bool indirect)
{
	struct tr_frag *f;
	if (indirect)
		tr_expect_indirect(t->proc->tr);
	if (fragment(t, pc, &f) == TR_FOUND && indirect)
		tr_add_indirect(t->proc->tr, f);
}

/* As far as there are arenas for it: once more when there is another one. */
static void ahead_of_copy(struct rec_thread *t)
{
	struct rec_process *proc = t->proc, *from = proc->parent;
	uint64_t at, size;
	unsigned arenas = proc->arenas_noted;
	if (!from || !tr_arena(proc->tr, arenas, &at, &size))
		return;
	while (tr_arena(proc->tr, arenas, &at, &size))
		arenas++;
	proc->arenas_noted = arenas;
	tr_spare(proc->tr, 1);
	for (unsigned i = 0; i < from->n_wanted; i++)
		translate(t, from->wanted[i].offset, from->wanted[i].indirect);
	tr_spare(proc->tr, 0);
}

/* ---- images ------------------------------------------------------------------------------- */

/* Which module the program itself is, and a name for it. */
static uint64_t program_of(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	const struct rec_recording *rec = t->rec;
	if (proc->program >= 0)
		return proc->program_key;
	const char *name = rec_program_path(t);
	proc->program = (int)rec->n_modules; /* none */
	for (size_t i = 0; i < rec->n_modules; i++)
		if (strcmp(rec->modules[i].path, name) == 0)
			proc->program = (int)i;
	proc->program_key = 0xcbf29ce484222325ULL;
	while (*name)
		proc->program_key = (proc->program_key ^ (uint8_t)*name++) * 0x100000001b3ULL;
	return proc->program_key;
}

/* The notes of the program about its own code, or NULL. */
static struct rec_notes *own_notes(struct rec_process *proc)
{
	if (proc->program < 0 || (size_t)proc->program >= proc->rec->n_modules)
		return NULL;
	return rec_notes_of(&proc->rec->modules[proc->program], proc->program_key);
}

void rec_ahead_note_faults(struct rec_process *proc, bool on)
{
	struct rec_notes *notes = own_notes(proc);
	if (!notes)
		return;
	notes->seen |= on;
	notes->vain |= !on;
	notes->faults |= on;
}

bool rec_ahead_faults(struct rec_thread *t)
{
	const struct rec_notes *notes;
	struct rec_recording *rec = t->rec;
	program_of(t);
	if ((size_t)t->proc->program < rec->n_modules)
		rec_module_kept(rec, &rec->modules[t->proc->program]);
	notes = own_notes(t->proc);
	return notes && notes->faults;
}

void rec_ahead_forget(struct rec_process *proc)
{
	for (struct rec_process *p = proc->rec->processes; p; p = p->next)
		if (p->parent == proc)
			p->parent = NULL;
	proc->parent = NULL;
	proc->n_wanted = 0;
	proc->program = -1;
	proc->own_code = false;
	proc->stopped = NULL;
	free(proc->rests);
	proc->rests = NULL;
}

/* How far the process's image has come with the module's notes: not at all, if those that it knew
 * have been forgotten and begun again since. */
static struct rec_noted *noted_by(struct rec_process *proc, size_t module,
				  const struct rec_notes *notes)
{
	if (module >= proc->n_noted) {
		size_t n = proc->rec->n_modules;
		proc->noted = realloc(proc->noted, n * sizeof(*proc->noted));
		DJ_ASSERT(proc->noted, "out of memory for notes");
		memset(proc->noted + proc->n_noted, 0, (n - proc->n_noted) * sizeof(*proc->noted));
		proc->n_noted = n;
	}
	struct rec_noted *noted = &proc->noted[module];
	if (noted->image != proc->image + 1ULL || noted->notes != notes->serial)
		*noted = (struct rec_noted){ .image = proc->image + 1ULL, .notes = notes->serial };
	return noted;
}

/* False if there is something else behind it already, or it is no note. */
static bool link_to(struct rec_notes *notes, unsigned last, unsigned at)
{
	DJ_ASSERT(last < at, "note %u is not before note %u", last, at);
	if (!last || notes->note[last - 1].next)
		return false;
	notes->note[last - 1].next = at;
	return true;
}

void rec_ahead_note(struct rec_thread *t, uint64_t pc, bool indirect)
{
	struct rec_process *proc = t->proc;
	const struct dj_mapping *m;
	for (struct rec_process *p = proc->parent; p; p = p->parent)
		want(p, pc, indirect);
	struct rec_module *mod = t->area.forked ? NULL : module_at(proc, pc, &m);
	if (!mod)
		return;
	uint64_t program = program_of(t);
	proc->own_code |= m->module == proc->program;
	struct rec_notes *notes = rec_notes_of(mod, program);
	struct rec_noted *noted = noted_by(proc, (size_t)m->module, notes);
	struct rec_note note = { .offset = m->offset + (pc - m->start),
				 .indirect = indirect,
				 .start = !proc->own_code };
	unsigned before = notes->n, at = rec_note_add(notes, &note);
	bool made = notes->n != before;
	if (made) {
		/* it goes on in the row of the stop before, or else in its own last one, if that
		 * ends there */
		if (!link_to(notes, noted->last, at) && noted->since <= NEAR)
			link_to(notes, noted->own, at);
		noted->own = at;
		noted->since = 0;
	}
	noted->last = at;
	proc->stopped = made ? NULL : notes;
	proc->stopped_at = at;
}

static bool is_ahead(const struct rec_notes *notes, const struct run *r, unsigned at)
{
	unsigned n = r->end;
	for (unsigned i = 0; n && n != at && i < r->window; i++)
		n = notes->note[n - 1].next;
	return n && n == at;
}

/* How many notes of its row are to be translated after the stop for `at`, that included. */
static unsigned go_on_from(const struct rec_notes *notes, struct rec_noted *noted, unsigned at)
{
	if (!is_ahead(notes, &noted->now, at)) {
		struct run left = noted->now;
		noted->now =
			is_ahead(notes, &noted->before, at) ? noted->before : (struct run){ 0 };
		noted->before = left;
	}
	unsigned window = noted->now.end ? 2 * noted->now.window : FIRST;
	window = window < MOST ? window : MOST;
	unsigned count = 0;
	for (; at && count < window; count++)
		at = notes->note[at - 1].next;
	noted->now = (struct run){ at, window };
	noted->since += count;
	return count;
}

/* ---- while the program goes on ------------------------------------------------------------- */

/* The run's `count` notes from `at` on are left for later. */
static void leave(struct rec_process *proc, const struct rec_notes *notes,
		  const struct dj_mapping *m, unsigned at, unsigned count)
{
	struct rec_rests *r = proc->rests;
	if (!r)
		r = proc->rests = calloc(1, sizeof(*r));
	DJ_ASSERT(r, "out of memory for notes");
	if (r->n == RESTS)
		memmove(r->rest, r->rest + 1, --r->n * sizeof(*r->rest));
	r->rest[r->n++] = (struct rest){ .notes = notes->serial,
					 .module = m->module,
					 .base = m->start - m->offset,
					 .at = at,
					 .count = count };
	proc->rec->rests = true;
}

/* Whether the note is among those that are left. */
static bool is_left(const struct rec_process *proc, const struct rec_notes *notes, unsigned at)
{
	for (unsigned i = 0; proc->rests && i < proc->rests->n; i++) {
		const struct rest *o = &proc->rests->rest[i];
		unsigned n = o->notes == notes->serial ? o->at : 0;
		for (unsigned k = 0; n && n != at && k < o->count; k++)
			n = notes->note[n - 1].next;
		if (n && n == at)
			return true;
	}
	return false;
}

/* The notes that it is about, if they are still there. */
static const struct rec_notes *notes_left(const struct rec_recording *rec, const struct rest *o)
{
	const struct rec_notes *n = rec->modules[o->module].notes;
	while (n && n->serial != o->notes)
		n = n->next;
	return n;
}

static bool is_left_to_make(const struct rec_process *proc)
{
	const struct rec_rests *r = proc->rests;
	return r && r->n && !r->no_room;
}

/* Whether all its threads execute translated code, or wait in calls that they made there: none is
 * about to change what is mapped. */
static bool goes_on(const struct rec_process *proc)
{
	const struct rec_rests *r = proc->rests;
	return r->in_cache && !r->elsewhere && !proc->leaving && !proc->gather.by && proc->tr;
}

/* Of all those of which something is left. */
static void look_at_threads(struct rec_recording *rec)
{
	for (struct rec_process *p = rec->processes; p; p = p->next)
		if (p->rests)
			p->rests->in_cache = p->rests->elsewhere = 0;
	for (const struct rec_thread *t = rec->threads; t; t = t->next) {
		struct rec_rests *r = t->proc->rests;
		if (!r || t->state == REC_GONE)
			continue;
		if (t->state == REC_CACHE && !t->in_hand && t->group == t->proc)
			r->in_cache++;
		else
			r->elsewhere++;
	}
}

/* What the note is about, if it was kept. False if there is no room for it as things stand. */
static bool make_beside(struct rec_process *proc, const struct rest *o, const struct rec_note *n)
{
	uint64_t pc = o->base + n->offset;
	const struct dj_mapping *m = rec_maps_find(proc, pc);
	struct tr_frag *f;
	if (!m || m->module != o->module || m->offset + (pc - m->start) != n->offset)
		return true;
	if (n->indirect)
		tr_expect_indirect(proc->tr);
	enum tr_found found = tr_fragment_kept(proc->tr, pc, &f);
	if (found == TR_FOUND && n->indirect)
		tr_add_indirect(proc->tr, f);
	return found != TR_NO_ARENA;
}

/* Some of what is left of the process's runs, the newest first. */
static void some(struct rec_process *proc)
{
	struct rec_rests *r = proc->rests;
	struct rest *o = &r->rest[r->n - 1];
	const struct rec_notes *notes = notes_left(proc->rec, o);
	struct tr_stats before, now;
	tr_stats(proc->tr, &before);
	tr_spare(proc->tr, TR_AHEAD);
	for (unsigned i = 0; notes && o->at && o->count && i < AT_ONCE; i++) {
		const struct rec_note *n = &notes->note[o->at - 1];
		if (!make_beside(proc, o, n)) {
			r->no_room = true;
			break;
		}
		o->at = n->next;
		o->count--;
		tr_stats(proc->tr, &now);
		if (now.kept != before.kept)
			break;
	}
	tr_spare(proc->tr, 0);
	tr_stats(proc->tr, &now);
	proc->rec->counts[REC_COUNT_BESIDE] += now.kept - before.kept;
	if (!notes || !o->at || !o->count)
		r->n--;
}

bool rec_ahead_beside(struct rec_recording *rec)
{
	struct rec_process *next = NULL, *p = rec->processes;
	while (p && !is_left_to_make(p))
		p = p->next;
	rec->rests = p;
	if (!p)
		return false;
	look_at_threads(rec);
	for (; p; p = p->next)
		if (is_left_to_make(p) && goes_on(p) &&
		    (!next || p->rests->turn < next->rests->turn))
			next = p;
	if (!next)
		return false;
	static uint64_t turns;
	next->rests->turn = ++turns;
	some(next);
	return true;
}

void rec_ahead(struct rec_thread *t)
{
	if (t->area.forked)
		ahead_of_copy(t);
	else
		rec_ahead_asked(t, t->regs.rip);
}

void rec_ahead_asked(struct rec_thread *t, uint64_t pc)
{
	struct rec_process *proc = t->proc;
	if (t->area.forked)
		return;
	if (proc->rests && proc->rests->n) {
		proc->rests->no_room = false;
		t->rec->rests = true;
	}
	const struct dj_mapping *m;
	const struct rec_notes *notes = proc->stopped;
	struct rec_module *mod = notes ? module_at(proc, pc, &m) : NULL;
	struct tr_frag *f;
	/* they may be others by now, in the same place */
	if (!mod || notes != rec_notes_of(mod, program_of(t)) || !proc->stopped_at ||
	    proc->stopped_at > notes->n)
		return;
	/* the arena first: it is made where the thread stands */
	if (fragment(t, pc, &f) == TR_NO_ARENA)
		return;
	proc->stopped = NULL;
	struct rec_noted *noted = noted_by(proc, (size_t)m->module, notes);
	unsigned at = proc->stopped_at;
	bool left = is_left(proc, notes, at);
	unsigned count = left ? AT_FIRST : go_on_from(notes, noted, at);
	if (tr_crowded(proc->tr)) /* all would go when it is full, and be made ahead anew */
		count = 0;
	unsigned now = count > AT_FIRST && rec_has_processors() ? AT_FIRST : count;
	tr_spare(proc->tr, TR_AHEAD);
	for (; now && at; now--, count--) {
		const struct rec_note *n = &notes->note[at - 1];
		uint64_t to = m->start + (n->offset - m->offset);
		if (n->offset >= m->offset && to < m->end)
			translate(t, to, n->indirect);
		at = n->next;
	}
	tr_spare(proc->tr, 0);
	if (count && at && !left)
		leave(proc, notes, m, at, count);
}
