/*
 * What the trace says of the program at a moment so that a replay can be compared with it: a digest
 * of the registers, those flags that are known, and checksums of pieces of the shadow.
 *
 * A digest of registers alone finds a wrong byte in memory only when the program loads it, perhaps
 * never. So some of the shadow is looked at, too, where a wrong byte is most likely or matters
 * most: what the stack pointer and the other registers point to, lines that were imported lately,
 * and pages picked at random, from one writable mapping after the other. All of that together is
 * some tens of microseconds, at a stop that takes place anyhow.
 *
 * The first digests of an image follow each other at ever longer distances, so that a short run has
 * some, and so has one that is killed.
 */
#include "recorder/recorder.h"

#define FIRST_GAP     10000u /* instructions */
#define CALLS_CHECKED 1000u  /* among so many first stops of a thread */

#define STACK_BELOW 128u /* the red zone */
#define STACK_ABOVE 1024u
#define LINES	    16u /* imported lately */
#define PAGES	    8u	/* half of them with such lines, half at random */

/* ---- flags ------------------------------------------------------------------------------ */

/*
 * The arithmetic flags that the program is certain to have in the processor (or where rec_take()
 * found them). The translator preserves flags only where they may still be read, and it looks ahead
 * to learn that. Here only such are taken for known as it cannot have found dead, whatever way it
 * came: read by the straight run of code from here, or open where that ends in a system call, a
 * return or an indirect branch, behind which it never looks.
 */
static uint32_t arithmetic_known(struct rec_thread *t)
{
	uint8_t code[64];
	size_t got = rec_read(t->proc, t->regs.rip, code, sizeof(code)), at = 0;
	uint32_t open = DJ_FLAGS_ARITH, known = 0;
	struct insn in;

	while (open && at < got && insn_decode(&in, code + at, got - at, t->regs.rip + at) > 0) {
		bool partly = in.attr & (INSN_A_FLAGSCOND | INSN_A_REP);
		known |= in.flags_read & open & ~(partly ? in.flags_written : 0);
		if (in.attr & (INSN_A_SYSCALL | INSN_A_RET | INSN_A_INDIRECT))
			return known | open;
		if ((in.attr & INSN_A_BRANCH) && !(in.attr & INSN_A_COND))
			break;
		open &= ~(in.flags_written | in.flags_undefined);
		at += in.len;
	}
	return known;
}

bool rec_flags_known(struct rec_thread *t)
{
	return t->rec->opt.exact_flags || arithmetic_known(t) == DJ_FLAGS_ARITH;
}

/* Flags that nobody but the program changes: DF, NT, AC, ID. */
#define QUIET_FLAGS 0x244400u

static void check_flags(struct rec_thread *t, struct dj_check *c)
{
	c->flags_known = (t->flags_lost ? 0 : arithmetic_known(t)) | QUIET_FLAGS;
	c->flags = t->regs.eflags & c->flags_known;
}

/* ---- the shadow --------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t x) /* splitmix64's */
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* The part of [addr, addr+length) that lies in addr's page; returns its length. */
static uint32_t piece(struct rec_thread *t, struct dj_check *c, uint64_t addr, uint64_t length)
{
	uint8_t bytes[DJ_CHECK_PAGE];
	uint32_t n = DJ_CHECK_PAGE - addr % DJ_CHECK_PAGE;
	if (n > length)
		n = (uint32_t)length;
	if (c->n < DJ_CHECK_PIECES && rec_read(t->proc, t->s + (uint32_t)addr, bytes, n) == n)
		c->piece[c->n++] = (struct dj_check_piece){ addr, n, dj_check_sum(bytes, n) };
	return n;
}

static void check_stack(struct rec_thread *t, struct dj_check *c)
{
	uint64_t at = (t->regs.rsp - STACK_BELOW) & -(uint64_t)DJ_LINE;
	uint64_t end = at + STACK_BELOW + STACK_ABOVE;
	while (at < end)
		at += piece(t, c, at, end - at);
}

static void check_line(struct rec_thread *t, struct dj_check *c, uint64_t addr)
{
	if (rec_maps_find(t->proc, addr)) /* others have nothing to do with memory */
		piece(t, c, addr & -(uint64_t)DJ_LINE, DJ_LINE);
}

static void check_lines(struct rec_thread *t, struct dj_check *c, const struct dj_regs *regs)
{
	uint64_t imported[LINES];
	unsigned n = rec_ring_imported(t, imported, LINES);
	for (unsigned i = 0; i < n; i++)
		if (i < PAGES / 2)
			piece(t, c, imported[i] & -(uint64_t)DJ_CHECK_PAGE, DJ_CHECK_PAGE);
		else
			check_line(t, c, imported[i]);
	for (int i = 0; i < 16; i++)
		if (i != DJ_RSP)
			check_line(t, c, regs->gpr[i]);
}

static void check_pages(struct rec_thread *t, struct dj_check *c)
{
	for (unsigned i = 0; i < PAGES / 2; i++) {
		const struct dj_mapping *m =
			dj_mappings_after(&t->proc->maps, t->checked, DJ_PROT_WRITE);
		t->checked = m ? m->end : 0;
		if (!m)
			continue;
		uint64_t pages = (m->end - m->start) / DJ_CHECK_PAGE;
		piece(t, c, m->start + mixed(t->steps + i) % pages * DJ_CHECK_PAGE, DJ_CHECK_PAGE);
	}
}

/* ---- records -------------------------------------------------------------------------------- */

void rec_check_record(struct rec_thread *t, const struct dj_check *c)
{
	uint8_t bytes[DJ_CODE_MAX];
	struct dj_record r = { .kind = DJ_REC_CHECK,
			       .steps = t->steps,
			       .length = dj_check_pack(c, bytes),
			       .bytes = bytes };
	rec_ring_record(t, &r);
}

static void record_regs(struct rec_thread *t, const struct dj_regs *regs)
{
	struct dj_record r = { .kind = DJ_REC_DIGEST,
			       .steps = t->steps,
			       .digest = dj_regs_digest(regs),
			       .mask = DJ_DIGEST_PARTS,
			       .regs = *regs };
	rec_ring_record(t, &r);
}

bool rec_digest_is_due(const struct rec_thread *t, uint64_t steps)
{
	/* what T_STEPS says may be behind */
	return steps >= t->last_digest && steps - t->last_digest >= t->digest_gap;
}

static void next_gap(struct rec_thread *t)
{
	uint64_t longest = t->rec->opt.digest_interval;
	t->last_digest = t->steps;
	t->digest_gap = t->digest_gap ? 2 * t->digest_gap : FIRST_GAP;
	if (t->digest_gap > longest)
		t->digest_gap = longest;
}

void rec_digest(struct rec_thread *t, bool whole)
{
	struct dj_check c = { 0 };
	struct dj_regs regs;
	if (t->in_rep) /* a digest stands between instructions */
		return;
	rec_full_regs(t, &regs);
	record_regs(t, &regs);
	check_flags(t, &c);
	check_stack(t, &c);
	if (whole) {
		check_lines(t, &c, &regs);
		check_pages(t, &c);
	}
	rec_check_record(t, &c);
	rec_written(t, whole);
	if (whole)
		next_gap(t);
}

/* Digests are mostly made where the program comes to new code, and there few flags are sure to be
 * known. At a system call all are, so of a short run these are compared there. */
void rec_check_call(struct rec_thread *t)
{
	struct dj_check c = { 0 };
	if (t->stops > CALLS_CHECKED)
		return;
	check_flags(t, &c);
	rec_check_record(t, &c);
}

void rec_digest_start(struct rec_thread *t)
{
	t->digest_gap = 0;
	t->image_at = t->written_at = t->steps;
	next_gap(t);
}

void rec_digest_in_call(struct rec_thread *t)
{
	struct dj_check c = { 0 };
	rec_full_regs(t, &t->signal.full);
	check_stack(t, &c);
	rec_check_record(t, &c);
}

void rec_digest_after_call(struct rec_thread *t, uint64_t result)
{
	struct dj_regs *regs = &t->signal.full;
	regs->gpr[DJ_RAX] = result;
	regs->gpr[DJ_RCX] = regs->rip;
	regs->gpr[DJ_R11] = t->regs.r11;
	record_regs(t, regs);
}
