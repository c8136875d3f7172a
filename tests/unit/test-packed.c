/*
 * Packed modules that lie there for later traces: they are taken and put there, what is bad is
 * written again, and a trace never depends on them. And notes of what files contain: they hold for
 * a file in the state in which it was read, and for no other.
 */
#include "format/store.h"
#include "tests/lib/suites.h"
#include "tests/lib/trace-sample.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SEED  20261125
#define SIZE  3000000u /* of the module: three pieces */
#define SMALL 1000000u
#define LARGE ((WRITER_LATER) + 5000000u) /* no copy of it is made */

static const struct dj_trace_meta meta;
static char dir[64], kept[80], trace[80];
static uint8_t contents[LARGE];

static int open_kept(void)
{
	return open(kept, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Where a module of so many bytes lies. */
static void name_kept(char path[160], size_t size)
{
	char name[STORE_NAME_LEN + 1];
	struct dj_store_key key;

	dj_store_key(&key, contents, size);
	dj_store_name(name, &key);
	snprintf(path, 160, "%s/%s", kept, name);
}

static unsigned files(void)
{
	unsigned n = 0;
	struct dirent *e;
	DIR *d = opendir(kept);

	while (d && (e = readdir(d)))
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	if (d)
		closedir(d);
	return n;
}

static void empty(void)
{
	char path[400];
	struct dirent *e;
	DIR *d = opendir(kept);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", kept, e->d_name);
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && unlink(path))
			rmdir(path);
	}
	if (d)
		closedir(d);
}

static void write_trace(size_t size)
{
	struct dj_error err = { 0 };
	struct dj_trace_end end = { .present = true };
	struct dj_writer *w = dj_writer_create(trace, &meta, &err);

	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	dj_writer_keep_packed(w, open_kept());
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", contents, size, &err), 0);
	CU_ASSERT_EQUAL(dj_writer_module(w, "/empty", contents, 0, &err), 1);
	CU_ASSERT_EQUAL(dj_writer_close(w, &end, &err), 0);
}

/* Whether the trace has the module, wherever else it lies. */
static bool has_module(size_t size)
{
	struct dj_error err = { 0 };
	struct dj_trace *t = dj_trace_open(trace, &err);
	size_t have = 0;
	const uint8_t *bytes;

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NULL(dj_trace_missing(t));
	bytes = dj_trace_module_bytes(t, 0, &have, &err);
	bool has = bytes && have == size && !memcmp(bytes, contents, size);
	dj_trace_close(t);
	return has;
}

static void good(size_t size, unsigned expected)
{
	char path[160];
	struct dj_store_file f = { 0 };
	int fd = open_kept();

	write_trace(size);
	CU_ASSERT(has_module(size));
	CU_ASSERT_EQUAL(files(), expected);
	dj_store_key(&f.key, contents, size);
	name_kept(path, size);
	CU_ASSERT_EQUAL(!dj_store_read(fd, &f), expected > 0);
	dj_store_unmap(&f);
	close(fd);
}

static void test_kept(void)
{
	char path[160];
	struct stat before, after;

	empty();
	good(SIZE, 1);
	name_kept(path, SIZE);
	CU_ASSERT_EQUAL_FATAL(stat(path, &before), 0);
	good(SIZE, 1);
	CU_ASSERT_EQUAL_FATAL(stat(path, &after), 0);
	CU_ASSERT_EQUAL(before.st_ino, after.st_ino);
	/* it has both of them still */
	empty();
	CU_ASSERT(has_module(SIZE));
	good(SMALL, 0);
	good(LARGE, 1);
	good(LARGE, 1);
	good(SIZE, 2);
}

/* What lies there is what is taken: a good file in form, with other contents. The trace knows
 * better. */
static void test_taken(void)
{
	struct dj_store_key key;
	int fd = open_kept();

	empty();
	dj_store_key(&key, contents, SIZE);
	contents[SIZE - 1] ^= 1;
	CU_ASSERT_EQUAL(dj_store_keep(fd, &key, contents), 0);
	contents[SIZE - 1] ^= 1;
	write_trace(SIZE);
	CU_ASSERT(!has_module(SIZE));
	close(fd);
	empty();
	good(SIZE, 1);
}

/* Bad files are written again, and lead nowhere. */
static void test_bad(void)
{
	char path[160], other[100];
	struct stat st;

	empty();
	good(SIZE, 1);
	name_kept(path, SIZE);
	CU_ASSERT_EQUAL_FATAL(stat(path, &st), 0);
	uint64_t seed = SEED;
	for (unsigned i = 0; i < 40; i++) { /* a byte is another */
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		int fd = open(path, O_RDWR);
		off_t at = (off_t)((seed >> 20) % (uint64_t)st.st_size);
		uint8_t byte = 0;
		CU_ASSERT_EQUAL(pread(fd, &byte, 1, at), 1);
		byte ^= 0x10;
		CU_ASSERT_EQUAL(pwrite(fd, &byte, 1, at), 1);
		close(fd);
		good(SIZE, 1);
	}
	for (unsigned i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(truncate(path, st.st_size * i / 10), 0);
		good(SIZE, 1);
	}
	CU_ASSERT_EQUAL(truncate(path, 1LL << 40), 0);
	good(SIZE, 1);
	unlink(path);
	CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
	good(SIZE, 1);
	snprintf(other, sizeof(other), "%s/elsewhere", dir);
	CU_ASSERT(!rename(path, other) && !symlink(other, path));
	good(SIZE, 1);
	CU_ASSERT(!lstat(path, &st) && S_ISREG(st.st_mode));
	unlink(other);
	/* where nothing can be put the trace is as good */
	unlink(path);
	CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
	write_trace(SIZE);
	CU_ASSERT(has_module(SIZE));
	rmdir(path);
	empty();
	CU_ASSERT_EQUAL(rmdir(kept), 0);
	write_trace(SIZE);
	CU_ASSERT(has_module(SIZE));
	CU_ASSERT_EQUAL(mkdir(kept, 0700), 0);
}

static void touch(const char *name, off_t size, time_t when)
{
	struct timespec times[2] = { { when, 0 }, { when, 0 } };
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", kept, name);
	int fd = open(path, O_WRONLY | O_CREAT, 0600);
	CU_ASSERT(fd >= 0 && !ftruncate(fd, size) && !futimens(fd, times));
	close(fd);
}

static bool there(const char *name)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", kept, name);
	return !access(path, F_OK);
}

static void test_trim(void)
{
	static const char *const names[] = { "000000000000000000000000000000000000000000000001",
					     "000000000000000000000000000000000000000000000002",
					     "000000000000000000000000000000000000000000000003" };
	time_t now = time(NULL);
	int fd = open_kept();

	empty();
	for (unsigned i = 0; i < 3; i++)
		touch(names[i], 1000, now - (i == 1 ? 9000 : 10 * (time_t)i));
	touch("mine", 100000, now - 100000);
	touch(".new-0000000000000001", 5000, now - 10000);
	touch(".new-0000000000000002", 5000, now);
	dj_store_trim(fd, 3000);
	CU_ASSERT(there(names[0]) && there(names[1]) && there(names[2]) && there("mine"));
	CU_ASSERT(!there(".new-0000000000000001") && there(".new-0000000000000002"));
	dj_store_trim(fd, 2999);
	CU_ASSERT(there(names[0]) && !there(names[1]) && there(names[2]));
	dj_store_trim(fd, 1000);
	CU_ASSERT(there(names[0]) && !there(names[2]));
	dj_store_trim(fd, 0);
	CU_ASSERT(!there(names[0]) && there("mine"));
	close(fd);
	empty();
}

/* ---- what is known of files ------------------------------------------------------------------ */

static char file[80]; /* a module, where the kernel notes what changes */

static int write_module_file(void)
{
	int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);

	CU_ASSERT(fd >= 0 && write(fd, contents, SIZE) == (ssize_t)SIZE);
	return fd;
}

/* Record the file; returns what dj_writer_close() does. */
static int write_trace_of(int fd, struct dj_error *err)
{
	struct dj_trace_end end = { .present = true };
	struct dj_writer *w = dj_writer_create(trace, &meta, err);

	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	dj_writer_keep_packed(w, open_kept());
	/* what is mapped is only looked at for the build id of what is known */
	CU_ASSERT_EQUAL(dj_writer_module_file(w, "/a", fd, contents, SIZE, err), 0);
	return dj_writer_close(w, &end, err);
}

static void known_of(struct dj_known *k)
{
	*k = (struct dj_known){ .sum = dj_chunk_sum(0, contents, SIZE), .build_id_len = 3 };
	memcpy(k->build_id, "abc", 3);
	dj_store_key(&k->key, contents, SIZE);
}

static bool known(int fd)
{
	struct dj_known k, expected;
	int directory = open_kept();
	bool is = dj_known_read(directory, fd, &k);

	known_of(&expected);
	if (is)
		CU_ASSERT(!memcmp(&k.key, &expected.key, sizeof(k.key)) && k.sum == expected.sum &&
			  k.build_id_len == 3 && !memcmp(k.build_id, "abc", 3));
	close(directory);
	return is;
}

static void note(int fd)
{
	struct dj_known k;
	struct stat st;
	int directory = open_kept();

	known_of(&k);
	CU_ASSERT_EQUAL(fstat(fd, &st), 0);
	dj_known_write(directory, fd, &st, &k);
	close(directory);
}

/* Any change of the file, also one behind which it has its old size and its old time. */
static void test_known(void)
{
	struct timespec times[2];
	struct dj_known k;
	struct stat st;
	int fd = write_module_file(), directory = open_kept();

	empty();
	CU_ASSERT(!known(fd));
	note(fd);
	CU_ASSERT(known(fd));
	CU_ASSERT(!fstat(fd, &st) && pwrite(fd, "x", 1, 5000) == 1);
	CU_ASSERT(!known(fd));
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	CU_ASSERT(!futimens(fd, times) && !known(fd));
	note(fd);
	CU_ASSERT(known(fd) && !ftruncate(fd, SIZE + 1) && !known(fd));
	/* changed while it was read */
	CU_ASSERT(!fstat(fd, &st) && !ftruncate(fd, SIZE));
	known_of(&k);
	dj_known_write(directory, fd, &st, &k);
	CU_ASSERT(!known(fd));
	note(fd);
	CU_ASSERT(known(fd));
	/* another one in its place */
	CU_ASSERT_EQUAL(unlink(file), 0);
	int other = write_module_file();
	CU_ASSERT(!known(other));
	CU_ASSERT_EQUAL(files(), 1);
	close(directory);
	close(other);
	close(fd);
}

static void name_known(char path[160], int fd)
{
	struct stat st;

	CU_ASSERT_EQUAL(fstat(fd, &st), 0);
	snprintf(path, 160, "%s/of-%016llx%016llx", kept, (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
}

/* A note that is damaged is none, and one that is no file. */
static void test_known_damaged(void)
{
	int fd = write_module_file(), directory = open_kept(), n;
	char path[160];
	struct stat st;

	empty();
	note(fd);
	name_known(path, fd);
	CU_ASSERT_EQUAL_FATAL(stat(path, &st), 0);
	for (off_t at = 0; at < st.st_size; at++) {
		uint8_t byte = 0;
		n = open(path, O_RDWR);
		CU_ASSERT_EQUAL(pread(n, &byte, 1, at), 1);
		byte ^= 1;
		CU_ASSERT_EQUAL(pwrite(n, &byte, 1, at), 1);
		CU_ASSERT(!known(fd));
		byte ^= 1;
		CU_ASSERT_EQUAL(pwrite(n, &byte, 1, at), 1);
		close(n);
	}
	CU_ASSERT(known(fd));
	CU_ASSERT(!truncate(path, st.st_size - 1) && !known(fd));
	CU_ASSERT(!truncate(path, 0) && !known(fd));
	note(fd);
	CU_ASSERT(!truncate(path, st.st_size + 1) && !known(fd));
	unlink(path);
	CU_ASSERT(!mkfifo(path, 0600) && !known(fd));
	note(fd);
	CU_ASSERT(known(fd) && !rename(path, file) && !symlink(file, path) && !known(fd));
	unlink(path);
	dj_store_trim(directory, 0);
	note(fd);
	CU_ASSERT(known(fd));
	dj_store_trim(directory, 0);
	CU_ASSERT(!known(fd));
	close(directory);
	close(fd);
}

/* A recording takes what is known, and reads the file only where it has to. */
static void test_known_taken(void)
{
	struct dj_store_key key;
	struct dj_error err = { 0 };
	int fd, directory = open_kept();
	char path[160];

	empty();
	/* it has just been written: nothing is noted */
	fd = write_module_file();
	CU_ASSERT(!write_trace_of(fd, &err) && has_module(SIZE));
	CU_ASSERT_EQUAL(files(), 1);
	/* nothing is read: it contains something else than is noted */
	contents[SIZE - 1] ^= 1;
	note(fd);
	dj_store_key(&key, contents, SIZE);
	CU_ASSERT_EQUAL(dj_store_keep(directory, &key, contents), 0);
	CU_ASSERT(!write_trace_of(fd, &err) && has_module(SIZE));
	/* what is packed is damaged, and cannot be made again */
	name_kept(path, SIZE);
	CU_ASSERT_EQUAL(truncate(path, SIZE / 8), 0);
	CU_ASSERT_EQUAL(write_trace_of(fd, &err), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "what /a contains is lost"));
	/* it is not there: the file is read */
	unlink(path);
	contents[SIZE - 1] ^= 1;
	CU_ASSERT(!write_trace_of(fd, &err) && has_module(SIZE));
	/* damaged, and made again of the file */
	note(fd);
	name_kept(path, SIZE);
	CU_ASSERT_EQUAL(truncate(path, SIZE / 8), 0);
	CU_ASSERT(!write_trace_of(fd, &err) && has_module(SIZE));
	struct dj_store_file f = { 0 };
	dj_store_key(&f.key, contents, SIZE);
	CU_ASSERT_EQUAL(dj_store_read(directory, &f), 0);
	dj_store_unmap(&f);
	close(directory);
	close(fd);
}

/* A file with another build id than was noted is another, whatever its times are. */
static void test_known_build_id(void)
{
	struct dj_error err = { 0 };
	struct dj_known k;
	struct stat st;
	uint8_t *elf = contents;
	int fd, directory = open_kept();

	empty();
	memset(elf, 0, 200);
	memcpy(elf, ELFMAG "\2\1\1", 7);
	dj_put64(elf + offsetof(Elf64_Ehdr, e_phoff), 64);
	dj_put16(elf + offsetof(Elf64_Ehdr, e_phnum), 1);
	dj_put32(elf + 64, PT_NOTE);
	dj_put64(elf + 64 + offsetof(Elf64_Phdr, p_offset), 128);
	dj_put64(elf + 64 + offsetof(Elf64_Phdr, p_filesz), 20);
	dj_put32(elf + 128, 4);
	dj_put32(elf + 132, 4);
	dj_put32(elf + 136, 3 /* NT_GNU_BUILD_ID */);
	memcpy(elf + 140, "GNU\0abcd", 8);
	fd = write_module_file();
	CU_ASSERT(!write_trace_of(fd, &err) && has_module(SIZE));
	known_of(&k);
	k.sum ^= 1; /* shows whether the note was believed */
	for (unsigned same = 0; same < 2; same++) {
		k.build_id_len = 4;
		memcpy(k.build_id, same ? "abcd" : "abce", 4);
		CU_ASSERT_EQUAL(fstat(fd, &st), 0);
		dj_known_write(directory, fd, &st, &k);
		CU_ASSERT_EQUAL(write_trace_of(fd, &err), 0);
		CU_ASSERT_EQUAL(has_module(SIZE), !same);
	}
	close(directory);
	close(fd);
	sample_module(contents, SIZE, 0, SEED);
}

/* Of a file that has not changed for long it is noted by itself: the C library's. */
static void test_settled(void)
{
	struct dj_error err = { 0 };
	struct dj_known k;
	struct stat st;
	struct statfs fs;
	char line[400], path[300];
	FILE *maps = fopen("/proc/self/maps", "r");
	int fd = -1, directory = open_kept();

	empty();
	while (fd < 0 && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%*s %*s %*s %*s %*s %299s", path) == 1 && strstr(path, "libc.so"))
			fd = open(path, O_RDONLY);
	fclose(maps);
	CU_ASSERT(fd >= 0 && !fstat(fd, &st) && !fstatfs(fd, &fs));
	CU_ASSERT_FATAL(st.st_size > (off_t)WRITER_PACKED_MIN &&
			st.st_size < (off_t)sizeof(contents));
	/* ext2 and so on, overlay; on others it depends */
	if (fs.f_type == 0xef53 || fs.f_type == 0x794c7630)
		CU_ASSERT_EQUAL(dj_known_settled(fd, &st), st.st_ctim.tv_sec < time(NULL) - 60);
	bool settled = dj_known_settled(fd, &st);
	CU_ASSERT_EQUAL(pread(fd, contents, (size_t)st.st_size, 0), (ssize_t)st.st_size);
	for (unsigned i = 0; i < 2; i++) {
		struct dj_writer *w = dj_writer_create(trace, &meta, &err);
		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		dj_writer_keep_packed(w, open_kept());
		CU_ASSERT_EQUAL(
			dj_writer_module_file(w, path, fd, contents, (size_t)st.st_size, &err), 0);
		CU_ASSERT_EQUAL(dj_writer_close(w, NULL, &err), 0);
		CU_ASSERT(has_module((size_t)st.st_size));
		CU_ASSERT_EQUAL(dj_known_read(directory, fd, &k), settled);
		CU_ASSERT_EQUAL(files(), 1 + settled);
	}
	close(directory);
	close(fd);
	sample_module(contents, SIZE, 0, SEED);
}

/* ---- older traces ------------------------------------------------------------------------------
 */

/* In traces of versions before 6 the checksum of a module is seeded with the trace's number. */
static void test_older(void)
{
	struct dj_chunk_header h;
	uint64_t at = FILE_HEADER_SIZE, id, payload;
	uint32_t version;
	size_t len;
	uint8_t *bytes;
	int fd;

	write_trace(SIZE);
	bytes = sample_read(trace, &len);
	CU_ASSERT_EQUAL(dj_file_header_unpack(bytes, len, &version, &id), HEADER_GOOD);
	CU_ASSERT_EQUAL(version, DJ_TRACE_VERSION);
	for (unsigned seeded = 0; seeded < 2; seeded++) {
		dj_file_header_pack(bytes, 4, id);
		fd = open(trace, O_WRONLY | O_TRUNC);
		CU_ASSERT_EQUAL(write(fd, bytes, len), (ssize_t)len);
		close(fd);
		CU_ASSERT_EQUAL(has_module(SIZE), seeded);
		for (at = FILE_HEADER_SIZE; dj_chunk_at(bytes, at, len, id, &h, &payload);
		     at = payload + h.len)
			if (h.type == CHUNK_MODULE && h.stream == 0)
				break;
		CU_ASSERT_EQUAL_FATAL(h.type, CHUNK_MODULE);
		CU_ASSERT_EQUAL_FATAL(h.encoding, CHUNK_PLAIN);
		dj_put64(bytes + payload + 8, dj_chunk_sum(id, contents, SIZE));
		h.payload_sum = dj_chunk_sum(id, bytes + payload, h.len);
		dj_chunk_header_pack(bytes + at, &h, id);
	}
	free(bytes);
}

int main(void)
{
	CU_TestInfo tests[] = { { "kept", test_kept },
				{ "taken", test_taken },
				{ "bad ones", test_bad },
				{ "not more than", test_trim },
				{ "known", test_known },
				{ "known, damaged", test_known_damaged },
				{ "known, taken", test_known_taken },
				{ "known, build id", test_known_build_id },
				{ "settled", test_settled },
				{ "older traces", test_older },
				CU_TEST_INFO_NULL };
	CU_SuiteInfo suites[] = { { "packed", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
	int failed;

	snprintf(dir, sizeof(dir), "/tmp/deja-test-packed-%d", (int)getpid());
	snprintf(kept, sizeof(kept), "%s/packed", dir);
	snprintf(trace, sizeof(trace), "%s/a.deja", dir);
	snprintf(file, sizeof(file), "test-packed-%d", (int)getpid());
	sample_module(contents, SIZE, 0, SEED);
	if (mkdir(dir, 0700) || mkdir(kept, 0700))
		return 1;
	suites_begin();
	CU_register_suites(suites);
	failed = suites_run();
	empty();
	rmdir(kept);
	unlink(trace);
	unlink(file);
	rmdir(dir);
	return failed;
}
