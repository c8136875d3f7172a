/*
 * The program's files for gdb (cli/replay-files.h).
 *
 * Names and contents are a trace's, so they are not to be trusted (doc/security.md). Only ELF files
 * are copied, under canonical names below a new directory in which there is never a link, and no
 * more bytes than the trace's own size makes believable.
 */
#include "cli/replay-files.h"
#include "format/text.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Copies may take this much, and so many times the trace's size, with what it has in the module
 * store: ELF files with debug information are packed to a third to a tenth. */
#define COPIES_FREE  (64ULL << 20)
#define COPIES_RATIO 30

/* ---- the end ------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
	(void)st;
	(void)type;
	(void)where;
	remove(path);
	return 0;
}

/* What removes the directory: a process of init's that waits until nobody has the pipe's other
 * end, which is inherited. */
static _Noreturn void remove_later(const char *dir, int end)
{
	char byte;
	ssize_t n;

	setsid(); /* what is typed at the terminal is not for this process */
	if (dup2(end, 3) != 3 || close_range(4, ~0U, 0) != 0 || chdir("/") != 0)
		_exit(1);
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd <= 2 && null >= 0; fd++)
		dup2(null, fd);
	do
		n = read(3, &byte, 1);
	while (n > 0 || (n < 0 && errno == EINTR));
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	_exit(0);
}

static bool arrange_removal(const char *dir)
{
	int fds[2], status = -1, kept;

	if (pipe(fds) != 0)
		return false;
	kept = fcntl(fds[1], F_DUPFD, 3); /* never one of the standard streams */
	close(fds[1]);
	pid_t child = kept < 0 ? -1 : fork();
	if (child == 0) {
		pid_t grandchild = fork();
		if (grandchild == 0)
			remove_later(dir, fds[0]);
		_exit(grandchild < 0);
	}
	close(fds[0]);
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* ---- files -------------------------------------------------------------------------------- */

/* An absolute name in canonical form without anything that a terminal or gdb takes for more than a
 * letter. */
static bool harmless(const char *path)
{
	size_t len = strlen(path);

	if (path[0] != '/' || path[len - 1] == '/' || strstr(path, "//") || strstr(path, "/./") ||
	    strstr(path, "/../"))
		return false;
	for (const char *p = path; *p; p += dj_text_letter(p))
		if (!dj_text_letter(p))
			return false;
	return !(len >= 2 && strcmp(path + len - 2, "/.") == 0) &&
	       !(len >= 3 && strcmp(path + len - 3, "/..") == 0);
}

/* DIR and the name, with the directories on the way; false if there cannot be such. */
static bool place(char *full, size_t size, const char *dir, const char *path)
{
	int n = snprintf(full, size, "%s%s", dir, path);

	if (n < 0 || (size_t)n >= size)
		return false;
	for (char *p = full + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		bool made = mkdir(full, 0700) == 0 || errno == EEXIST;
		*p = '/';
		if (!made)
			return false;
	}
	return true;
}

/* Write `bytes`, leaving holes for blocks of zeros: a trace of zeros costs no disk. */
static bool write_sparsely(int fd, const uint8_t *bytes, size_t size)
{
	static const uint8_t zeros[4096];

	for (size_t at = 0; at < size;) {
		size_t n = size - at < sizeof(zeros) ? size - at : sizeof(zeros);
		if (memcmp(bytes + at, zeros, n) != 0) {
			ssize_t done = pwrite(fd, bytes + at, n, (off_t)at);
			if (done <= 0)
				return false;
			n = (size_t)done;
		}
		at += n;
	}
	return ftruncate(fd, (off_t)size) == 0;
}

/* A copy of module i under this name. True also if there is no need of one. */
static bool copy_module(struct dj_trace *t, size_t i, const char *dir, const char *name)
{
	char full[PATH_MAX];
	size_t size;
	const uint8_t *bytes = dj_trace_module_bytes(t, i, &size, NULL);

	if (!bytes || size < SELFMAG || memcmp(bytes, ELFMAG, SELFMAG) != 0 || !harmless(name))
		return true; /* nothing that gdb should see */
	if (!place(full, sizeof(full), dir, name))
		return false;
	int fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
	if (fd < 0)
		return errno == EEXIST; /* another module of that name: the first one counts */
	bool good = write_sparsely(fd, bytes, size);
	return close(fd) == 0 && good;
}

/* ---- the dynamic linker's name ------------------------------------------------------------ */

/* The name that an ELF file has for its dynamic linker, or NULL. */
static const char *interpreter(const uint8_t *bytes, size_t size)
{
	Elf64_Ehdr eh;
	Elf64_Phdr ph;

	if (size < sizeof(eh) || memcmp(bytes, ELFMAG, SELFMAG) != 0)
		return NULL;
	memcpy(&eh, bytes, sizeof(eh));
	if (eh.e_phentsize != sizeof(ph) || eh.e_phoff > size)
		return NULL;
	for (size_t i = 0; i < eh.e_phnum && (i + 1) * sizeof(ph) <= size - eh.e_phoff; i++) {
		memcpy(&ph, bytes + eh.e_phoff + i * sizeof(ph), sizeof(ph));
		if (ph.p_type == PT_INTERP && ph.p_filesz && ph.p_offset < size &&
		    ph.p_filesz <= size - ph.p_offset &&
		    bytes[ph.p_offset + ph.p_filesz - 1] == '\0')
			return (const char *)bytes + ph.p_offset;
	}
	return NULL;
}

/* gdb looks for the dynamic linker under the program's name for it, which is mostly not the name
 * of the file: it gets a second copy. */
static bool copy_interpreter(struct dj_trace *t, size_t i, const char *dir)
{
	size_t size;
	const uint8_t *bytes = dj_trace_module_bytes(t, i, &size, NULL);
	const char *name = bytes ? interpreter(bytes, size) : NULL;

	if (!name || !harmless(name))
		return true;
	for (size_t k = 0; k < dj_trace_modules(t); k++) {
		const char *last = strrchr(dj_trace_module(t, k)->path, '/');
		if (last && strcmp(last, strrchr(name, '/')) == 0)
			return copy_module(t, k, dir, name);
	}
	return true;
}

/* Whether the modules are as large as a trace of this size can make believable. */
static bool believable(struct dj_trace *t)
{
	size_t files;
	uint64_t stored, total = 0, most = COPIES_FREE + COPIES_RATIO * dj_trace_file_size(t);

	dj_trace_store(t, &files, &stored);
	most += COPIES_RATIO * stored;
	for (size_t i = 0; i < dj_trace_modules(t); i++) {
		uint64_t size = dj_trace_module(t, i)->size;
		if (size > most - total)
			return false;
		total += size;
	}
	return true;
}

char *replay_files(struct dj_trace *t)
{
	const char *tmp = getenv("TMPDIR");
	char name[PATH_MAX];
	char *real = realpath(tmp && *tmp ? tmp : "/tmp", NULL), *dir = NULL;
	bool good = real && believable(t) &&
		    snprintf(name, sizeof(name), "%s/deja-XXXXXX", real) < PATH_MAX &&
		    mkdtemp(name);

	free(real);
	if (!good)
		return NULL;
	if (!arrange_removal(name)) {
		rmdir(name);
		return NULL;
	}
	for (size_t i = 0; good && i < dj_trace_modules(t); i++)
		good = copy_module(t, i, name, dj_trace_module(t, i)->path);
	for (size_t i = 0; good && i < dj_trace_modules(t); i++)
		good = copy_interpreter(t, i, name);
	if (good)
		dir = strdup(name);
	/* gdb makes do with what it can ask for */
	if (!dir)
		nftw(name, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return dir;
}
