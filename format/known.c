/*
 * What a module file contained when an earlier recording read it. Two hundred megabytes of a
 * compiler's libraries take a tenth of a second to read and sum up, each time, while the program
 * waits; what they are was known the last time.
 *
 * A file is the same if it has the same inode on the same file system and the same times, of which
 * nobody but the kernel sets that of the last change. This holds where
 * - the kernel notes each change. It does not on tmpfs for stores to a shared mapping, and where
 *   another machine has the files it may hear late. So there is a list of file systems.
 * - a time is not one at which there was more than one change: the clock of times is coarse, and
 *   while a page that is mapped to be written to is dirty, further stores to it do not change the
 *   time. It is written back within half a minute (proc(5), dirty_expire_centisecs), and the next
 *   store is noted again. So the last change must be some time ago when the file is read.
 * The build id, if there is one, is looked at all the same.
 */
#include "format/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MAGIC	"DJKNOWN1"
#define SIZE	((size_t)144)
#define SETTLED 60 /* seconds since the last change */

/* Magic numbers of file systems: linux/magic.h and, for those that it has not, fs/f2fs, fs/xfs. */
static bool notes_changes(int fd, uint64_t *id)
{
	static const uint32_t kinds[] = {
		0xef53,	    /* ext2, ext3, ext4 */
		0x58465342, /* xfs */
		0x9123683e, /* btrfs */
		0xf2f52010, /* f2fs */
		0x794c7630, /* overlay */
	};
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	memcpy(id, &fs.f_fsid, sizeof(*id));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if ((uint32_t)fs.f_type == kinds[i])
			return true;
	return false;
}

static uint8_t *put_time(uint8_t *p, const struct timespec *t)
{
	return dj_put64(dj_put64(p, (uint64_t)t->tv_sec), (uint64_t)t->tv_nsec);
}

/* Which file it is, in the state that it is in: the part of a note that has to be equal. */
static uint8_t *put_identity(uint8_t *p, uint64_t fs, const struct stat *st)
{
	memcpy(p, MAGIC, 8);
	p = dj_put64(p + 8, fs);
	p = dj_put64(p, (uint64_t)st->st_dev);
	p = dj_put64(p, (uint64_t)st->st_ino);
	p = dj_put64(p, (uint64_t)st->st_size);
	return put_time(put_time(p, &st->st_mtim), &st->st_ctim);
}

static void name_of(char name[STORE_KNOWN_LEN + 1], const struct stat *st)
{
	snprintf(name, STORE_KNOWN_LEN + 1, STORE_KNOWN "%016llx%016llx",
		 (unsigned long long)st->st_dev, (unsigned long long)st->st_ino);
}

bool dj_known_read(int directory, int fd, struct dj_known *k)
{
	uint8_t note[SIZE + 1], same[SIZE];
	char name[STORE_KNOWN_LEN + 1];
	struct dj_in in;
	struct stat st, own;
	uint64_t fs;
	ssize_t n = -1;
	size_t len;
	int f;

	if (fstat(fd, &st) || !notes_changes(fd, &fs))
		return false;
	name_of(name, &st);
	f = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (f < 0)
		return false;
	if (!fstat(f, &own) && S_ISREG(own.st_mode) && own.st_uid == geteuid())
		n = pread(f, note, sizeof(note), 0);
	len = (size_t)(put_identity(same, fs, &st) - same);
	if (n != (ssize_t)SIZE || memcmp(note, same, len) != 0 ||
	    dj_get64(note + SIZE - 8) != dj_chunk_sum(0, note, SIZE - 8)) {
		close(f);
		return false;
	}
	futimens(f, NULL); /* it is of use */
	close(f);
	in = (struct dj_in){ note + len, note + SIZE - 8, false };
	k->key.size = (uint64_t)st.st_size;
	memcpy(k->key.hash, dj_in_bytes(&in, sizeof(k->key.hash)), sizeof(k->key.hash));
	k->sum = dj_in64(&in);
	memcpy(k->build_id, dj_in_bytes(&in, sizeof(k->build_id)), sizeof(k->build_id));
	k->build_id_len = dj_in8(&in);
	return k->build_id_len <= sizeof(k->build_id);
}

bool dj_known_settled(int fd, struct stat *st)
{
	struct timespec now;
	uint64_t fs;

	return !fstat(fd, st) && S_ISREG(st->st_mode) && notes_changes(fd, &fs) &&
	       !clock_gettime(CLOCK_REALTIME, &now) && st->st_ctim.tv_sec < now.tv_sec - SETTLED &&
	       st->st_mtim.tv_sec < now.tv_sec - SETTLED;
}

void dj_known_write(int directory, int fd, const struct stat *before, const struct dj_known *k)
{
	char name[STORE_KNOWN_LEN + 1], new[STORE_NEW_LEN + 1];
	uint8_t note[SIZE] = { 0 }, was[SIZE], *p;
	struct stat st;
	uint64_t fs;
	int f;

	if (fstat(fd, &st) || !notes_changes(fd, &fs))
		return;
	p = put_identity(note, fs, &st);
	if (memcmp(note, was, (size_t)(put_identity(was, fs, before) - was)) != 0)
		return;
	memcpy(p, k->key.hash, sizeof(k->key.hash));
	p = dj_put64(p + sizeof(k->key.hash), k->sum);
	memcpy(p, k->build_id, sizeof(k->build_id));
	p[sizeof(k->build_id)] = k->build_id_len;
	dj_put64(note + SIZE - 8, dj_chunk_sum(0, note, SIZE - 8));
	dj_store_new_name(new);
	f = openat(directory, new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (f < 0)
		return;
	name_of(name, &st);
	if (write(f, note, SIZE) != (ssize_t)SIZE || renameat(directory, new, directory, name))
		unlinkat(directory, new, 0);
	close(f);
}
