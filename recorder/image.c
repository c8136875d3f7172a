/*
 * A new process image: right after exec, before its first instruction, the supervisor takes stock
 * of the mappings, saves the memory that no module file has, and puts the area in place.
 */
#include "recorder/supervisor.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the trace must keep because no module file has it: whatever is writable (file-backed data
 * too: the kernel has already cleared the tail of the last page), and the vdso. */
static int snapshot(struct tracee *t)
{
	enum { CHUNK = 1 << 20 };
	uint8_t *buf = malloc(CHUNK);
	DJ_ASSERT(buf, "out of memory for the snapshot");
	int rc = 0;
	for (size_t i = 0; i < t->proc->n_maps && !rc; i++) {
		const struct mapping *m = &t->proc->maps[i];
		if (!(m->prot & PROT_READ) || (m->module >= 0 && !(m->prot & PROT_WRITE)))
			continue;
		if (m->flags & MAP_SHARED)
			continue;
		for (uint64_t at = m->start; at < m->end && !rc;) {
			uint64_t n = m->end - at < CHUNK ? m->end - at : CHUNK;
			size_t got = tracee_read(t->proc, at, buf, n);
			if (!got)
				break;
			struct dj_error err = { 0 };
			rc = dj_stream_snapshot(t->proc->facts, t->proc->image, at, buf, got, &err);
			if (rc)
				sup_cut(t->sup, "%s", err.text);
			at += got;
		}
	}
	free(buf);
	return rc;
}

/* Find `syscall` in the vdso, so that calls can be made without touching the program's code. */
static void find_vdso_syscall(struct tracee *t)
{
	struct process *proc = t->proc;
	proc->vdso_syscall = 0;
	if (!proc->vdso)
		return;
	static uint8_t buf[32768];
	size_t n = proc->vdso_end - proc->vdso;
	n = tracee_read(proc, proc->vdso, buf, n < sizeof(buf) ? n : sizeof(buf));
	for (size_t i = 0; i + 2 <= n; i++)
		if (buf[i] == 0x0f && buf[i + 1] == 0x05) {
			proc->vdso_syscall = proc->vdso + i;
			return;
		}
}

/* Where the area is put if nothing is there yet. Sanitizers, language runtimes and Wine map memory
 * at fixed places; doc/recorder.md says which, and why this is none of them. */
#define AREA_HINT 0x7e8100000000ULL

/* The area: control region and the shadow's first page (shared), the rest of the shadow (private),
 * and the first page again, in one piece. The path of the shared file is put below the stack
 * pointer, out of the red zone, and taken back. */
static int make_area(struct tracee *t)
{
	struct process *proc = t->proc;
	uint64_t total = AREA_CONTROL + AREA_SHADOW;
	char link[40], saved[40];
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", getpid(), proc->memfd);
	uint64_t text = (t->regs.rsp - 1024) & ~15ULL;
	if (tracee_read(proc, text, saved, sizeof(saved)) != sizeof(saved) ||
	    !tracee_write(proc, text, link, sizeof(link)))
		return dj_fail(t->sup->err, 1, "cannot write to the program's stack");
	int64_t fd = tracee_syscall(t, SYS_open, text, O_RDWR | O_CLOEXEC, 0, 0, 0, 0);
	tracee_write(proc, text, saved, sizeof(saved));
	if (fd < 0)
		return dj_fail(t->sup->err, 1, "the program cannot open %s: %s (is /proc mounted?)",
			       link, strerror((int)-fd));
	int64_t at = tracee_syscall(t, SYS_mmap, AREA_HINT, total, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, (uint64_t)-1, 0);
	if (at < 0 && at > -4096)
		return dj_fail(t->sup->err, 1,
			       "cannot map %llu MiB into the program: %s (memory limit?)",
			       (unsigned long long)(total >> 20), strerror((int)-at));
	int64_t got = tracee_syscall(t, SYS_mmap, (uint64_t)at, AREA_SHARED, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_FIXED, (uint64_t)fd, proc->arena_off);
	t->s = (uint64_t)at + AREA_CONTROL;
	if (got == at) {
		got = tracee_syscall(t, SYS_mmap, t->s + (1UL << 32), AREA_PAGE,
				     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (uint64_t)fd,
				     proc->arena_off + AREA_CONTROL);
		if (got > 0)
			got = at;
	}
	tracee_syscall(t, SYS_close, (uint64_t)fd, 0, 0, 0, 0, 0);
	if (got != at)
		return dj_fail(t->sup->err, 1, "cannot map the control block into the program: %s",
			       strerror((int)-got));
	tracee_syscall(t, SYS_madvise, t->s, AREA_SHADOW, MADV_NOHUGEPAGE, 0, 0, 0);
	return 0;
}

static int check_image(struct tracee *t)
{
	char path[64];
	unsigned char id[EI_NIDENT + 4] = { 0 };
	snprintf(path, sizeof(path), "/proc/%d/exe", t->proc->pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, id, sizeof(id)) : 0;
	if (fd >= 0)
		close(fd);
	if (n == (ssize_t)sizeof(id) && id[EI_CLASS] != ELFCLASS64)
		return dj_fail(t->sup->err, 1,
			       "%s is a 32-bit program; only x86-64 programs can be recorded",
			       t->sup->argv[0]);
	return 0;
}

int image_begin(struct tracee *t, bool exec)
{
	struct process *proc = t->proc;
	char path[64];
	proc->hand = t;
	if (proc->mem >= 0)
		close(proc->mem);
	snprintf(path, sizeof(path), "/proc/%d/mem", proc->pid);
	proc->mem = open(path, O_RDWR | O_CLOEXEC);
	if (proc->mem < 0)
		return dj_fail_errno(t->sup->err, 1, "cannot open %s", path);
	if (check_image(t))
		return -1;
	/* The event comes from inside execve, whose way out still writes its result to rax: leave
	 * it. */
	int status;
	if (ptrace(PTRACE_SYSCALL, t->tid, NULL, NULL) || tracee_wait(t, &status) ||
	    !WIFSTOPPED(status))
		return dj_fail(t->sup->err, 1, "the program ended before its first instruction");
	if (tracee_getregs(t, &t->regs))
		return dj_fail_errno(t->sup->err, 1, "cannot read the program's registers");
	t->regs.orig_rax = (unsigned long long)-1;

	/* everything of an earlier image is over */
	if (exec)
		ring_hand_over(t);
	tr_free(proc->tr);
	proc->tr = NULL;
	uint8_t *old = t->control;
	proc->arena_off = (proc->arena_off + 0xfffff) & ~0xfffffULL;
	if (ftruncate(proc->memfd, (off_t)(proc->arena_off + AREA_SHARED)))
		return dj_fail_errno(t->sup->err, 1, "cannot make the shared area");
	t->control = mmap(NULL, AREA_CONTROL, PROT_READ | PROT_WRITE, MAP_SHARED, proc->memfd,
			  (off_t)proc->arena_off);
	if (t->control == MAP_FAILED)
		return dj_fail_errno(t->sup->err, 1, "cannot map the shared area");

	/* the syscall instruction first: mappings are read when nothing of ours is there yet */
	t->s = 0;
	proc->brk_start = proc->brk = 0;
	struct ring *ring = t->ring;
	t->ring = NULL;
	proc->n_maps = 0;
	if (maps_read(t, false))
		return dj_fail_errno(t->sup->err, 1, "cannot read /proc/%d/maps", proc->pid);
	t->ring = ring;
	find_vdso_syscall(t);
	struct dj_regs first;
	tracee_full_regs(t, &first);
	if (make_area(t))
		return -1;
	proc->arena_off += (AREA_SHARED + 0xfffffULL) & ~0xfffffULL;
	ring_start(t);
	if (old)
		munmap(old, AREA_CONTROL);
	*tcb(t, T_STEPS) = t->steps;
	*tcb(t, T_FSBASE) = t->regs.fs_base;
	*tcb(t, T_GSBASE) = 0;
	*tcb(t, T_SELF) = t->s;
	syscalls_init(t);

	if (exec) {
		struct dj_record r = { .kind = DJ_REC_EXEC,
				       .steps = t->steps,
				       .image = ++proc->image,
				       .name = t->sup->argv[0] };
		char link[64], name[DJ_NAME_MAX];
		snprintf(link, sizeof(link), "/proc/%d/exe", proc->pid);
		ssize_t n = readlink(link, name, sizeof(name) - 1);
		name[n > 0 ? n : 0] = 0;
		r.name = name;
		ring_record(t, &r);
	}
	struct dj_record r = {
		.kind = DJ_REC_REGS, .steps = t->steps, .mask = DJ_REG_ALL, .regs = first
	};
	r.regs.gs_base = 0;
	ring_record(t, &r);
	/* the trace gets the mappings the program has, without ours */
	for (size_t i = 0; i < proc->n_maps; i++) {
		const struct mapping *m = &proc->maps[i];
		struct dj_record mr = { .kind = DJ_REC_MAP,
					.steps = t->steps,
					.addr = m->start,
					.length = m->end - m->start,
					.prot = m->prot,
					.flags = m->flags,
					.module = m->module,
					.offset = m->offset };
		mr.name = m->module >= 0 ? t->sup->modules[m->module].path : m->label;
		ring_record(t, &mr);
	}
	if (snapshot(t))
		return -1;

	/* by enum dj_predict */
	static const unsigned policy[] = { TR_POLICY_SHADOW, TR_POLICY_LAST, TR_POLICY_NONE };
	struct tr_ops ops = { proc, maps_read_code, maps_translated };
	struct tr_config config = { .tables = t->control,
				    .policy = tr_policies[policy[t->sup->opt.predict]] };
	maps_forget_code(proc, 0, UINT64_MAX);
	proc->tr = tr_new(&ops, &config);
	return 0;
}
