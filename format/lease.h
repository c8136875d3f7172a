/* Files that are read through a mapping and cannot change meanwhile. */
#ifndef DEJA_FORMAT_LEASE_H
#define DEJA_FORMAT_LEASE_H

#include <stddef.h>

/* All `size` bytes of the file, to be read; NULL if that is not possible here, or if there is no
 * handler of SIGIO. They are what they are from now on, also if somebody writes to the file. */
void *dj_lease(int fd, size_t size);
void dj_lease_end(void *bytes, size_t size);
/* SIGIO has come from the kernel. May be called by its handler, in the thread that took the
 * leases. */
void dj_leases_broken(void);

#endif
