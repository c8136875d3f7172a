/* Where programs lie (layout.c has the essay). Part of recorder/recorder.h, which includes it. */
#ifndef DEJA_RECORDER_LAYOUT_H
#define DEJA_RECORDER_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

/* Of a thread that is about to become another program: */
struct rec_layout {
	bool fixed;   /* the program is to lie where it lay the last time */
	uint32_t own; /* and this is the thread's own personality(2) */
};

#endif
