/* ^C while a replay works (cli/interrupt.h). */
#include "cli/interrupt.h"

#include <signal.h>

static struct replay *running;
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
	replay_interrupt(running);
}

/* A read of memory that nobody knows may take a replay of all threads, and there may be many such
 * reads: who is interrupted begins none of them any more. */
static bool was_interrupted(void *ctx)
{
	(void)ctx;
	return interrupted;
}

void cli_interruptible(struct replay *r)
{
	running = r;
	replay_set_poll(r, was_interrupted, NULL);
	signal(SIGINT, on_interrupt);
}

void cli_uninterruptible(void)
{
	signal(SIGINT, SIG_DFL);
}

bool cli_interrupted(void)
{
	return interrupted;
}
