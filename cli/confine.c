/*
 * Confinement by a filter of system calls (seccomp(2)). Generated code cannot make any
 * (doc/replay-code.md); this is for the case that it can all the same.
 */
#include "cli/confine.h"

#ifdef __x86_64__

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_SET_GS 0x1001 /* arch/x86/include/uapi/asm/prctl.h */
#define ARCH_SET_FS 0x1002

/* Harmless whatever their arguments are. */
static const uint16_t allowed[] = {
	SYS_read,
	SYS_pread64,
	SYS_write,
	SYS_close,
	SYS_fstat,
	SYS_newfstatat,
	SYS_lseek,
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_mincore,
	SYS_brk,
	SYS_memfd_create,
	SYS_ftruncate,
	SYS_fallocate,
	SYS_futex,
	SYS_set_robust_list,
	SYS_rseq,
	SYS_sched_yield,
	SYS_sched_getaffinity,
	SYS_gettid,
	SYS_getpid,
	SYS_rt_sigaction,
	SYS_sigaltstack,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_exit,
	SYS_exit_group,
	SYS_clock_gettime,
	SYS_poll,
	SYS_getrandom,
	SYS_clock_nanosleep,
	SYS_getrusage,
	SYS_restart_syscall,
	SYS_sysinfo,
};
#define ALLOWED (sizeof(allowed) / sizeof(*allowed))

/* The lower half of an argument; nobody passes more in those that are looked at. */
#define ARG(i) ((uint32_t)(offsetof(struct seccomp_data, args) + 8 * (i)))

#define LOAD(at)	   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (at))
#define GIVE(what)	   BPF_STMT(BPF_RET | BPF_K, (what))
#define UNLESS(nr, skip)   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, (skip))
#define SKIP_IF_ANY(bits)  BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 1, 0)
#define SKIP_IF_NONE(bits) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 0, 1)
#define REFUSE		   GIVE(SECCOMP_RET_ERRNO | EPERM)
#define ALLOW		   GIVE(SECCOMP_RET_ALLOW)

/* The filter's parts that look at arguments. Files may be opened for
 * reading only, or be new ones that no name leads to (open(2): O_TMPFILE), threads made but no
 * processes, signals sent to oneself, and memory may be executable only if it is not writable: that
 * is how generated code is mapped. */
static const struct sock_filter careful[] = {
	UNLESS(SYS_openat, 6),
	LOAD(ARG(2)),
	SKIP_IF_ANY(O_WRONLY | O_RDWR | O_CREAT | O_TRUNC),
	ALLOW,
	UNLESS(O_TMPFILE | O_RDWR | O_CLOEXEC, 1),
	ALLOW,
	REFUSE,
	UNLESS(SYS_clone, 4),
	LOAD(ARG(0)),
	SKIP_IF_NONE(CLONE_THREAD),
	ALLOW,
	REFUSE,
	UNLESS(SYS_mmap, 6),
	LOAD(ARG(2)),
	SKIP_IF_ANY(PROT_EXEC),
	ALLOW,
	SKIP_IF_ANY(PROT_WRITE),
	ALLOW,
	REFUSE,
	UNLESS(SYS_mprotect, 4),
	LOAD(ARG(2)),
	SKIP_IF_ANY(PROT_EXEC),
	ALLOW,
	REFUSE,
	UNLESS(SYS_arch_prctl, 6), /* where generated code's base cannot be set without (fast/) */
	LOAD(ARG(0)),
	UNLESS(ARCH_SET_GS, 1),
	ALLOW,
	UNLESS(ARCH_SET_FS, 1),
	ALLOW,
	REFUSE,
	UNLESS(SYS_clone3, 1), /* its flags are in memory: the C library then uses clone */
	GIVE(SECCOMP_RET_ERRNO | ENOSYS),
};
#define CAREFUL (sizeof(careful) / sizeof(*careful))

bool cli_confine(void)
{
	struct sock_filter code[2 * ALLOWED + CAREFUL + 16];
	unsigned n = 0;

	code[n++] = (struct sock_filter)LOAD(offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)UNLESS(AUDIT_ARCH_X86_64, 1);
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0);
	code[n++] = (struct sock_filter)REFUSE;
	code[n++] = (struct sock_filter)LOAD(offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < ALLOWED; i++) {
		code[n++] = (struct sock_filter)UNLESS(allowed[i], 1);
		code[n++] = (struct sock_filter)ALLOW;
	}
	for (unsigned i = 0; i < CAREFUL; i++)
		code[n++] = careful[i];
	code[n++] = (struct sock_filter)UNLESS(SYS_tgkill, 4);
	code[n++] = (struct sock_filter)LOAD(ARG(0));
	code[n++] = (struct sock_filter)UNLESS((uint32_t)getpid(), 1);
	code[n++] = (struct sock_filter)ALLOW;
	code[n++] = (struct sock_filter)REFUSE;
	code[n++] = (struct sock_filter)REFUSE;
	struct sock_fprog program = { .len = (unsigned short)n, .filter = code };
	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#else

bool cli_confine(void)
{
	return false;
}

#endif
