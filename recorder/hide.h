/* Lists of mappings without deja's (hide.c has the essay). Part of recorder/recorder.h, which
 * includes it. */
#ifndef DEJA_RECORDER_HIDE_H
#define DEJA_RECORDER_HIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct rec_thread;

/* Of a thread that has just opened one. */
struct rec_hiding {
	bool wanted;
	unsigned reads; /* while it has not been read: so many of others are still looked at */
	pid_t of;
	const char *name; /* below /proc/PID */
	int fd, flags;	  /* what it has; FD_CLOEXEC as O_CLOEXEC */
	int file, opened; /* what it is to have instead: ours, and the program's */
};

#endif
