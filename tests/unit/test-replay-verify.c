/*
 * Verifying on several processors, where it diverges, and what must not cost more than it should:
 * many short threads, and checkpoints of a trace that touches more than was mapped.
 */
#include "tests/unit/test-replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t told_total, told_last;
static bool told_back;

static void told(uint64_t done, uint64_t total)
{
	told_back |= done < told_last || done > total;
	told_last = done;
	told_total = total;
}

/* Let this test have so many processors, or fewer where there are fewer. */
static void processors(int n)
{
	static cpu_set_t all;
	cpu_set_t some;

	if (!CPU_COUNT(&all))
		sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&some);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&some) < n; i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &some);
	sched_setaffinity(0, sizeof(some), &some);
}

void test_verify_many(void)
{
	struct replay_verify_result res[2];
	struct dj_error err = { 0 };

	for (unsigned kind = 0; kind < 6; kind++) {
		uint64_t steps = 0, events = 0, digests = 0;
		/* nothing wrong, or a digest each of two threads or more */
		for (unsigned t = 0; t < WORLD_THREADS; t++)
			world_spoil[t] = kind < 2 ? 0 : kind < 4 && t > 1 ? 0 : 1 + rnd() % 4;
		start_many(4, 60, 1 + (kind & 1), true);
		memset(world_spoil, 0, sizeof(world_spoil));
		for (unsigned t = 0; t < nmany; t++) {
			steps += many[t]->e->steps;
			events += many[t]->events;
			digests += many[t]->digests;
		}
		for (int cpus = 1; cpus <= 2; cpus++) {
			struct replay_verify_result *r = &res[cpus - 1];
			processors(cpus);
			told_last = told_total = 0;
			told_back = false;
			CU_ASSERT_EQUAL(replay_verify(replay_trace(rep), r, NULL, told, &err), 0);
			CU_ASSERT(told_total == steps && !told_back);
			CU_ASSERT_EQUAL(r->div.found, kind >= 2);
			if (kind < 2)
				CU_ASSERT(r->instructions == steps && r->digests == digests &&
					  (kind == 1 || r->events == events));
		}
		processors(CPU_SETSIZE);
		res[0].seconds = res[1].seconds;
		CU_ASSERT(!memcmp(&res[0], &res[1], sizeof(res[0])));
		/* no other thread's divergence comes before that in the order */
		for (unsigned t = 0; kind >= 2 && t < nmany; t++) {
			struct replay_pos at = { .thread = t, .steps = UINT64_MAX };
			struct replay_stop stop;
			CU_ASSERT_FATAL(!replay_goto_text(rep, "begin", &err));
			replay_thread_begin(rep, t, &at);
			if (replay_seek(rep, &at, &err))
				continue;
			replay_set_scope(rep, REPLAY_THREAD);
			replay_continue(rep, REPLAY_FORWARD, &stop);
			replay_set_scope(rep, REPLAY_PROCESS);
			if (stop.reason == REPLAY_FAILED)
				CU_ASSERT(replay_pos_cmp(&res[0].div.pos, &stop.pos) <= 0);
		}
		finish_many();
	}
}

/* Processor time to verify so many short threads, which come one after the other, or 0. */
static double verify_short(unsigned n)
{
	struct replay_verify_result res;
	struct dj_record r = { .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
	struct dj_error err = { 0 };
	struct dj_writer *w = write_by_hand();
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *a = dj_writer_thread(w, p, 1, "a", &err), *b;

	dj_stream_record(a, &r, &err);
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < 4; k++) { /* the last stays what it is, of each page */
			r = (struct dj_record){ .kind = DJ_REC_MAP,
						.addr = 0x10000 + (i + k) % 16 * 4096,
						.length = 4096,
						.prot = 3 };
			dj_stream_record(a, &r, &err);
		}
		b = dj_writer_thread(w, p, (int32_t)i + 2, "b", &err);
		dj_stream_flush(b, 0, 0, &err);
		r = (struct dj_record){ .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
		dj_stream_record(b, &r, &err);
		dj_stream_facts(b, 0, 4 * (i + 1), &err);
		r = (struct dj_record){ .kind = DJ_REC_EXIT };
		dj_stream_record(b, &r, &err);
		dj_stream_close(b, &err);
	}
	CU_ASSERT(!dj_writer_close(w, &(struct dj_trace_end){ .present = true }, &err));
	struct dj_trace *t = dj_trace_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	clock_t before = clock();
	CU_ASSERT(!replay_verify(t, &res, NULL, NULL, &err) && !res.div.found);
	double took = (double)(clock() - before) / CLOCKS_PER_SEC;
	dj_trace_close(t);
	unlink(path);
	return took;
}

/* Eight times as many threads take some eight times as long, not sixty-four times. Where a thread's
 * shadow alone takes tens of milliseconds (qemu-user goes over each page of 4 GiB that is mapped or
 * unmapped), nothing else would be seen of a few thousand threads either. */
void test_verify_short(void)
{
	const unsigned n = verify_short(10) < 0.2 ? 400 : 20;
	double few = verify_short(n), many_ones = verify_short(8 * n);

	printf("%u: %.2f s, %u: %.2f s ", n, few, 8 * n, many_ones);
	CU_ASSERT(many_ones < 30 * few);
}

/* 3: with a wrong flag, 4: with a wrong sum, 5: cut short. */
static const uint8_t *spoilt_check(struct dj_record *r, int kind, uint8_t *bytes)
{
	struct dj_check c;

	CU_ASSERT_FATAL(dj_check_unpack(&c, r->bytes, r->length));
	if (kind == 3)
		c.flags ^= DJ_FLAG_AF;
	if (kind == 4)
		c.piece[3].sum ^= 0x100;
	r->length = dj_check_pack(&c, bytes) - (kind == 5);
	return bytes;
}

void test_divergence(void)
{
	struct dj_error err = { 0 };
	struct replay_verify_result res;

	start(60, 0, 1);
	/* the same program with a wrong digest, with records out of order, with a wrong number of
	 * events, a wrong flag, a wrong byte of memory, and with a check that is none */
	for (int kind = 0; kind < 6; kind++) {
		struct dj_trace *t = replay_trace(rep);
		struct dj_writer *w;
		char other[80];
		size_t size;
		snprintf(other, sizeof(other), "%s.x", path);
		w = dj_writer_create(other, dj_trace_meta(t), &err);
		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		const uint8_t *module = dj_trace_module_bytes(t, 0, &size, &err);
		dj_writer_module(w, "/program", module, size, &err);
		struct dj_stream *process = dj_writer_process(w, 1, NULL, &err);
		struct dj_stream *thread = dj_writer_thread(w, process, 1, "program", &err);
		struct dj_cursor *c = dj_cursor_new(t, 0, &err);
		const struct dj_record *r;
		uint64_t bad_steps = 0;
		int digests = 0;
		while ((r = dj_cursor_next(c, &err))) {
			struct dj_record copy = *r;
			uint8_t bytes[DJ_CODE_MAX];
			if (copy.kind == DJ_REC_CHECK && digests == 5 && kind > 2) {
				bad_steps = copy.steps;
				copy.bytes = spoilt_check(&copy, kind, bytes);
			}
			if (copy.kind == DJ_REC_DIGEST && ++digests == 5) {
				bad_steps = copy.steps;
				if (kind < 2)
					copy.digest ^= 4;
				else if (kind == 2)
					copy.seq += 7;
				if (kind == 1)
					copy.kind = DJ_REC_SYSCALL;
			}
			dj_stream_record(thread, &copy, &err);
		}
		dj_cursor_free(c);
		dj_writer_close(w, &(struct dj_trace_end){ .status = 0 }, &err);
		t = dj_trace_open(other, &err);
		CU_ASSERT_PTR_NOT_NULL_FATAL(t);
		int ret = replay_verify(t, &res, NULL, NULL, &err);
		/* where a system call happens to be, the extra one puts the order wrong */
		CU_ASSERT((ret == -1 && (kind == 1 || kind == 5) && err.exit_status == 2) ||
			  (res.div.found && res.div.pos.steps == bad_steps));
		if (kind == 2) {
			char want[80];
			snprintf(want, sizeof(want),
				 "%llu ordered events have been passed, expected "
				 "%llu",
				 (unsigned long long)res.div.pos.seq,
				 (unsigned long long)res.div.pos.seq + 7);
			CU_ASSERT_PTR_NOT_NULL(strstr(res.div.text, want));
		}
		if (kind == 3)
			CU_ASSERT_PTR_NOT_NULL(strstr(res.div.text, ": rflags is "));
		if (kind == 4)
			CU_ASSERT_PTR_NOT_NULL(strstr(res.div.text, "4096 bytes of memory at 0x"));
		dj_trace_close(t);
		unlink(other);
	}
	finish();
}

/* ---- checkpoints ---- */

/* The most that checkpoints take on the way through the trace, where all may take so much. */
static size_t kept_on_the_way(const char *memory)
{
	struct dj_error err;
	size_t most = 0;

	if (memory)
		setenv("DEJA_MEMORY", memory, 1);
	else
		unsetenv("DEJA_MEMORY");
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep = replay_open(path, &err));
	replay_limits(rep, 2000, 1000, 1 << 30);
	for (uint64_t at = 3000; at < 30000; at += 3000) {
		struct replay_pos to = { .steps = at };
		CU_ASSERT(!replay_seek(rep, &to, &err));
		if (most < rp_versions_held())
			most = rp_versions_held();
	}
	CU_ASSERT(rep->th->e->steps == 27000);
	CU_ASSERT(rep->cs->n > 0);
	replay_close(rep);
	rep = NULL;
	return most;
}

/* Checkpoints take no more than is in proportion to what was mapped, however much a trace touches:
 * here 80 MB in pages that nobody mapped, a tenth of them between any two checkpoints. Who says
 * with DEJA_MEMORY how much all may take gets them all. */
void test_checkpoints_fair(void)
{
	static const uint8_t loop[] = { 0xeb, 0xfe }, line[DJ_LINE] = { 1 };
	const struct dj_trace_meta meta = { .shadow_bits = 32, .page_size = 4096 };
	struct dj_record r[] = {
		{ .kind = DJ_REC_MAP, .addr = 0x400000, .length = 0x1000, .prot = 5, .module = -1 },
		{ .kind = DJ_REC_CODE, .addr = 0x400000, .bytes = loop, .length = sizeof(loop) },
		{ .kind = DJ_REC_REGS, .mask = DJ_REG_ALL, .regs = { .rip = 0x400000 } }
	};
	struct dj_error err = { 0 };

	snprintf(path, sizeof(path), "/tmp/test-replay-%d.deja", (int)getpid());
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *process = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *thread = dj_writer_thread(w, process, 1, "", &err);
	for (size_t i = 0; i < sizeof(r) / sizeof(r[0]); i++) {
		r[i].seq = DJ_SEQ_UNKNOWN;
		CU_ASSERT_FATAL(!dj_stream_record(thread, &r[i], &err));
	}
	for (uint64_t i = 0; i < 20000; i++) {
		struct dj_record import = { .kind = DJ_REC_IMPORT,
					    .addr = 0x10000000 + (i << 12),
					    .bytes = line,
					    .steps = 1000 + i / 500 * 500 + i % 500 / 2,
					    .seq = DJ_SEQ_UNKNOWN };
		CU_ASSERT_FATAL(!dj_stream_record(thread, &import, &err));
	}
	struct dj_record end = { .kind = DJ_REC_EXIT, .steps = 30000, .seq = DJ_SEQ_UNKNOWN };
	CU_ASSERT_FATAL(!dj_stream_record(thread, &end, &err));
	CU_ASSERT_FATAL(!dj_writer_close(w, &(struct dj_trace_end){ .present = true }, &err));

	const char *memory = getenv("DEJA_MEMORY");
	char *before = memory ? strdup(memory) : NULL;
	CU_ASSERT(kept_on_the_way("16G") > 80 << 20);
	size_t most = kept_on_the_way(NULL);
	CU_ASSERT(most > 20 << 20);
	CU_ASSERT(most < 80 << 20);
	if (before)
		setenv("DEJA_MEMORY", before, 1);
	free(before);
	unlink(path);
}
