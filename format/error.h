/*
 * Errors as values.
 *
 * A function that can fail for a reason a user should hear takes a
 * `struct dj_error *` and returns -1 (or NULL) after filling it in. The text is one
 * line without the leading "deja: " and without a newline; it says what failed and
 * where; what of it a trace has brought is harmless to a terminal. Nothing is printed below the
 * command line (cli/), except by dj_broken(), which reports a broken invariant and ends the
 * process.
 */
#ifndef DEJA_FORMAT_ERROR_H
#define DEJA_FORMAT_ERROR_H

#include <stdarg.h>

struct dj_error {
	int exit_status; /* what the process should exit with: 1 usage or system, 2 bad trace */
	char text[480];
};

/* Fill in `err` (which may be NULL) and return -1, so that callers can
 * `return dj_fail(err, 2, "...")`. */
int dj_fail(struct dj_error *err, int exit_status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The same with ": strerror(errno)" appended. */
int dj_fail_errno(struct dj_error *err, int exit_status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A broken invariant of deja itself: print "deja: internal error: ..." and abort(). */
_Noreturn void dj_broken(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Assertions stay on in every build; the message prints the state that broke them. */
#define DJ_ASSERT(cond, ...)                                                                       \
	do {                                                                                       \
		if (__builtin_expect(!(cond), 0))                                                  \
			dj_broken(__FILE__, __LINE__, __VA_ARGS__);                                \
	} while (0)

#endif
