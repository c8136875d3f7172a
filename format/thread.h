/* Threads of deja's own, and workers, which are threads that are used again. */
#ifndef DEJA_FORMAT_THREAD_H
#define DEJA_FORMAT_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* As pthread_create(3) with default attributes. The thread hears no signals: those that are sent to
 * deja are the first thread's, which waits in calls that they are to interrupt. */
int dj_thread(pthread_t *id, void *(*run)(void *), void *arg);

/* A thread that is kept when its work is done, and does other work: to make one and to join it
 * takes a fiftieth of the time that a short program is recorded in. */
struct dj_worker;
/* Has `run` called by one. NULL, with errno, if there is none and none can be made. */
struct dj_worker *dj_work(void (*run)(void *), void *arg);
/* Waits until it has returned. The worker is not the caller's any more. */
void dj_work_done(struct dj_worker *w);
/* As dj_work(), but nobody will wait for it in this way. False if there is none to be had, or if
 * several are at work like that already: whoever gives them work is not to get far ahead of them.
 */
bool dj_work_alone(void (*run)(void *), void *arg);

/* Whether the calling thread stays on the processor that it is on, from now on. The threads that it
 * makes do not. */
void dj_thread_stays(bool stays);

#endif
