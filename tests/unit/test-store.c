/*
 * The module store: traces that share their modules, what becomes of them when the store is gone,
 * damaged or hostile, and making them whole again.
 */
#include "format/store.h"
#include "tests/lib/suites.h"
#include "tests/lib/trace-sample.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED 20241121
#define SIZE 2500000u /* of the module: three pieces */

static const struct dj_trace_meta meta;
static char dir[64], store[80], first[80], second[80], whole[80];
static uint8_t contents[SIZE];

/* ---- files ------------------------------------------------------------------------------ */

static void empty(const char *name)
{
	char path[400];
	struct dirent *e;
	DIR *d = opendir(name);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", name, e->d_name);
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && unlink(path))
			rmdir(path);
	}
	if (d)
		closedir(d);
}

static void fresh(void)
{
	empty(store);
	empty(dir);
}

/* Files in the store, and the name of one of them. */
static unsigned files(char *path, size_t size)
{
	unsigned n = 0;
	struct dirent *e;
	DIR *d = opendir(store);

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && ++n && path)
			snprintf(path, size, "%s/%s", store, e->d_name);
	if (d)
		closedir(d);
	return n;
}

static void spill(const char *path, const void *bytes, size_t len)
{
	FILE *f = fopen(path, "wb");

	if (!f || (len && fwrite(bytes, len, 1, f) != 1) || fclose(f))
		abort();
}

static uint64_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (uint64_t)st.st_size;
}

/* ---- traces ------------------------------------------------------------------------------ */

/* A trace with the module twice, by two names, and another that is empty. */
static int write_trace(const char *path, struct dj_error *err)
{
	struct dj_trace_end end = { .present = true, .steps = 7 };
	struct dj_record rec = { .kind = DJ_REC_DIGEST, .steps = 7 };
	struct dj_writer *w = dj_writer_create_sharing(path, &meta, err);
	struct dj_stream *p = w ? dj_writer_process(w, 1, NULL, err) : NULL,
			 *s = p ? dj_writer_thread(w, p, 1, "one", err) : NULL;
	int r = 0;

	if (!w)
		return -1;
	if (!s || dj_writer_module(w, "/a", contents, SIZE, err) != 0 ||
	    dj_stream_record(s, &rec, err) || dj_writer_module(w, "/b", contents, SIZE, err) != 1 ||
	    dj_writer_module(w, "/empty", contents, 0, err) != 2)
		r = -1;
	return dj_writer_close(w, &end, r ? NULL : err) || r ? -1 : 0;
}

static void write_good(const char *path)
{
	struct dj_error err = { 0 };

	CU_ASSERT_EQUAL_FATAL(write_trace(path, &err), 0);
}

/* All that it should be. */
static void check_trace(const char *path)
{
	struct dj_error err = { 0 };
	struct dj_trace *t = dj_trace_open(path, &err);
	const uint8_t *bytes;
	size_t size;

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NULL(dj_trace_damage(t));
	CU_ASSERT_PTR_NULL(dj_trace_missing(t));
	CU_ASSERT_EQUAL_FATAL(dj_trace_modules(t), 3);
	for (size_t i = 0; i < 2; i++) {
		bytes = dj_trace_module_bytes(t, i, &size, &err);
		CU_ASSERT_FATAL(bytes && size == SIZE && !memcmp(bytes, contents, SIZE));
	}
	CU_ASSERT(dj_trace_module_bytes(t, 2, &size, &err) && !size);
	CU_ASSERT_EQUAL(dj_trace_thread(t, 0)->records, 1);
	CU_ASSERT_EQUAL(dj_trace_end(t)->steps, 7);
	dj_trace_close(t);
}

/* Something is missing in the store; what, is said. */
static void check_missing(const char *path, const char *why)
{
	struct dj_error err = { 0 };
	struct dj_trace *t = dj_trace_open(path, &err);
	size_t size;

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NULL(dj_trace_damage(t)); /* of the trace */
	CU_ASSERT_PTR_NULL(dj_trace_module_bytes(t, 0, &size, &err));
	CU_ASSERT_PTR_NOT_NULL_FATAL(dj_trace_missing(t));
	CU_ASSERT_PTR_NOT_NULL(strstr(dj_trace_missing(t), why));
	CU_ASSERT_PTR_NOT_NULL(strstr(dj_trace_missing(t), "deja pack"));
	CU_ASSERT(err.exit_status == 2 && strstr(err.text, why));
	CU_ASSERT_EQUAL(dj_trace_pack(t, whole, &err), -1);
	CU_ASSERT(access(whole, F_OK) && err.exit_status == 2);
	dj_trace_close(t);
}

/* ---- sharing ------------------------------------------------------------------------------- */

static void test_share(void)
{
	struct dj_error err = { 0 };
	struct dj_trace *t;
	struct stat st;
	uint64_t bytes;
	size_t n;
	char path[400];

	fresh();
	write_good(first);
	CU_ASSERT_EQUAL(files(path, sizeof(path)), 2);
	CU_ASSERT(!stat(path, &st) && S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0600);
	CU_ASSERT(!stat(store, &st) && (st.st_mode & 07777) == 0700);
	write_good(second);
	CU_ASSERT_EQUAL(files(NULL, 0), 2);
	CU_ASSERT(size_of(first) < 2000 && size_of(second) < 2000);
	check_trace(first);
	check_trace(second);
	t = dj_trace_open(first, &err);
	CU_ASSERT(t && !strcmp(dj_trace_store(t, &n, &bytes), store) && n == 2 && bytes > SIZE / 4);
	CU_ASSERT(dj_trace_module(t, 0)->stored);
	/* two modules of the same contents take memory once */
	CU_ASSERT(dj_trace_module_bytes(t, 0, &n, &err) == dj_trace_module_bytes(t, 1, &n, &err));
	dj_trace_close(t);
}

/* What one module's description says of the contents is nothing to another in the same file. */
static void test_description(void)
{
	uint8_t info[49] = { 0 };
	struct dj_chunk_header described = { .type = CHUNK_MODULE, .stream = 1, .last = SIZE };
	struct dj_chunk_header stored = { .type = CHUNK_STORED, .stream = 1, .number = 1 };
	struct dj_error err = { 0 };
	struct dj_store_key key;
	struct dj_trace *t;
	struct dj_writer *w;
	const uint8_t *bytes;
	size_t size;

	fresh();
	dj_store_key(&key, contents, SIZE);
	dj_put64(info, SIZE);
	w = dj_writer_create_sharing(first, &meta, &err);
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", contents, SIZE, &err), 0);
	CU_ASSERT(!dj_writer_chunk(w, &described, info, sizeof(info), &err) &&
		  !dj_writer_chunk(w, &stored, key.hash, sizeof(key.hash), &err) &&
		  !dj_writer_close(w, NULL, &err));
	t = dj_trace_open(first, &err);
	bytes = dj_trace_module_bytes(t, 0, &size, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
	CU_ASSERT_PTR_NULL(dj_trace_module_bytes(t, 1, &size, &err));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "checksum"));
	CU_ASSERT_PTR_NULL(dj_trace_missing(t));
	CU_ASSERT_EQUAL(memcmp(bytes, contents, SIZE), 0);
	CU_ASSERT_PTR_EQUAL(dj_trace_module_bytes(t, 0, &size, &err), bytes);
	dj_trace_close(t);
}

/* By whatever name it is opened, the store is where the trace is. */
static void test_names(void)
{
	char path[400], link[100];

	fresh();
	write_good(first);
	snprintf(link, sizeof(link), "/tmp/deja-test-store-link-%d", (int)getpid());
	CU_ASSERT_EQUAL(symlink(first, link), 0);
	check_trace(link);
	unlink(link);
	CU_ASSERT_EQUAL_FATAL(chdir(dir), 0);
	check_trace("first.deja");
	CU_ASSERT_EQUAL_FATAL(chdir("/"), 0);
	snprintf(path, sizeof(path), "/tmp/deja-test-store-moved-%d", (int)getpid());
	CU_ASSERT_EQUAL(rename(first, path), 0);
	check_missing(path, "is not there");
	unlink(path);
}

/* Writers at the same time: one good file, and nothing else is left. */
static void test_together(void)
{
	enum { WRITERS = 6 };
	pid_t child[WRITERS];
	char path[400];

	fresh();
	for (int i = 0; i < WRITERS; i++) {
		child[i] = fork();
		if (child[i])
			continue;
		struct dj_error err = { 0 };
		snprintf(path, sizeof(path), "%s/%d.deja", dir, i);
		_exit(write_trace(path, &err) ? 1 : 0);
	}
	for (int i = 0; i < WRITERS; i++) {
		int status = -1;

		waitpid(child[i], &status, 0);
		CU_ASSERT_EQUAL(status, 0);
		snprintf(path, sizeof(path), "%s/%d.deja", dir, i);
		check_trace(path);
	}
	CU_ASSERT_EQUAL(files(NULL, 0), 2);
}

/* Where the store cannot be had or has no room, the trace is whole by itself. */
static void test_no_store(void)
{
	struct rlimit old, now;
	struct dj_error err = { 0 };
	int fd;

	fresh();
	rmdir(store);
	CU_ASSERT_EQUAL(symlink("/tmp", store), 0);
	write_good(first);
	unlink(store);
	check_trace(first);
	CU_ASSERT(size_of(first) > SIZE / 2);

	/* somebody is removing files from it */
	CU_ASSERT_EQUAL(mkdir(store, 0700), 0);
	fd = open(store, O_RDONLY | O_DIRECTORY);
	CU_ASSERT_EQUAL(flock(fd, LOCK_EX), 0);
	write_good(first);
	close(fd);
	CU_ASSERT_EQUAL(files(NULL, 0), 0);
	check_trace(first);

	getrlimit(RLIMIT_FSIZE, &old);
	now = old;
	now.rlim_cur = 300000;
	setrlimit(RLIMIT_FSIZE, &now);
	CU_ASSERT_EQUAL(write_trace(second, &err), -1);
	setrlimit(RLIMIT_FSIZE, &old);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, strerror(EFBIG)));
	CU_ASSERT_EQUAL(files(NULL, 0), 0);
}

/* ---- damaged and hostile stores ------------------------------------------------------------- */

static void store_file(char *path, size_t size)
{
	char name[STORE_NAME_LEN + 1];
	struct dj_store_key key;

	dj_store_key(&key, contents, SIZE);
	dj_store_name(name, &key);
	snprintf(path, size, "%s/%s", store, name);
}

/* Whatever becomes of a byte, nothing wrong is served; the next recording puts it right. */
static void test_damage(void)
{
	char path[400];
	size_t len, left;
	uint8_t *bytes;

	fresh();
	write_good(first);
	store_file(path, sizeof(path));
	bytes = sample_read(path, &len);
	for (size_t at = 0; at < len; at += at < 200 ? 7 : 60013) {
		bytes[at] ^= 0x10;
		spill(path, bytes, len);
		bytes[at] ^= 0x10;
		check_missing(first, "is damaged");
	}
	for (size_t n = 1; n < len; n += n < 200 ? 31 : 90001) {
		spill(path, bytes, n);
		check_missing(first, "is damaged");
	}
	spill(path, bytes, 0);
	check_missing(first, "is empty");
	write_good(second);
	check_trace(first);
	uint8_t *again = sample_read(path, &left);
	CU_ASSERT(left == len && !memcmp(again, bytes, len)); /* whoever writes it */
	free(again);
	/* more than there should be */
	uint8_t *longer = realloc(bytes, len + 1);
	longer[len] = 0;
	spill(path, longer, len + 1);
	check_missing(first, "is damaged");
	free(longer);
}

static void test_hostile(void)
{
	char path[400], other[420];
	struct dj_store_key key;

	fresh();
	write_good(first);
	store_file(path, sizeof(path));
	snprintf(other, sizeof(other), "%s-elsewhere", path);
	rename(path, other);
	CU_ASSERT_EQUAL(symlink(other, path), 0);
	check_missing(first, "is a link");
	unlink(path);
	CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
	check_missing(first, "is not a regular file"); /* and nobody waits for a writer */
	unlink(path);
	CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
	check_missing(first, "is not a regular file");
	rmdir(path);
	check_missing(first, "is not there");

	/* a good file in form, with other contents */
	dj_store_key(&key, contents, SIZE);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	uint8_t header[FILE_HEADER_SIZE];
	struct dj_writer *w = dj_writer_on(fd, dj_get64(key.hash), path);
	dj_store_header_pack(header, dj_get64(key.hash));
	contents[SIZE - 1] ^= 1;
	CU_ASSERT(!dj_writer_append(w, header, sizeof(header), NULL) &&
		  !dj_writer_pieces(w, 0, contents, SIZE, NULL) && !dj_writer_free(w, NULL));
	contents[SIZE - 1] ^= 1;
	check_missing(first, "other contents");
	unlink(path);
	unlink(other);

	/* the store itself is elsewhere */
	empty(store);
	snprintf(other, sizeof(other), "%s-elsewhere", store);
	write_good(first);
	check_trace(first);
	CU_ASSERT(!rename(store, other) && !symlink(other, store));
	check_missing(first, "is not there");
	CU_ASSERT(!unlink(store) && !rename(other, store));
	check_trace(first);
}

/* ---- whole again ----------------------------------------------------------------------------- */

static int pack(const char *from, const char *to)
{
	struct dj_error err = { 0 };
	struct dj_trace *t = dj_trace_open(from, &err);
	int r = t ? dj_trace_pack(t, to, &err) : -1;

	dj_trace_close(t);
	return r;
}

static void test_pack(void)
{
	uint8_t *a, *b;
	size_t na, nb;
	struct stat st;

	fresh();
	write_good(first);
	CU_ASSERT_EQUAL(pack(first, whole), 0);
	CU_ASSERT(size_of(first) < 2000 && size_of(whole) > SIZE / 2);
	CU_ASSERT(!stat(whole, &st) && (st.st_mode & 07777) == 0600);
	chmod(first, 0640);
	CU_ASSERT_EQUAL(pack(first, first), 0);
	CU_ASSERT(!stat(first, &st) && (st.st_mode & 07777) == 0640);
	empty(store);
	check_trace(whole);
	check_trace(first);
	a = sample_read(first, &na);
	b = sample_read(whole, &nb);
	CU_ASSERT(na == nb && !memcmp(a, b, na));
	CU_ASSERT_EQUAL(dj_get32(a + 8), DJ_TRACE_VERSION);
	free(b);
	/* of one that is whole the same comes out */
	CU_ASSERT_EQUAL(pack(first, second), 0);
	b = sample_read(second, &nb);
	CU_ASSERT(na == nb && !memcmp(a, b, na));
	free(a);
	free(b);
}

/* What is cut or damaged is as cut and damaged when it is whole. */
static void test_pack_damaged(void)
{
	size_t len;
	uint8_t *bytes;

	fresh();
	write_good(first);
	bytes = sample_read(first, &len);
	for (size_t at = 150, n = 0; at < len; at += 37, n++) {
		struct dj_error err = { 0 };
		struct dj_trace *before, *after;
		size_t size;

		if (n % 2) {
			spill(second, bytes, at);
		} else {
			bytes[at] ^= 1;
			spill(second, bytes, len);
			bytes[at] ^= 1;
		}
		before = dj_trace_open(second, &err);
		if (!before) /* in its description */
			continue;
		CU_ASSERT_PTR_NOT_NULL(dj_trace_damage(before));
		unlink(whole);
		if (dj_trace_pack(before, whole, &err)) {
			CU_ASSERT_EQUAL(err.exit_status, 2);
			dj_trace_close(before);
			continue;
		}
		after = dj_trace_open(whole, &err);
		CU_ASSERT_FATAL(after && dj_trace_damage(after));
		CU_ASSERT_EQUAL(dj_trace_modules(after), dj_trace_modules(before));
		CU_ASSERT_EQUAL(dj_trace_threads(after), dj_trace_threads(before));
		CU_ASSERT_EQUAL(dj_trace_end(after)->present, dj_trace_end(before)->present);
		for (size_t i = 0; i < dj_trace_modules(before); i++)
			CU_ASSERT_EQUAL(!dj_trace_module_bytes(before, i, &size, NULL),
					!dj_trace_module_bytes(after, i, &size, NULL));
		CU_ASSERT(!dj_trace_store(after, &size, &(uint64_t){ 0 }));
		dj_trace_close(before);
		dj_trace_close(after);
	}
	free(bytes);
}

/* One file of the store, a great many times. */
static void test_pack_enormous(void)
{
	struct dj_error err = { 0 };
	struct dj_store_key key;
	struct dj_trace *t;
	struct dj_writer *w;
	size_t size;

	fresh();
	dj_store_key(&key, contents, SIZE);
	w = dj_writer_create_sharing(first, &meta, &err);
	CU_ASSERT_EQUAL(dj_writer_module(w, "/0", contents, SIZE, &err), 0);
	for (uint32_t i = 1; i < 1000; i++) {
		uint8_t info[49] = { 0 };
		struct dj_chunk_header described = { .type = CHUNK_MODULE, .stream = i };
		struct dj_chunk_header stored = { .type = CHUNK_STORED, .stream = i, .number = 1 };

		described.last = SIZE;
		dj_put64(info, SIZE);
		dj_put64(info + 8, dj_chunk_sum(0, contents, SIZE));
		if (dj_writer_chunk(w, &described, info, sizeof(info), &err) ||
		    dj_writer_chunk(w, &stored, key.hash, sizeof(key.hash), &err))
			break;
	}
	CU_ASSERT_EQUAL(dj_writer_close(w, NULL, &err), 0);
	t = dj_trace_open(first, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NOT_NULL(dj_trace_module_bytes(t, 999, &size, &err));
	CU_ASSERT_EQUAL(dj_trace_pack(t, whole, &err), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "too large to be true"));
	CU_ASSERT(access(whole, F_OK));
	dj_trace_close(t);
}

static void test_pack_refused(void)
{
	int fd;

	fresh();
	write_good(first);
	write_good(second);
	/* a recording that goes on */
	fd = open(second, O_WRONLY);
	CU_ASSERT_EQUAL(flock(fd, LOCK_EX), 0);
	CU_ASSERT_EQUAL(pack(first, second), -1);
	CU_ASSERT_EQUAL(pack(second, second), -1);
	close(fd);
	check_trace(second);
	CU_ASSERT_EQUAL(pack(first, dir), -1);
	CU_ASSERT_EQUAL(pack(first, "/no such directory/file"), -1);
	CU_ASSERT_EQUAL(mkfifo(whole, 0600), 0);
	CU_ASSERT_EQUAL(pack(first, whole), -1);
}

/* ---- removing ----------------------------------------------------------------------------------
 */

static void test_prune(void)
{
	struct dj_store_pruned result;
	struct dj_error err = { 0 };
	char path[400];
	size_t len;
	uint8_t *bytes;

	fresh();
	CU_ASSERT(!dj_store_prune(dir, &result, &err) && !result.removed && !result.kept);
	CU_ASSERT_EQUAL(dj_store_prune("/no such directory", &result, &err), -1);
	write_good(first);
	contents[0] ^= 1;
	write_good(second);
	contents[0] ^= 1;
	snprintf(path, sizeof(path), "%s/.new-0123456789abcdef", store);
	spill(path, "left by one that was killed", 27);
	snprintf(path, sizeof(path), "%s/README", store);
	spill(path, "not ours", 8);
	snprintf(path, sizeof(path), "%s/other.deja", dir);
	spill(path, "", 0); /* about to be recorded */
	CU_ASSERT_EQUAL(files(NULL, 0), 5);
	CU_ASSERT(!dj_store_prune(dir, &result, &err) && result.removed == 1 && result.kept == 3);
	check_trace(first);
	unlink(second);
	CU_ASSERT(!dj_store_prune(dir, &result, &err) && result.removed == 1 && result.kept == 2);
	CU_ASSERT(result.bytes > SIZE / 4);
	check_trace(first);

	/* one that is being written keeps what it has said so far */
	bytes = sample_read(first, &len);
	spill(first, bytes, len - 300);
	CU_ASSERT(!dj_store_prune(dir, &result, &err) && !result.removed && result.kept == 2);
	/* one of a later version: nobody knows */
	dj_file_header_pack(bytes, DJ_TRACE_VERSION_SHARED + 1, 1);
	spill(second, bytes, len);
	unlink(first);
	CU_ASSERT(dj_store_prune(dir, &result, &err) && strstr(err.text, "nothing is removed"));
	CU_ASSERT_EQUAL(files(NULL, 0), 3);
	unlink(second);
	CU_ASSERT(!dj_store_prune(dir, &result, &err) && result.removed == 2 && !result.kept);
	free(bytes);
}

/* Recordings and a removal, again and again: every trace finds its modules. */
static void test_prune_together(void)
{
	struct dj_store_pruned result;
	struct dj_error err = { 0 };
	int status = -1;
	pid_t child;

	fresh();
	child = fork();
	if (!child) {
		for (int i = 0; i < 60; i++) {
			unlink(first);
			unlink(second);
			if (write_trace(i % 2 ? first : second, &err))
				_exit(1);
			struct dj_trace *t = dj_trace_open(i % 2 ? first : second, &err);
			if (!t || dj_trace_missing(t))
				_exit(2);
			dj_trace_close(t);
		}
		_exit(0);
	}
	while (!waitpid(child, &status, WNOHANG))
		CU_ASSERT_EQUAL(dj_store_prune(dir, &result, &err), 0);
	CU_ASSERT_EQUAL(status, 0);
}

int main(void)
{
	CU_TestInfo sharing[] = { { "shared", test_share },
				  { "two descriptions", test_description },
				  { "names of the trace", test_names },
				  { "several at once", test_together },
				  { "no store", test_no_store },
				  CU_TEST_INFO_NULL };
	CU_TestInfo bad[] = { { "damaged", test_damage },
			      { "hostile", test_hostile },
			      CU_TEST_INFO_NULL };
	CU_TestInfo packing[] = { { "packed", test_pack },
				  { "packed with damage", test_pack_damaged },
				  { "not packed", test_pack_refused },
				  { "too large", test_pack_enormous },
				  CU_TEST_INFO_NULL };
	CU_TestInfo removing[] = { { "removed", test_prune },
				   { "removed while recording", test_prune_together },
				   CU_TEST_INFO_NULL };
	CU_SuiteInfo suites[] = { { "sharing", NULL, NULL, NULL, NULL, sharing },
				  { "bad stores", NULL, NULL, NULL, NULL, bad },
				  { "packing", NULL, NULL, NULL, NULL, packing },
				  { "removing", NULL, NULL, NULL, NULL, removing },
				  CU_SUITE_INFO_NULL };
	int failed;

	snprintf(dir, sizeof(dir), "/tmp/deja-test-store-%d", (int)getpid());
	snprintf(store, sizeof(store), "%s/" STORE_DIR, dir);
	snprintf(first, sizeof(first), "%s/first.deja", dir);
	snprintf(second, sizeof(second), "%s/second.deja", dir);
	snprintf(whole, sizeof(whole), "%s/whole.deja", dir);
	sample_module(contents, SIZE, 0, SEED);
	if (mkdir(dir, 0700))
		return 1;
	suites_begin();
	CU_register_suites(suites);
	failed = suites_run();
	fresh();
	rmdir(dir);
	return failed;
}
