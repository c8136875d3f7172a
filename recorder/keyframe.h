/*
 * Keyframes (keyframe.c): what a recording and a thread keep about them. Part of
 * recorder/recorder.h, which includes it.
 */
#ifndef DEJA_RECORDER_KEYFRAME_H
#define DEJA_RECORDER_KEYFRAME_H

#include <stdbool.h>
#include <stdint.h>

struct rec_thread;

/* Of a recording. */
struct rec_keyframes {
	double spent;	 /* bytes in the file, on keyframes but for the memory in them */
	double factor;	 /* what one costs, by the size of the shadow; 0: not known yet */
	double memory;	 /* bytes in the file, about, on that memory */
	uint64_t rounds; /* of full ones, which all threads take part in */
};

/* Of a thread. */
struct rec_keyframe {
	bool began; /* its history has: what follows is good */
	/* Where it was half an interval after a keyframe; at the last one, and the last full one,
	 * or where its history began. */
	struct rec_keyframe_place {
		uint64_t steps, seq;
		uint64_t raw, size; /* of its records; of the file */
		int64_t time;	    /* nanoseconds */
	} half, last, full;
	uint64_t look;	/* no sooner than after so many steps, to see what one would cost */
	double shadow;	/* bytes that the last one emptied, and nobody has seen its cost; or 0 */
	double memory;	/* bytes in the file, about, of the memory in the last one */
	uint64_t round; /* the last that it took part in */
	uint64_t room;	/* of the one that is due: for so many bytes of memory; 0: it is light */
	bool off;	/* none can be made */
};

/* In hand, behind a full keyframe: put memory into the trace, as much as there is room for; returns
 * how many bytes. (copy.c) */
uint64_t rec_copy_parts(struct rec_thread *t, uint64_t room);

#endif
