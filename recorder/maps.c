/*
 * The program's mappings and modules, and its code as the translator reads it.
 *
 * Code comes in pages, read from the program once and compared with the module file they are
 * mapped from. Where they agree the trace needs nothing; other pages go into the trace as CODE
 * records when something in them is first translated. A page that the program may rewrite without
 * asking the kernel (writable and executable, or shared) is `changing`: the translator
 * checks its bytes at every execution.
 */
#include "recorder/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE	  4096ULL
#define PAGE_HASH 4096

/* ---- modules ------------------------------------------------------------------------- */

/* The module number of the ELF file open as `fd` in us, or -1 if it is none. */
static int module_of(struct sup *s, int fd, const char *path)
{
	struct stat st;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 64)
		return -1;
	for (size_t i = 0; i < s->n_modules; i++)
		if (s->modules[i].dev == st.st_dev && s->modules[i].ino == st.st_ino &&
		    s->modules[i].size == (size_t)st.st_size)
			return (int)i;
	uint8_t *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return -1;
	if (memcmp(p, "\177ELF", 4) != 0) {
		munmap(p, (size_t)st.st_size);
		return -1;
	}
	struct dj_error err = { 0 };
	int n = dj_writer_module(s->writer, path, p, (size_t)st.st_size, &err);
	if (n < 0) {
		munmap(p, (size_t)st.st_size);
		sup_cut(s, "%s", err.text);
		return -1;
	}
	if ((size_t)n >= s->n_modules) {
		s->modules = realloc(s->modules, ((size_t)n + 1) * sizeof(*s->modules));
		DJ_ASSERT(s->modules, "out of memory for modules");
		memset(s->modules + s->n_modules, 0,
		       ((size_t)n + 1 - s->n_modules) * sizeof(*s->modules));
		s->n_modules = (size_t)n + 1;
	}
	s->modules[n].path = strdup(path);
	s->modules[n].bytes = p;
	s->modules[n].size = (size_t)st.st_size;
	s->modules[n].dev = st.st_dev;
	s->modules[n].ino = st.st_ino;
	s->modules_bytes += (uint64_t)st.st_size;
	return n;
}

/* ---- the list -------------------------------------------------------------------------- */

static void insert(struct process *proc, size_t at, const struct mapping *m)
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

const struct mapping *maps_find(const struct process *proc, uint64_t addr)
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
static size_t split(struct process *proc, uint64_t at)
{
	size_t i = 0;
	while (i < proc->n_maps && proc->maps[i].end <= at)
		i++;
	if (i < proc->n_maps && proc->maps[i].start < at) {
		struct mapping right = proc->maps[i];
		right.offset += at - right.start;
		right.start = at;
		proc->maps[i].end = at;
		insert(proc, ++i, &right);
	}
	return i;
}

static void drop(struct process *proc, uint64_t start, uint64_t end)
{
	size_t i = split(proc, start), j = split(proc, end);
	memmove(proc->maps + i, proc->maps + j, (proc->n_maps - j) * sizeof(*proc->maps));
	proc->n_maps -= j - i;
}

static void put(struct process *proc, const struct mapping *m)
{
	drop(proc, m->start, m->end);
	insert(proc, split(proc, m->start), m);
}

static uint64_t page_up(uint64_t x)
{
	return (x + PAGE - 1) & ~(PAGE - 1);
}

static void record_map(struct tracee *t, const struct mapping *m, const char *name)
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
	ring_record(t, &r);
}

void maps_add(struct tracee *t, uint64_t start, uint64_t end, uint32_t prot, uint32_t flags, int fd,
	      uint64_t offset)
{
	char link[64], path[DJ_NAME_MAX] = "";
	struct mapping m = { start, page_up(end), offset, prot, flags, -1, "" };
	if (!(flags & MAP_ANONYMOUS) && fd >= 0) {
		snprintf(link, sizeof(link), "/proc/%d/fd/%d", t->proc->pid, fd);
		ssize_t n = readlink(link, path, sizeof(path) - 1);
		path[n > 0 ? n : 0] = 0;
		int ours = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (ours >= 0) {
			if (flags & MAP_PRIVATE)
				m.module = module_of(t->sup, ours, path);
			close(ours);
		}
	}
	maps_forget_code(t->proc, m.start, m.end);
	put(t->proc, &m);
	record_map(t, &m, path);
}

void maps_add_named(struct tracee *t, uint64_t start, uint64_t end, uint32_t prot, uint32_t flags,
		    const char *name)
{
	struct mapping m = { start, page_up(end), 0, prot, flags, -1, "" };
	maps_forget_code(t->proc, m.start, m.end);
	put(t->proc, &m);
	record_map(t, &m, name);
}

void maps_add_like(struct tracee *t, const struct mapping *like, uint64_t start, uint64_t end,
		   uint64_t offset)
{
	struct mapping m = {
		start, page_up(end), offset, like->prot, like->flags, like->module, ""
	};
	maps_forget_code(t->proc, m.start, m.end);
	put(t->proc, &m);
	record_map(t, &m, m.module >= 0 ? t->sup->modules[m.module].path : "");
}

void maps_refresh(struct tracee *t, uint64_t addr)
{
	char path[64], line[DJ_NAME_MAX + 256];
	snprintf(path, sizeof(path), "/proc/%d/maps", t->proc->pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		uint64_t start, end;
		char perm[8];
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &start, &end, perm) != 3 ||
		    addr < start || addr >= end)
			continue;
		uint32_t prot = (perm[0] == 'r' ? PROT_READ : 0u) |
				(perm[1] == 'w' ? PROT_WRITE : 0u) |
				(perm[2] == 'x' ? PROT_EXEC : 0u);
		maps_add_named(t, start, end, prot, MAP_SHARED, "");
	}
	if (f)
		fclose(f);
}

void maps_remove_at(struct tracee *t, uint64_t start)
{
	const struct mapping *m = maps_find(t->proc, start);
	if (m)
		maps_remove(t, m->start, m->end);
}

void maps_remove(struct tracee *t, uint64_t start, uint64_t end)
{
	end = page_up(end);
	maps_forget_code(t->proc, start, end);
	drop(t->proc, start, end);
	struct dj_record r = {
		.kind = DJ_REC_UNMAP, .steps = t->steps, .addr = start, .length = end - start
	};
	ring_record(t, &r);
}

void maps_protect(struct tracee *t, uint64_t start, uint64_t end, uint32_t prot)
{
	end = page_up(end);
	size_t i = split(t->proc, start), j = split(t->proc, end);
	bool code = false;
	for (; i < j; i++) {
		code |= (t->proc->maps[i].prot | prot) & PROT_EXEC;
		t->proc->maps[i].prot = prot;
	}
	if (code)
		maps_forget_code(t->proc, start, end);
	struct dj_record r = { .kind = DJ_REC_PROTECT,
			       .steps = t->steps,
			       .addr = start,
			       .length = end - start,
			       .prot = prot };
	ring_record(t, &r);
}

/* Read all mappings of a new image and put them into the trace. */
int maps_read(struct tracee *t, bool record)
{
	struct process *proc = t->proc;
	char path[64], line[DJ_NAME_MAX + 256];
	snprintf(path, sizeof(path), "/proc/%d/maps", proc->pid);
	FILE *f = fopen(path, "re");
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
		struct mapping m = { start, end, off, 0, MAP_PRIVATE, -1, "" };
		m.prot = (perm[0] == 'r' ? PROT_READ : 0u) | (perm[1] == 'w' ? PROT_WRITE : 0u) |
			 (perm[2] == 'x' ? PROT_EXEC : 0u);
		if (perm[3] == 's')
			m.flags = MAP_SHARED;
		if (name[0] == '/') {
			char via[64 + DJ_NAME_MAX];
			snprintf(via, sizeof(via), "/proc/%d/root%s", proc->pid, name);
			int fd = open(via, O_RDONLY | O_CLOEXEC);
			if (fd >= 0) {
				m.module = module_of(t->sup, fd, name);
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
		if (record)
			record_map(t, &m, name);
	}
	fclose(f);
	return 0;
}

/* ---- code -------------------------------------------------------------------------------- */

static unsigned page_slot(uint64_t page)
{
	return (unsigned)((page >> 12) * 0x9e3779b1u >> 20) % PAGE_HASH;
}

/* Open addressing would make forgetting awkward: a slot holds one page, and a collision evicts. */
static struct code_page *code_page(struct process *proc, uint64_t addr)
{
	uint64_t page = addr & ~(PAGE - 1);
	if (!proc->pages) {
		proc->pages = calloc(PAGE_HASH, sizeof(*proc->pages));
		DJ_ASSERT(proc->pages, "out of memory for code pages");
	}
	struct code_page **slot = &proc->pages[page_slot(page)];
	while (*slot && (*slot)->addr != page) {
		slot++;
		if (slot == proc->pages + PAGE_HASH)
			slot = proc->pages;
	}
	if (*slot)
		return *slot;
	const struct mapping *m = maps_find(proc, page);
	if (!m || !(m->prot & PROT_EXEC) || !(m->prot & PROT_READ))
		return NULL;
	struct code_page *p = malloc(sizeof(*p));
	DJ_ASSERT(p, "out of memory for a code page");
	p->addr = page;
	p->logged = false;
	p->len = (uint32_t)tracee_read(proc, page, p->bytes, PAGE);
	p->changing = (m->prot & PROT_WRITE) || ((m->flags & MAP_SHARED) != 0);
	p->dynamic = true;
	if (!p->len) {
		free(p);
		return NULL;
	}
	if (m->module >= 0) {
		const struct module_file *f = &proc->sup->modules[m->module];
		uint64_t off = m->offset + (page - m->start);
		size_t have = off < f->size ? f->size - off : 0;
		if (have > PAGE)
			have = PAGE;
		static const uint8_t zero[4096];
		p->dynamic = p->len != PAGE || memcmp(p->bytes, f->bytes + off, have) != 0 ||
			     memcmp(p->bytes + have, zero, PAGE - have) != 0;
	}
	*slot = p;
	if (++proc->n_pages > PAGE_HASH / 2) {
		/* crowded: start over, keeping this one */
		for (unsigned i = 0; i < PAGE_HASH; i++)
			if (proc->pages[i] != p) {
				free(proc->pages[i]);
				proc->pages[i] = NULL;
			}
		*slot = NULL;
		proc->pages[page_slot(page)] = p;
		proc->n_pages = 1;
	}
	return p;
}

size_t maps_read_code(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing)
{
	struct process *proc = ctx;
	size_t done = 0;
	*changing = false;
	while (done < len) {
		struct code_page *p = code_page(proc, pc + done);
		if (!p)
			break;
		uint64_t off = (pc + done) - p->addr;
		if (off >= p->len)
			break;
		size_t n = p->len - off;
		if (n > len - done)
			n = len - done;
		memcpy(buf + done, p->bytes + off, n);
		*changing |= p->changing;
		done += n;
	}
	return done;
}

void maps_translated(void *ctx, uint64_t pc, size_t len)
{
	struct tracee *t = ((struct process *)ctx)->hand;
	for (uint64_t page = pc & ~(PAGE - 1); page < pc + len; page += PAGE) {
		struct code_page *p = code_page(t->proc, page);
		if (!p || !p->dynamic || p->logged)
			continue;
		struct dj_record r = { .kind = DJ_REC_CODE,
				       .steps = t->steps,
				       .addr = page,
				       .length = p->len,
				       .bytes = p->bytes };
		ring_record(t, &r);
		p->logged = true;
	}
}

void maps_forget_code(struct process *proc, uint64_t start, uint64_t end)
{
	if (proc->pages) {
		bool any = false;
		for (unsigned i = 0; i < PAGE_HASH && !any; i++)
			any = proc->pages[i] && proc->pages[i]->addr < end &&
			      proc->pages[i]->addr + PAGE > start;
		if (any) {
			for (unsigned i = 0; i < PAGE_HASH; i++) {
				free(proc->pages[i]);
				proc->pages[i] = NULL;
			}
			proc->n_pages = 0;
		}
	}
	if (proc->tr)
		tr_invalidate(proc->tr, start, end - start);
}

void maps_free(struct process *proc)
{
	for (unsigned i = 0; proc->pages && i < PAGE_HASH; i++)
		free(proc->pages[i]);
	free(proc->pages);
	free(proc->maps);
}

/* ---- arenas -------------------------------------------------------------------------------- */

static bool hole(struct process *proc, uint64_t at, uint64_t size)
{
	char path[64], line[512];
	snprintf(path, sizeof(path), "/proc/%d/maps", proc->pid);
	FILE *f = fopen(path, "re");
	bool free_there = f && at >= 0x10000 && at + size < 0x7fffffff0000ULL;
	while (free_there && fgets(line, sizeof(line), f)) {
		uint64_t start, end;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 && start < at + size &&
		    at < end)
			free_there = false;
	}
	if (f)
		fclose(f);
	return free_there;
}

/* Map `size` bytes of the shared file at `off` into the program at `at`. */
static uint64_t map_shared(struct tracee *t, uint64_t at, uint64_t size, uint64_t off, int prot)
{
	char link[40];
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", getpid(), t->proc->memfd);
	uint64_t text = t->s + (uint64_t)(int64_t)T_BASE + 0x700;
	memcpy(tcb(t, T_BASE + 0x700), link, sizeof(link));
	int64_t fd = tracee_syscall(t, SYS_open, text, O_RDWR | O_CLOEXEC, 0, 0, 0, 0);
	if (fd < 0)
		return 0;
	int64_t got = tracee_syscall(t, SYS_mmap, at, size, (uint64_t)prot,
				     MAP_SHARED | MAP_FIXED_NOREPLACE, (uint64_t)fd, off);
	tracee_syscall(t, SYS_close, (uint64_t)fd, 0, 0, 0, 0, 0);
	return got < 0 || (uint64_t)got != at ? 0 : at;
}

uint64_t maps_new_arena(struct tracee *t, uint64_t pc, size_t size, uint8_t **ours)
{
	struct process *proc = t->proc;
	uint64_t base = pc & ~0xfffffULL;
	/* clang-format off */
	const uint64_t tries[] = {
		pc < 0x60000000 ? 0x60000000ULL : base - 0x40000000, base - 0x20000000,
		base + 0x40000000, base + 0x60000000, base - 0x60000000, base - 0x10000000,
		base + 0x20000000, base - 0x70000000,
	};
	/* clang-format on */
	uint64_t at = 0;
	for (size_t i = 0; i < sizeof(tries) / sizeof(*tries) && !at; i++)
		if (hole(proc, tries[i], size))
			at = tries[i];
	if (!at)
		return 0;
	uint64_t off = proc->arena_off;
	proc->arena_off += size;
	if (ftruncate(proc->memfd, (off_t)proc->arena_off))
		return 0;
	uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, proc->memfd, (off_t)off);
	if (p == MAP_FAILED)
		return 0;
	if (!map_shared(t, at, size, off, PROT_READ | PROT_EXEC)) {
		munmap(p, size);
		return 0;
	}
	*ours = p;
	return at;
}
