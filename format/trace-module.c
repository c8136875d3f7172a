/*
 * The trace writer's modules: whole files, in pieces.
 */
#include "format/store.h"

#include <elf.h>
#include <stdlib.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#define BLOCK ((size_t)512 << 10) /* of a file, read at once */

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Search the notes in [p, end) for NT_GNU_BUILD_ID (ELF gABI, note section format). */
static unsigned id_in_notes(uint8_t id[32], struct dj_in in)
{
	while (in.p != in.end) {
		uint32_t namesz = dj_in32(&in), descsz = dj_in32(&in), type = dj_in32(&in);
		const uint8_t *name = dj_in_bytes(&in, ((size_t)namesz + 3) & ~(size_t)3);
		const uint8_t *desc = dj_in_bytes(&in, ((size_t)descsz + 3) & ~(size_t)3);

		if (in.bad)
			return 0;
		if (type == NT_GNU_BUILD_ID && namesz == 4 && !memcmp(name, "GNU", 4) && descsz) {
			memcpy(id, desc, min_size(descsz, 32));
			return (unsigned)min_size(descsz, 32);
		}
	}
	return 0;
}

/* Field offsets of Elf64_Ehdr and Elf64_Phdr are used rather than the structs, so that
 * alignment and byte order do not matter. */
static unsigned id_in_elf(uint8_t id[32], const uint8_t *bytes, size_t size)
{
	struct dj_in headers;
	uint64_t at;
	unsigned n;

	if (size < sizeof(Elf64_Ehdr) || memcmp(bytes, ELFMAG, SELFMAG) ||
	    bytes[EI_CLASS] != ELFCLASS64 || bytes[EI_DATA] != ELFDATA2LSB)
		return 0;
	at = dj_get64(bytes + offsetof(Elf64_Ehdr, e_phoff));
	n = dj_get16(bytes + offsetof(Elf64_Ehdr, e_phnum));
	if (at > size)
		return 0;
	headers = (struct dj_in){ bytes + at, bytes + size, false };
	while (n-- > 0) {
		const uint8_t *ph = dj_in_bytes(&headers, sizeof(Elf64_Phdr));
		uint64_t offset, len;
		unsigned got;

		if (!ph)
			return 0;
		offset = dj_get64(ph + offsetof(Elf64_Phdr, p_offset));
		len = dj_get64(ph + offsetof(Elf64_Phdr, p_filesz));
		if (dj_get32(ph) != PT_NOTE || offset > size || len > size - offset)
			continue;
		got = id_in_notes(id,
				  (struct dj_in){ bytes + offset, bytes + offset + len, false });
		if (got)
			return got;
	}
	return 0;
}

/* The GNU build id of an ELF file, or else a hash of its contents. Returns its length. */
static unsigned find_build_id(uint8_t id[32], const void *contents, size_t size)
{
	unsigned n = id_in_elf(id, contents, size);
	XXH128_canonical_t hash;

	if (n)
		return n;
	XXH128_canonicalFromHash(&hash, XXH3_128bits(contents, size));
	memcpy(id, hash.digest, sizeof(hash.digest));
	return sizeof(hash.digest);
}

/* ---- whole contents ------------------------------------------------------------------------- */

/* What is to be written, and what is said of it. */
struct contents {
	int fd; /* where the bytes are, too; or -1 */
	const void *bytes;
	size_t size;
	uint64_t sum;		 /* dj_chunk_sum(), without a seed */
	struct dj_store_key key; /* if there is a store, or packed modules are kept */
	bool known;		 /* both, from an earlier recording */
};

/* Whether packed modules are kept for later traces, and this is worth it. */
static bool is_kept(const struct dj_writer *w, const struct contents *c)
{
	return w->store < 0 && w->packed >= 0 && c->size >= WRITER_PACKED_MIN;
}

/* Sums that grow by what is read. */
struct sums {
	XXH3_state_t *chunk, *key;
	uint8_t *block;
};

static bool begin_sums(struct sums *s)
{
	s->chunk = XXH3_createState();
	s->key = XXH3_createState();
	s->block = malloc(BLOCK);
	return s->chunk && s->key && s->block && XXH3_64bits_reset(s->chunk) == XXH_OK &&
	       XXH3_128bits_reset(s->key) == XXH_OK;
}

static void end_sums(struct sums *s)
{
	XXH3_freeState(s->chunk);
	XXH3_freeState(s->key);
	free(s->block);
}

/* By reading the file block by block. To look at all of it where it is mapped takes several times
 * as long: a page fault for every few pages, and more for each page where a hypervisor keeps the
 * tables. False if it is shorter than it was. */
static bool sums_of_file(struct contents *c, bool store, struct sums *s)
{
	XXH128_canonical_t hash;

	for (size_t at = 0; at < c->size;) {
		ssize_t n = pread(c->fd, s->block, min_size(c->size - at, BLOCK), (off_t)at);

		if (n <= 0)
			return false;
		XXH3_64bits_update(s->chunk, s->block, (size_t)n);
		if (store)
			XXH3_128bits_update(s->key, s->block, (size_t)n);
		at += (size_t)n;
	}
	c->sum = XXH3_64bits_digest(s->chunk);
	XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(s->key));
	memcpy(c->key.hash, hash.digest, sizeof(c->key.hash));
	c->key.size = c->size;
	return true;
}

static void sum_up(struct dj_writer *w, struct contents *c)
{
	bool store = w->store >= 0 || is_kept(w, c), good = false;
	struct sums s = { 0 };

	if (c->known)
		return;
	if (c->fd >= 0)
		good = begin_sums(&s) && sums_of_file(c, store, &s);
	end_sums(&s);
	if (good)
		return;
	c->sum = dj_chunk_sum(0, c->bytes, c->size);
	if (store)
		dj_store_key(&c->key, c->bytes, c->size);
}

/* ---- what is known of a file ------------------------------------------------------------------
 */

static bool may_be_known(const struct dj_writer *w, const struct contents *c)
{
	return w->packed >= 0 && c->fd >= 0 && c->size >= WRITER_PACKED_MIN;
}

/* The file is what an earlier recording says it is. */
static bool is_known(struct dj_writer *w, struct contents *c, struct dj_writer_module *m)
{
	struct dj_known k;
	uint8_t id[32];
	unsigned n;

	if (!may_be_known(w, c) || !dj_known_read(w->packed, c->fd, &k) || k.key.size != c->size)
		return false;
	n = id_in_elf(id, c->bytes, c->size);
	if (n && (n != k.build_id_len || memcmp(id, k.build_id, n) != 0))
		return false;
	memcpy(m->build_id, k.build_id, k.build_id_len);
	m->build_id_len = k.build_id_len;
	c->key = k.key;
	c->sum = k.sum;
	c->known = true;
	return true;
}

static void note_known(struct dj_writer *w, int fd, const struct stat *before,
		       const struct contents *c, const struct dj_writer_module *m)
{
	struct dj_known k = { .key = c->key, .sum = c->sum, .build_id_len = m->build_id_len };

	memcpy(k.build_id, m->build_id, m->build_id_len);
	dj_known_write(w->packed, fd, before, &k);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_module_info(struct dj_writer *w, uint32_t number, const struct dj_writer_module *m,
			     const struct contents *c, struct dj_error *err)
{
	struct dj_chunk_header h = { .type = CHUNK_MODULE, .stream = number, .last = c->size };
	size_t path_len = strnlen(m->path, DJ_NAME_MAX - 1);
	uint8_t payload[8 + 8 + 1 + 32 + DJ_NAME_MAX], *p = payload;

	p = dj_put64(p, c->size);
	p = dj_put64(p, c->sum);
	*p++ = m->build_id_len;
	memcpy(p, m->build_id, 32);
	p += 32;
	memcpy(p, m->path, path_len);
	p += path_len;
	return dj_writer_chunk(w, &h, payload, (size_t)(p - payload), err);
}

int dj_writer_pieces(struct dj_writer *w, uint32_t module, const void *contents, size_t size,
		     struct dj_error *err)
{
	return dj_writer_pieces_from(w, module, 1, 0, contents, size, err);
}

int dj_writer_pieces_from(struct dj_writer *w, uint32_t module, uint32_t number, size_t at,
			  const void *contents, size_t size, struct dj_error *err)
{
	for (; at < size; number++) {
		size_t n = min_size(size - at, WRITER_MODULE);
		struct dj_chunk_header h = { .type = CHUNK_MODULE_DATA,
					     .stream = module,
					     .number = number,
					     .first = at,
					     .last = at + n };

		if (dj_writer_chunk(w, &h, (const uint8_t *)contents + at, n, err))
			return -1;
		at += n;
	}
	return 0;
}

int dj_writer_pieces_packed(struct dj_writer *w, uint32_t module, const struct dj_store_file *f,
			    struct dj_error *err)
{
	for (size_t i = 0; i < f->chunks.n; i++) {
		const struct dj_reader_chunk *c = &f->chunks.v[i];
		struct dj_chunk_header h = c->h;

		h.stream = module;
		if (dj_writer_chunk_packed(w, &h, f->file + c->at, err))
			return -1;
	}
	return 0;
}

int dj_writer_pieces_kept(struct dj_writer *w, uint32_t module, const struct dj_store_key *key,
			  const void *contents, size_t size, struct dj_error *err)
{
	struct dj_store_file f = { .key = *key };
	int r;

	if (!key->size || dj_store_keep(w->packed, key, contents) || dj_store_read(w->packed, &f))
		return dj_writer_pieces(w, module, contents, size, err);
	w->packed_more = true;
	r = dj_writer_pieces_packed(w, module, &f, err);
	dj_store_unmap(&f);
	return r;
}

/* Put the contents into the module store, and where they are into the trace. 1: that cannot be. */
static int store_module(struct dj_writer *w, uint32_t module, const struct contents *c,
			struct dj_error *err)
{
	struct dj_chunk_header h = { .type = CHUNK_STORED, .stream = module, .number = 1 };
	char name[STORE_NAME_LEN + 1];
	bool there;
	int r = 1;

	/* until the trace says so nothing else keeps the file from being removed */
	if (w->store < 0 || flock(w->store, LOCK_SH | LOCK_NB))
		return 1;
	dj_store_name(name, &c->key);
	there = c->known ? !faccessat(w->store, name, R_OK, AT_SYMLINK_NOFOLLOW)
			 : !dj_store_put(w->store, &c->key, c->bytes);
	if (there)
		r = dj_writer_chunk(w, &h, c->key.hash, sizeof(c->key.hash), err);
	flock(w->store, LOCK_UN);
	return r;
}

/* Into the trace, soon if there is a copy, or now. */
static int pieces(struct dj_writer *w, uint32_t module, void *copy, const struct contents *c,
		  struct dj_error *err)
{
	struct dj_writer_later l = { .module = module, .size = c->size, .bytes = copy };

	if (is_kept(w, c))
		l.key = c->key;
	if (!copy)
		return dj_writer_pieces_kept(w, module, &l.key, c->bytes, c->size, err);
	return dj_writer_pieces_later(w, &l) ? 0 : dj_writer_pieces_now(w, &l, err);
}

/* The contents, whose sums are known, as an earlier trace has packed them. NULL: none has. */
static struct dj_store_file *kept(struct dj_writer *w, const struct contents *c)
{
	struct dj_store_file *f = calloc(1, sizeof(*f));

	if (f)
		f->key = c->key;
	if (f && dj_store_read(w->packed, f)) {
		free(f);
		return NULL;
	}
	return f;
}

static int write_kept(struct dj_writer *w, uint32_t module, struct dj_store_file *f,
		      struct dj_error *err)
{
	struct dj_writer_later l = { .module = module, .packed = f, .size = f->len };

	return dj_writer_pieces_later(w, &l) ? 0 : dj_writer_pieces_now(w, &l, err);
}

/* Contents that are known, and lie there packed: nothing of them is read now. 1: they do not. */
static int write_known(struct dj_writer *w, uint32_t module, const struct dj_writer_module *m,
		       const struct contents *c, struct dj_error *err)
{
	struct dj_writer_later l = { .module = module, .key = c->key, .path = m->path };

	l.kept = dj_store_open_kept(w->packed, &c->key);
	l.file = l.kept < 0 ? -1 : fcntl(c->fd, F_DUPFD_CLOEXEC, 3);
	if (l.file < 0 || write_module_info(w, module, m, c, err)) {
		int r = l.file < 0 ? 1 : -1;

		if (l.kept >= 0)
			close(l.kept);
		if (l.file >= 0)
			close(l.file);
		return r;
	}
	return dj_writer_pieces_later(w, &l) ? 0 : dj_writer_pieces_now(w, &l, err);
}

/* With the lock on facts held. */
static int write_module(struct dj_writer *w, const char *path, struct contents *c,
			struct dj_writer_module *m, struct dj_error *err)
{
	uint32_t module = (uint32_t)w->nmodules;
	struct dj_store_file *packed;
	void *copy;
	int r;

	for (size_t i = 0; i < w->nmodules; i++)
		if (w->modules[i].build_id_len == m->build_id_len &&
		    !memcmp(w->modules[i].build_id, m->build_id, m->build_id_len) &&
		    !strcmp(w->modules[i].path, path))
			return (int)i;
	if (dj_writer_grow((void **)&w->modules, w->nmodules, sizeof(*m)) ||
	    !(m->path = strdup(path)))
		return dj_writer_no_memory(w, err);
	w->modules[w->nmodules++] = *m;
	if (is_kept(w, c) && c->known) {
		r = write_known(w, module, m, c, err);
		if (r <= 0)
			return r ? -1 : (int)module;
		c->known = false;
	}
	/* what nobody has compared with its key is not put anywhere under it */
	if (w->store >= 0 && c->known)
		c->known = dj_store_has(w->store, &c->key);
	if (is_kept(w, c)) {
		sum_up(w, c);
		packed = kept(w, c);
		if (packed) {
			r = write_module_info(w, module, m, c, err);
			return write_kept(w, module, packed, err) || r ? -1 : (int)module;
		}
	}
	copy = w->store < 0 ? dj_writer_copy(w, c->fd, c->bytes, c->size) : NULL;
	if (copy) {
		c->bytes = copy;
		c->fd = -1;
	}
	sum_up(w, c);
	if (write_module_info(w, module, m, c, err)) {
		dj_writer_copy_free(copy, c->size);
		return -1;
	}
	r = store_module(w, module, c, err);
	if (r > 0)
		r = pieces(w, module, copy, c, err);
	return r ? -1 : (int)module;
}

int dj_writer_module_file(struct dj_writer *w, const char *path, int fd, const void *contents,
			  size_t size, struct dj_error *err)
{
	struct contents c = { .fd = fd, .bytes = contents, .size = size };
	struct dj_writer_module m = { 0 };
	struct stat before;
	bool settled;
	int number;

	if (size > MODULE_SIZE_MAX)
		return dj_fail(err, 1, "%s: too large to store in a trace", path);
	settled = !is_known(w, &c, &m) && may_be_known(w, &c) && dj_known_settled(fd, &before);
	if (!c.known)
		m.build_id_len = (uint8_t)find_build_id(m.build_id, contents, size);
	pthread_mutex_lock(&w->facts);
	number = write_module(w, path, &c, &m, err);
	pthread_mutex_unlock(&w->facts);
	if (number >= 0 && settled && c.key.size)
		note_known(w, fd, &before, &c, &m);
	return number;
}

int dj_writer_module(struct dj_writer *w, const char *path, const void *contents, size_t size,
		     struct dj_error *err)
{
	return dj_writer_module_file(w, path, -1, contents, size, err);
}
