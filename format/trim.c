/* Keeping a directory of files that may go within bounds. */
#include "format/trace.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FORGOTTEN 3600 /* seconds after which nobody is writing a file any more */

/* How many bytes there are, and what was of no use for longest. */
static uint64_t take_stock(int directory, char oldest[NAME_MAX + 1],
			   enum dj_trim_kind (*kind)(const char *name))
{
	int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
	time_t when = 0, now = time(NULL);
	struct dirent *e;
	uint64_t sum = 0;

	*oldest = 0;
	while (d && (e = readdir(d))) {
		enum dj_trim_kind k = kind(e->d_name);
		struct stat st;

		if (k == DJ_TRIM_OTHER || fstatat(directory, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISREG(st.st_mode))
			continue;
		if (k == DJ_TRIM_PART) {
			if (st.st_mtime < now - FORGOTTEN)
				unlinkat(directory, e->d_name, 0);
			continue;
		}
		sum += (uint64_t)st.st_size;
		if (!*oldest || st.st_mtime < when) {
			snprintf(oldest, NAME_MAX + 1, "%s", e->d_name);
			when = st.st_mtime;
		}
	}
	if (d)
		closedir(d);
	else if (copy >= 0)
		close(copy);
	return sum;
}

void dj_trim(int directory, uint64_t most, enum dj_trim_kind (*kind)(const char *name))
{
	char oldest[NAME_MAX + 1];

	while (take_stock(directory, oldest, kind) > most)
		if (unlinkat(directory, oldest, 0))
			return;
}
