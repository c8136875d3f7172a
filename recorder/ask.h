/* Code that threads ask for without a stop (ask.c has the essay). */
#ifndef DEJA_RECORDER_ASK_H
#define DEJA_RECORDER_ASK_H

#include <stdbool.h>
#include <stdint.h>

struct rec_recording;
struct rec_thread;

#define REC_ASKERS 16 /* threads that are listened to at once */

/* Of a thread. */
struct rec_ask {
	int64_t last;	 /* when it last went on in the cache; nanoseconds of CLOCK_MONOTONIC */
	bool asked;	 /* what could be answered, since we listen */
	int luck;	 /* it may fail to so many times more; -1: it has */
	unsigned passed; /* so often was not listened although it was a burst */
};

/* Of a recording: who is listened to. */
struct rec_asking {
	struct rec_thread *who[REC_ASKERS];
	unsigned n;
	/* nanoseconds of CLOCK_MONOTONIC */
	int64_t until;	/* 0: it has just begun */
	unsigned links; /* asked for */
};

/* It has a new image. What is `known` has been translated before, and it is not likely to ask. */
void rec_ask_image(struct rec_thread *t, bool known);
/* The thread is about to go on in the cache: listen to it, if that is of use. */
void rec_ask_listen(struct rec_thread *t);
/* It has stopped, or ended. */
void rec_ask_stopped(struct rec_thread *t);
/* Whether the supervisor need not wait for the program to get a processor, nor the other way round.
 */
bool rec_has_processors(void);
/* hand.c: the thread is at a place of this lag, and stays there: it is in hand, but for its
 * registers (rec_take() has those, too). Who waits for an answer is no more from
 * rec_leave_place() on. */
void rec_take_place(struct rec_thread *t, uint32_t lag);
void rec_leave_place(struct rec_thread *t);
/* It has stopped while it asked, and is not to wait any more. */
void rec_ask_over(struct rec_thread *t);
/* While nothing has stopped: answer who asks. True if it may be that somebody will soon: look again
 * what has stopped, without waiting for it. */
bool rec_ask_look(struct rec_recording *rec);

#endif
