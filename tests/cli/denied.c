/*
 * System calls that deja refuses because they would show it to the program (doc/limits.md), and
 * afterwards one that must not have been changed by them. Natively each may succeed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *answer(long result)
{
	return result == 0 ? "0" : strerrorname_np(errno);
}

int main(void)
{
	static char block;
	long pid = getpid();

	/* of this thread, should the C library have no registration of its own */
	printf("rseq %s, ", answer(syscall(SYS_rseq, NULL, 0, 0, 0)));
	/* what needs it, which must be missing from what is said to be there */
	long there = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
	int rseq = MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ,
	    wants = MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ;
	printf("barriers %s %s %s, ", there & (rseq | wants) ? "there" : "not there",
	       answer(syscall(SYS_membarrier, wants, 0, 0)),
	       answer(syscall(SYS_membarrier, rseq, 0, 0)));
	printf("others %s, ", there > 0 && !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0)
				      ? "there"
				      : "not there");
	printf("shadow stacks %s, ", answer(syscall(SYS_arch_prctl, 0x5001, 1)));
	/* calls from nowhere but address 1 on would be allowed, if `block` said so */
	printf("dispatch %s, ",
	       answer(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 1, 1, &block)));
	block = SYSCALL_DISPATCH_FILTER_ALLOW;
	printf("off %s, ",
	       answer(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0)));
	printf("pid %s\n", syscall(SYS_getpid) == pid ? "right" : "wrong");
	return 0;
}
