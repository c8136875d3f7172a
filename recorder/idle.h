/*
 * Shadows of threads that do not run (idle.c): what a recording, a process and a thread keep about
 * them. Part of recorder/recorder.h, which includes it.
 */
#ifndef DEJA_RECORDER_IDLE_H
#define DEJA_RECORDER_IDLE_H

#include <stdbool.h>
#include <stdint.h>

struct rec_recording;
struct rec_thread;

enum rec_idle_state {
	REC_IDLE_NOT,
	REC_IDLE_CHOSEN, /* asleep: its shadow is to go */
	REC_IDLE_GOING,	 /* ... is being given back: it must not go on, nor is it looked at */
	REC_IDLE_GONE,	 /* ... is empty, which its next stop says in the trace */
};

/* Of a thread. */
struct rec_idle {
	enum rec_idle_state state;
	bool self;	  /* it is to give its own shadow back when it is in hand */
	bool brought_out; /* for that, or for the sake of others */
	bool refused;	  /* the kernel does not take its shadow */
	uint64_t call;	  /* the program's instruction that it sleeps in */
	uint64_t place;	  /* how far it had come when it was last looked at, ... */
	int64_t since;	  /* ... and since when it has been there, nanoseconds */
	uint64_t shadow;  /* so many bytes its shadow had then */
};

/* Of a recording. */
struct rec_idles {
	int64_t next; /* nothing is measured before */
	int64_t look; /* nobody is chosen or brought out before */
	uint64_t sum; /* what shadows took then, but for those that are given back */
};

/* Once in a while: choose shadows to give back, if all together take too much. */
void rec_idle_look(struct rec_recording *rec);
/* A stop of the thread is about to be handled: it does not sleep any more. */
void rec_idle_stopped(struct rec_thread *t);
/* Its stops have to wait. */
bool rec_idle_held(const struct rec_thread *t);
/* It is to be brought in hand, for its own shadow or for those of others. */
bool rec_idle_wants(const struct rec_thread *t);
/* It has just been taken in hand: if its shadow is gone, that is recorded. */
void rec_idle_back(struct rec_thread *t);
/* The thread is gone, and what it was doing for others with it. */
void rec_idle_ended(struct rec_thread *t);

#endif
