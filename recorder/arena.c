/*
 * Memory for translated code in the program: the window, which is a mapping of the file's rest, and
 * arenas near the program's code, which are parts of the window mapped once more, for which no
 * descriptor is needed.
 *
 * The window is 4 GiB of which nothing is used where it lies. A program may take what is readable
 * and executable in /proc/self/maps for code: ThreadSanitizer maps a file over the shadow of all of
 * it, 512 KB at a time, which was 35,000 calls before a program's first line. So it is PROT_NONE,
 * and arenas get their protection when they are made. A program's seccomp filter may forbid
 * mprotect, though: before there is one it is made executable.
 */
#include "recorder/area.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* ---- the window ---- */

void rec_window_free(struct rec_process *proc)
{
	for (unsigned i = 0; i < REC_ARENAS; i++)
		if (proc->window.arena[i].ours)
			munmap(proc->window.arena[i].ours, TR_ARENA_SIZE);
	memset(&proc->window, 0, sizeof(proc->window));
}

void rec_window_give_back(struct rec_process *proc, uint64_t at)
{
	unsigned i = 0;
	while (i < REC_ARENAS && proc->window.arena[i].at != at)
		i++;
	DJ_ASSERT(i < REC_ARENAS, "no arena is at %#llx", (unsigned long long)at);
	/* who gets it next wants it empty */
	if (fallocate(proc->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(proc->window.off + i * TR_ARENA_SIZE), TR_ARENA_SIZE))
		memset(proc->window.arena[i].ours, 0, TR_ARENA_SIZE);
	proc->window.arena[i].at = 0;
}

bool rec_window_may_hide(const struct rec_thread *t)
{
	const struct user_regs_struct r = { .rax = SYS_mprotect,
					    .rsi = TR_ARENA_SIZE,
					    .rdx = PROT_READ | PROT_EXEC };
	return rec_filters_allow(t, t->proc->vdso_syscall, &r);
}

bool rec_window_hidden(const struct rec_process *proc)
{
	return proc->window.hidden;
}

static enum rec_state shown(struct rec_thread *t, int64_t result)
{
	if (rec_failed(result)) {
		rec_fatal(t->rec, "cannot make deja's memory executable in %s: %s",
			  rec_program_name(t), strerror((int)-result));
		return REC_KILLED;
	}
	t->proc->window.hidden = false;
	return REC_IN_HAND;
}

enum rec_state rec_window_show(struct rec_thread *t)
{
	if (!rec_turn(t))
		return REC_WAIT;
	return rec_call(t, shown, SYS_mprotect, t->proc->window.at, REC_WINDOW_SIZE,
			PROT_READ | PROT_EXEC, 0, 0, 0);
}

/* An old size of 0 duplicates a mapping that is shared, with all its flags (mremap(2), "BUGS";
 * mm/mremap.c). */
void rec_window_add(struct rec_thread *t, unsigned arena, uint64_t at, unsigned what)
{
	rec_series_add(t, what, REC_MUST, SYS_mremap, t->proc->window.at + arena * TR_ARENA_SIZE, 0,
		       TR_ARENA_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, at, 0);
	if (t->proc->window.hidden)
		rec_series_add(t, what + 1, REC_MUST, SYS_mprotect, at, TR_ARENA_SIZE,
			       PROT_READ | PROT_EXEC, 0, 0, 0);
}

/* ---- arenas ---- */

/* Where an arena near `pc` may go. */
static uint64_t arena_place(struct rec_thread *t, uint64_t pc)
{
	uint64_t base = pc & ~0xfffffULL;
	/* clang-format off */
	const uint64_t tries[] = {
		pc < 0x60000000 ? 0x60000000ULL : base - 0x40000000, base - 0x20000000,
		base + 0x40000000, base + 0x60000000, base - 0x60000000, base - 0x10000000,
		base + 0x20000000, base - 0x70000000,
	};
	/* clang-format on */
	return rec_hole(t, tries, sizeof(tries) / sizeof(*tries), TR_ARENA_SIZE);
}

static enum rec_state no_arena(struct rec_thread *t)
{
	t->proc->no_arena = true;
	tr_no_arena(t->proc->tr);
	return REC_IN_HAND;
}

#define MAPPED 0 /* of two calls */

static enum rec_state arena_gone(struct rec_thread *t, int64_t result)
{
	(void)result;
	rec_window_give_back(t->proc, t->area.at);
	return no_arena(t);
}

static enum rec_state arena_there(struct rec_thread *t, int64_t result)
{
	if (result && rec_series_made(t, MAPPED))
		return rec_call(t, arena_gone, SYS_munmap, t->area.at, TR_ARENA_SIZE, 0, 0, 0, 0);
	if (result)
		return arena_gone(t, 0);
	rec_data_not(t->proc, t->area.at, t->area.at + TR_ARENA_SIZE);
	tr_add_arena(t->proc->tr, t->area.at, t->proc->window.arena[t->area.arena].ours);
	return REC_IN_HAND;
}

static enum rec_state arena_room(struct rec_thread *t, int64_t result)
{
	(void)result;
	rec_series_begin(t);
	rec_window_add(t, t->area.arena, t->area.at, MAPPED);
	return rec_series_run(t, arena_there);
}

enum rec_state rec_arena_begin(struct rec_thread *t, uint64_t pc)
{
	struct rec_process *proc = t->proc;
	unsigned i = 0;
	if (!rec_turn(t))
		return REC_WAIT;
	t->area.at = arena_place(t, pc);
	while (i < REC_ARENAS && proc->window.arena[i].at)
		i++;
	if (!t->area.at || i == REC_ARENAS)
		return no_arena(t);
	uint8_t **ours = &proc->window.arena[i].ours;
	if (!*ours)
		*ours = rec_shared_map(proc, proc->window.off + i * TR_ARENA_SIZE, TR_ARENA_SIZE);
	if (!*ours)
		return no_arena(t);
	proc->window.arena[i].at = t->area.at;
	t->area.arena = i;
	return rec_limits_raise(t, arena_room);
}
