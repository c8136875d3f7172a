/* Errors as values: see error.h. */
#include "format/error.h"

#include "format/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dj_fail(struct dj_error *err, int exit_status, const char *fmt, ...)
{
	if (err) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
		dj_text_clean(err->text);
		err->exit_status = exit_status;
	}
	return -1;
}

int dj_fail_errno(struct dj_error *err, int exit_status, const char *fmt, ...)
{
	int saved = errno;
	if (err) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
		dj_text_clean(err->text);
		size_t n = strlen(err->text);
		snprintf(err->text + n, sizeof(err->text) - n, ": %s", strerror(saved));
		err->exit_status = exit_status;
	}
	errno = saved;
	return -1;
}

void dj_broken(const char *file, int line, const char *fmt, ...)
{
	va_list ap;
	fprintf(stderr, "deja: internal error at %s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}
