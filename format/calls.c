/*
 * What system calls write: see calls.h. Numbers of calls: arch/x86/entry/syscalls/syscall_64.tbl;
 * sizes: the kernel's uapi structures on x86-64.
 *
 * Where a call says in memory how much it may write (an iovec, a length), that memory is asked.
 * What is not known there is not followed, nor are the structures of ioctls beyond the size in
 * their number.
 */
#include "format/calls.h"

#define IOVEC_MAX 1024u /* entries that are looked at */

#define FIXED	   DJ_CALL_FIXED
#define RESULT	   DJ_CALL_RESULT
#define COUNT	   DJ_CALL_COUNT
#define PAGES	   DJ_CALL_PAGES
#define BITS	   DJ_CALL_BITS
#define LENGTH	   DJ_CALL_LENGTH
#define IOVEC	   DJ_CALL_IOVEC
#define MSGHDR	   DJ_CALL_MSGHDR
#define MMSGHDR	   DJ_CALL_MMSGHDR
#define IOCTL	   DJ_CALL_IOCTL
#define FCNTL	   DJ_CALL_FCNTL
#define PRCTL	   DJ_CALL_PRCTL
#define ARCH_PRCTL DJ_CALL_ARCH_PRCTL

/* clang-format off */
static const struct dj_call_write table[] = {
	{0, 1, RESULT, 1, 2},	 /* read */
	{4, 1, FIXED, 144, 0},	 /* stat */
	{5, 1, FIXED, 144, 0},	 /* fstat */
	{6, 1, FIXED, 144, 0},	 /* lstat */
	{7, 0, COUNT, 8, 1},	 /* poll */
	{13, 2, FIXED, 32, 0},	 /* rt_sigaction: old action */
	{14, 2, FIXED, 8, 0},	 /* rt_sigprocmask: old mask */
	{16, 2, IOCTL, 0, 1},	 /* ioctl */
	{17, 1, RESULT, 1, 2},	 /* pread64 */
	{19, 1, IOVEC, 0, 2},	 /* readv */
	{22, 0, FIXED, 8, 0},	 /* pipe */
	{23, 1, BITS, 0, 0},	 /* select */
	{23, 2, BITS, 0, 0},
	{23, 3, BITS, 0, 0},
	{23, 4, FIXED, 16, 0},	 /* remaining time */
	{27, 2, PAGES, 0, 1},	 /* mincore */
	{31, 2, FIXED, 112, 0},	 /* shmctl */
	{35, 1, FIXED, 16, 0},	 /* nanosleep: remaining time */
	{36, 1, FIXED, 32, 0},	 /* getitimer */
	{38, 2, FIXED, 32, 0},	 /* setitimer */
	{40, 2, FIXED, 8, 0},	 /* sendfile: offset */
	{43, 1, LENGTH, 0, 2},	 /* accept */
	{43, 2, FIXED, 4, 0},
	{45, 1, RESULT, 1, 2},	 /* recvfrom */
	{45, 4, LENGTH, 0, 5},
	{45, 5, FIXED, 4, 0},
	{47, 1, MSGHDR, 0, 0},	 /* recvmsg */
	{51, 1, LENGTH, 0, 2},	 /* getsockname */
	{51, 2, FIXED, 4, 0},
	{52, 1, LENGTH, 0, 2},	 /* getpeername */
	{52, 2, FIXED, 4, 0},
	{53, 3, FIXED, 8, 0},	 /* socketpair */
	{55, 3, LENGTH, 0, 4},	 /* getsockopt */
	{55, 4, FIXED, 4, 0},
	{61, 1, FIXED, 4, 0},	 /* wait4: status */
	{61, 3, FIXED, 144, 0},	 /* wait4: usage */
	{63, 0, FIXED, 390, 0},	 /* uname */
	{70, 1, RESULT, 1, 0},	 /* msgrcv: behind the type */
	{70, 1, FIXED, 16, 0},
	{71, 2, FIXED, 120, 0},	 /* msgctl */
	{72, 2, FCNTL, 0, 1},	 /* fcntl */
	{78, 1, RESULT, 1, 2},	 /* getdents */
	{79, 0, RESULT, 1, 1},	 /* getcwd */
	{89, 1, RESULT, 1, 2},	 /* readlink */
	{96, 0, FIXED, 16, 0},	 /* gettimeofday */
	{97, 1, FIXED, 16, 0},	 /* getrlimit */
	{98, 1, FIXED, 144, 0},	 /* getrusage */
	{99, 0, FIXED, 112, 0},	 /* sysinfo */
	{100, 0, FIXED, 32, 0},	 /* times */
	{103, 1, RESULT, 1, 2},	 /* syslog */
	{115, 1, RESULT, 4, 0},	 /* getgroups */
	{118, 0, FIXED, 4, 0},	 /* getresuid */
	{118, 1, FIXED, 4, 0},
	{118, 2, FIXED, 4, 0},
	{120, 0, FIXED, 4, 0},	 /* getresgid */
	{120, 1, FIXED, 4, 0},
	{120, 2, FIXED, 4, 0},
	{125, 1, FIXED, 24, 0},	 /* capget */
	{127, 0, FIXED, 8, 0},	 /* rt_sigpending */
	{128, 1, FIXED, 128, 0}, /* rt_sigtimedwait */
	{131, 1, FIXED, 24, 0},	 /* sigaltstack: old stack */
	{137, 1, FIXED, 120, 0}, /* statfs */
	{138, 1, FIXED, 120, 0}, /* fstatfs */
	{143, 1, FIXED, 4, 0},	 /* sched_getparam */
	{148, 1, FIXED, 16, 0},	 /* sched_rr_get_interval */
	{157, 1, PRCTL, 0, 0},	 /* prctl */
	{158, 1, ARCH_PRCTL, 8, 0}, /* arch_prctl */
	{191, 2, RESULT, 1, 3},	 /* getxattr */
	{192, 2, RESULT, 1, 3},	 /* lgetxattr */
	{193, 2, RESULT, 1, 3},	 /* fgetxattr */
	{194, 1, RESULT, 1, 2},	 /* listxattr */
	{195, 1, RESULT, 1, 2},	 /* llistxattr */
	{196, 1, RESULT, 1, 2},	 /* flistxattr */
	{201, 0, FIXED, 8, 0},	 /* time */
	{204, 2, RESULT, 1, 1},	 /* sched_getaffinity */
	{206, 1, FIXED, 8, 0},	 /* io_setup */
	{208, 3, RESULT, 32, 0}, /* io_getevents */
	{217, 1, RESULT, 1, 2},	 /* getdents64 */
	{222, 2, FIXED, 4, 0},	 /* timer_create */
	{223, 3, FIXED, 32, 0},	 /* timer_settime: old time */
	{224, 1, FIXED, 32, 0},	 /* timer_gettime */
	{228, 1, FIXED, 16, 0},	 /* clock_gettime */
	{229, 1, FIXED, 16, 0},	 /* clock_getres */
	{230, 3, FIXED, 16, 0},	 /* clock_nanosleep: remaining time */
	{232, 1, RESULT, 12, 0}, /* epoll_wait */
	{243, 1, RESULT, 1, 2},	 /* mq_timedreceive */
	{243, 3, FIXED, 4, 0},
	{245, 2, FIXED, 64, 0},	 /* mq_getsetattr */
	{247, 2, FIXED, 128, 0}, /* waitid */
	{247, 4, FIXED, 144, 0},
	{262, 2, FIXED, 144, 0}, /* newfstatat */
	{267, 2, RESULT, 1, 3},	 /* readlinkat */
	{270, 1, BITS, 0, 0},	 /* pselect6 */
	{270, 2, BITS, 0, 0},
	{270, 3, BITS, 0, 0},
	{270, 4, FIXED, 16, 0},
	{271, 0, COUNT, 8, 1},	 /* ppoll */
	{271, 2, FIXED, 16, 0},
	{274, 1, FIXED, 8, 0},	 /* get_robust_list */
	{274, 2, FIXED, 8, 0},
	{275, 1, FIXED, 8, 0},	 /* splice: offsets */
	{275, 3, FIXED, 8, 0},
	{281, 1, RESULT, 12, 0}, /* epoll_pwait */
	{286, 3, FIXED, 32, 0},	 /* timerfd_settime: old time */
	{287, 1, FIXED, 32, 0},	 /* timerfd_gettime */
	{288, 1, LENGTH, 0, 2},	 /* accept4 */
	{288, 2, FIXED, 4, 0},
	{293, 0, FIXED, 8, 0},	 /* pipe2 */
	{295, 1, IOVEC, 0, 2},	 /* preadv */
	{299, 1, MMSGHDR, 0, 0}, /* recvmmsg */
	{302, 3, FIXED, 16, 0},	 /* prlimit64 */
	{303, 2, FIXED, 136, 0}, /* name_to_handle_at */
	{303, 3, FIXED, 4, 0},
	{309, 0, FIXED, 4, 0},	 /* getcpu */
	{309, 1, FIXED, 4, 0},
	{310, 1, IOVEC, 0, 2},	 /* process_vm_readv */
	{315, 1, COUNT, 1, 2},	 /* sched_getattr */
	{318, 0, RESULT, 1, 1},	 /* getrandom */
	{326, 1, FIXED, 8, 0},	 /* copy_file_range: offsets */
	{326, 3, FIXED, 8, 0},
	{327, 1, IOVEC, 0, 2},	 /* preadv2 */
	{332, 4, FIXED, 256, 0}, /* statx */
	{425, 1, FIXED, 120, 0}, /* io_uring_setup */
	{441, 1, RESULT, 12, 0}, /* epoll_pwait2 */
};
/* clang-format on */

/* Calls that write nothing. */
/* clang-format off */
static const uint16_t harmless[] = {
	1, 2, 3, 8, 10, 12,	 /* write open close lseek mprotect brk */
	18, 20, 21, 24, 28,	 /* pwrite64 writev access sched_yield madvise */
	32, 33, 34, 37, 39,	 /* dup dup2 pause alarm getpid */
	41, 42, 44, 46, 48, 49, 50, 54, /* socket connect sendto sendmsg shutdown bind listen setsockopt */
	57, 58, 62, 73, 74, 75, 76, 77, /* fork vfork kill flock fsync fdatasync truncate ftruncate */
	80, 81, 82, 83, 84, 85, 86, 87, 88, /* chdir fchdir rename mkdir rmdir creat link unlink symlink */
	90, 91, 92, 93, 94, 95,	 /* chmod fchmod chown fchown lchown umask */
	102, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, /* ids of users and groups */
	117, 119, 121, 124, 130, 132, 133, /* setresuid setresgid getpgid getsid rt_sigsuspend utime mknod */
	160, 162, 186, 187, 200, 202, 203, /* setrlimit sync gettid readahead tkill futex sched_setaffinity */
	213, 218, 221, 225, 226, 227, /* epoll_create set_tid_address fadvise64 timers clock_settime */
	231, 233, 234, 235, 254, /* exit_group epoll_ctl tgkill utimes inotify_add_watch */
	257, 258, 259, 260, 261, 263, 264, 265, 266, 268, 269, /* the *at calls */
	273, 277, 280, 282, 283, 284, 285, /* set_robust_list sync_file_range utimensat signalfd timerfd eventfd fallocate */
	289, 290, 291, 292, 294, 296, /* signalfd4 eventfd2 epoll_create1 dup3 inotify_init1 pwritev */
	306, 307, 316, 319, 324, 328, /* syncfs sendmmsg renameat2 memfd_create membarrier pwritev2 */
	434, 436, 437, 439, /* pidfd_open close_range openat2 faccessat2 */
};
/* clang-format on */

/* The terminal's and sockets' old requests (asm-generic/ioctls.h). */
static const struct dj_call_ioctl ioctls[] = {
	{ 0x5401, 36 },				      /* TCGETS */
	{ 0x5405, 18 },				      /* TCGETA */
	{ 0x5413, 8 },				      /* TIOCGWINSZ */
	{ 0x540f, 4 },				      /* TIOCGPGRP */
	{ 0x5411, 4 },				      /* TIOCOUTQ */
	{ 0x5415, 4 },				      /* TIOCMGET */
	{ 0x541b, 4 },				      /* FIONREAD */
	{ 0x5424, 4 },				      /* TIOCGETD */
	{ 0x5429, 4 },				      /* TIOCGSID */
	{ 0x5402, 0 },	{ 0x5403, 0 }, { 0x5404, 0 }, /* TCSETS and the like */
	{ 0x5409, 0 },	{ 0x540a, 0 }, { 0x540b, 0 }, /* TCSBRK TCXONC TCFLSH */
	{ 0x540e, 0 },	{ 0x5410, 0 }, { 0x5414, 0 }, /* TIOCSCTTY TIOCSPGRP TIOCSWINSZ */
	{ 0x5421, 0 },	{ 0x5450, 0 }, { 0x5451, 0 },
	{ 0x5452, 0 }, /* FIONBIO FIONCLEX FIOCLEX FIOASYNC */
};
#define N(array) (sizeof(array) / sizeof((array)[0]))

const struct dj_call_write *dj_call_table(size_t *n)
{
	*n = N(table);
	return table;
}

const struct dj_call_ioctl *dj_call_ioctls(size_t *n)
{
	*n = N(ioctls);
	return ioctls;
}

/* What an ioctl writes: as listed, else the size in the number (asm-generic/ioctl.h), which may not
 * be all. Returns whether it is. */
static bool ioctl_writes(uint32_t request, uint64_t *size)
{
	*size = 0;
	for (size_t i = 0; i < N(ioctls); i++) {
		if (ioctls[i].request != request)
			continue;
		*size = ioctls[i].size;
		return true;
	}
	if (request >> 8 == 0x89)
		*size = request == 0x8912 ? 16 : 40; /* SIOCGIFCONF: struct ifconf; struct ifreq */
	else if (request >> 31)
		*size = request >> 16 & 0x3fff;
	return false;
}

bool dj_call_is_known(uint64_t nr, uint64_t arg1)
{
	uint64_t size;

	for (size_t i = 0; i < N(harmless); i++)
		if (harmless[i] == nr)
			return true;
	for (size_t i = 0; i < N(table); i++)
		if (table[i].nr == nr)
			return table[i].how != IOCTL || ioctl_writes((uint32_t)arg1, &size);
	return false;
}

/* `count` of struct iovec at `at` were filled with `length` bytes. */
static void iovec(const struct dj_call_reader *r, uint64_t at, uint64_t count, uint64_t length)
{
	uint64_t base, n;

	for (uint64_t i = 0; i < count && i < IOVEC_MAX && length; i++) {
		if (!r->number(r->ctx, at + 16 * i, 8, &base) ||
		    !r->number(r->ctx, at + 16 * i + 8, 8, &n))
			return;
		if (n > length)
			n = length;
		r->wrote(r->ctx, base, n);
		length -= n;
	}
}

/* struct msghdr: name, its length (at 8), iovec (16), how many (24), control data (32), their
 * length (40), flags. Between them is padding that nobody has written. */
static void msghdr(const struct dj_call_reader *r, uint64_t at, uint64_t length)
{
	uint64_t to, n;

	if (r->number(r->ctx, at + 16, 8, &to) && r->number(r->ctx, at + 24, 8, &n))
		iovec(r, to, n, length);
	if (r->number(r->ctx, at, 8, &to) && to && r->number(r->ctx, at + 8, 4, &n))
		r->wrote(r->ctx, to, n);
	if (r->number(r->ctx, at + 32, 8, &to) && to && r->number(r->ctx, at + 40, 8, &n))
		r->wrote(r->ctx, to, n);
	r->wrote(r->ctx, at + 8, 4);
	r->wrote(r->ctx, at + 40, 12);
}

static uint64_t fcntl_size(uint64_t command)
{
	return command == 5 || command == 36 ? 32
	       : command == 16		     ? 8
					     : 0; /* F_GETLK F_OFD_GETLK F_GETOWN_EX */
}

static uint64_t prctl_size(uint64_t option)
{
	switch (option) {
	case 2:	 /* PR_GET_PDEATHSIG */
	case 5:	 /* PR_GET_UNALIGN */
	case 9:	 /* PR_GET_FPEMU */
	case 11: /* PR_GET_FPEXC */
	case 19: /* PR_GET_ENDIAN */
	case 25: /* PR_GET_TSC */
	case 37: /* PR_GET_CHILD_SUBREAPER */
		return 4;
	case 16: /* PR_GET_NAME */
		return 16;
	case 40: /* PR_GET_TID_ADDRESS */
		return 8;
	}
	return 0;
}

static void row_writes(const struct dj_call_write *w, const struct dj_call *c,
		       const struct dj_call_reader *r)
{
	uint64_t to = c->arg[w->arg], other = c->arg[w->other], size = w->size;

	switch ((enum dj_call_how)w->how) {
	case FIXED:
		break;
	case RESULT:
		size *= c->result;
		if (w->other && size > other)
			size = other; /* it returned how much there would have been */
		break;
	case COUNT:
		size *= other;
		break;
	case PAGES:
		size = (other + 4095) / 4096;
		break;
	case BITS:
		size = ((uint32_t)other + 63) / 64 * 8;
		break;
	case LENGTH:
		if (!to || !r->number(r->ctx, other, 4, &size))
			return;
		break;
	case IOVEC:
		iovec(r, to, other, c->result);
		return;
	case MSGHDR:
		msghdr(r, to, c->result);
		return;
	case MMSGHDR:
		for (uint64_t i = 0; i < c->result && i < IOVEC_MAX; i++) {
			msghdr(r, to + 64 * i, UINT64_MAX);
			r->wrote(r->ctx, to + 64 * i + 56, 4);
		}
		return;
	case IOCTL:
		ioctl_writes((uint32_t)other, &size);
		break;
	case FCNTL:
		size = fcntl_size(other);
		break;
	case PRCTL:
		size = prctl_size(c->arg[0]);
		break;
	case ARCH_PRCTL: /* ARCH_GET_FS, ARCH_GET_GS */
		size = c->arg[0] == 0x1003 || c->arg[0] == 0x1004 ? 8 : 0;
		break;
	}
	if (to && size)
		r->wrote(r->ctx, to, size);
}

void dj_call_writes(const struct dj_call *c, const struct dj_call_reader *r)
{
	for (size_t i = 0; i < N(table); i++)
		if (table[i].nr == c->nr)
			row_writes(&table[i], c, r);
}
