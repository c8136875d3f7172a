/*
 * When the mappings of a process changed, by the numbers of the events that did it.
 *
 * What a thread knows of memory is forgotten when the thread comes to know that other memory is
 * mapped there, which may be long after another thread has mapped it. Who asks what memory holds in
 * the one order of positions asks here whether it is still the same memory.
 */
#ifndef DEJA_REPLAYER_REMAPS_H
#define DEJA_REPLAYER_REMAPS_H

#include "format/trace.h"

struct rp_remaps;

/* Of all processes of a trace, each read from it when it is first asked about. Zero at first. */
struct rp_remaps_of {
	struct rp_remaps **by_process;
	size_t n;
};

/* Whether something was mapped or unmapped at `addr` by an event behind `after`, up to `upto`. No,
 * if there is no memory to know it. */
bool rp_remapped(struct rp_remaps_of *all, struct dj_trace *t, uint32_t process, uint64_t addr,
		 uint64_t after, uint64_t upto);
void rp_remaps_free(struct rp_remaps_of *all);

#endif
