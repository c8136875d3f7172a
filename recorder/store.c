/*
 * What is remembered of modules from one recording to the next (deja record --cache): translations,
 * and what programs stopped for. A file for each module, in a directory of the user's.
 *
 * What is in there becomes code that the user's programs execute. So the directory and its files
 * must be the user's own, no links, and writable by nobody else: whoever can write there can as
 * well write to the user's programs. Damage is found by checksums, and what was written by another
 * build of deja, with another configuration, or about a file that has changed since is not used. A
 * mistake there would not matter: what each translation was made from is compared with the code as
 * it is (translator/translate-keep.c), and what notes say is only what to look at.
 *
 * Files appear whole, by rename. The oldest go when all together take more than LIMIT.
 */
#include "recorder/ahead.h"
#include "recorder/cpuid.h"
#include "translator/estate.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LIMIT	(1024ULL << 20) /* bytes, in all */
#define MODULE	(512ULL << 20)
#define MADE	(64ULL << 20)
#define VERSION 3

/* Everything that what is kept depends on. */
struct id {
	uint8_t build[32];
	uint64_t version, predict, model, exact_flags, cpu;
	uint64_t dev, ino, size;
	int64_t mtime, mtime_ns, ctime, ctime_ns;
};
_Static_assert(sizeof(struct id) <= TR_KEPT_ID, "more than an id has room for");

static uint64_t mix(uint64_t sum, const void *bytes, size_t size)
{
	const uint8_t *b = bytes;
	for (size_t i = 0; i < size; i++)
		sum = (sum ^ b[i]) * 0x100000001b3ULL;
	return sum;
}

/* ---- who writes, and about what ------------------------------------------------------------ */

static int find_build(struct dl_phdr_info *info, size_t size, void *ctx)
{
	uint8_t *build = ctx;
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const uint8_t *at = (const uint8_t *)(info->dlpi_addr + p->p_vaddr);
		const uint8_t *end = at + p->p_memsz;
		while (p->p_type == PT_NOTE && (size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
			ElfW(Nhdr) n;
			memcpy(&n, at, sizeof(n));
			const uint8_t *desc = at + sizeof(n) + ((n.n_namesz + 3) & ~3u);
			if (n.n_type == NT_GNU_BUILD_ID && n.n_descsz <= 32) {
				memcpy(build, desc, n.n_descsz);
				return 1;
			}
			at = desc + ((n.n_descsz + 3) & ~3u);
		}
	}
	return 1; /* the first one is deja itself */
}

/* What a file is about. */
enum { OF_CODE, OF_MADE, OF_CHANGING, OF_IMAGES, OF_IMAGES_FAULTS };

static bool id_of(const struct rec_recording *rec, const struct rec_module *m, unsigned what,
		  uint8_t id[TR_KEPT_ID])
{
	static const uint8_t none[32];
	struct id v;
	uint32_t r[4];
	memset(&v, 0, sizeof(v));
	memset(id, 0, TR_KEPT_ID);
	dl_iterate_phdr(find_build, v.build);
	if (!memcmp(v.build, none, sizeof(none)))
		return false;
	v.version = VERSION + ((uint64_t)what << 32);
	v.predict = rec->opt.predict;
	v.model = rec->opt.memory_model;
	v.exact_flags = rec->opt.exact_flags;
	for (uint32_t leaf = 0; leaf < 8; leaf++) {
		rec_cpuid(leaf, 0, r);
		if (leaf == 1)
			r[1] = 0; /* which processor it was */
		v.cpu = leaf == 0 || leaf == 1 || leaf == 7 ? mix(v.cpu, r, sizeof(r)) : v.cpu;
	}
	v.dev = m->dev;
	v.ino = m->ino;
	v.size = m->size;
	v.mtime = m->mtime.tv_sec;
	v.mtime_ns = m->mtime.tv_nsec;
	v.ctime = m->ctime.tv_sec;
	v.ctime_ns = m->ctime.tv_nsec;
	memcpy(id, &v, sizeof(v));
	return true;
}

static void name_of(const uint8_t id[TR_KEPT_ID], char name[32], const char *suffix)
{
	uint64_t sum = mix(0xcbf29ce484222325ULL, id, TR_KEPT_ID);
	snprintf(name, 32, "%016llx.%s", (unsigned long long)sum, suffix);
}

/* ---- the directory ------------------------------------------------------------------------- */

static bool private(int fd, mode_t type, struct stat *st)
{
	return !fstat(fd, st) && (st->st_mode & S_IFMT) == type && st->st_uid == geteuid() &&
	       !(st->st_mode & 022);
}

/* A descriptor of it, or -1. */
static int directory(struct rec_recording *rec)
{
	struct stat st;
	if (!rec->opt.cache)
		return -1;
	if (rec->store)
		return rec->store;
	rec->store = open(rec->opt.cache, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (rec->store < 0 && rec->opt.cache_asked)
		fprintf(stderr, "deja: %s is not used: %s\n", rec->opt.cache, strerror(errno));
	if (rec->store >= 0 && !private(rec->store, S_IFDIR, &st)) {
		if (rec->opt.cache_asked)
			fprintf(stderr,
				"deja: %s is not used: it belongs to somebody else, or others "
				"may write to it\n",
				rec->opt.cache);
		close(rec->store);
		rec->store = -1;
	}
	return rec->store;
}

int rec_store_packed(struct rec_recording *rec)
{
	struct stat st;
	int dir = directory(rec), fd;
	if (dir < 0)
		return -1;
	mkdirat(dir, "packed", 0700);
	fd = openat(dir, "packed", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && !private(fd, S_IFDIR, &st)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int open_file(struct rec_recording *rec, const char *name, struct stat *st)
{
	int dir = directory(rec);
	int fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && (!private(fd, S_IFREG, st) || st->st_size > (off_t)MODULE)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* A file under a name of its own, until it is whole. */
struct part {
	char name[64];
	FILE *to;
};

static bool begin_file(struct rec_recording *rec, const char *name, struct part *p)
{
	static char buffer[1 << 18]; /* one file is being written at a time */
	int dir = directory(rec);
	snprintf(p->name, sizeof(p->name), ".%s.%d", name, getpid());
	int fd = openat(dir, p->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	p->to = fd < 0 ? NULL : fdopen(fd, "w");
	if (p->to)
		setvbuf(p->to, buffer, _IOFBF, sizeof(buffer));
	else if (fd >= 0)
		close(fd);
	return p->to != NULL;
}

static void end_file(struct rec_recording *rec, const char *name, struct part *p, bool good)
{
	int dir = directory(rec);
	good &= !fclose(p->to);
	if (!good || renameat(dir, p->name, dir, name))
		unlinkat(dir, p->name, 0);
}

static enum dj_trim_kind kind_of(const char *name)
{
	static const char *const kinds[] = { ".keep", ".notes", ".estate" };
	const char *dot = strrchr(name, '.'), *part;
	for (size_t i = 0; dot && strlen(name) < 64 && i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (!strcmp(dot, kinds[i]))
			return DJ_TRIM_WHOLE;
		part = *name == '.' ? strstr(name, kinds[i]) : NULL;
		if (part && part[strlen(kinds[i])] == '.')
			return DJ_TRIM_PART;
	}
	return DJ_TRIM_OTHER;
}

/* ---- notes --------------------------------------------------------------------------------- */

struct notes_head {
	uint8_t id[TR_KEPT_ID];
	uint64_t sum, size;
};

static void read_notes(struct rec_recording *rec, struct rec_module *m,
		       const uint8_t id[TR_KEPT_ID])
{
	struct stat st;
	struct notes_head h;
	char name[32];
	name_of(id, name, "notes");
	int fd = open_file(rec, name, &st);
	uint8_t *bytes = NULL;
	if (fd >= 0 && read(fd, &h, sizeof(h)) == sizeof(h) && !memcmp(h.id, id, TR_KEPT_ID) &&
	    h.size == (uint64_t)st.st_size - sizeof(h) && (bytes = malloc(h.size + 1)) &&
	    read(fd, bytes, h.size) == (ssize_t)h.size && mix(0, bytes, h.size) == h.sum)
		rec_notes_read(m, bytes, h.size);
	if (bytes)
		futimens(fd, NULL); /* it is of use */
	free(bytes);
	if (fd >= 0)
		close(fd);
}

static void write_notes(struct rec_recording *rec, struct rec_module *m,
			const uint8_t id[TR_KEPT_ID])
{
	struct notes_head h;
	struct part p;
	char name[32];
	size_t size;
	uint8_t *bytes = rec_notes_write(m, sizeof(h), &size);
	if (!bytes)
		return;
	memcpy(h.id, id, TR_KEPT_ID);
	h.size = size - sizeof(h);
	h.sum = mix(0, bytes + sizeof(h), h.size);
	memcpy(bytes, &h, sizeof(h));
	name_of(id, name, "notes");
	if (begin_file(rec, name, &p))
		end_file(rec, name, &p, fwrite(bytes, size, 1, p.to) == 1);
	free(bytes);
}

/* ---- a module ------------------------------------------------------------------------------ */

static void read_kept(struct rec_recording *rec, struct tr_kept *kept, const uint8_t id[TR_KEPT_ID])
{
	char name[32];
	struct stat st;
	name_of(id, name, "keep");
	int fd = open_file(rec, name, &st);
	if (fd < 0)
		return;
	if (tr_kept_read(kept, fd, (size_t)st.st_size, id))
		futimens(fd, NULL); /* it is of use */
	close(fd);
}

void rec_store_read(struct rec_recording *rec, struct rec_module *m)
{
	uint8_t id[TR_KEPT_ID];
	if (directory(rec) < 0 || !id_of(rec, m, OF_CODE, id))
		return;
	read_kept(rec, m->kept, id);
	read_notes(rec, m, id);
}

void rec_store_read_made(struct rec_recording *rec, struct rec_module *m, bool changing)
{
	uint8_t id[TR_KEPT_ID];
	if (directory(rec) >= 0 && id_of(rec, m, OF_MADE + changing, id))
		read_kept(rec, m->made[changing], id);
}

/* False if there was nothing new. */
static bool write_kept(struct rec_recording *rec, struct tr_kept *kept, size_t limit,
		       const uint8_t id[TR_KEPT_ID])
{
	char name[32];
	struct part p;
	name_of(id, name, "keep");
	if (!tr_kept_new_ones(kept) || !begin_file(rec, name, &p))
		return false;
	end_file(rec, name, &p, tr_kept_write(kept, id, limit, p.to));
	return true;
}

/* ---- a program's images -------------------------------------------------------------------- */

bool rec_store_is_there(struct rec_recording *rec)
{
	return directory(rec) >= 0;
}

/* False: nothing is known of the file. */
static bool estate_of(struct rec_recording *rec, const struct rec_module *m, bool faults,
		      uint8_t id[TR_KEPT_ID], char name[32])
{
	if (m->rewritten || !id_of(rec, m, OF_IMAGES + faults, id))
		return false;
	name_of(id, name, "estate");
	return true;
}

struct tr_estate *rec_store_read_estate(struct rec_recording *rec, const struct rec_module *m,
					bool faults)
{
	uint8_t id[TR_KEPT_ID];
	char name[32];
	struct stat st;
	if (!estate_of(rec, m, faults, id, name))
		return NULL;
	int fd = open_file(rec, name, &st);
	if (fd < 0)
		return NULL;
	struct tr_estate *e = tr_estate_open(fd, (size_t)st.st_size, id);
	if (e)
		futimens(fd, NULL); /* it is of use */
	close(fd);
	return e;
}

bool rec_store_write_estate(struct rec_recording *rec, const struct rec_module *m, bool faults,
			    struct translator *tr, const void *about, size_t size)
{
	uint8_t id[TR_KEPT_ID];
	char name[32];
	struct part p;
	if (!estate_of(rec, m, faults, id, name) || !begin_file(rec, name, &p))
		return false;
	bool good = tr_estate_write(tr, id, about, size, p.to);
	end_file(rec, name, &p, good);
	rec->wrote |= good;
	return good;
}

/* ---- all ----------------------------------------------------------------------------------- */

void rec_store_write(struct rec_recording *rec)
{
	for (struct rec_process *p = rec->processes; p; p = p->next)
		if (p->trap.expected) /* in vain */
			rec_ahead_note_faults(p, false);
	rec_heirs_write(rec);
	for (size_t i = 0; i < rec->n_modules && directory(rec) >= 0; i++) {
		struct rec_module *m = &rec->modules[i];
		uint8_t id[TR_KEPT_ID];
		if (m->rewritten)
			continue;
		for (unsigned k = 0; k < 2; k++)
			if (m->made[k] && id_of(rec, m, OF_MADE + k, id))
				rec->wrote |= write_kept(rec, m->made[k], MADE, id);
		if (!m->kept || !id_of(rec, m, OF_CODE, id))
			continue;
		rec->wrote |= write_kept(rec, m->kept, MODULE, id);
		write_notes(rec, m, id);
	}
	if (rec->wrote)
		dj_trim(rec->store, LIMIT, kind_of);
	if (rec->store > 0)
		close(rec->store);
	rec->store = 0;
}
