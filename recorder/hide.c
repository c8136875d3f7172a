/*
 * What a program reads of mappings has nothing of deja's.
 *
 * Programs look at /proc/self/maps to find out what there is: sanitizers, which map something for
 * each file that is mapped for execution (ThreadSanitizer did so two thousand times for an arena),
 * collectors of garbage that search all memory for pointers, whoever looks for a place that is
 * free. So when one has opened such a list, of a process that is recorded, it gets a file instead
 * that has the list, as it is when it is first read, without deja's. The file is made here, and the
 * program is made to open it, by the supervisor's descriptor, and to put it in the place of the
 * other. If it cannot (another user, another /proc, a filter, no descriptor free) it reads what is
 * really there.
 *
 * Which calls these are is seen from the first bytes of the path, without a stop (rt_open_check). A
 * list that is opened by a path that begins otherwise, or read again from its beginning, is not
 * dealt with: doc/limits.md.
 */
#include "recorder/area.h"
#include "recorder/syscalls.h"

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

/* ---- the list -------------------------------------------------------------------------------- */

/* Whether `path` is a list of mappings: of whom, and its name below /proc/PID. */
static bool is_list(const char *path, pid_t *of, const char **name)
{
	static const char *const names[] = { "maps", "smaps", "numa_maps" };
	const char *last = strrchr(path, '/');
	int pid, tid, end = 0;
	if (!last || sscanf(path, "/proc/%d%n", &pid, &end) != 1)
		return false;
	*of = pid;
	if (path + end != last) {
		const char *task = path + end;
		end = 0;
		if (sscanf(task, "/task/%d%n", &tid, &end) != 1 || task + end != last)
			return false;
		*of = tid;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(last + 1, names[i])) {
			*name = names[i];
			return true;
		}
	return false;
}

/* Whose memory a process or thread with this number is in, or NULL. */
static struct rec_process *recorded(const struct rec_recording *rec, pid_t id)
{
	for (const struct rec_thread *t = rec->threads; t; t = t->next)
		if ((t->tid == id || t->group->pid == id) && t->state != REC_GONE &&
		    t->state != REC_FREE && t->proc->tr)
			return t->proc;
	return NULL;
}

/* [*start, *end) without the first of deja's pieces in it, or empty. */
static void clip(const struct rec_range *piece, unsigned n, uint64_t *start, uint64_t *end)
{
	for (unsigned i = 0; i < n && *start < *end; i++) {
		uint64_t from = piece[i].at, to = from + piece[i].size;
		if (to <= *start || from >= *end)
			continue;
		if (from > *start)
			*end = from;
		else
			*start = to < *end ? to : *end;
		i = UINT32_MAX; /* another one may be there as well */
	}
}

/* Copy the list. What follows the line of a mapping, up to the next one's, goes with it. */
static void copy_without(FILE *from, FILE *to, const struct rec_range *piece, unsigned n)
{
	char *line = NULL;
	size_t room = 0;
	bool ours = false;
	while (getline(&line, &room, from) > 0) {
		uint64_t start, end;
		int rest = 0;
		bool range = sscanf(line, "%" SCNx64 "-%" SCNx64 "%n", &start, &end, &rest) == 2;
		bool one = !range && sscanf(line, "%" SCNx64 " %n", &start, &rest) == 1 && rest > 8;
		if (one)
			end = start + 1;
		uint64_t was_start = start, was_end = end;
		if (range || one) {
			clip(piece, n, &start, &end);
			ours = start == end;
		}
		if (ours)
			continue;
		if (start != was_start || end != was_end)
			fprintf(to, "%08" PRIx64 "-%08" PRIx64 "%s", start, end, line + rest);
		else
			fputs(line, to);
	}
	free(line);
}

/* The list as it is now, without deja's, is what is in the file. */
static bool write_list(const struct rec_hiding *h, const struct rec_recording *rec)
{
	struct rec_process *proc = recorded(rec, h->of);
	FILE *from = proc ? rec->tracer->open_proc(rec->tracer, h->of, h->name) : NULL;
	int copy = from ? dup(h->file) : -1;
	FILE *to = copy >= 0 && !ftruncate(copy, 0) ? fdopen(copy, "w") : NULL;
	bool good = to && !fseek(to, 0, SEEK_SET);
	if (good) {
		unsigned n;
		struct rec_range *piece = rec_area_pieces(proc, &n);
		copy_without(from, to, piece, n);
		free(piece);
		good = !ferror(from);
	}
	if (to)
		good = !fclose(to) && good;
	else if (copy >= 0)
		close(copy);
	if (from)
		fclose(from);
	return good;
}

/* ---- in place of the other ------------------------------------------------------------------- */

#define READS 64u /* of others, at which it is not waited for any longer that the list is read */

static void forget(struct rec_thread *t)
{
	if (t->hide.file > 0)
		close(t->hide.file);
	t->hide.file = -1;
	t->hide.reads = 0;
	if (t->own)
		((uint8_t *)rec_tcb(t, T_SYSCLASS))[SYS_read] = SYS_HERE;
}

static enum rec_state given_up(struct rec_thread *t, int64_t result)
{
	(void)result;
	forget(t);
	return REC_IN_HAND;
}

/* The kernel makes such a list when it is read: so is this one (rec_begin_read). */
static enum rec_state closed(struct rec_thread *t, int64_t result)
{
	(void)result;
	t->hide.reads = READS;
	((uint8_t *)rec_tcb(t, T_SYSCLASS))[SYS_read] = SYS_SUPERVISED;
	return REC_IN_HAND;
}

static enum rec_state replaced(struct rec_thread *t, int64_t result)
{
	return rec_call(t, result < 0 ? given_up : closed, SYS_close, (uint64_t)t->hide.opened, 0,
			0, 0, 0, 0);
}

/* Whether it is ours that has been opened, and not another process's of the same number. */
static bool is_ours(const struct rec_thread *t)
{
	char link[64];
	struct stat theirs, ours;
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)t->tid, t->hide.opened);
	return !stat(link, &theirs) && !fstat(t->hide.file, &ours) &&
	       theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

static enum rec_state opened(struct rec_thread *t, int64_t result)
{
	if (result < 0)
		return given_up(t, 0);
	t->hide.opened = (int)result;
	if (!is_ours(t))
		return replaced(t, -EPERM);
	return rec_call(t, replaced, SYS_dup3, (uint64_t)result, (uint64_t)t->hide.fd,
			(uint64_t)t->hide.flags, 0, 0, 0);
}

void rec_after_open(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	const uint64_t how = in->rax == SYS_open ? in->rsi : in->rdx;
	char link[64], path[128];
	struct rec_hiding *h = &t->hide;
	h->wanted = false;
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)t->tid, (int)result);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = 0;
	rec_near_opened(t->rec, path);
	if ((how & O_PATH) || (how & O_ACCMODE) != O_RDONLY)
		return;
	pid_t of;
	const char *name;
	if (!is_list(path, &of, &name) || !recorded(t->rec, of))
		return;
	forget(t);
	h->of = of;
	h->name = name;
	h->fd = (int)result;
	h->flags = (int)(how & O_CLOEXEC);
	h->file = memfd_create(name, MFD_CLOEXEC);
	h->wanted = h->file >= 0 && write_list(h, t->rec);
	if (!h->wanted)
		forget(t);
}

enum rec_state rec_hide(struct rec_thread *t)
{
	t->hide.wanted = false;
	snprintf((char *)rec_tcb(t, T_ARGS), T_ARGS_SIZE, "/proc/%d/fd/%d", (int)getpid(),
		 t->hide.file);
	return rec_call(t, opened, SYS_openat, (uint64_t)AT_FDCWD, t->s + (uint64_t)T_ARGS,
			O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

enum rec_state rec_begin_read(struct rec_thread *t)
{
	bool first = t->regs.rdi == (uint64_t)t->hide.fd;
	if (t->hide.reads && first)
		write_list(&t->hide, t->rec);
	if (!t->hide.reads || first || !--t->hide.reads)
		forget(t);
	return rec_make_call(t);
}
