/*
 * Changing registers and memory, and calling functions of the program.
 *
 * Recorded history cannot change. The first write makes a throw-away copy of the moment
 * (replay_fork_copy); from then on the debugger sees and writes the copy. The rule by which it
 * is left again:
 *
 *   EDITS  The debugger has written, nothing has run. The next resume forgets the copy, says so
 *          on the console, and goes on in history - unless it is a function call.
 *   CALL   A resume forwards, from EDITS, with a program counter other than history's and a
 *          breakpoint at the return address on top of the stack: that is gdb calling a function.
 *          It runs in the copy, and so does every resume forwards until the program counter and
 *          the stack pointer are written back to what they were before (the call is over, or
 *          was popped): back in EDITS, where the call's effects on memory stay visible until the
 *          next resume.
 *
 * Going backwards, "monitor goto", running again and detaching leave the copy from any state, and
 * so does going on after the copy failed (it cannot do system calls).
 */
#include "gdbstub/session.h"

#include <string.h>

/* Parts that gdb does not write back the way it read them. */
#define COMPARED_PARTS (DJ_REG_ALL & ~(DJ_REG_X87 | DJ_REG_SEGS))

static int scratch_enter(struct stub_session *s, struct dj_error *err)
{
	if (s->scratch != SCRATCH_NONE)
		return 0;
	replay_regs(s->r, &s->scratch_regs);
	if (replay_fork_copy(s->r, err) != 0)
		return -1;
	s->scratch = SCRATCH_EDITS;
	s->scratch_edited = false;
	return 0;
}

void stub_scratch_leave(struct stub_session *s, bool tell)
{
	if (s->scratch == SCRATCH_NONE)
		return;
	if (tell && s->scratch_edited)
		stub_session_console(s, "[deja: history cannot change; what you changed here is "
					"forgotten as the replay moves on.]\n");
	s->scratch = SCRATCH_NONE;
	replay_discard(s->r);
	stub_xfer_forget(s);
}

/* What the debugger writes this far below the stack pointer it pushes for a call: nobody's edit.
 * Nearer are the locals of leaf functions (System V ABI for x86-64, "The Stack Frame"). */
#define RED_ZONE	128
#define CALL_FRAME_ROOM 0x4000

int stub_scratch_write(struct stub_session *s, uint64_t addr, const void *bytes, size_t len,
		       struct dj_error *err)
{
	if (scratch_enter(s, err) != 0)
		return -1;
	uint64_t below = s->scratch_regs.gpr[DJ_RSP] - addr;
	if (below < RED_ZONE || below > CALL_FRAME_ROOM)
		s->scratch_edited = true;
	if (replay_write(s->r, addr, bytes, len) != 0)
		return dj_fail(err, 1, "no memory is known at %#llx", (unsigned long long)addr);
	return 0;
}

int stub_scratch_set_regs(struct stub_session *s, const struct dj_regs *regs, uint64_t mask,
			  struct dj_error *err)
{
	struct dj_regs now;
	replay_regs(s->r, &now);
	if (s->scratch == SCRATCH_NONE && (dj_regs_diff(&now, regs) & mask) == 0)
		return 0;
	if (scratch_enter(s, err) != 0)
		return -1;
	if (replay_set_regs(s->r, regs, mask) != 0)
		return dj_fail(err, 1, "the registers cannot be set");
	replay_regs(s->r, &now);
	if (s->scratch == SCRATCH_CALL && now.rip == s->scratch_regs.rip &&
	    now.gpr[DJ_RSP] == s->scratch_regs.gpr[DJ_RSP])
		s->scratch = SCRATCH_EDITS;
	return 0;
}

static bool starts_call(struct stub_session *s)
{
	struct dj_regs now;
	uint8_t ret[8];
	uint64_t addr = 0;
	replay_regs(s->r, &now);
	if (now.rip == s->scratch_regs.rip ||
	    replay_read(s->r, now.gpr[DJ_RSP], ret, sizeof(ret)) < sizeof(ret))
		return false;
	for (int i = 7; i >= 0; i--)
		addr = addr << 8 | ret[i];
	return stub_session_breakpoint_at(s, addr);
}

void stub_scratch_before_resume(struct stub_session *s, enum replay_dir dir)
{
	if (s->scratch == SCRATCH_NONE)
		return;
	if (dir == REPLAY_FORWARD && s->scratch == SCRATCH_CALL &&
	    !(s->have_last && s->last.reason == REPLAY_FAILED))
		return;
	if (dir == REPLAY_FORWARD && s->scratch == SCRATCH_EDITS && starts_call(s)) {
		s->scratch = SCRATCH_CALL;
		return;
	}
	/* registers set by hand count as edits; those of an abandoned call do not */
	struct dj_regs now;
	replay_regs(s->r, &now);
	if (s->scratch == SCRATCH_EDITS && dj_regs_diff(&now, &s->scratch_regs) & COMPARED_PARTS)
		s->scratch_edited = true;
	stub_scratch_leave(s, true);
}
