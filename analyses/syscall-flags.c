/*
 * The names of flags and of small numbers in system calls' arguments, by the letter that stands for
 * them in analyses/syscall-names.c. Values are the x86-64 kernel's (include/uapi), whatever the
 * host has; rows with a mask of several bits name a number within the word.
 */
#include "analyses/syscall-parts.h"

#include <inttypes.h>

#define BIT(v, name)                                                                               \
	{                                                                                          \
		v, v, #name                                                                        \
	}
#define NUM(v, name)                                                                               \
	{                                                                                          \
		UINT32_MAX, v, #name                                                               \
	}
#define IN(m, v, name)                                                                             \
	{                                                                                          \
		m, v, #name                                                                        \
	}
#define END                                                                                        \
	{                                                                                          \
		0, 0, NULL                                                                         \
	}

/* clang-format off */
/* asm-generic/fcntl.h */
static const struct ana_flag open_flags[] = {
	IN(3, 0, O_RDONLY), IN(3, 1, O_WRONLY), IN(3, 2, O_RDWR), BIT(0x40, O_CREAT),
	BIT(0x80, O_EXCL), BIT(0x100, O_NOCTTY), BIT(0x200, O_TRUNC), BIT(0x400, O_APPEND),
	BIT(0x800, O_NONBLOCK), BIT(0x101000, O_SYNC), BIT(0x1000, O_DSYNC), BIT(0x2000, O_ASYNC),
	BIT(0x4000, O_DIRECT), BIT(0x8000, O_LARGEFILE), BIT(0x20000, O_NOFOLLOW),
	BIT(0x40000, O_NOATIME), BIT(0x80000, O_CLOEXEC), BIT(0x200000, O_PATH),
	BIT(0x410000, O_TMPFILE), BIT(0x10000, O_DIRECTORY), END
};
static const struct ana_flag prots[] = {
	NUM(0, PROT_NONE), BIT(1, PROT_READ), BIT(2, PROT_WRITE), BIT(4, PROT_EXEC),
	BIT(0x01000000, PROT_GROWSDOWN), BIT(0x02000000, PROT_GROWSUP), END
};
static const struct ana_flag map_flags[] = {
	IN(15, 1, MAP_SHARED), IN(15, 2, MAP_PRIVATE), IN(15, 3, MAP_SHARED_VALIDATE),
	BIT(0x10, MAP_FIXED), BIT(0x20, MAP_ANONYMOUS), BIT(0x40, MAP_32BIT),
	BIT(0x100, MAP_GROWSDOWN), BIT(0x800, MAP_DENYWRITE), BIT(0x1000, MAP_EXECUTABLE),
	BIT(0x2000, MAP_LOCKED), BIT(0x4000, MAP_NORESERVE), BIT(0x8000, MAP_POPULATE),
	BIT(0x10000, MAP_NONBLOCK), BIT(0x20000, MAP_STACK), BIT(0x40000, MAP_HUGETLB),
	BIT(0x80000, MAP_SYNC), BIT(0x100000, MAP_FIXED_NOREPLACE), END
};
static const struct ana_flag remap_flags[] = {
	NUM(0, 0), BIT(1, MREMAP_MAYMOVE), BIT(2, MREMAP_FIXED), BIT(4, MREMAP_DONTUNMAP), END
};
static const struct ana_flag advices[] = {
	NUM(0, MADV_NORMAL), NUM(1, MADV_RANDOM), NUM(2, MADV_SEQUENTIAL), NUM(3, MADV_WILLNEED),
	NUM(4, MADV_DONTNEED), NUM(8, MADV_FREE), NUM(9, MADV_REMOVE), NUM(10, MADV_DONTFORK),
	NUM(11, MADV_DOFORK), NUM(12, MADV_MERGEABLE), NUM(13, MADV_UNMERGEABLE),
	NUM(14, MADV_HUGEPAGE), NUM(15, MADV_NOHUGEPAGE), NUM(16, MADV_DONTDUMP),
	NUM(17, MADV_DODUMP), NUM(18, MADV_WIPEONFORK), NUM(19, MADV_KEEPONFORK), NUM(20, MADV_COLD),
	NUM(21, MADV_PAGEOUT), NUM(22, MADV_POPULATE_READ), NUM(23, MADV_POPULATE_WRITE), END
};
static const struct ana_flag msyncs[] = {
	BIT(1, MS_ASYNC), BIT(2, MS_INVALIDATE), BIT(4, MS_SYNC), END
};
static const struct ana_flag whences[] = {
	NUM(0, SEEK_SET), NUM(1, SEEK_CUR), NUM(2, SEEK_END), NUM(3, SEEK_DATA), NUM(4, SEEK_HOLE), END
};
static const struct ana_flag accesses[] = {
	NUM(0, F_OK), BIT(4, R_OK), BIT(2, W_OK), BIT(1, X_OK), END
};
static const struct ana_flag at_flags[] = {
	NUM(0, 0), BIT(0x100, AT_SYMLINK_NOFOLLOW), BIT(0x200, AT_REMOVEDIR),
	BIT(0x400, AT_SYMLINK_FOLLOW), BIT(0x800, AT_NO_AUTOMOUNT), BIT(0x1000, AT_EMPTY_PATH),
	BIT(0x2000, AT_STATX_FORCE_SYNC), BIT(0x4000, AT_STATX_DONT_SYNC), END
};
static const struct ana_flag sigprocmasks[] = {
	NUM(0, SIG_BLOCK), NUM(1, SIG_UNBLOCK), NUM(2, SIG_SETMASK), END
};
static const struct ana_flag sa_flags[] = {
	NUM(0, 0), BIT(0x04000000, SA_RESTORER), BIT(1, SA_NOCLDSTOP), BIT(2, SA_NOCLDWAIT),
	BIT(4, SA_SIGINFO), BIT(0x08000000, SA_ONSTACK), BIT(0x10000000, SA_RESTART),
	BIT(0x40000000, SA_NODEFER), BIT(0x80000000, SA_RESETHAND), END
};
static const struct ana_flag fcntls[] = {
	NUM(0, F_DUPFD), NUM(1, F_GETFD), NUM(2, F_SETFD), NUM(3, F_GETFL), NUM(4, F_SETFL),
	NUM(5, F_GETLK), NUM(6, F_SETLK), NUM(7, F_SETLKW), NUM(8, F_SETOWN), NUM(9, F_GETOWN),
	NUM(10, F_SETSIG), NUM(11, F_GETSIG), NUM(15, F_SETOWN_EX), NUM(16, F_GETOWN_EX),
	NUM(36, F_OFD_GETLK), NUM(37, F_OFD_SETLK), NUM(38, F_OFD_SETLKW), NUM(1024, F_SETLEASE),
	NUM(1025, F_GETLEASE), NUM(1030, F_DUPFD_CLOEXEC), NUM(1031, F_SETPIPE_SZ),
	NUM(1032, F_GETPIPE_SZ), NUM(1033, F_ADD_SEALS), NUM(1034, F_GET_SEALS), END
};
static const struct ana_flag fd_flags[] = { NUM(0, 0), BIT(1, FD_CLOEXEC), END };
/* asm-generic/ioctls.h, linux/fs.h */
static const struct ana_flag ioctls[] = {
	NUM(0x5401, TCGETS), NUM(0x5402, TCSETS), NUM(0x5403, TCSETSW), NUM(0x5404, TCSETSF),
	NUM(0x5405, TCGETA), NUM(0x5409, TCSBRK), NUM(0x540b, TCFLSH), NUM(0x540e, TIOCSCTTY),
	NUM(0x540f, TIOCGPGRP), NUM(0x5410, TIOCSPGRP), NUM(0x5413, TIOCGWINSZ),
	NUM(0x5414, TIOCSWINSZ), NUM(0x541b, FIONREAD), NUM(0x5421, FIONBIO), NUM(0x5422, TIOCNOTTY),
	NUM(0x5429, TIOCGSID), NUM(0x5450, FIONCLEX), NUM(0x5451, FIOCLEX), NUM(0x5452, FIOASYNC),
	NUM(0x80045430, TIOCGPTN), NUM(0x40045431, TIOCSPTLCK), NUM(0x40049409, FICLONE), END
};
static const struct ana_flag families[] = {
	NUM(0, AF_UNSPEC), NUM(1, AF_UNIX), NUM(2, AF_INET), NUM(10, AF_INET6), NUM(16, AF_NETLINK),
	NUM(17, AF_PACKET), NUM(38, AF_ALG), NUM(40, AF_VSOCK), END
};
static const struct ana_flag socket_types[] = {
	IN(15, 1, SOCK_STREAM), IN(15, 2, SOCK_DGRAM), IN(15, 3, SOCK_RAW), IN(15, 5, SOCK_SEQPACKET),
	BIT(0x80000, SOCK_CLOEXEC), BIT(0x800, SOCK_NONBLOCK), END
};
static const struct ana_flag socket_flags[] = {
	NUM(0, 0), BIT(0x80000, SOCK_CLOEXEC), BIT(0x800, SOCK_NONBLOCK), END
};
static const struct ana_flag pipe_flags[] = {
	NUM(0, 0), BIT(0x800, O_NONBLOCK), BIT(0x4000, O_DIRECT), BIT(0x80000, O_CLOEXEC), END
};
static const struct ana_flag shutdowns[] = {
	NUM(0, SHUT_RD), NUM(1, SHUT_WR), NUM(2, SHUT_RDWR), END
};
static const struct ana_flag epoll_events[] = {
	NUM(0, 0), BIT(1, EPOLLIN), BIT(2, EPOLLPRI), BIT(4, EPOLLOUT), BIT(8, EPOLLERR),
	BIT(0x10, EPOLLHUP), BIT(0x2000, EPOLLRDHUP), BIT(0x10000000, EPOLLEXCLUSIVE),
	BIT(0x40000000, EPOLLONESHOT), BIT(0x80000000, EPOLLET), END
};
static const struct ana_flag message_flags[] = {
	NUM(0, 0), BIT(1, MSG_OOB), BIT(2, MSG_PEEK), BIT(4, MSG_DONTROUTE), BIT(8, MSG_CTRUNC),
	BIT(0x20, MSG_TRUNC), BIT(0x40, MSG_DONTWAIT), BIT(0x80, MSG_EOR), BIT(0x100, MSG_WAITALL),
	BIT(0x4000, MSG_NOSIGNAL), BIT(0x8000, MSG_MORE), BIT(0x40000000, MSG_CMSG_CLOEXEC), END
};
/* linux/sched.h; the lowest byte is a signal's number */
static const struct ana_flag clone_flags[] = {
	BIT(0x100, CLONE_VM), BIT(0x200, CLONE_FS), BIT(0x400, CLONE_FILES), BIT(0x800, CLONE_SIGHAND),
	BIT(0x1000, CLONE_PIDFD), BIT(0x2000, CLONE_PTRACE), BIT(0x4000, CLONE_VFORK),
	BIT(0x8000, CLONE_PARENT), BIT(0x10000, CLONE_THREAD), BIT(0x20000, CLONE_NEWNS),
	BIT(0x40000, CLONE_SYSVSEM), BIT(0x80000, CLONE_SETTLS), BIT(0x100000, CLONE_PARENT_SETTID),
	BIT(0x200000, CLONE_CHILD_CLEARTID), BIT(0x400000, CLONE_DETACHED),
	BIT(0x800000, CLONE_UNTRACED), BIT(0x1000000, CLONE_CHILD_SETTID),
	BIT(0x2000000, CLONE_NEWCGROUP), BIT(0x4000000, CLONE_NEWUTS), BIT(0x8000000, CLONE_NEWIPC),
	BIT(0x10000000, CLONE_NEWUSER), BIT(0x20000000, CLONE_NEWPID), BIT(0x40000000, CLONE_NEWNET),
	BIT(0x80000000, CLONE_IO), IN(0xff, 17, SIGCHLD), END
};
static const struct ana_flag futexes[] = {
	IN(0x7f, 0, FUTEX_WAIT), IN(0x7f, 1, FUTEX_WAKE), IN(0x7f, 2, FUTEX_FD),
	IN(0x7f, 3, FUTEX_REQUEUE), IN(0x7f, 4, FUTEX_CMP_REQUEUE), IN(0x7f, 5, FUTEX_WAKE_OP),
	IN(0x7f, 6, FUTEX_LOCK_PI), IN(0x7f, 7, FUTEX_UNLOCK_PI), IN(0x7f, 8, FUTEX_TRYLOCK_PI),
	IN(0x7f, 9, FUTEX_WAIT_BITSET), IN(0x7f, 10, FUTEX_WAKE_BITSET),
	IN(0x7f, 11, FUTEX_WAIT_REQUEUE_PI), IN(0x7f, 12, FUTEX_CMP_REQUEUE_PI),
	IN(0x7f, 13, FUTEX_LOCK_PI2), BIT(0x80, FUTEX_PRIVATE_FLAG), BIT(0x100, FUTEX_CLOCK_REALTIME),
	END
};
static const struct ana_flag clocks[] = {
	NUM(0, CLOCK_REALTIME), NUM(1, CLOCK_MONOTONIC), NUM(2, CLOCK_PROCESS_CPUTIME_ID),
	NUM(3, CLOCK_THREAD_CPUTIME_ID), NUM(4, CLOCK_MONOTONIC_RAW), NUM(5, CLOCK_REALTIME_COARSE),
	NUM(6, CLOCK_MONOTONIC_COARSE), NUM(7, CLOCK_BOOTTIME), NUM(11, CLOCK_TAI), END
};
static const struct ana_flag epoll_ops[] = {
	NUM(1, EPOLL_CTL_ADD), NUM(2, EPOLL_CTL_DEL), NUM(3, EPOLL_CTL_MOD), END
};
static const struct ana_flag epoll_flags[] = { NUM(0, 0), BIT(0x80000, EPOLL_CLOEXEC), END };
static const struct ana_flag event_flags[] = {
	NUM(0, 0), BIT(1, EFD_SEMAPHORE), BIT(0x800, EFD_NONBLOCK), BIT(0x80000, EFD_CLOEXEC), END
};
static const struct ana_flag random_flags[] = {
	NUM(0, 0), BIT(1, GRND_NONBLOCK), BIT(2, GRND_RANDOM), BIT(4, GRND_INSECURE), END
};
static const struct ana_flag memfd_flags[] = {
	NUM(0, 0), BIT(1, MFD_CLOEXEC), BIT(2, MFD_ALLOW_SEALING), BIT(4, MFD_HUGETLB), END
};
static const struct ana_flag rename_flags[] = {
	NUM(0, 0), BIT(1, RENAME_NOREPLACE), BIT(2, RENAME_EXCHANGE), BIT(4, RENAME_WHITEOUT), END
};
static const struct ana_flag wait_options[] = {
	NUM(0, 0), BIT(1, WNOHANG), BIT(2, WUNTRACED), BIT(4, WEXITED), BIT(8, WCONTINUED),
	BIT(0x01000000, WNOWAIT), BIT(0x20000000, __WNOTHREAD), BIT(0x40000000, __WALL),
	BIT(0x80000000, __WCLONE), END
};
static const struct ana_flag limits[] = {
	NUM(0, RLIMIT_CPU), NUM(1, RLIMIT_FSIZE), NUM(2, RLIMIT_DATA), NUM(3, RLIMIT_STACK),
	NUM(4, RLIMIT_CORE), NUM(5, RLIMIT_RSS), NUM(6, RLIMIT_NPROC), NUM(7, RLIMIT_NOFILE),
	NUM(8, RLIMIT_MEMLOCK), NUM(9, RLIMIT_AS), NUM(10, RLIMIT_LOCKS), NUM(11, RLIMIT_SIGPENDING),
	NUM(12, RLIMIT_MSGQUEUE), NUM(13, RLIMIT_NICE), NUM(14, RLIMIT_RTPRIO), NUM(15, RLIMIT_RTTIME),
	END
};
static const struct ana_flag prctls[] = {
	NUM(1, PR_SET_PDEATHSIG), NUM(2, PR_GET_PDEATHSIG), NUM(3, PR_GET_DUMPABLE),
	NUM(4, PR_SET_DUMPABLE), NUM(8, PR_SET_KEEPCAPS), NUM(15, PR_SET_NAME), NUM(16, PR_GET_NAME),
	NUM(21, PR_GET_SECCOMP), NUM(22, PR_SET_SECCOMP), NUM(23, PR_CAPBSET_READ),
	NUM(24, PR_CAPBSET_DROP), NUM(36, PR_SET_CHILD_SUBREAPER), NUM(38, PR_SET_NO_NEW_PRIVS),
	NUM(39, PR_GET_NO_NEW_PRIVS), NUM(0x53564d41, PR_SET_VMA), END
};
static const struct ana_flag arch_prctls[] = {
	NUM(0x1001, ARCH_SET_GS), NUM(0x1002, ARCH_SET_FS), NUM(0x1003, ARCH_GET_FS),
	NUM(0x1004, ARCH_GET_GS), NUM(0x1011, ARCH_GET_CPUID), NUM(0x1012, ARCH_SET_CPUID),
	NUM(0x3001, ARCH_CET_STATUS), END
};
static const struct ana_flag poll_events[] = {
	NUM(0, 0), BIT(1, POLLIN), BIT(2, POLLPRI), BIT(4, POLLOUT), BIT(8, POLLERR), BIT(0x10, POLLHUP),
	BIT(0x20, POLLNVAL), BIT(0x40, POLLRDNORM), BIT(0x80, POLLRDBAND), BIT(0x100, POLLWRNORM),
	BIT(0x2000, POLLRDHUP), END
};
static const struct ana_flag file_types[] = {
	IN(0170000, 0140000, S_IFSOCK), IN(0170000, 0120000, S_IFLNK), IN(0170000, 0100000, S_IFREG),
	IN(0170000, 0060000, S_IFBLK), IN(0170000, 0040000, S_IFDIR), IN(0170000, 0020000, S_IFCHR),
	IN(0170000, 0010000, S_IFIFO), BIT(04000, S_ISUID), BIT(02000, S_ISGID), BIT(01000, S_ISVTX), END
};
/* clang-format on */

static const struct {
	char letter;
	const struct ana_flag *flags;
} sets[] = {
	{ 'o', open_flags },   { 'P', prots },	       { 'm', map_flags },    { 'j', remap_flags },
	{ 'd', advices },      { 'Z', msyncs },	       { 'w', whences },      { 'X', accesses },
	{ '8', at_flags },     { 'h', sigprocmasks },  { '%', sa_flags },     { 'c', fcntls },
	{ '&', fd_flags },     { '>', ioctls },	       { 'D', families },     { 'K', socket_types },
	{ '9', socket_flags }, { 'O', message_flags }, { 'C', clone_flags },  { '5', futexes },
	{ '6', clocks },       { '7', epoll_ops },     { '!', epoll_flags },  { '#', event_flags },
	{ ';', random_flags }, { '<', memfd_flags },   { ':', rename_flags }, { 'U', wait_options },
	{ 'r', limits },       { '2', prctls },	       { '3', arch_prctls },  { '^', poll_events },
	{ '_', file_types },   { '$', pipe_flags },    { '*', shutdowns },    { ',', epoll_events },
};

const struct ana_flag *ana_flags_of(char letter)
{
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (sets[i].letter == letter)
			return sets[i].flags;
	return NULL;
}

void ana_flags_print(const struct ana_flag *flags, uint64_t value, FILE *f)
{
	uint64_t left = value;
	const char *between = "";

	for (; flags->name; flags++) {
		if ((value & flags->mask) != flags->value ||
		    (flags->value && (left & flags->value) != flags->value))
			continue;
		/* that nothing is set is only worth a word where nothing else is to be said */
		if (!flags->value && flags->mask == UINT32_MAX && value)
			continue;
		fprintf(f, "%s%s", between, flags->name);
		between = "|";
		left &= ~flags->value;
	}
	if (left || !*between)
		fprintf(f, "%s%#" PRIx64, between, left);
}
