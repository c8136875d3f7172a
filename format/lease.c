/*
 * Files that are read through a mapping and cannot change meanwhile.
 *
 * Whoever maps a file sees what others write to it, and gets SIGBUS where they cut it off. But with
 * a lease on it (fcntl(2), F_SETLEASE with F_RDLCK) whoever opens it to write, or truncates it, has
 * to wait until the lease is given back. The kernel says so with SIGIO. A copy of what is mapped
 * takes its place then, under the addresses that it has, and the other one goes on. (He does not
 * wait for longer than 45 seconds, /proc/sys/fs/lease-break-time.)
 *
 * There are no leases on a file that is open for writing, on another user's, and on file systems
 * that do not know of them: then the caller has to copy what he needs before he looks at it.
 */
#include "format/lease.h"
#include "format/error.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEASES 64

/* Changed only while SIGIO is blocked. */
static struct lease {
	void *bytes;
	void *room; /* for a copy: nothing of it is touched before there is one */
	size_t size;
	int fd; /* of its own, on the same open file; -1: it has been given back */
} leases[LEASES];
static unsigned n_leases;

static void hold_signal(sigset_t *before)
{
	sigset_t io;
	sigemptyset(&io);
	sigaddset(&io, SIGIO);
	pthread_sigmask(SIG_BLOCK, &io, before);
}

static bool handled(void)
{
	struct sigaction sa;
	return !sigaction(SIGIO, NULL, &sa) && sa.sa_handler != SIG_DFL && sa.sa_handler != SIG_IGN;
}

static void unmap(void *p, size_t size)
{
	if (p != MAP_FAILED)
		munmap(p, size);
}

static bool take(struct lease *l, int fd, size_t size)
{
	struct f_owner_ex me = { F_OWNER_TID, gettid() };
	struct stat st;
	l->size = size;
	l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (l->fd < 0)
		return false;
	if (!fcntl(l->fd, F_SETOWN_EX, &me) && !fcntl(l->fd, F_SETLEASE, F_RDLCK) &&
	    !fstat(l->fd, &st) && (size_t)st.st_size == size) {
		l->bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, l->fd, 0);
		l->room = mmap(NULL, size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (l->bytes != MAP_FAILED && l->room != MAP_FAILED)
			return true;
		unmap(l->bytes, size);
		unmap(l->room, size);
	}
	fcntl(l->fd, F_SETLEASE, F_UNLCK);
	close(l->fd);
	return false;
}

void *dj_lease(int fd, size_t size)
{
	void *bytes = NULL;
	sigset_t before;
	hold_signal(&before);
	if (n_leases < LEASES && size && handled() && take(&leases[n_leases], fd, size))
		bytes = leases[n_leases++].bytes;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return bytes;
}

void dj_lease_end(void *bytes, size_t size)
{
	sigset_t before;
	hold_signal(&before);
	for (unsigned i = 0; i < n_leases; i++) {
		if (leases[i].bytes != bytes)
			continue;
		if (leases[i].fd >= 0) {
			fcntl(leases[i].fd, F_SETLEASE, F_UNLCK);
			close(leases[i].fd);
			munmap(leases[i].room, size);
		}
		leases[i] = leases[--n_leases];
		break;
	}
	munmap(bytes, size);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void give_back(struct lease *l)
{
	memcpy(l->room, l->bytes, l->size);
	mprotect(l->room, l->size, PROT_READ);
	void *at = mremap(l->room, l->size, l->size, MREMAP_MAYMOVE | MREMAP_FIXED, l->bytes);
	DJ_ASSERT(at == l->bytes, "a copy of what is mapped is somewhere else");
	fcntl(l->fd, F_SETLEASE, F_UNLCK);
	close(l->fd);
	l->fd = -1;
}

void dj_leases_broken(void)
{
	int e = errno;
	for (unsigned i = 0; i < n_leases; i++)
		if (leases[i].fd >= 0 && fcntl(leases[i].fd, F_GETLEASE) != F_RDLCK)
			give_back(&leases[i]);
	errno = e;
}
