/* What the system calls that change the address space have changed. */
#include "recorder/syscalls.h"

#include <sys/mman.h>

#define PAGE_UP(x) (((x) + 4095) & ~4095ULL)

void rec_after_mmap(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	rec_maps_add(t, r, r + in->rsi, (uint32_t)in->rdx, (uint32_t)in->r10, (int)in->r8, in->r9);
}

void rec_after_munmap(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	(void)r;
	rec_maps_remove(t, in->rdi, in->rdi + in->rsi);
}

void rec_after_mprotect(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	(void)r;
	rec_maps_protect(t, in->rdi, in->rdi + in->rsi, (uint32_t)in->rdx);
}

void rec_after_mremap(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	uint64_t old = in->rdi, old_len = PAGE_UP(in->rsi), new_len = PAGE_UP(in->rdx);
	const struct dj_mapping *m = rec_maps_find(t->proc, old);
	struct dj_mapping was = m ? *m
				  : (struct dj_mapping){ .prot = PROT_READ | PROT_WRITE,
							 .flags = MAP_PRIVATE | MAP_ANONYMOUS,
							 .module = -1 };
	uint64_t offset = was.offset + (m ? old - was.start : 0);
	if (r == old && old_len == new_len)
		return;
	if (r == old && new_len < old_len) {
		rec_maps_remove(t, old + new_len, old + old_len);
		return;
	}
	if (r == old) {
		rec_maps_add_like(t, &was, old + old_len, old + new_len, offset + old_len);
		return;
	}
	if (old_len && !(in->r10 & MREMAP_DONTUNMAP))
		rec_maps_remove(t, old, old + old_len);
	rec_maps_add_like(t, &was, r, r + new_len, offset);
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
