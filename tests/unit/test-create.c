/*
 * Where a trace is written when there is something of that name: an earlier trace is replaced, and
 * whoever reads it keeps it; another name, other rights, a link are what they were.
 */
#include "format/trace.h"
#include "tests/lib/suites.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct dj_trace_meta meta;
static char dir[64], trace[80], other[80];
static uint8_t contents[300000];

static void empty(void)
{
	unlink(trace);
	unlink(other);
}

/* A trace with one module that begins with `mark`. */
static int record(const char *path, uint8_t mark, struct dj_error *err)
{
	struct dj_trace_end end = { .present = true };
	struct dj_writer *w = dj_writer_create(path, &meta, err);

	if (!w)
		return -1;
	contents[0] = mark;
	if (dj_writer_module(w, "/a", contents, sizeof(contents), err)) {
		dj_writer_close(w, NULL, NULL);
		return -1;
	}
	return dj_writer_close(w, &end, err);
}

static bool has_mark(struct dj_trace *t, uint8_t mark)
{
	struct dj_error err = { 0 };
	size_t size = 0;
	const uint8_t *bytes = dj_trace_module_bytes(t, 0, &size, &err);

	return bytes && size == sizeof(contents) && bytes[0] == mark;
}

static bool holds(const char *path, uint8_t mark)
{
	struct dj_error err = { 0 };
	struct dj_trace *t = dj_trace_open(path, &err);
	bool is = t && has_mark(t, mark);

	if (t)
		dj_trace_close(t);
	return is;
}

static ino_t inode(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : st.st_ino;
}

/* Whoever has the earlier trace open goes on reading it. */
static void test_readers(void)
{
	struct dj_error err = { 0 };
	struct dj_trace *t;
	struct stat st;

	empty();
	CU_ASSERT_EQUAL(record(trace, 1, &err), 0);
	t = dj_trace_open(trace, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_EQUAL(record(trace, 2, &err), 0);
	CU_ASSERT(has_mark(t, 1));
	dj_trace_close(t);
	CU_ASSERT(holds(trace, 2));
	CU_ASSERT(!stat(trace, &st) && (st.st_mode & 07777) == 0600 && st.st_nlink == 1);
}

/* What somebody has made of the file stays: its other names, its rights, a link to it. */
static void test_kept(void)
{
	struct dj_error err = { 0 };
	struct stat st;
	ino_t before;

	empty();
	CU_ASSERT(!record(trace, 1, &err) && !link(trace, other));
	before = inode(trace);
	CU_ASSERT(!record(trace, 2, &err) && holds(other, 2) && inode(trace) == before);
	unlink(other);
	CU_ASSERT(!chmod(trace, 0644) && !record(trace, 3, &err) && holds(trace, 3));
	CU_ASSERT(!stat(trace, &st) && (st.st_mode & 07777) == 0644 && inode(trace) == before);
	CU_ASSERT(!chmod(trace, 0600) && !rename(trace, other) && !symlink(other, trace));
	CU_ASSERT(!record(trace, 4, &err) && holds(other, 4) && inode(other) == before);
	CU_ASSERT(!lstat(trace, &st) && S_ISLNK(st.st_mode));
	/* a link to what is not there yet */
	CU_ASSERT(!unlink(other) && !record(trace, 5, &err) && holds(other, 5));
	/* by another way, which has no name that could be replaced */
	int fd = open(other, O_RDONLY);
	char path[40];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	before = inode(other);
	CU_ASSERT(!record(path, 6, &err) && holds(other, 6) && inode(other) == before);
	close(fd);
}

/* What is being recorded is neither replaced nor emptied. */
static void test_in_use(void)
{
	struct dj_trace_end end = { .present = true };
	struct dj_error err = { 0 }, refused = { 0 };
	struct dj_writer *w;

	empty();
	CU_ASSERT_EQUAL(record(trace, 1, &err), 0);
	w = dj_writer_create(trace, &meta, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(record(trace, 2, &refused), -1);
	CU_ASSERT_PTR_NOT_NULL(strstr(refused.text, "another recording is being written to it"));
	contents[0] = 3;
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", contents, sizeof(contents), &err), 0);
	CU_ASSERT_EQUAL(dj_writer_close(w, &end, &err), 0);
	CU_ASSERT(holds(trace, 3));
}

/* Several at once, again and again: who is not refused leaves a whole trace. */
static void race(unsigned self)
{
	unsigned good = 0;

	for (unsigned i = 0; i < 100000 && good < 400; i++) {
		struct dj_error err = { 0 };
		if (!record(trace, (uint8_t)(10 + self), &err))
			good++;
		else if (!strstr(err.text, "another recording"))
			_exit(1);
		else
			usleep(50);
	}
	_exit(good == 400 ? 0 : 2);
}

static void test_race(void)
{
	int status;

	empty();
	for (unsigned i = 0; i < 3; i++)
		if (!fork())
			race(i);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT(wait(&status) > 0);
		CU_ASSERT_EQUAL(status, 0);
	}
	CU_ASSERT(holds(trace, 10) || holds(trace, 11) || holds(trace, 12));
}

int main(void)
{
	CU_TestInfo tests[] = { { "readers", test_readers },
				{ "kept", test_kept },
				{ "in use", test_in_use },
				{ "several at once", test_race },
				CU_TEST_INFO_NULL };
	CU_SuiteInfo suites[] = { { "create", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
	int failed;

	snprintf(dir, sizeof(dir), "/tmp/deja-test-create-%d", (int)getpid());
	snprintf(trace, sizeof(trace), "%s/a.deja", dir);
	snprintf(other, sizeof(other), "%s/b.deja", dir);
	if (mkdir(dir, 0700))
		return 1;
	suites_begin();
	CU_register_suites(suites);
	failed = suites_run();
	empty();
	rmdir(dir);
	return failed;
}
