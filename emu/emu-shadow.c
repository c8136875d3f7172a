/*
 * The emulator's shadow: where it is mapped, its first bytes once more behind its end, and what a
 * process that is made later has of it.
 */
#include "emu/emu-core.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHADOW_AGAIN ((size_t)65536) /* whole pages on any host */
#define SHADOW_BYTES ((size_t)(1ULL << 32))
#define SHADOW_SIZE  (SHADOW_BYTES + SHADOW_AGAIN)

/* Fresh memory for all of the shadow but its first SHADOW_AGAIN bytes. */
static bool map_rest(uint8_t *shadow)
{
	return mmap(shadow + SHADOW_AGAIN, SHADOW_BYTES - SHADOW_AGAIN, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* The same contents without a new mapping: what is zero already is only read. */
static void clear_rest(uint8_t *shadow)
{
	static const uint8_t zeros[4096];

	for (size_t at = SHADOW_AGAIN; at < SHADOW_BYTES; at += sizeof(zeros))
		if (memcmp(shadow + at, zeros, sizeof(zeros)))
			memset(shadow + at, 0, sizeof(zeros));
}

/* Where a shadow was that is gone. The next goes there again, if it can: programs that run another
 * processor's programs keep something for every page that was ever mapped. */
static _Atomic(void *) last_place;

/* Bytes of a shadow that are the file's. A process that is made later has none of them: it would
 * share them. */
static bool map_shared(uint8_t *at, int fd)
{
	return mmap(at, SHADOW_AGAIN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
		       MAP_FAILED &&
	       madvise(at, SHADOW_AGAIN, MADV_DONTFORK) == 0;
}

/* The first SHADOW_AGAIN bytes, and the same once more behind the end. */
static bool map_again(uint8_t *shadow, int fd)
{
	return map_shared(shadow, fd) && map_shared(shadow + SHADOW_BYTES, fd);
}

/* Map a shadow, all zeros: NULL with errno if it cannot be had. Its first SHADOW_AGAIN bytes also
 * lie behind its end: both are shared mappings of one memory file, which every host has (a second
 * address for anonymous memory, as mremap(2) gives it for an old_size of 0, is missing in some
 * that run another processor's programs). */
uint8_t *emu_shadow_new(void)
{
	uint8_t *all = mmap(atomic_load(&last_place), EMU_BELOW + SHADOW_SIZE, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *p = all + EMU_BELOW;
	int fd, saved;
	bool mapped;

	if (all == MAP_FAILED)
		return NULL;
	fd = memfd_create("deja-shadow", MFD_CLOEXEC);
	mapped = fd >= 0 && ftruncate(fd, SHADOW_AGAIN) == 0 && map_again(p, fd) && map_rest(p);
	saved = errno;
	if (fd >= 0)
		close(fd);
	if (mapped)
		return p;
	munmap(all, EMU_BELOW + SHADOW_SIZE);
	errno = saved;
	return NULL;
}

void emu_shadow_free(uint8_t *shadow)
{
	munmap(shadow - EMU_BELOW, EMU_BELOW + SHADOW_SIZE);
	atomic_store(&last_place, shadow - EMU_BELOW);
}

int emu_before_fork(const struct emu *e)
{
	int fd = memfd_create("deja-shadow", MFD_CLOEXEC);
	size_t done = 0;
	ssize_t n = 1;

	while (fd >= 0 && done < SHADOW_AGAIN && n > 0) {
		n = write(fd, e->shadow + done, SHADOW_AGAIN - done);
		done += n > 0 ? (size_t)n : 0;
	}
	if (fd >= 0 && done < SHADOW_AGAIN) {
		close(fd);
		return -1;
	}
	return fd;
}

bool emu_after_fork(struct emu *e, int fd)
{
	bool good = map_again(e->shadow, fd);

	close(fd);
	return good;
}

void emu_empty_shadow(struct emu *e)
{
	memset(e->shadow, 0, SHADOW_AGAIN);
	/* a host may be short of mappings just now */
	if (!map_rest(e->shadow))
		clear_rest(e->shadow);
}
