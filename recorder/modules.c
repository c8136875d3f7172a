/* Modules: the ELF files that the program maps, kept in the trace as they are. */
#include "recorder/recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

int rec_module_of(struct rec_recording *rec, int fd, const char *path)
{
	struct stat st;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 64)
		return -1;
	for (size_t i = 0; i < rec->n_modules; i++)
		if (rec->modules[i].dev == st.st_dev && rec->modules[i].ino == st.st_ino &&
		    rec->modules[i].size == (size_t)st.st_size)
			return (int)i;
	uint8_t *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return -1;
	if (memcmp(p, "\177ELF", 4) != 0) {
		munmap(p, (size_t)st.st_size);
		return -1;
	}
	struct dj_error err = { 0 };
	int n = dj_writer_module(rec->writer, path, p, (size_t)st.st_size, &err);
	if (n < 0) {
		munmap(p, (size_t)st.st_size);
		rec_cut(rec, "%s", err.text);
		return -1;
	}
	if ((size_t)n >= rec->n_modules) {
		rec->modules = realloc(rec->modules, ((size_t)n + 1) * sizeof(*rec->modules));
		DJ_ASSERT(rec->modules, "out of memory for modules");
		memset(rec->modules + rec->n_modules, 0,
		       ((size_t)n + 1 - rec->n_modules) * sizeof(*rec->modules));
		rec->n_modules = (size_t)n + 1;
	}
	rec->modules[n].path = strdup(path);
	rec->modules[n].bytes = p;
	rec->modules[n].size = (size_t)st.st_size;
	rec->modules[n].dev = st.st_dev;
	rec->modules[n].ino = st.st_ino;
	return n;
}

void rec_modules_free(struct rec_recording *rec)
{
	for (size_t i = 0; i < rec->n_modules; i++) {
		munmap(rec->modules[i].bytes, rec->modules[i].size);
		free(rec->modules[i].path);
	}
	free(rec->modules);
}
