/*
 * The program's code, decoded: each instruction once, until its page changes. Relies on being told
 * of changes (tr_invalidate), except to code that says of itself that it may change unheard.
 */
#include "translator/cache.h"

static const uint64_t *generation_of(const struct translator *tr, uint64_t page)
{
	return &tr->generation[page % GENERATIONS];
}

uint64_t tr_generation(const struct translator *tr, uint64_t page)
{
	return *generation_of(tr, page) + tr->every;
}

/* Of the one or two pages an instruction may lie in; grows if that of either does. */
static uint64_t generation_at(const struct translator *tr, uint64_t pc)
{
	return tr_generation(tr, pc >> 12) + tr_generation(tr, (pc + INSN_MAX - 1) >> 12);
}

struct tr_decoded *tr_decode(struct translator *tr, uint64_t pc)
{
	struct tr_decoded *d = &tr->decoded[(pc * 0x9e3779b97f4a7c15ULL) >> 52];
	uint64_t generation = generation_at(tr, pc);
	if (d->insn.len && d->insn.addr == pc && d->generation == generation)
		return d;
	uint8_t buf[INSN_MAX];
	size_t got = tr->ops.read_code(tr->ops.ctx, pc, buf, sizeof(buf), &d->changing);
	if (!got || insn_decode(&d->insn, buf, got, pc) <= 0) {
		d->insn.len = 0;
		return NULL;
	}
	d->live_known = false;
	d->generation = generation;
	return d;
}

void tr_forget_decoded(struct translator *tr, uint64_t addr, uint64_t len)
{
	uint64_t first = addr >> 12, last = (addr + len - 1) >> 12;
	if (last - first >= GENERATIONS) {
		tr->every++;
		return;
	}
	for (uint64_t page = first; page <= last; page++)
		tr->generation[page % GENERATIONS]++;
}
