/*
 * What the commands share: diagnostics, the default trace, output that is checked.
 */
#ifndef DEJA_CLI_CLI_H
#define DEJA_CLI_CLI_H

#include "format/error.h"
#include "format/trace.h"

#include <stdbool.h>
#include <stdint.h>

/* Exit statuses. */
enum { CLI_GOOD = 0, CLI_USAGE = 1, CLI_BAD_TRACE = 2, CLI_INTERRUPTED = 130 };

/* Print "deja: TEXT" on stderr. */
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Traces are mapped. When one is cut while it is being read, or its disk fails, say so and exit
 * with CLI_BAD_TRACE instead of dying by SIGBUS (mmap(2), ERRORS); processes made later do the
 * same. */
void cli_catch_cut(void);

/* Print the error as cli_warn() does; returns its exit status. */
int cli_error(const struct dj_error *err);

/* The usage error of a command: "deja: COMMAND: TEXT" and where to look; returns CLI_USAGE. */
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What getopt_long returned '?' or ':' for (with opterr = 0), as cli_usage(). */
int cli_bad_option(const char *command, int argc, char **argv, int what);

/* Where traces without a name go: $DEJA_TRACE_DIR, else $XDG_DATA_HOME/deja, else
 * ~/.local/share/deja. A new string, or NULL with err. With `create` it is made. */
char *cli_trace_dir(bool create, struct dj_error *err);

/* Where recordings leave translated code for later ones: $XDG_CACHE_HOME/deja, else ~/.cache/deja,
 * made if that can be. A new string, or NULL. */
char *cli_cache_dir(void);

/* The trace named on the command line, or the latest: a new string, or NULL with err. */
char *cli_trace_path(const char *named, struct dj_error *err);

/* Open what remains of the arguments at optind: at most one trace. On failure says why,
 * sets *status and returns NULL. A damaged one is announced on stderr. */
struct dj_trace *cli_open_trace(const char *command, int argc, char **argv, int *status);

/* The same for who replays it, and so needs what modules contain: all of them are there. */
struct dj_trace *cli_open_whole(const char *command, int argc, char **argv, int *status);

/* A whole number, decimal or 0x. False if it is not one. */
bool cli_number(const char *text, uint64_t *value);
/* Bytes, perhaps with K, M or G behind them. */
bool cli_size(const char *text, uint64_t *value);

/* What is said of another argument. */
#define CLI_CHECKPOINTS "--checkpoints takes a number of bytes, such as 512M"

/* Print text from a trace, what is no letter as '?': a trace is not to be trusted with the
 * user's terminal. */
void cli_put(const char *text);

/* At the end of a command that printed: `status`, unless stdout could not be written,
 * which is then said. */
int cli_finish(int status);

#endif
