/* A module of the trace, as the recorder knows it. Part of recorder/recorder.h, which includes it.
 */
#ifndef DEJA_RECORDER_MODULE_H
#define DEJA_RECORDER_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct rec_notes;
struct tr_kept;

struct rec_module {
	char *path;
	uint8_t *bytes;
	size_t size;
	uint64_t dev, ino;
	struct timespec mtime, ctime;
	int watch;		 /* of inotify, or -1 */
	bool rewritten;		 /* the file is not what it was: `bytes` is not to be looked at */
	struct rec_notes *notes; /* stops in its code, at the start of images (ahead.c) */
	/* translations of its code; and of what it makes as a program, changing or not (code.c) */
	struct tr_kept *kept, *made[2];
	/* So many fragments there are in the files of what its images have left: of those whose
	 * handlers do not see the flags of faults, and of those whose do (estate.c). */
	uint32_t estate[2];
	bool no_estate[2]; /* there was none that could be read */
};

#endif
