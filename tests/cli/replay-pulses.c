/*
 * replay-pulses TRACE [ROUNDS [SEED [SPACING [WORD]]]]: whoever is interrupted and asks again comes
 * to where he would have come. In each round something is asked at a random position, in any
 * direction, with a condition to stop for: to continue, a step, steps within a range, or to go to
 * another position. Then it is asked again and again, and interrupted at one after the other of the
 * times that the replay looks whether it is: the first and the last ones, and some between. Who is
 * interrupted stands between where he was and where he will be, or for a way that is to be gone as
 * a whole where he was, and sees there what there is to be seen.
 *
 * WORD is the first of four of which one is watched, mostly, instead of any. Prints what it did;
 * exit status 1 if anything differs.
 */
#include "cli/confine.h"
#include "tests/cli/conditions.h"
#include "tests/cli/seen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST 4u /* of the times that it looks: so many of the first, */
#define LAST  8u /* of the last, */
#define SOME  5u /* and of those between */

#define LOOP  6u   /* instructions in a small loop */
#define SOON  300u /* instructions, in which one is looked for */
#define CALLS 100u /* stops at system calls, among which one is looked for */

enum kind { CONTINUE, STEP, RANGE, SEEK, KINDS };
static const char *const names[KINDS] = { "continue", "step", "steps in a range", "seek" };

struct ask {
	enum kind kind;
	enum replay_dir dir;
	struct replay_pos from, to;
	uint64_t lo, hi;
	unsigned how;
	uint64_t at; /* where the condition is about */
	enum replay_scope scope;
};

static const char *path;
static uint64_t spacing;
static unsigned interruptions, elsewhere, asked, bad;

/* ---- interruptions ----------------------------------------------------------------------------
 */

static unsigned looks, last_look;

static bool interrupt(void *ctx)
{
	struct replay *r = ctx;

	r->patience.due = 0; /* it looks each time that it could */
	return ++looks >= last_look;
}

/* What was asked, interrupted when it looks for the nth time. */
static void put(struct replay *r, const struct ask *a, unsigned nth, struct replay_stop *stop)
{
	looks = 0;
	last_look = nth;
	replay_set_poll(r, interrupt, r);
	r->patience.due = 0;
	memset(stop, 0, sizeof(*stop));
	switch (a->kind) {
	case CONTINUE:
		replay_continue(r, a->dir, stop);
		break;
	case STEP:
		replay_step(r, a->dir, stop);
		break;
	case RANGE:
		replay_step_range(r, a->lo, a->hi, stop);
		break;
	default:
		if (replay_seek(r, &a->to, &stop->err))
			stop->reason = r->cancelled ? REPLAY_INTERRUPTED : REPLAY_FAILED;
		replay_pos(r, &stop->pos);
	}
	replay_set_poll(r, NULL, NULL);
	r->patience.due = 0;
}

/* ---- what is asked ----------------------------------------------------------------------------
 */

static struct replay *start(void)
{
	struct replay *r = open_or_exit(path);

	r->spacing = spacing;
	r->ground_worth = 1;
	r->ground_first = 1000;
	r->survey_worth = 500;
	r->leap_first = 100;
	r->near = spacing / 50;
	return r;
}

static struct replay *begin(const struct ask *a)
{
	struct replay *r = start();

	replay_set_scope(r, a->scope);
	condition(r, a->how, a->at);
	return r;
}

/* Early ones, too: much of what runs there does not run again. */
static struct replay_pos somewhere(struct replay *r)
{
	uint32_t thread = rnd() % r->nthreads;
	const struct dj_thread_info *info = dj_trace_thread(replay_trace(r), thread);
	uint64_t n = info->last_steps - info->first_steps + 1;

	return (struct replay_pos){ .thread = thread,
				    .steps = info->first_steps + rnd() % ((n >> rnd() % 10) + 1) };
}

/* An instruction that comes round again within a few others, soon behind `from`; `other` if there
 * is none. */
static uint64_t loop_behind(struct replay *r, const struct replay_pos *from, uint64_t other)
{
	uint64_t ran[LOOP] = { 0 };
	struct replay_stop stop;

	bad += replay_seek(r, from, NULL) != 0;
	for (unsigned i = 0; i < SOON; i++) {
		replay_step(r, REPLAY_FORWARD, &stop);
		const uint64_t rip = r->th->e->cpu.rip;
		for (unsigned k = 0; k < LOOP; k++)
			if (ran[k] == rip)
				return rip;
		ran[i % LOOP] = rip;
	}
	return other;
}

/* Where the next step, or the step back, is across a system call, the first behind `from` that
 * others have their turns in, if there is one soon. */
static void at_a_call(struct replay *r, struct replay_pos *from, enum replay_dir dir)
{
	struct replay_pos before = *from;
	struct replay_stop stop;
	bool entered = false;

	bad += replay_seek(r, from, NULL) != 0;
	replay_set_scope(r, REPLAY_THREAD);
	replay_catch_syscalls(r, true, NULL, 0);
	for (unsigned i = 0; i < CALLS; i++) {
		replay_continue(r, REPLAY_FORWARD, &stop);
		if (stop.reason == REPLAY_END)
			break;
		if (stop.reason == REPLAY_SYSCALL_RETURN && entered &&
		    stop.pos.seq > before.seq + 1) {
			*from = dir == REPLAY_FORWARD ? before : stop.pos;
			break;
		}
		entered = stop.reason == REPLAY_SYSCALL_ENTRY;
		before = stop.pos;
	}
	replay_catch_syscalls(r, false, NULL, 0);
}

static void choose(struct ask *a, struct replay *other, uint64_t word)
{
	struct replay_pos there;
	struct dj_regs regs;

	memset(a, 0, sizeof(*a));
	a->kind = rnd() % 2 ? CONTINUE : rnd() % KINDS;
	a->dir = rnd() % 2 ? REPLAY_BACKWARD : REPLAY_FORWARD;
	a->from = somewhere(other);
	if ((a->kind == STEP || a->kind == RANGE) && rnd() % 2)
		at_a_call(other, &a->from, a->dir);
	a->to = somewhere(other);
	a->scope = rnd() % 3;
	a->how = word && rnd() % 4 ? 1 + rnd() % 2 : rnd() % CONDITIONS;
	there = somewhere(other);
	bad += replay_seek(other, &there, NULL) != 0;
	replay_regs(other, &regs);
	a->at = rnd() % 2 ? loop_behind(other, &a->from, regs.rip) : regs.rip;
	if (a->how == 1 || a->how == 2)
		a->at = word				   ? word + 8 * (rnd() % 4)
			: other->nthreads > 1 && rnd() % 2 ? shared_word(other)
							   : word_of(other);
	bad += replay_seek(other, &a->from, NULL) != 0;
	replay_regs(other, &regs);
	a->lo = regs.rip - rnd() % 200;
	a->hi = regs.rip + 1 + rnd() % 200;
}

/* ---- a round ----------------------------------------------------------------------------------
 */

static void say(const struct ask *a, unsigned nth, const char *what, const struct replay_stop *stop,
		const struct replay_stop *want)
{
	printf("%s %s from thread %u step %" PRIu64 ", scope %u, condition %u at %#" PRIx64
	       ", interrupted at look %u: %s: reason %d at thread %u step %" PRIu64 ", seq %" PRIu64
	       "; without, reason %d at thread %u step %" PRIu64 ", seq %" PRIu64 "\n",
	       names[a->kind], a->dir == REPLAY_BACKWARD ? "back" : "forward", a->from.thread,
	       a->from.steps, (unsigned)a->scope, a->how, a->at, nth, what, (int)stop->reason,
	       stop->pos.thread, stop->pos.steps, stop->pos.seq, (int)want->reason,
	       want->pos.thread, want->pos.steps, want->pos.seq);
	bad++;
}

static bool between(const struct replay_pos *pos, const struct replay_pos *a,
		    const struct replay_pos *b)
{
	if (replay_pos_cmp(a, b) > 0)
		return between(pos, b, a);
	return replay_pos_cmp(pos, a) >= 0 && replay_pos_cmp(pos, b) <= 0;
}

/* Whether whoever was interrupted there has to ask again. False too if something is wrong. */
static bool not_there_yet(struct replay *r, const struct ask *a, unsigned nth,
			  const struct replay_stop *stop, const struct replay_stop *want,
			  const struct state *was)
{
	struct replay_pos now;
	struct dj_regs regs;

	replay_pos(r, &now);
	if (replay_pos_cmp(&now, &stop->pos))
		say(a, nth, "told another position than it has", stop, want);
	else if (a->kind == SEEK || (a->kind == STEP && a->dir == REPLAY_BACKWARD)) {
		if (!replay_pos_cmp(&now, &was->pos))
			bad += compare(r, was, "interrupted on its way");
		else if (a->kind == SEEK || replay_pos_cmp(&now, &want->pos))
			say(a, nth, "is on its way", stop, want);
		else
			return false;
	} else if (!between(&now, &was->pos, &want->pos)) {
		say(a, nth, "not on its way", stop, want);
	} else if (a->kind == STEP && !replay_pos_cmp(&now, &want->pos)) {
		return false;
	} else if (a->kind != CONTINUE && now.thread != a->from.thread) {
		elsewhere++;
		return false;
	} else if (a->kind == RANGE) {
		replay_regs(r, &regs);
		return regs.rip >= a->lo && regs.rip < a->hi;
	}
	return !bad;
}

/* What it comes to when nobody interrupts, and asking once more. */
struct wanted {
	struct state was, there;
	struct replay_stop stop, next;
};

static void check(const struct ask *a, unsigned nth, const char *what,
		  const struct replay_stop *stop, const struct replay_stop *want)
{
	if (stop->reason != want->reason || replay_pos_cmp(&stop->pos, &want->pos) ||
	    stop->watch != want->watch || stop->signo != want->signo || stop->sysno != want->sysno)
		say(a, nth, what, stop, want);
}

static void interrupted_at(struct replay *r, const struct ask *a, unsigned nth,
			   const struct wanted *want)
{
	struct replay_stop stop;

	bad += replay_seek(r, &a->from, NULL) != 0;
	put(r, a, nth, &stop);
	if (stop.reason == REPLAY_INTERRUPTED) {
		interruptions++;
		if (!not_there_yet(r, a, nth, &stop, &want->stop, &want->was))
			return;
		put(r, a, UINT32_MAX, &stop);
	}
	check(a, nth, "goes wrong", &stop, &want->stop);
	if (bad)
		return;
	bad += compare(r, &want->there, "where it comes to");
	put(r, a, UINT32_MAX, &stop);
	check(a, nth, "goes wrong next time", &stop, &want->next);
}

/* The same from shortly before what it comes to, which is more of what there is to be got wrong. */
static void come_closer(struct ask *a)
{
	struct replay *r = begin(a);
	struct replay_stop stop;

	bad += replay_seek(r, &a->from, NULL) != 0;
	put(r, a, UINT32_MAX, &stop);
	const struct dj_thread_info *info = dj_trace_thread(replay_trace(r), stop.pos.thread);
	uint64_t back = rnd() % 1000;
	if (stop.pos.steps >= info->first_steps + back)
		a->from = (struct replay_pos){ .thread = stop.pos.thread,
					       .steps = stop.pos.steps - back };
	replay_close(r);
}

static void round_of(struct replay *other, uint64_t word)
{
	struct replay_stop stop;
	struct wanted want;
	struct ask a;

	choose(&a, other, word);
	if (a.kind == CONTINUE && a.dir == REPLAY_FORWARD && rnd() % 2)
		come_closer(&a);
	struct replay *calm = begin(&a), *r = begin(&a);
	calm->ground_worth = UINT64_MAX / 4;
	calm->leap_first = UINT64_MAX;
	const bool all = rnd() % 4 == 0, anew = rnd() % 2;
	bad += replay_seek(calm, &a.from, NULL) || replay_seek(r, &a.from, NULL);
	look(calm, &want.was, all);
	put(calm, &a, UINT32_MAX, &want.stop);
	look(calm, &want.there, all);
	put(calm, &a, UINT32_MAX, &want.next);
	asked++;
	put(r, &a, UINT32_MAX, &stop);
	const unsigned n = looks;
	check(&a, n, "goes wrong without an interruption", &stop, &want.stop);
	for (unsigned i = 0; i < FIRST + SOME + LAST && i < n && !bad; i++) {
		unsigned nth = i < FIRST	  ? 1 + i
			       : i < FIRST + SOME ? 1 + (unsigned)rnd() % n
						  : n - (i - FIRST - SOME);
		if (anew) {
			replay_close(r);
			r = begin(&a);
		}
		interrupted_at(r, &a, nth, &want);
	}
	replay_close(r);
	replay_close(calm);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 20;
	uint64_t word = argc > 5 ? strtoull(argv[5], NULL, 0) : 0;

	if (argc < 2) {
		fprintf(stderr, "usage: replay-pulses TRACE [ROUNDS [SEED [SPACING [WORD]]]]\n");
		return 2;
	}
	path = argv[1];
	random_state += (argc > 3 ? strtoull(argv[3], NULL, 0) : 0) * 0x9e3779b97f4a7c15ULL;
	spacing = argc > 4 ? strtoull(argv[4], NULL, 0) : 100000;
	replay_confine(cli_confine);
	struct replay *other = start();
	for (unsigned i = 0; i < rounds && !bad; i++)
		round_of(other, word);
	replay_close(other);
	printf("%u asked, %u interruptions, %u of them in another thread, %u differences\n", asked,
	       interruptions, elsewhere, bad);
	return bad || !interruptions;
}
