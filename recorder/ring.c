/*
 * The ring buffer: two halves that the recorded thread fills by turns, and a thread of ours that
 * turns what is in them into trace records.
 *
 * The recorded thread appends at T_HEAD and calls the supervisor when it reaches T_LIMIT. Only
 * then, or at another stop, when it does not run, does the supervisor hand the filled part to the
 * writing thread and give the recorded thread the other half, waiting until that has been written.
 * So there is no moment at which two parties touch one half. Records of the supervisor's own
 * (signals, mappings...) go into the same half, as pointers, and so stay in order.
 */
#include "recorder/supervisor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ring {
	struct tracee *t;
	uint8_t *half[2];
	uint64_t half_va[2];
	uint8_t *start; /* of the part of the current half not handed over */
	unsigned current;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct {
		uint8_t *from, *to;
		uint64_t steps;
	} job[2];
	bool busy[2]; /* job[i] is waiting or being written */
	bool quit;
	bool failed;
	uint64_t reached; /* the latest position the records written imply */
	struct dj_error err;
};

struct own_record {
	struct dj_record rec;
	uint8_t bytes[];
};

static int write_part(struct ring *g, uint8_t *p, const uint8_t *end, uint64_t steps)
{
	struct tracee *t = g->t;
	int rc = 0;
	while (p < end) {
		uint64_t w[6];
		memcpy(w, p, 32);
		uint64_t at = w[0] & 0xffffffffffffULL;
		uint64_t after = at;
		unsigned type = (unsigned)(w[0] >> 56), ordinal = (unsigned)(w[0] >> 48) & 0xff;
		switch (type) {
		case RING_IMPORT:
			if (!rc)
				rc = dj_stream_import(t->stream, at, w[2], ordinal, w[1], p + 24,
						      &g->err);
			p += RING_IMPORT_SIZE;
			break;
		case RING_SYSCALL: {
			struct dj_record r = {
				.kind = DJ_REC_SYSCALL, .steps = at, .result = w[1], .r11 = w[2]
			};
			if (!rc)
				rc = dj_stream_record(t->stream, &r, &g->err);
			after = at + 1;
			p += RING_SMALL_SIZE;
			break;
		}
		case RING_TSC: {
			memcpy(w, p, RING_TSC_SIZE);
			struct dj_record r = { .kind = DJ_REC_EFFECTS,
					       .steps = at,
					       .why = DJ_WHY_TSC };
			r.mask = DJ_REG_GPR(DJ_RAX) | DJ_REG_GPR(DJ_RDX) | DJ_REG_RIP;
			r.regs.gpr[DJ_RAX] = w[1];
			r.regs.gpr[DJ_RDX] = w[2];
			r.regs.rip = w[4];
			memcpy(r.insn, "\x0f\x31", 2);
			r.insn_len = 2;
			if (ordinal == 3) {
				r.mask |= DJ_REG_GPR(DJ_RCX);
				r.regs.gpr[DJ_RCX] = w[3];
				memcpy(r.insn, "\x0f\x01\xf9", 3);
				r.insn_len = 3;
			}
			if (!rc)
				rc = dj_stream_record(t->stream, &r, &g->err);
			after = at + 1;
			p += RING_TSC_SIZE;
			break;
		}
		case RING_RECORD: {
			struct own_record *o = (struct own_record *)(uintptr_t)w[1];
			if (!rc)
				rc = dj_stream_record(t->stream, &o->rec, &g->err);
			if (o->rec.kind == DJ_REC_SYSCALL || o->rec.kind == DJ_REC_EFFECTS)
				after = at + 1;
			free(o);
			p += RING_SMALL_SIZE;
			break;
		}
		default:
			dj_broken(__FILE__, __LINE__, "ring record of type %u at offset %zu", type,
				  (size_t)(p - g->half[0]));
		}
		if (after > g->reached)
			g->reached = after;
	}
	if (!rc)
		rc = dj_stream_flush(t->stream, steps, DJ_SEQ_UNKNOWN, &g->err);
	return rc;
}

static void *writer_main(void *arg)
{
	struct ring *g = arg;
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	unsigned next = 0;
	pthread_mutex_lock(&g->lock);
	for (;;) {
		while (!g->busy[next] && !g->quit)
			pthread_cond_wait(&g->work, &g->lock);
		if (!g->busy[next])
			break;
		pthread_mutex_unlock(&g->lock);
		int rc = write_part(g, g->job[next].from, g->job[next].to, g->job[next].steps);
		pthread_mutex_lock(&g->lock);
		if (rc)
			g->failed = true;
		g->busy[next] = false;
		next ^= 1;
		pthread_cond_broadcast(&g->done);
	}
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

static void use_half(struct ring *g, unsigned h)
{
	g->current = h;
	g->start = g->half[h];
	*tcb(g->t, T_HEAD) = g->half_va[h];
	*tcb(g->t, T_LIMIT) = g->half_va[h] + AREA_HALF - AREA_SLACK;
}

/* A new image has a new control region, and the old one's records are all written. */
struct ring *ring_start(struct tracee *t)
{
	struct ring *g = t->ring;
	if (!g) {
		g = calloc(1, sizeof(*g));
		DJ_ASSERT(g, "out of memory for the ring");
		g->t = t;
		pthread_mutex_init(&g->lock, NULL);
		pthread_cond_init(&g->work, NULL);
		pthread_cond_init(&g->done, NULL);
		int rc = pthread_create(&g->thread, NULL, writer_main, g);
		DJ_ASSERT(rc == 0, "cannot start the writing thread: %s", strerror(rc));
	}
	for (unsigned h = 0; h < 2; h++) {
		g->half[h] = t->control + AREA_CONTROL + T_RING + h * AREA_HALF;
		g->half_va[h] = t->s + (uint64_t)(int64_t)T_RING + h * (uint64_t)AREA_HALF;
	}
	t->ring = g;
	pthread_mutex_lock(&g->lock);
	while (g->busy[0] || g->busy[1])
		pthread_cond_wait(&g->done, &g->lock);
	unsigned h = g->current;
	pthread_mutex_unlock(&g->lock);
	use_half(g, h);
	return g;
}

void ring_hand_over(struct tracee *t)
{
	struct ring *g = t->ring;
	uint64_t used = *tcb(t, T_HEAD) - g->half_va[g->current];
	DJ_ASSERT(used <= AREA_HALF, "ring head outside its half (%#llx)",
		  (unsigned long long)used);
	pthread_mutex_lock(&g->lock);
	g->job[g->current].from = g->half[g->current];
	g->job[g->current].to = g->half[g->current] + used;
	g->job[g->current].steps = *tcb(t, T_STEPS);
	g->busy[g->current] = true;
	pthread_cond_broadcast(&g->work);
	while (g->busy[g->current ^ 1])
		pthread_cond_wait(&g->done, &g->lock);
	pthread_mutex_unlock(&g->lock);
	use_half(g, g->current ^ 1);
}

void ring_record(struct tracee *t, const struct dj_record *rec)
{
	size_t n_bytes = rec->bytes ? (rec->kind == DJ_REC_IMPORT ? DJ_LINE : rec->length) : 0;
	size_t n_name = rec->name ? strlen(rec->name) + 1 : 0;
	struct own_record *o = malloc(sizeof(*o) + n_bytes + n_name);
	DJ_ASSERT(o, "out of memory for a record");
	o->rec = *rec;
	o->rec.seq = DJ_SEQ_UNKNOWN; /* nobody counts yet */
	if (n_bytes) {
		memcpy(o->bytes, rec->bytes, n_bytes);
		o->rec.bytes = o->bytes;
	}
	if (n_name) {
		memcpy(o->bytes + n_bytes, rec->name, n_name);
		o->rec.name = (char *)o->bytes + n_bytes;
	}
	struct ring *g = t->ring;
	uint64_t off = *tcb(t, T_HEAD) - g->half_va[g->current];
	uint64_t w[4] = { (uint64_t)RING_RECORD << 56 | rec->steps, (uint64_t)(uintptr_t)o, 0, 0 };
	memcpy(g->half[g->current] + off, w, sizeof(w));
	*tcb(t, T_HEAD) += RING_SMALL_SIZE;
	if (*tcb(t, T_HEAD) >= *tcb(t, T_LIMIT))
		ring_hand_over(t);
}

uint64_t ring_reached(struct tracee *t)
{
	struct ring *g = t->ring;
	ring_hand_over(t);
	pthread_mutex_lock(&g->lock);
	while (g->busy[0] || g->busy[1])
		pthread_cond_wait(&g->done, &g->lock);
	uint64_t reached = g->reached;
	pthread_mutex_unlock(&g->lock);
	return reached;
}

bool ring_failed(struct tracee *t)
{
	if (!t->ring)
		return false;
	pthread_mutex_lock(&t->ring->lock);
	bool f = t->ring->failed;
	if (f && t->sup->err && !t->sup->err->text[0])
		*t->sup->err = t->ring->err;
	pthread_mutex_unlock(&t->ring->lock);
	return f;
}

int ring_stop(struct tracee *t)
{
	struct ring *g = t->ring;
	if (!g)
		return 0;
	ring_hand_over(t);
	pthread_mutex_lock(&g->lock);
	g->quit = true;
	pthread_cond_broadcast(&g->work);
	pthread_mutex_unlock(&g->lock);
	pthread_join(g->thread, NULL);
	int rc = g->failed ? -1 : 0;
	if (rc && t->sup->err)
		*t->sup->err = g->err;
	free(g);
	t->ring = NULL;
	return rc;
}
