/*
 * The subcommands of deja: one row per command, one source file per row (cmd-NAME.c).
 *
 * A command gets its own name as argv[0], parses its options with getopt_long and returns
 * the exit status of deja: 0 good, 1 usage or system, 2 bad trace. A command that is not
 * built for this host is listed all the same and says so when called.
 */
#ifndef DEJA_CLI_CMD_H
#define DEJA_CLI_CMD_H

typedef int cmd_fn(int argc, char **argv);

/* The commands that are analyses have their rows in analyses/table.c. */
struct ana_analysis;
int cmd_analysis(const struct ana_analysis *a, int argc, char **argv);

/* Weak: a command whose file is not linked is a null pointer in the table. */
#define CMD_ROWS(X)                                                                                \
	X(record, "[OPTIONS] [--] PROGRAM [ARG...]", "run a program and record it")                \
	X(replay, "[OPTIONS] [FILE] [-- GDB-OPTIONS]", "debug a recording in gdb, both ways")      \
	X(serve, "[OPTIONS] [FILE]", "serve a recording to any gdb client")                        \
	X(verify, "[FILE]", "replay everything and compare all digests")                           \
	X(info, "[--json] [FILE]", "say what a recording contains")                                \
	X(dump, "[OPTIONS] [FILE]", "print every record, one per line")                            \
	X(ps, "[FILE]", "list the recorded processes")                                             \
	X(backtrace, "[OPTIONS] [FILE] [POSITION]", "show call stacks at a moment")                \
	X(events, "[OPTIONS] [FILE]", "system calls, signals, modules, threads")                   \
	X(index, "[FILE]", "go through a recording once, so that replay is quick")                 \
	X(pack, "[OPTIONS] [FILE]", "make a recording that needs no other file")

#define X(name, args, help) __attribute__((weak)) cmd_fn cmd_##name;
CMD_ROWS(X)
#undef X

#endif
