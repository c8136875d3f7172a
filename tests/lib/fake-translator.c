/*
 * A translator whose translated code is only addresses: see fake-parts.h for where they lie.
 */
#include "tests/lib/fake-parts.h"
#include "translator/estate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A fragment is its own entry: what tr_fragment() gives out is no pointer to anything. */
struct translator {
	bool arena;
	uint64_t va;
	uint8_t *ours;
};

const struct tr_policy tr_policies[TR_POLICIES];

uint64_t fake_entry(uint64_t pc)
{
	return CACHE + ((pc + 14 - PROGRAM(0)) & ~15ULL);
}

uint64_t fake_pc(uint64_t va)
{
	return PROGRAM(0) + ((va - CACHE) & ~15ULL);
}

struct fake_thread *fake_owner(uint64_t pc, unsigned *action, bool *handler)
{
	struct fake_thread *m = &fake.threads[(pc - PROGRAM(0)) >> 16];
	*handler = (pc & 0xffff) >= 0x8000;
	*action = (unsigned)((pc & 0x7fff) + 14) / 16;
	return m;
}

void *tr_warm_run(void *arg)
{
	return arg;
}

void tr_warm_begin(void)
{
}

void tr_warm_end(void)
{
}

void tr_warm(void *at, size_t size)
{
	(void)at;
	(void)size;
}

struct translator *tr_new(const struct tr_ops *ops, const struct tr_config *config)
{
	(void)ops;
	(void)config;
	return calloc(1, sizeof(struct translator));
}

void tr_free(struct translator *tr)
{
	if (tr && tr->ours)
		munmap(tr->ours, TR_ARENA_SIZE);
	free(tr);
}

enum tr_found tr_fragment(struct translator *tr, uint64_t pc, struct tr_frag **f)
{
	if (!tr->arena)
		return TR_NO_ARENA;
	*f = (struct tr_frag *)(uintptr_t)fake_entry(pc);
	return TR_FOUND;
}

enum tr_found tr_fragment_kept(struct translator *tr, uint64_t pc, struct tr_frag **f)
{
	(void)tr;
	(void)pc;
	*f = NULL;
	return TR_NATIVE;
}

enum tr_found tr_fragment_beside(struct translator *tr, uint64_t pc, struct tr_frag **f)
{
	return tr_fragment_kept(tr, pc, f);
}

bool tr_one_beside(struct translator *tr)
{
	(void)tr;
	return false;
}

uint64_t tr_indirect_entry(const struct tr_frag *f)
{
	(void)f;
	return 0;
}

uint32_t tr_entry_lag(const struct tr_frag *f)
{
	(void)f;
	return 0;
}

uint64_t tr_entry(const struct tr_frag *f)
{
	return (uint64_t)(uintptr_t)f;
}

void tr_add_arena(struct translator *tr, uint64_t va, uint8_t *ours)
{
	if (tr->ours)
		munmap(tr->ours, TR_ARENA_SIZE);
	tr->arena = true;
	tr->va = va;
	tr->ours = ours;
}

bool tr_wants_arena(struct translator *tr, uint64_t pc)
{
	(void)pc;
	return !tr->arena;
}

void tr_drop_arena(struct translator *tr, uint64_t va)
{
	(void)va;
	tr->arena = false;
}

void tr_no_arena(struct translator *tr)
{
	(void)tr;
	fake_fail("no room for an arena");
}

void tr_expect_indirect(struct translator *tr)
{
	(void)tr;
}

bool tr_crowded(const struct translator *tr)
{
	(void)tr;
	return false;
}

void tr_spare(struct translator *tr, unsigned ahead)
{
	(void)tr;
	(void)ahead;
}

struct tr_kept *tr_kept_new(uint64_t *room)
{
	(void)room;
	return NULL;
}

void tr_kept_free(struct tr_kept *kept)
{
	(void)kept;
}

bool tr_kept_read(struct tr_kept *kept, int fd, size_t size, const uint8_t id[TR_KEPT_ID])
{
	(void)kept, (void)fd, (void)size, (void)id;
	return false;
}

bool tr_kept_write(struct tr_kept *kept, const uint8_t id[TR_KEPT_ID], size_t limit, FILE *to)
{
	(void)kept, (void)id, (void)limit, (void)to;
	return false;
}

bool tr_kept_new_ones(const struct tr_kept *kept)
{
	(void)kept;
	return false;
}

void tr_add_indirect(struct translator *tr, struct tr_frag *f)
{
	(void)tr;
	(void)f;
}

uint64_t tr_call_data_out(const struct translator *tr, uint64_t va)
{
	(void)tr;
	(void)va;
	return 0;
}

bool tr_locate_comparison(const struct translator *tr, uint64_t va, struct tr_where *w)
{
	(void)tr;
	(void)va;
	(void)w;
	return false;
}

uint64_t tr_string_singly(const struct translator *tr, uint64_t va)
{
	(void)tr;
	(void)va;
	return 0;
}

const struct tr_stop *tr_stop_of(const struct translator *tr, uint64_t number)
{
	(void)tr;
	(void)number;
	return NULL;
}

const struct tr_stop *tr_stop_at(const struct translator *tr, uint64_t va, uint64_t home,
				 uint32_t *runtime)
{
	static struct tr_stop stop;
	unsigned k;
	bool handler;
	(void)tr;
	(void)home;
	*runtime = 0;
	stop.pc = fake_pc(va);
	const struct fake_thread *m = fake_owner(stop.pc, &k, &handler);
	bool call = handler || m->script[k].kind == FAKE_CALL;
	stop.kind = call ? TR_STOP_SYSCALL : TR_STOP_NATIVE;
	return &stop;
}

uint64_t tr_branch(const struct translator *tr, uint32_t number)
{
	(void)tr;
	(void)number;
	return 0;
}

bool tr_in_cache(const struct translator *tr, uint64_t va)
{
	(void)tr;
	return va >= CACHE && va < CACHE_END;
}

bool tr_locate(const struct translator *tr, uint64_t va, uint64_t rt_ret, struct tr_where *w)
{
	(void)rt_ret;
	memset(w, 0, sizeof(*w));
	if (!tr_in_cache(tr, va) || va >= RT_SYSCALL)
		return false;
	w->pc = fake_pc(va);
	w->boundary = (va & 15) == 0;
	w->spilled = TR_HOME_BIT;
	return true;
}

void tr_sleep(struct translator *tr, uint64_t page)
{
	(void)tr;
	(void)page;
}

void tr_wake(struct translator *tr, uint64_t page, uint64_t changed)
{
	(void)tr;
	(void)page;
	(void)changed;
}

void tr_changed(struct translator *tr, uint64_t page, uint64_t changed)
{
	tr_wake(tr, page, changed);
}

void tr_invalidate(struct translator *tr, uint64_t addr, uint64_t len)
{
	(void)tr;
	(void)addr;
	(void)len;
}

void tr_keep_fault_flags(struct translator *tr)
{
	(void)tr;
}

uint64_t tr_epoch(const struct translator *tr)
{
	(void)tr;
	return 0;
}

void tr_reclaim(struct translator *tr, uint64_t oldest)
{
	(void)tr;
	(void)oldest;
}

bool tr_retired(const struct translator *tr)
{
	(void)tr;
	return true;
}

bool tr_asks(const struct translator *t, uint64_t va)
{
	(void)t, (void)va;
	return false;
}

bool tr_pushes_flags(const struct translator *t, uint64_t va)
{
	(void)t;
	(void)va;
	return false;
}

bool tr_waits(const struct translator *t, uint64_t va)
{
	(void)t, (void)va;
	return false;
}

uint64_t tr_syscall_insn(const struct translator *tr)
{
	return tr->arena ? RT_SYSCALL : 0;
}

uint64_t tr_put_apart(struct translator *tr, unsigned place, const uint8_t *code, size_t len)
{
	(void)code;
	for (unsigned i = 0; i < fake.n_threads; i++) {
		const struct fake_thread *m = &fake.threads[i];
		if (m->alive && m->running && m->regs.rip >= APART(place) &&
		    m->regs.rip < APART(place + 1))
			fake_fail("thread %d loses the instruction that it executes", m->number);
	}
	if (len != 2)
		fake_fail("an instruction of %zu bytes is executed apart", len);
	return tr->arena ? APART(place) : 0;
}

bool tr_arena(const struct translator *tr, unsigned i, uint64_t *at, uint64_t *size)
{
	*at = tr->va;
	*size = TR_ARENA_SIZE;
	return i == 0 && tr->arena;
}

void tr_stats(const struct translator *tr, struct tr_stats *s)
{
	(void)tr;
	memset(s, 0, sizeof(*s));
}

/* What follows is for a program of thousands of fragments, of which there is none here. */

void tr_keep_only(struct translator *tr, tr_each_page *keep, void *ctx)
{
	(void)tr;
	(void)keep;
	(void)ctx;
	abort();
}

void tr_drop_empty_arenas(struct translator *tr)
{
	(void)tr;
	abort();
}

bool tr_pages(struct translator *tr, tr_each_page *each, void *ctx)
{
	(void)tr;
	(void)each;
	(void)ctx;
	abort();
}

bool tr_parked(struct translator *tr, uint64_t first, uint64_t end, tr_each_page *each, void *ctx)
{
	(void)tr;
	(void)first;
	(void)end;
	(void)each;
	(void)ctx;
	abort();
}

void tr_unpark(struct translator *tr, uint64_t first, uint64_t end)
{
	(void)tr;
	(void)first;
	(void)end;
	abort();
}

void tr_take_over(struct translator *tr, const struct tr_ops *ops, uint8_t *tables,
		  uint32_t (*unit)(void *ctx, uint64_t page), void *ctx)
{
	(void)tr;
	(void)ops;
	(void)tables;
	(void)unit;
	(void)ctx;
	abort();
}

uint64_t tr_count(struct translator *tr, tr_each_page *keep, void *ctx)
{
	(void)tr;
	(void)keep;
	(void)ctx;
	abort();
}

bool tr_estate_write(struct translator *tr, const uint8_t id[TR_KEPT_ID], const void *about,
		     size_t n_about, FILE *to)
{
	(void)tr;
	(void)id;
	(void)about;
	(void)n_about;
	(void)to;
	abort();
}

struct tr_estate *tr_estate_open(int fd, size_t size, const uint8_t id[TR_KEPT_ID])
{
	(void)fd;
	(void)size;
	(void)id;
	abort();
}

void tr_estate_close(struct tr_estate *e)
{
	(void)e;
	abort();
}

bool tr_estate_whole(const struct tr_estate *e)
{
	(void)e;
	abort();
}

const void *tr_estate_about(const struct tr_estate *e, size_t *size)
{
	(void)e;
	(void)size;
	abort();
}

bool tr_estate_arena(const struct tr_estate *e, unsigned i, uint64_t *va)
{
	(void)e;
	(void)i;
	(void)va;
	abort();
}

uint32_t tr_estate_fragments(const struct tr_estate *e)
{
	(void)e;
	abort();
}

bool tr_estate_code(const struct tr_estate *e, struct tr_estate_code *c)
{
	(void)e;
	(void)c;
	abort();
}

struct translator *tr_estate_read(struct tr_estate *e, const struct tr_ops *ops,
				  const struct tr_config *config, const struct tr_estate_heir *h)
{
	(void)e;
	(void)ops;
	(void)config;
	(void)h;
	abort();
}
