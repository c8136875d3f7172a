/*
 * Keyframes (keyframe.c): what a recording and a thread keep about them. Part of
 * recorder/recorder.h, which includes it.
 */
#ifndef DEJA_RECORDER_KEYFRAME_H
#define DEJA_RECORDER_KEYFRAME_H

#include <stdbool.h>
#include <stdint.h>

/* Of a recording. */
struct rec_keyframes {
	double spent;  /* bytes in the file, on keyframes */
	double factor; /* what one costs, by the size of the shadow; 0: not known yet */
};

/* Of a thread. */
struct rec_keyframe {
	uint64_t steps; /* where the last one was, or its history began */
	uint64_t look;	/* no sooner than here, to see what one would cost */
	struct rec_keyframe_sample {
		uint64_t steps, raw, size; /* of the thread; of its records; of the file */
	} half, last;			   /* half an interval after a keyframe; at the next one */
	double shadow; /* bytes that the last one emptied, and nobody has seen its cost; or 0 */
	bool off;      /* none can be made */
};

#endif
