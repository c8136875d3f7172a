/*
 * The terminal as it was before the program ran: a program that is ended because its recording is
 * cut does not come to give the terminal its settings back, nor the foreground.
 */
#include "cli/terminal.h"

#include <signal.h>
#include <unistd.h>

void cli_terminal_keep(struct cli_terminal *k)
{
	k->fd = -1;
	for (int fd = 0; fd < 3 && k->fd < 0; fd++)
		if (!tcgetattr(fd, &k->settings))
			k->fd = fd;
	k->foreground = k->fd >= 0 && tcgetpgrp(k->fd) == getpgrp();
}

void cli_terminal_restore(const struct cli_terminal *k)
{
	sigset_t stop, old;
	if (k->fd < 0)
		return;
	/* whoever is not in the foreground is stopped for this, unless he blocks it (POSIX 11.1.4)
	 */
	sigemptyset(&stop);
	sigaddset(&stop, SIGTTOU);
	sigprocmask(SIG_BLOCK, &stop, &old);
	if (k->foreground)
		tcsetpgrp(k->fd, getpgrp());
	tcsetattr(k->fd, TCSADRAIN, &k->settings);
	sigprocmask(SIG_SETMASK, &old, NULL);
}
