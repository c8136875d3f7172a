/*
 * Processes that the program starts and that are recorded: all of them, unless --no-follow says
 * otherwise (child.c has what those are that are not).
 *
 * A forked child has an address space of its own, a copy of its parent's, deja's memory included;
 * and what is shared there is shared with the parent. So before its first instruction it loses all
 * of that, and gets an area of its own like a new image, with an empty shadow: what it reads is
 * recorded when it reads it. What the parent's struct knows of the address space holds for the copy
 * as well: mappings, the vdso, limits, filters, what SIGTRAP does. Its history begins with all
 * registers and all mappings, at step 0, with the number of the latest ordered event that the
 * parent had passed.
 *
 * A child that executes in its parent's memory until its exec is another matter: vfork.c.
 */
#include "recorder/area.h"

#include <string.h>

static void copy_mappings(struct rec_process *to, const struct rec_process *from)
{
	for (const struct dj_mapping *m = dj_mappings_after(&from->maps, 0, 0); m;
	     m = dj_mappings_after(&from->maps, m->end, 0))
		dj_mappings_put(&to->maps, m);
}

int rec_process_stream(struct rec_process *proc, const struct rec_process *parent)
{
	struct rec_recording *rec = proc->rec;
	proc->facts = dj_writer_process(rec->writer, proc->pid, parent->facts, rec->err);
	if (!proc->facts)
		rec->cut = true;
	return proc->facts ? (int)dj_stream_number(proc->facts) : -1;
}

bool rec_thread_stream(struct rec_thread *c)
{
	struct rec_recording *rec = c->rec;
	char name[64];
	rec_thread_name(c, name);
	c->stream = dj_writer_thread(rec->writer, c->proc->facts, c->tid, name, rec->err);
	if (!c->stream || dj_stream_flush(c->stream, 0, c->seq, rec->err))
		rec->cut = true;
	return !rec->cut;
}

/* ---- fork -------------------------------------------------------------------------------- */

int rec_follow_fork(struct rec_thread *t, struct rec_thread *c)
{
	const struct rec_process *from = t->proc;
	struct rec_process *proc = c->proc;
	proc->child = false;
	proc->brk = from->brk;
	proc->vdso = from->vdso;
	proc->vdso_end = from->vdso_end;
	rec_trap_copied(proc, t);
	proc->trap.faults = from->trap.faults;
	proc->writes_memory = from->writes_memory;
	copy_mappings(proc, from);
	/* the copy has the pages of the order where its parent has them */
	proc->order_mapped = from->order_mapped;
	proc->parent = t->proc;
	proc->area_at = from->area_at;
	proc->heir.fixed = from->heir.fixed;
	c->seq = proc->number = rec_order_now(t);
	c->regs.eflags &= ~TRAP_FLAG;
	c->trap_flag = t->trap_flag;
	c->trap.blocked = t->trap.blocked;
	c->quiet = c->child.trap = false;
	int number = rec_process_stream(proc, t->group);
	return number >= 0 && rec_thread_stream(c) ? number : -1;
}

enum rec_state rec_follow_begin(struct rec_thread *c)
{
	c->s = 0;
	c->proc->hand = c;
	c->area.forked = true;
	return rec_area_begin(c);
}

enum rec_state rec_follow_ready(struct rec_thread *c)
{
	struct dj_record r = { .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
	rec_ring_start(c);
	rec_lagged_set(c, 0);
	*rec_tcb(c, T_SEQ) = c->seq;
	*rec_tcb(c, T_FSBASE) = c->regs.fs_base;
	rec_set_gs(c, c->regs.gs_base);
	*rec_tcb(c, T_SELF) = c->s;
	rec_syscalls_init(c);
	rec_full_regs(c, &r.regs);
	rec_ring_record(c, &r);
	rec_ring_time(c, 0);
	rec_image_maps(c);
	rec_copy(c);
	rec_digest_start(c);
	return rec_image_translator(c);
}

/* ---- the end ------------------------------------------------------------------------------- */

void rec_follow_ended(struct rec_process *proc)
{
	struct dj_error err = { 0 };
	for (const struct rec_thread *t = proc->rec->threads; t; t = t->next)
		if (t->proc == proc || t->group == proc)
			return;
	rec_count_translator(proc);
	rec_heir_leave(proc);
	if (proc->facts && dj_stream_close(proc->facts, &err))
		rec_cut(proc->rec, "%s", err.text);
	rec_process_free(proc);
}
