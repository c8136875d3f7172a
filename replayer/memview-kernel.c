/*
 * What wrote to memory without being mirrored to the shadow: system calls and natively
 * executed instructions. The bytes are not in the trace unless the thread reads them later,
 * so what was known of them is stale.
 *
 * This is about honesty towards a person who looks at memory, not about replaying: what the
 * thread itself reads is imported where it differs. Where a call says in memory how much it may
 * write (an iovec, a length), that memory is asked as it was known before the call; what is not
 * known there is not followed, nor are the structures of ioctls beyond the size in their number.
 */
#include "replayer/memview.h"
#include "replayer/thread.h"

#define MREMAP	 25
#define MADVISE	 28
#define DONTNEED 4

/* Beyond this nobody looks: what one call writes is cut short, with all its buffers together. */
#define STALE_MAX  (64u << 20)
#define IOVEC_COST 4096u

/*
 * How a call writes to where argument `arg` points. Numbers of calls:
 * arch/x86/entry/syscalls/syscall_64.tbl; sizes: the kernel's uapi structures on x86-64.
 */
enum how {
	FIXED,	/* `size` bytes */
	RESULT, /* `size` bytes for each one it returned */
	COUNT,	/* `size` bytes for each one in argument `other` */
	BITS,	/* as many bits as argument `other` says, in whole words */
	LENGTH, /* as many bytes as the 32-bit word at argument `other` says, and that word */
	IOVEC,	/* an array of struct iovec, argument `other` says how many; what it returned in all
		 */
	MSGHDR, /* struct msghdr; what it returned in all */
	MMSGHDR, /* an array of struct mmsghdr, as many as it returned */
	IOCTL,	 /* as argument `other`, the number of the request, says */
	FCNTL,	 /* the same */
	PRCTL,
	ARCH_PRCTL,
};

static const struct writes {
	uint16_t nr;
	uint8_t arg, how;
	uint16_t size;
	uint8_t other;
	/* clang-format off */
} table[] = {
	{0, 1, RESULT, 1, 0},	 /* read */
	{4, 1, FIXED, 144, 0},	 /* stat */
	{5, 1, FIXED, 144, 0},	 /* fstat */
	{6, 1, FIXED, 144, 0},	 /* lstat */
	{7, 0, COUNT, 8, 1},	 /* poll */
	{13, 2, FIXED, 32, 0},	 /* rt_sigaction: old action */
	{14, 2, FIXED, 8, 0},	 /* rt_sigprocmask: old mask */
	{16, 2, IOCTL, 0, 1},	 /* ioctl */
	{17, 1, RESULT, 1, 0},	 /* pread64 */
	{19, 1, IOVEC, 0, 2},	 /* readv */
	{22, 0, FIXED, 8, 0},	 /* pipe */
	{23, 1, BITS, 0, 0},	 /* select */
	{23, 2, BITS, 0, 0},
	{23, 3, BITS, 0, 0},
	{23, 4, FIXED, 16, 0},	 /* remaining time */
	{27, 2, COUNT, 0, 1},	 /* mincore: a byte a page */
	{31, 2, FIXED, 112, 0},	 /* shmctl */
	{35, 1, FIXED, 16, 0},	 /* nanosleep: remaining time */
	{36, 1, FIXED, 32, 0},	 /* getitimer */
	{38, 2, FIXED, 32, 0},	 /* setitimer */
	{40, 2, FIXED, 8, 0},	 /* sendfile: offset */
	{43, 1, LENGTH, 0, 2},	 /* accept */
	{45, 1, RESULT, 1, 0},	 /* recvfrom */
	{45, 4, LENGTH, 0, 5},
	{47, 1, MSGHDR, 0, 0},	 /* recvmsg */
	{51, 1, LENGTH, 0, 2},	 /* getsockname */
	{52, 1, LENGTH, 0, 2},	 /* getpeername */
	{53, 3, FIXED, 8, 0},	 /* socketpair */
	{55, 3, LENGTH, 0, 4},	 /* getsockopt */
	{61, 1, FIXED, 4, 0},	 /* wait4: status */
	{61, 3, FIXED, 144, 0},	 /* wait4: usage */
	{63, 0, FIXED, 390, 0},	 /* uname */
	{70, 1, RESULT, 1, 0},	 /* msgrcv: behind the type */
	{70, 1, FIXED, 16, 0},
	{71, 2, FIXED, 120, 0},	 /* msgctl */
	{72, 2, FCNTL, 0, 1},	 /* fcntl */
	{78, 1, RESULT, 1, 0},	 /* getdents */
	{79, 0, RESULT, 1, 0},	 /* getcwd */
	{89, 1, RESULT, 1, 0},	 /* readlink */
	{96, 0, FIXED, 16, 0},	 /* gettimeofday */
	{97, 1, FIXED, 16, 0},	 /* getrlimit */
	{98, 1, FIXED, 144, 0},	 /* getrusage */
	{99, 0, FIXED, 112, 0},	 /* sysinfo */
	{100, 0, FIXED, 32, 0},	 /* times */
	{103, 1, RESULT, 1, 0},	 /* syslog */
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
	{191, 2, RESULT, 1, 0},	 /* getxattr */
	{192, 2, RESULT, 1, 0},	 /* lgetxattr */
	{193, 2, RESULT, 1, 0},	 /* fgetxattr */
	{194, 1, RESULT, 1, 0},	 /* listxattr */
	{195, 1, RESULT, 1, 0},	 /* llistxattr */
	{196, 1, RESULT, 1, 0},	 /* flistxattr */
	{201, 0, FIXED, 8, 0},	 /* time */
	{204, 2, RESULT, 1, 0},	 /* sched_getaffinity */
	{206, 1, FIXED, 8, 0},	 /* io_setup */
	{208, 3, RESULT, 32, 0}, /* io_getevents */
	{217, 1, RESULT, 1, 0},	 /* getdents64 */
	{222, 2, FIXED, 4, 0},	 /* timer_create */
	{223, 3, FIXED, 32, 0},	 /* timer_settime: old time */
	{224, 1, FIXED, 32, 0},	 /* timer_gettime */
	{228, 1, FIXED, 16, 0},	 /* clock_gettime */
	{229, 1, FIXED, 16, 0},	 /* clock_getres */
	{230, 3, FIXED, 16, 0},	 /* clock_nanosleep: remaining time */
	{232, 1, RESULT, 12, 0}, /* epoll_wait */
	{243, 1, RESULT, 1, 0},	 /* mq_timedreceive */
	{243, 3, FIXED, 4, 0},
	{245, 2, FIXED, 64, 0},	 /* mq_getsetattr */
	{247, 2, FIXED, 128, 0}, /* waitid */
	{247, 4, FIXED, 144, 0},
	{262, 2, FIXED, 144, 0}, /* newfstatat */
	{267, 2, RESULT, 1, 0},	 /* readlinkat */
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
	{318, 0, RESULT, 1, 0},	 /* getrandom */
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

/* What an ioctl writes: for the terminal's and sockets' old requests as listed
 * (asm-generic/ioctls.h), else the size in the number (asm-generic/ioctl.h), which may not be all.
 * Returns whether it is. */
static bool ioctl_writes(uint32_t request, uint64_t *size)
{
	*size = 0;
	switch (request) {
	case 0x5401: /* TCGETS */
		*size = 36;
		return true;
	case 0x5405: /* TCGETA */
		*size = 18;
		return true;
	case 0x5413: /* TIOCGWINSZ */
		*size = 8;
		return true;
	case 0x540f: /* TIOCGPGRP */
	case 0x5411: /* TIOCOUTQ */
	case 0x5415: /* TIOCMGET */
	case 0x541b: /* FIONREAD */
	case 0x5424: /* TIOCGETD */
	case 0x5429: /* TIOCGSID */
		*size = 4;
		return true;
	case 0x5402:
	case 0x5403:
	case 0x5404: /* TCSETS and the like */
	case 0x5409:
	case 0x540a:
	case 0x540b: /* TCSBRK TCXONC TCFLSH */
	case 0x540e:
	case 0x5410:
	case 0x5414: /* TIOCSCTTY TIOCSPGRP TIOCSWINSZ */
	case 0x5421:
	case 0x5450:
	case 0x5451:
	case 0x5452: /* FIONBIO FIONCLEX FIOCLEX FIOASYNC */
		return true;
	}
	if (request >> 8 == 0x89)
		*size = request == 0x8912 ? 16 : 40; /* SIOCGIFCONF: struct ifconf; struct ifreq */
	else if (request >> 31)
		*size = request >> 16 & 0x3fff;
	return false;
}

bool rp_memview_knows_syscall(const uint64_t *gpr)
{
	const uint64_t sysno = gpr[DJ_RAX];
	uint64_t size;

	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (harmless[i] == sysno)
			return true;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].nr == sysno)
			return table[i].how != IOCTL || ioctl_writes((uint32_t)gpr[DJ_RSI], &size);
	return false;
}

/* The little-endian number of `size` bytes at `at`; false if it is not known. */
static bool number(struct rp_memview *mv, uint64_t at, unsigned size, uint64_t *v)
{
	uint8_t bytes[8];

	*v = 0;
	if (rp_memview_read(mv, at, bytes, size) != size)
		return false;
	for (unsigned i = size; i-- > 0;)
		*v = *v << 8 | bytes[i];
	return true;
}

/* `count` of struct iovec at `at` were filled with `length` bytes. */
static void stale_iovec(struct rp_memview *mv, uint64_t at, uint64_t count, uint64_t length)
{
	uint64_t base, n;

	for (uint64_t i = 0; i < count && i < 1024 && length && mv->stale_left; i++) {
		/* an entry costs something, too */
		mv->stale_left -= mv->stale_left < IOVEC_COST ? mv->stale_left : IOVEC_COST;
		if (!number(mv, at + 16 * i, 8, &base) || !number(mv, at + 16 * i + 8, 8, &n))
			return;
		if (n > length)
			n = length;
		rp_memview_stale(mv, base, n);
		length -= n;
	}
}

/* struct msghdr: name, its length (at 8), iovec (16), how many (24), control data (32), their
 * length (40), flags. Between them is padding that nobody has written. */
static void stale_msghdr(struct rp_memview *mv, uint64_t at, uint64_t length)
{
	uint64_t to, n;

	if (number(mv, at + 16, 8, &to) && number(mv, at + 24, 8, &n))
		stale_iovec(mv, to, n, length);
	if (number(mv, at, 8, &to) && to && number(mv, at + 8, 4, &n))
		rp_memview_stale(mv, to, n);
	if (number(mv, at + 32, 8, &to) && to && number(mv, at + 40, 8, &n))
		rp_memview_stale(mv, to, n);
	rp_memview_stale(mv, at + 8, 4);
	rp_memview_stale(mv, at + 40, 12);
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

static void stale_by(struct rp_memview *mv, const struct writes *w, const uint64_t *args,
		     uint64_t result)
{
	uint64_t to = args[w->arg], other = args[w->other], size = w->size;

	switch ((enum how)w->how) {
	case FIXED:
		break;
	case RESULT:
		size *= result;
		break;
	case COUNT:
		size = size ? size * other : (other + 4095) / 4096;
		break;
	case BITS:
		size = ((uint32_t)other + 63) / 64 * 8;
		break;
	case LENGTH:
		if (!number(mv, other, 4, &size))
			return;
		rp_memview_stale(mv, other, 4);
		break;
	case IOVEC:
		stale_iovec(mv, to, other, result);
		return;
	case MSGHDR:
		stale_msghdr(mv, to, result);
		return;
	case MMSGHDR:
		for (uint64_t i = 0; i < result && i < 1024 && mv->stale_left; i++) {
			stale_msghdr(mv, to + 64 * i, UINT64_MAX);
			rp_memview_stale(mv, to + 64 * i + 56, 4);
		}
		return;
	case IOCTL:
		ioctl_writes((uint32_t)other, &size);
		break;
	case FCNTL:
		size = fcntl_size(other);
		break;
	case PRCTL:
		size = prctl_size(other);
		break;
	case ARCH_PRCTL: /* ARCH_GET_FS, ARCH_GET_GS */
		size = args[0] == 0x1003 || args[0] == 0x1004 ? 8 : 0;
		break;
	}
	if (to && size)
		rp_memview_stale(mv, to, size);
}

/* Memory given back: it is as freshly mapped. The snapshot is no word on that. */
static void discard(struct rp_memview *mv, uint64_t addr, uint64_t length)
{
	const struct dj_mapping *m = rp_space_find(mv->th->space, addr);

	if (m && !m->initial)
		rp_memview_forget(mv, addr, length);
	else
		rp_memview_stale(mv, addr, length);
}

void rp_memview_syscall(struct rp_memview *mv, const uint64_t *gpr, uint64_t result)
{
	const uint64_t args[] = { gpr[DJ_RDI], gpr[DJ_RSI], gpr[DJ_RDX],
				  gpr[DJ_R10], gpr[DJ_R8],  gpr[DJ_R9] };

	if (result > -4096ULL)
		return; /* failed */
	mv->stale_left = STALE_MAX;
	if (gpr[DJ_RAX] == MREMAP && result != gpr[DJ_RDI])
		rp_memview_move(mv, gpr[DJ_RDI], result,
				gpr[DJ_RSI] < gpr[DJ_RDX] ? gpr[DJ_RSI] : gpr[DJ_RDX]);
	if (gpr[DJ_RAX] == MADVISE && gpr[DJ_RDX] == DONTNEED)
		discard(mv, gpr[DJ_RDI], gpr[DJ_RSI]);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].nr == gpr[DJ_RAX])
			stale_by(mv, &table[i], args, result);
}

void rp_memview_effects(struct rp_memview *mv, const struct dj_record *r)
{
	struct emu *e = mv->th->e;
	struct insn in;

	mv->stale_left = STALE_MAX;
	if (!r->insn_len || r->insn_len > sizeof(r->insn) ||
	    insn_decode_as(e->kind, &in, r->insn, r->insn_len, e->cpu.rip) <= 0)
		return;
	/* XSAVE and its kin write what is in use: here up to AVX, since the recorded program
	 * is shown no more (SDM vol. 1, 13.4: legacy area, header, upper halves of ymm) */
	uint64_t size = in.attr & INSN_A_XSTATE ? 512 + 64 + 256 : in.mem_size;
	if (in.attr & INSN_A_STACK && !in.has_mem)
		rp_memview_stale(mv, e->cpu.gpr[DJ_RSP] - 8, 8);
	if (in.attr & INSN_A_STRING)
		rp_memview_stale(mv, e->cpu.gpr[DJ_RDI], 64);
	if (in.id == INSN_CLZERO)
		rp_memview_stale(mv, e->cpu.gpr[DJ_RAX] & ~63ULL, 64);
	if (!in.has_mem || (!(in.mem_access & INSN_W) && !(in.attr & INSN_A_XSTATE)))
		return;
	rp_memview_stale(mv, insn_address(&in, e->cpu.gpr, e->cpu.segbase[1], e->cpu.segbase[2]),
			 size);
}
