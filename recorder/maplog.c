/*
 * Mapping calls that the program made without a stop: which ones it may, and the log by which we
 * learn of them. doc/mappings.md is the essay.
 */
#include "recorder/area.h"
#include "recorder/syscalls.h"

#include <inttypes.h>
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

static struct range *ranges(struct rec_thread *t)
{
	return (struct range *)(void *)rec_tcb(t, T_DATA(0));
}

static const struct range none = { UINT64_MAX, 0 };

/* Where the next range goes: to a place that is free, or instead of the oldest. */
static unsigned range_for(struct rec_thread *t)
{
	for (unsigned i = 0; i < AREA_DATA; i++)
		if (ranges(t)[i].start >= ranges(t)[i].end)
			return i;
	return t->proc->next_data++ % AREA_DATA;
}

/* These are addresses of data. */
static void data_known(struct rec_thread *t, uint64_t start, uint64_t end)
{
	struct range r;
	for (unsigned i = 0; i < AREA_DATA; i++)
		if (ranges(t)[i].start <= start && end <= ranges(t)[i].end)
			return;
	if (!data_around(t->proc, start, end, &r))
		return;
	unsigned to = range_for(t);
	for (struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->proc == t->proc && o->own)
			ranges(o)[to] = r;
}

static void brk_known(struct rec_thread *t)
{
	struct range r;
	if (!t->proc->brk || !data_around(t->proc, t->proc->brk, t->proc->brk, &r))
		r = none;
	for (struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->proc == t->proc && o->own)
			memcpy(rec_tcb(o, T_BRK), &r, sizeof(r));
}

void rec_data_learn(struct rec_thread *t, const struct user_regs_struct *in)
{
	switch (in->rax) {
	case SYS_mmap:
		if (in->rdi && (in->r10 & MAP_ANONYMOUS))
			data_known(t, in->rdi, in->rdi + in->rsi);
		break;
	case SYS_mremap:
		data_known(t, in->rdi, in->rdi + (in->rsi > in->rdx ? in->rsi : in->rdx));
		break;
	case SYS_munmap:
	case SYS_mprotect:
		data_known(t, in->rdi, in->rdi + in->rsi);
		break;
	case SYS_brk:
		brk_known(t);
		break;
	case SYS_madvise:
		data_known(t, in->rdi, in->rdi + in->rsi);
		break;
	case SYS_lseek:
		data_known(t, in->rsi, in->rsi + 1);
		break;
	case SYS_pwrite64:
	case SYS_pwritev:
	case SYS_pwritev2:
		data_known(t, in->r10, in->r10 + 1);
		break;
	}
}

void rec_data_not(struct rec_process *proc, uint64_t start, uint64_t end)
{
	for (struct rec_thread *o = proc->rec->threads; o; o = o->next) {
		if (o->proc != proc || !o->own)
			continue;
		/* what the program has made of them is only taken away */
		for (unsigned i = 0; i < AREA_DATA; i++)
			if (touch(&ranges(o)[i], start, end))
				ranges(o)[i] = none;
		if (touch((struct range *)(void *)rec_tcb(o, T_BRK), start, end))
			memcpy(rec_tcb(o, T_BRK), &none, sizeof(none));
	}
}

/* ---- the log -------------------------------------------------------------------------------- */

void rec_log_start(struct rec_thread *t)
{
	uint64_t log = t->s + (uint64_t)(int64_t)T_LOG;
	*rec_tcb(t, T_LOG_HEAD) = log;
	*rec_tcb(t, T_LOG_END) = log + AREA_LOG / LOG_SIZE * LOG_SIZE;
	*rec_tcb(t, T_CALL) = 0;
	*rec_tcb(t, T_PERMIT(0)) = NO_PERMIT;
	for (unsigned i = 0; i < AREA_DATA; i++)
		ranges(t)[i] = none;
	memcpy(rec_tcb(t, T_BRK), &none, sizeof(none));
}

/* ---- a change of protection that is let through -------------------------------------------- */

bool rec_permit(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	const struct user_regs_struct *r = &t->regs;
	const uint64_t start = r->rdi, end = start + ((r->rsi + PAGE - 1) & -PAGE);
	const uint8_t *class = (const uint8_t *)rec_tcb(t, T_SYSCLASS);

	if (r->rax != SYS_mprotect || class[SYS_mprotect] != SYS_CHECKED || start % PAGE ||
	    end <= start || end > TOP || (r->rdx & ~(uint64_t)(PROT_READ | PROT_WRITE | PROT_EXEC)))
		return false;
	/* not what it is executing, and not a second time where the first came to nothing */
	if ((r->rip < end && start < r->rip + INSN_MAX) || proc->permit.steps == t->steps + 1)
		return false;
	if (r->rdx & PROT_EXEC)
		rec_data_not(proc, start, end);
	else
		rec_code_protected(proc, start, end, (uint32_t)r->rdx);
	proc->permit.start = start;
	proc->permit.end = end;
	proc->permit.length = r->rsi;
	proc->permit.prot = (uint32_t)r->rdx;
	proc->permit.steps = t->steps + 1; /* not 0, of no call */
	*rec_tcb(t, T_PERMIT(0)) = start;
	*rec_tcb(t, T_PERMIT(1)) = r->rsi;
	*rec_tcb(t, T_PERMIT(2)) = r->rdx;
	*rec_tcb(t, T_PERMIT(3)) =
		r->rdx & PROT_EXEC ? 0 : (uint64_t)(int64_t)T_DATA((int)range_for(t));
	return true;
}

static bool permitted(const struct rec_process *proc, const struct user_regs_struct *in)
{
	return proc->permit.end && in->rdi == proc->permit.start &&
	       in->rsi == proc->permit.length && in->rdx == proc->permit.prot;
}

/* It has come about; or what was done in advance is undone, as a page that is asleep would not be
 * translated any more. */
static void permit_over(struct rec_process *proc, bool done)
{
	const uint64_t start = proc->permit.start, end = proc->permit.end;

	proc->permit.end = 0;
	if (end && !done)
		rec_code_forget(proc, start, end);
}

/* Unless the call is under way, or over without its entry, and rec_log_call() will say so. */
static void permit_lapses(struct rec_thread *t)
{
	if (*rec_tcb(t, T_CALL) != SYS_mprotect)
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

/* The call has happened; false if that cannot be. */
static bool apply(struct rec_thread *t, uint64_t number, const struct user_regs_struct *in,
		  uint64_t result)
{
	struct rec_process *proc = t->proc;
	bool failed = (int64_t)result < 0 && (int64_t)result > -4096;
	if (number == SYS_mprotect && permitted(proc, in)) {
		rec_after_mprotect(t, in, result);
		permit_over(proc, !failed);
		return true;
	}
	if (failed) {
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

static bool drain(struct rec_thread *t, const uint8_t *log, uint64_t size)
{
	for (uint64_t at = 0; at < size; at += LOG_SIZE) {
		uint8_t entry[LOG_SIZE];
		memcpy(entry, log + at, sizeof(entry)); /* the program may be at it */
		if (!rec_ring_at_call(t, word(entry, LOG_PLACE)))
			return false;
		t->seq = word(entry, LOG_SEQ);
		if (!apply_entry(t, entry))
			return false;
	}
	return true;
}

static void overwritten(struct rec_thread *t)
{
	rec_cut(t->rec,
		"the program overwrote deja's memory at %#" PRIx64 "; the recording ends there",
		t->s + (uint64_t)(int64_t)T_LOG);
}

void rec_log_drain(struct rec_thread *t)
{
	uint64_t log = t->s + (uint64_t)(int64_t)T_LOG, size = *rec_tcb(t, T_LOG_HEAD) - log;
	uint64_t steps = t->steps, seq = t->seq;
	if (!t->ring || !t->s) /* in a new image there is none yet */
		return;
	*rec_tcb(t, T_PERMIT(0)) = NO_PERMIT;
	if (!size) {
		permit_lapses(t);
		return;
	}
	bool good = size <= AREA_LOG && size % LOG_SIZE == 0 &&
		    drain(t, (const uint8_t *)rec_tcb(t, T_LOG), size);
	rec_ring_at_head(t);
	t->steps = steps;
	t->seq = seq;
	*rec_tcb(t, T_LOG_HEAD) = log;
	permit_lapses(t);
	if (!good)
		overwritten(t);
}

void rec_log_call(struct rec_thread *t, const struct user_regs_struct *r)
{
	uint64_t number = *rec_tcb(t, T_CALL);
	if (number && !apply(t, number, r, r->rax))
		overwritten(t);
}
