/*
 * Which system calls write to the caller's memory, and where: one table for the recorder, which
 * keeps what they wrote for people to look at (recorder/calldata.c), and for the replayer, which
 * has to know what it no longer knows (replayer/memview-kernel.c).
 *
 * It is about x86-64 Linux. Nothing depends on its being complete or exact but what a debugger can
 * show: what the program itself reads is recorded when it reads it.
 */
#ifndef DEJA_FORMAT_CALLS_H
#define DEJA_FORMAT_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a call writes to where argument `arg` points. */
enum dj_call_how {
	DJ_CALL_FIXED,	 /* `size` bytes */
	DJ_CALL_RESULT,	 /* `size` bytes for each one it returned; no more than argument `other`
			    says,  unless that is the first */
	DJ_CALL_COUNT,	 /* `size` bytes for each one in argument `other` */
	DJ_CALL_PAGES,	 /* a byte for each page of the length in argument `other` */
	DJ_CALL_BITS,	 /* as many bits as argument `other` says, in whole words */
	DJ_CALL_LENGTH,	 /* as many bytes as the 32-bit word at argument `other` says */
	DJ_CALL_IOVEC,	 /* an array of struct iovec, argument `other` says how many; what it
			    returned in all */
	DJ_CALL_MSGHDR,	 /* struct msghdr; what it returned in all */
	DJ_CALL_MMSGHDR, /* an array of struct mmsghdr, as many as it returned */
	DJ_CALL_IOCTL,	 /* as argument `other`, the number of the request, says */
	DJ_CALL_FCNTL,	 /* the same */
	DJ_CALL_PRCTL,
	DJ_CALL_ARCH_PRCTL,
};

struct dj_call_write {
	uint16_t nr;
	uint8_t arg, how;
	uint16_t size;
	uint8_t other;
};

/* What ioctl writes whose number does not say how much. */
struct dj_call_ioctl {
	uint16_t request, size;
};

/* A call that was made. */
struct dj_call {
	uint64_t nr, arg[6], result;
};

/* Who wants to know what it wrote. */
struct dj_call_reader {
	void *ctx;
	/* The little-endian number of `size` bytes at `at`; false if it is not known, or enough has
	 * been looked at. */
	bool (*number)(void *ctx, uint64_t at, unsigned size, uint64_t *value);
	/* It wrote there. */
	void (*wrote)(void *ctx, uint64_t addr, uint64_t length);
};

/* All rows, those of a call in a row; the requests. */
const struct dj_call_write *dj_call_table(size_t *n);
const struct dj_call_ioctl *dj_call_ioctls(size_t *n);
/* Whether the call failed. */
static inline bool dj_call_failed(uint64_t result)
{
	return result > -4096ULL;
}
/* What the call wrote, which has not failed. */
void dj_call_writes(const struct dj_call *c, const struct dj_call_reader *r);
/* Whether dj_call_writes() knows all that the call writes. */
bool dj_call_is_known(uint64_t nr, uint64_t arg1);

#endif
