/*
 * Mapping calls that the program made without a stop: which ones it may, and the log by which we
 * learn of them. doc/mappings.md is the essay.
 */
#include "recorder/area.h"
#include "recorder/syscalls.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096ULL
/* With 57-bit addresses programs have those below (TASK_SIZE_MAX, arch/x86/include/asm/page_64.h).
 */
#define TOP ((1ULL << 56) - PAGE)

/* ---- ranges of data ------------------------------------------------------------------------- */

struct range {
	uint64_t start, end;
};

static bool touch(const struct range *r, uint64_t start, uint64_t end)
{
	return r->start < end && start < r->end;
}

/* The most that can be said to be data around [start, end); false if that is not. */
static bool data_around(const struct rec_process *proc, uint64_t start, uint64_t end,
			struct range *r)
{
	const struct dj_mapping *above = dj_mappings_after(&proc->maps, start, PROT_EXEC);
	const struct dj_mapping *below = dj_mappings_before(&proc->maps, start, PROT_EXEC);
	struct rec_pieces p = { proc };
	uint64_t at, size;
	*r = (struct range){ below ? below->end : 0, above ? above->start : TOP };
	if (r->end > TOP)
		r->end = TOP;
	while (rec_area_next(&p, &at, &size)) {
		if (at + size <= start && at + size > r->start)
			r->start = at + size;
		else if (at + size > start && at < r->end)
			r->end = at;
	}
	return r->start <= start && start <= end && end <= r->end;
}

static struct range *ranges(const struct rec_process *proc)
{
	return (struct range *)(void *)rec_maps_word(proc, T_DATA(0));
}

static const struct range none = { UINT64_MAX, 0 };

/* Threads look at them meanwhile, those that change no mapping without having T_MAPS. */
static void set(struct range *to, struct range r)
{
	__atomic_store_n(&to->start, none.start, __ATOMIC_SEQ_CST);
	__atomic_store_n(&to->end, r.end, __ATOMIC_SEQ_CST);
	__atomic_store_n(&to->start, r.start, __ATOMIC_SEQ_CST);
}

/* Where the next range goes: to a place that is free, or instead of the oldest. */
static unsigned range_for(struct rec_process *proc)
{
	for (unsigned i = 0; i < AREA_DATA; i++)
		if (ranges(proc)[i].start >= ranges(proc)[i].end)
			return i;
	return proc->logged.next_range++ % AREA_DATA;
}

/* These are addresses of data. */
static void data_known(struct rec_process *proc, uint64_t start, uint64_t end)
{
	struct range r;
	for (unsigned i = 0; i < AREA_DATA; i++)
		if (ranges(proc)[i].start <= start && end <= ranges(proc)[i].end)
			return;
	if (data_around(proc, start, end, &r))
		set(&ranges(proc)[range_for(proc)], r);
}

static void brk_known(struct rec_process *proc)
{
	struct range r;
	if (!proc->brk || !data_around(proc, proc->brk, proc->brk, &r))
		r = none;
	set((struct range *)(void *)rec_maps_word(proc, T_BRK), r);
}

void rec_data_learn(struct rec_thread *t, const struct user_regs_struct *in)
{
	switch (in->rax) {
	case SYS_mmap:
		if (in->rdi && (in->r10 & MAP_ANONYMOUS))
			data_known(t->proc, in->rdi, in->rdi + in->rsi);
		break;
	case SYS_mremap:
		data_known(t->proc, in->rdi, in->rdi + (in->rsi > in->rdx ? in->rsi : in->rdx));
		break;
	case SYS_munmap:
	case SYS_mprotect:
		data_known(t->proc, in->rdi, in->rdi + in->rsi);
		break;
	case SYS_brk:
		brk_known(t->proc);
		break;
	case SYS_madvise:
		data_known(t->proc, in->rdi, in->rdi + in->rsi);
		break;
	case SYS_lseek:
		data_known(t->proc, in->rsi, in->rsi + 1);
		break;
	case SYS_pwrite64:
	case SYS_pwritev:
	case SYS_pwritev2:
		data_known(t->proc, in->r10, in->r10 + 1);
		break;
	}
}

/* What the program has made of them is only taken away. */
void rec_data_not(struct rec_process *proc, uint64_t start, uint64_t end)
{
	struct range *brk;
	if (!proc->tables)
		return;
	for (unsigned i = 0; i < AREA_DATA; i++)
		if (touch(&ranges(proc)[i], start, end))
			set(&ranges(proc)[i], none);
	brk = (struct range *)(void *)rec_maps_word(proc, T_BRK);
	if (touch(brk, start, end))
		set(brk, none);
}

void rec_logs_tables(struct rec_process *proc)
{
	for (unsigned i = 0; i < AREA_DATA; i++)
		set(&ranges(proc)[i], none);
	set((struct range *)(void *)rec_maps_word(proc, T_BRK), none);
	*rec_maps_word(proc, T_MAPS) = *rec_maps_word(proc, T_MAPS_N) = proc->logged.n =
		proc->logged.overtaken = 0;
}

/* ---- the log -------------------------------------------------------------------------------- */

void rec_log_start(struct rec_thread *t)
{
	uint64_t log = t->s + (uint64_t)(int64_t)T_LOG;
	*rec_tcb(t, T_LOG_HEAD) = log;
	*rec_tcb(t, T_LOG_END) = log + AREA_LOG / LOG_SIZE * LOG_SIZE;
	*rec_tcb(t, T_CALL) = 0;
	*rec_tcb(t, T_PERMIT(4)) = NO_PERMIT;
	t->log_done = 0;
}

/* ---- a call that is let through ------------------------------------------------------------ */

static void permit(struct rec_thread *t, uint64_t end, uint64_t data)
{
	struct rec_permitted *p = &t->proc->logged.permit;
	const struct user_regs_struct *r = &t->regs;
	p->call = (int)r->rax;
	p->start = r->rdi;
	p->end = end;
	p->length = r->rsi;
	p->prot = (uint32_t)r->rdx;
	p->flags = r->r10;
	p->offset = r->r9;
	p->steps = t->steps + 1; /* not 0, of no call */
	*rec_tcb(t, T_PERMIT(0)) = r->rdi;
	*rec_tcb(t, T_PERMIT(1)) = r->rsi;
	*rec_tcb(t, T_PERMIT(2)) = r->rdx;
	*rec_tcb(t, T_PERMIT(3)) = data;
	*rec_tcb(t, T_PERMIT(4)) = r->rax;
}

static bool permit_change(struct rec_thread *t, uint64_t start, uint64_t end)
{
	struct rec_process *proc = t->proc;
	const struct user_regs_struct *r = &t->regs;
	/* not what it is executing */
	if (start % PAGE || end <= start || end > TOP ||
	    (r->rip < end && start < r->rip + INSN_MAX))
		return false;
	if (r->rdx & PROT_EXEC)
		rec_data_not(proc, start, end);
	else
		rec_code_protected(proc, start, end, (uint32_t)r->rdx);
	permit(t, end, r->rdx & PROT_EXEC ? 0 : (uint64_t)(int64_t)T_DATA((int)range_for(proc)));
	return true;
}

/* Which file it is has to be found out while the descriptor is open. What is known of its place
 * must not be wrong when the call is over: no code is replaced, and code comes only to where the
 * program says. Memory of no file comes here where that is not known to be data. */
static bool permit_map(struct rec_thread *t, uint64_t start, uint64_t end)
{
	struct rec_process *proc = t->proc;
	const struct user_regs_struct *r = &t->regs;
	const struct dj_mapping *code = dj_mappings_after(&proc->maps, start, PROT_EXEC);
	const uint64_t known =
		MAP_PRIVATE | MAP_FIXED | MAP_DENYWRITE | MAP_EXECUTABLE | MAP_ANONYMOUS;
	char path[DJ_NAME_MAX];
	if (!(r->r10 & MAP_PRIVATE) || (r->r10 & ~known) ||
	    (!(r->r10 & MAP_ANONYMOUS) && (int)r->r8 < 0))
		return false;
	if (r->r10 & MAP_FIXED
		    ? start % PAGE || end <= start || end > TOP || (code && code->start < end)
		    : start || (r->rdx & PROT_EXEC))
		return false;
	int32_t module = rec_maps_file(t, (int)r->r8, (uint32_t)r->r10, path);
	char *copy = strdup(path);
	DJ_ASSERT(copy, "out of memory for a file's name");
	free(proc->logged.permit.path);
	proc->logged.permit.module = module;
	proc->logged.permit.path = copy;
	if (r->rdx & PROT_EXEC)
		rec_data_not(proc, start, end);
	permit(t, start ? end : 0, 0);
	return true;
}

/* Not a second time where the first came to nothing. */
bool rec_permit(struct rec_thread *t)
{
	const struct rec_process *proc = t->proc;
	const struct user_regs_struct *r = &t->regs;
	const uint64_t start = r->rdi, end = start + ((r->rsi + PAGE - 1) & -PAGE);
	const uint8_t *class = (const uint8_t *)rec_tcb(t, T_SYSCLASS);

	if ((r->rax != SYS_mprotect && r->rax != SYS_mmap) || proc->n_threads > 1 ||
	    class[r->rax] != SYS_CHECKED || proc->logged.permit.steps == t->steps + 1 ||
	    (r->rdx & ~(uint64_t)(PROT_READ | PROT_WRITE | PROT_EXEC)))
		return false;
	return r->rax == SYS_mmap ? permit_map(t, start, end) : permit_change(t, start, end);
}

void rec_permit_free(struct rec_process *proc)
{
	free(proc->logged.permit.path);
	proc->logged.permit.path = NULL;
}

static bool permitted(const struct rec_process *proc, uint64_t number,
		      const struct user_regs_struct *in)
{
	const struct rec_permitted *p = &proc->logged.permit;
	return p->call && number == (uint64_t)p->call && in->rdi == p->start &&
	       in->rsi == p->length && in->rdx == p->prot &&
	       (p->call != SYS_mmap || (in->r10 == p->flags && in->r9 == p->offset));
}

/* It has come about; or what was done in advance is undone, as a page that is asleep would not be
 * translated any more. */
static void permit_over(struct rec_process *proc, bool done)
{
	const struct rec_permitted was = proc->logged.permit;

	proc->logged.permit.call = 0;
	proc->logged.permit.start = proc->logged.permit.end = 0;
	if (was.call == SYS_mprotect && !done)
		rec_code_forget(proc, was.start, was.end);
}

/* Unless the call is under way, or over without its entry, and rec_log_call() will say so. */
static void permit_lapses(struct rec_thread *t)
{
	if (*rec_tcb(t, T_CALL) != (uint64_t)t->proc->logged.permit.call)
		permit_over(t->proc, false);
}

/* ---- what is in the log ---------------------------------------------------------------------- */

static uint64_t word(const uint8_t *entry, unsigned at)
{
	uint64_t w;
	memcpy(&w, entry + at, sizeof(w));
	return w;
}

/* Whole pages that a call in the cache can have been about. */
static bool plausible(const struct rec_process *proc, uint64_t start, uint64_t length)
{
	struct range r;
	return start % PAGE == 0 && start < TOP && length <= TOP - start &&
	       data_around(proc, start, start + length, &r);
}

static bool plausible_brk(const struct rec_process *proc, uint64_t now)
{
	uint64_t was = proc->brk;
	if (!was)
		return true;
	return now > was ? plausible(proc, was, now - was) : plausible(proc, now, was - now);
}

/* It has been mapped, or was not to be. */
static bool was_mapped(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	const struct rec_permitted *p = &t->proc->logged.permit;
	if (rec_failed(result)) {
		rec_after_mmap(t, in, result);
		return true;
	}
	if (!p->length || !plausible(t->proc, result, p->length) ||
	    ((p->flags & MAP_FIXED) && result != p->start))
		return false;
	rec_maps_add_file(t, result, result + p->length, p->prot, (uint32_t)p->flags, p->offset,
			  p->module, p->path);
	if (p->start && (p->flags & MAP_ANONYMOUS) && !(p->prot & PROT_EXEC))
		data_known(t->proc, p->start, p->end);
	return true;
}

static bool apply_permitted(struct rec_thread *t, uint64_t number,
			    const struct user_regs_struct *in, uint64_t result)
{
	bool good = true;
	if (number == SYS_mmap)
		good = was_mapped(t, in, result);
	else
		rec_after_mprotect(t, in, result);
	permit_over(t->proc, !rec_failed(result));
	return good;
}

/* The call has happened; false if that cannot be. */
static bool apply(struct rec_thread *t, uint64_t number, const struct user_regs_struct *in,
		  uint64_t result)
{
	struct rec_process *proc = t->proc;
	if (permitted(proc, number, in))
		return apply_permitted(t, number, in, result);
	if (rec_failed(result)) {
		if (number == SYS_mprotect && plausible(proc, in->rdi, in->rsi))
			rec_after_mprotect(t, in, result);
		return true;
	}
	switch (number) {
	case SYS_mmap:
		if (!in->rsi || !plausible(proc, result, in->rsi) || (in->rdx & PROT_EXEC) ||
		    !(in->r10 & MAP_ANONYMOUS))
			return false;
		rec_after_mmap(t, in, result);
		return true;
	case SYS_munmap:
		if (!in->rsi || !plausible(proc, in->rdi, in->rsi))
			return false;
		rec_after_munmap(t, in, result);
		return true;
	case SYS_mprotect:
		if (!in->rsi) /* of nothing, maybe in an empty range between code and code */
			return true;
		if (!plausible(proc, in->rdi, in->rsi) ||
		    ((in->rdx & PROT_EXEC) && in->rdx != (PROT_READ | PROT_EXEC)))
			return false;
		rec_after_mprotect(t, in, result);
		return true;
	case SYS_mremap:
		if (!in->rdx || !plausible(proc, in->rdi, in->rsi) ||
		    !plausible(proc, result, in->rdx))
			return false;
		rec_after_mremap(t, in, result);
		return true;
	case SYS_brk:
		if (result >= TOP || !plausible_brk(proc, (result + PAGE - 1) & ~(PAGE - 1)))
			return false;
		rec_after_brk(t, in, result);
		return true;
	}
	return false;
}

static bool apply_entry(struct rec_thread *t, const uint8_t *entry)
{
	const struct user_regs_struct in = { .rax = word(entry, LOG_NUMBER),
					     .rdi = word(entry, LOG_RDI),
					     .rsi = word(entry, LOG_RSI),
					     .rdx = word(entry, LOG_RDX),
					     .r10 = word(entry, LOG_R10),
					     .r9 = word(entry, LOG_R9),
					     .r8 = (unsigned long long)-1 };
	return apply(t, word(entry, LOG_NUMBER), &in, word(entry, LOG_RESULT));
}

static uint8_t *log_of(const struct rec_thread *t)
{
	return (uint8_t *)rec_tcb(t, T_LOG);
}

/* How many bytes of entries there are; UINT64_MAX: that cannot be. */
static uint64_t log_size(const struct rec_thread *t)
{
	const uint64_t head = __atomic_load_n(rec_tcb(t, T_LOG_HEAD), __ATOMIC_ACQUIRE);
	const uint64_t size = head - (t->s + (uint64_t)(int64_t)T_LOG);
	return size <= AREA_LOG && size % LOG_SIZE == 0 && size >= t->log_done ? size : UINT64_MAX;
}

/* The next of its entries has happened. It may run, and makes others meanwhile. */
static bool drain_one(struct rec_thread *t)
{
	const uint64_t steps = t->steps, seq = t->seq;
	uint8_t entry[LOG_SIZE];
	memcpy(entry, log_of(t) + t->log_done, sizeof(entry)); /* the program may be at it */
	t->log_done += LOG_SIZE;
	bool good = rec_ring_at_call(t, word(entry, LOG_PLACE));
	if (good) {
		t->seq = word(entry, LOG_SEQ);
		good = apply_entry(t, entry);
	}
	rec_ring_at_head(t);
	t->steps = steps;
	t->seq = seq;
	return good;
}

static bool has_log(const struct rec_thread *t, const struct rec_process *proc)
{
	return t->proc == proc && t->own && t->ring && t->s;
}

/* As far as the thread's own come next, and there are `n`. */
static bool drain_own(struct rec_thread *t, uint64_t n)
{
	struct rec_process *proc = t->proc;
	const uint64_t size = log_size(t);
	while (size != UINT64_MAX && t->log_done < size && proc->logged.n < n &&
	       word(log_of(t) + t->log_done, LOG_TURN) == proc->logged.n + 1) {
		proc->logged.n++;
		if (!drain_one(t))
			return false;
	}
	return size != UINT64_MAX;
}

/* Whose turn each of the entries behind those that have been dealt with is, up to number `n`. False
 * if one is nobody's, or that of two. */
static bool whose(struct rec_process *proc, uint64_t n, struct rec_thread **turn)
{
	uint64_t found = 0;
	for (struct rec_thread *t = proc->rec->threads; t; t = t->next) {
		const uint64_t size = has_log(t, proc) ? log_size(t) : 0;
		if (size == UINT64_MAX)
			return false;
		for (uint64_t at = t->log_done; at < size; at += LOG_SIZE) {
			uint64_t i = word(log_of(t) + at, LOG_TURN) - proc->logged.n - 1;
			if (i >= n - proc->logged.n) /* later than we have looked at the number */
				break;
			if (turn[i])
				return false;
			turn[i] = t;
			found++;
		}
	}
	return found == n - proc->logged.n;
}

/* What all threads of the process have logged, in the order in which it was done: an entry is
 * written before its number is (rt_map_log). */
bool rec_logs_drain(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	const uint64_t n = __atomic_load_n(rec_maps_word(proc, T_MAPS_N), __ATOMIC_ACQUIRE);
	const uint64_t most = (uint64_t)proc->n_threads * (AREA_LOG / LOG_SIZE);
	bool good = n >= proc->logged.n &&
		    (n == proc->logged.n || !has_log(t, proc) || drain_own(t, n));
	if (!good || n == proc->logged.n)
		return good;
	if (n - proc->logged.n > most + AREA_LOG / LOG_SIZE) /* one that ends is no more counted */
		return false;
	struct rec_thread **turn = calloc(n - proc->logged.n, sizeof(*turn));
	DJ_ASSERT(turn, "out of memory for mapping calls");
	good = whose(proc, n, turn);
	for (uint64_t i = 0; good && proc->logged.n < n; i++) {
		proc->logged.n++;
		good = drain_one(turn[i]);
	}
	free(turn);
	return good;
}

void rec_log_fact(struct rec_thread *t, bool code)
{
	struct rec_process *proc = t->proc;
	if (!proc->tables || proc->n_threads < 2)
		return;
	/* with a page asleep a call may have code forgotten, while some is being translated */
	if ((!code || !proc->n_asleep) && !rec_logs_drain(t)) {
		proc->logged.n = *rec_maps_word(proc, T_MAPS_N);
		rec_log_overwritten(t);
	}
	proc->logged.overtaken = code ? *rec_maps_word(proc, T_MAPS_N) : proc->logged.n;
}

bool rec_log_overtaken(const struct rec_process *proc)
{
	return proc->logged.n <= proc->logged.overtaken;
}

void rec_log_overwritten(struct rec_thread *t)
{
	const uint64_t s = t->s ? t->s : t->proc->area_at + AREA_CONTROL;
	rec_cut(t->rec,
		"the program overwrote deja's memory at %#" PRIx64 "; the recording ends there",
		s + (uint64_t)(int64_t)T_LOG);
}

void rec_log_drain(struct rec_thread *t)
{
	if (!rec_ring_placed(t) || !t->proc->tables) /* in a new image there is none yet */
		return;
	*rec_tcb(t, T_PERMIT(4)) = NO_PERMIT;
	if (!rec_logs_drain(t) || (log_size(t) != t->log_done && t->state != REC_GONE)) {
		t->proc->logged.n = *rec_maps_word(t->proc, T_MAPS_N);
		rec_log_overwritten(t);
	}
	*rec_tcb(t, T_LOG_HEAD) = t->s + (uint64_t)(int64_t)T_LOG;
	t->log_done = 0;
	permit_lapses(t);
}

void rec_log_call(struct rec_thread *t, const struct user_regs_struct *r)
{
	uint64_t number = *rec_tcb(t, T_CALL);
	if (number && !apply(t, number, r, r->rax))
		rec_log_overwritten(t);
}
