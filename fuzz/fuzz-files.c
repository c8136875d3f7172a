/*
 * Fuzz target: copying a trace's modules for gdb.
 *
 * The input is a list of modules, name and contents. They are written into a trace by the real
 * writer and copied as deja replay does it. What must hold (doc/security.md): everything lies below
 * the new directory; there are directories and ELF files only, no links, and nothing may be
 * executed; names have no control characters; and they do not take more room than they may.
 */
#include "cli/replay-files.h"
#include "format/text.h"
#include "fuzz/fuzz.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODULES_MAX 20u
#define BLOCKS_MAX  (64u << 11) /* of 512 bytes: 64 MB */

static char directory[4096];
static uint64_t blocks;

static int check_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
	char magic[4] = "";
	FILE *f;

	(void)type;
	(void)where;
	if (strncmp(path, directory, strlen(directory)) != 0 || strstr(path, "/../"))
		abort();
	for (const char *p = path; *p; p += dj_text_letter(p))
		if (!dj_text_letter(p))
			abort();
	if (S_ISDIR(st->st_mode))
		return 0;
	if (!S_ISREG(st->st_mode) || (st->st_mode & 0333) || st->st_nlink != 1)
		abort();
	blocks += (uint64_t)st->st_blocks;
	f = fopen(path, "r");
	if (!f || fread(magic, 1, 4, f) != 4 || memcmp(magic, "\177ELF", 4) != 0)
		abort();
	fclose(f);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
	(void)st;
	(void)type;
	(void)where;
	remove(path);
	return 0;
}

/* A byte says how long the name is, two how long the contents, one what is added to them. */
static bool write_trace(const char *path, const uint8_t *p, size_t left)
{
	static const char *const none[] = { NULL };
	const struct dj_trace_meta meta = { .deja_version = "",
					    .machine = "",
					    .cpu = "",
					    .exe = "",
					    .cwd = "",
					    .argv = none,
					    .envp = none };
	struct dj_writer *w = dj_writer_create(path, &meta, NULL);
	uint8_t *contents = calloc(1, 1 << 20);

	for (unsigned i = 0; w && contents && left >= 4 && i < MODULES_MAX; i++) {
		size_t n = p[0], size = (size_t)(p[1] | p[2] << 8) & 0xfff, more = p[3];
		char name[256];

		p += 4;
		left -= 4;
		n = n < left ? n : left;
		memcpy(name, p, n);
		name[n] = 0;
		p += n;
		left -= n;
		size = size < left ? size : left;
		memset(contents, more & 1 ? 0x90 : 0, 1 << 20);
		memcpy(contents, "\177ELF", more & 2 ? 4 : 0);
		memcpy(contents + (more & 2 ? 4 : 0), p, size);
		p += size;
		left -= size;
		size += 4 + ((size_t)more >> 2 << 14);
		if (dj_writer_module(w, name, contents, size, NULL) < 0)
			break;
	}
	free(contents);
	return w && !dj_writer_close(w, NULL, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	int fd = memfd_create("trace", MFD_CLOEXEC);
	char path[40];

	if (fd < 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (write_trace(path, bytes, len)) {
		struct dj_trace *t = dj_trace_open(path, NULL);
		char *files = t ? replay_files(t) : NULL;
		if (files) {
			snprintf(directory, sizeof(directory), "%s", files);
			blocks = 0;
			nftw(files, check_one, 16, FTW_PHYS);
			if (blocks > BLOCKS_MAX)
				abort();
			nftw(files, remove_one, 16, FTW_DEPTH | FTW_PHYS);
		}
		free(files);
		if (t)
			dj_trace_close(t);
	}
	/* the pipe whose end lets the process go that waits to remove the files, too */
	close_range((unsigned)fd, ~0U, 0);
	return 0;
}
