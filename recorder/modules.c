/*
 * Modules: the ELF files that the program maps, kept in the trace as they are. A file that is
 * written to later shows through private mappings of it, code included. The kernel notes such
 * writes for us (inotify(7)), though not those by a shared mapping, which show when the file is
 * mapped again, by its time; from then on nothing is taken from the file.
 */
#include "recorder/ahead.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int watch(struct rec_recording *rec, int fd)
{
	char link[64];
	if (!rec->inotify)
		rec->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return rec->inotify < 0 ? -1 : inotify_add_watch(rec->inotify, link, IN_MODIFY);
}

static void rewritten(struct rec_recording *rec, size_t module)
{
	rec->modules[module].rewritten = true;
	for (struct rec_process *p = rec->processes; p; p = p->next) {
		const struct dj_mapping *m = dj_mappings_after(&p->maps, 0, PROT_EXEC);
		for (; m; m = dj_mappings_after(&p->maps, m->end, PROT_EXEC))
			if (m->module == (int32_t)module)
				rec_code_forget(p, m->start, m->end);
	}
}

void rec_modules_check(struct rec_recording *rec)
{
	char events[4096] __attribute__((aligned(8)));
	ssize_t n;
	while (rec->inotify > 0 && (n = read(rec->inotify, events, sizeof(events))) > 0)
		for (ssize_t at = 0; at < n;) {
			const struct inotify_event *e = (const void *)(events + at);
			for (size_t i = 0; i < rec->n_modules; i++)
				if (rec->modules[i].watch == e->wd && !(e->mask & IN_IGNORED))
					rewritten(rec, i);
			at += (ssize_t)(sizeof(*e) + e->len);
		}
}

void rec_modules_unwatch(struct rec_recording *rec)
{
	rec_modules_check(rec);
	for (size_t i = 0; i < rec->n_modules && rec->inotify > 0; i++)
		inotify_rm_watch(rec->inotify, rec->modules[i].watch);
}

bool rec_modules_told(const struct rec_recording *rec)
{
	int n = 0;
	return rec->inotify > 0 && !ioctl(rec->inotify, FIONREAD, &n) && n;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Which module the file is, or -1: it is none yet, or not what it was. */
static int known(struct rec_recording *rec, const struct stat *st)
{
	rec_modules_check(rec);
	for (size_t i = 0; i < rec->n_modules; i++) {
		const struct rec_module *m = &rec->modules[i];
		if (m->dev != st->st_dev || m->ino != st->st_ino || m->rewritten)
			continue;
		if (m->size == (size_t)st->st_size && same_time(&m->mtime, &st->st_mtim))
			return (int)i;
		rewritten(rec, i); /* by a mapping, of which nobody hears */
	}
	return -1;
}

/* Like a file that can be a module. */
static bool may_be(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_size >= 64;
}

static int module_of(struct rec_recording *rec, int fd, const char *path)
{
	struct stat st;
	if (fstat(fd, &st) || !may_be(&st))
		return -1;
	int known_as = known(rec, &st);
	if (known_as >= 0)
		return known_as;
	uint8_t *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return -1;
	if (memcmp(p, "\177ELF", 4) != 0) {
		munmap(p, (size_t)st.st_size);
		return -1;
	}
	struct dj_error err = { 0 };
	int n = dj_writer_module_file(rec->writer, path, fd, p, (size_t)st.st_size, &err);
	if (n < 0) {
		munmap(p, (size_t)st.st_size);
		rec_cut(rec, "%s", err.text);
		return -1;
	}
	if ((size_t)n >= rec->n_modules) {
		rec->modules = realloc(rec->modules, ((size_t)n + 1) * sizeof(*rec->modules));
		DJ_ASSERT(rec->modules, "out of memory for modules");
		memset(rec->modules + rec->n_modules, 0,
		       ((size_t)n + 1 - rec->n_modules) * sizeof(*rec->modules));
		rec->n_modules = (size_t)n + 1;
	}
	if (rec->modules[n].bytes) { /* it was taken for the same, which it need not be */
		munmap(p, (size_t)st.st_size);
		rewritten(rec, (size_t)n);
		return n;
	}
	rec->modules[n].watch = watch(rec, fd);
	rec->modules[n].path = strdup(path);
	rec->modules[n].bytes = p;
	rec->modules[n].size = (size_t)st.st_size;
	rec->modules[n].dev = st.st_dev;
	rec->modules[n].ino = st.st_ino;
	rec->modules[n].mtime = st.st_mtim;
	rec->modules[n].ctime = st.st_ctim;
	return n;
}

int rec_module_at(struct rec_recording *rec, const char *link, const char *path)
{
	struct stat st;
	if (stat(link, &st) || !may_be(&st))
		return -1;
	int n = known(rec, &st);
	if (n >= 0)
		return n;
	int fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -1;
	n = module_of(rec, fd, path);
	close(fd);
	return n;
}

void rec_modules_free(struct rec_recording *rec)
{
	for (size_t i = 0; i < rec->n_modules; i++) {
		if (rec->modules[i].bytes)
			munmap(rec->modules[i].bytes, rec->modules[i].size);
		free(rec->modules[i].path);
		rec_notes_free(&rec->modules[i]);
		tr_kept_free(rec->modules[i].kept);
		tr_kept_free(rec->modules[i].made[0]);
		tr_kept_free(rec->modules[i].made[1]);
	}
	free(rec->modules);
	if (rec->inotify > 0)
		close(rec->inotify);
}
