/*
 * What generated code leaves behind for the memory view.
 *
 * Generated code does not tell of each access, it notes which bytes it has read and written
 * (fast.h). The view learns of that before anything else happens to those bytes that is not an
 * access (a system call has written them, they are unmapped, somebody reads them), and all of it
 * before a checkpoint is taken. What it then knows is what it would have been told by the emulator:
 * which bytes are known, what changed, which lines were met.
 *
 * The notes have 32 bits of an address. To which page they belong the mappings say. Where two
 * mappings share a page of the shadow, or none has it, that cannot be said, and the way from the
 * last checkpoint has to be gone again: rp_trail_gather() answers false.
 *
 * A program in which that happens can be gone through more carefully, and more slowly: a page of
 * the shadow belongs to one page of memory at a time, the one that was accessed last, and generated
 * code is left before an access to another (fast/fast-whose.c). What is noted on it is told then,
 * while the shadow still has it. So whatever writes to the shadow otherwise says so before
 * (rp_trail_comes()).
 */
#ifndef DEJA_REPLAYER_TRAIL_H
#define DEJA_REPLAYER_TRAIL_H

#include <stdbool.h>
#include <stdint.h>

struct rp_memview;
struct rp_thread;
struct rp_trail;

/* Execute the thread, which has a memory view, in generated code from now on; false if that cannot
 * be. It is for ever: for a process of its own. */
bool rp_trail_begin(struct rp_thread *th);
/* Tell the view everything. False: some of it has no place, or two. */
bool rp_trail_gather(struct rp_memview *mv);
/* Whether it is known already that it will not work out. */
bool rp_trail_strays(const struct rp_memview *mv);
/* The thread is about to go to a checkpoint: what has been noted since the last time belongs to
 * where it was. The view is told, so that it knows what to put back, and nothing of it is left. */
void rp_trail_leave(struct rp_memview *mv);
/* The emulator makes an access, which is to be noted as generated code would have noted it. False:
 * it cannot be, the view has to be told. */
bool rp_trail_access(struct rp_memview *mv, uint64_t addr, unsigned size, bool wrote);
/* Tell the view of these bytes: something is about to happen to them. */
void rp_trail_range(struct rp_memview *mv, uint64_t addr, uint64_t length);
/* From now on tell apart what shares a page of the shadow. Right behind rp_trail_leave(). False: it
 * cannot be, or is so already. */
bool rp_trail_tell_apart(struct rp_memview *mv);
/* The page of memory, of which the view knows nothing yet or which has data of its own, is about to
 * be known or written to. */
void rp_trail_comes(struct rp_memview *mv, uint64_t num);
/* Mappings came, or can be accessed in another way. */
void rp_trail_mapped(struct rp_memview *mv);

#endif
