/*
 * What analyses note in passing (analyses/log.h).
 *
 * Little of it lies in memory; of much the pages are those of a file without a name, which the
 * kernel can write out when memory is needed for something else. So what a log costs in memory does
 * not depend on how much is noted.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "analyses/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MUCH (16u << 20) /* bytes */

/* ---- room ---- */

/* A file without a name, where such things are put; -1: nowhere. */
static int open_file(void)
{
	const char *dir = getenv("TMPDIR");
	char path[4096];

	int fd = open(dir && *dir ? dir : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	snprintf(path, sizeof(path), "%s/deja-log-XXXXXX", dir && *dir ? dir : "/var/tmp");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	/* no disk will have it, or nothing may be given a name here (cli/confine.h) */
	return fd >= 0 ? fd : memfd_create("deja-log", MFD_CLOEXEC);
}

/* Room for `cap` items in the log's file, which is made if need be. The disk's space is taken now:
 * a full disk is an error here, and not a signal later. */
static bool grow_file(struct ana_log *log, size_t cap)
{
	size_t size = cap * log->size, had = log->cap * log->size;
	int fd = log->file ? log->file - 1 : open_file();

	if (fd < 0)
		return false;
	void *p = posix_fallocate(fd, 0, (off_t)size) ? MAP_FAILED
		  : log->file ? mremap(log->items, had, size, MREMAP_MAYMOVE)
			      : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		if (!log->file)
			close(fd);
		return false;
	}
	if (!log->file) {
		if (log->n)
			memcpy(p, log->items, log->n * log->size);
		free(log->items);
	}
	log->file = fd + 1;
	log->items = p;
	log->cap = cap;
	return true;
}

static bool grow(struct ana_log *log, size_t n)
{
	size_t cap = log->cap ? log->cap : 64;

	while (cap < n)
		cap += cap < (64u << 20) ? cap : cap / 4;
	if (cap == log->cap)
		return true;
	if (log->file || cap * log->size > MUCH) {
		log->failed |= !grow_file(log, cap);
		return !log->failed;
	}
	uint8_t *grown = reallocarray(log->items, cap, log->size);
	if (!grown) {
		log->failed = true;
		return false;
	}
	log->items = grown;
	log->cap = cap;
	return true;
}

void ana_log_free(struct ana_log *log)
{
	if (log->file) {
		munmap(log->items, log->cap * log->size);
		close(log->file - 1);
	} else {
		free(log->items);
	}
	log->items = NULL;
	log->n = log->cap = 0;
	log->file = 0;
}

/* ---- noting ---- */

void *ana_log_add(struct ana_log *log)
{
	if (log->n >= log->limit) {
		log->more = true;
		return NULL;
	}
	if (!grow(log, log->n + 1))
		return NULL;
	return memset(ana_log_at(log, log->n++), 0, log->size);
}

void ana_log_join(struct ana_log *to, struct ana_log *from)
{
	to->more |= from->more;
	to->failed |= from->failed;
	if (!to->n && from->n) {
		struct ana_log whole = *from;

		whole.limit = to->limit;
		whole.more = to->more;
		whole.failed = to->failed;
		ana_log_free(to);
		*to = whole;
		*from = (struct ana_log){ .size = whole.size };
		return;
	}
	if (from->n && grow(to, to->n + from->n)) {
		memcpy(ana_log_at(to, to->n), from->items, from->n * from->size);
		to->n += from->n;
	}
	/* of a very great number of threads no more is kept than of one */
	if (to->limit < SIZE_MAX / 2 && to->n > 2 * to->limit)
		ana_log_sort(to);
	ana_log_free(from);
}

/* ---- order ---- */

static int by_position(const void *a, const void *b)
{
	return replay_pos_cmp(a, b);
}

/* The end of the items from `i` on that are in order. */
static size_t run_end(const struct ana_log *log, size_t i)
{
	do
		i++;
	while (i < log->n && by_position(ana_log_at(log, i - 1), ana_log_at(log, i)) <= 0);
	return i < log->n ? i : log->n;
}

/* Runs that are in order, of which each thread has left one, put together two by two, into another
 * log: reads and writes go from front to back, as a disk likes it. Returns how many there are. */
static size_t merge_runs(const struct ana_log *from, struct ana_log *to)
{
	size_t runs = 0;

	for (size_t a = 0; a < from->n; runs++) {
		size_t b = run_end(from, a), end_a = b, end_b = b < from->n ? run_end(from, b) : b;
		size_t next = end_b;

		while (a < end_a || b < end_b) {
			bool first = b == end_b ||
				     (a < end_a &&
				      by_position(ana_log_at(from, a), ana_log_at(from, b)) <= 0);
			memcpy(ana_log_at(to, to->n++), ana_log_at(from, first ? a++ : b++),
			       from->size);
		}
		a = next;
	}
	return runs;
}

void ana_log_sort(struct ana_log *log)
{
	if (log->n && !log->file)
		qsort(log->items, log->n, log->size, by_position);
	while (log->file && run_end(log, 0) < log->n) {
		struct ana_log sorted = *log;

		sorted.items = NULL;
		sorted.file = 0;
		sorted.n = sorted.cap = 0;
		if (!grow(&sorted, log->n)) {
			log->failed = true;
			return;
		}
		size_t runs = merge_runs(log, &sorted);
		ana_log_free(log);
		*log = sorted;
		if (runs <= 1)
			break;
	}
	if (log->n > log->limit) {
		log->n = log->limit;
		log->more = true;
	}
}

void ana_code_text(struct ana_functions *f, const struct replay_code *code, char *buf, size_t size)
{
	const struct ana_function *fn = ana_function_of(f, code);
	const char *file = NULL;
	int line = 0;

	if (!fn->name) {
		if (fn->module)
			snprintf(buf, size, "%s+%#" PRIx64, ana_base(fn->module), code->offset);
		else
			snprintf(buf, size, "%#" PRIx64, code->offset);
	} else if (code->module >= 0 &&
		   ana_symbols_line(ana_functions_symbols(f), (size_t)code->module, code->offset,
				    &file, &line)) {
		snprintf(buf, size, "%s at %s:%d", fn->name, ana_base(file), line);
	} else {
		snprintf(buf, size, "%s+%#" PRIx64, fn->name, code->offset - fn->code.offset);
	}
}
