/*
 * System calls as text, in the way of strace(1): arguments with the names of flags, what they point
 * to as far as the recording has it, the result, the error. All text is made of ASCII letters;
 * strings out of the program's memory are quoted and escaped.
 */
#ifndef DEJA_ANALYSES_SYSCALL_H
#define DEJA_ANALYSES_SYSCALL_H

#include "replayer/replay.h"

#include <stdio.h>

/* A call that a thread is making. Arguments that the kernel reads are looked at when it begins. */
struct ana_syscall {
	uint64_t nr, arg[6];
	char *text[6];
};

/* The selected thread stands before a system call: what it is. */
void ana_syscall_begin(struct replay *r, struct ana_syscall *c);
/* It stands behind it: the whole as a line without an end. `result` NULL: it does not come back. */
void ana_syscall_print(struct replay *r, struct ana_syscall *c, const uint64_t *result, FILE *f);
void ana_syscall_free(struct ana_syscall *c);

/* "openat"; "syscall_999" in `buf` for numbers that nobody knows. */
const char *ana_syscall_name(uint64_t nr, char *buf, size_t size);
/* The number of a call of this name; false if there is none. */
bool ana_syscall_number(const char *name, uint64_t *nr);
/* "SIGSEGV". */
void ana_signal_name(uint64_t number, char *buf, size_t size);
/* A signal with what the kernel says of it: {si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=0}. */
void ana_signal_print(const uint8_t siginfo[128], int signo, FILE *f);
/* Bytes as a C string in quotes; `more`: dots behind it. */
void ana_quote(const void *bytes, size_t n, bool more, FILE *f);

#endif
