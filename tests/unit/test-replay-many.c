/*
 * Many threads of one process: all their positions in one order, walked both ways and with
 * conditions, and the memory that they share.
 */
#include "tests/unit/test-replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world *many[WORLD_THREADS];
unsigned nmany;

/* All positions of all threads in their order. */
static struct one {
	unsigned thread;
	size_t i;
} * line;
static size_t nline;

static const struct world_pos *at(size_t k)
{
	return &many[line[k].thread]->pos[line[k].i];
}

static int by_order(const void *a, const void *b)
{
	const struct one *x = a, *y = b;
	uint64_t s = many[x->thread]->pos[x->i].seq, t = many[y->thread]->pos[y->i].seq;

	if (s != t)
		return s < t ? -1 : 1;
	if (x->thread != y->thread)
		return x->thread < y->thread ? -1 : 1;
	return x->i < y->i ? -1 : x->i > y->i;
}

void start_many(unsigned n, unsigned rounds, unsigned model, bool racy)
{
	struct dj_error err = { 0 };

	snprintf(path, sizeof(path), "/tmp/test-replay-%d.deja", (int)getpid());
	nmany = n;
	world_record_many(path, rnd(), n, rounds, model, racy, many);
	rep = replay_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep);
	replay_report_signals(rep, 0);
	rep->open_max = rnd() & 1 ? 2 : 1000; /* those that are over come and go, or stay */
	nline = 0;
	for (unsigned t = 0; t < n; t++)
		nline += many[t]->n;
	line = malloc(nline * sizeof(*line));
	CU_ASSERT_PTR_NOT_NULL_FATAL(line);
	nline = 0;
	for (unsigned t = 0; t < n; t++)
		for (size_t i = 0; i < many[t]->n; i++)
			line[nline++] = (struct one){ t, i };
	qsort(line, nline, sizeof(*line), by_order);
	world = many[0];
}

void finish_many(void)
{
	replay_close(rep);
	for (unsigned t = 0; t < nmany; t++)
		world_free(many[t]);
	free(line);
	unlink(path);
}

/* Whether the moment is position k of the order, with its thread selected. */
static bool there(size_t k)
{
	struct replay_pos pos;
	struct replay_thread t;

	replay_pos(rep, &pos);
	replay_thread(rep, &t);
	world = many[line[k].thread];
	if (t.number == line[k].thread && pos.thread == t.number && pos.seq == at(k)->seq &&
	    pos.within == at(k)->within && same(line[k].i))
		return true;
	fprintf(stderr, "\n  wanted %llu:%llu of %u, have %llu:%llu of %u, %u selected\n",
		(unsigned long long)at(k)->seq, (unsigned long long)at(k)->within, line[k].thread,
		(unsigned long long)pos.seq, (unsigned long long)pos.within, pos.thread, t.number);
	return false;
}

static bool go_there(size_t k)
{
	world = many[line[k].thread];
	return go(line[k].i);
}

/* Which conditions are looked for. */
static struct {
	bool function, rep, signals, calls, watch;
} wanted;

/* A write watch is hit on the way to position k of the order. */
static bool watch_at(size_t k)
{
	return wanted.watch && line[k].i && at(k)[-1].all_watch2;
}

/* What position k of the order stops a continue for; `arrival`: also what its thread did last. */
static enum replay_reason reason_at(size_t k, bool arrival)
{
	const struct world_pos *p = at(k), *before = line[k].i ? p - 1 : NULL;

	if (arrival && watch_at(k))
		return REPLAY_WATCH;
	if (arrival && wanted.calls && before && before->syscall &&
	    before->rip == world_label("syscall"))
		return REPLAY_SYSCALL_RETURN;
	if (wanted.signals && p->signal)
		return REPLAY_SIGNAL;
	if (wanted.calls && p->syscall && p->rip == world_label("syscall"))
		return REPLAY_SYSCALL_ENTRY;
	if (wanted.function && p->rip == world_label("function") && !p->rep)
		return REPLAY_BREAK;
	if (wanted.rep && p->rip == world_label("rep") && !p->rep)
		return REPLAY_BREAK;
	return REPLAY_STEPPED;
}

static int watch_id;
static bool may_watch;

static void want_some(void)
{
	static const uint64_t nr[] = { 39 };
	unsigned kinds = 1 + (unsigned)(rnd() % 15);

	memset(&wanted, 0, sizeof(wanted));
	wanted.watch = may_watch && rnd() & 1;
	if (wanted.watch)
		watch_id = replay_watch_add(rep, WATCHED2, 8, REPLAY_WATCH_WRITE);
	wanted.function = kinds & 1;
	wanted.rep = kinds & 2;
	wanted.signals = kinds & 4;
	wanted.calls = kinds & 8;
	if (wanted.function)
		replay_break_add(rep, world_label("function"));
	if (wanted.rep)
		replay_break_add(rep, world_label("rep"));
	replay_report_signals(rep, wanted.signals ? 1 << 10 : 0);
	replay_catch_syscalls(rep, wanted.calls, nr, 1);
}

static void want_none(void)
{
	if (wanted.watch)
		replay_watch_del(rep, watch_id);
	if (wanted.function)
		replay_break_del(rep, world_label("function"));
	if (wanted.rep)
		replay_break_del(rep, world_label("rep"));
	replay_report_signals(rep, 0);
	replay_catch_syscalls(rep, false, NULL, 0);
	memset(&wanted, 0, sizeof(wanted));
}

/* Some continues forward from position k of the order, against the order itself. */
static bool walk_forward(size_t k, int stops)
{
	struct replay_stop stop;
	bool told = false;

	while (stops--) {
		/* a signal that arrives where one goes on from is told, too, if it was not */
		if (!told && wanted.signals && at(k)->signal) {
			replay_continue(rep, REPLAY_FORWARD, &stop);
			if (stop.reason != REPLAY_SIGNAL || !there(k))
				return false;
			told = true;
			continue;
		}
		enum replay_reason reason = REPLAY_END;
		for (k++; k < nline && (reason = reason_at(k, true)) == REPLAY_STEPPED; k++)
			;
		if (k == nline)
			reason = REPLAY_END;
		replay_continue(rep, REPLAY_FORWARD, &stop);
		told = reason == REPLAY_SIGNAL;
		if (stop.reason != reason || stop.pos.thread != line[k - (k == nline)].thread ||
		    !there(k - (k == nline))) {
			fprintf(stderr, "  forward: reason %d, wanted %d at %zu of %zu %s\n",
				stop.reason, reason, k, nline, stop.err.text);
			return false;
		}
		if (k == nline)
			break;
	}
	return true;
}

/* What position k of the order stops a continue back for. */
static enum replay_reason reason_back(size_t k)
{
	enum replay_reason reason = reason_at(k, false);

	if (reason == REPLAY_STEPPED)
		reason = reason_at(k, true);
	return reason == REPLAY_WATCH ? REPLAY_STEPPED : reason;
}

/* Whether the moment is position k of the order, and thread t selected and where it belongs. */
static bool there_with(size_t k, unsigned t)
{
	struct replay_pos pos;
	struct replay_thread who;
	size_t i = k;

	replay_pos(rep, &pos);
	replay_thread(rep, &who);
	while (line[i].thread != t)
		i--;
	world = many[t];
	return pos.thread == line[k].thread && pos.seq == at(k)->seq &&
	       pos.within == at(k)->within && who.number == t && same(line[i].i);
}

static bool walk_backward(size_t k, int stops)
{
	struct replay_stop stop;
	bool untold = false; /* position k has conditions of its own that were not stopped for */

	while (stops--) {
		enum replay_reason reason = REPLAY_BEGIN;
		size_t from = k, now = k;
		unsigned t = line[k].thread;
		if (untold && (reason = reason_back(k)) == REPLAY_STEPPED)
			reason = REPLAY_BEGIN;
		for (; reason == REPLAY_BEGIN && k > 0; k = now) {
			now = k - 1;
			t = line[k].thread;
			if (watch_at(k)) {
				reason = REPLAY_WATCH;
			} else if ((reason = reason_back(now)) != REPLAY_STEPPED) {
				t = line[now].thread;
			} else {
				reason = REPLAY_BEGIN;
				t = line[now].thread;
			}
		}
		untold = reason == REPLAY_WATCH && t != line[k].thread;
		replay_continue(rep, REPLAY_BACKWARD, &stop);
		if (stop.reason != reason || stop.pos.thread != line[k].thread ||
		    !there_with(k, t)) {
			fprintf(stderr,
				"  backward from %zu: reason %d, wanted %d of %u at %zu of %zu "
				"%s\n",
				from, stop.reason, reason, t, k, nline, stop.err.text);
			return false;
		}
		if (reason == REPLAY_BEGIN)
			break;
	}
	return true;
}

/* Continues from anywhere in the order, with conditions and without. */
static void all_continues(bool back)
{
	for (unsigned kind = 0; kind < 6; kind++) {
		size_t bad = 0;
		start_many(2 + kind % 4, 40, 1 + (kind & 1), kind & 2);
		replay_limits(rep, 700, 30, 1 << 22);
		bad += back ? !go_there(nline - 1) || !walk_backward(nline - 1, 1)
			    : !there(0) || !walk_forward(0, 1);
		for (int n = 0; n < 25 && bad < 3; n++) {
			size_t k = rnd() % nline;
			bad += !go_there(k);
			want_some();
			/* whoever is selected, it goes on from the moment */
			uint32_t other = (uint32_t)(rnd() % nmany);
			struct dj_error err;
			if (rnd() & 1 && (back || !(wanted.signals && at(k)->signal)))
				replay_select(rep, other, &err);
			bad += !(back ? walk_backward(k, 8) : walk_forward(k, 12));
			if (back && n % 3 == 0) {
				replay_break_add(rep, world_label("handler"));
				replay_break_del(rep, world_label("handler"));
				k = rnd() % nline;
				bad += !go_there(k) || !walk_forward(k, 3);
			}
			want_none();
		}
		CU_ASSERT_EQUAL(bad, 0);
		finish_many();
	}
}

void test_all_forward(void)
{
	all_continues(false);
}

void test_all_backward(void)
{
	all_continues(true);
}

/* What the selected thread's memory is shown as, without looking ahead. */
static uint64_t shown_hash(void)
{
	uint64_t h = 0;

	for (size_t r = 1; r < 4; r++)
		for (size_t k = 0; k < REGION; k++) {
			uint8_t b;
			size_t n = rp_shared_read(rep, many[0]->region[r].start + k, &b, 1);
			h = world_hash(h, n ? b : 256);
		}
	return h;
}

/* Memory at random moments, as each of the threads is to be shown it. */
void test_shared_memory(void)
{
	for (unsigned kind = 0; kind < 6; kind++) {
		size_t bad = 0, seen = 0;
		start_many(2 + kind % 4, 60, 1 + (kind & 1), false);
		replay_limits(rep, kind < 3 ? 700 : 1000000, 30, 1 << 22);
		for (int n = 0; n < 60 && bad < 3; n++) {
			size_t k = rnd() % nline;
			const struct world_pos *p;
			struct dj_error err;
			/* where it is known what is to be seen */
			while (k < nline && (line[k].i + 1) % 200)
				k++;
			if (k == nline || !at(k)->seen_by[0])
				continue;
			p = at(k);
			bad += !go_there(k);
			for (unsigned t = 0; t < nmany && bad < 3 && n % 2 == 0; t++) {
				if (replay_select(rep, (t + line[k].thread) % nmany, &err))
					continue;
				seen++;
				if (shown_hash() != p->seen_by[(t + line[k].thread) % nmany]) {
					fprintf(stderr, "\n  at %zu thread %u: memory differs\n", k,
						t);
					bad++;
				}
			}
			replay_select(rep, line[k].thread, &err);
			bad += !there(k);
		}
		CU_ASSERT(seen > 20);
		CU_ASSERT_EQUAL(bad, 0);
		finish_many();
	}
}

/* Write watches, with other conditions and without, both ways. Where threads take turns only before
 * events, what really was in memory is what the order says. */
void test_all_watch(void)
{
	may_watch = true;
	for (unsigned kind = 0; kind < 6; kind++) {
		size_t bad = 0, watched = 0;
		start_many(2 + kind % 4, 40, 1 + (kind & 1), false);
		replay_limits(rep, kind < 3 ? 700 : 1000000, 30, 1 << 22);
		for (int n = 0; n < 16 && bad < 3; n++) {
			size_t k = rnd() % nline;
			bad += !go_there(k);
			want_some();
			watched += wanted.watch;
			bad += !(n & 1 ? walk_backward(k, 8) : walk_forward(k, 10));
			want_none();
		}
		CU_ASSERT(watched > 2);
		CU_ASSERT_EQUAL(bad, 0);
		finish_many();
	}
	may_watch = false;
}

/* The next (or last) position of the order that is thread t's, from k on; nline if there is none.
 */
static size_t next_of(unsigned t, size_t k, bool back)
{
	while (k < nline && line[k].thread != t)
		k += back ? (size_t)-1 : 1;
	return k < nline ? k : nline;
}

/* Steps of any thread from any moment, with others' conditions and without. */
void test_all_steps(void)
{
	for (unsigned kind = 0; kind < 6; kind++) {
		size_t bad = 0, taken = 0, stopped = 0;
		start_many(2 + kind % 4, 40, 1 + (kind & 1), kind & 2);
		replay_limits(rep, 700, 30, 1 << 22);
		for (int n = 0; n < 150 && bad < 3; n++) {
			size_t k = rnd() % nline;
			uint32_t t = (uint32_t)(rnd() % nmany);
			bool back = rnd() & 1, alone = rnd() & 1;
			struct replay_stop stop;
			struct dj_error err;
			size_t mine = next_of(t, k, true), to, at_stop = nline;
			if (n % 2) {
				/* a thread's last position before an event, or the next */
				while (k + 1 < nline && line[k].thread == line[k + 1].thread)
					k++;
				t = line[k].thread;
				mine = k;
				back = false;
				if (n % 4 == 1 && (mine = next_of(t, k + 1, false)) < nline) {
					k = mine;
					back = true;
				} else {
					mine = k;
				}
			}
			bad += !go_there(k);
			if (mine == nline || replay_select(rep, t, &err))
				continue;
			to = back ? (mine ? next_of(t, mine - 1, true) : nline)
				  : next_of(t, mine + 1, false);
			if (to == nline)
				continue;
			want_some();
			replay_report_signals(rep, 0);
			replay_catch_syscalls(rep, false, NULL, 0);
			wanted.signals = wanted.calls = false;
			replay_set_scope(rep, alone ? REPLAY_THREAD : REPLAY_PROCESS);
			for (size_t i = back ? k - 1 : k + 1; !alone && i != to && at_stop == nline;
			     i += back ? (size_t)-1 : 1)
				if (line[i].thread != t && reason_at(i, false) == REPLAY_BREAK)
					at_stop = i;
			replay_step(rep, back ? REPLAY_BACKWARD : REPLAY_FORWARD, &stop);
			if (at_stop == nline) {
				bad += stop.reason != REPLAY_STEPPED || !there(to);
				taken++;
			} else {
				bad += stop.reason != REPLAY_BREAK || !there(at_stop);
				stopped++;
			}
			replay_set_scope(rep, REPLAY_PROCESS);
			want_none();
		}
		CU_ASSERT_EQUAL(bad, 0);
		CU_ASSERT(taken > 20);
		CU_ASSERT(stopped > 3);
		finish_many();
	}
}

/* What was mapped before a thread began, by another, is fresh memory to it as well. */
void test_mapped_before(void)
{
	static const uint8_t code[] = { 0x0f, 0x05, 0x90, 0x90 }; /* syscall */
	struct dj_record r = { .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
	struct dj_error err = { 0 };
	struct replay_pos at;
	uint8_t bytes[8] = { 1 };

	struct dj_writer *w = write_by_hand();
	dj_writer_module(w, "/p", code, sizeof(code), &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *a = dj_writer_thread(w, p, 1, "a", &err), *b;
	r.regs.rip = CODE_AT;
	dj_stream_record(a, &r, &err);
	r = (struct dj_record){ .kind = DJ_REC_MAP, .addr = CODE_AT, .length = 4096, .prot = 5 };
	dj_stream_record(a, &r, &err);
	r = (struct dj_record){ .kind = DJ_REC_SYSCALL };
	dj_stream_record(a, &r, &err);
	r = (struct dj_record){ .kind = DJ_REC_MAP,
				.steps = 1,
				.seq = 1,
				.addr = DATA_AT,
				.length = 4096,
				.prot = 3,
				.flags = 0x22,
				.module = -1 };
	dj_stream_record(a, &r, &err);
	dj_stream_flush(a, 1, 1, &err);
	b = dj_writer_thread(w, p, 2, "b", &err);
	dj_stream_flush(b, 0, 1, &err);
	r = (struct dj_record){ .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
	r.regs.rip = CODE_AT + 2;
	dj_stream_record(b, &r, &err);
	dj_stream_facts(b, 0, 2, &err);
	dj_stream_flush(b, 1, 1, &err);
	CU_ASSERT_FATAL(!dj_writer_close(w, &(struct dj_trace_end){ .status = 0 }, &err));
	rep = replay_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep);
	replay_thread_begin(rep, 1, &at);
	CU_ASSERT(!replay_seek(rep, &at, &err));
	CU_ASSERT_EQUAL(replay_read(rep, DATA_AT, bytes, 8), 8);
	CU_ASSERT(!bytes[0] && !bytes[7]);
	/* but not what the image began with */
	CU_ASSERT_EQUAL(replay_read(rep, CODE_AT, bytes, 4), 4);
	CU_ASSERT(!memcmp(bytes, code, 4));
	replay_close(rep);
	unlink(path);
}
