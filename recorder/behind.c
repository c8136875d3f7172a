/*
 * System calls that change code without changing mappings: through a descriptor of the program's
 * own memory, and by madvise. doc/code-cache.md says which are noticed and which are not.
 *
 * Programs make most of these calls all the time, and not about code. So madvise and calls with a
 * place in a file are made in the cache if that place, taken for an address, is one of data
 * (doc/mappings.md); in /proc/PID/mem it is an address. Calls that write at a descriptor's position
 * are left alone until a descriptor of memory has been moved to code.
 */
#include "recorder/syscalls.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whether it is memory, of whatever process: /proc/PID/mem or /proc/PID/task/TID/mem. */
static bool is_memory(struct rec_thread *t, uint64_t fd)
{
	char link[64], path[128];
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", t->tid, (int)fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = 0;
	return n > 4 && !strncmp(path, "/proc/", 6) && !strcmp(path + n - 4, "/mem");
}

/* Where the descriptor stands, or 0. */
static uint64_t position(struct rec_thread *t, uint64_t fd)
{
	char name[64];
	unsigned long long at = 0;
	snprintf(name, sizeof(name), "fdinfo/%d", (int)fd);
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->tid, name);
	if (!f)
		return 0;
	if (fscanf(f, "pos: %llu", &at) != 1)
		at = 0;
	fclose(f);
	return at;
}

static void forget(struct rec_thread *t, uint64_t start, uint64_t len)
{
	if (len && start + len > start)
		rec_code_forget(t->proc, start, start + len);
}

/* ---- descriptors of memory ------------------------------------------------------------------ */

static const uint16_t writers[] = { SYS_write, SYS_writev, SYS_sendfile, SYS_splice,
				    SYS_copy_file_range };

void rec_writer_classes(struct rec_thread *t)
{
	uint8_t *class = (uint8_t *)rec_tcb(t, T_SYSCLASS);
	for (size_t i = 0; i < sizeof(writers) / sizeof(*writers); i++)
		class[writers[i]] = t->proc->writes_memory ? SYS_SUPERVISED : SYS_HERE;
}

void rec_after_seek(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	const struct dj_mapping *m = rec_maps_find(t->proc, result);
	if (t->proc->writes_memory || !m || !(m->prot & PROT_EXEC) || !is_memory(t, in->rdi))
		return;
	t->proc->writes_memory = true;
	for (struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->proc == t->proc && o->own)
			rec_writer_classes(o);
}

void rec_after_write(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	uint64_t fd = in->rax == SYS_splice || in->rax == SYS_copy_file_range ? in->rdx : in->rdi;
	if (!is_memory(t, fd))
		return;
	uint64_t end = position(t, fd);
	forget(t, end - result, result);
}

void rec_after_pwrite(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	if (is_memory(t, in->rdi))
		forget(t, in->r10, result);
}

/* Which advice takes contents away. */
void rec_after_madvise(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	(void)result;
	switch (in->rdx) {
	case MADV_DONTNEED:
	case MADV_FREE:
	case MADV_REMOVE:
	case 24: /* MADV_DONTNEED_LOCKED */
		forget(t, in->rdi, (in->rsi + 4095) & ~4095ULL);
	}
}
