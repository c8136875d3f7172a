/* Threads of deja's own. */
#ifndef DEJA_FORMAT_THREAD_H
#define DEJA_FORMAT_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* As pthread_create(3) with default attributes. The thread hears no signals: those that are sent to
 * deja are the first thread's, which waits in calls that they are to interrupt. */
int dj_thread(pthread_t *id, void *(*run)(void *), void *arg);

/* Whether the calling thread stays on the processor that it is on, from now on. The threads that it
 * makes do not. */
void dj_thread_stays(bool stays);

#endif
