/*
 * Mapping calls of several threads, one after the other (doc/mappings.md, "Several threads"). One
 * that is made in the cache is made by the thread whose id is in T_MAPS. For those that the
 * supervisor makes, and whatever else it does that has to do with what is mapped where, it closes
 * them, with the turn (rec_turn): a word of another thread's is waited for as one waits for a turn.
 *
 * The program can write to the word. Who is said to have it and cannot, or keeps it for more than a
 * minute, has not taken it.
 */
#include "recorder/clock.h"
#include "recorder/recorder.h"
#include "translator/area.h"

uint64_t *rec_maps_word(const struct rec_process *proc, int64_t off)
{
	return (uint64_t *)(void *)(proc->tables + (off - T_TABLES));
}

/* So often is looked whether the call that is being made is over, ... */
#define LOOKS 400
/* ... and so often, and for so long, is tried again. */
#define LOST_TRIES   10000
#define LOST_SECONDS 60

void rec_log_leave(struct rec_thread *t)
{
	uint64_t id = (uint64_t)t->tid;
	if (t->proc->tables && !t->proc->child)
		__atomic_compare_exchange_n(rec_maps_word(t->proc, T_MAPS), &id, 0, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void open_them(struct rec_process *proc)
{
	uint64_t closed = MAPS_CLOSED;
	if (proc->tables && !proc->logged.closed)
		__atomic_compare_exchange_n(rec_maps_word(proc, T_MAPS), &closed, 0, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void rec_logs_open(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	if (!t->area.closes)
		return;
	t->area.closes = false;
	proc->logged.closed--;
	open_them(proc);
}

static const struct rec_thread *owner_of(const struct rec_process *proc, uint64_t id)
{
	for (const struct rec_thread *t = proc->rec->threads; t; t = t->next)
		if (t->proc == proc && (uint64_t)t->tid == id && t->state != REC_GONE)
			return t;
	return NULL;
}

const struct rec_thread *rec_turn_of(const struct rec_process *proc)
{
	uint64_t id = proc->busy || !proc->tables ? 0 : *rec_maps_word(proc, T_MAPS);
	return id && id != MAPS_CLOSED ? owner_of(proc, id) : proc->busy;
}

/* Whether there is nobody who will give it back. (A call takes long where it fills what it maps.)
 */
static bool lost(struct rec_thread *t, uint64_t id)
{
	struct rec_logged *l = &t->proc->logged;
	const struct rec_thread *owner = owner_of(t->proc, id);
	int64_t now = rec_clock_now();
	if (!owner || owner->in_hand)
		return true;
	if (l->owner != id || owner->stopped) {
		l->owner = id;
		l->tries = 0;
		l->since = now;
	}
	return ++l->tries > LOST_TRIES && now - l->since > LOST_SECONDS * 1000000000LL;
}

/* Whether nobody makes such a call; or not after a moment. */
static bool closes(struct rec_process *proc, uint64_t *id)
{
	for (unsigned n = 0; n < LOOKS; n++) {
		*id = 0;
		if (__atomic_compare_exchange_n(rec_maps_word(proc, T_MAPS), id, MAPS_CLOSED, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
		    *id == MAPS_CLOSED)
			return true;
		__builtin_ia32_pause();
	}
	return false;
}

bool rec_logs_close(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	uint64_t id;
	if (!proc->tables || t->area.closes)
		return true;
	bool good = closes(proc, &id);
	if (!good && !lost(t, id)) {
		t->rec->held = proc->logged.held = true;
		return false;
	}
	t->area.closes = true;
	proc->logged.closed++;
	proc->logged.owner = 0;
	if (!good || !rec_logs_drain(t))
		rec_log_overwritten(t);
	return true;
}

bool rec_log_again(struct rec_thread *t, enum rec_state *next)
{
	struct rec_process *proc = t->proc;
	uint64_t id;
	if (!*rec_tcb(t, T_MAPS_WAIT))
		return false;
	*next = REC_WAIT;
	if (proc->logged.closed)
		return true;
	if (closes(proc, &id)) {
		*rec_tcb(t, T_MAPS_WAIT) = 0;
		open_them(proc);
		*next = REC_IN_HAND;
	} else if (lost(t, id)) {
		rec_log_overwritten(t);
	} else {
		t->rec->held = proc->logged.held = true;
	}
	return true;
}
