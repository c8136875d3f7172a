/*
 * The program's files for gdb (cli/replay-files.h).
 *
 * The names are a trace's, so they are not to be trusted: they stay within the directory, in
 * which there is no link before all copies are made.
 */
#include "cli/replay-files.h"

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

/* Where Debian's packages put gdb's scripts for their libraries, and where these find theirs. */
#define SHARED	    "/usr/share"
#define GDB_SCRIPTS SHARED "/gdb/auto-load"

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

/* A name that stays below the directory it is put in, and out of where gdb looks for scripts. */
static bool harmless(const char *path)
{
	const char *last = strrchr(path, '/');

	return path[0] == '/' && strncmp(path + 1, REPLAY_SCRIPTS, strlen(REPLAY_SCRIPTS)) != 0 &&
	       last[1] && !strstr(path, "/../") && strcmp(last, "/..") != 0 &&
	       strcmp(last, "/.") != 0;
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

static bool copy_module(struct dj_trace *t, size_t i, const char *dir)
{
	char full[PATH_MAX];
	size_t size;
	const char *path = dj_trace_module(t, i)->path;
	const uint8_t *bytes = dj_trace_module_bytes(t, i, &size, NULL);

	if (!bytes || !harmless(path) || !place(full, sizeof(full), dir, path))
		return false;
	int fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0500);
	if (fd < 0)
		return errno == EEXIST; /* another module of that name: the first one counts */
	while (size) {
		ssize_t n = write(fd, bytes, size);
		if (n <= 0)
			break;
		bytes += n;
		size -= (size_t)n;
	}
	return close(fd) == 0 && !size;
}

/* ---- links -------------------------------------------------------------------------------- */

static void put_link(const char *dir, const char *path, const char *target)
{
	char full[PATH_MAX];

	if (place(full, sizeof(full), dir, path) && symlink(target, full) != 0)
		return; /* something is there already */
}

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

/* gdb looks for the dynamic linker under the program's name for it, which is mostly a link to
 * the name that the file has. */
static void link_interpreter(struct dj_trace *t, size_t i, const char *dir)
{
	size_t size;
	const uint8_t *bytes = dj_trace_module_bytes(t, i, &size, NULL);
	const char *name = bytes ? interpreter(bytes, size) : NULL;

	if (!name || !harmless(name))
		return;
	for (size_t k = 0; k < dj_trace_modules(t); k++) {
		const char *path = dj_trace_module(t, k)->path, *last = strrchr(path, '/');
		char target[PATH_MAX];
		if (last && strcmp(last, strrchr(name, '/')) == 0 &&
		    snprintf(target, sizeof(target), "%s%s", dir, path) < (int)sizeof(target)) {
			put_link(dir, name, target);
			return;
		}
	}
}

/* gdb looks for scripts by the whole name of a file, and these find others by where they are. */
static void link_scripts(const char *dir)
{
	char path[PATH_MAX];

	put_link(dir, SHARED, SHARED);
	if (snprintf(path, sizeof(path), "/%s%s", REPLAY_SCRIPTS, dir) < (int)sizeof(path))
		put_link(dir, path, GDB_SCRIPTS);
}

char *replay_files(struct dj_trace *t)
{
	const char *tmp = getenv("TMPDIR");
	char name[PATH_MAX];
	char *real = realpath(tmp && *tmp ? tmp : "/tmp", NULL), *dir = NULL;
	bool good = real && snprintf(name, sizeof(name), "%s/deja-XXXXXX", real) < PATH_MAX &&
		    mkdtemp(name);

	free(real);
	if (!good)
		return NULL;
	if (!arrange_removal(name)) {
		rmdir(name);
		return NULL;
	}
	for (size_t i = 0; good && i < dj_trace_modules(t); i++)
		good = copy_module(t, i, name);
	for (size_t i = 0; good && i < dj_trace_modules(t); i++)
		link_interpreter(t, i, name);
	if (good) {
		link_scripts(name);
		dir = strdup(name);
	}
	/* gdb makes do with what it can ask for */
	if (!dir)
		nftw(name, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return dir;
}
