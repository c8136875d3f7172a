/*
 * A new process image: right after exec, before its first instruction, the supervisor takes stock
 * of the mappings, puts the area in place, and saves the memory that no module file has.
 */
#include "format/cpu.h"
#include "recorder/ahead.h"
#include "recorder/area.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FEW 16u /* processes */

#define AT_ONCE ((uint64_t)1 << 20) /* bytes of a mapping, */
#define SO_MUCH ((size_t)8 << 20)   /* and of all, before they are written */

static struct dj_snapshot *new_snapshot(const struct rec_thread *t)
{
	struct dj_snapshot *s = dj_snapshot_new(t->proc->image);
	DJ_ASSERT(s, "out of memory for the snapshot");
	return s;
}

/* What the trace must keep because no module file has it: whatever is writable (file-backed data
 * too: the kernel has already cleared the tail of the last page), and the vdso. */
static void take_snapshot(struct rec_thread *t)
{
	struct dj_stream *facts = t->proc->facts;
	struct dj_snapshot *s = new_snapshot(t);
	const struct dj_mappings *maps = &t->proc->maps;
	for (const struct dj_mapping *m = dj_mappings_after(maps, 0, 0); m;
	     m = dj_mappings_after(maps, m->end, 0)) {
		if (!(m->prot & PROT_READ) || (m->module >= 0 && !(m->prot & PROT_WRITE)) ||
		    (m->flags & MAP_SHARED))
			continue;
		size_t got;
		for (uint64_t at = m->start; at < m->end; at += got) {
			uint64_t n = m->end - at < AT_ONCE ? m->end - at : AT_ONCE;
			uint8_t *room = dj_snapshot_room(s, n);
			DJ_ASSERT(room, "out of memory for the snapshot");
			got = rec_anonymous(m) ? rec_read_anonymous(t, at, room, n)
					       : rec_read(t->proc, at, room, n);
			if (!got)
				break;
			int rc = dj_snapshot_add(s, at, got);
			DJ_ASSERT(!rc, "out of memory for the snapshot");
			if (dj_snapshot_size(s) < SO_MUCH)
				continue;
			dj_stream_snapshot_later(facts, s);
			s = new_snapshot(t);
		}
	}
	dj_stream_snapshot_later(facts, s);
}

/* Find `syscall` in the vdso, so that calls can be made without touching the program's code. */
static void find_vdso_syscall(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	proc->vdso_syscall = 0;
	if (!proc->vdso)
		return;
	static uint8_t buf[32768];
	size_t n = proc->vdso_end - proc->vdso;
	n = rec_read(proc, proc->vdso, buf, n < sizeof(buf) ? n : sizeof(buf));
	for (size_t i = 0; i + 2 <= n; i++)
		if (buf[i] == 0x0f && buf[i + 1] == 0x05) {
			proc->vdso_syscall = proc->vdso + i;
			return;
		}
}

const char *rec_program_name(struct rec_thread *t)
{
	if (!t->area.exec && !t->area.forked)
		return t->rec->argv[0];
	return rec_program_path(t);
}

const char *rec_program_path(struct rec_thread *t)
{
	static char name[DJ_NAME_MAX];
	char link[64];
	snprintf(link, sizeof(link), "/proc/%d/exe", t->proc->pid);
	ssize_t n = readlink(link, name, sizeof(name) - 1);
	name[n > 0 ? n : 0] = 0;
	return n > 0 ? name : t->rec->argv[0];
}

enum rec_state rec_no_image(struct rec_thread *t, const char *fmt, ...)
{
	char why[sizeof(t->rec->err->text)];
	struct user_regs_struct r;
	va_list ap;
	if (rec_get_regs(t, &r)) /* that is why: it has been killed */
		return REC_KILLED;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (t->area.exec || t->area.forked)
		return rec_let_go(t, "%s", why);
	rec_fatal(t->rec, "%s", why);
	return REC_KILLED;
}

static bool is_32_bit(struct rec_thread *t)
{
	char path[64];
	unsigned char id[EI_NIDENT + 4] = { 0 };
	snprintf(path, sizeof(path), "/proc/%d/exe", t->proc->pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, id, sizeof(id)) : 0;
	if (fd >= 0)
		close(fd);
	return n == (ssize_t)sizeof(id) && id[EI_CLASS] != ELFCLASS64;
}

enum rec_state rec_image_begin(struct rec_thread *t, bool exec)
{
	struct rec_process *proc = t->proc;
	struct rec_tracer *tracer = t->rec->tracer;
	proc->hand = t;
	t->area.exec = exec;
	t->area.forked = t->area.out = false;
	rec_untouched_end(proc);
	if (proc->mem >= 0)
		tracer->close_memory(tracer, proc->mem);
	proc->mem = tracer->open_memory(tracer, proc->pid);
	if (proc->mem < 0 && (errno == EACCES || errno == EPERM))
		return rec_no_image(
			t, "%s may be executed but not read, so its memory is closed to deja",
			rec_program_name(t));
	if (proc->mem < 0)
		return rec_no_image(t, "cannot open /proc/%d/mem: %s", proc->pid, strerror(errno));
	if (is_32_bit(t))
		return rec_no_image(t,
				    "%s is a 32-bit program; only x86-64 programs can be recorded",
				    rec_program_name(t));
	/* The event comes from inside execve, whose way out still writes its result to rax: leave
	 * it. */
	rec_run(t, REC_TO_SYSCALL, 0);
	return REC_EXEC_OUT;
}

enum rec_state rec_on_exec_out(struct rec_thread *t, const struct rec_stop *stop)
{
	struct rec_process *proc = t->proc;
	(void)stop;
	if (rec_get_regs(t, &t->regs))
		return REC_KILLED;
	t->regs.orig_rax = (unsigned long long)-1;
	t->area.out = true;
	t->minds = false;
	rec_ring_leave(t); /* nobody uses the old image's memory any more */
	rec_count_translator(proc);
	rec_heir_leave(proc);
	tr_free(proc->tr);
	proc->tr = NULL;
	rec_ahead_forget(proc);
	rec_window_free(proc);
	rec_spares_free(proc);
	t->own_part = -1;
	proc->area_at = 0;
	proc->number = rec_order_latest(t->rec);
	proc->order_mapped = proc->not_forked = false;
	if (proc->tables) /* which have not counted while those of the recording did */
		rec_order_tables(proc, proc->tables);
	/* mappings are read while nothing of ours is there yet */
	t->s = 0;
	t->keyframe.off = t->idle.refused = t->idle.self = false; /* the memory was another one */
	proc->brk = 0;
	proc->writes_memory = false;
	if (rec_maps_read(proc))
		return rec_no_image(t, "cannot read /proc/%d/maps: %s", proc->pid, strerror(errno));
	find_vdso_syscall(t);
	rec_full_regs(t, &t->area.first);
	proc->heir.fixed = t->layout.fixed;
	return rec_area_begin(t);
}

/* The trace gets the mappings the program has, without ours. */
void rec_image_maps(struct rec_thread *t)
{
	const struct dj_mappings *maps = &t->proc->maps;
	for (const struct dj_mapping *m = dj_mappings_after(maps, 0, 0); m;
	     m = dj_mappings_after(maps, m->end, 0))
		rec_maps_record(t, m, m->module >= 0 ? t->rec->modules[m->module].path : m->name);
}

/* The records that a new image begins with. */
static void record_image(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	if (t->area.exec) {
		struct dj_record r = { .kind = DJ_REC_EXEC,
				       .steps = t->steps,
				       .image = ++proc->image };
		r.name = rec_program_name(t);
		rec_ring_record(t, &r);
		rec_command(t);
		rec_ring_time(t, t->steps);
	}
	struct dj_record r = {
		.kind = DJ_REC_REGS, .steps = t->steps, .mask = DJ_REG_ALL, .regs = t->area.first
	};
	r.regs.gs_base = 0;
	rec_ring_record(t, &r);
	rec_image_maps(t);
}

/* Whether there are so few programs that each may have tables in large pages. A forked child mostly
 * executes little. */
static bool may_be_large(const struct rec_thread *t)
{
	unsigned n = 0;
	for (const struct rec_process *p = t->rec->processes; p && n < FEW; p = p->next)
		n++;
	return n < FEW && !t->area.forked;
}

struct tr_ops rec_translator_ops(struct rec_process *proc)
{
	return (struct tr_ops){ proc, rec_code_read, rec_code_translated, rec_code_kept,
				rec_code_known };
}

struct tr_config rec_translator_config(const struct rec_thread *t, uint8_t *tables)
{
	/* by enum dj_predict */
	static const unsigned policy[] = { TR_POLICY_SHADOW, TR_POLICY_LAST, TR_POLICY_NONE };
	const struct rec_options *opt = &t->rec->opt;
	struct tr_config config = { .bales = true,
				    .large = may_be_large(t),
				    .tables = tables,
				    .policy = tr_policies[policy[opt->predict]] };
	config.policy.copy_rsp = dj_cpu_host() != DJ_CPU_INTEL;
	config.policy.copy_pops = dj_cpu_host() == DJ_CPU_AMD;
	config.policy.number = opt->memory_model >= DJ_ORDER_FENCE;
	config.policy.exact_flags = opt->exact_flags;
	config.policy.fault_flags = t->proc->trap.faults && !opt->exact_flags;
	config.policy.look = opt->memory_model >= DJ_ORDER_ACQREL;
	config.policy.lock = opt->memory_model >= DJ_ORDER_LOAD;
	return config;
}

enum rec_state rec_image_translator(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	const struct tr_ops ops = rec_translator_ops(proc);
	if (!proc->trap.faults)
		proc->trap.faults = proc->trap.expected = rec_ahead_faults(t);
	rec_code_forget(proc, 0, UINT64_MAX);
	proc->no_arena = false;
	t->in_hand = true;
	rec_ask_image(t, proc->heir.of != NULL);
	if (proc->heir.of)
		return rec_heir_take(t, &ops);
	const struct tr_config config = rec_translator_config(t, proc->tables);
	proc->tr = tr_new(&ops, &config);
	return REC_IN_HAND;
}

enum rec_state rec_image_ready(struct rec_thread *t)
{
	if (t->area.forked)
		return rec_follow_ready(t);
	rec_ring_start(t);
	rec_lagged_set(t, t->steps);
	*rec_tcb(t, T_FSBASE) = t->regs.fs_base;
	rec_set_gs(t, 0);
	*rec_tcb(t, T_SELF) = t->s;
	rec_syscalls_init(t);
	record_image(t);
	rec_digest_start(t);
	take_snapshot(t);
	rec_clock(&t->rec->opt);
	return rec_image_translator(t);
}
