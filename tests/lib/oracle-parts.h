/*
 * What the two sides of oracle.h ask of each other.
 */
#ifndef DEJA_TESTS_LIB_ORACLE_PARTS_H
#define DEJA_TESTS_LIB_ORACLE_PARTS_H

#include "tests/lib/oracle.h"

/* Whether there is a log, to be written or read. */
bool oracle_log_open(void);
/* The signal of a question to the CPU: on x86-64 this one, elsewhere the log's. */
int oracle_log_signal(int sig);

/* oracle_emu() without its complaints. */
int oracle_run_emu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
		   uint8_t *mem);

#endif
