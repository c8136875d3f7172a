/* The program's mappings, as the system calls that the supervisor performs leave them. */
#include "recorder/recorder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ULL

static void insert(struct rec_process *proc, size_t at, const struct rec_mapping *m)
{
	if (proc->n_maps == proc->cap_maps) {
		proc->cap_maps = proc->cap_maps ? 2 * proc->cap_maps : 256;
		proc->maps = realloc(proc->maps, proc->cap_maps * sizeof(*proc->maps));
		DJ_ASSERT(proc->maps, "out of memory for mappings");
	}
	memmove(proc->maps + at + 1, proc->maps + at, (proc->n_maps - at) * sizeof(*m));
	proc->maps[at] = *m;
	proc->n_maps++;
}

const struct rec_mapping *rec_maps_find(const struct rec_process *proc, uint64_t addr)
{
	size_t lo = 0, hi = proc->n_maps;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (proc->maps[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < proc->n_maps && proc->maps[lo].start <= addr ? &proc->maps[lo] : NULL;
}

/* Cut mappings so that `at` is a boundary; returns the index of the first one ending after it. */
static size_t split(struct rec_process *proc, uint64_t at)
{
	size_t i = 0;
	while (i < proc->n_maps && proc->maps[i].end <= at)
		i++;
	if (i < proc->n_maps && proc->maps[i].start < at) {
		struct rec_mapping right = proc->maps[i];
		right.offset += at - right.start;
		right.start = at;
		proc->maps[i].end = at;
		insert(proc, ++i, &right);
	}
	return i;
}

static void drop(struct rec_process *proc, uint64_t start, uint64_t end)
{
	size_t i = split(proc, start), j = split(proc, end);
	if (i == j)
		return;
	memmove(proc->maps + i, proc->maps + j, (proc->n_maps - j) * sizeof(*proc->maps));
	proc->n_maps -= j - i;
}

static void put(struct rec_process *proc, const struct rec_mapping *m)
{
	drop(proc, m->start, m->end);
	insert(proc, split(proc, m->start), m);
}

static uint64_t page_up(uint64_t x)
{
	return (x + PAGE - 1) & ~(PAGE - 1);
}

void rec_maps_record(struct rec_thread *t, const struct rec_mapping *m, const char *name)
{
	struct dj_record r = { .kind = DJ_REC_MAP,
			       .steps = t->steps,
			       .addr = m->start,
			       .length = m->end - m->start,
			       .prot = m->prot,
			       .flags = m->flags,
			       .module = m->module,
			       .offset = m->offset,
			       .name = name ? name : "" };
	rec_ring_record(t, &r);
}

void rec_maps_add(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot, uint32_t flags,
		  int fd, uint64_t offset)
{
	char link[64], path[DJ_NAME_MAX] = "";
	struct rec_mapping m = { start, page_up(end), offset, prot, flags, -1, "" };
	if (!(flags & MAP_ANONYMOUS) && fd >= 0) {
		snprintf(link, sizeof(link), "/proc/%d/fd/%d", t->proc->pid, fd);
		ssize_t n = readlink(link, path, sizeof(path) - 1);
		path[n > 0 ? n : 0] = 0;
		int ours = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (ours >= 0) {
			if (flags & MAP_PRIVATE)
				m.module = rec_module_of(t->rec, ours, path);
			close(ours);
		}
	}
	rec_code_forget(t->proc, m.start, m.end);
	put(t->proc, &m);
	rec_maps_record(t, &m, path);
}

void rec_maps_add_named(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot,
			uint32_t flags, const char *name)
{
	struct rec_mapping m = { start, page_up(end), 0, prot, flags, -1, "" };
	rec_code_forget(t->proc, m.start, m.end);
	put(t->proc, &m);
	rec_maps_record(t, &m, name);
}

void rec_maps_add_like(struct rec_thread *t, const struct rec_mapping *like, uint64_t start,
		       uint64_t end, uint64_t offset)
{
	struct rec_mapping m = { start,	      page_up(end), offset, like->prot,
				 like->flags, like->module, "" };
	rec_code_forget(t->proc, m.start, m.end);
	put(t->proc, &m);
	rec_maps_record(t, &m, m.module >= 0 ? t->rec->modules[m.module].path : "");
}

static uint32_t permissions(const char *perm)
{
	return (perm[0] == 'r' ? PROT_READ : 0u) | (perm[1] == 'w' ? PROT_WRITE : 0u) |
	       (perm[2] == 'x' ? PROT_EXEC : 0u);
}

void rec_maps_refresh(struct rec_thread *t, uint64_t addr)
{
	char line[DJ_NAME_MAX + 256];
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->proc->pid, "maps");
	while (f && fgets(line, sizeof(line), f)) {
		uint64_t start, end;
		char perm[8];
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &start, &end, perm) != 3 ||
		    addr < start || addr >= end)
			continue;
		rec_maps_add_named(t, start, end, permissions(perm), MAP_SHARED, "");
	}
	if (f)
		fclose(f);
}

void rec_maps_remove_at(struct rec_thread *t, uint64_t start)
{
	const struct rec_mapping *m = rec_maps_find(t->proc, start);
	if (m)
		rec_maps_remove(t, m->start, m->end);
}

void rec_maps_remove(struct rec_thread *t, uint64_t start, uint64_t end)
{
	end = page_up(end);
	rec_code_forget(t->proc, start, end);
	drop(t->proc, start, end);
	struct dj_record r = {
		.kind = DJ_REC_UNMAP, .steps = t->steps, .addr = start, .length = end - start
	};
	rec_ring_record(t, &r);
}

void rec_maps_protect(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot)
{
	end = page_up(end);
	size_t i = split(t->proc, start), j = split(t->proc, end);
	bool code = false;
	for (; i < j; i++) {
		code |= (t->proc->maps[i].prot | prot) & PROT_EXEC;
		t->proc->maps[i].prot = prot;
	}
	if (code)
		rec_code_forget(t->proc, start, end);
	struct dj_record r = { .kind = DJ_REC_PROTECT,
			       .steps = t->steps,
			       .addr = start,
			       .length = end - start,
			       .prot = prot };
	rec_ring_record(t, &r);
}

/* Read all mappings of a new image. */
int rec_maps_read(struct rec_process *proc)
{
	char line[DJ_NAME_MAX + 256];
	FILE *f = proc->rec->tracer->open_proc(proc->rec->tracer, proc->pid, "maps");
	if (!f)
		return -1;
	proc->n_maps = 0;
	proc->vdso = 0;
	while (fgets(line, sizeof(line), f)) {
		uint64_t start, end, off;
		char perm[8];
		int name_at = 0;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %n", &start, &end,
			   perm, &off, &name_at) < 4)
			continue;
		char *name = line + name_at;
		name[strcspn(name, "\n")] = 0;
		struct rec_mapping m = { start, end, off, permissions(perm), MAP_PRIVATE, -1, "" };
		if (perm[3] == 's')
			m.flags = MAP_SHARED;
		if (name[0] == '/') {
			char via[64 + DJ_NAME_MAX];
			snprintf(via, sizeof(via), "/proc/%d/root%s", proc->pid, name);
			int fd = open(via, O_RDONLY | O_CLOEXEC);
			if (fd >= 0) {
				m.module = rec_module_of(proc->rec, fd, name);
				close(fd);
			}
		} else {
			m.flags |= MAP_ANONYMOUS;
			snprintf(m.label, sizeof(m.label), "%s", name);
		}
		if (!strcmp(name, "[vdso]")) {
			proc->vdso = start;
			proc->vdso_end = end;
		}
		if (!strcmp(name, "[vsyscall]"))
			m.prot = 0;
		insert(proc, proc->n_maps, &m);
	}
	fclose(f);
	return 0;
}

void rec_maps_free(struct rec_process *proc)
{
	free(proc->maps);
}
