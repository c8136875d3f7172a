/*
 * The files of the module store (format/store.h): a header, and then MODULE_DATA chunks as in a
 * trace. The seed of their checksums comes from the hash, so two that write the same file write the
 * same bytes.
 */
#include "format/store.h"
#include "format/scatter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* What is being written has this in front of a random number. */
#define NEW_PREFIX ".new-"

/* ---- names ---------------------------------------------------------------------------- */

void dj_store_key(struct dj_store_key *key, const void *contents, size_t size)
{
	XXH128_canonical_t hash;

	XXH128_canonicalFromHash(&hash, XXH3_128bits(contents, size));
	memcpy(key->hash, hash.digest, sizeof(key->hash));
	key->size = size;
}

void dj_store_name(char name[STORE_NAME_LEN + 1], const struct dj_store_key *key)
{
	for (size_t i = 0; i < sizeof(key->hash); i++)
		snprintf(name + 2 * i, 3, "%02x", key->hash[i]);
	snprintf(name + 2 * sizeof(key->hash), 17, "%016llx", (unsigned long long)key->size);
}

char *dj_store_beside(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *store;
	int n = slash ? asprintf(&store, "%.*s/" STORE_DIR, (int)(slash - path), path)
		      : asprintf(&store, STORE_DIR);

	return n < 0 ? NULL : store;
}

/* No link leads out of the store, and none to it. */
int dj_store_open(const char *store, bool create)
{
	if (create && mkdir(store, 0700) && errno != EEXIST)
		return -1;
	return open(store, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

uint64_t dj_store_seed(const struct dj_store_key *key)
{
	return dj_get64(key->hash);
}

bool dj_store_is_piece(const struct dj_chunk_header *h, const struct dj_store_key *key,
		       uint64_t have)
{
	return h->type == CHUNK_MODULE_DATA && h->first == have && h->raw_len &&
	       h->last - h->first == h->raw_len && h->last <= key->size;
}

/* ---- reading --------------------------------------------------------------------------- */

const char *dj_store_check(struct dj_store_file *f)
{
	uint64_t at = FILE_HEADER_SIZE, have = 0;
	uint8_t header[FILE_HEADER_SIZE];

	dj_store_header_pack(header, dj_store_seed(&f->key));
	if (f->len < sizeof(header) || memcmp(f->file, header, sizeof(header)))
		return "is damaged";
	while (have < f->key.size) {
		struct dj_reader_chunk c;

		if (!dj_chunk_at(f->file, at, f->len, dj_store_seed(&f->key), &c.h, &c.at) ||
		    !dj_store_is_piece(&c.h, &f->key, have) ||
		    dj_chunk_sum(dj_store_seed(&f->key), f->file + c.at, c.h.len) !=
			    c.h.payload_sum)
			return "is damaged";
		if (dj_reader_add(&f->chunks, &c))
			return "needs more memory than there is";
		have = c.h.last;
		at = c.at + c.h.len;
	}
	return at == f->len ? NULL : "is damaged";
}

/* Map the file whole. A FIFO, a device, a link is none. */
static int map(int store, const char *name, struct dj_store_file *f, char *why, size_t size)
{
	int fd = openat(store, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	void *p;

	if (fd < 0) {
		if (errno == ENOENT)
			snprintf(why, size, "is not there");
		else if (errno == ELOOP)
			snprintf(why, size, "is a link");
		else
			snprintf(why, size, "cannot be opened: %s", strerror(errno));
		return -1;
	}
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		snprintf(why, size, "is not a regular file");
	} else if (!st.st_size) {
		snprintf(why, size, "is empty");
	} else {
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED) {
			snprintf(why, size, "cannot be mapped: %s", strerror(errno));
		} else {
			f->file = p;
			f->len = (uint64_t)st.st_size;
		}
	}
	close(fd);
	return f->file ? 0 : -1;
}

int dj_store_map(int store, struct dj_store_file *f, char *why, size_t size)
{
	char name[STORE_NAME_LEN + 1];
	const char *bad;

	dj_store_name(name, &f->key);
	if (map(store, name, f, why, size))
		return -1;
	bad = dj_store_check(f);
	if (!bad)
		return 0;
	snprintf(why, size, "%s", bad);
	dj_store_unmap(f);
	return -1;
}

void dj_store_unmap(struct dj_store_file *f)
{
	if (f->file)
		munmap((void *)f->file, (size_t)f->len);
	free(f->chunks.v);
	free(f->bytes);
	*f = (struct dj_store_file){ .key = f->key };
}

/* ---- writing --------------------------------------------------------------------------- */

void dj_store_new_name(char name[STORE_NEW_LEN + 1])
{
	snprintf(name, STORE_NEW_LEN + 1, NEW_PREFIX "%016llx", (unsigned long long)dj_random());
}

/* Write a file's contents and, if it is to be safe, see that they are on the disk before the name
 * is. */
static int write_file(int fd, const struct dj_store_key *key, const void *contents, bool safe)
{
	struct dj_writer *w = dj_writer_on(fd, dj_store_seed(key), "module store");
	uint8_t header[FILE_HEADER_SIZE];
	int r;

	if (!w) {
		close(fd);
		return -1;
	}
	dj_store_header_pack(header, dj_store_seed(key));
	r = dj_writer_append(w, header, sizeof(header), NULL) ||
	    dj_writer_pieces(w, 0, contents, key->size, NULL) || (safe && fsync(fd));
	return dj_writer_free(w, NULL) || r ? -1 : 0;
}

bool dj_store_has(int store, const struct dj_store_key *key)
{
	struct dj_store_file f = { .key = *key };
	char why[100];
	bool good = !dj_store_map(store, &f, why, sizeof(why));

	dj_store_unmap(&f);
	return good;
}

static int put(int store, const struct dj_store_key *key, const void *contents, bool safe)
{
	char name[STORE_NAME_LEN + 1], new[STORE_NEW_LEN + 1];
	int fd;

	dj_store_name(name, key);
	dj_store_new_name(new);
	fd = openat(store, new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	if (write_file(fd, key, contents, safe) || renameat(store, new, store, name)) {
		unlinkat(store, new, 0);
		return -1;
	}
	return 0;
}

int dj_store_put(int store, const struct dj_store_key *key, const void *contents)
{
	return dj_store_has(store, key) ? 0 : put(store, key, contents, true);
}

/* ---- packed modules for later traces ------------------------------------------------------- */

static void *read_file(int fd, size_t size)
{
	uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_HUGEPAGE);
	if (dj_read_all(fd, p, size))
		return p;
	munmap(p, size);
	return NULL;
}

int dj_store_open_kept(int directory, const struct dj_store_key *key)
{
	/* what does not pack stays as it is, with a header for each piece */
	const uint64_t most = key->size + key->size / 64 + 4096;
	char name[STORE_NAME_LEN + 1];
	struct stat st;
	int fd;

	dj_store_name(name, key);
	fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_size > 0 &&
	    (uint64_t)st.st_size <= most)
		return fd;
	close(fd);
	return -1;
}

int dj_store_read(int directory, struct dj_store_file *f)
{
	int fd = dj_store_open_kept(directory, &f->key);
	struct stat st;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && st.st_size > 0)
		f->file = read_file(fd, (size_t)st.st_size);
	if (f->file) {
		f->len = (uint64_t)st.st_size;
		futimens(fd, NULL); /* it is of use */
	}
	close(fd);
	if (f->file && !dj_store_check(f))
		return 0;
	dj_store_unmap(f);
	return -1;
}

int dj_store_keep(int directory, const struct dj_store_key *key, const void *contents)
{
	return put(directory, key, contents, false);
}

/* ---- removing -------------------------------------------------------------------------- */

struct names {
	char (*v)[STORE_NAME_LEN + 1];
	size_t n;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Note what a trace refers to. */
static int note_trace(const char *path, struct names *used, struct dj_error *err)
{
	struct dj_trace *t = dj_reader_open(path, err);
	int r = 0;

	if (!t) /* of no use to anybody, or gone by now: then it keeps nothing; or out of reach */
		return err->exit_status == 2 || access(path, F_OK) ? 0 : -1;
	for (size_t i = 0; i < t->nmodules && !r; i++) {
		void *v = used->v;

		if (!t->modules[i].info.stored)
			continue;
		if (dj_writer_grow(&v, used->n, sizeof(*used->v))) {
			r = dj_fail(err, 1, "out of memory");
		} else {
			used->v = v;
			dj_store_name(used->v[used->n++], &t->modules[i].key);
		}
	}
	dj_trace_close(t);
	return r;
}

/* Look into a file beside the store. What is no trace keeps nothing; of a newer one nobody knows.
 */
static int note_file(int dir, const char *name, const char *path, struct names *used,
		     struct dj_error *err)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	uint8_t header[FILE_HEADER_SIZE];
	uint32_t version = 0;
	struct stat st;
	uint64_t id;
	ssize_t n;

	if (fd < 0 && (errno == ENOENT || errno == ELOOP || errno == ENXIO))
		return 0;
	if (fd < 0)
		return dj_fail_errno(err, 1, "nothing is removed: cannot open %s", path);
	n = !fstat(fd, &st) && S_ISREG(st.st_mode) ? pread(fd, header, sizeof(header), 0) : 0;
	close(fd);
	if (n < 0)
		return dj_fail_errno(err, 1, "nothing is removed: cannot read %s", path);
	switch (dj_file_header_unpack(header, (size_t)n, &version, &id)) {
	case HEADER_GOOD:
		return DJ_TRACE_SHARES(version) ? note_trace(path, used, err) : 0;
	case HEADER_VERSION:
		if (version < DJ_TRACE_VERSION)
			return 0;
		return dj_fail(err, 2,
			       "nothing is removed: %s has trace format version %u, and what it "
			       "refers to is not known",
			       path, version);
	default:
		return 0;
	}
}

static int note_all(const char *dir, struct names *used, struct dj_error *err)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int r = 0;

	if (!d)
		return dj_fail_errno(err, 1, "cannot open %s", dir);
	while (!r && (e = readdir(d))) {
		char *path;

		if (asprintf(&path, "%s/%s", dir, e->d_name) < 0) {
			r = dj_fail(err, 1, "out of memory");
			break;
		}
		r = note_file(dirfd(d), e->d_name, path, used, err);
		free(path);
	}
	closedir(d);
	if (used->n)
		qsort(used->v, used->n, sizeof(*used->v), by_name);
	return r;
}

/* Whether a file of this name may be ours, and goes if nothing refers to it. */
static bool ours(const char *name)
{
	return (strlen(name) == STORE_NAME_LEN &&
		strspn(name, "0123456789abcdef") == STORE_NAME_LEN) ||
	       !strncmp(name, NEW_PREFIX, strlen(NEW_PREFIX));
}

static enum dj_trim_kind kind_of(const char *name)
{
	if (!strncmp(name, STORE_KNOWN, strlen(STORE_KNOWN)) && strlen(name) == STORE_KNOWN_LEN)
		return DJ_TRIM_WHOLE;
	return !ours(name)					? DJ_TRIM_OTHER
	       : !strncmp(name, NEW_PREFIX, strlen(NEW_PREFIX)) ? DJ_TRIM_PART
								: DJ_TRIM_WHOLE;
}

void dj_store_trim(int directory, uint64_t most)
{
	dj_trim(directory, most, kind_of);
}

static int remove_unused(int store, const struct names *used, struct dj_store_pruned *result,
			 struct dj_error *err)
{
	int fd = fcntl(store, F_DUPFD_CLOEXEC, 3);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	int r = 0;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return dj_fail_errno(err, 1, "cannot read the module store");
	}
	while ((e = readdir(d))) {
		struct stat st;

		if (!ours(e->d_name) || fstatat(store, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    S_ISDIR(st.st_mode))
			continue;
		if (used->n && bsearch(e->d_name, used->v, used->n, sizeof(*used->v), by_name)) {
			result->kept++;
		} else if (unlinkat(store, e->d_name, 0)) {
			r = dj_fail_errno(err, 1, "cannot remove %s", e->d_name);
		} else {
			result->removed++;
			result->bytes += (uint64_t)st.st_size;
		}
	}
	closedir(d);
	return r;
}

int dj_store_prune(const char *dir, struct dj_store_pruned *result, struct dj_error *err)
{
	struct names used = { 0 };
	struct stat st;
	char *name;
	int store, r;

	*result = (struct dj_store_pruned){ 0 };
	if (stat(dir, &st))
		return dj_fail_errno(err, 1, "cannot open %s", dir);
	if (asprintf(&name, "%s/" STORE_DIR, dir) < 0)
		return dj_fail(err, 1, "out of memory");
	store = dj_store_open(name, false);
	free(name);
	if (store < 0)
		return errno == ENOENT
			       ? 0
			       : dj_fail_errno(err, 1, "cannot open the module store in %s", dir);
	while ((r = flock(store, LOCK_EX)) && errno == EINTR)
		;
	if (r)
		r = dj_fail_errno(err, 1, "cannot lock the module store in %s", dir);
	else
		r = note_all(dir, &used, err);
	if (!r)
		r = remove_unused(store, &used, result, err);
	free(used.v);
	close(store);
	return r;
}
