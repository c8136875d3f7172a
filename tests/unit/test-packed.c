/*
 * Packed modules that lie there for later traces: they are taken and put there, what is bad is
 * written again, and a trace never depends on them.
 */
#include "format/store.h"
#include "tests/lib/suites.h"
#include "tests/lib/trace-sample.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

int main(void)
{
	CU_TestInfo tests[] = { { "kept", test_kept },
				{ "taken", test_taken },
				{ "bad ones", test_bad },
				{ "not more than", test_trim },
				CU_TEST_INFO_NULL };
	CU_SuiteInfo suites[] = { { "packed", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
	int failed;

	snprintf(dir, sizeof(dir), "/tmp/deja-test-packed-%d", (int)getpid());
	snprintf(kept, sizeof(kept), "%s/packed", dir);
	snprintf(trace, sizeof(trace), "%s/a.deja", dir);
	sample_module(contents, SIZE, 0, SEED);
	if (mkdir(dir, 0700) || mkdir(kept, 0700))
		return 1;
	suites_begin();
	CU_register_suites(suites);
	failed = suites_run();
	empty();
	rmdir(kept);
	unlink(trace);
	rmdir(dir);
	return failed;
}
