/*
 * Checkpoints as bytes: see wire.h. Numbers are as this host has them: both sides are one program.
 */
#include "replayer/wire.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC	   0x6a65642d64726f57ULL
#define TOLD_SIZE  offsetof(struct rp_told_bytes, steps)
#define KNOWN_SIZE (RP_WORDS * sizeof(uint64_t))
#define NAME_MOST  4096u
#define PAGES_FREE ((uint64_t)256 << 20) /* bytes for pages, however short their message */

/* What has a size of its own. The arrays follow: changes, lines, mappings, code. */
struct head {
	uint64_t magic, length;
	uint64_t steps, signals;
	struct dj_regs regs;
	uint64_t fences, fence_steps;
	uint64_t exited, status, events, event_steps, signals_total, forks, last_sysno, last_result;
	uint64_t seq, order;
	struct rp_numbers numbers;
	struct dj_mark mark;
	uint64_t light, relative, changes, lines, all_lines;
	uint64_t same_space; /* the mappings are those of the message before; else: */
	uint64_t image_steps, image_seq, image, mappings, code;
};

struct mapping {
	uint64_t start, end, offset;
	uint32_t prot, flags;
	int32_t module;
	uint8_t initial, moved, early, lost;
	uint32_t name; /* so many bytes follow */
};

enum { HAS = 1, HAS_OWN = 2, OWN = 4, KNOWN = 8, STALE = 16, TOLD = 32 };

#define MESSAGES 1u /* changes with what is in them, where sizes stay the same */

uint64_t rp_wire_layout(void)
{
	const uint64_t parts[] = { MESSAGES,
				   sizeof(struct head),
				   sizeof(struct mapping),
				   sizeof(struct rp_line_row),
				   sizeof(struct rp_space_code),
				   sizeof(struct dj_mark),
				   LINE_KINDS,
				   TOLD_SIZE };
	uint64_t sum = 0x0102030405060708; /* as bytes, another number on another kind of host */

	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		sum = (sum << 9 | sum >> 55) ^ parts[i];
	return sum;
}

/* ---- putting --------------------------------------------------------------------------------- */

static void put(struct rp_wire *w, const void *bytes, size_t n)
{
	if (w->n + n > w->cap) {
		size_t cap = 2 * (w->n + n) + 4096;
		uint8_t *grown = realloc(w->bytes, cap);
		if (!grown) {
			w->failed = true;
			return;
		}
		w->bytes = grown;
		w->cap = cap;
	}
	if (n) /* else there need be no bytes at all */
		memcpy(w->bytes + w->n, bytes, n);
	w->n += n;
}

static void put8(struct rp_wire *w, unsigned v)
{
	uint8_t byte = (uint8_t)v;

	put(w, &byte, 1);
}

/* `out` becomes what differs between two. */
static void xor_bytes(uint8_t *out, const uint8_t *a, const uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = a[i] ^ b[i];
}

static void put_bytes(struct rp_wire *w, const struct rp_bytes *b, const struct rp_bytes *before)
{
	size_t at = w->n;

	if (!b)
		return;
	put(w, b->data, b->size);
	if (w->relative && before && !w->failed)
		xor_bytes(w->bytes + at, b->data, before->data, b->size);
}

static void put_change(struct rp_wire *w, const struct rp_change *c)
{
	static const struct rp_view_version none;
	const struct rp_view_version *v = c->after, *old = c->before ? c->before : &none;

	put(w, &c->key, sizeof(c->key));
	if (!(c->key & 1)) {
		put8(w, c->after ? HAS : 0);
		put_bytes(w, c->after, c->before);
		return;
	}
	if (!v) {
		put8(w, 0);
		return;
	}
	put8(w, HAS | (v->has_own ? HAS_OWN : 0) | (v->own ? OWN : 0) | (v->known ? KNOWN : 0) |
			(v->stale ? STALE : 0) | (v->told ? TOLD : 0));
	put_bytes(w, v->own, old->own);
	put_bytes(w, v->known, old->known);
	put_bytes(w, v->stale, old->stale);
	put_bytes(w, v->told, old->told);
}

static void put_mappings(struct rp_wire *w, const struct rp_space *s, struct head *h)
{
	const struct dj_mapping *m = dj_mappings_after(&s->maps, 0, 0);

	for (; m; m = dj_mappings_after(&s->maps, m->end, 0)) {
		struct mapping out = { .start = m->start,
				       .end = m->end,
				       .offset = m->offset,
				       .prot = m->prot,
				       .flags = m->flags,
				       .module = m->module,
				       .initial = m->initial,
				       .moved = m->moved,
				       .early = m->early,
				       .lost = m->lost,
				       .name = (uint32_t)strnlen(m->name, NAME_MOST) };
		put(w, &out, sizeof(out));
		put(w, m->name, out.name);
		h->mappings++;
	}
}

/* Pages of code; those that the other side has already by their numbers only. */
static void put_code(struct rp_wire *w, const struct rp_space *s, const struct rp_space *before)
{
	for (size_t i = 0; i < s->ncode; i++) {
		const struct rp_space_code *c = s->code[i];
		size_t k = rp_space_code_at(before, c->page);
		bool same = k < before->ncode && before->code[k] == c;
		put(w, &c->page, sizeof(c->page));
		put8(w, !same);
		if (!same) {
			put(w, c->data, sizeof(c->data));
			put(w, c->known, sizeof(c->known));
		}
	}
}

/* The registers as a record has them. The emulator's own stay. */
static void put_regs(struct emu *e, const struct rp_checkpoint *c, struct dj_regs *regs)
{
	struct emu_cpu was = e->cpu;

	e->cpu = c->cpu;
	emu_get_regs(e, regs);
	e->cpu = was;
}

void rp_wire_put(struct rp_wire *w, const struct rp_checkpoint *c, struct emu *e,
		 const struct rp_space *before)
{
	struct head h = { .magic = MAGIC,
			  .steps = c->pos.steps,
			  .signals = c->pos.signals,
			  .fences = c->fences,
			  .fence_steps = c->fence_steps,
			  .exited = c->exited,
			  .status = (uint32_t)c->status,
			  .events = c->events,
			  .event_steps = c->event_steps,
			  .signals_total = c->signals_total,
			  .forks = c->forks,
			  .last_sysno = c->last_sysno,
			  .last_result = c->last_result,
			  .seq = c->seq,
			  .order = c->order,
			  .numbers = c->numbers,
			  .mark = c->mark,
			  .light = c->light,
			  .relative = w->relative,
			  .changes = c->changes.n,
			  .lines = c->lines.n,
			  .all_lines = c->lines.all,
			  .same_space = c->space == before };

	put_regs(e, c, &h.regs);
	w->n = 0;
	put(w, &h, sizeof(h));
	for (size_t i = 0; i < c->changes.n; i++)
		put_change(w, &c->changes.list[i]);
	put(w, c->lines.list, c->lines.n * sizeof(*c->lines.list));
	if (!h.same_space) {
		h.image_steps = c->space->image_steps;
		h.image_seq = c->space->image_seq;
		h.image = c->space->image;
		h.code = c->space->ncode;
		put_mappings(w, c->space, &h);
		put_code(w, c->space, before);
	}
	h.length = w->n;
	if (!w->failed)
		memcpy(w->bytes, &h, sizeof(h));
}

/* ---- getting --------------------------------------------------------------------------------- */

struct in {
	const uint8_t *p, *end;
	bool bad, relative;
};

static const void *get(struct in *in, size_t n)
{
	const uint8_t *p = in->p;

	if ((size_t)(in->end - in->p) < n) {
		in->bad = true;
		return NULL;
	}
	in->p += n;
	return p;
}

static bool get_to(struct in *in, void *to, size_t n)
{
	const void *p = get(in, n);

	if (p)
		memcpy(to, p, n);
	return p;
}

const uint8_t rp_wire_good[RP_WIRE_HEAD] = "Deja: good";
const uint8_t rp_wire_bad[RP_WIRE_HEAD] = "Deja: bad";

uint64_t rp_wire_length(const uint8_t head[RP_WIRE_HEAD])
{
	uint64_t v[2];

	if (!memcmp(head, rp_wire_good, RP_WIRE_HEAD) || !memcmp(head, rp_wire_bad, RP_WIRE_HEAD))
		return RP_WIRE_HEAD;
	memcpy(v, head, sizeof(v));
	return v[0] == MAGIC && v[1] >= sizeof(struct head) && v[1] <= RP_WIRE_MOST ? v[1] : 0;
}

static bool get_bytes(struct in *in, bool there, struct rp_bytes **out, struct rp_bytes *like,
		      unsigned size)
{
	const void *p = there ? get(in, size) : NULL;
	uint8_t whole[TOLD_SIZE];

	if (p && in->relative && like) {
		xor_bytes(whole, p, like->data, size);
		p = whole;
	}
	return (!there || p) && rp_bytes_make(out, like, p, size);
}

/* What a page of the view is afterwards. */
static bool get_view(struct in *in, unsigned what, const struct rp_view_version *was, void **out)
{
	static const struct rp_view_version none;
	const struct rp_view_version *old = was ? was : &none;
	struct rp_view_version *v = rp_view_version_new();

	if (!v)
		return false;
	v->has_own = what & HAS_OWN;
	*out = v;
	return get_bytes(in, what & OWN, &v->own, old->own, RP_PAGE) &&
	       get_bytes(in, what & KNOWN, &v->known, old->known, KNOWN_SIZE) &&
	       get_bytes(in, what & STALE, &v->stale, old->stale, KNOWN_SIZE) &&
	       get_bytes(in, what & TOLD, &v->told, old->told, TOLD_SIZE);
}

static bool get_change(struct in *in, struct rp_changes *to, void *(*was)(void *ctx, uint64_t key),
		       void *ctx)
{
	struct rp_change *c = &to->list[to->n];
	struct rp_bytes *page = NULL;
	bool good = true;
	uint8_t what;

	*c = (struct rp_change){ 0 };
	if (!get_to(in, &c->key, sizeof(c->key)) || !get_to(in, &what, sizeof(what)))
		return false;
	if (to->n && c->key <= c[-1].key)
		return false;
	if (c->key & 1 ? c->key >> 1 >= 1ULL << 52 : c->key >> 1 >= 1ULL << 20)
		return false;
	c->before = rp_version_ref(c->key, was(ctx, c->key));
	to->n++; /* from here on it is freed with the list */
	if (c->key & 1) {
		if (what & HAS)
			good = get_view(in, what, c->before, &c->after);
	} else {
		good = get_bytes(in, what & HAS, &page, c->before, RP_PAGE);
		c->after = page;
	}
	return good;
}

static bool get_changes(struct in *in, uint64_t n, struct rp_changes *to,
			void *(*was)(void *ctx, uint64_t key), void *ctx)
{
	const uint64_t left = (uint64_t)(in->end - in->p);

	if (!n) /* of a light one: that has no list, which one that comes later is to replace */
		return true;
	if (n > left / (sizeof(uint64_t) + 1) || n > (left + PAGES_FREE) / RP_WIRE_PAGE ||
	    !rp_changes_room(to, n))
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (!get_change(in, to, was, ctx))
			return false;
	return true;
}

static bool get_lines(struct in *in, uint64_t n, struct rp_lines *to)
{
	if (n > (size_t)(in->end - in->p) / sizeof(*to->list))
		return false;
	to->list = malloc((n + !n) * sizeof(*to->list));
	if (!to->list)
		return false;
	to->n = n;
	rp_lines_hold((ptrdiff_t)(n * sizeof(*to->list)));
	if (!get_to(in, to->list, n * sizeof(*to->list)))
		return false;
	for (uint64_t i = 1; i < n; i++)
		if (to->list[i].num <= to->list[i - 1].num)
			return false;
	return true;
}

static bool get_mapping(struct in *in, struct rp_thread *th, struct rp_space **s)
{
	char name[NAME_MOST + 1];
	struct mapping m;

	if (!get_to(in, &m, sizeof(m)) || m.name > NAME_MOST || !get_to(in, name, m.name))
		return false;
	name[m.name] = 0;
	return !rp_space_map(s,
			     &(struct dj_mapping){ .start = m.start,
						   .end = m.end,
						   .offset = m.offset,
						   .prot = m.prot,
						   .flags = m.flags,
						   .module = m.module,
						   .initial = m.initial != 0,
						   .moved = m.moved != 0,
						   .early = m.early != 0,
						   .lost = m.lost != 0,
						   .name = rp_space_intern(th->names, name) },
			     NULL);
}

static bool get_code(struct in *in, struct rp_space *s, const struct rp_space *before)
{
	struct rp_space_code *c;
	uint64_t page;
	uint8_t fresh;

	if (!get_to(in, &page, sizeof(page)) || !get_to(in, &fresh, sizeof(fresh)))
		return false;
	if (page > UINT64_MAX / CODE_PAGE || (s->ncode && s->code[s->ncode - 1]->page >= page))
		return false;
	if (!fresh) {
		size_t k = rp_space_code_at(before, page);
		if (k == before->ncode || before->code[k]->page != page)
			return false;
		c = before->code[k];
		c->refs++;
	} else {
		c = malloc(sizeof(*c));
		if (!c)
			return false;
		*c = (struct rp_space_code){ .page = page, .refs = 1 };
		get_to(in, c->data, sizeof(c->data));
		get_to(in, c->known, sizeof(c->known));
	}
	s->code[s->ncode++] = c;
	return !in->bad;
}

static struct rp_space *get_space(struct in *in, const struct head *h, struct rp_thread *th,
				  struct rp_space *before)
{
	struct rp_space *s;
	bool good = h->code <= (size_t)(in->end - in->p) / (sizeof(uint64_t) + 1);

	if (h->same_space)
		return rp_space_ref(before);
	s = good ? rp_space_new() : NULL;
	if (!s)
		return NULL;
	s->process = before->process;
	s->image_steps = h->image_steps;
	s->image_seq = h->image_seq;
	s->image = (uint32_t)h->image;
	for (uint64_t i = 0; i < h->mappings && good; i++)
		good = get_mapping(in, th, &s);
	s->code = good ? malloc((h->code + 1) * sizeof(*s->code)) : NULL;
	good = s->code != NULL;
	s->code_cap = good ? h->code : 0;
	for (uint64_t i = 0; i < h->code && good; i++)
		good = get_code(in, s, before);
	if (good)
		return s;
	rp_space_unref(s);
	return NULL;
}

static void get_regs(struct emu *e, const struct dj_regs *regs, struct rp_checkpoint *c)
{
	struct emu_cpu was = e->cpu;
	bool in_rep = e->in_rep;
	uint64_t iter = e->rep_iter;

	memset(&e->cpu, 0, sizeof(e->cpu));
	emu_set_regs(e, regs, DJ_REG_ALL);
	c->cpu = e->cpu;
	e->cpu = was;
	e->in_rep = in_rep;
	e->rep_iter = iter;
}

struct rp_checkpoint *rp_wire_get(const uint8_t *bytes, size_t n, struct rp_thread *th,
				  struct rp_space *before, void *(*was)(void *ctx, uint64_t key),
				  void *ctx)
{
	struct in in = { bytes, bytes + n, false, false };
	struct rp_checkpoint *c;
	struct head h;

	if (!get_to(&in, &h, sizeof(h)))
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	*c = (struct rp_checkpoint){ .pos = { .steps = h.steps, .signals = (uint32_t)h.signals },
				     .fences = h.fences,
				     .fence_steps = h.fence_steps,
				     .exited = h.exited != 0,
				     .status = (int32_t)h.status,
				     .events = h.events,
				     .event_steps = h.event_steps,
				     .signals_total = h.signals_total,
				     .forks = h.forks,
				     .last_sysno = h.last_sysno,
				     .last_result = h.last_result,
				     .seq = h.seq,
				     .order = h.order,
				     .numbers = h.numbers,
				     .mark = h.mark };
	get_regs(th->e, &h.regs, c);
	c->lines.all = h.all_lines != 0;
	c->light = h.light != 0;
	in.relative = h.relative != 0;
	if ((!c->light || !h.changes) && get_changes(&in, h.changes, &c->changes, was, ctx) &&
	    get_lines(&in, h.lines, &c->lines) && (c->space = get_space(&in, &h, th, before)) &&
	    in.p == in.end)
		return c;
	rp_checkpoint_free(c);
	return NULL;
}
