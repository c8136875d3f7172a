/* Keeping a terminal's settings while a program runs. */
#ifndef DEJA_CLI_TERMINAL_H
#define DEJA_CLI_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

struct cli_terminal {
	int fd; /* -1: there is none */
	bool foreground;
	struct termios settings;
};

void cli_terminal_keep(struct cli_terminal *k);
void cli_terminal_restore(const struct cli_terminal *k);

#endif
