/*
 * Kept translations in a file, from one recording to the next.
 *
 * Whose file that is and who may write to it is the caller's business. Here damage is found. The
 * head says which build of deja wrote it, with which configuration, and what it was about, and must
 * say exactly what it would say now. Behind it there is an index, and then the entries, each with a
 * checksum; what the counts and lengths in one say must fit. The index is not checked: what it
 * leads to is. That the code is still what it was is not taken from the file at all: it is compared
 * when a translation is made again (translate-keep.c).
 *
 * A compiler's file has a hundred megabytes, of which one run may need little. So it is mapped,
 * with a lease: a file that somebody changes or cuts off while it is in use must do no harm. Where
 * there is none it is copied into memory block by block, when something in the block is asked for.
 * (To copy all that cc1 needs took a tenth of the time of its recording.)
 */
#include "format/lease.h"
#include "translator/keep.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC  0x3330706565616a64ULL /* "djaeep03" */
#define FEW    64		     /* new ones: not worth writing a file */
#define PROBES 128		     /* places that are looked at, at most */
#define PLACES (1u << 24)	     /* at most */
#define SMALL  (2u << 20)	     /* read at once, and closed */

struct head {
	uint64_t magic, size; /* of the file */
	uint32_t n, places;   /* a power of two */
	uint8_t id[TR_KEPT_ID];
	uint64_t sum; /* of the head, this being 0 */
};
_Static_assert(sizeof(struct head) % 8 == 0, "the index is aligned");

enum state { UNKNOWN, GOOD, BAD };

/* Of an entry whose head is `head` and that goes on as `k` does. */
static uint64_t sum_of(const struct tr_kept_frag *head, const struct tr_kept_frag *k, size_t size)
{
	uint64_t sum = XXH3_64bits((const uint8_t *)head + sizeof(head->sum),
				   sizeof(*head) - sizeof(head->sum));
	return XXH3_64bits_withSeed(k->data, size - sizeof(*k), sum);
}

uint64_t tr_kept_sum(const struct tr_kept_frag *k, size_t size)
{
	return sum_of(k, k, size);
}

static uint64_t head_sum(const struct head *head)
{
	struct head h = *head;
	h.sum = 0;
	return XXH3_64bits(&h, sizeof(h));
}

/* Where the entries begin. */
static size_t entries(uint32_t places)
{
	size_t at = sizeof(struct head) + places * sizeof(struct kept_index);
	return (at + 15) & ~(size_t)15;
}

/* ---- an entry ---------------------------------------------------------------------------- */

/* Whether counts and lengths are such as there can be. */
static bool sound_head(const struct tr_kept_frag *k)
{
	return k->n && k->n <= FRAG_MAX && k->n_uses && k->n_uses <= USES_MAX &&
	       k->n_numbers <= 1000 && k->n_fixes <= CG_PLACES && k->cold <= CHUNK_COLD &&
	       k->entry < k->hot && k->lag <= TR_LAG_MAX && k->align < 8 &&
	       k->len <= FRAG_MAX * INSN_MAX;
}

/* It depends on a page once. */
static bool sound_uses(const struct tr_kept_frag *k, const struct parts *p)
{
	for (unsigned i = 0; i < k->n_uses; i++)
		for (unsigned j = 0; j < i; j++)
			if (p->uses[i].page == p->uses[j].page)
				return false;
	return true;
}

static bool sound_fixes(const struct tr_kept_frag *k, const struct parts *p)
{
	for (unsigned i = 0; i < k->n_fixes; i++) {
		const struct fix *f = &p->fixes[i];
		size_t size = f->kind == FIX_WHOLE ? 8 : 4;
		if (f->kind > FIX_FACTS || f->at + size > k->hot + k->cold ||
		    (f->at < k->hot && f->at + size > k->hot) ||
		    (f->kind == FIX_NUMBER && (f->to < 0 || f->to >= k->n_numbers)))
			return false;
	}
	return true;
}

/* A jump that will be patched lies within eight aligned bytes. */
static bool sound_numbers(const struct tr_kept_frag *k, const struct parts *p)
{
	for (unsigned i = 0; i < k->n_numbers; i++) {
		const struct kept_number *n = &p->numbers[i];
		if (n->kind > TR_STOP_BRANCH || n->lag > TR_LAG_MAX)
			return false;
		if (n->kind == TR_STOP_LINK &&
		    (n->site + 4 > k->hot || ((k->align + n->site) & 7) > 4 || n->stub >= k->cold))
			return false;
	}
	return true;
}

static bool sound_insns(const struct tr_kept_frag *k, const struct parts *p)
{
	for (unsigned i = 0; i < k->n; i++)
		if (p->insn[i].flags_start > TR_FLAGS_SAVED ||
		    p->insn[i].flags_body > TR_FLAGS_SAVED)
			return false;
	return true;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* These bytes are there, as far as the file has them. */
static void copy(struct kept_file *f, size_t at, size_t len)
{
	for (size_t b = at / KEPT_BLOCK; f->fd >= 0 && b <= (at + len - 1) / KEPT_BLOCK; b++) {
		size_t from = b * KEPT_BLOCK, left = f->size - from;
		if (f->copied[b])
			continue;
		f->copied[b] = true;
		(void)!pread(f->fd, f->bytes + from, left < KEPT_BLOCK ? left : KEPT_BLOCK,
			     (off_t)from);
	}
}

static struct kept_index index_at(struct kept_file *f, uint32_t i)
{
	struct kept_index x;
	size_t at = sizeof(struct head) + i * sizeof(x);
	copy(f, at, sizeof(x));
	memcpy(&x, f->bytes + at, sizeof(x));
	return x;
}

/* The entry that begins there, in units of 16 bytes, if it is sound. */
static struct tr_kept_frag *entry_at(struct kept_file *f, size_t i)
{
	size_t at = i * 16;
	if (at < entries(f->places) || at >= f->size ||
	    f->size - at < sizeof(struct tr_kept_frag) || f->state[i] == BAD)
		return NULL;
	struct tr_kept_frag *k = (struct tr_kept_frag *)(void *)(f->bytes + at);
	if (f->state[i] == GOOD)
		return k;
	f->state[i] = BAD;
	copy(f, at, sizeof(*k));
	if (!sound_head(k) || k->bale >= f->n)
		return NULL;
	struct parts p = parts_of(k);
	if (p.size > f->size - at)
		return NULL;
	copy(f, at, p.size);
	if (tr_kept_sum(k, p.size) != k->sum || !sound_uses(k, &p) || !sound_fixes(k, &p) ||
	    !sound_numbers(k, &p) || !sound_insns(k, &p))
		return NULL;
	f->state[i] = GOOD;
	return k;
}

struct tr_kept_frag *tr_kept_next_in_file(struct tr_kept *kept, const struct tr_kept_frag *k)
{
	size_t at = (size_t)((const uint8_t *)k - kept->file.bytes);
	return entry_at(&kept->file, (at + parts_of((struct tr_kept_frag *)k).size) / 16);
}

struct tr_kept_frag *tr_kept_in_file(struct tr_kept *kept, uint64_t offset, uint64_t pc)
{
	struct kept_file *f = &kept->file;
	uint32_t i = tr_kept_place(offset);
	for (unsigned tries = 0; f->places && tries < PROBES; tries++, i++) {
		struct kept_index x = index_at(f, i & (f->places - 1));
		if (!x.at)
			return NULL;
		if (x.offset != (uint32_t)offset)
			continue;
		struct tr_kept_frag *k = entry_at(f, x.at);
		if (k && tr_kept_usable(k, offset, pc))
			return k;
	}
	return NULL;
}

/* Whole large pages. */
static size_t up(size_t size)
{
	return (size + TR_HUGE - 1) & ~(TR_HUGE - 1);
}

/* Memory for a copy; of a small file, the copy. */
static bool begin_copy(struct kept_file *f, int fd)
{
	f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (f->fd < 0)
		return false;
	f->bytes = f->size > SMALL ? tr_huge(up(f->size)) : calloc(1, f->size);
	f->copied = calloc(f->size / KEPT_BLOCK + 1, sizeof(*f->copied));
	DJ_ASSERT(f->bytes && f->copied, "out of memory for kept translations");
	if (f->size > SMALL)
		return true;
	copy(f, 0, f->size);
	close(f->fd);
	f->fd = -1;
	return true;
}

bool tr_kept_read(struct tr_kept *kept, int fd, size_t size, const uint8_t id[TR_KEPT_ID])
{
	struct kept_file *f = &kept->file;
	struct head h;
	if (f->bytes || pread(fd, &h, sizeof(h), 0) != sizeof(h) || h.magic != MAGIC ||
	    h.size != size || h.sum != head_sum(&h) || memcmp(h.id, id, TR_KEPT_ID) != 0 ||
	    !h.places || h.places & (h.places - 1) || h.places > PLACES || h.n > h.places ||
	    entries(h.places) > size)
		return false;
	f->fd = -1;
	f->size = size;
	f->bytes = size > SMALL ? dj_lease(fd, size) : NULL;
	f->leased = f->bytes;
	if (f->leased)
		tr_warm_read(f->bytes, size);
	if (!f->leased && !begin_copy(f, fd))
		return false;
	f->state = size > 16 * TR_HUGE ? tr_huge(up(size / 16 + 1)) : calloc(1, size / 16 + 1);
	f->bale = calloc(h.n + 1UL, sizeof(*f->bale));
	DJ_ASSERT(f->state && f->bale, "out of memory for kept translations");
	f->places = h.places;
	f->n = h.n;
	return true;
}

void tr_kept_close(struct kept_file *f)
{
	if (f->leased)
		dj_lease_end(f->bytes, f->size);
	else if (f->size > SMALL)
		tr_sparse_free(f->bytes, up(f->size));
	else
		free(f->bytes);
	if (f->size > 16 * TR_HUGE)
		tr_sparse_free(f->state, up(f->size / 16 + 1));
	else
		free(f->state);
	free(f->copied);
	free(f->bale);
	if (f->fd >= 0)
		close(f->fd);
}

/* ---- writing ------------------------------------------------------------------------------ */

/* To write one costs a tenth of translating it anew, which each run would do that needs it. */
bool tr_kept_new_ones(const struct tr_kept *kept)
{
	return kept->n > FEW && kept->n > kept->file.n / 32;
}

/* What goes into a file, in this order. */
struct list {
	struct tr_kept_frag **frag;
	size_t n, bytes, limit;
};

static void take(struct list *l, struct tr_kept_frag *k)
{
	size_t size = parts_of(k).size;
	if (l->bytes + size + 4 * sizeof(struct kept_index) > l->limit)
		return;
	l->frag[l->n++] = k;
	l->bytes += size + 4 * sizeof(struct kept_index);
}

static int by_address(const void *a, const void *b)
{
	const struct tr_kept_frag *const *x = a, *const *y = b;
	return *x < *y ? -1 : *x > *y;
}

/* What this recording had a use for, then what is new, then the rest of the file: as far as there
 * is room. */
static void take_all(struct list *l, struct tr_kept *kept)
{
	struct kept_file *f = &kept->file;
	for (int used = 1; used >= 0; used--) {
		size_t first = l->n;
		for (uint32_t i = 0; i < f->places; i++) {
			struct kept_index x = index_at(f, i);
			struct tr_kept_frag *k = NULL;
			if (x.at && (size_t)x.at * 16 < f->size && (f->state[x.at] == GOOD) == used)
				k = entry_at(f, x.at);
			if (k && !tr_kept_in_memory(kept, k->offset, k->pc))
				take(l, k);
		}
		qsort(l->frag + first, l->n - first, sizeof(*l->frag), by_address);
		for (uint32_t i = 0; used && i < kept->n; i++) {
			struct tr_kept_frag *k = kept->made[i];
			if (tr_kept_in_memory(kept, k->offset, k->pc) == k)
				take(l, k);
		}
	}
}

/* The index of the list; of what finds no place in it nothing leads to the entry. */
static struct kept_index *index_of(const struct list *l, uint32_t places)
{
	struct kept_index *index = calloc(places, sizeof(*index));
	DJ_ASSERT(index, "out of memory for kept translations");
	size_t at = entries(places);
	for (size_t n = 0; n < l->n; n++) {
		uint32_t i = tr_kept_place(l->frag[n]->offset), tries = 0;
		while (index[i & (places - 1)].at && ++tries < PROBES)
			i++;
		if (tries < PROBES)
			index[i & (places - 1)] = (struct kept_index){ (uint32_t)l->frag[n]->offset,
								       (uint32_t)(at / 16) };
		at += parts_of(l->frag[n]).size;
	}
	return index;
}

/* As entry `number`. */
static bool write_entry(const struct tr_kept_frag *k, size_t size, uint32_t number, FILE *to)
{
	struct tr_kept_frag head = *k;
	head.bale = number;
	head.sum = sum_of(&head, k, size);
	return fwrite(&head, sizeof(head), 1, to) == 1 &&
	       fwrite(k->data, size - sizeof(head), 1, to) == 1;
}

bool tr_kept_write(struct tr_kept *kept, const uint8_t id[TR_KEPT_ID], size_t limit, FILE *to)
{
	struct list l = { .limit = limit };
	struct head h = { .magic = MAGIC, .places = 64 };
	static const uint8_t nothing[16];
	l.frag = calloc((size_t)kept->n + kept->file.places + 1, sizeof(*l.frag));
	DJ_ASSERT(l.frag, "out of memory for kept translations");
	take_all(&l, kept);
	while (h.places < 2 * l.n && h.places < PLACES)
		h.places *= 2;
	h.n = (uint32_t)l.n;
	h.size = entries(h.places);
	for (size_t n = 0; n < l.n; n++)
		h.size += parts_of(l.frag[n]).size;
	memcpy(h.id, id, TR_KEPT_ID);
	h.sum = head_sum(&h);
	struct kept_index *index = index_of(&l, h.places);
	size_t gap = entries(h.places) - sizeof(h) - h.places * sizeof(*index);
	bool good = fwrite(&h, sizeof(h), 1, to) == 1 &&
		    fwrite(index, sizeof(*index), h.places, to) == h.places &&
		    fwrite(nothing, 1, gap, to) == gap;
	for (size_t n = 0; n < l.n && good; n++) {
		size_t size = parts_of(l.frag[n]).size;
		good = write_entry(l.frag[n], size, (uint32_t)n, to);
	}
	free(index);
	free(l.frag);
	return good;
}
