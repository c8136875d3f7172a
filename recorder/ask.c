/*
 * Code that threads ask for without a stop.
 *
 * When translated code comes to code that is not translated yet, the thread stops and the
 * supervisor makes a fragment. A stop takes some dozens of microseconds, on some virtual machines a
 * hundred, most of it to put one processor to sleep and to wake the other; what the supervisor does
 * meanwhile is done in five or ten. A program that has just begun comes to new code all the time.
 * So after a stop the supervisor stays awake for a moment and *listens* to the thread: it looks at
 * T_ASK again and again, and as long as it does (T_LISTEN) the thread asks there and waits for
 * T_ANSWER, instead of stopping (rt_ask and rt_miss in translator/runtime.S).
 *
 * Each of the words has one writer at a time:
 *
 *  - T_LISTEN is the supervisor's.
 *  - T_ASK: the thread puts its question there. Whoever takes it back has exchanged it for zero:
 * the supervisor, who then owes an answer, or the thread, which nobody has listened to for long
 * enough or any more, and which then stops. So no question is answered twice or left without an
 * answer.
 *  - T_ANSWER: the supervisor's answer to a question it has taken; the thread takes it from there.
 *
 * The supervisor stops listening before it sleeps, and looks once more: then a thread that has
 * asked meanwhile either was seen or sees that nobody listens. A thread that stops for whatever
 * reason while it waits is stepped to a boundary as from anywhere in the runtime; as nobody listens
 * any more it comes to the stop, or takes an answer that was given and is at the entry of a
 * fragment. That fragment may have been retired meanwhile. It is like being inside it: the thread
 * entered the cache in an earlier epoch, so it has not been reclaimed.
 *
 * What is done for a thread that runs is what may be done beside it (doc/code-cache.md): fragments
 * are made and linked. The trace may have to be told of the code first: a thread that waits for an
 * answer is at a position that is as exact as at a stop, and all that is not known of it is its
 * registers (`tell`). Whether a module's file has been written to is asked as at a stop, lest the
 * program is answered with what it has just replaced. Whatever else there is to do (a digest, a
 * keyframe, a signal, an arena, an address that is none) is a reason to answer that it has to stop,
 * and then everything goes its usual way. The program can write to these words, and gets what it
 * asked for: an answer to what it has not asked sends it astray, as any word of the control block
 * does. The number of a link is checked.
 *
 * Listening costs processor time, so it is for bursts: a thread is listened to if it has stopped
 * before within BURST, and for no longer than PATIENCE after its last question. It takes a
 * processor of our own (as in ahead.c). Where others want the processors, too, the one of the two
 * that has to answer mostly does not run, or the one that asks. And a thread that is listened to is
 * not on our processor, where a stop takes less than to wake it elsewhere (near.c). So who has not
 * asked a few times while we listened, or not what could be answered, is left alone, but for a
 * trial now and then.
 */
#include "recorder/ask.h"
#include "recorder/ahead.h"

#include <immintrin.h>
#include <sched.h>
#include <stdatomic.h>

#define BURST	 1000000 /* nanoseconds */
#define PATIENCE 100000
#define LUCK	 3  /* times in vain that follow one that was not are forgiven */
#define TRIED	 8  /* and listened to once in so many times */
#define LOOKS	 32 /* between two looks at what has stopped */
#define NOTED	 4  /* of so many links one is noted for later images (ahead.c) */

bool rec_has_processors(void)
{
	static int processors;
	cpu_set_t cpus;
	if (!processors)
		processors = sched_getaffinity(0, sizeof(cpus), &cpus) ? 1 : CPU_COUNT(&cpus);
	return processors > 1;
}

/* Whether listening to the thread has been of use lately; once in a while it is tried anyway. */
static bool promises(struct rec_thread *t)
{
	return t->ask.luck >= 0 || ++t->ask.passed % TRIED == 0;
}

/* Nobody listens to it any more. */
static void judge(struct rec_thread *t)
{
	if (t->ask.asked)
		t->ask.luck = LUCK;
	else
		t->ask.luck -= t->ask.luck >= 0;
}

void rec_ask_image(struct rec_thread *t, bool known)
{
	t->ask.luck = known ? 0 : LUCK;
}

void rec_ask_listen(struct rec_thread *t)
{
	struct rec_asking *asking = &t->rec->asking;
	int64_t at = rec_clock_now(), gap = at - t->ask.last;
	t->ask.last = at;
	*rec_tcb(t, T_ASK) = 0;
	*rec_tcb(t, T_ANSWER) = 0;
	if (gap > BURST || asking->n == REC_ASKERS || !rec_has_processors() ||
	    t->group != t->proc || !promises(t))
		return;
	t->ask.asked = false;
	asking->who[asking->n++] = t;
	asking->until = 0;
	*rec_tcb(t, T_LISTEN) = 1;
}

void rec_ask_stopped(struct rec_thread *t)
{
	struct rec_asking *asking = &t->rec->asking;
	for (unsigned i = 0; i < asking->n; i++)
		if (asking->who[i] == t) {
			asking->who[i] = asking->who[--asking->n];
			*rec_tcb(t, T_LISTEN) = 0;
			judge(t);
		}
}

/* What was taken has been answered by now, unless it was the program that took it: then it waits
 * for what nobody owes it. */
void rec_ask_over(struct rec_thread *t)
{
	*rec_tcb(t, T_LISTEN) = 0;
	*rec_tcb(t, T_ASK) = 0;
	if (!*rec_tcb(t, T_ANSWER))
		*rec_tcb(t, T_ANSWER) = ANSWER_STOP;
}

/* Whether code may be made for it: it executes some, and no thread is about to do what others have
 * to be stopped for, or what only one may do at a time. */
static bool goes_on(const struct rec_thread *t)
{
	const struct rec_process *proc = t->proc;
	return t->state == REC_CACHE && !t->in_hand && t->group == proc && proc->tr &&
	       !proc->leaving && !proc->gather.by && !proc->busy && !rec_trap_held(t);
}

/* Whether there is nothing else to do for it but to make code. */
static bool only_code(struct rec_thread *t)
{
	return !rec_over(t->rec) && goes_on(t) && !t->n_pending && !t->hand_over && !rec_late(t) &&
	       !rec_trap_urgent(t) && !rec_idle_wants(t) && !rec_keyframe_wants(t) &&
	       !rec_digest_is_due(t, rec_lagged(t)) && !rec_written_is_due(t, rec_lagged(t));
}

/* The fragment at `pc`, of code of which the trace is to be told first, or which may not be what it
 * was told. */
static enum tr_found tell(struct rec_thread *t, uint64_t pc, uint32_t lag, struct tr_frag **f)
{
	struct rec_process *proc = t->proc;
	rec_take_place(t, lag);
	if (rec_code_stale(proc, pc))
		rec_code_changed(proc, pc);
	proc->telling = true;
	enum tr_found found = tr_fragment_beside(proc->tr, pc, f);
	proc->telling = false;
	rec_leave_place(t);
	return rec_over(t->rec) ? TR_NATIVE : found;
}

/* Where the thread goes on. */
static uint64_t answer(struct rec_thread *t, uint64_t ask)
{
	struct translator *tr = t->proc->tr;
	bool indirect = ask == ASK_INDIRECT;
	rec_modules_check(t->rec);
	const struct tr_stop *stop = indirect ? NULL : tr_stop_of(tr, ask);
	struct tr_frag *f;
	if (!only_code(t) || (!indirect && (!stop || stop->kind != TR_STOP_LINK)))
		return ANSWER_STOP;
	uint64_t pc = indirect ? *rec_tcb(t, T_ASKED) : stop->pc;
	uint32_t lag = indirect ? 0 : stop->lag;
	if (indirect || t->rec->asking.links++ % NOTED == 0)
		rec_ahead_note(t, pc, indirect);
	rec_ahead_asked(t, pc);
	if (indirect)
		tr_expect_indirect(tr);
	bool told = rec_code_known(t->proc, pc, 1) && !rec_code_stale(t->proc, pc);
	if ((told ? tr_fragment_beside(tr, pc, &f) : tell(t, pc, lag, &f)) != TR_FOUND)
		return ANSWER_STOP;
	if (indirect)
		tr_add_indirect(tr, f);
	else if (tr_entry_lag(f) != lag)
		return ANSWER_STOP;
	uint64_t entry = indirect ? tr_indirect_entry(f) : tr_entry(f);
	rec_count(t, REC_COUNT_ASKED);
	return entry ? entry : ANSWER_STOP;
}

static bool look(struct rec_thread *t)
{
	uint64_t ask = atomic_load_explicit(rec_tcb(t, T_ASK), memory_order_relaxed);
	if (ask)
		ask = atomic_exchange(rec_tcb(t, T_ASK), 0);
	if (!ask)
		return false;
	uint64_t entry = answer(t, ask);
	t->ask.asked |= entry != ANSWER_STOP;
	atomic_store(rec_tcb(t, T_ANSWER), entry);
	return true;
}

/* One fragment of what a thread is likely to ask for next. */
static bool go_ahead(struct rec_asking *asking)
{
	for (unsigned i = 0; i < asking->n; i++) {
		const struct rec_thread *t = asking->who[i];
		if (goes_on(t) && tr_one_beside(t->proc->tr))
			return true;
	}
	return false;
}

static bool look_at_all(struct rec_asking *asking)
{
	bool any = false;
	for (unsigned i = 0; i < asking->n; i++)
		any |= look(asking->who[i]);
	return any;
}

bool rec_ask_look(struct rec_recording *rec)
{
	struct rec_asking *asking = &rec->asking;
	bool any = false;
	if (!asking->n)
		return false;
	for (unsigned i = 0; i < LOOKS; i++) {
		bool asked = look_at_all(asking) || go_ahead(asking);
		any |= asked;
		if (!asked)
			_mm_pause();
	}
	int64_t at = rec_clock_now();
	if (any || !asking->until)
		asking->until = at + PATIENCE;
	if (at < asking->until)
		return true;
	for (unsigned i = 0; i < asking->n; i++)
		atomic_store(rec_tcb(asking->who[i], T_LISTEN), 0);
	any = look_at_all(asking);
	if (any)
		asking->until = at + PATIENCE;
	for (unsigned i = 0; i < asking->n && any; i++)
		atomic_store(rec_tcb(asking->who[i], T_LISTEN), 1);
	while (!any && asking->n)
		judge(asking->who[--asking->n]);
	return any;
}
