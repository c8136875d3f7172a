/*
 * Steps back through the code of a line.
 *
 * Forwards gdb asks for a step through a range of addresses (vCont;r). Backwards the protocol has
 * only bs, one instruction, so for reverse-next gdb stops at every instruction of a line, finds
 * that it is still inside, and sends bs again. The gdb that deja replay starts says before
 * reverse-step and reverse-next which ranges it would find that of (QDejaLines, cli/replay.py): in
 * each the code is of one line and of the same inlined functions. If then bs comes for the second
 * time in such a range, with nothing in between but reading, it takes as many instructions back as
 * gdb would ask for one after the other. It stops before gdb could do anything else: at the
 * first instruction of the range, outside, at a breakpoint, where anything but a step is told, and
 * where the frame may be another one, that is, where rsp or rbp have changed. Calls and returns
 * change rsp, so that each of them is a stop.
 *
 * What the ranges are for ends with the command: gdb asks for the list of threads then. Any request
 * that does not belong to such a command ends it, too, for a bs that means one instruction must
 * never be taken for more.
 */
#include "gdbstub/session.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RANGES 8192u

/* QDejaLines:START,LENGTH;START,LENGTH...: ranges by address, which do not overlap. Without ":" the
 * ones that were given last. */
bool stub_handle_lines(struct stub_session *s, struct stub_scan *a)
{
	if (a->p == a->end) {
		s->lines_meant = s->n_lines > 0;
		return stub_reply_ok(s);
	}
	if (!stub_scan_char(a, ':'))
		return stub_reply_empty(s);
	size_t n = 0;
	for (const char *p = a->p; p < a->end; p++)
		n += *p == ';';
	if (n >= MAX_RANGES)
		return stub_reply_error(s, 1);
	struct stub_session_line *lines = calloc(n + 1, sizeof(*lines));
	if (!lines)
		return stub_reply_error(s, 12);
	uint64_t last = 0;
	for (n = 0; a->p < a->end; n++) {
		struct stub_scan part = stub_scan_until(a, ';');
		uint64_t length;
		if (!stub_scan_hex(&part, &lines[n].start) || !stub_scan_char(&part, ',') ||
		    !stub_scan_hex(&part, &length) || part.p != part.end || length == 0 ||
		    length > UINT64_MAX - lines[n].start || lines[n].start < last) {
			free(lines);
			return stub_reply_error(s, 1);
		}
		last = lines[n].end = lines[n].start + length;
	}
	free(s->lines);
	s->lines = lines;
	s->n_lines = n;
	s->lines_meant = n > 0;
	return stub_reply_ok(s);
}

void stub_lines_request(struct stub_session *s, struct stub_scan a)
{
	static const char *const of_command[] = { "bc", "Z", "z", "H", "QPassSignals:" };
	if (!s->lines_meant || a.p == a.end || memchr("mxgp", *a.p, 4) || stub_scan_word(&a, "bs"))
		return;
	s->lines_again = false;
	for (size_t i = 0; i < sizeof(of_command) / sizeof(*of_command); i++)
		if (stub_scan_word(&a, of_command[i]))
			return;
	s->lines_meant = false;
}

static const struct stub_session_line *inside(const struct stub_session *s, uint64_t rip)
{
	size_t lo = 0, hi = s->n_lines;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (s->lines[mid].end <= rip)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < s->n_lines && s->lines[lo].start < rip ? &s->lines[lo] : NULL;
}

void stub_lines_begin(struct stub_session *s, struct stub_line_step *l, uint32_t thread)
{
	struct dj_regs regs;
	*l = (struct stub_line_step){ .thread = thread };
	replay_regs(s->r, &regs);
	l->line = inside(s, regs.rip);
	l->sp = regs.gpr[DJ_RSP];
	l->fp = regs.gpr[DJ_RBP];
}

/* How many steps are made without a look at what the client has sent. */
#define LINE_STEPS 64

bool stub_lines_go_on(struct stub_session *s, struct stub_line_step *l, struct replay_stop *stop)
{
	struct dj_regs regs;
	struct replay_thread now;
	if (!l->line || stop->reason != REPLAY_STEPPED)
		return false;
	replay_thread(s->r, &now);
	replay_regs(s->r, &regs);
	if (now.number != l->thread || inside(s, regs.rip) != l->line ||
	    regs.gpr[DJ_RSP] != l->sp || regs.gpr[DJ_RBP] != l->fp ||
	    stub_session_breakpoint_at(s, regs.rip))
		return false;
	if (++l->made % LINE_STEPS == 0 && s->link && stub_link_poll_interrupt(s->link)) {
		stop->reason = REPLAY_INTERRUPTED;
		return false;
	}
	return true;
}
