/*
 * System calls that the program makes in a row for purposes of ours, with one stop for all of them
 * instead of one each. Where that cannot be, they are made one by one (call.c): who uses a series
 * need not know. Part of recorder/recorder.h, which includes it.
 */
#ifndef DEJA_RECORDER_SERIES_H
#define DEJA_RECORDER_SERIES_H

/* A call in the list, in words of eight bytes: its number, with these bits, and six arguments. */
#define SERIES_CALL	 64   /* bytes */
#define SERIES_KEEPS_BIT 32   /* its result is an argument of later ones, */
#define SERIES_KEPT	 (-3) /* which have this in its place: the first or the fifth */
#define SERIES_MAY_BIT	 33   /* it may fail: the series goes on */
#define SERIES_END_BIT	 63

#ifndef __ASSEMBLER__

#include <stdint.h>

/* Where it is; at: 0, if there is none. */
struct rec_series_page {
	uint64_t at, off;
};

/* Calls that the list has room for. */
#define REC_SERIES 40u

enum rec_series_how { REC_MUST, REC_MAY, REC_KEEPS /* and may */ };

struct rec_series; /* a list of calls (series.c) */

#endif
#endif
