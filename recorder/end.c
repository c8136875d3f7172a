/* How a recording ends. */
#include "recorder/ahead.h"
#include "recorder/area.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void rec_cut(struct rec_recording *rec, const char *fmt, ...)
{
	if (rec_over(rec))
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(rec->err->text, sizeof(rec->err->text), fmt, ap);
	va_end(ap);
	rec->err->exit_status = 1;
	rec->cut = true;
}

void rec_fatal(struct rec_recording *rec, const char *fmt, ...)
{
	if (rec->fatal)
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(rec->err->text, sizeof(rec->err->text), fmt, ap);
	va_end(ap);
	rec->err->exit_status = 1;
	rec->fatal = true;
}

void rec_overwritten(struct rec_thread *t, int off)
{
	t->overwritten = true;
	rec_cut(t->rec, "the program overwrote deja's memory at %#llx; the recording ends there",
		(unsigned long long)(t->s + (uint64_t)(int64_t)off));
}

static bool others(const struct rec_thread *t)
{
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->group != t->group && o->state != REC_GONE && o->state != REC_HELPER)
			return true;
	return false;
}

static void add_up(const struct rec_thread *t)
{
	t->rec->steps += t->steps;
	t->rec->stops += t->stops;
	t->rec->natives += t->natives;
}

/* One of several processes goes on unrecorded: the recording is not over for that. */
void rec_one_less(struct rec_thread *t, const char *why)
{
	free(t->why);
	t->why = strdup(why);
	DJ_ASSERT(t->why, "out of memory for a reason");
	rec_thread_finish(t);
	add_up(t);
}

/* A forked child, with limits of its own again. */
static enum rec_state forked_let_go(struct rec_thread *t, int64_t result)
{
	(void)result;
	if (rec_set_regs(t, &t->regs))
		return REC_KILLED;
	rec_release(t);
	rec_run(t, REC_DETACH, 0);
	t->in_hand = false;
	t->proc->n_threads--;
	return REC_GONE;
}

enum rec_state rec_let_go(struct rec_thread *t, const char *fmt, ...)
{
	char why[sizeof(t->rec->err->text)];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (t->proc != t->rec->first || others(t)) {
		rec_one_less(t, why);
		if (!t->rec->told)
			fprintf(stderr, "deja: %s; process %d goes on unrecorded\n", why,
				t->proc->pid);
		t->rec->told = true;
	} else {
		rec_cut(t->rec, "%s; it goes on unrecorded", why);
		if (t->ring)
			rec_ring_write(t); /* it may run for long */
		fprintf(stderr, "deja: %s\n", t->rec->err->text);
	}
	t->proc->free = true;
	for (unsigned i = 0; i < t->n_pending; i++)
		syscall(SYS_tgkill, t->proc->pid, t->tid, t->pending[i].si_signo);
	if (t->area.forked) {
		t->proc->child = true;
		return rec_limits_raise(t, forked_let_go);
	}
	rec_limits_own(t->proc, t->proc);
	if (t->area.out)
		rec_set_regs(t, &t->regs);
	rec_run(t, REC_DETACH, 0);
	if (t->proc == t->rec->first)
		return REC_FREE;
	t->proc->n_threads--;
	return REC_GONE;
}

void rec_thread_apart(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	proc->n_threads--;
	if (t->group != proc)
		t->group->n_threads--;
	rec_ask_stopped(t);
	if (!proc->n_threads)
		rec_perf_map(proc);
	rec_idle_ended(t);
	rec_turn_over(t);
	if (proc->gather.by == t)
		memset(&proc->gather, 0, sizeof(proc->gather));
	if (proc->hand == t)
		proc->hand = NULL;
}

/* It was killed while it moved what is deja's in the memory, and others in there were not: those of
 * another process (vfork.c). */
static bool moved_half(const struct rec_thread *t)
{
	const struct rec_process *proc = t->proc;
	if (proc->gather.by != t || proc->gather.then || t->state != REC_CALL)
		return false;
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->proc == proc && o->group != t->group && o->state != REC_GONE)
			return true;
	return false;
}

void rec_ended(struct rec_thread *t, int status)
{
	rec_ask_stopped(t); /* nothing may have been reported of it: another thread's exec */
	if (moved_half(t))
		rec_cut(t->rec,
			"process %d was killed while deja's memory in it was moved; the recording "
			"ends there",
			t->group->pid);
	if (t->own && t->ring && !t->proc->child)
		t->steps = rec_steps(t); /* it may have ended in the cache */
	struct rec_process *proc = t->proc;
	bool first = t->tid == proc->pid && t->group == proc;
	rec_order_release(t);
	rec_log_leave(t);
	t->order.waits = false;
	rec_trap_over(t);
	t->state = REC_GONE;
	t->in_hand = false;
	t->status = status;
	rec_thread_apart(t);
	if (first)
		proc->status = status;
	if (rec_over(t->rec) && !proc->child)
		return; /* we killed it, or it has gone on without us */
	t->ended = true;
	if (first)
		proc->ended = true;
	if (first && proc == t->rec->first && t->rec->opt.first_ended && others(t))
		t->rec->opt.first_ended(status);
	if (proc->child || (first && proc == t->rec->first))
		return;
	rec_thread_finish(t);
	add_up(t);
	if (!first)
		rec_area_thread_end(t);
}

/* ---- the trace ------------------------------------------------------------------------ */

/* The end could not be written, or what came before it: then the recording is a cut one. */
static void not_whole(struct rec_thread *t, const struct dj_error *err)
{
	if (rec_over(t->rec))
		return; /* a better reason has been given */
	*t->rec->err = *err;
	t->proc->ended = t->ended = false;
	t->rec->cut = true;
}

/* The record that a thread's history ends with. */
static struct dj_record last_record(const struct rec_thread *t, uint64_t steps)
{
	struct dj_record r = { .steps = steps, .kind = t->ended ? DJ_REC_EXIT : DJ_REC_END };
	if (t->ended)
		r.status = t->status;
	else
		r.name = t->why ? t->why : t->rec->err->text;
	return r;
}

/* It ended before anything of it was recorded. */
static void finish_early(struct rec_thread *t)
{
	struct dj_error err = { 0 };
	struct dj_record r = last_record(t, 0);
	if (t->stream && !t->closed &&
	    (dj_stream_record(t->stream, &r, &err) || dj_stream_close(t->stream, &err)))
		not_whole(t, &err);
	t->closed = true;
}

void rec_thread_finish(struct rec_thread *t)
{
	struct dj_error err = { 0 };
	if (!t->ring) {
		finish_early(t);
		return;
	}
	uint64_t steps = rec_steps(t);
	bool whole;
	uint64_t reached = rec_ring_reached(t, &whole);
	if (steps < reached || !whole || t->overwritten || t->lost)
		steps = reached;
	if (!whole && t->ended) { /* only now it shows that the recording is a shorter one */
		rec_ring_failed(t);
		t->proc->ended = t->ended = false;
		t->rec->cut = true;
	}
	struct dj_record r = last_record(t, steps);
	rec_lagged_set(t, steps);
	rec_ring_time(t, steps);
	rec_ring_record(t, &r);
	t->steps = steps;
	t->closed = true;
	if (rec_ring_stop(t, &err) || dj_stream_close(t->stream, &err))
		not_whole(t, &err);
}

void rec_finish_trace(struct rec_recording *rec)
{
	struct rec_process *proc = rec->first;
	struct dj_error err = { 0 };
	struct timespec now;
	for (struct rec_thread *t = rec->threads; t; t = t->next) {
		if (t->ring)
			rec_thread_finish(t);
		if (!t->proc->child && !t->why)
			add_up(t);
	}
	if (!rec->writer)
		return;
	for (struct rec_process *p = rec->processes; p; p = p->next)
		if (p->n_threads) /* which it goes on with unrecorded, or is killed with */
			rec_perf_map(p);
	clock_gettime(CLOCK_REALTIME, &now);
	struct dj_trace_end end = { .present = true,
				    .status = proc->ended ? proc->status : 0,
				    .steps = rec->steps,
				    .end_time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec };
	int counts = rec_counts_write(rec, &err);
	/* which keeps the first error, and gives everything back in any case */
	if ((dj_writer_close(rec->writer, &end, counts ? NULL : &err) || counts) &&
	    !rec_over(rec)) {
		*rec->err = err;
		proc->ended = false;
		rec->cut = true;
	}
	rec->writer = NULL;
}

/* ---- memory --------------------------------------------------------------------------- */

void rec_thread_free(struct rec_thread *t)
{
	struct rec_thread **at = &t->rec->threads;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	rec_thread_number(t, 0);
	for (struct rec_thread *o = t->rec->threads; o; o = o->next) {
		if (o->helper.by == t)
			o->helper.by = NULL;
		if (o->helper.of == t)
			o->helper.of = NULL;
	}
	rec_own_free(t);
	free(t->pending);
	free(t->sys.filter);
	rec_series_free(t);
	rec_filters_free(t);
	free(t->child.unmap);
	if (t->hide.file > 0)
		close(t->hide.file);
	free(t->why);
	free(t);
}

void rec_process_free(struct rec_process *proc)
{
	struct rec_process **at = &proc->rec->processes;
	while (*at != proc)
		at = &(*at)->next;
	*at = proc->next;
	rec_untouched_end(proc);
	if (proc->mem >= 0)
		proc->rec->tracer->close_memory(proc->rec->tracer, proc->mem);
	if (proc->memfd >= 0)
		close(proc->memfd);
	rec_heritage_free(proc);
	tr_free(proc->tr); /* which knows the tables */
	rec_ahead_forget(proc);
	free(proc->wanted);
	rec_spares_free(proc);
	rec_tables_free(proc);
	rec_window_free(proc);
	rec_heir_settle(proc);
	rec_code_free(proc);
	rec_permit_free(proc);
	rec_maps_free(proc);
	free(proc->noted);
	free(proc);
}

void rec_free(struct rec_recording *rec)
{
	while (rec->threads)
		rec_thread_free(rec->threads);
	while (rec->processes)
		rec_process_free(rec->processes);
	rec_heirs_free(rec);
	rec_keeper_stop(rec);
	rec_strays_free(rec);
	rec_order_free(rec);
	rec_modules_free(rec);
	rec_labels_free(rec);
	free(rec->cpuid.entry);
	free(rec);
}
