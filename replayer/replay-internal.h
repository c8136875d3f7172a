/*
 * Inside the replay interface (replay.h): shared by replay.c (opening, state), replay-thread.c
 * (threads, the moment), replay-move.c (positions), replay-seq.c and replay-text.c (event numbers,
 * positions as text), replay-conditions.c (what to stop for), replay-run.c and replay-back.c
 * (running to that), replay-forward-all.c and replay-back-all.c (the same through several threads),
 * replay-turns.c (the threads one after the other), replay-ahead.c (while nobody waits) and
 * replay-copy.c.
 */
#ifndef DEJA_REPLAYER_REPLAY_INTERNAL_H
#define DEJA_REPLAYER_REPLAY_INTERNAL_H

#include "replayer/checkpoint.h"
#include "replayer/lookahead.h"
#include "replayer/memview.h"
#include "replayer/remaps.h"
#include "replayer/replay.h"
#include "replayer/thread.h"

#include <stdatomic.h>

#define BLOOM_BITS 65536u

/* What else a thread is told to be mapped or unmapped on a way, and where. */
struct rp_told {
	uint64_t from, to; /* steps; nothing is known of the way from UINT64_MAX */
	size_t n, cap;
	struct rp_told_of {
		uint64_t steps, seq, addr, length;
	} * v;
};

/* One thread's history, opened when it is needed. */
struct rp_timeline {
	struct rp_thread *th;
	struct rp_memview *mv;
	struct rp_checkpoints cs;
	struct rp_ground
		*ground; /* who covers what lies ahead of the last checkpoint; NULL: nobody */
	struct rp_lander *lander; /* who lands it (land.h); NULL: nobody */
	struct rp_told told;	  /* replay-shared.c */
	bool alive;		  /* when last asked */
	bool placed; /* it stands at its last position before an ordered event, or at its end */
};

/* Which thread's turn comes when: what it does next sorts at this event number. */
struct rp_turn {
	uint64_t seq;
	uint32_t thread;
	bool fresh; /* its history begins there */
};
/* The turns of all threads but the one that is running, the next one first (a heap). */
struct rp_turns {
	struct rp_turn *heap;
	size_t n, cap;
	struct rp_turn now;
};

/* A page of memory as it is to be shown. */
struct rp_shown {
	bool good;
	bool plain;	/* as the selected thread has it */
	unsigned times; /* it has been looked at so often */
	uint64_t lines; /* of 64 bytes, about which is known who changed them last */
	uint64_t num;
	uint32_t selected;		  /* for this thread, */
	struct replay_pos moment;	  /* at this moment */
	uint8_t state[4096], value[4096]; /* enum rp_byte */
};
#define SHOWN_PAGES 64u

/* What is known of the watched bytes while several threads are gone through. */
struct rp_watched {
	uint64_t *known; /* a bit per byte; NULL: nothing is kept */
	uint8_t *value;
	uint64_t *lost; /* a bit per byte: the kernel wrote there, nobody has seen what */
	/* The event number when the byte was touched: searching back, of the thread itself. */
	uint64_t *seq;
	/* going forward: the same before the instruction that touched them last */
	uint64_t *was_known, *was_lost, *was_seq;
	uint8_t *was_value;
	uint32_t thread; /* that instruction */
	uint64_t steps;
};

struct replay_watch {
	int id;
	uint64_t addr, len;
	unsigned kind;
	struct rp_watched all;
};

struct rp_thread_names {
	struct rp_thread_name *list; /* by thread */
	size_t n;
	bool loaded;
};

struct replay {
	struct dj_trace *t;
	struct rp_space_names names;
	struct rp_thread_names thread_names;
	struct rp_timeline *threads; /* by number */
	size_t nthreads, nopen, open_max;
	bool untold; /* the moment's thread has come to it unasked: a search back was for another's
		      */
	struct replay_pos moment; /* as replay_pos() has it, except while its thread is selected */
	uint32_t selected;
	enum replay_scope scope;
	struct rp_turns turns;
	struct rp_shown *shown[SHOWN_PAGES]; /* by the page's number */
	bool look_cut; /* finding one out was interrupted; whoever wants to know clears it before */

	/* the selected thread's */
	struct rp_thread *th;
	struct rp_memview *mv;
	struct rp_checkpoints *cs;

	/* conditions */
	struct replay_break {
		uint64_t addr;
		unsigned count;
	} * breaks;
	size_t nbreaks, breaks_cap;
	uint64_t bloom[BLOOM_BITS / 64]; /* by the low bits of breakpoint addresses */
	uint32_t break_generation;	 /* changes with them; never 0 */
	replay_holds_fn *holds;		 /* NULL: all do */
	void *holds_ctx;
	bool asking; /* in there */
	struct replay_watch *watches;
	size_t nwatches;
	int next_watch;
	enum { WATCH_OWN, WATCH_IN_ORDER, WATCH_BACK } watch_how; /* replay-watch.c */
	struct replay_pos watched_upto; /* WATCH_IN_ORDER: what is kept is as of this moment */
	bool watched_good;
	bool catching;
	uint64_t *catch;
	size_t ncatch; /* 0: all */
	uint64_t signals;
	bool signal_told; /* the signal arriving at this position has been reported */

	bool (*poll)(void *);
	void *poll_ctx;
	atomic_bool interrupt;
	struct rp_patience patience;
	bool cancelled; /* since it was last asked to move, a move was interrupted */

	struct replay_observer observer;

	uint64_t ground_worth; /* instructions that are worth a process that covers them */
	uint64_t ground_first; /* who may stop any moment has the emulator try so many first */
	uint64_t land_worth;   /* that generated code must save, to be worth asking for */
	uint64_t fill_worth;   /* between full checkpoints, to have more made */
	uint64_t land_page;    /* the same for each page that is handed back */
	uint64_t land_most;    /* bytes of checkpoints that a process makes; then another begins */
	uint64_t landed;       /* so often it did */
	uint64_t survey_worth; /* instructions of an interval that is looked at in parts */
	uint64_t surveys;      /* so often that was done */
	uint64_t leap_first;   /* instructions that threads execute by turns before all leap */
	uint64_t leaps;	       /* so often they did */
	unsigned landers_over; /* so often the process that was asked had ended; */
	unsigned not_landed;   /* and the one that was begun for it did not do it, either */
	unsigned landings_failed; /* generated code could not, or was wrong */
	uint64_t spacing;	  /* instructions between checkpoints */
	uint64_t near; /* instructions that are as soon executed as a checkpoint is gone to */
	size_t budget; /* bytes that they may take */
	bool in_copy;
	struct rp_thread_pos copy_origin;
	uint64_t copy_end;
	void (*output)(void *ctx, const void *bytes, size_t len); /* of copies */
	void *output_ctx;

	struct dj_index *index; /* what was kept (keep.h); NULL: nothing */
	uint64_t kept;		/* instructions that are covered there */
	uint64_t index_read;	/* bytes of its blocks that were unpacked */

	struct rp_lookahead look;
	struct rp_remaps_of remaps;
	struct rp_told told;	  /* while a page is looked at */
	struct rp_starts *starts; /* NULL: threads begin without */

	struct replay_mapping *maps;
	size_t maps_cap;
};

/* For tests: checkpoints of the selected thread. */
void replay_limits(struct replay *r, uint64_t spacing, size_t max, size_t budget);

/* Run forward to `to`, making checkpoints: at the usual distance, or, if `dense`, ever denser
 * towards `to`, for going back from there. Answers as rp_thread_run() does. */
enum rp_thread_stop replay_run_to(struct replay *r, const struct rp_thread_pos *to, unsigned events,
				  bool dense);
/* The same without checkpoints. */
enum rp_thread_stop rp_pass_to(struct replay *r, const struct rp_thread_pos *to, unsigned events);
/* How far apart checkpoints of the thread in hand are at most. */
uint64_t rp_spacing(const struct replay *r);
/* Move exactly. Where it was interrupted, which is an error and r->cancelled, it stays. */
int replay_move(struct replay *r, const struct rp_thread_pos *to, struct dj_error *err);
/* Where the thread in hand has to stand again, whoever is impatient. There should be a full
 * checkpoint. */
void rp_stand_again(struct replay *r, const struct rp_thread_pos *here);
/* The same, or somewhere before, if that takes more instructions than the emulator executes in a
 * tenth of a second. */
void rp_stand_if_near(struct replay *r, const struct rp_thread_pos *here);
/* The same, or somewhere before, if that takes longer than so many milliseconds. */
void rp_stand_soon(struct replay *r, const struct rp_thread_pos *here, unsigned ms);
/* What rp_thread_run() and its like answered, as an error if the move is at its end there. */
int rp_move_failed(struct replay *r, enum rp_thread_stop res, struct dj_error *err);
/* Move to the position before this one. 1 if this is the beginning, -1 on error. */
int replay_move_back(struct replay *r, struct dj_error *err);
/* Whether to stop running soon. */
bool replay_interrupted(struct replay *r);
/* replay-copycall.c; ctx is the replay */
bool rp_copycall_answer(void *ctx, uint64_t *result);

/* ---- replay.c, replay-thread.c --------------------------------------------------------- */

/* Point th, mv and cs at a thread, opened if need be, wherever it stands. */
int rp_switch(struct replay *r, uint32_t thread, struct dj_error *err);
/* Stand where history begins. */
int rp_open_first(struct replay *r, struct dj_error *err);
/* The selected thread is about to move: its position will be the moment. */
void rp_begin_move(struct replay *r);
/* A move failed: everything as r->moment says, this thread selected. */
void rp_put_back(struct replay *r, uint32_t selected);
/* Where the selected thread stands. */
void rp_here(const struct replay *r, struct replay_pos *pos);
/* Switch to a thread that has begun, and put it where the moment has it. */
int rp_place(struct replay *r, uint32_t thread, struct dj_error *err);
/* The same where it has come up to event `upto`. */
int rp_place_upto(struct replay *r, uint32_t thread, uint64_t upto, struct dj_error *err);
/* Whether the thread's history has begun at `moment`, which is another's position; if so, up to
 * which event number it has come. */
bool rp_begun(const struct replay *r, const struct replay_pos *moment, uint32_t thread,
	      uint64_t *upto);
/* The number of a thread's last event; false if only replaying can tell. */
bool rp_last_seq(const struct replay *r, uint32_t thread, uint64_t *seq);

/* ---- replay-conditions.c ------------------------------------------------------------------ */

/* Turn the conditions on or off in the thread in hand. */
void rp_conditions(struct replay *r, bool on);
/* What rp_thread_run() is to stop for. */
unsigned rp_events_wanted(const struct replay *r);
/* Whether there is a breakpoint, and whoever set it wants to hear of it now. */
bool rp_breaks_at(struct replay *r, uint64_t rip);
/* Whether the system call is one of those that are to be told. */
bool rp_caught(const struct replay *r, uint64_t sysno);
/* Conditions that hold at a position rather than on the way to it; breakpoints if `breaks`. */
bool rp_position_condition(struct replay *r, struct replay_stop *stop, bool breaks);
/* What rp_thread_run() stopped for, as a reason; false if it is nothing anyone asked for. */
bool rp_reason_of(struct replay *r, int res, struct replay_stop *stop);
/* A stop here for that reason. */
void rp_fill(struct replay *r, struct replay_stop *stop, enum replay_reason reason);
/* A stop that is an error, unless it was an interruption. */
void rp_failed(struct replay *r, struct replay_stop *stop, const struct dj_error *err);
/* Whether going on is to be told at once that a signal arrives here. */
bool rp_signal_first(struct replay *r, struct replay_stop *stop);

/* ---- replay-run.c, replay-back.c ---------------------------------------------------------- */

/* The user asks for something: what interrupted the request before is none of its business. */
void rp_forget_interruption(struct replay *r);
/* Whether no condition on code or memory can have held where these lines were met; NULL: since the
 * last checkpoint of the thread in hand. */
bool rp_lines_quiet(const struct replay *r, const struct rp_lines *lines);

/* A position of a thread, and how many things had happened up to there that may be stopped for. */
struct rp_upto {
	struct rp_thread_pos pos;
	uint64_t calls, signals, forks, image;
};
/* Where the thread in hand stands, and at a checkpoint. */
struct rp_upto rp_upto_here(const struct replay *r);
struct rp_upto rp_upto_checkpoint(const struct rp_checkpoint *c);
/* Whether nothing that is to be told happened between them. What code was run and which memory
 * accessed, the lines say. */
bool rp_same_events(const struct replay *r, const struct rp_upto *a, const struct rp_upto *b);

/* Run the thread in hand until one of its conditions, its end, or an event that is not to be
 * passed yet (*res says which): true if there is something to tell. */
bool rp_run_forward(struct replay *r, uint64_t seq_stop, struct replay_stop *stop, int *res);

/* What a search has from looking at long intervals in parts. */
struct rp_survey {
	unsigned of_no_use; /* so often it was of no use, */
	unsigned pause;	    /* so that it is not done in so many of the next intervals */
};
/* Between two checkpoints, `from` and `to`, something may be that is looked for. If that is a long
 * way: find out in which parts of it. True: in few; there are checkpoints between them now. The
 * thread may be elsewhere then. r->cancelled: it was interrupted. */
bool rp_survey(struct replay *r, struct rp_survey *s, const struct rp_thread_pos *from,
	       const struct rp_thread_pos *to);
/* Whether anybody wants to know what other threads do meanwhile. */
bool rp_curious(const struct replay *r);

/* The last condition met on the way forward through an interval. */
struct rp_last {
	bool found;
	struct replay_stop stop;
	struct rp_thread_pos pos;	  /* where to stop for it */
	bool before;			  /* one position earlier, that is */
	bool refine;			  /* a watch in a REP instruction: some iteration of it */
	struct rp_memview_touches unsure; /* of the hit of a watch */
	struct rp_thread_pos after;	  /* where it was noticed, */
	uint64_t seq;			  /* and the event number there */
};
/* A search back through the history of one thread. */
struct rp_hunt {
	struct rp_upto hi;		    /* the end of the interval that is searched next */
	uint64_t seq;			    /* the event number there */
	struct rp_thread_pos origin, clear; /* from there to where it began nothing was found */
	bool newest;			    /* it is where the search began */
	bool inclusive;			    /* conditions at that very position count */
	uint64_t searched;		    /* instructions that were gone through in vain */
	struct rp_survey survey;
	struct rp_last last;
};
/* From where the thread in hand stands. */
void rp_hunt_begin(struct replay *r, struct rp_hunt *h, bool inclusive);
/* Search the next interval. THREAD_END: nothing is left. */
enum rp_thread_stop rp_hunt_on(struct replay *r, struct rp_hunt *h, struct dj_error *err);
/* It was interrupted: stand where whoever goes on back comes to all that was not searched yet, or,
 * if that takes too long, before that. */
void rp_hunt_leave(struct replay *r, const struct rp_hunt *h);
/* Go to what was found. */
void rp_stop_at_last(struct replay *r, struct rp_last *l, struct replay_stop *stop);
/* Of the thread in hand alone. */
void rp_continue_backward(struct replay *r, struct replay_stop *stop);
void rp_step_backward(struct replay *r, struct replay_stop *stop);

/* ---- replay-forward-all.c ---------------------------------------------------------------- */

/*
 * On from the moment through all threads of the scope until there is something to tell (true), or
 * it is the turn of thread `until`, which has not moved (false). REPLAY_ALL: of none.
 */
bool rp_all_forward(struct replay *r, uint32_t until, struct replay_stop *stop);

/* ---- replay-back-all.c -------------------------------------------------------------------- */

void rp_continue_all_backward(struct replay *r, struct replay_stop *stop);
void rp_step_all_backward(struct replay *r, struct replay_stop *stop);

/* ---- replay-shared.c ---------------------------------------------------------------------- */

/* Whether the selected thread has others in its process, now or at another time. */
bool rp_sharing(const struct replay *r);
/* Known memory at the moment, with what the others know; how many bytes from addr on. */
size_t rp_shared_read(struct replay *r, uint64_t addr, uint8_t *buf, size_t len);
void rp_shared_free(struct replay *r);

/* ---- replay-watch.c ----------------------------------------------------------------------- */

/* From the moment on forwards, with several threads; and when that is over. False: it was
 * interrupted. */
bool rp_watch_forward(struct replay *r);
void rp_watch_stopped(struct replay *r);
/* The thread in hand begins to be searched back, or something in it is looked for again. */
void rp_watch_back(struct replay *r);
/* A search back is over. */
void rp_watch_own(struct replay *r);
/* The instruction that made the last hit, in the thread in hand when it had done `steps`, is to be
 * executed once more. */
void rp_watch_again(struct replay *r, uint64_t steps);
/* For the thread in hand, as r->watch_how says. */
void rp_watch_set(struct replay *r);
/* Where a watch was hit, at the moment before that: whether it is a hit. It is if it was sure, or
 * if some of these bytes were others, of which the stop tells then; or that it was interrupted. */
bool rp_watch_is_hit(struct replay *r, const struct rp_memview_touches *unsure,
		     struct replay_stop *stop);
void rp_watched_free(struct replay_watch *w);

/* ---- replay-turns.c --------------------------------------------------------------------- */

/* Whether a move goes through the history of the selected thread alone. */
bool rp_alone(const struct replay *r);
bool rp_in_scope(const struct replay *r, uint32_t thread);
/* Make r->turns, for going on from the moment, and switch to its thread. 1: it has none, since its
 * thread is not in the scope. */
int rp_turns_begin(struct replay *r, struct dj_error *err);
/* The running thread must not pass events of this number or a higher one before the next turn. */
uint64_t rp_turns_limit(const struct replay *r);
/* The running thread has come to that event, or to its end. */
void rp_turns_wait(struct replay *r);
/* Switch to the thread whose turn is next, if there is one, and return it. */
const struct rp_turn *rp_turns_next(struct replay *r, struct dj_error *err);

/* ---- replay-seq.c ------------------------------------------------------------------------ */

/* Move to the selected thread's first position with event number `seq` or a higher one. 1: there is
 * none, the thread stands at its end. */
int rp_find_seq(struct replay *r, uint64_t seq, struct dj_error *err);
/* Move to its last position with event number `seq` or a lower one (the first has one). */
int rp_last_upto(struct replay *r, uint64_t seq, struct dj_error *err);

/* thread-names.c */
/* What the thread is called at the moment, "" if it is not known. */
const char *rp_thread_name(struct replay *r, uint32_t thread);
void rp_thread_names_free(struct rp_thread_names *names);

#endif
