/* How recordings, processes and threads end. Part of recorder/recorder.h, which includes it. */
#ifndef DEJA_RECORDER_END_H
#define DEJA_RECORDER_END_H

/* Recording cannot go on: the reason, in one sentence. The program is killed. */
void rec_cut(struct rec_recording *rec, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void rec_fatal(struct rec_recording *rec, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Stopped in a new image that has nothing of deja's: recording ends, for the reason in `fmt`, and
 * the program goes on by itself. */
enum rec_state rec_let_go(struct rec_thread *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* One of several processes goes on unrecorded: the end of its history. */
void rec_one_less(struct rec_thread *t, const char *why);
/* What the control block has at `off` cannot be: recording ends. */
void rec_overwritten(struct rec_thread *t, int off);
static inline bool rec_over(const struct rec_recording *rec)
{
	return rec->cut || rec->fatal;
}
/* It is no thread of its memory any more. */
void rec_thread_apart(struct rec_thread *t);
/* The thread's end, as wait() reported it. */
void rec_ended(struct rec_thread *t, int status);
void rec_finish_trace(struct rec_recording *rec);
/* Write what is left of a thread that has come to its end, or to that of the recording. */
void rec_thread_finish(struct rec_thread *t);
void rec_thread_free(struct rec_thread *t);
void rec_process_free(struct rec_process *proc);
void rec_free(struct rec_recording *rec);

#endif
