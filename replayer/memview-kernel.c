/*
 * What wrote to memory without being mirrored to the shadow: system calls, and instructions of
 * which the emulator does not make the stores. The bytes are not in the trace unless the thread
 * reads them later, so what was known of them is stale.
 *
 * This is about honesty towards a person who looks at memory, not about replaying: what the
 * thread itself reads is imported where it differs. Where a call says in memory how much it may
 * write (an iovec, a length), that memory is asked as it was known before the call
 * (format/calls.h).
 */
#include "format/calls.h"
#include "replayer/memview.h"
#include "replayer/thread.h"

#define MREMAP	 25
#define MADVISE	 28
#define DONTNEED 4

/* Beyond this nobody looks: what one call writes is cut short, with all its buffers together. */
#define STALE_MAX   (64u << 20)
#define NUMBER_COST 2048u

/* The little-endian number of `size` bytes at `at`; false if it is not known. */
static bool number(void *ctx, uint64_t at, unsigned size, uint64_t *v)
{
	struct rp_memview *mv = ctx;
	uint8_t bytes[8];

	*v = 0;
	/* to ask costs something, too */
	mv->stale_left -= mv->stale_left < NUMBER_COST ? mv->stale_left : NUMBER_COST;
	if (!mv->stale_left || rp_memview_read(mv, at, bytes, size) != size)
		return false;
	for (unsigned i = size; i-- > 0;)
		*v = *v << 8 | bytes[i];
	return true;
}

static void wrote(void *ctx, uint64_t addr, uint64_t length)
{
	struct rp_memview *mv = ctx;

	rp_memview_stale(mv, addr, length);
}

bool rp_memview_knows_syscall(const uint64_t *gpr)
{
	return dj_call_is_known(gpr[DJ_RAX], gpr[DJ_RSI]);
}

/* Memory given back: it is as freshly mapped. The snapshot is no word on that. */
static void discard(struct rp_memview *mv, uint64_t addr, uint64_t length)
{
	const struct dj_mapping *m = rp_space_find(mv->th->space, addr);

	if (m && !m->initial)
		rp_memview_forget(mv, addr, length);
	else
		rp_memview_stale(mv, addr, length);
}

void rp_memview_syscall(struct rp_memview *mv, const uint64_t *gpr, uint64_t result)
{
	const struct dj_call call = { .nr = gpr[DJ_RAX],
				      .arg = { gpr[DJ_RDI], gpr[DJ_RSI], gpr[DJ_RDX], gpr[DJ_R10],
					       gpr[DJ_R8], gpr[DJ_R9] },
				      .result = result };
	const struct dj_call_reader reader = { mv, number, wrote };

	if (dj_call_failed(result))
		return;
	mv->stale_left = STALE_MAX;
	mv->in_step = true;
	if (mv->notes)
		mv->notes->event = true;
	if (gpr[DJ_RAX] == MREMAP && result != gpr[DJ_RDI])
		rp_memview_move(mv, gpr[DJ_RDI], result,
				gpr[DJ_RSI] < gpr[DJ_RDX] ? gpr[DJ_RSI] : gpr[DJ_RDX]);
	if (gpr[DJ_RAX] == MADVISE && gpr[DJ_RDX] == DONTNEED)
		discard(mv, gpr[DJ_RDI], gpr[DJ_RSI]);
	dj_call_writes(&call, &reader);
	mv->in_step = false;
	if (mv->notes)
		mv->notes->event = false;
}

void rp_memview_unseen(struct rp_memview *mv, uint64_t addr, unsigned size)
{
	mv->stale_left = size;
	mv->in_step = true;
	rp_memview_stale(mv, addr, size);
	mv->in_step = false;
}
