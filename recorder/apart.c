/*
 * Instructions that are executed apart: from a place in the arena with an int3 behind it
 * (tr_put_apart).
 *
 * First, those that the kernel emulates, in the handler of their fault: sgdt, sidt, smsw, sldt and
 * str where the processor keeps them from programs (linux/arch/x86/kernel/umip.c), cli and sti
 * after iopl(3) (traps.c there), and calls of the vsyscall page
 * (linux/arch/x86/entry/vsyscall/vsyscall_64.c). It returns behind them with the
 * resume flag set, as the processor saves it in every fault (SDM vol. 3, 18.3.1.1). So neither a
 * single step nor a breakpoint of the processor's stops there: the next instruction is executed,
 * whatever it is, and from a breakpoint that was missed on the program runs away from us.
 *
 * So the next one is ours. One that addresses memory relative to itself addresses it by a register
 * instead. A call of the vsyscall page returns to such an int3, because the return address that it
 * finds is not the program's but one in our area, with the same for its stack pointer. All else is
 * the program's own, so the kernel does what it would have done: it writes, refuses, asks filters.
 *
 * A program that has set the trap flag finds the same natively: no trap behind such an instruction,
 * one behind the next.
 *
 * Second, string instructions that repeat themselves, because a single step ends behind each
 * iteration. (A breakpoint of the processor's stops nobody in some virtual machines, though it can
 * be set.) They may take long, also because another thread is to bring the memory that they need
 * (userfaultfd(2)), and makes system calls for it. So they hold no turn and have several places;
 * gather.c waits for them as for translated code. Where no place is free they are stepped.
 */
#include "recorder/apart.h"
#include "recorder/area.h"
#include "recorder/end.h"
#include "recorder/image.h"
#include "recorder/syscalls.h"

#include <cpuid.h>
#include <string.h>
#include <sys/mman.h>

#define VSYSCALL_PAGE (0xffffffffff600000 >> 12) /* arch/x86/include/uapi/asm/vsyscall.h */

static bool calls_vsyscall(const struct rec_thread *t)
{
	return t->native.pc >> 12 == VSYSCALL_PAGE;
}

/* Elsewhere the processor would fault before it knows what the instruction is. */
static bool is_executable(const struct rec_thread *t)
{
	const uint64_t first = t->native.pc, last = first + t->native.in.len - 1;
	const struct dj_mapping *m = rec_maps_find(t->proc, first);
	if (m && last >= m->end && (m->prot & PROT_EXEC))
		m = rec_maps_find(t->proc, last);
	return m && (m->prot & PROT_EXEC);
}

/* SDM vol. 2A, CPUID, leaf 7 */
bool rec_has_umip(void)
{
	unsigned a, b, c, d;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & 1u << 2;
}

bool rec_apart_has(const struct rec_thread *t)
{
	const struct insn *in = &t->native.in;
	if (calls_vsyscall(t))
		return true;
	if (!t->native.known || in->lock || !is_executable(t))
		return false;
	switch (in->id) {
	case INSN_SGDT:
	case INSN_SIDT:
	case INSN_SMSW:
	case INSN_SLDT:
	case INSN_STR:
		return t->rec->umip;
	case INSN_CLI:
	case INSN_STI:
		return true;
	default:
		return false;
	}
}

bool rec_apart_repeats(const struct rec_thread *t)
{
	const struct insn *in = &t->native.in;
	return t->native.known && !in->lock && (in->attr & INSN_A_REP) && t->regs.rcx > 1 &&
	       !t->trap_flag && is_executable(t);
}

static bool by_rip(const struct insn *in)
{
	return in->has_mem && in->base == INSN_RIP;
}

/* The instruction as it can be executed anywhere, and its length. If it addressed memory relative
 * to itself it now does by rax. */
static size_t movable(struct rec_thread *t, uint8_t *code)
{
	const struct insn *in = &t->native.in;
	size_t modrm = in->modrm_off, behind = modrm + 1 + in->disp_size;
	memcpy(code, t->native.code, in->len);
	if (!by_rip(in))
		return in->len;
	t->regs.rax = in->target;
	code[modrm] &= 0x38;
	if (in->rex)
		code[in->rex_off] &= 0xfe;
	memmove(code + modrm + 1, code + behind, in->len - behind);
	return in->len - in->disp_size;
}

/* The place at which no other thread of the process's memory is: the first is for who has the turn.
 * TR_APART if there is none. */
static unsigned free_place(const struct rec_thread *t)
{
	bool taken[TR_APART] = { !rec_apart_has(t) };
	unsigned i = 0;
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o != t && o->proc == t->proc && o->state == REC_NATIVE_RUN)
			taken[o->native.place] = true;
	while (i < TR_APART && taken[i])
		i++;
	return i;
}

/* Where it is executed, and where the int3 behind it is. False if there is no room. */
static bool place(struct rec_thread *t)
{
	struct translator *tr = t->proc->tr;
	uint8_t code[INSN_MAX];
	if (calls_vsyscall(t)) {
		t->native.place = 0;
		if (!tr_syscall_insn(tr))
			return false;
		t->native.apart = t->native.pc;
		t->native.stop_at = tr_syscall_insn(tr) + 2;
		*rec_tcb(t, T_ARGS) = t->native.stop_at;
		t->regs.rsp = t->s + (uint64_t)T_ARGS;
		return true;
	}
	t->native.place = free_place(t);
	if (t->native.place == TR_APART)
		return false;
	size_t len = movable(t, code);
	t->native.apart = tr_put_apart(tr, t->native.place, code, len);
	t->native.stop_at = t->native.apart + len;
	return t->native.apart != 0;
}

/* Where the program goes on. False if a call has no return address that can be read. */
static bool find_behind(struct rec_thread *t)
{
	t->native.behind = t->native.pc + t->native.in.len;
	return !calls_vsyscall(t) || rec_read(t->proc, t->regs.rsp, &t->native.behind,
					      sizeof(t->native.behind)) == sizeof(t->native.behind);
}

enum rec_state rec_apart_begin(struct rec_thread *t)
{
	t->native.lent_rax = t->regs.rax;
	t->native.lent_rsp = t->regs.rsp;
	if (!find_behind(t)) /* that faults */
		return rec_step(t, &t->regs, REC_NATIVE);
	bool placed = place(t);
	if (!placed && !rec_apart_has(t))
		return rec_step(t, &t->regs, REC_NATIVE);
	if (!placed) {
		rec_cut(t->rec,
			"%s executes an instruction at %#llx that the kernel emulates, and there "
			"is no room for code of deja's; the recording ends there",
			rec_program_name(t), (unsigned long long)t->native.pc);
		return REC_KILLED;
	}
	t->regs.rip = t->native.apart;
	if (rec_set_regs(t, &t->regs))
		return REC_KILLED;
	rec_run(t, REC_CONT, 0);
	return REC_NATIVE_RUN;
}

void rec_apart_back(struct rec_thread *t)
{
	const struct insn *in = &t->native.in;
	if (calls_vsyscall(t))
		t->regs.rsp = t->native.lent_rsp;
	else if (by_rip(in))
		t->regs.rax = t->native.lent_rax;
	t->regs.rip = t->native.pc;
}

bool rec_apart_done(struct rec_thread *t)
{
	uint64_t rip = t->regs.rip;
	/* behind the int3; or before it, where a filter has a signal sent instead of the call */
	bool over = rip == t->native.stop_at + 1 || rip == t->native.stop_at;
	if (!over && rip != t->native.apart)
		return false;
	rec_apart_back(t);
	if (!over)
		return true;
	t->regs.rip = t->native.behind;
	if (calls_vsyscall(t))
		t->regs.rsp += 8;
	return true;
}
