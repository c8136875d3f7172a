/*
 * replay-ground TRACE [SPACING [HOW [SEED [WORD]]]]: ground that a process of its own has covered
 * in generated code against the same covered by the emulator. At each checkpoint that came back, of
 * every thread, there must be the same registers, the same counts, the same bytes known and stale
 * in every page of the memory view, and the same shadow below them; of memory that was met on the
 * way there, nothing may be missing. HOW asks for something else:
 *
 * - steps: of code that ran on the way nothing may be missing, either (the emulator goes step by
 *   step to see)
 * - skew: a page is left out of what came back: that must show
 * - stops: continuing with a breakpoint, also one with a condition, a watchpoint, or signals and a
 *   system call, over ground as it is being covered, through one process and through all, stops
 *   where it does without; forwards and then back
 * - back: a watchpoint finds going back what it found going forward, in the same threads
 * - kept: what was covered is kept beside the trace; another replay that uses it finds the same at
 *   each checkpoint, light or full
 * - filled: the same, with memory at all of them again, from a process that goes through all
 * - partial: the same of about the first half of each thread, kept with little memory: a process
 *   goes on from there, while nobody waits or because somebody goes further, wherever the user was
 *   before; each is reaped
 * - foreign: what lies beside the trace is not used
 * - wrong: what was kept has wrong registers: the next digest shows it, and the thread goes on
 *   right
 * - spoilt: what was kept is changed at random: what it says then may be wrong for as long as no
 *   digest has shown it, and does no harm
 * - damage: messages between the processes are changed at random: what they say then is refused, or
 *   may be wrong, and does no harm
 *
 * Prints what it did; exit status 1 if anything differs, 77 if this host cannot.
 */
#include "cli/confine.h"
#include "format/index.h"
#include "replayer/ground.h"
#include "replayer/land.h"
#include "replayer/memview-page.h"
#include "replayer/wire.h"
#include "replayer/worker.h"
#include "tests/cli/conditions.h"
#include "tests/cli/ground-compare.h"
#include "tests/cli/seen.h"
#include "tests/lib/notes.h"
#include "tests/lib/share-places.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LITTLE ((size_t)1 << 20) /* bytes of memory at checkpoints */

static struct replay *start(const char *path, uint64_t spacing, uint64_t worth)
{
	struct replay *r = open_or_exit(path);

	r->spacing = spacing;
	r->ground_worth = worth;
	return r;
}

/* As if a page that changed had been forgotten. */
static void leave_out_page(struct rp_checkpoints *cs)
{
	for (size_t k = cs->n / 2; k < cs->n; k++) {
		struct rp_changes *ch = &cs->list[k]->changes;
		for (size_t i = 0; i < ch->n; i++) {
			struct rp_change *x = &ch->list[i];
			if (x->key & 1 || x->before == x->after)
				continue;
			rp_version_unref(x->key, x->after);
			x->after = rp_version_ref(x->key, x->before);
			return;
		}
	}
	printf("no page changed between any two checkpoints\n");
}

/* The thread goes there step by step; all that runs must be in the lines of c. */
static void step_to(const struct rp_checkpoint *c, struct replay *slow)
{
	struct rp_thread *th = slow->th;
	struct rp_thread_pos now;
	unsigned missing = 0;

	for (rp_thread_pos(th, &now); rp_thread_pos_cmp(&now, &c->pos) < 0;
	     rp_thread_pos(th, &now)) {
		uint64_t rip = th->e->cpu.rip;
		enum rp_thread_stop res = rp_thread_step(th);
		if (res != THREAD_LIMIT)
			return;
		missing += !rp_lines_met(&c->lines, LINE_RAN, rip, rip);
		if (missing == 1) {
			differs(c, "lines run", rip);
			missing++;
		}
	}
}

static unsigned nlight;

static unsigned thread(struct replay *quick, struct replay *slow, uint32_t number, const char *how)
{
	const struct rp_thread_pos far = { .steps = UINT64_MAX };
	unsigned n = 0;

	if (rp_switch(quick, number, NULL) || rp_switch(slow, number, NULL))
		return 0;
	bool filled = !strcmp(how, "filled");
	if (!strcmp(how, "kept") || filled) {
		if (!quick->cs->indexed || !quick->cs->whole)
			return 0;
		rp_checkpoint_take(quick->cs);
		if (filled && rp_ground_fill(quick, 1, &far, NULL, NULL)) {
			differs(quick->cs->list[0], "ends of filling", 0);
			return 0;
		}
	} else if (!strcmp(how, "partial")) {
		/* the caller has */
	} else {
		/* mapped twice, so that copies of this process would share it */
		static uint8_t edge[65536];
		memcpy(edge, quick->th->e->shadow, sizeof(edge));
		if (!rp_ground_have(quick))
			return 0;
		rp_ground_cover(quick, &far);
		const struct rp_checkpoint *last = quick->cs->list[quick->cs->n - 1];
		if (memcmp(edge, quick->th->e->shadow, sizeof(edge)) != 0)
			differs(last, "shadows here and in the other process", 0);
		if (last->pos.steps < quick->th->end_steps)
			differs(last, "ends of the covered ground", 0);
	}
	if (!strcmp(how, "skew"))
		leave_out_page(quick->cs);
	for (size_t i = 0; i < quick->cs->n; i++) {
		const struct rp_checkpoint *c = quick->cs->list[i];
		struct dj_error err;
		if (!strcmp(how, "steps"))
			step_to(c, slow);
		bool light = c->light;
		const struct rp_thread_pos pos = c->pos;
		if (rp_land(quick, &pos, false, &err) || replay_move(slow, &pos, &err)) {
			printf("going to step %" PRIu64 ": %s\n", c->pos.steps, err.text);
			bad++;
			return n;
		}
		/* others may have come before it */
		i = rp_checkpoint_count(quick->cs, &pos) - 1;
		c = quick->cs->list[i];
		if (c->light || rp_thread_pos_cmp(&c->pos, &pos) != 0) {
			printf("at step %" PRIu64 " is no full checkpoint\n", pos.steps);
			bad++;
			return n;
		}
		nlight += light;
		rp_checkpoint_take(slow->cs);
		compare_checkpoint(c, quick, slow);
		n++;
	}
	return n;
}

/* ---- conditions ---------------------------------------------------------------------------- */

#define STOPS 12u

static unsigned pulses, interruptions;

static bool interrupt(void *ctx)
{
	struct replay *r = ctx;

	r->patience.due = 0; /* it asks at each pulse */
	return !pulses || !--pulses;
}

/* Interrupted now and then: who goes on then stops where he would have stopped. */
static void go_on(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	for (unsigned times = (unsigned)rnd() % 4; times; times--) {
		pulses = 1 + (unsigned)rnd() % (rnd() & 1 ? 10 : 1000);
		replay_set_poll(r, interrupt, r);
		r->patience.due = 0;
		replay_continue(r, dir, stop);
		replay_set_poll(r, NULL, NULL);
		if (stop->reason != REPLAY_INTERRUPTED)
			return;
		interruptions++;
	}
	replay_continue(r, dir, stop);
}

/* Where both stop, one after the other; then back the same way, which is past the same threads'
 * accesses in the other order. */
static unsigned go_through(struct replay *quick, struct replay *slow, bool watch)
{
	struct replay_stop a, b;
	unsigned n = 0, met = 0;
	int32_t tid[STOPS];

	for (int back = 0; back < 2; back++)
		for (unsigned i = 0; i < STOPS; i++, n++) {
			enum replay_dir dir = back ? REPLAY_BACKWARD : REPLAY_FORWARD;
			go_on(quick, dir, &a);
			replay_continue(slow, dir, &b);
			if (a.reason != b.reason || replay_pos_cmp(&a.pos, &b.pos) != 0) {
				printf("%s: reason %d at step %" PRIu64 ", not %d at %" PRIu64 "\n",
				       back ? "back" : "forward", (int)a.reason, a.pos.steps,
				       (int)b.reason, b.pos.steps);
				bad++;
				return n;
			}
			if (back && watch &&
			    (a.reason == REPLAY_WATCH ? !met || a.tid != tid[met - 1]
						      : met && a.reason == REPLAY_BEGIN)) {
				printf("back: %u more watched accesses lie before step %" PRIu64
				       "\n",
				       met, a.pos.steps);
				bad++;
				return n;
			}
			if (a.reason == REPLAY_END || a.reason == REPLAY_BEGIN)
				break;
			if (a.reason == REPLAY_WATCH && back)
				met--;
			else if (a.reason == REPLAY_WATCH)
				tid[met++] = a.tid;
		}
	return n;
}

/* From an end of history to the other, over ground that is covered: long intervals are looked at in
 * parts (rp_survey()). */
static unsigned from_an_end(struct replay *quick, struct replay *slow, enum replay_dir dir)
{
	const bool back = dir == REPLAY_BACKWARD;
	const struct replay_pos from = { .steps = back ? UINT64_MAX : 0 };
	struct replay_stop a, b;
	unsigned n = 0;

	bad += replay_seek(quick, &from, NULL) || replay_seek(slow, &from, NULL);
	do {
		replay_continue(quick, dir, &a);
		replay_continue(slow, dir, &b);
		if (a.reason != b.reason || replay_pos_cmp(&a.pos, &b.pos) != 0) {
			printf("%s from an end: reason %d at step %" PRIu64 ", not %d at %" PRIu64
			       "\n",
			       back ? "back" : "forward", (int)a.reason, a.pos.steps, (int)b.reason,
			       b.pos.steps);
			bad++;
			return n;
		}
		n++;
	} while (a.reason != (back ? REPLAY_BEGIN : REPLAY_END) && n < STOPS);
	return n;
}

static uint64_t watched; /* 0: any word */

/* Forward over some accesses to one of three words, and back over the same. */
static unsigned there_and_back(struct replay *r)
{
	unsigned kind = rnd() % 2 ? REPLAY_WATCH_WRITE : REPLAY_WATCH_ACCESS, n = 1 + rnd() % 200,
		 met = 0;
	uint64_t at = watched + 4 * (rnd() % 6);
	struct replay_stop stop;
	int32_t tid[200];

	int id = replay_watch_add(r, at, rnd() % 2 ? 8 : 4, kind);
	bad += replay_seek(r, &(struct replay_pos){ 0 }, NULL);
	do {
		replay_continue(r, REPLAY_FORWARD, &stop);
		if (stop.reason == REPLAY_WATCH)
			tid[met++] = stop.tid;
	} while (stop.reason == REPLAY_WATCH && met < n);
	n = met;
	do {
		replay_continue(r, REPLAY_BACKWARD, &stop);
		if (met ? stop.reason != REPLAY_WATCH || stop.tid != tid[met - 1]
			: stop.reason == REPLAY_WATCH) {
			printf("back: %u more accesses to %#" PRIx64 " lie before step %" PRIu64
			       ", reason %d\n",
			       met, at, stop.pos.steps, (int)stop.reason);
			bad++;
		}
	} while (!bad && met--);
	replay_watch_del(r, id);
	return n;
}

static int back(const char *path)
{
	struct replay *r = start(path, UINT64_MAX / 4, UINT64_MAX);
	unsigned n = 0;

	for (unsigned i = 0; i < 6 && !bad; i++)
		n += there_and_back(r);
	replay_close(r);
	printf("%u accesses there and back, %u differences\n", n, bad);
	return bad || !n;
}

/* Where nothing is to stop at, over ground that is covered: whether threads leap, and that they
 * come to the end all the same. (Where there is, it is a matter of chance.) */
static bool leaps_over_all(const char *path, uint64_t spacing)
{
	struct replay *r = start(path, spacing, 1);
	struct replay_stop stop;
	uint64_t leaps;

	r->ground_first = 1000;
	r->leap_first = 100;
	replay_set_scope(r, REPLAY_PROCESSES);
	replay_report_signals(r, 0);
	bad += replay_seek(r, &(struct replay_pos){ .steps = UINT64_MAX }, NULL) != 0;
	bad += replay_seek(r, &(struct replay_pos){ 0 }, NULL) != 0;
	do {
		replay_continue(r, REPLAY_FORWARD, &stop);
	} while (stop.reason == REPLAY_FORKED || stop.reason == REPLAY_EXECED);
	if (stop.reason != REPLAY_END) {
		printf("forward: reason %d at step %" PRIu64 ", not the end\n", (int)stop.reason,
		       stop.pos.steps);
		bad++;
	}
	leaps = r->leaps;
	replay_close(r);
	return leaps != 0;
}

static unsigned stops(const char *path, uint64_t spacing)
{
	struct replay *look = start(path, UINT64_MAX / 4, UINT64_MAX);
	uint64_t surveys = 0, leaps = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < 15 && !bad; i++) {
		struct replay *quick = start(path, spacing, 1);
		struct replay *slow = start(path, UINT64_MAX / 4, UINT64_MAX);
		const struct dj_thread_info *info = dj_trace_thread(replay_trace(look), 0);
		struct replay_pos pos = { .steps = info->first_steps };
		struct dj_regs regs;
		/* early positions: much of what runs there does not run again */
		pos.steps += rnd() % ((info->last_steps - info->first_steps + 1) >> rnd() % 10);
		replay_seek(look, &pos, NULL);
		replay_regs(look, &regs);
		const unsigned how = i % 5;
		const bool watch = how == 1 || how == 2;
		uint64_t at = !watch		   ? regs.rip
			      : look->nthreads > 1 ? shared_word(look)
						   : word_of(look);
		if (watch && watched)
			at = watched;
		replay_set_scope(quick, i % 2 ? REPLAY_PROCESSES : REPLAY_PROCESS);
		replay_set_scope(slow, i % 2 ? REPLAY_PROCESSES : REPLAY_PROCESS);
		quick->ground_first = 1000;
		quick->survey_worth = 500;
		quick->leap_first = 100;
		quick->near = spacing / 50;
		slow->leap_first = UINT64_MAX;
		condition(quick, how, at);
		condition(slow, how, at);
		n += go_through(quick, slow, watch);
		if (!bad)
			n += from_an_end(quick, slow, REPLAY_BACKWARD);
		if (!bad)
			n += from_an_end(quick, slow, REPLAY_FORWARD);
		surveys += quick->surveys;
		leaps += quick->leaps;
		replay_close(quick);
		replay_close(slow);
	}
	if (!surveys && !bad && fast_possible(look->th->e->kind) && look->nthreads == 1 &&
	    look->th->end_steps > 20 * spacing && !share_places(look)) {
		printf("no interval was looked at in parts\n");
		bad++;
	}
	if (!bad && fast_possible(look->th->e->kind) && look->nthreads > 1 &&
	    look->th->end_steps > 20 * spacing && !share_places(look) &&
	    !leaps_over_all(path, spacing)) {
		printf("threads never leapt\n");
		bad++;
	}
	replay_close(look);
	printf("%u stops, %" PRIu64 " surveys, %" PRIu64
	       " leaps, %u interruptions, %u differences\n",
	       n, surveys, leaps, interruptions, bad);
	return n;
}

/* ---- messages that make no sense ----------------------------------------------------------- */

static void *was(void *ctx, uint64_t key)
{
	(void)ctx;
	(void)key;
	return NULL;
}

/* The message, changed or cut; if it is taken for a checkpoint, the thread goes there and on. */
static unsigned damaged(struct replay *r, const struct rp_wire *good, bool change)
{
	const struct rp_thread_pos begin = { .steps = r->th->info->first_steps };
	struct rp_thread_pos to;
	size_t n = good->n;
	uint8_t *bytes = malloc(n);

	memcpy(bytes, good->bytes, n);
	for (unsigned i = 1 + rnd() % 4; change && i; i--) {
		size_t at = rnd() % (rnd() % 2 ? 2000 : n);
		bytes[at] = rnd() % 3 ? (uint8_t)rnd() : rnd() % 2 ? 0 : 255;
	}
	if (change && rnd() % 8 == 0)
		n = rnd() % n;
	struct rp_checkpoint *c = n < RP_WIRE_HEAD || rp_wire_length(bytes) != n
					  ? NULL
					  : rp_wire_get(bytes, n, r->th, r->th->space, was, NULL);
	free(bytes);
	if (!c)
		return 0;
	to = c->pos;
	if (!rp_checkpoint_add(r->cs, c, &begin))
		return 0;
	if (!rp_checkpoint_go(r->cs, &to, NULL)) {
		to.steps += 2000;
		rp_thread_run(r->th, &to, 0);
	}
	while (r->cs->n)
		rp_checkpoint_free(r->cs->list[--r->cs->n]);
	r->mv->lost = true; /* only the beginning is a way back */
	rp_checkpoint_go(r->cs, &begin, NULL);
	return 1;
}

static int damage(const char *path)
{
	struct replay *r = start(path, UINT64_MAX / 4, UINT64_MAX);
	struct rp_thread_pos to = { .steps = r->th->end_steps / 2 },
			     begin = { .steps = r->th->info->first_steps };
	struct rp_wire w = { 0 };
	struct rp_space *before = rp_space_new();
	unsigned taken = 0, n = 400;

	r->patience.allowance = UINT64_MAX / 2;
	replay_move(r, &to, NULL);
	rp_checkpoint_take(r->cs);
	rp_wire_put(&w, r->cs->list[r->cs->n - 1], r->th->e, before);
	while (r->cs->n)
		rp_checkpoint_free(r->cs->list[--r->cs->n]);
	r->mv->lost = true;
	rp_checkpoint_go(r->cs, &begin, NULL);
	bad += damaged(r, &w, false) != 1;
	for (unsigned i = 0; i < n; i++)
		taken += damaged(r, &w, true);
	printf("%u damaged messages, %u were taken all the same, %u differences\n", n, taken, bad);
	rp_space_unref(before);
	free(w.bytes);
	replay_close(r);
	return bad != 0;
}

/* ---- what is kept -------------------------------------------------------------------------- */

/* With `wrong`, registers are not what they were. */
static void keep(const char *path, uint64_t spacing, bool wrong)
{
	const struct rp_thread_pos far = { .steps = UINT64_MAX };
	struct replay *r = start(path, spacing, 1);
	struct dj_error err;

	for (uint32_t i = 0; i < r->nthreads; i++)
		if (!rp_switch(r, i, NULL) && rp_ground_have(r))
			rp_ground_cover(r, &far);
	for (size_t i = 0; wrong && i < r->cs->n; i++)
		for (unsigned k = DJ_RBX; k <= DJ_R15; k++)
			r->cs->list[i]->cpu.gpr[k] ^= k == DJ_RBX || k >= DJ_R12;
	if (replay_keep(r, true, &err)) {
		fprintf(stderr, "%s\n", err.text);
		exit(2);
	}
	replay_close(r);
}

/* About half of the ground is covered and kept; behind the last full checkpoint there are light
 * ones for longer than a debugger leaves it at. False: that cannot be had of this thread. */
static bool keep_half(const char *path, uint64_t spacing)
{
	struct replay *r = start(path, spacing, 1);
	struct dj_error err;
	bool good = false;

	replay_limits(r, spacing, 1000, LITTLE);
	r->fill_worth = 1;
	while (!good && rp_ground_more(r, NULL, NULL)) {
		const struct rp_checkpoints *cs = r->cs;
		size_t full = rp_checkpoint_full(cs, cs->n);
		uint64_t last = cs->list[cs->n - 1]->pos.steps;
		good = last > r->th->end_steps / 2 &&
		       last > (full ? cs->list[full - 1]->pos.steps : 0) + rp_sparse(r);
	}
	if (good && replay_keep(r, true, &err)) {
		fprintf(stderr, "%s\n", err.text);
		exit(2);
	}
	replay_close(r);
	return good;
}

static struct replay *start_half(const char *path, uint64_t spacing)
{
	struct replay *r = start(path, spacing, 1);

	replay_limits(r, spacing, 1000, LITTLE);
	r->fill_worth = 1;
	replay_use_index(r);
	if (!r->cs->indexed || r->cs->whole || !r->cs->list[r->cs->n - 1]->light)
		differs(r->cs->list[r->cs->n - 1], "ends of what was kept", 0);
	return r;
}

/* No process is left, nor was forgotten. */
static void reaped(void)
{
	if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD && !rp_workers())
		return;
	printf("processes are left behind\n");
	bad++;
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

/* How far apart full checkpoints are at most. */
static uint64_t furthest(const struct rp_checkpoints *cs)
{
	uint64_t end = cs->list[cs->n - 1]->pos.steps, most = 0;

	for (size_t n = cs->n; (n = rp_checkpoint_full(cs, n)) > 0; n--) {
		if (end - cs->list[n - 1]->pos.steps > most)
			most = end - cs->list[n - 1]->pos.steps;
		end = cs->list[n - 1]->pos.steps;
	}
	return most;
}

/* Whoever makes full checkpoints comes past where somebody wants to go, who is behind, while there
 * is room for hardly any: then there is none left before that. */
static void short_of_memory(const char *path, uint64_t spacing)
{
	const ptrdiff_t much = (ptrdiff_t)1 << 40;
	struct replay *slow = start(path, UINT64_MAX / 4, UINT64_MAX);
	struct replay *quick = start_half(path, spacing);
	const struct rp_checkpoints *cs = quick->cs;
	const struct rp_thread_pos last = cs->list[cs->n - 1]->pos;
	struct dj_regs regs[2];

	quick->ground_worth = UINT64_MAX;
	quick->land_worth = UINT64_MAX / 4;
	quick->budget = (size_t)1 << 30; /* each that comes is a full one */
	struct rp_thread_pos pos = { .steps = rp_sparse(quick) + 1 };
	bad += rp_land(quick, &pos, false, NULL) != 0;
	bad += rp_checkpoint_go(quick->cs, &last, NULL) != 0;
	pos.steps = cs->hold_full.steps + rp_sparse(quick) + 1;
	rp_versions_hold(much);
	bad += rp_land(quick, &pos, false, NULL) || replay_move(slow, &pos, NULL);
	rp_versions_hold(-much);
	replay_regs(quick, &regs[0]);
	replay_regs(slow, &regs[1]);
	if (dj_regs_diff(&regs[0], &regs[1])) {
		printf("short of memory: registers differ at step %" PRIu64 "\n", pos.steps);
		bad++;
	}
	replay_close(quick);
	replay_close(slow);
	reaped();
}

/* Somebody lands the thread, and before the place no checkpoint is full: one is taken at the
 * beginning, and what there is no room for goes. */
static void from_beginning(const char *path, uint64_t spacing)
{
	const ptrdiff_t much = (ptrdiff_t)1 << 40;
	struct replay *slow = start(path, UINT64_MAX / 4, UINT64_MAX);
	struct replay *quick = start_half(path, spacing);
	const struct rp_checkpoints *cs = quick->cs;
	const struct rp_thread_pos last = cs->list[cs->n - 1]->pos;
	struct rp_thread_pos pos = last;
	struct dj_regs regs[2];

	quick->ground_worth = UINT64_MAX;
	quick->fill_worth = UINT64_MAX / 4;
	quick->land_worth = 1000;
	quick->land_page = 0;
	bad += rp_land(quick, &last, false, NULL) != 0;
	for (size_t i = 0; i < cs->n && cs->list[i]->light; i++)
		pos.steps = cs->list[i]->pos.steps + 1;
	quick->cs->indexed = false; /* with an index the beginning has one already */
	rp_versions_hold(much);
	bad += rp_land(quick, &pos, false, NULL) || replay_move(slow, &pos, NULL);
	rp_versions_hold(-much);
	replay_regs(quick, &regs[0]);
	replay_regs(slow, &regs[1]);
	if (dj_regs_diff(&regs[0], &regs[1])) {
		printf("from the beginning: registers differ at step %" PRIu64 "\n", pos.steps);
		bad++;
	}
	replay_close(quick);
	replay_close(slow);
	reaped();
}

static unsigned partial(const char *path, uint64_t spacing)
{
	enum { FURTHER, WAITING, FILLING_WAITING, FILLING_FURTHER, ROOM_WAITING, HOWS };
	unsigned n = 0;

	if (!keep_half(path, spacing)) {
		printf("there is no part of this thread to be kept\n");
		bad++;
		return 0;
	}
	for (unsigned how = FURTHER; how < HOWS && !bad; how++) {
		struct replay *slow = start(path, UINT64_MAX / 4, UINT64_MAX);
		struct replay *quick = start_half(path, spacing);
		struct replay_pos pos = { .steps = quick->th->end_steps / 5 * 2 };
		struct dj_regs regs[2];
		uint64_t done, all;
		if (how == ROOM_WAITING) {
			/* what was begun in the middle goes on to the end, and so not again */
			replay_limits(quick, spacing, 1000, (size_t)1 << 30);
			quick->ground_worth = UINT64_MAX;
		}
		if (how >= FILLING_WAITING && replay_seek(quick, &pos, NULL))
			bad++;
		pos.steps = quick->th->end_steps / 10 * 9;
		if (how != FURTHER && how != FILLING_FURTHER) {
			replay_ahead(quick, never, NULL);
			replay_ahead_progress(quick, &done, &all);
			if (done != all)
				differs(quick->cs->list[quick->cs->n - 1], "ends", all - done);
		}
		if (replay_seek(quick, &pos, NULL) || replay_seek(slow, &pos, NULL))
			bad++;
		replay_regs(quick, &regs[0]);
		replay_regs(slow, &regs[1]);
		/* who goes a long way has not replayed it himself */
		size_t i = rp_checkpoint_count(quick->cs,
					       &(struct rp_thread_pos){ .steps = pos.steps });
		if (dj_regs_diff(&regs[0], &regs[1]))
			differs(quick->cs->list[i - 1], "registers", how);
		bool waits = how == FURTHER || how == FILLING_FURTHER;
		if (!quick->threads[0].ground || rp_ground_likely(quick) != waits)
			differs(quick->cs->list[i - 1], "ways to there", how);
		if (how == ROOM_WAITING && furthest(quick->cs) > rp_sparse(quick))
			differs(quick->cs->list[i - 1], "distances", furthest(quick->cs));
		replay_close(slow);
		slow = start(path, UINT64_MAX / 4, UINT64_MAX);
		quick->cs->budget = SIZE_MAX; /* what is compared with the next one stays */
		if (how == FURTHER || how == FILLING_WAITING || how == ROOM_WAITING)
			n += thread(quick, slow, 0, "partial");
		replay_close(quick);
		replay_close(slow);
		reaped();
	}
	return n;
}

/* The index once more, with some bytes of its blocks changed, and sums that are right. */
static void spoil(const char *path)
{
	struct replay *r = start(path, UINT64_MAX / 4, UINT64_MAX);
	struct dj_trace *t = replay_trace(r);
	struct dj_index *x = dj_index_open(t, rp_wire_layout());
	struct dj_index_writer *w = dj_index_begin(t, rp_wire_layout());
	const uint8_t *block;
	uint64_t at = 0;
	size_t n;

	while (x && (block = dj_index_next(x, 0, &at, &n))) {
		uint8_t *copy = malloc(n + 1);
		memcpy(copy, block, n);
		for (unsigned i = rnd() % 3; i && n; i--)
			copy[rnd() % (rnd() % 2	 ? n
				      : n < 3000 ? n
						 : 3000)] = rnd() % 3	? (uint8_t)rnd()
							    : rnd() % 2 ? 0
									: 255;
		dj_index_put(w, 0, copy, rnd() % 16 ? n : rnd() % (n + 1), SIZE_MAX);
		free(copy);
	}
	dj_index_write(w, NULL);
	dj_index_drop(w);
	dj_index_close(x);
	replay_close(r);
}

static int spoilt(const char *path, uint64_t spacing)
{
	unsigned used = 0, refused = 0;

	for (unsigned i = 0; i < 8; i++) {
		struct replay_stop stop;
		keep(path, spacing, false);
		spoil(path);
		struct replay *r = start(path, spacing, UINT64_MAX);
		r->patience.allowance = UINT64_MAX / 2;
		replay_use_index(r);
		bool had = r->cs->indexed;
		used += had;
		for (unsigned k = 0; k < 6; k++) {
			uint64_t span = r->th->end_steps - r->th->info->first_steps + 1;
			struct replay_pos pos = { .steps =
							  r->th->info->first_steps + rnd() % span };
			replay_seek(r, &pos, NULL);
			replay_step(r, rnd() % 2 ? REPLAY_FORWARD : REPLAY_BACKWARD, &stop);
		}
		replay_continue(r, REPLAY_FORWARD, &stop);
		replay_continue(r, REPLAY_BACKWARD, &stop);
		refused += had && !r->index;
		replay_close(r);
	}
	printf("%u spoilt indexes were used, %u of them refused later\n", used, refused);
	return !used;
}

/* A thread that comes from a checkpoint with wrong registers meets a digest, and goes on right. */
static int wrong(const char *path, uint64_t spacing)
{
	const struct rp_thread_pos far = { .steps = UINT64_MAX };
	struct dj_regs regs[2];
	struct replay_pos pos = { 0 };
	bool used = false, refused = false;

	keep(path, spacing, true);
	for (int i = 0; i < 2; i++) {
		struct replay *r = start(path, spacing, UINT64_MAX);
		if (!i)
			replay_use_index(r);
		used |= r->cs->indexed;
		/* the last one with memory is where it comes from */
		for (size_t k = 0; !i && k + 1 < r->cs->n; k++)
			if (!r->cs->list[k]->light)
				pos.steps = r->cs->list[k]->pos.steps + 1;
		if (replay_seek(r, &pos, NULL) || replay_run_to(r, &far, 0, false) != THREAD_END)
			bad++;
		replay_regs(r, &regs[i]);
		refused |= !i && used && !r->cs->indexed;
		replay_close(r);
	}
	if (dj_regs_diff(&regs[0], &regs[1]))
		bad++;
	printf("wrong registers were %sused, %srefused, %u differences\n", used ? "" : "not ",
	       refused ? "" : "not ", bad);
	return !used || !refused || bad;
}

int main(int argc, char **argv)
{
	uint64_t spacing = argc > 2 ? strtoull(argv[2], NULL, 0) : 100000;
	unsigned n = 0;

	if (argc < 2)
		return 2;
	if (!notes_fit()) {
		printf("there can be no notes here\n");
		return 77;
	}
	watched = argc > 5 ? strtoull(argv[5], NULL, 0) : 0;
	random_state += (argc > 4 ? strtoull(argv[4], NULL, 0) : 0) * 0x9e3779b97f4a7c15ULL;
	replay_confine(cli_confine);
	if (argc > 3 && !strcmp(argv[3], "back"))
		return back(argv[1]);
	if (argc > 3 && !strcmp(argv[3], "stops"))
		return !stops(argv[1], spacing) || bad;
	if (argc > 3 && !strcmp(argv[3], "damage"))
		return damage(argv[1]);
	if (argc > 3 && !strcmp(argv[3], "spoilt"))
		return spoilt(argv[1], spacing);
	if (argc > 3 && !strcmp(argv[3], "foreign")) {
		struct replay *r = start(argv[1], spacing, UINT64_MAX);
		replay_use_index(r);
		bool used = r->cs->indexed || r->cs->n;
		replay_close(r);
		return used;
	}
	if (argc > 3 && !strcmp(argv[3], "wrong"))
		return wrong(argv[1], spacing);
	if (argc > 3 && !strcmp(argv[3], "partial")) {
		struct replay *r = start(argv[1], spacing, UINT64_MAX);
		bool possible = fast_possible(r->th->e->kind);
		replay_close(r);
		n = possible ? partial(argv[1], spacing) : 0;
		if (possible && !bad)
			short_of_memory(argv[1], spacing);
		if (possible && !bad)
			from_beginning(argv[1], spacing);
		printf("%u checkpoints, %u of them light, %u differences\n", n, nlight, bad);
		return !possible ? 77 : bad || !n;
	}
	bool kept = argc > 3 && (!strcmp(argv[3], "kept") || !strcmp(argv[3], "filled"));
	if (kept)
		keep(argv[1], spacing, false);
	struct replay *quick = start(argv[1], spacing, kept ? UINT64_MAX : 1);
	if (kept)
		replay_use_index(quick);
	struct replay *slow = start(argv[1], UINT64_MAX / 4, UINT64_MAX);
	slow->patience.fixed = true; /* what the other one keeps is counted as its own */
	for (uint32_t i = 0; i < quick->nthreads; i++)
		n += thread(quick, slow, i, argc > 3 ? argv[3] : "");
	if (!n && !fast_possible(quick->th->e->kind))
		return 77;
	printf("%u checkpoints, %u of them light, %u differences\n", n, nlight, bad);
	replay_close(quick);
	replay_close(slow);
	return bad || !n;
}
