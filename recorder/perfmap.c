/*
 * Names of code made at run time: programs that make code write them for perf into
 * /tmp/perf-PID.map (Linux: tools/perf/Documentation/jit-interface.txt). When such a program ends
 * the file is taken into the trace, beside the modules that other code has its names in.
 *
 * The file's name is no secret and anyone may have put something there: it has to be a plain file
 * with one name, of our own user (whose programs we may record; root records everybody's), and
 * younger than the recording.
 */
#include "recorder/recorder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE_MOST (256u << 20)

static bool is_its_own(const struct rec_recording *rec, const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_size > 0 &&
	       st->st_size <= SIZE_MOST && (st->st_uid == geteuid() || !geteuid()) &&
	       st->st_mtime >= rec->started - 1;
}

void rec_perf_map(struct rec_process *proc)
{
	struct dj_error err = { 0 };
	struct stat st;
	char path[64];

	if (!proc->rec->writer || proc->child)
		return;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)proc->pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	size_t size = !fstat(fd, &st) && is_its_own(proc->rec, &st) ? (size_t)st.st_size : 0;
	/* read, not mapped: who can write to the file could shorten it meanwhile */
	uint8_t *bytes =
		size ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
		     : MAP_FAILED;
	if (bytes != MAP_FAILED) {
		size_t have = 0;
		ssize_t n;
		while (have < size && (n = read(fd, bytes + have, size - have)) > 0)
			have += (size_t)n;
		if (have && dj_writer_module(proc->rec->writer, path, bytes, have, &err) < 0)
			rec_cut(proc->rec, "%s", err.text);
		munmap(bytes, size);
	}
	close(fd);
}
