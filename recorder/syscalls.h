/* What system calls change in the address space (syscalls-memory.c) and in signals; private to
 * syscalls*.c. */
#ifndef DEJA_RECORDER_SYSCALLS_H
#define DEJA_RECORDER_SYSCALLS_H

#include "recorder/recorder.h"

/* The call was made with registers `in`; t->regs are those after it. */
typedef void rec_effect(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result);

rec_effect rec_after_mmap, rec_after_munmap, rec_after_mremap, rec_after_mprotect, rec_after_brk,
	rec_after_shmat, rec_after_shmdt;
rec_effect rec_after_sigaction, rec_after_sigprocmask; /* sigtrap.c */

/* sigmask.c: whether rt_sigprocmask has been made, and has succeeded, without the thread. */
bool rec_mask_set(struct rec_thread *t);

/* behind.c */
rec_effect rec_after_seek, rec_after_write, rec_after_pwrite, rec_after_madvise;
void rec_writer_classes(struct rec_thread *t);

/* hide.c; the latter if what has been opened is to be something else. */
rec_effect rec_after_open;
enum rec_state rec_hide(struct rec_thread *t);
enum rec_state rec_begin_read(struct rec_thread *t);

/* collide.c: make the call when nothing of deja's is in its way. */
enum rec_state rec_begin_memory(struct rec_thread *t);

/* locked.c */
enum rec_state rec_begin_mlockall(struct rec_thread *t);

/* filter.c */
enum rec_state rec_begin_seccomp(struct rec_thread *t);
enum rec_state rec_begin_prctl(struct rec_thread *t);
rec_effect rec_after_seccomp;

/* leave.c */
enum rec_state rec_begin_ptrace(struct rec_thread *t);
enum rec_state rec_begin_exec(struct rec_thread *t);

/* limits.c */
/* Whether the program has this capability, as far as can be seen from here. */
bool rec_capable(struct rec_thread *t, unsigned capability);
enum rec_state rec_begin_getrlimit(struct rec_thread *t);
enum rec_state rec_begin_setrlimit(struct rec_thread *t);
enum rec_state rec_begin_prlimit(struct rec_thread *t);

#endif
