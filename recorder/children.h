/* Threads and processes that the program starts. Part of recorder/recorder.h, which includes it. */
#ifndef DEJA_RECORDER_CHILDREN_H
#define DEJA_RECORDER_CHILDREN_H

/* ---- child.c ---- */
/* The program is about to make a system call with these registers: if it makes a child, we are to
 * hear of that, and to know what it is (sys.clone_flags). */
void rec_child_traced(struct rec_thread *t, struct user_regs_struct *r);
/* A system call of the program's has made a process or a thread: with this event of ptrace's. */
enum rec_state rec_child_event(struct rec_thread *t, int event);
/* The same, or what follows a vfork: whether it stays stopped, until rec_trap_over(). */
bool rec_vfork_holds(struct rec_thread *t, int event);
/* What a new process has of the one that the thread is of, and the kernel copies. */
void rec_child_inherits(struct rec_process *group, const struct rec_thread *t);

/* ---- follow.c ---- */
/* A system call of the program's has made a process that is to be recorded: in the state CHILD. Its
 * number among the recorded processes, or -1. */
int rec_follow_fork(struct rec_thread *t, struct rec_thread *c);
/* The stream of a process, of which nothing is known yet but whose child it is: its number among
 * the recorded processes, or -1. */
int rec_process_stream(struct rec_process *proc, const struct rec_process *parent);
/* The stream of its first thread, from here on. */
bool rec_thread_stream(struct rec_thread *c);
/* Its first stop, and nothing of its parent's is in its memory any more. */
enum rec_state rec_follow_begin(struct rec_thread *c);
/* Deja's memory is in place. */
enum rec_state rec_follow_ready(struct rec_thread *c);
/* A thread of a process has ended, or one in its memory: if it was the last, so has the process. */
void rec_follow_ended(struct rec_process *proc);

/* ---- vfork.c ---- */
/* Whether a process that the thread makes with these flags of clone is recorded in its memory. */
bool rec_vfork_recorded(const struct rec_thread *t, uint64_t flags);
/* A system call of the program's has made one. */
enum rec_state rec_vfork_event(struct rec_thread *t, pid_t pid);
/* There is no room for one: it runs by itself until its exec. */
enum rec_state rec_vfork_unrecorded(struct rec_thread *c);
/* One has made an exec: the first thread of its process instead of it, which is no more. */
struct rec_thread *rec_vfork_exec(struct rec_thread *t);
/* Whether one is in the memory that is the thread's own, and which. */
bool rec_vfork_beside(struct rec_thread *t, struct rec_thread **o);
/* One that is not recorded before its exec: its number, as above; it is let go. */
int rec_vfork_followed(struct rec_thread *t, struct rec_thread *c);
enum rec_state rec_vfork_run(struct rec_thread *c);

/* ---- copy.c ---- */
/* A forked child, behind its mappings: put into the trace what of its memory no file has. */
void rec_copy(struct rec_thread *t);

/* ---- leave.c ---- */
/* In hand: its history ends for this reason (which is kept), and it goes on by itself. */
enum rec_state rec_leave(struct rec_thread *t, const char *why);
extern const char rec_traced[];
/* About to make call number `nr` with these registers: whether it must not be traced for that. */
bool rec_asks_to_be_traced(const struct user_regs_struct *r, uint64_t nr);
bool rec_becomes_another(struct rec_thread *t, const struct user_regs_struct *r, uint64_t nr);
/* How a path of the thread's is found from here; false if there is none at `at`. */
#define REC_PATH 4200
void rec_path_of(const struct rec_thread *t, const char *path, char full[REC_PATH]);
bool rec_path_at(struct rec_thread *t, uint64_t at, char full[REC_PATH]);

/* ---- thread.c ---- */
/* clone, clone3. */
enum rec_state rec_begin_clone(struct rec_thread *t);
enum rec_state rec_begin_vfork(struct rec_thread *t);
/* The kernel's number of it, from now on; 0: it has none any more (loop.c). */
void rec_thread_number(struct rec_thread *t, pid_t tid);
/* Whether there is room for one more thread in the memory. */
bool rec_thread_room(const struct rec_process *proc);
/* A system call of the program's has made a thread. */
enum rec_state rec_thread_event(struct rec_thread *t, pid_t tid);
/* `c`, of which nothing is known yet, is another thread in the memory of `t`, which has made it.
 * False if the recording is over. */
bool rec_thread_made(struct rec_thread *t, struct rec_thread *c);
/* In hand: it has a new name. */
void rec_thread_named(struct rec_thread *t);
/* A new thread's or child's registers, but for what clone changes, and what the kernel remembers of
 * its last exception. */
void rec_child_regs(const struct rec_thread *t, struct rec_thread *c);
/* In hand, about to exit: give the shadow back, then make the call. */
enum rec_state rec_thread_exit(struct rec_thread *t);
/* A new thread that has stopped for the first time gets what it needs. */
enum rec_state rec_thread_begin(struct rec_thread *t);
/* Exec has ended all other threads, and given the one that made it the process's id: which it is.
 * NULL: its end follows, under that id. */
struct rec_thread *rec_thread_exec(struct rec_thread *t);

/* ---- gather.c ---- */
/* In hand, and it is its turn: `then` when no other thread of the process is in the cache. They
 * stay out until this one goes on. */
enum rec_state rec_gather(struct rec_thread *t, rec_then *then);
/* Whether no other is. */
bool rec_alone(const struct rec_thread *t);
/* Whether those that were waited for are out; then `next` is the state of the one who waited. */
bool rec_gathered(struct rec_process *proc, enum rec_state *next);
/* Interrupted in the cache, while another gathers. */
enum rec_state rec_bring_out(struct rec_thread *t);

/* ---- helper.c ---- */
enum rec_state rec_helper_begin(struct rec_thread *c);
void rec_helper_ended(struct rec_thread *c);
/* A thread is stopped in the cache, with these registers: whether a helper wants it to stay there.
 */
bool rec_helper_holds(struct rec_thread *t, const struct user_regs_struct *r);

#endif
