/*
 * Numbers of ordered events (doc/order.md), as far as they are the supervisor's: events that it
 * makes itself (supervised system calls, signals, instructions executed natively), the change from
 * one thread to several and back, and locks whose owner does not give them back.
 *
 * A recorded thread alone counts its events itself (T_SEQ) and takes no locks. From the moment on
 * at which there are two, numbers come from T_ORDER_NUMBER. The change is made when a thread is
 * about to enter the cache and none is in there: before a second one runs for the first time, the
 * one that makes it is in hand. The change back is made at an event of the last thread left, which
 * has the highest number then.
 *
 * The pages of the order can be overwritten like anything in the program's memory. Then the
 * recording ends.
 */
#include "recorder/recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LOCKS 64
/* No recording has so many events between two looks at the counter. */
#define PLAUSIBLE (1ULL << 40)
/* So often a lock is looked at, with a pause each time, before who waits for it looks itself. */
#define LOOKS 16
/* A lock that nobody gives back for so long, and so many stops of one who waits for it, with 10,000
 * looks, is lost. The supervisor may have been held up itself, and whoever has the lock may be of
 * low priority. */
#define LOST_SECONDS 60
#define LOST_STOPS   (10000 / LOOKS)
/* So often the supervisor looks at a lock that it wants itself. */
#define TRIES 20000

static uint64_t *place(const struct rec_process *proc, int64_t off)
{
	uint8_t *pages = proc->order_mapped ? proc->rec->order.pages : proc->tables;
	return (uint64_t *)(void *)(pages + (off - T_ORDER));
}

static bool recorded(const struct rec_thread *t)
{
	return (!t->proc->child || t->proc->follow) && t->state != REC_GONE && t->state != REC_FREE;
}

static bool several(const struct rec_recording *rec)
{
	unsigned n = 0;
	for (const struct rec_thread *t = rec->threads; t && n < 2; t = t->next)
		n += recorded(t);
	return n > 1;
}

/* The word in the pages that says whether there are several threads. */
static uint64_t shared_word(const struct rec_recording *rec)
{
	if (!rec->order.shared)
		return 0;
	return ORDER_SEVERAL |
	       (rec->opt.memory_model >= DJ_ORDER_FENCE ? (uint64_t)ORDER_IMPORTS : 0);
}

/* For whoever comes to the recording's pages next. */
static void set_pages(struct rec_recording *rec)
{
	uint8_t *p = rec->order.pages;
	if (!p)
		return;
	*(uint64_t *)(void *)(p + (T_ORDER_NUMBER - T_ORDER)) = rec->order.number;
	*(uint64_t *)(void *)(p + (T_ORDER_SHARED - T_ORDER)) = shared_word(rec);
}

static void change(struct rec_recording *rec, bool shared)
{
	rec->order.shared = shared;
	for (struct rec_process *p = rec->processes; p; p = p->next)
		if (p->tables && !p->child) {
			*place(p, T_ORDER_NUMBER) = p->number = rec->order.number;
			*place(p, T_ORDER_SHARED) = shared_word(rec);
		}
	set_pages(rec);
}

void rec_order_free(struct rec_recording *rec)
{
	if (rec->order.pages)
		munmap(rec->order.pages, AREA_ORDER);
	if (rec->order.fd > 0)
		close(rec->order.fd);
}

/* The counter, and whether it can be that. */
static bool look(struct rec_thread *t, uint64_t *number)
{
	struct rec_process *proc = t->proc;
	if (!proc->order_mapped && !proc->tables) { /* it will never have an area */
		*number = proc->number;
		return true;
	}
	*number = __atomic_load_n(place(proc, T_ORDER_NUMBER), __ATOMIC_SEQ_CST);
	if (*number - proc->number > PLAUSIBLE || !*place(proc, T_ORDER_SHARED)) {
		rec_overwritten(t, T_ORDER_NUMBER);
		return false;
	}
	proc->number = *number;
	return true;
}

void rec_order_tables(struct rec_process *proc, uint8_t *tables)
{
	struct rec_recording *rec = proc->rec;
	if (rec->order.shared && proc->tables) {
		uint64_t n = *place(proc, T_ORDER_NUMBER);
		if (n - proc->number <= PLAUSIBLE)
			proc->number = n;
	}
	*(uint64_t *)(void *)(tables + (T_ORDER_NUMBER - T_TABLES)) = proc->number;
	*(uint64_t *)(void *)(tables + (T_ORDER_SHARED - T_TABLES)) = shared_word(rec);
}

void rec_order_share(struct rec_recording *rec)
{
	for (const struct rec_thread *t = rec->threads; t; t = t->next)
		if (recorded(t) && t->seq > rec->order.number)
			rec->order.number = t->seq;
	change(rec, true);
}

void rec_order_enter(struct rec_thread *t)
{
	*rec_tcb(t, T_ORDER_ID) = (uint64_t)t->tid;
	if (t->rec->order.shared || !several(t->rec))
		return;
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		DJ_ASSERT(!recorded(o) || o->in_hand || o->state != REC_CACHE,
			  "there was a second thread, and nobody knew");
	rec_order_share(t->rec);
}

bool rec_order_passed(struct rec_thread *t, uint64_t seq, uint64_t steps)
{
	uint64_t number;
	if (!t->rec->order.shared) /* each is an instruction, the last may be counted before it */
		return seq >= t->seq && seq - t->seq <= steps - t->steps + 1;
	return seq >= t->seq && look(t, &number) && seq <= number;
}

uint64_t rec_order_now(struct rec_thread *t)
{
	uint64_t number, last = t->rec->order.number; /* that was shared: the thread may be gone */
	if (t->rec->order.shared && look(t, &number))
		return number;
	return t->seq > last ? t->seq : last;
}

uint64_t rec_order_next(struct rec_thread *t)
{
	uint64_t number;
	if (t->rec->order.shared && look(t, &number))
		return __atomic_add_fetch(place(t->proc, T_ORDER_NUMBER), 1, __ATOMIC_SEQ_CST);
	return rec_order_now(t) + 1;
}

uint64_t rec_order_latest(const struct rec_recording *rec)
{
	uint64_t latest = rec->order.number;
	for (const struct rec_thread *t = rec->threads; t; t = t->next)
		if (!t->proc->child && t->seq > latest)
			latest = t->seq;
	for (const struct rec_process *p = rec->processes; p && rec->order.shared; p = p->next) {
		uint64_t n = p->tables && !p->child ? *place(p, T_ORDER_NUMBER) : 0;
		if (n > latest && n - p->number <= PLAUSIBLE)
			latest = n;
	}
	return latest;
}

int rec_order_file(struct rec_recording *rec)
{
	if (rec->order.fd)
		return rec->order.fd;
	rec->order.fd = memfd_create("deja", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (rec->order.fd < 0 || ftruncate(rec->order.fd, AREA_ORDER))
		return -1;
	fcntl(rec->order.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	uint8_t *p = mmap(NULL, AREA_ORDER, PROT_READ | PROT_WRITE, MAP_SHARED, rec->order.fd, 0);
	if (p == MAP_FAILED)
		return -1;
	rec->order.pages = p;
	rec->order.number = rec->order.shared ? rec_order_latest(rec) : rec->order.number;
	set_pages(rec);
	return rec->order.fd;
}

/* They are in the process: from now on it takes its numbers there, and may have had higher ones. */
void rec_order_mapped(struct rec_process *proc)
{
	struct rec_recording *rec = proc->rec;
	uint64_t latest = rec_order_latest(rec);
	proc->order_mapped = true;
	uint64_t *at = place(proc, T_ORDER_NUMBER), now = *at;
	while (rec->order.shared && now < latest &&
	       !__atomic_compare_exchange_n(at, &now, latest, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST))
		;
	proc->number = latest;
}

void rec_event(struct rec_thread *t, const struct dj_record *r)
{
	struct rec_recording *rec = t->rec;
	uint64_t number = t->seq + 1, now;
	if (rec->order.shared && look(t, &now))
		number = __atomic_add_fetch(place(t->proc, T_ORDER_NUMBER), 1, __ATOMIC_SEQ_CST);
	if (number != t->seq + 1) {
		struct dj_record seq = {
			.kind = DJ_REC_SEQ, .steps = r->steps, .rep = r->rep, .seq = number
		};
		rec_ring_record(t, &seq);
	}
	rec_ring_record(t, r);
	t->seq = number;
	t->seq_at = r->steps + (r->kind != DJ_REC_SIGNAL); /* a signal is no instruction */
	if (r->kind == DJ_REC_SIGNAL)
		t->signalled = r->steps;
	if (rec->order.shared && !several(rec)) {
		rec->order.number = number;
		change(rec, false);
	}
}

/* ---- locks -------------------------------------------------------------------------------- */

static uint64_t *lock_of(const struct rec_process *proc, unsigned i)
{
	return place(proc, T_ORDER_LOCKS + 64 * (int64_t)i);
}

/* Also if the thread has been alone since (rec_event()): it may get company again. */
void rec_order_release(struct rec_thread *t)
{
	if (!t->proc->tables || t->proc->child)
		return;
	for (unsigned i = 0; i < LOCKS; i++) {
		uint64_t id = (uint64_t)t->tid, *lock = lock_of(t->proc, i);
		if (__atomic_load_n(lock, __ATOMIC_RELAXED) == id)
			__atomic_compare_exchange_n(lock, &id, 0, false, __ATOMIC_SEQ_CST,
						    __ATOMIC_SEQ_CST);
	}
}

static const struct rec_thread *owner_of(const struct rec_recording *rec, uint64_t id)
{
	const struct rec_thread *t = rec->threads;
	while (t && !(recorded(t) && (uint64_t)t->tid == id))
		t = t->next;
	return t;
}

/* It does not go on by itself, but will soon. */
static bool needs_us(const struct rec_thread *owner)
{
	return (owner->state != REC_CACHE || owner->order.waits) && !owner->stopped;
}

static void take(struct rec_thread *t, unsigned i)
{
	for (unsigned n = 0; n < TRIES; n++) {
		const struct rec_thread *owner;
		uint64_t none = 0;
		if (__atomic_compare_exchange_n(lock_of(t->proc, i), &none, (uint64_t)t->tid, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return;
		if ((owner = owner_of(t->rec, none)) && needs_us(owner))
			return;
		__builtin_ia32_pause();
	}
}

void rec_order_hold(struct rec_thread *t, const struct insn *in)
{
	struct dj_regs regs;
	if (!t->rec->order.shared || !(in->attr & INSN_A_ATOMIC) || !in->has_mem)
		return;
	rec_from_user(&t->regs, &regs);
	uint64_t at = insn_address(in, regs.gpr, *rec_tcb(t, T_FSBASE), rec_gs(t));
	unsigned first = (unsigned)(at / 64) % LOCKS,
		 last = (unsigned)((at + in->mem_size - 1) / 64) % LOCKS;
	take(t, first < last ? first : last);
	if (first != last)
		take(t, first < last ? last : first);
}

static bool lost(struct rec_thread *t, uint64_t owner)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (owner != t->order.owner || rec_lagged(t) != t->order.steps) {
		t->order.owner = owner;
		t->order.steps = rec_lagged(t);
		t->order.since = now.tv_sec;
		t->order.stops = 0;
	}
	return ++t->order.stops > LOST_STOPS && now.tv_sec > t->order.since + LOST_SECONDS;
}

static uint64_t owner_id(const struct rec_thread *t)
{
	return __atomic_load_n(place(t->proc, t->order.lock), __ATOMIC_SEQ_CST);
}

void rec_order_wait(struct rec_thread *t, uint64_t lock)
{
	if (lock & ~(uint64_t)ORDER_PLACE) { /* it has been led astray */
		rec_overwritten(t, T_BASE);
		return;
	}
	t->order.lock = T_ORDER_LOCKS + (int64_t)lock;
	uint64_t id = owner_id(t);
	const struct rec_thread *owner = owner_of(t->rec, id);
	if (!id)
		return;
	if (!owner || owner == t || (!owner->stopped && lost(t, id)))
		rec_overwritten(t, (int)t->order.lock);
	t->order.owner = id;
	t->order.waits = t->rec->order.waits = !rec_over(t->rec);
}

/* Others that have stopped are looked at first: the owner may be one of them. */
bool rec_order_waits(struct rec_thread *t)
{
	if (!t->order.waits || owner_id(t) != t->order.owner)
		return false;
	if (rec_others_wait(t->rec))
		return true;
	const struct rec_thread *owner = owner_of(t->rec, t->order.owner);
	return owner && owner != t && needs_us(owner);
}

bool rec_order_held(struct rec_thread *t)
{
	const unsigned most = t->order.stops < LOOKS ? t->order.stops : LOOKS;
	if (owner_id(t) == t->order.owner && t->order.looks++ < (most ? most : 1))
		return true;
	t->order.looks = 0;
	return false;
}
