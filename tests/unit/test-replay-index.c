/*
 * test-replay: what is kept beside a trace, and what its checkpoints say where there is little
 * room.
 */
#include "replayer/tail.h"
#include "replayer/wire.h"
#include "tests/unit/test-replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void keep_world(void)
{
	struct dj_error err = { 0 };

	start(600, 1, 1);
	replay_limits(rep, 200, 1000, 1 << 30);
	CU_ASSERT_FATAL(go(world->n - 1));
	CU_ASSERT_EQUAL_FATAL(replay_keep(rep, true, &err), 0);
	CU_ASSERT(rep->cs->n > 50);
}

static void finish_kept(void)
{
	char index[sizeof(path) + 8];

	finish();
	snprintf(index, sizeof(index), "%s.index", path);
	unlink(index);
}

/* Another replay of the world, which has what was kept: at most so many checkpoints, in so many
 * bytes with those of all others. */
static struct replay *load(size_t max, size_t budget)
{
	struct dj_error err = { 0 };
	struct replay *r = replay_open(path, &err);

	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	replay_limits(r, 200, max, budget);
	replay_use_index(r);
	CU_ASSERT_FATAL(r->cs->indexed && r->cs->n > 0);
	return r;
}

/* How many lines that were met between two checkpoints of `few` it denies; `all` has all of them.
 */
static size_t denied(const struct rp_checkpoints *few, const struct rp_checkpoints *all)
{
	size_t i = 0, bad = 0;

	for (size_t k = 0; k < few->n; k++) {
		const struct rp_checkpoint *c = few->list[k];
		for (; i < all->n && rp_thread_pos_cmp(&all->list[i]->pos, &c->pos) <= 0; i++) {
			const struct rp_lines *met = &all->list[i]->lines;
			for (size_t j = 0; j < met->n * LINE_KINDS * 64; j++) {
				const struct rp_line_row *row = &met->list[j / 64 / LINE_KINDS];
				enum rp_line_kind kind = j / 64 % LINE_KINDS;
				uint64_t addr = (row->num * 64 + j % 64)
						<< (kind == LINE_RAN ? 2 : 3);
				bad += row->lines[kind] >> j % 64 & 1 &&
				       !rp_lines_met(&c->lines, kind, addr, addr);
			}
		}
	}
	return bad;
}

/* Where there is no room for all that was kept, what is left says of every line that it was met,
 * and how far history is known. */
void test_index_room(void)
{
	static const struct {
		size_t max, budget;
	} limits[] = {
		{ 1000, 1 << 16 }, { 1000, 1 << 14 }, { 1000, 0 }, { 20, 1 << 30 }, { 2, 1 << 30 }
	};

	keep_world();
	struct replay *all = load(1000, 1 << 30);
	CU_ASSERT(all->cs->n > 50);
	for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]); k++) {
		struct replay *few = load(limits[k].max, limits[k].budget);
		CU_ASSERT(few->cs->n < all->cs->n);
		CU_ASSERT(few->cs->n <= limits[k].max);
		CU_ASSERT_EQUAL(denied(few->cs, all->cs), 0);
		CU_ASSERT(!rp_thread_pos_cmp(&few->cs->list[few->cs->n - 1]->pos,
					     &all->cs->list[all->cs->n - 1]->pos));
		replay_close(few);
	}
	replay_close(all);
	finish_kept();
}

/* ---- what was mapped ---------------------------------------------------------------------------
 */

#define LARGE	 ((size_t)1 << 30)
#define LARGE_AT 0x100000000ULL

static void record(struct dj_stream *s, struct dj_record r)
{
	struct dj_error err;

	r.seq = DJ_SEQ_UNKNOWN;
	CU_ASSERT_FATAL(!dj_stream_record(s, &r, &err));
}

/* A program that maps a gigabyte soon after its beginning, and of that reads so many pages. */
static void write_large(unsigned pages)
{
	static const uint8_t loop[] = { 0xeb, 0xfe }, line[DJ_LINE] = { 1 };
	struct dj_error err = { 0 };
	struct dj_writer *w = write_by_hand();
	struct dj_stream *process = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *s = dj_writer_thread(w, process, 1, "", &err);

	record(s, (struct dj_record){ .kind = DJ_REC_MAP,
				      .addr = 0x400000,
				      .length = 0x1000,
				      .prot = 5,
				      .module = -1 });
	record(s, (struct dj_record){ .kind = DJ_REC_CODE,
				      .addr = 0x400000,
				      .bytes = loop,
				      .length = sizeof(loop) });
	record(s, (struct dj_record){
			  .kind = DJ_REC_REGS, .mask = DJ_REG_ALL, .regs = { .rip = 0x400000 } });
	record(s, (struct dj_record){ .kind = DJ_REC_MAP,
				      .addr = LARGE_AT,
				      .length = LARGE,
				      .prot = 3,
				      .steps = 500,
				      .module = -1 });
	for (uint64_t i = 0; i < pages; i++)
		record(s, (struct dj_record){ .kind = DJ_REC_IMPORT,
					      .addr = LARGE_AT + i * RP_PAGE,
					      .bytes = line,
					      .length = sizeof(line),
					      .steps = 1000 + i });
	record(s, (struct dj_record){ .kind = DJ_REC_EXIT, .steps = 30000 });
	CU_ASSERT_FATAL(!dj_writer_close(w, &(struct dj_trace_end){ .present = true }, &err));
}

/* Of a program that changes more memory than there is room for some checkpoints have it, and the
 * others still say what happened when. */
void test_checkpoints_light(void)
{
	struct dj_error err = { 0 };
	size_t full = 0;

	write_large(4000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep = replay_open(path, &err));
	replay_limits(rep, 50, 1000, 1 << 20);
	CU_ASSERT(!replay_seek(rep, &(struct replay_pos){ .steps = 5000 }, &err));
	for (size_t i = 0; i < rep->cs->n; i++)
		full += !rep->cs->list[i]->light;
	CU_ASSERT(rp_versions_held() > 1 << 20);
	CU_ASSERT(full >= 8 && full < 12);
	CU_ASSERT(rep->cs->n > 90);
	/* their lines may take half of the room, for all threads together */
	rp_lines_hold(1 << 20);
	rp_checkpoints_thin(rep->cs);
	rp_lines_hold(-(1 << 20));
	CU_ASSERT(rep->cs->n < 12);
	replay_close(rep);
	rep = NULL;
	CU_ASSERT_EQUAL(rp_lines_held(), 0);
	unlink(path);
}

/* A thread that begins with a checkpoint that was kept may take as much memory as one that has come
 * there itself, and its checkpoints may: what was mapped before that is in the trace. */
void test_index_mapped(void)
{
	const struct replay_pos far = { .steps = 29000 };
	struct dj_error err = { 0 };
	char index[sizeof(path) + 8];

	const char *memory = getenv("DEJA_MEMORY");
	char *before = memory ? strdup(memory) : NULL;
	unsetenv("DEJA_MEMORY");
	write_large(20000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep = replay_open(path, &err));
	replay_limits(rep, 1000, 1000, 1 << 30);
	CU_ASSERT_FATAL(!replay_seek(rep, &(struct replay_pos){ .steps = 2000 }, &err));
	CU_ASSERT_EQUAL_FATAL(replay_keep(rep, true, &err), 0);
	replay_close(rep);

	rep = load(1000, 1 << 30);
	const struct rp_thread_pos kept = rep->cs->list[rep->cs->n - 1]->pos;
	CU_ASSERT(kept.steps > 500);
	CU_ASSERT_FATAL(!rp_checkpoint_go(rep->cs, &kept, &err));
	CU_ASSERT_EQUAL(rep->th->e->steps, kept.steps);
	/* of another kind than what a replay takes, but taken */
	size_t size = (size_t)600 << 20;
	volatile uint8_t *taken = malloc(size);
	CU_ASSERT_PTR_NOT_NULL_FATAL(taken);
	for (size_t i = 0; i < size; i += RP_PAGE)
		taken[i] = 1;
	rep->patience.due = 0;
	CU_ASSERT_EQUAL(rp_thread_pulse(rep->th, 1), THREAD_LIMIT);
	free((void *)taken);
	CU_ASSERT(rp_thread_claim(rep->th) > LARGE);
	replay_close(rep);

	rep = load(1000, 1 << 30);
	CU_ASSERT(!replay_seek(rep, &far, &err));
	CU_ASSERT(rp_versions_held() > (size_t)70 << 20);
	replay_close(rep);
	rep = NULL;
	if (before)
		setenv("DEJA_MEMORY", before, 1);
	free(before);
	unlink(path);
	snprintf(index, sizeof(index), "%s.index", path);
	unlink(index);
}

/* ---- what a message makes its reader keep ------------------------------------------------------
 */

static void *base_version(void *ctx, uint64_t key)
{
	return rp_memview_base(ctx, key);
}

/* The checkpoint in a message that says of so many pages that they are there, and no more. */
static struct rp_checkpoint *pages_said(size_t n)
{
	struct rp_view_version empty = { .refs = 1 };
	struct rp_checkpoint c = { .space = rep->th->space };
	struct rp_wire w = { 0 };

	c.changes.list = calloc(n, sizeof(*c.changes.list));
	CU_ASSERT_PTR_NOT_NULL_FATAL(c.changes.list);
	for (c.changes.n = 0; c.changes.n < n; c.changes.n++)
		c.changes.list[c.changes.n] =
			(struct rp_change){ .key = rp_key_view(0x10000000 + c.changes.n),
					    .after = &empty };
	rp_wire_put(&w, &c, rep->th->e, c.space);
	free(c.changes.list);
	CU_ASSERT_EQUAL_FATAL(rp_wire_length(w.bytes), w.n);
	struct rp_checkpoint *got =
		rp_wire_get(w.bytes, w.n, rep->th, c.space, base_version, rep->mv);
	free(w.bytes);
	return got;
}

/* Pages that are there, of which there is nothing, take nine bytes of a message: of these it may
 * say that there are many, and not ever more. Nor does who asks for pages that nobody has make any.
 */
void test_wire_pages(void)
{
	start(10, 1, 1);
	CU_ASSERT_FATAL(go(world->n / 2));
	size_t bases = rep->mv->nbases, held = rp_versions_held();
	struct rp_checkpoint *c = pages_said(1000000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	CU_ASSERT(c->changes.n == 1000000);
	rp_checkpoint_free(c);
	CU_ASSERT_PTR_NULL(pages_said(3000000));
	CU_ASSERT_EQUAL(rep->mv->nbases, bases);
	CU_ASSERT_EQUAL(rp_versions_held(), held);
	finish();
}

/* Message after message may name pages that none before has named: of these there is an end, too.
 */
void test_tail_pages(void)
{
	struct rp_tail tail = { 0 };
	uint64_t key = 0;

	for (; !tail.failed && key < 1u << 24; key++)
		rp_tail_set(&tail, rp_key_view(key), NULL);
	CU_ASSERT(tail.failed);
	CU_ASSERT(key > 1u << 22 && tail.size * sizeof(*tail.pages) <= 256u << 20);
	rp_tail_free(&tail);
}
