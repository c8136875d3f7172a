/*
 * Memory of translated code in a process that is program and supervisor in one. For an arena: the
 * same pages twice, at the arena's address to be executed, and elsewhere to be written. For each
 * thread: an area, in which gs lies; and handlers of the signals that are its stops.
 */
#ifndef DEJA_TESTS_LIB_ARENA_H
#define DEJA_TESTS_LIB_ARENA_H

#include "translator/area.h"
#include "translator/translate.h"

#include <asm/prctl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Where the arena at address `at' can be written; NULL if there is no room for it. */
static inline uint8_t *arena_map(uint64_t at)
{
	int fd = memfd_create("arena", MFD_CLOEXEC), flags = MAP_SHARED | MAP_NORESERVE;
	void *ours, *va;

	if (fd < 0 || ftruncate(fd, TR_ARENA_SIZE))
		return NULL;
	ours = mmap(NULL, TR_ARENA_SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
	va = mmap((void *)at, TR_ARENA_SIZE, PROT_READ | PROT_EXEC, flags | MAP_FIXED_NOREPLACE, fd,
		  0);
	close(fd);
	return ours == MAP_FAILED || va != (void *)at ? NULL : ours;
}

/* ---- areas ---- */

/* A file for the tables that all share and the parts of so many threads; -1 without memory. */
static inline int area_file(unsigned threads)
{
	int fd = memfd_create("area", MFD_CLOEXEC);

	return fd < 0 || ftruncate(fd, AREA_TABLES + threads * AREA_THREAD) ? -1 : fd;
}

/* Offset `off' from the gs base, of this area. */
static inline uint64_t *area_at(uint8_t *area, int64_t off)
{
	return (uint64_t *)(void *)(area + AREA_CONTROL + off);
}

/* The area of thread `number', with an empty ring; NULL without memory. */
static inline uint8_t *area_map(int fd, unsigned number)
{
	const int fixed = MAP_SHARED | MAP_FIXED, rw = PROT_READ | PROT_WRITE;
	off_t own = AREA_TABLES + (off_t)number * AREA_THREAD;
	uint8_t *area = mmap(NULL, AREA_CONTROL + AREA_SHADOW, rw,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (area == MAP_FAILED || mmap(area, AREA_TABLES, rw, fixed, fd, 0) == MAP_FAILED ||
	    mmap(area + AREA_TABLES, AREA_THREAD, rw, fixed, fd, own) == MAP_FAILED ||
	    mmap(area + AREA_CONTROL + (1UL << 32), AREA_PAGE, rw, fixed, fd,
		 own + AREA_THREAD - AREA_PAGE) == MAP_FAILED)
		return NULL;
	*area_at(area, T_SELF) = (uint64_t)(uintptr_t)(area + AREA_CONTROL);
	*area_at(area, T_HEAD) = (uint64_t)(uintptr_t)area_at(area, T_RING);
	*area_at(area, T_LIMIT) = *area_at(area, T_HEAD) + AREA_HALF - AREA_SLACK;
	return area;
}

/* A thread begins: gs is its area's, signals have a stack, which is returned. */
static inline void *area_enter(uint8_t *area, stack_t *before)
{
	static const size_t size = 64 << 10;
	stack_t ss = { .ss_sp = malloc(size), .ss_size = size };

	sigaltstack(&ss, before);
	syscall(SYS_arch_prctl, ARCH_SET_GS, area + AREA_CONTROL);
	return ss.ss_sp;
}

static inline void area_leave(void *stack, const stack_t *before)
{
	/* AddressSanitizer has one of its own, which it unmaps */
	sigaltstack(before, NULL);
	free(stack);
}

/* Signal `sig' and what `held', if not 0, says comes when the handler is done. */
static inline void area_signal(int sig, void (*handler)(int, siginfo_t *, void *), int held)
{
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_ONSTACK | SA_SIGINFO };

	sigemptyset(&sa.sa_mask);
	if (held)
		sigaddset(&sa.sa_mask, held);
	sigaction(sig, &sa, NULL);
}

#endif
