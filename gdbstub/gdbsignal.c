/*
 * Signal numbers on the wire are gdb's own (gdb's include/gdb/signals.def); here they are
 * turned into Linux's x86-64 ones (signal(7)) and back.
 */
#include "gdbstub/session.h"

#define GDB_SIGNAL_UNKNOWN 143

/* clang-format off */
static const unsigned char gdb_of_linux[] = {
	[1] = 1,    /* HUP */
	[2] = 2,    /* INT */
	[3] = 3,    /* QUIT */
	[4] = 4,    /* ILL */
	[5] = 5,    /* TRAP */
	[6] = 6,    /* ABRT */
	[7] = 10,   /* BUS */
	[8] = 8,    /* FPE */
	[9] = 9,    /* KILL */
	[10] = 30,  /* USR1 */
	[11] = 11,  /* SEGV */
	[12] = 31,  /* USR2 */
	[13] = 13,  /* PIPE */
	[14] = 14,  /* ALRM */
	[15] = 15,  /* TERM */
	[17] = 20,  /* CHLD */
	[18] = 19,  /* CONT */
	[19] = 17,  /* STOP */
	[20] = 18,  /* TSTP */
	[21] = 21,  /* TTIN */
	[22] = 22,  /* TTOU */
	[23] = 16,  /* URG */
	[24] = 24,  /* XCPU */
	[25] = 25,  /* XFSZ */
	[26] = 26,  /* VTALRM */
	[27] = 27,  /* PROF */
	[28] = 28,  /* WINCH */
	[29] = 23,  /* IO */
	[30] = 32,  /* PWR */
	[31] = 12,  /* SYS */
	[32] = 77,  /* gdb has 32 and 64 out of line */
	[64] = 78,
};
/* clang-format on */
#define FIRST_REALTIME	   33
#define LAST_REALTIME	   63
#define GDB_FIRST_REALTIME 45

int stub_gdbsignal_from_linux(int signo)
{
	if (signo >= FIRST_REALTIME && signo <= LAST_REALTIME)
		return GDB_FIRST_REALTIME + signo - FIRST_REALTIME;
	if (signo <= 0 || signo >= (int)sizeof(gdb_of_linux) || !gdb_of_linux[signo])
		return GDB_SIGNAL_UNKNOWN;
	return gdb_of_linux[signo];
}

int stub_gdbsignal_to_linux(uint64_t gdb)
{
	for (int n = 1; n <= 64; n++)
		if (gdb != GDB_SIGNAL_UNKNOWN && (uint64_t)stub_gdbsignal_from_linux(n) == gdb)
			return n;
	return 0;
}
