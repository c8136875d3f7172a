/*
 * Host I/O packets (gdb manual, "Host I/O Packets"): the debugger opens the program's files by
 * the names they had when it was recorded, and gets the copies in the trace. There is nothing
 * but those and the files of procfs.c, and everything is read-only: no file of the machine that
 * serves the replay can be reached.
 */
#include "gdbstub/session.h"

#include <stdlib.h>
#include <string.h>

/* Error numbers of the protocol (gdb manual, "Errno Values"). */
enum {
	FIO_ENOENT = 2,
	FIO_EBADF = 9,
	FIO_EINVAL = 22,
	FIO_EMFILE = 24,
	FIO_EROFS = 30,
	FIO_ENOMEM = 12,
	FIO_EIO = 5
};

static bool reply_errno(struct stub_session *s, int number)
{
	stub_textbuf_reset(&s->reply);
	stub_textbuf_printf(&s->reply, "F-1,%x", number);
	return true;
}

static bool reply_number(struct stub_session *s, uint64_t n)
{
	stub_textbuf_printf(&s->reply, "F%llx", (unsigned long long)n);
	return true;
}

/* A hexadecimal path up to a comma or the end. */
static bool scan_path(struct stub_scan *a, char *path, size_t size)
{
	struct stub_scan hex = stub_scan_until(a, ',');
	long n = stub_scan_hexbytes(&hex, path, size - 1);
	if (n <= 0 || hex.p != hex.end || memchr(path, '\0', (size_t)n))
		return false;
	path[n] = '\0';
	return true;
}

/* ---- modules by name ------------------------------------------------------------------------ */

static const char *without_usr(const char *path)
{
	return strncmp(path, "/usr/", 5) == 0 ? path + 4 : path;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* A library is asked for by a name that may be a link to the recorded one: the name itself, the
 * same with /usr merged, the same last part, or a version more ("libz.so.1" for
 * "libz.so.1.2.13"); in this order. */
static bool match_exact(const char *have, const char *want)
{
	return strcmp(have, want) == 0;
}
static bool match_usr(const char *have, const char *want)
{
	return strcmp(without_usr(have), without_usr(want)) == 0;
}
static bool match_base(const char *have, const char *want)
{
	return strstr(want, ".so") && strcmp(base_name(have), base_name(want)) == 0;
}
static bool match_version(const char *have, const char *want)
{
	size_t n = strlen(base_name(want));
	return strstr(want, ".so") && strncmp(base_name(have), base_name(want), n) == 0 &&
	       base_name(have)[n] == '.';
}

static bool find_module(struct stub_session *s, const char *path, size_t *number)
{
	static bool (*const matches[])(const char *, const char *) = { match_exact, match_usr,
								       match_base, match_version };
	struct dj_trace *t = replay_trace(s->r);
	size_t n = dj_trace_modules(t);
	for (size_t k = 0; k < sizeof(matches) / sizeof(*matches); k++)
		for (size_t i = 0; i < n; i++)
			if (matches[k](dj_trace_module(t, i)->path, path)) {
				*number = i;
				return true;
			}
	return false;
}

/* ---- open files ---------------------------------------------------------------------------------
 */

static struct stub_session_file *file_of(struct stub_session *s, struct stub_scan *a)
{
	uint64_t fd;
	if (!stub_scan_hex(a, &fd) || fd >= SESSION_FILES || !s->files[fd].open)
		return NULL;
	return &s->files[fd];
}

static void file_close(struct stub_session_file *f)
{
	if (f->owned)
		free((void *)f->bytes);
	*f = (struct stub_session_file){ 0 };
}

/* All that is kept for open files, and may be. */
#define FILES_MAX ((size_t)64 << 20)

static size_t files_size(const struct stub_session *s)
{
	size_t size = 0;
	for (size_t i = 0; i < SESSION_FILES; i++)
		if (s->files[i].open && s->files[i].owned)
			size += s->files[i].size;
	return size;
}

/* Returns 0 or an error number. */
static int file_open(struct stub_session *s, const char *path, struct stub_session_file *f)
{
	struct stub_textbuf made = { 0 };
	size_t module;
	*f = (struct stub_session_file){ .open = true };
	if (stub_procfs_read(s, path, &made)) {
		if (made.failed || made.len > FILES_MAX - files_size(s)) {
			stub_textbuf_free(&made);
			return FIO_ENOMEM;
		}
		f->bytes = (uint8_t *)made.p;
		f->size = made.len;
		f->owned = true;
		return 0;
	}
	if (!find_module(s, path, &module))
		return FIO_ENOENT;
	f->bytes = dj_trace_module_bytes(replay_trace(s->r), module, &f->size, NULL);
	f->module = module + 1;
	return f->bytes ? 0 : FIO_EIO;
}

#define ACCESS_MODE 3 /* of the flags: 0 is read-only */

static bool file_op_open(struct stub_session *s, struct stub_scan *a)
{
	char path[4096];
	uint64_t flags, mode;
	size_t fd = 0;
	if (!scan_path(a, path, sizeof(path)) || !stub_scan_hex(a, &flags) ||
	    !stub_scan_char(a, ',') || !stub_scan_hex(a, &mode))
		return reply_errno(s, FIO_EINVAL);
	if (flags & ACCESS_MODE)
		return reply_errno(s, FIO_EROFS);
	while (fd < SESSION_FILES && s->files[fd].open)
		fd++;
	if (fd == SESSION_FILES)
		return reply_errno(s, FIO_EMFILE);
	int failed = file_open(s, path, &s->files[fd]);
	if (failed) {
		s->files[fd] = (struct stub_session_file){ 0 };
		return reply_errno(s, failed);
	}
	return reply_number(s, fd);
}

static bool file_op_close(struct stub_session *s, struct stub_scan *a)
{
	struct stub_session_file *f = file_of(s, a);
	if (!f)
		return reply_errno(s, FIO_EBADF);
	file_close(f);
	return reply_number(s, 0);
}

/* F and the number of bytes, ';', the bytes: the number is known only after escaping. */
static bool reply_data(struct stub_session *s, const void *bytes, size_t n)
{
	struct stub_textbuf data = { 0 };
	size_t put = stub_textbuf_binary(&data, bytes, n, LINK_PACKET_ANNOUNCED - 32);
	stub_textbuf_printf(&s->reply, "F%zx;", put);
	stub_textbuf_bytes(&s->reply, data.p, data.len);
	s->reply.failed |= data.failed;
	stub_textbuf_free(&data);
	return true;
}

static bool file_op_pread(struct stub_session *s, struct stub_scan *a)
{
	struct stub_session_file *f = file_of(s, a);
	uint64_t count, offset;
	if (!f)
		return reply_errno(s, FIO_EBADF);
	if (!stub_scan_char(a, ',') || !stub_scan_hex(a, &count) || !stub_scan_char(a, ',') ||
	    !stub_scan_hex(a, &offset))
		return reply_errno(s, FIO_EINVAL);
	if (offset >= f->size)
		return reply_data(s, "", 0);
	size_t left = f->size - offset;
	return reply_data(s, f->bytes + offset, count < left ? count : left);
}

/* The protocol's struct stat: big-endian dev, ino, mode, nlink, uid, gid, rdev (4 bytes), size,
 * blksize, blocks (8), atime, mtime, ctime (4). */
static bool reply_stat(struct stub_session *s, const struct stub_session_file *f)
{
	static const unsigned char widths[] = { 4, 4, 4, 4, 4, 4, 4, 8, 8, 8, 4, 4, 4 };
	const uint64_t values[] = { 1, f->module, 0100555, 1,	 0,
				    0, 0,	  f->size, 4096, (f->size + 511) / 512,
				    0, 0,	  0 };
	uint8_t out[64], *p = out;
	for (size_t i = 0; i < sizeof(widths); i++)
		for (unsigned k = widths[i]; k-- > 0;)
			*p++ = (uint8_t)(values[i] >> (8 * k));
	return reply_data(s, out, sizeof(out));
}

static bool file_op_fstat(struct stub_session *s, struct stub_scan *a)
{
	struct stub_session_file *f = file_of(s, a);
	return f ? reply_stat(s, f) : reply_errno(s, FIO_EBADF);
}

static bool file_op_stat(struct stub_session *s, struct stub_scan *a)
{
	char path[4096];
	struct stub_session_file f;
	if (!scan_path(a, path, sizeof(path)))
		return reply_errno(s, FIO_EINVAL);
	int failed = file_open(s, path, &f);
	if (failed)
		return reply_errno(s, failed);
	reply_stat(s, &f);
	file_close(&f);
	return true;
}

static bool file_op_readlink(struct stub_session *s, struct stub_scan *a)
{
	char path[4096];
	struct stub_textbuf target = { 0 };
	if (!scan_path(a, path, sizeof(path)))
		return reply_errno(s, FIO_EINVAL);
	if (!stub_procfs_readlink(s, path, &target))
		reply_errno(s, FIO_ENOENT);
	else
		reply_data(s, target.p, target.len);
	stub_textbuf_free(&target);
	return true;
}

/* There is one file system: the trace's. */
static bool file_op_setfs(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	return reply_number(s, 0);
}

static bool file_op_readonly(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	return reply_errno(s, FIO_EROFS);
}

/* clang-format off */
static const struct stub_session_command operations[] = {
	{ "close:", file_op_close },	   { "fstat:", file_op_fstat },
	{ "lstat:", file_op_stat },	   { "open:", file_op_open },
	{ "pread:", file_op_pread },	   { "pwrite:", file_op_readonly },
	{ "readlink:", file_op_readlink }, { "setfs:", file_op_setfs },
	{ "stat:", file_op_stat },	   { "unlink:", file_op_readonly },
	{ NULL, NULL },
};
/* clang-format on */

bool stub_handle_vfile(struct stub_session *s, struct stub_scan *a)
{
	const struct stub_session_command *c = stub_session_find(operations, a);
	return c ? c->handle(s, a) : stub_reply_empty(s);
}
