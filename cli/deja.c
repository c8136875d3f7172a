/*
 * deja, the command: finds the subcommand and calls it. cli/cmd.h has the table's rows.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/confine.h"
#include "analyses/analysis.h"
#include "replayer/replay.h"

#include <stdio.h>
#include <string.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

struct command {
	const char *name, *args, *help;
	cmd_fn *run;
};

static const struct command commands[] = {
#define X(name, args, help) { #name, args, help, cmd_##name },
	CMD_ROWS(X)
#undef X
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int help(void)
{
	puts("Usage: deja COMMAND [ARGUMENTS]\n"
	     "Record a run of a program; step through it forwards and backwards in gdb.\n");
	for (size_t i = 0; i < COMMANDS; i++)
		printf("  %-9s %-33s %s\n", commands[i].name, commands[i].args, commands[i].help);
	for (size_t i = 0; ana_nth(i); i++)
		printf("  %-9s %-33s %s\n", ana_nth(i)->name, ana_nth(i)->args, ana_nth(i)->help);
	puts("\n"
	     "Where FILE may be left out, the latest recording is meant.\n"
	     "deja COMMAND --help says more; so do the man pages deja(1) and deja-trace(5).");
	return cli_finish(CLI_GOOD);
}

static int version(void)
{
	printf("deja %s (trace format %d, %d)\n", PACKAGE_VERSION, DJ_TRACE_VERSION,
	       DJ_TRACE_VERSION_SHARED);
	return cli_finish(CLI_GOOD);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;

	if (!name) {
		cli_warn("no command (deja --help lists them)");
		return CLI_USAGE;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help"))
		return help();
	if (!strcmp(name, "--version") || !strcmp(name, "-V"))
		return version();
	cli_catch_cut();
	replay_confine(cli_confine);
	for (size_t i = 0; i < COMMANDS; i++) {
		if (strcmp(name, commands[i].name))
			continue;
		if (!commands[i].run) {
			cli_warn("%s: this host cannot record: that takes x86-64 Linux", name);
			return CLI_USAGE;
		}
		return commands[i].run(argc - 1, argv + 1);
	}
	if (ana_find(name))
		return cmd_analysis(ana_find(name), argc - 1, argv + 1);
	cli_warn("%s: no such command (deja --help lists them)", name);
	return CLI_USAGE;
}
