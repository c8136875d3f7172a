/*
 * Notes about what programs stopped for (ahead.c), by module and program: a list in the order in
 * which they came, each with the one that follows in its row; and their form in a file.
 */
#include "recorder/notes.h"
#include "recorder/ahead.h"

#include <stdlib.h>
#include <string.h>

/* So much of each module in a program, from its first stops on. */
#define NOTES 262144
/* Programs, in the notes of a module. */
#define PROGRAMS 32

/* Its place among those that can be found; empty if it is not there. */
static uint32_t *place(const struct rec_notes *notes, const struct rec_note *note)
{
	unsigned size = 2 * notes->cap;
	unsigned i = (unsigned)((2 * note->offset + note->indirect) * 0x9e3779b97f4a7c15ULL >> 40);
	for (i &= size - 1; notes->found[i]; i = (i + 1) & (size - 1)) {
		const struct rec_note *n = &notes->note[notes->found[i] - 1];
		if (n->offset == note->offset && n->indirect == note->indirect)
			break;
	}
	return &notes->found[i];
}

static void grow(struct rec_notes *notes)
{
	notes->cap = notes->cap ? 2 * notes->cap : 64;
	notes->note = realloc(notes->note, notes->cap * sizeof(*notes->note));
	free(notes->found);
	notes->found = calloc(2 * notes->cap, sizeof(*notes->found));
	DJ_ASSERT(notes->note && notes->found, "out of memory for notes");
	for (unsigned i = 0; i < notes->n; i++)
		*place(notes, &notes->note[i]) = i + 1;
}

/* Its number plus 1, also if it was there before; 0 if there is no room. */
unsigned rec_note_add(struct rec_notes *notes, const struct rec_note *note)
{
	if (notes->n == notes->cap && notes->n < NOTES)
		grow(notes);
	uint32_t *at = place(notes, note);
	if (*at || notes->n == NOTES)
		return *at;
	notes->note[notes->n++] = *note;
	return *at = notes->n;
}

static void free_notes(struct rec_notes *notes)
{
	free(notes->note);
	free(notes->found);
	free(notes);
}

/* Add `n` notes, or of these what belongs to the start of programs. Their rows are rows. */
static void add_all(struct rec_notes *notes, const struct rec_note *from, size_t n, bool start)
{
	uint32_t *to = calloc(n + 1, sizeof(*to));
	DJ_ASSERT(to, "out of memory for notes");
	for (size_t i = 0; i < n; i++) {
		struct rec_note note = from[i];
		note.next = 0;
		if (!start || note.start)
			to[i] = rec_note_add(notes, &note);
	}
	for (size_t i = 0; i < n; i++) {
		uint32_t next = from[i].next && from[i].next <= n ? to[from[i].next - 1] : 0;
		if (to[i] && next > to[i] && !notes->note[to[i] - 1].next) /* there are no rings */
			notes->note[to[i] - 1].next = next;
	}
	free(to);
}

/* The notes about a module in a program, which become the last in the list; made if there are none,
 * and then with what is known of the start of others. Where there are too many those go that have
 * not been asked for longest. */
struct rec_notes *rec_notes_of(struct rec_module *mod, uint64_t program)
{
	struct rec_notes **at = &mod->notes, *notes, *first;
	unsigned n = 0;
	for (; *at && (*at)->program != program; at = &(*at)->next)
		n++;
	notes = *at;
	if (notes && !notes->next)
		return notes;
	if (notes) {
		*at = notes->next;
		notes->next = NULL;
	} else {
		notes = calloc(1, sizeof(*notes));
		DJ_ASSERT(notes, "out of memory for notes");
		static uint64_t made;
		notes->program = program;
		notes->serial = ++made;
		first = mod->notes;
		if (first)
			add_all(notes, first->note, first->n, true);
	}
	while (*at)
		at = &(*at)->next;
	*at = notes;
	if (n >= PROGRAMS) {
		first = mod->notes;
		mod->notes = first->next;
		free_notes(first);
	}
	return notes;
}

void rec_notes_free(struct rec_module *mod)
{
	while (mod->notes) {
		struct rec_notes *n = mod->notes;
		mod->notes = n->next;
		free_notes(n);
	}
}

/* ---- from one recording to the next -------------------------------------------------------- */

struct notes_file {
	uint64_t program;
	uint32_t n, faults;
};

void rec_notes_read(struct rec_module *mod, const uint8_t *bytes, size_t size)
{
	struct notes_file f;
	for (size_t at = 0; size - at >= sizeof(f);) {
		memcpy(&f, bytes + at, sizeof(f));
		at += sizeof(f);
		struct rec_notes *notes = rec_notes_of(mod, f.program);
		if (f.n > NOTES || f.n > (size - at) / sizeof(struct rec_note))
			return;
		struct rec_note *all = calloc(f.n + 1, sizeof(*all));
		DJ_ASSERT(all, "out of memory for notes");
		memcpy(all, bytes + at, f.n * sizeof(*all));
		add_all(notes, all, f.n, false);
		at += f.n * sizeof(*all);
		free(all);
		notes->n_read = notes->n;
		notes->faults = notes->faults_read = f.faults;
	}
}

/* Whether the next recording is to expect it: not if none of its images in this one had any. */
static bool faults_of(const struct rec_notes *n)
{
	return n->faults && (n->seen || !n->vain);
}

uint8_t *rec_notes_write(const struct rec_module *mod, size_t head, size_t *size)
{
	bool new = false;
	*size = head;
	for (const struct rec_notes *n = mod->notes; n; n = n->next) {
		*size += sizeof(struct notes_file) + n->n * sizeof(struct rec_note);
		new |= n->n != n->n_read || faults_of(n) != n->faults_read;
	}
	uint8_t *bytes = new ? calloc(1, *size) : NULL, *at = bytes + head;
	for (const struct rec_notes *n = mod->notes; bytes && n; n = n->next) {
		struct notes_file f = { n->program, n->n, faults_of(n) };
		memcpy(at, &f, sizeof(f));
		memcpy(at + sizeof(f), n->note, n->n * sizeof(struct rec_note));
		at += sizeof(f) + n->n * sizeof(struct rec_note);
	}
	return bytes;
}
