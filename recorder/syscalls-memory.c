/* What the system calls that change the address space have changed. */
#include "recorder/syscalls.h"

#include <errno.h>
#include <sys/mman.h>

#define PAGE_UP(x) (((x) + 4095) & ~4095ULL)

static bool failed(uint64_t r)
{
	return (int64_t)r < 0 && (int64_t)r > -4096;
}

void rec_after_mmap(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	if (failed(r)) { /* what was there may be gone all the same */
		if (in->r10 & MAP_FIXED)
			rec_maps_lost(t, in->rdi, in->rdi + in->rsi);
		return;
	}
	rec_maps_add(t, r, r + in->rsi, (uint32_t)in->rdx, (uint32_t)in->r10, (int)in->r8, in->r9);
}

void rec_after_munmap(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	(void)r;
	rec_maps_remove(t, in->rdi, in->rdi + in->rsi);
}

/* The first address in [start, end) where nothing is mapped, or end. */
static uint64_t first_hole(const struct rec_process *proc, uint64_t start, uint64_t end)
{
	const struct dj_mapping *m;
	while (start < end && (m = rec_maps_find(proc, start)))
		start = m->end;
	return start < end ? start : end;
}

/* Before a hole the kernel changes what there is, and then fails. */
void rec_after_mprotect(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	uint64_t end = PAGE_UP(in->rdi + in->rsi), hole;
	if (failed(r)) {
		if ((int64_t)r != -ENOMEM)
			return;
		hole = first_hole(t->proc, in->rdi, end);
		if (hole == end || hole == in->rdi)
			return;
		end = hole;
	}
	rec_maps_protect(t, in->rdi, end, (uint32_t)in->rdx);
}

/* Memory that nobody knows of: as the program would make it. */
static const struct dj_mapping unknown = { .prot = PROT_READ | PROT_WRITE,
					   .flags = MAP_PRIVATE | MAP_ANONYMOUS,
					   .module = -1,
					   .name = "" };

/* From one place to another. Newer kernels move several mappings, and what is between them, in one
 * call (Linux 6.17); the last one may become longer. */
static void moved(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	uint64_t old = in->rdi, old_len = PAGE_UP(in->rsi), new_len = PAGE_UP(in->rdx), at = old;
	struct dj_mappings before = { NULL };
	dj_mappings_copy(&before, &t->proc->maps);
	if (old_len && !(in->r10 & MREMAP_DONTUNMAP))
		rec_maps_remove(t, old, old + old_len);
	do {
		const struct dj_mapping *m = dj_mappings_after(&before, at, 0);
		if (!m || (m->start > at && m->start >= old + old_len)) {
			m = &unknown;
			if (at != old)
				break;
		} else if (m->start > at) {
			at = m->start;
			if (at >= old + new_len)
				break;
		}
		uint64_t to = m->end;
		if (m == &unknown || to >= old + old_len || to > old + new_len)
			to = old + new_len;
		rec_maps_add_like(t, m, r + (at - old), r + (to - old),
				  m == &unknown ? 0 : m->offset + (at - m->start));
		at = to;
	} while (at < old + old_len && at < old + new_len);
	dj_mappings_clear(&before);
}

void rec_after_mremap(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	uint64_t old = in->rdi, old_len = PAGE_UP(in->rsi), new_len = PAGE_UP(in->rdx);
	const struct dj_mapping *m = rec_maps_find(t->proc, old);
	struct dj_mapping was = m ? *m : unknown;
	uint64_t offset = was.offset + (m ? old - was.start : 0);
	if (failed(r)) {
		if (in->r10 & MREMAP_FIXED)
			rec_maps_lost(t, in->r8, in->r8 + new_len);
		return;
	}
	if (r != old)
		moved(t, in, r);
	else if (new_len < old_len)
		rec_maps_remove(t, old + new_len, old + old_len);
	else if (new_len > old_len)
		rec_maps_add_like(t, &was, old + old_len, old + new_len, offset + old_len);
}

void rec_after_brk(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	struct rec_process *proc = t->proc;
	uint64_t now = PAGE_UP(r);
	(void)in;
	if (!proc->brk)
		proc->brk = now;
	else if (now > proc->brk)
		rec_maps_add_named(t, proc->brk, now, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, "[heap]");
	else if (now < proc->brk)
		rec_maps_remove(t, now, proc->brk);
	proc->brk = now;
}

/* The size is the kernel's to know. */
void rec_after_shmat(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	(void)in;
	rec_maps_refresh(t, r);
}

void rec_after_shmdt(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	(void)r;
	rec_maps_remove_at(t, in->rdi);
}
