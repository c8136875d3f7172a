/* Between the files that make a pass: pass.c (who is replayed, how far) and pass-tell.c. */
#ifndef DEJA_REPLAYER_PASS_INTERNAL_H
#define DEJA_REPLAYER_PASS_INTERNAL_H

#include "replayer/pass.h"
#include "replayer/thread-internal.h"

struct pass {
	struct dj_trace *t;
	const struct replay_pass *asked;
	struct replay_passed *out;
	uint32_t *queue; /* numbers of threads */
	size_t n;
	uint64_t total; /* instructions */
	unsigned workers;
	bool alone;		/* one worker, which is the thread that asked */
	bool translate;		/* execute translated code, where that pays */
	bool tells;		/* also where the listeners are told */
	uint64_t most;		/* bytes mapped in any process (patience.h) */
	uint64_t before;	/* that this process had taken when the pass began */
	pthread_mutex_t shared; /* what the threads share of the trace */
	struct rp_starts *starts;
	pthread_mutex_t ends; /* held around begin() and end() */

	pthread_mutex_t lock; /* the rest */
	pthread_cond_t one_finished;
	size_t next, finished;
	uint64_t done; /* instructions */
	bool stop;     /* a listener has failed, or the pass was interrupted */
	bool failed;
	uint32_t failed_thread;
	struct dj_error err;
};

struct replay_run {
	struct pass *pass;
	struct rp_thread *th;
	uint32_t thread;
	void **data; /* by listener; NULL: it does not want this thread */
	struct rp_hearer hearer;
	uint64_t accounted, told;
	size_t hearing;	  /* the listener that is being told something */
	uint64_t has_all; /* bits, by listener: it has heard enough */
	bool enough, failed;
	bool left; /* in the middle: the pass was to end */
	struct dj_error err;
};

/* Begin and end telling the listeners. */
void rp_pass_listen(struct replay_run *run);
void rp_pass_unlisten(struct replay_run *run);
/* Add to what is done; whether the pass is to end. */
bool rp_pass_account(struct replay_run *run);

#endif
