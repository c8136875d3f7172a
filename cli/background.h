/* `deja record --no-wait`: the recorder in a process of its own, which may go on in the background.
 */
#ifndef DEJA_CLI_BACKGROUND_H
#define DEJA_CLI_BACKGROUND_H

#include <stdbool.h>

/* Returns in a child process, to record there. This process waits for it, passes signals on to it,
 * and ends as it ends, or as cli_background_ended() says. -1 if no process can be made. */
int cli_background(void);
/* In the child: the other one ends with this wait(2) status, and this one goes on. */
void cli_background_ended(int status);
/* Whether that has been done. */
bool cli_in_background(void);
/* End as a program that ended with this wait(2) status. */
int cli_end_like(int status);

#endif
