/* The program's mappings, as the system calls that the supervisor performs leave them. */
#include "recorder/recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PAGE 4096ULL

const struct dj_mapping *rec_maps_find(const struct rec_process *proc, uint64_t addr)
{
	return dj_mappings_find(&proc->maps, addr);
}

bool rec_read_as_it(struct rec_process *proc, uint64_t addr, void *buf, size_t len)
{
	const struct dj_mapping *first = rec_maps_find(proc, addr),
				*last = rec_maps_find(proc, addr + len - 1);
	return (!first || first->prot & PROT_READ) && (!last || last->prot & PROT_READ) &&
	       rec_read(proc, addr, buf, len) == len;
}

/* The kernel's name for what is no file, kept: there are few of them. */
static const char *label(struct rec_recording *rec, const char *name)
{
	if (!*name)
		return "";
	for (size_t i = 0; i < rec->n_labels; i++)
		if (!strcmp(rec->labels[i], name))
			return rec->labels[i];
	rec->labels = realloc(rec->labels, (rec->n_labels + 1) * sizeof(*rec->labels));
	DJ_ASSERT(rec->labels, "out of memory for names of mappings");
	char *text = strdup(name);
	DJ_ASSERT(text, "out of memory for names of mappings");
	return rec->labels[rec->n_labels++] = text;
}

void rec_labels_free(struct rec_recording *rec)
{
	for (size_t i = 0; i < rec->n_labels; i++)
		free(rec->labels[i]);
	free(rec->labels);
}

static uint64_t page_up(uint64_t x)
{
	return (x + PAGE - 1) & ~(PAGE - 1);
}

/* Something else comes to [start, end), or nothing: what was translated from there is no more. */
static void replaced(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot)
{
	const struct dj_mapping *code = dj_mappings_after(&t->proc->maps, start, PROT_EXEC);
	if (prot & PROT_EXEC)
		rec_data_not(t->proc, start, end);
	if ((prot & PROT_EXEC) || (code && code->start < end))
		rec_code_forget(t->proc, start, end);
	else
		rec_code_replaced(t->proc, start, end);
}

void rec_maps_record(struct rec_thread *t, const struct dj_mapping *m, const char *name)
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

int32_t rec_maps_file(struct rec_thread *t, int fd, uint32_t flags, char *path)
{
	char link[64];
	*path = 0;
	if ((flags & MAP_ANONYMOUS) || fd < 0)
		return -1;
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", t->tid, fd);
	ssize_t n = readlink(link, path, DJ_NAME_MAX - 1);
	path[n > 0 ? n : 0] = 0;
	return flags & MAP_PRIVATE ? rec_module_at(t->rec, link, path) : -1;
}

void rec_maps_add_file(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot,
		       uint32_t flags, uint64_t offset, int32_t module, const char *path)
{
	struct dj_mapping m = {
		.start = start,
		.end = page_up(end),
		.offset = offset,
		.prot = prot,
		.flags = flags,
		.module = module,
		/* who shares descriptors may have put another file in its place meanwhile */
		.sure = module >= 0 && t->proc->n_threads == 1 && !t->rec->files,
		.name = "",
	};
	replaced(t, m.start, m.end, m.prot);
	dj_mappings_put(&t->proc->maps, &m);
	if (m.prot & PROT_EXEC)
		rec_heir_mapped(t->proc, &m);
	rec_maps_record(t, &m, path);
}

void rec_maps_add(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot, uint32_t flags,
		  int fd, uint64_t offset)
{
	char path[DJ_NAME_MAX];
	int32_t module = rec_maps_file(t, fd, flags, path);
	rec_maps_add_file(t, start, end, prot, flags, offset, module, path);
}

void rec_maps_add_named(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot,
			uint32_t flags, const char *name)
{
	struct dj_mapping m = { .start = start,
				.end = page_up(end),
				.prot = prot,
				.flags = flags,
				.module = -1,
				.name = label(t->rec, name) };
	replaced(t, m.start, m.end, m.prot);
	dj_mappings_put(&t->proc->maps, &m);
	rec_maps_record(t, &m, name);
}

void rec_maps_add_like(struct rec_thread *t, const struct dj_mapping *like, uint64_t start,
		       uint64_t end, uint64_t offset)
{
	struct dj_mapping m = { .start = start,
				.end = page_up(end),
				.offset = offset,
				.prot = like->prot,
				.flags = like->flags,
				.module = like->module,
				.sure = like->sure,
				.name = "" };
	replaced(t, m.start, m.end, m.prot);
	dj_mappings_put(&t->proc->maps, &m);
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
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->tid, "maps");
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

void rec_maps_lost(struct rec_thread *t, uint64_t start, uint64_t end)
{
	char line[DJ_NAME_MAX + 256];
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->tid, "maps");
	uint64_t from, to = 0;
	const struct dj_mapping *m;
	while (f && start < end) {
		from = end;
		if (fgets(line, sizeof(line), f) &&
		    sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) == 2 && to <= start)
			continue;
		if (from > end)
			from = end;
		m = dj_mappings_after(&t->proc->maps, start, 0);
		if (m && from > start && m->start < from)
			rec_maps_remove(t, start, from);
		start = from < end ? to : end;
	}
	if (f)
		fclose(f);
}

void rec_maps_remove_at(struct rec_thread *t, uint64_t start)
{
	const struct dj_mapping *m = rec_maps_find(t->proc, start);
	if (m)
		rec_maps_remove(t, m->start, m->end);
}

void rec_maps_remove(struct rec_thread *t, uint64_t start, uint64_t end)
{
	end = page_up(end);
	replaced(t, start, end, 0);
	dj_mappings_remove(&t->proc->maps, start, end);
	struct dj_record r = {
		.kind = DJ_REC_UNMAP, .steps = t->steps, .addr = start, .length = end - start
	};
	rec_ring_record(t, &r);
}

void rec_maps_protect(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot)
{
	end = page_up(end);
	const struct dj_mapping *code = dj_mappings_after(&t->proc->maps, start, PROT_EXEC);
	bool matters = (prot & PROT_EXEC) || (code && code->start < end);
	dj_mappings_protect(&t->proc->maps, start, end, prot);
	if (prot & PROT_EXEC)
		rec_data_not(t->proc, start, end);
	if (matters)
		rec_code_protected(t->proc, start, end, prot);
	struct dj_record r = { .kind = DJ_REC_PROTECT,
			       .steps = t->steps,
			       .addr = start,
			       .length = end - start,
			       .prot = prot };
	rec_ring_record(t, &r);
}

/* The module that the process knows by this name, or -1. */
static int32_t module_named(const struct rec_process *proc, const char *name)
{
	char via[64 + DJ_NAME_MAX];
	snprintf(via, sizeof(via), "/proc/%d/root%s", proc->pid, name);
	return rec_module_at(proc->rec, via, name);
}

/* A mapping as the kernel lists it (proc(5)). */
struct listed {
	uint64_t start, end, offset, inode;
	unsigned major, minor;
	char perm[8], *name; /* the name is in the line */
};

static bool parse(char *line, struct listed *l)
{
	int name_at = 0;
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %n", &l->start,
		   &l->end, l->perm, &l->offset, &l->major, &l->minor, &l->inode, &name_at) < 7)
		return false;
	l->name = line + name_at;
	l->name[strcspn(l->name, "\n")] = 0;
	return true;
}

/* Whether what is mapped is the module and not another file that had its name a moment ago, or has
 * it in another root directory. What some file systems say of a file (btrfs, overlayfs) is of a
 * device that has no number, and differs from what the kernel lists. */
static bool is_that(const struct rec_process *proc, int32_t module, const struct listed *l)
{
	const struct rec_module *m = &proc->rec->modules[module];
	return m->ino == l->inode && (m->dev == makedev(l->major, l->minor) || !major(m->dev));
}

/* Read all mappings of a new image: four of each file, mostly, one after the other. */
int rec_maps_read(struct rec_process *proc)
{
	char line[DJ_NAME_MAX + 256], last[sizeof(line)] = "";
	int32_t module = -1;
	struct listed l;
	FILE *f = proc->rec->tracer->open_proc(proc->rec->tracer, proc->pid, "maps");
	if (!f)
		return -1;
	dj_mappings_clear(&proc->maps);
	proc->vdso = 0;
	while (fgets(line, sizeof(line), f)) {
		if (!parse(line, &l))
			continue;
		struct dj_mapping m = { .start = l.start,
					.end = l.end,
					.offset = l.offset,
					.prot = permissions(l.perm),
					.flags = MAP_PRIVATE,
					.module = -1,
					.name = "" };
		if (l.perm[3] == 's')
			m.flags = MAP_SHARED;
		if (l.name[0] == '/') {
			if (strcmp(l.name, last) != 0)
				module = module_named(proc, strcpy(last, l.name));
			m.module = module;
			m.sure = module >= 0 && is_that(proc, module, &l);
		} else {
			m.flags |= MAP_ANONYMOUS;
			m.name = label(proc->rec, l.name);
		}
		if (!strcmp(l.name, "[vdso]")) {
			proc->vdso = l.start;
			proc->vdso_end = l.end;
		}
		if (!strcmp(l.name, "[vsyscall]"))
			m.prot = 0;
		dj_mappings_put(&proc->maps, &m);
	}
	fclose(f);
	return 0;
}

void rec_maps_free(struct rec_process *proc)
{
	dj_mappings_clear(&proc->maps);
}
