/*
 * The system calls that the supervisor performs, one row each: those that change the address space,
 * make processes or threads, change the process image, return from signals or end the thread. All
 * others run in the cache (translate-flow.c) and need no knowledge of what they are.
 *
 * On entry the thread is in hand with rip at the system call instruction. A call is made from the
 * runtime's own syscall instruction, or the vdso's, under a single step. Effects on the address
 * space take place before the call is over for the program.
 */
#include "recorder/area.h"
#include "recorder/syscalls.h"

#include <asm/prctl.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

/* ---- making a call ----------------------------------------------------------------------- */

void rec_complete_call(struct rec_thread *t, uint64_t result)
{
	uint64_t r11 = (t->regs.eflags & ~0x10100ULL) | (t->trap_flag ? TRAP_FLAG : 0);
	struct dj_record r = {
		.kind = DJ_REC_SYSCALL, .steps = t->steps, .result = result, .r11 = r11
	};
	rec_event(t, &r);
	t->steps++;
	t->regs.rip += 2;
	t->regs.rax = result;
	t->regs.rcx = t->regs.rip;
	t->regs.r11 = r11;
	t->flags_made = true;
}

bool rec_call_allowed(struct rec_thread *t)
{
	return !t->filters || rec_filters_allow(t, t->regs.rip, &t->regs);
}

enum rec_state rec_answer(struct rec_thread *t, int64_t result)
{
	if (!rec_call_allowed(t)) /* the kernel knows what comes of that */
		return rec_make_call(t);
	struct user_regs_struct in = t->regs;
	rec_complete_call(t, (uint64_t)result);
	rec_call_data(t, in.rax, &in, (uint64_t)result);
	return REC_IN_HAND;
}

static enum rec_state call_done(struct rec_thread *t, uint64_t result);

static bool changes_signals(uint64_t nr)
{
	return nr == SYS_rt_sigaction || nr == SYS_rt_sigreturn;
}

/* Calls that show where a thread may be, or hand that down: see near.c. */
static bool about_processors(uint64_t nr)
{
	switch (nr) {
	case SYS_clone:
	case SYS_clone3:
	case SYS_fork:
	case SYS_vfork:
	case SYS_execve:
	case SYS_execveat:
	case SYS_sched_getaffinity:
	case SYS_sched_setaffinity:
		return true;
	default:
		return false;
	}
}

/* Make the call that `t->regs` say. With a single step; but a call that changes what the trap of
 * that step would destroy stops at its entry and exit. */
static enum rec_state make(struct rec_thread *t, enum rec_state state)
{
	struct user_regs_struct r = t->regs;
	rec_child_traced(t, &r);
	rec_trap_ignore(t, &r);
	/* the arena with ours may be given up while another thread sleeps in the call, or while
	 * this one waits for a child in its memory */
	bool others = t->proc->n_threads > 1 || t->sys.clone_flags & CLONE_VFORK;
	uint64_t at = others && t->proc->vdso_syscall ? 0 : tr_syscall_insn(t->proc->tr);
	t->minds = about_processors(r.rax);
	t->sys.filtered = false;
	t->sys.at = at ? at : t->proc->vdso_syscall;
	t->sys.regs = t->regs;
	r.rip = t->sys.at;
	r.orig_rax = (unsigned long long)-1;
	t->sys.quiet = t->sys.entry =
		r.rax == SYS_rt_sigprocmask ||
		(rec_trap_matters(t) && (changes_signals(r.rax) || rec_trap_exchanges(r.rax)));
	if (!t->sys.quiet)
		return rec_step(t, &r, state);
	if (rec_set_regs(t, &r))
		return REC_KILLED;
	rec_run(t, REC_TO_SYSCALL, 0);
	return state;
}

/* At the entry of a call that is made without a single step: on to its exit. */
static bool at_entry(struct rec_thread *t)
{
	if (!t->sys.entry)
		return false;
	t->sys.entry = false;
	rec_run(t, REC_TO_SYSCALL, 0);
	return true;
}

enum rec_state rec_make_call(struct rec_thread *t)
{
	return make(t, REC_SYSCALL);
}

/* The thread may not come back: the program's own gs base for whoever looks. */
enum rec_state rec_make_last_call(struct rec_thread *t)
{
	rec_digest(t, true);
	rec_heir_prepare(t);
	t->group->exits |= t->regs.rax == SYS_exit_group;
	t->regs.gs_base = rec_gs(t);
	return make(t, REC_SYSCALL);
}

/* ---- SIGTRAP (sigtrap.c) ----------------------------------------------------------------- */

static enum rec_state begin_sigaction(struct rec_thread *t)
{
	if ((int)t->regs.rdi == SIGTRAP && t->proc->n_threads > 1 &&
	    ((t->group->trap.due && t->group->trap.due != t) || !rec_turn(t)))
		return REC_WAIT;
	rec_read(t->proc, t->regs.rsi, &t->trap.action, sizeof(t->trap.action));
	t->trap.resets = t->group->trap.resets + t->group->trap.restores;
	return rec_make_call(t);
}

static enum rec_state begin_sigprocmask(struct rec_thread *t)
{
	if (!rec_mask_set(t))
		return rec_make_call(t);
	t->sys.regs = t->regs;
	t->sys.quiet = true;
	return call_done(t, 0);
}

/* A call that waits with another mask, and comes here only for the sake of what SIGTRAP does, which
 * is lost, or was when the thread was last told. It is made in the cache: here the trap behind it
 * would take that mask away before the signal that it has let in is delivered, and it would be made
 * again and again. */
static enum rec_state back_to_cache(struct rec_thread *t)
{
	const uint8_t *class = (const uint8_t *)rec_tcb(t, T_SYSCLASS) + t->regs.rax;
	bool told = *class == SYS_SUPERVISED;
	if (rec_trap_needs(t))
		return rec_trap_restore(t);
	rec_trap_classes(t);
	return told ? REC_IN_HAND : rec_make_call(t);
}

/* ---- registers ----------------------------------------------------------------------------- */

static enum rec_state refuse_rseq(struct rec_thread *t)
{
	return rec_answer(t, -ENOSYS);
}

/* What is about rseq is not there, either: linux/membarrier.h has the commands. */
static enum rec_state begin_membarrier(struct rec_thread *t)
{
	const int rseq = MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ |
			 MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ;
	int command = (int)t->regs.rdi;
	if (command & rseq)
		return rec_answer(t, -EINVAL);
	if (command != MEMBARRIER_CMD_QUERY || (unsigned)t->regs.rsi)
		return rec_make_call(t);
	long there = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
	return rec_answer(t, there < 0 ? -errno : there & ~rseq);
}

static void record_base(struct rec_thread *t, unsigned long long mask)
{
	struct dj_record r = { .kind = DJ_REC_REGS, .steps = t->steps, .mask = mask };
	r.regs.fs_base = t->regs.fs_base;
	r.regs.gs_base = rec_gs(t);
	rec_ring_record(t, &r);
}

/* The gs base is deja's; the program's is kept in the control block. */
static enum rec_state begin_arch_prctl(struct rec_thread *t)
{
	uint64_t what = t->regs.rdi, value = t->regs.rsi;
	if (!rec_call_allowed(t))
		return make(t, REC_SYSCALL);
	switch (what) {
	case 0x5001 ... 0x5005: /* shadow stacks: not on this processor */
		return rec_answer(t, -EOPNOTSUPP);
	case ARCH_SET_GS:
		if (value >= 0x7ffffffff000ULL)
			return rec_answer(t, -EPERM);
		rec_set_gs(t, value);
		rec_complete_call(t, 0);
		record_base(t, DJ_REG_GS_BASE);
		return REC_IN_HAND;
	case ARCH_SET_FS: /* every program does, so it is worth a stop less */
		if (value >= 0x7ffffffff000ULL || t->regs.fs)
			break;
		t->regs.fs_base = *rec_tcb(t, T_FSBASE) = value;
		rec_complete_call(t, 0);
		record_base(t, DJ_REG_FS_BASE);
		return REC_IN_HAND;
	case ARCH_GET_GS: {
		struct rec_tracer *tracer = t->rec->tracer;
		uint64_t gs = rec_gs(t);
		bool good = tracer->write_as_it(tracer, t->tid, value, &gs, sizeof(gs));
		return rec_answer(t, good ? 0 : -EFAULT);
	}
	}
	return make(t, REC_SYSCALL);
}

static void after_arch_prctl(struct rec_thread *t, const struct user_regs_struct *in,
			     uint64_t result)
{
	(void)result;
	if (in->rdi != ARCH_SET_FS)
		return;
	*rec_tcb(t, T_FSBASE) = t->regs.fs_base;
	record_base(t, DJ_REG_FS_BASE);
}

/* A seccomp filter does not let the call through and has SIGSYS sent (seccomp(2),
 * SECCOMP_RET_TRAP). The trap of the single step is still to come: the signal waits for it. */
static bool filtered(struct rec_thread *t, const struct rec_stop *stop)
{
	if (stop->sig != SIGSYS || !stop->sync)
		return false;
	t->sys.filtered = true;
	t->signal.info = stop->info;
	rec_run(t, REC_STEP, 0);
	return true;
}

/* The kernel has left the call's number in rax. */
static enum rec_state deliver_filtered(struct rec_thread *t, int64_t result)
{
	siginfo_t info = t->signal.info;
	(void)result;
	if (t->layout.fixed) /* an exec */
		return rec_layout_done(t, deliver_filtered);
	rec_complete_call(t, t->regs.rax);
	info.si_call_addr = (void *)(uintptr_t)t->regs.rip;
	return rec_deliver(t, &info, 0);
}

/* All registers come from the frame; rip leads away from here. */
static enum rec_state begin_sigreturn(struct rec_thread *t)
{
	/* struct ucontext: flags, link, stack, 32 words of registers, the mask */
	uint64_t mask = 0, flags = 0;
	rec_read(t->proc, t->regs.rsp + 40 + 32 * 8, &mask, sizeof(mask));
	rec_read(t->proc, t->regs.rsp + 40 + 17 * 8, &flags, sizeof(flags));
	t->sys.trap_flag = flags & TRAP_FLAG;
	t->sys.traps_blocked = mask >> (SIGTRAP - 1) & 1;
	t->regs.gs_base = rec_gs(t);
	return make(t, REC_SIGRETURN);
}

enum rec_state rec_on_sigreturn(struct rec_thread *t, const struct rec_stop *stop)
{
	struct user_regs_struct r;
	if (stop->event || rec_get_regs(t, &r))
		return REC_KILLED;
	if (stop->sig == SIGTRAP && at_entry(t))
		return REC_SIGRETURN;
	if (filtered(t, stop))
		return REC_SIGRETURN;
	if (t->sys.filtered)
		return deliver_filtered(t, 0);
	if (stop->sig == SIGTRAP && t->sys.quiet && r.rip == t->sys.at + 2) {
		rec_run(t, REC_CONT, 0); /* the frame is not to be read: SIGSEGV comes */
		return REC_SIGRETURN;
	}
	if (stop->sig != SIGTRAP) /* the frame is not to be read */
		return rec_deliver(t, &stop->info, 0);
	t->regs = r;
	t->regs.eflags &= ~TRAP_FLAG;
	t->trap_flag = t->sys.trap_flag;
	t->flags_lost = false;
	t->flags_made = true;
	rec_trap_masked(t, t->sys.traps_blocked);
	struct dj_record rec = { .kind = DJ_REC_REGS, .steps = t->steps, .mask = DJ_REG_ALL };
	rec_full_regs(t, &rec.regs);
	rec_ring_record(t, &rec);
	return REC_IN_HAND;
}

/* While no other thread changes mappings. */
static enum rec_state begin_alone(struct rec_thread *t)
{
	return rec_turn(t) ? rec_make_call(t) : REC_WAIT;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* clang-format off */
static const struct row {
	uint16_t nr;
	const char *name;
	const char *class; /* what it is about */
	enum rec_state (*begin)(struct rec_thread *t);
	rec_effect *effect; /* what it changed; not called if it failed */
	bool effect_if_failed;
	bool checked; /* may be made in the cache, by its arguments */
	bool classified; /* sigtrap.c or behind.c says when it is left to us */
} table[] = {
#define ROW(name, class, ...) { SYS_##name, #name, class, __VA_ARGS__ }
	ROW(mmap,             "memory",    rec_begin_memory, rec_after_mmap, true, .checked = true),
	ROW(munmap,           "memory",    rec_begin_memory, rec_after_munmap, false, .checked = true),
	ROW(mremap,           "memory",    rec_begin_memory, rec_after_mremap, true, .checked = true),
	ROW(mprotect,         "memory",    rec_begin_memory, rec_after_mprotect, true, .checked = true),
	ROW(pkey_mprotect,    "memory",    rec_begin_memory, rec_after_mprotect, true),
	ROW(brk,              "memory",    rec_begin_memory, rec_after_brk, true, .checked = true),
	ROW(shmat,            "memory",    rec_begin_memory, rec_after_shmat, false),
	ROW(shmdt,            "memory",    begin_alone, rec_after_shmdt, false),
	ROW(mlockall,         "memory",    rec_begin_mlockall, NULL, false),
	ROW(remap_file_pages, "memory",    begin_alone, NULL, false),
	ROW(madvise,          "code",      rec_make_call, rec_after_madvise, false, .checked = true),
	ROW(lseek,            "code",      rec_make_call, rec_after_seek, false, .checked = true),
	ROW(pwrite64,         "code",      rec_make_call, rec_after_pwrite, false, .checked = true),
	ROW(pwritev,          "code",      rec_make_call, rec_after_pwrite, false, .checked = true),
	ROW(pwritev2,         "code",      rec_make_call, rec_after_pwrite, false, .checked = true),
	ROW(write,            "code",      rec_make_call, rec_after_write, false, .classified = true),
	ROW(writev,           "code",      rec_make_call, rec_after_write, false, .classified = true),
	ROW(sendfile,         "code",      rec_make_call, rec_after_write, false, .classified = true),
	ROW(splice,           "code",      rec_make_call, rec_after_write, false, .classified = true),
	ROW(copy_file_range,  "code",      rec_make_call, rec_after_write, false, .classified = true),
	ROW(open,             "mappings",  rec_make_call, rec_after_open, false, .checked = true),
	ROW(openat,           "mappings",  rec_make_call, rec_after_open, false, .checked = true),
	ROW(read,             "mappings",  rec_begin_read, NULL, false, .classified = true),
	ROW(seccomp,          "filter",    rec_begin_seccomp, rec_after_seccomp, false),
	ROW(prctl,            "filter",    rec_begin_prctl, rec_after_seccomp, false),
	ROW(getrlimit,        "memory",    rec_begin_getrlimit, NULL, false),
	ROW(setrlimit,        "memory",    rec_begin_setrlimit, NULL, false),
	ROW(prlimit64,        "memory",    rec_begin_prlimit, NULL, false, .checked = true),
	ROW(clone,            "process",   rec_begin_clone, NULL, false),
	ROW(clone3,           "process",   rec_begin_clone, NULL, false),
	ROW(fork,             "process",   begin_alone, NULL, false),
	ROW(vfork,            "process",   rec_begin_vfork, NULL, false),
	ROW(sched_getaffinity, "process",  rec_make_call, NULL, false, .checked = true),
	ROW(sched_setaffinity, "process",  rec_make_call, rec_cpuid_placed, false),
	ROW(ptrace,           "process",   rec_begin_ptrace, NULL, false),
	ROW(execve,           "image",     rec_begin_exec, NULL, false),
	ROW(execveat,         "image",     rec_begin_exec, NULL, false),
	ROW(exit,             "end",       rec_thread_exit, NULL, false),
	ROW(exit_group,       "end",       rec_make_last_call, NULL, false),
	ROW(rt_sigreturn,     "registers", begin_sigreturn, NULL, false),
	ROW(arch_prctl,       "registers", begin_arch_prctl, after_arch_prctl, false),
	ROW(rseq,             "registers", refuse_rseq, NULL, false),
	ROW(membarrier,       "registers", begin_membarrier, NULL, false, .checked = true),
	ROW(rt_sigaction,     "signals",   begin_sigaction, rec_after_sigaction, true, .classified = true),
	ROW(rt_sigprocmask,   "signals",   begin_sigprocmask, rec_after_sigprocmask, true, .classified = true),
	ROW(rt_sigsuspend,    "signals",   back_to_cache, NULL, false, .classified = true),
	ROW(ppoll,            "signals",   back_to_cache, NULL, false, .classified = true),
	ROW(pselect6,         "signals",   back_to_cache, NULL, false, .classified = true),
	ROW(epoll_pwait,      "signals",   back_to_cache, NULL, false, .classified = true),
	ROW(epoll_pwait2,     "signals",   back_to_cache, NULL, false, .classified = true),
	ROW(io_pgetevents,    "signals",   back_to_cache, NULL, false, .classified = true),
#undef ROW
};
/* clang-format on */
#define ROWS (sizeof(table) / sizeof(*table))

static const struct row *row_of(uint64_t nr)
{
	for (size_t i = 0; i < ROWS; i++)
		if (table[i].nr == nr)
			return &table[i];
	return NULL;
}

void rec_syscalls_init(struct rec_thread *t)
{
	uint8_t *class = (uint8_t *)rec_tcb(t, T_SYSCLASS);
	memset(class, 0, 512);
	for (size_t i = 0; i < ROWS; i++)
		class[table[i].nr] = table[i].classified ? SYS_HERE
				     : table[i].checked	 ? SYS_CHECKED
							 : SYS_SUPERVISED;
	rec_trap_classes(t);
	rec_writer_classes(t);
	rec_call_data_init(t);
}

enum rec_state rec_syscall(struct rec_thread *t)
{
	const struct row *row = row_of(t->regs.rax);
	if (rec_trap_urgent(t)) {
		t->trap.then_call = !row || row->begin != back_to_cache;
		return rec_trap_restore(t);
	}
	/* the map may have been overwritten */
	enum rec_state next = row ? row->begin(t) : rec_make_call(t);
	t->sys.waits = next == REC_WAIT;
	return next;
}

bool rec_call_not_begun(struct rec_thread *t)
{
	struct user_regs_struct r;
	return (t->state == REC_SYSCALL || t->state == REC_SIGRETURN) && !rec_get_regs(t, &r) &&
	       r.rip == t->sys.at;
}

/* ---- stops of a call that is being made ------------------------------------------------------ */

/* The kernel wants the call made again; nothing that is made here has another answer to that
 * (linux/errno.h: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK). */
static bool to_be_restarted(const struct user_regs_struct *r)
{
	int64_t rax = (int64_t)r->rax;
	return rax == -512 || rax == -513 || rax == -514 || rax == -516;
}

static enum rec_state over(struct rec_thread *t, int64_t result)
{
	(void)t;
	(void)result;
	return REC_IN_HAND;
}

static enum rec_state call_done(struct rec_thread *t, uint64_t result)
{
	const struct row *row = row_of(t->sys.regs.rax);
	bool failed = (int64_t)result < 0 && (int64_t)result > -4096;
	rec_complete_call(t, result);
	if (row && row->effect && (!failed || row->effect_if_failed))
		row->effect(t, &t->sys.regs, result);
	rec_call_data(t, t->sys.regs.rax, &t->sys.regs, result);
	if (row && row->checked && !failed)
		rec_data_learn(t, &t->sys.regs);
	if (t->hide.wanted)
		return rec_hide(t);
	if (t->layout.fixed) /* an exec that failed */
		return rec_layout_done(t, over);
	/* a child in its memory may have had more of deja's put there */
	return t->sys.clone_flags & CLONE_VFORK ? rec_limits_raise(t, over) : REC_IN_HAND;
}

enum rec_state rec_on_syscall(struct rec_thread *t, const struct rec_stop *stop)
{
	struct user_regs_struct r;
	switch (stop->event) {
	case 0:
		break;
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
	case PTRACE_EVENT_CLONE:
		return rec_child_event(t, stop->event);
	case PTRACE_EVENT_EXEC:
		rec_trap_exec(t);
		return rec_image_begin(t, true);
	default:
		if (!rec_vfork_holds(t, stop->event))
			rec_run(t, REC_STEP, 0);
		return REC_SYSCALL;
	}
	if (rec_get_regs(t, &r))
		return REC_KILLED;
	if (stop->sig == SIGTRAP && at_entry(t))
		return REC_SYSCALL;
	if (filtered(t, stop))
		return REC_SYSCALL;
	if (t->sys.filtered)
		return deliver_filtered(t, 0);
	if (stop->sig != SIGTRAP) {
		rec_fatal(t->rec, "signal %d in the middle of system call %llu", stop->sig,
			  (unsigned long long)t->sys.regs.rax);
		return REC_KILLED;
	}
	if (r.rip == t->sys.at || to_be_restarted(&r))
		return make(t, REC_SYSCALL);
	t->regs.fs_base = r.fs_base;
	return call_done(t, r.rax);
}
