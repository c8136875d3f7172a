/* What analyses/syscall-*.c share: tables and how flags are named. */
#ifndef DEJA_ANALYSES_SYSCALL_PARTS_H
#define DEJA_ANALYSES_SYSCALL_PARTS_H

#include "analyses/syscall.h"

struct ana_syscall_row {
	uint16_t nr;
	const char *name;
	const char *args; /* a letter each */
};
extern const struct ana_syscall_row ana_syscall_rows[];
extern const size_t ana_syscall_nrows;
const struct ana_syscall_row *ana_syscall_row(uint64_t nr); /* NULL: there is none */

/* The name and the text of an error; NULL if nobody knows it. */
const char *ana_syscall_error(uint64_t number, const char **text);

/* What the bits (or, under a mask of several bits, the numbers) in a word mean. */
struct ana_flag {
	uint64_t mask, value;
	const char *name;
};
/* The flags that this letter stands for; NULL if it stands for something else. */
const struct ana_flag *ana_flags_of(char letter);
/* "O_RDWR|O_CREAT|0x40000000". */
void ana_flags_print(const struct ana_flag *flags, uint64_t value, FILE *f);

#endif
