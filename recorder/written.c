/*
 * What the kernel wrote to the stack, for people to look at.
 *
 * What a system call writes is in no record until the program reads it, and the program need not: a
 * struct stat of which it wants one member, a buffer that is larger than what it asked for. Such
 * bytes stay on the stack, and later the local variables of other functions lie over them, with
 * padding and members that nobody has set. One byte that nobody knows keeps gdb from showing a
 * whole object.
 *
 * Which bytes these are takes no table of system calls: they are those in which memory differs from
 * the shadow. The supervisor can read both. So at some of its stops it compares the stack around
 * the stack pointer, and puts the lines that differ into the trace. Between the call and that stop
 * the debugger looks ahead (replayer/lookahead.h). Elsewhere in memory, where buffers are read soon
 * after they are written, looking ahead has to do.
 */
#include "recorder/recorder.h"

#include <string.h>

#define AROUND 0xc000u /* so far below and above the stack pointer */
/* From one look to the next, if not at a digest: so many instructions, or early in an image an
 * eighth of what it has executed. */
#define APART	    1000000u
#define APART_FIRST 2000u
#define PART	    0x4000u /* compared at a time */
#define PAGE	    4096u

static void record(struct rec_thread *t, uint64_t addr, const uint8_t *bytes, uint64_t length)
{
	struct dj_record r = { .kind = DJ_REC_SYSDATA, .steps = t->steps, .addr = addr };
	for (uint64_t at = 0; at < length; at += r.length) {
		r.addr = addr + at;
		r.length = length - at < DJ_CODE_MAX ? length - at : DJ_CODE_MAX;
		r.bytes = bytes + at;
		rec_ring_record(t, &r);
	}
}

/* The lines that differ from [addr, addr+size). False if that cannot be read. */
static bool compare(struct rec_thread *t, uint64_t addr, size_t size)
{
	uint8_t memory[PART], shadow[PART];
	if (rec_read(t->proc, addr, memory, size) != size ||
	    rec_read(t->proc, t->s + (uint32_t)addr, shadow, size) != size)
		return false;
	size_t from = 0, at;
	for (at = 0; at < size; at += DJ_LINE) {
		if (memcmp(memory + at, shadow + at, DJ_LINE) != 0)
			continue;
		record(t, addr + from, memory + from, at - from);
		from = at + DJ_LINE;
	}
	record(t, addr + from, memory + from, from < at ? at - from : 0);
	return true;
}

/* Of a stack most is untouched, above all of one that is new: it is zero in both. */
static uint64_t both_untouched(struct rec_thread *t, const struct dj_mapping *m, uint64_t low,
			       uint64_t high)
{
	unsigned n = (unsigned)((high - low) / PAGE);
	/* the shadow's first page is of a file, and behind its last one it begins anew */
	if (!rec_anonymous(m) || (uint32_t)low < PAGE || (uint32_t)low > (uint32_t)(high - 1))
		return 0;
	return rec_untouched(t, low, n) & rec_untouched(t, t->s + (uint32_t)low, n);
}

bool rec_written_is_due(const struct rec_thread *t, uint64_t steps)
{
	uint64_t since = steps > t->written_at ? steps - t->written_at : 0;
	return since >= APART || (since >= APART_FIRST && since >= (steps - t->image_at) / 8);
}

void rec_written(struct rec_thread *t, bool now)
{
	uint64_t rsp = t->regs.rsp, sp = rsp & -(uint64_t)PART;
	if (t->rec->opt.predict != DJ_PREDICT_SHADOW || t->in_rep ||
	    (!now && !rec_written_is_due(t, t->steps)))
		return;
	t->written_at = t->steps;
	const struct dj_mapping *m = dj_mappings_after(&t->proc->maps, rsp, 0);
	/* a stack that has grown is known by where it began */
	if (!m || sp < AROUND || (m->start > rsp && strcmp(m->name, "[stack]") != 0))
		return;
	uint64_t low = m->start > rsp ? rsp & -(uint64_t)DJ_CHECK_PAGE : m->start;
	if (low < sp - AROUND)
		low = sp - AROUND;
	uint64_t high = m->end - sp > AROUND ? sp + AROUND : m->end;
	uint64_t at = low, next, same = both_untouched(t, m, low, high);
	for (; at < high; at = next) {
		next = at + PAGE;
		if (same >> (at - low) / PAGE & 1)
			continue;
		uint64_t end = (at & -(uint64_t)PART) + PART; /* the shadow has its end there */
		while (next < end && next < high && !(same >> (next - low) / PAGE & 1))
			next += PAGE;
		if (!compare(t, at, next - at))
			break;
	}
	/* of lines that do not differ the debugger may think that they do: a system call wrote what
	 * was there before */
	struct dj_check c = { .same_addr = low, .same_length = (uint32_t)(at - low) };
	rec_check_record(t, &c);
}
