/*
 * Estates: what an image has left (heir.c) goes to the next recording's image of the program.
 *
 * When a recording ends, or has so many heirs that one has to go, what was translated for a program
 * is written down, in the directory where other things are kept (store.c): a file for each program,
 * and another one if its handlers see the flags of faults. The next recording's first image of the
 * program begins with it, as it would with that of an image before it, and all that heir.c and
 * doc/code-cache.md ("Heirs") say holds here. A compiler of which a hundred thousand fragments are
 * wanted has them in a third of the time that it takes to make them of what was kept.
 *
 * Modules have other numbers in the next recording, if they are there at all. So the file says of
 * each which file it was, as store.c does, and it is that module's when such a file is mapped.
 *
 * Too much of it would be worse than nothing, as all of it is read: a shell that was seen to do
 * many things in a month does few of them each time. So a file has at most three times what a
 * single image was seen to make, and what would be more is not written.
 *
 * The code is taken from where programs execute it, and one that gets away from us may write there.
 * So it is written only if its process might do just what deja itself may do, which could write to
 * the directory anyway, and only such a process gets it. doc/security.md has the argument.
 */
#include "recorder/estate.h"
#include "format/thread.h"
#include "recorder/ahead.h"
#include "recorder/area.h"
#include "translator/estate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FEWEST	 1000u	 /* fragments: fewer are made again as soon */
#define MOST	 300000u /* to read so many takes as long as a program's start may */
#define TOGETHER 3u	 /* times what one image needs */
#define MANY	 30000u	 /* they fill large tables, whatever else there is */
_Static_assert(REC_ARENAS <= TR_ESTATE_ARENAS, "an image may have more arenas than a file");

/* What the file says beside what was translated. Behind it: files, ranges. */
struct about {
	uint64_t needed;
	uint32_t files, ranges;
};

struct about_range {
	uint64_t start, end, offset;
	uint32_t file, pad;
};

/* What deja itself may do. */
static uint64_t who_we_are(struct rec_recording *rec)
{
	if (!rec->who)
		rec->who = rec_who(fopen("/proc/self/status", "re"),
				   fopen("/proc/self/attr/current", "re"), "/proc/self/ns/user");
	return rec->who;
}

/* ---- writing ------------------------------------------------------------------------------- */

static struct rec_code_file file_of(const struct rec_module *m)
{
	return (struct rec_code_file){ .dev = m->dev,
				       .ino = m->ino,
				       .size = m->size,
				       .mtime = m->mtime.tv_sec,
				       .mtime_ns = m->mtime.tv_nsec,
				       .ctime = m->ctime.tv_sec,
				       .ctime_ns = m->ctime.tv_nsec };
}

bool rec_range_is_of(const struct rec_recording *rec, struct rec_code_ranges *in,
		     struct rec_code_range *r, int32_t module)
{
	if (r->module != REC_OF_FILE || module < 0)
		return r->module == module;
	struct rec_code_file is = file_of(&rec->modules[module]);
	if (memcmp(&in->file[r->file], &is, sizeof(is)) != 0)
		return false;
	r->module = module;
	return true;
}

/* The same in the file: its number, which is a new one if need be. */
static uint32_t file_number(struct rec_code_ranges *in, const struct rec_code_file *is)
{
	uint32_t i = 0;
	while (i < in->n_files && memcmp(&in->file[i], is, sizeof(*is)) != 0)
		i++;
	if (i == in->n_files)
		in->file[in->n_files++] = *is;
	return i;
}

/* Where the module's number of fragments that its file has is. */
static uint32_t *written(struct rec_recording *rec, int program, bool faults)
{
	return program >= 0 && (size_t)program < rec->n_modules
		       ? &rec->modules[program].estate[faults]
		       : NULL;
}

/* Whether it is worth writing where a file has so many, one image having made so many at most. */
static bool is_more(uint64_t n, uint32_t than, uint64_t needed)
{
	return n >= FEWEST && n <= MOST && n > than + than / 32 && n <= TOGETHER * needed;
}

/* Whether heir.c would keep it. */
static bool is_modules(void *ctx, uint64_t page, uint64_t *sum)
{
	struct rec_process *proc = ctx;
	return rec_range_at(proc->heir.code, page) && rec_code_is_modules(proc, page << 12) &&
	       (*sum || rec_code_bytes(proc, page << 12));
}

bool rec_estate_wanted(struct rec_process *proc, uint64_t made)
{
	struct rec_recording *rec = proc->rec;
	uint64_t needed = made > proc->heir.needed ? made : proc->heir.needed;
	const uint32_t *had = written(rec, proc->program, proc->trap.faults);
	if (!had || proc->heir.copy || !proc->heir.fixed || !rec_store_is_there(rec) ||
	    (proc->heir.had && made <= *had / 32)) /* not to count what is nearly all of that */
		return false;
	proc->heir.code = rec_ranges_of(proc);
	uint64_t n = proc->heir.code ? tr_count(proc->tr, is_modules, proc) : 0;
	free(proc->heir.code);
	proc->heir.code = NULL;
	return is_more(n, *had, needed);
}

static size_t say(struct rec_recording *rec, struct rec_heir *h, void **bytes)
{
	struct rec_code_ranges *in = h->code;
	struct about_range *range = calloc(in->n + 1, sizeof(*range));
	DJ_ASSERT(range, "out of memory for what is left");
	for (unsigned i = 0; i < in->n; i++) {
		const struct rec_code_range *r = &in->range[i];
		DJ_ASSERT(r->module >= 0, "code that is left is of no module of this recording");
		struct rec_code_file is = file_of(&rec->modules[r->module]);
		range[i] = (struct about_range){ .start = r->start,
						 .end = r->end,
						 .offset = r->offset,
						 .file = file_number(in, &is) };
	}
	struct about about = { .needed = h->needed, .files = in->n_files, .ranges = in->n };
	size_t files = in->n_files * sizeof(*in->file), ranges = in->n * sizeof(*range);
	uint8_t *to = malloc(sizeof(about) + files + ranges);
	DJ_ASSERT(to, "out of memory for what is left");
	memcpy(to, &about, sizeof(about));
	memcpy(to + sizeof(about), in->file, files);
	memcpy(to + sizeof(about) + files, range, ranges);
	free(range);
	*bytes = to;
	return sizeof(about) + files + ranges;
}

/* A file that was rewritten is none of which anything is known. */
static bool is_sure(const struct rec_recording *rec, const struct rec_heir *h)
{
	for (unsigned i = 0; i < h->code->n; i++) {
		int32_t m = h->code->range[i].module;
		if (m >= 0 && rec->modules[m].rewritten)
			return false;
	}
	return true;
}

void rec_estate_write(struct rec_recording *rec, struct rec_heir *h)
{
	uint32_t *had = written(rec, h->program, h->faults);
	if (!had || h->copy || !h->fixed || !rec_store_is_there(rec))
		return;
	uint64_t n = tr_count(h->tr, NULL, NULL);
	if (!is_more(n, *had, h->needed) || h->who != who_we_are(rec) || !is_sure(rec, h))
		return;
	void *about;
	size_t size = say(rec, h, &about);
	if (rec_store_write_estate(rec, &rec->modules[h->program], h->faults, h->tr, about, size))
		*had = (uint32_t)n;
	free(about);
}

/* ---- reading ------------------------------------------------------------------------------- */

/* What it says about code; NULL if that cannot be. */
static struct rec_code_ranges *ranges_in(const struct tr_estate *e, uint64_t *needed)
{
	size_t size;
	const uint8_t *bytes = tr_estate_about(e, &size);
	struct about about;
	if (size < sizeof(about))
		return NULL;
	memcpy(&about, bytes, sizeof(about));
	if (about.files > REC_RANGES || !about.ranges || about.ranges > REC_RANGES ||
	    size != sizeof(about) + about.files * sizeof(struct rec_code_file) +
			    about.ranges * sizeof(struct about_range))
		return NULL;
	struct rec_code_ranges *in = calloc(1, sizeof(*in));
	DJ_ASSERT(in, "out of memory for an heir");
	in->n = about.ranges;
	in->n_files = about.files;
	memcpy(in->file, bytes + sizeof(about), about.files * sizeof(*in->file));
	bytes += sizeof(about) + about.files * sizeof(*in->file);
	*needed = about.needed;
	for (unsigned i = 0; i < in->n; i++) {
		struct about_range r;
		memcpy(&r, bytes + i * sizeof(r), sizeof(r));
		in->range[i] = (struct rec_code_range){ .start = r.start,
							.end = r.end,
							.offset = r.offset,
							.module = REC_OF_FILE,
							.file = r.file };
		if (r.file >= about.files || r.start >= r.end || (r.start | r.end) & 0xfff ||
		    r.end > 1ULL << 47) {
			free(in);
			return NULL;
		}
	}
	return in;
}

/* A file for its arenas, laid out as one that is made for a program (area.c), of which so much is
 * there as is needed. */
static bool make_file(struct rec_heir *h, unsigned arenas)
{
	h->memfd = rec_area_file();
	h->tables_off = 0;
	h->window_off = REC_WINDOW_OFF;
	h->own_off = h->window_off + REC_WINDOW_SIZE;
	h->memfd_end = h->own_off + REC_OWN_SIZE;
	h->memfd_size = h->window_off + arenas * TR_ARENA_SIZE;
	return h->memfd >= 0 && !ftruncate(h->memfd, (off_t)h->memfd_size);
}

static uint8_t *map(const struct rec_heir *h, uint64_t off, uint64_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, h->memfd, (off_t)off);
	return p == MAP_FAILED ? NULL : p;
}

static bool make_arenas(struct rec_heir *h, const struct tr_estate *e)
{
	unsigned n = 0;
	while (n < REC_ARENAS && tr_estate_arena(e, n, &h->arena[n].at))
		n++;
	if (!make_file(h, n) || !(h->tables = map(h, 0, AREA_TABLES)))
		return false;
	for (unsigned i = 0; i < n; i++) {
		h->arena[i].ours = map(h, h->window_off + i * TR_ARENA_SIZE, TR_ARENA_SIZE);
		if (!h->arena[i].ours)
			return false;
	}
	return true;
}

/* What another thread does, if there is a processor for it, while the rest is read: half of all. */
struct copying {
	const struct rec_heir *h;
	const struct tr_estate *e;
	bool good;
	pthread_t thread;
	bool apart; /* there is such a thread */
};

/* Code goes to the file, where nothing of ours has to be mapped for it; and whether it was damaged
 * is found out. */
static void *copy(void *arg)
{
	struct copying *c = arg;
	struct tr_estate_code code = { 0 };
	c->good = true;
	while (c->good && tr_estate_code(c->e, &code)) {
		off_t at = (off_t)(c->h->window_off + code.arena * TR_ARENA_SIZE + code.off);
		c->good = !code.size ||
			  pwrite(c->h->memfd, code.bytes, code.size, at) == (ssize_t)code.size;
	}
	c->good = c->good && tr_estate_whole(c->e);
	return NULL;
}

static void begin_copy(struct copying *c, const struct rec_heir *h, const struct tr_estate *e)
{
	*c = (struct copying){ .h = h, .e = e };
	c->apart = h->n > MANY && rec_has_processors() && !dj_thread(&c->thread, copy, c);
}

static uint32_t unit(void *ctx, uint64_t page)
{
	const struct copying *c = ctx;
	return rec_heir_unit(c->h->code, page);
}

static bool ready(void *ctx)
{
	struct copying *c = ctx;
	if (c->apart)
		pthread_join(c->thread, NULL);
	else
		copy(c);
	return c->good;
}

/* The translator, of an heir that has arenas for it; NULL: the file is damaged. */
static struct translator *translator_of(struct rec_thread *t, struct rec_heir *h,
					struct tr_estate *e)
{
	uint8_t *ours[REC_ARENAS];
	struct copying c;
	struct tr_config config = rec_translator_config(t, h->tables);
	const struct tr_ops ops = rec_translator_ops(t->proc);
	const struct tr_estate_heir to = { ours, unit, ready, &c };
	config.large |= h->n > MANY;
	config.policy.fault_flags = h->faults && !config.policy.exact_flags;
	for (unsigned i = 0; i < REC_ARENAS; i++)
		ours[i] = h->arena[i].ours;
	begin_copy(&c, h, e);
	return tr_estate_read(e, &ops, &config, &to);
}

/* What is in the file, if it is of use; NULL: it is not, or cannot be had. The estate is the
 * heir's, or closed. */
static struct rec_heir *heir_of(struct rec_thread *t, struct tr_estate *e,
				const struct rec_code_ranges *now, bool faults)
{
	struct rec_heir *h = calloc(1, sizeof(*h));
	DJ_ASSERT(h, "out of memory for an heir");
	*h = (struct rec_heir){ .memfd = -1,
				.faults = faults,
				.fixed = true,
				.before = true,
				.n = tr_estate_fragments(e),
				.program = t->proc->program };
	h->code = ranges_in(e, &h->needed);
	if (!h->code || !rec_heir_fits(h, t->proc, now, faults) || !make_arenas(h, e))
		tr_estate_close(e);
	else
		h->tr = translator_of(t, h, e);
	if (h->tr)
		return h;
	rec_heir_free(h);
	return NULL;
}

struct rec_heir *rec_estate_find(struct rec_thread *t, const struct rec_code_ranges *now,
				 bool faults)
{
	struct rec_process *proc = t->proc;
	uint32_t *had = written(t->rec, proc->program, faults);
	if (!had || proc->heir.copy || !proc->heir.fixed || !rec_store_is_there(t->rec))
		return NULL;
	struct rec_module *m = &t->rec->modules[proc->program];
	uint64_t who = m->no_estate[faults] ? 0 : rec_who_is(t);
	if (!who || who != who_we_are(t->rec))
		return NULL;
	struct tr_estate *e = rec_store_read_estate(t->rec, m, faults);
	m->no_estate[faults] = !e;
	uint32_t n = e ? tr_estate_fragments(e) : 0;
	struct rec_heir *h = e ? heir_of(t, e, now, faults) : NULL;
	if (h) /* else another one is written, if there is anything */
		*had = n;
	return h;
}
