/*
 * test-replay: what is kept beside a trace, and what its checkpoints say where there is little
 * room.
 */
#include "tests/unit/test-replay.h"

#include <stdio.h>
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
 * bytes more than are held already. */
static struct replay *load(size_t max, size_t room)
{
	struct dj_error err = { 0 };
	struct replay *r = replay_open(path, &err);

	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	replay_limits(r, 200, max, rp_versions_held() + room);
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
		size_t max, room;
	} limits[] = {
		{ 1000, 1 << 16 }, { 1000, 1 << 14 }, { 1000, 0 }, { 20, 1 << 30 }, { 2, 1 << 30 }
	};

	keep_world();
	struct replay *all = load(1000, 1 << 30);
	CU_ASSERT(all->cs->n > 50);
	for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]); k++) {
		struct replay *few = load(limits[k].max, limits[k].room);
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
