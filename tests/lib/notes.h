/*
 * Whether this process can have notes of what generated code accesses: they lie where nothing of a
 * program does, but what AddressSanitizer has there.
 */
#ifndef DEJA_TESTS_LIB_NOTES_H
#define DEJA_TESTS_LIB_NOTES_H

#include "fast/fast.h"

#include <stdbool.h>
#include <sys/mman.h>

/* Before there are any. */
static inline bool notes_fit(void)
{
	void *at = (void *)(uintptr_t)FAST_NOTE_FIRST, *p;
	const size_t size = FAST_NOTE_TABLE - FAST_NOTE_FIRST;

	p = mmap(at, size, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (p != MAP_FAILED)
		munmap(p, size);
	return p == at;
}

#endif
