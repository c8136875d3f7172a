/*
 * The records of deja rep, one by one: REP instructions, and with them the branches that were
 * taken. Each thread has a buffer of a size that is chosen, and so has what it costs: when the
 * buffer is full it is printed and emptied, or the thread has told enough, or the newest takes the
 * place of the oldest.
 */
#include "analyses/rep.h"
#include "analyses/log.h"

#include <inttypes.h>
#include <stdlib.h>

struct rep_buffer {
	struct rep_log *log;
	struct rep_record *r;
	size_t n, cap;
	size_t first;	  /* the oldest */
	uint64_t dropped; /* overwritten */
	bool full;	  /* and no more is wanted */
};

struct rep_buffer *ana_rep_buffer_new(struct rep_log *log)
{
	struct rep_buffer *b = calloc(1, sizeof(*b));

	if (b)
		b->log = log;
	return b;
}

/* The kind, as the answers name it. */
static const char *kind_name(enum rep_kind kind)
{
	static const char *const names[] = { [REP_DONE] = "done",
					     [REP_CONDITION] = "condition",
					     [REP_INTERRUPTED] = "interrupted",
					     [REP_BRANCH] = "branch",
					     [REP_REACHED] = "reached" };

	return names[kind];
}

/* ---- printing ---- */

static void print_json(struct rep_log *log, const struct rep_record *r, const char *position,
		       const char *code)
{
	FILE *f = log->job->out.f;
	char to[300];

	fprintf(f,
		"%s{\"position\": \"%s\", \"kind\": \"%s\", \"address\": %" PRIu64 ", \"code\": ",
		log->any ? ",\n " : "[\n ", position, kind_name(r->kind), r->from_address);
	ana_put_json(f, code);
	if (r->kind == REP_BRANCH) {
		ana_code_text(log->job->functions, &r->to, to, sizeof(to));
		fprintf(f, ", \"to\": %" PRIu64 ", \"target\": ", r->to_address);
		ana_put_json(f, to);
	} else {
		fprintf(f, ", \"asked\": %" PRIu64 ", \"done\": %" PRIu64, r->asked, r->done);
	}
	putc('}', f);
}

static void print_record(struct rep_log *log, const struct rep_record *r)
{
	FILE *f = log->job->out.f;
	char position[64], code[300];

	replay_pass_text(log->job->t, &r->pos, position, sizeof(position));
	ana_code_text(log->job->functions, &r->from, code, sizeof(code));
	if (log->job->out.json) {
		print_json(log, r, position, code);
	} else if (r->kind == REP_REACHED) {
		fprintf(f, "%-20s  reached, by occurrence %" PRIu64 " of ", position, r->asked);
		ana_put(f, code);
		putc('\n', f);
	} else if (r->kind == REP_BRANCH) {
		fprintf(f, "%-20s  branch  %#" PRIx64 " ", position, r->from_address);
		ana_put(f, code);
		ana_code_text(log->job->functions, &r->to, code, sizeof(code));
		fprintf(f, " -> %#" PRIx64 " ", r->to_address);
		ana_put(f, code);
		putc('\n', f);
	} else {
		fprintf(f, "%-20s  rep     %#" PRIx64 " ", position, r->from_address);
		ana_put(f, code);
		fprintf(f, ": %" PRIu64 " of %" PRIu64 "%s\n", r->done, r->asked,
			r->kind == REP_CONDITION     ? ", ended by its condition"
			: r->kind == REP_INTERRUPTED ? ", left for a signal"
						     : "");
	}
	log->any = true;
}

static void flush(struct rep_buffer *b)
{
	for (size_t i = 0; i < b->n; i++)
		print_record(b->log, &b->r[(b->first + i) % b->n]);
	b->n = b->first = 0;
}

/* ---- keeping ---- */

static bool grow(struct rep_buffer *b, struct replay_run *run)
{
	size_t cap = b->cap ? 2 * b->cap : 256;

	if (cap > b->log->size)
		cap = (size_t)b->log->size;
	struct rep_record *grown = reallocarray(b->r, cap, sizeof(*grown));
	if (!grown) {
		replay_run_fail(run, "out of memory for a buffer of %" PRIu64 " records",
				b->log->size);
		return false;
	}
	b->r = grown;
	b->cap = cap;
	return true;
}

void ana_rep_buffer_add(struct rep_buffer *b, struct replay_run *run, const struct rep_record *r)
{
	if (b->n == b->log->size) {
		if (b->log->full == REP_STOP) {
			b->full = true;
			replay_run_stop(run);
			return;
		}
		if (b->log->full == REP_OVERWRITE) {
			b->r[b->first] = *r;
			b->first = (b->first + 1) % b->n;
			b->dropped++;
			return;
		}
		replay_run_lock(run);
		flush(b);
		replay_run_unlock(run);
	}
	if (b->n < b->cap || grow(b, run))
		b->r[b->n++] = *r;
}

void ana_rep_buffer_end(struct rep_buffer *b, struct replay_run *run)
{
	int tid = replay_run_info(run)->tid;

	if (b->full || b->dropped)
		fflush(b->log->job->out.f);
	if (b->dropped)
		ana_out_warn(&b->log->job->out,
			     "thread %d: %" PRIu64 " older records were overwritten", tid,
			     b->dropped);
	replay_run_lock(run);
	flush(b);
	replay_run_unlock(run);
	if (b->full)
		ana_out_warn(&b->log->job->out,
			     "thread %d: the buffer of %" PRIu64 " records is full", tid,
			     b->log->size);
	free(b->r);
	free(b);
}

void ana_rep_log_end(struct rep_log *log)
{
	if (log->job->out.json)
		fputs(log->any ? "\n]\n" : "[]\n", log->job->out.f);
}
