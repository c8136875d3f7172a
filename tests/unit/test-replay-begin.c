/*
 * Histories that have lost their beginnings: what is known of memory where they begin with a full
 * keyframe, and what of it another thread knows that has lost nothing.
 */
#include "format/bytes.h"
#include "format/chunk.h"
#include "tests/unit/test-replay.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOP_AT	 0x400000
#define HEAP_AT	 0x500000
#define FIXED_AT 0x600000

static void record(struct dj_stream *s, struct dj_record r)
{
	struct dj_error err;

	CU_ASSERT_FATAL(!dj_stream_record(s, &r, &err));
}

static void map(struct dj_stream *s, uint64_t addr, uint32_t prot)
{
	record(s, (struct dj_record){ .kind = DJ_REC_MAP,
				      .addr = addr,
				      .length = 0x1000,
				      .prot = prot,
				      .module = -1 });
}

/*
 * Two threads of a process. The first makes a system call and then goes round in a loop; 10
 * instructions from its beginning it has a keyframe, with what is in the first 16 bytes of the
 * heap. The second one
 * does the same without, and its system call is a later event.
 */
static void write_two(void)
{
	static const uint8_t code[] = { 0x0f, 0x05, 0xeb, 0xfe }, part[] = "written before!";
	static const uint8_t zeros[0x1000];
	struct dj_regs regs = { .rip = LOOP_AT, .rflags = 0x202, .mxcsr = 0x1f80, .fcw = 0x37f };
	struct dj_error err = { 0 };
	struct dj_writer *w = write_by_hand();
	struct dj_stream *process = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *a = dj_writer_thread(w, process, 1, "a", &err);
	struct dj_stream *b = dj_writer_thread(w, process, 2, "b", &err);

	regs.gpr[DJ_RAX] = 39; /* getpid */
	const struct dj_regs first = regs;
	CU_ASSERT_FATAL(!dj_stream_snapshot(process, 0, HEAP_AT, zeros, sizeof(zeros), &err));
	CU_ASSERT_FATAL(!dj_stream_snapshot(process, 0, FIXED_AT, zeros, sizeof(zeros), &err));
	map(a, LOOP_AT, 5);
	map(a, HEAP_AT, 3);
	map(a, FIXED_AT, 1);
	record(a, (struct dj_record){
			  .kind = DJ_REC_CODE, .addr = LOOP_AT, .bytes = code, .length = 4 });
	record(a, (struct dj_record){ .kind = DJ_REC_REGS, .mask = DJ_REG_ALL, .regs = regs });
	record(a, (struct dj_record){ .kind = DJ_REC_SYSCALL, .result = 1, .r11 = 0x202 });
	regs.rip += 2;
	regs.gpr[DJ_RAX] = 1;
	regs.gpr[DJ_RCX] = regs.rip;
	regs.gpr[DJ_R11] = 0x202;
	record(a, (struct dj_record){ .kind = DJ_REC_KEYFRAME,
				      .what = DJ_KEYFRAME_FULL,
				      .steps = 10,
				      .addr = 9,
				      .seq = 1,
				      .mask = DJ_REG_ALL,
				      .regs = regs });
	record(a, (struct dj_record){ .kind = DJ_REC_KEYFRAME,
				      .what = DJ_KEYFRAME_PART,
				      .steps = 10,
				      .addr = HEAP_AT,
				      .name = "memory",
				      .bytes = part,
				      .length = sizeof(part) });
	record(a, (struct dj_record){ .kind = DJ_REC_EXIT, .steps = 100 });
	CU_ASSERT_FATAL(!dj_stream_facts(b, 0, 4, &err));
	record(b, (struct dj_record){ .kind = DJ_REC_REGS, .mask = DJ_REG_ALL, .regs = first });
	record(b, (struct dj_record){ .kind = DJ_REC_SEQ, .seq = 5 });
	record(b, (struct dj_record){ .kind = DJ_REC_SYSCALL, .result = 1, .r11 = 0x202 });
	record(b, (struct dj_record){ .kind = DJ_REC_EXIT, .steps = 100 });
	CU_ASSERT_FATAL(!dj_writer_close(w, &(struct dj_trace_end){ .present = true }, &err));
}

/* The first chunk of the first thread is lost. */
static void lose_beginning(void)
{
	uint8_t bytes[1 << 16];
	struct dj_chunk_header h;
	FILE *f = fopen(path, "r+");
	size_t at = FILE_HEADER_SIZE, n = f ? fread(bytes, 1, sizeof(bytes), f) : 0;

	CU_ASSERT_FATAL(n > at && n < sizeof(bytes));
	while (dj_chunk_header_unpack(&h, bytes + at, n - at, dj_get64(bytes + 16)) &&
	       !(h.type == CHUNK_STREAM && h.stream == 1 && h.number == 1))
		at += CHUNK_HEADER_SIZE + h.len;
	CU_ASSERT_FATAL(at < n);
	fseek(f, (long)(at + CHUNK_HEADER_SIZE), SEEK_SET);
	fputc(bytes[at + CHUNK_HEADER_SIZE] ^ 1, f);
	fclose(f);
}

/* What the thread has at these places, after so many steps: bytes of the heap in the keyframe and
 * beyond, and of what nobody may write. A dot: it is not known. */
static void expect(uint32_t thread, uint64_t steps, const char *want)
{
	static const uint64_t places[] = { HEAP_AT, HEAP_AT + 6, HEAP_AT + 16, FIXED_AT };
	const struct replay_pos to = { .thread = thread, .steps = steps };
	struct dj_error err;
	char got[5] = "";

	CU_ASSERT_FATAL(!replay_seek(rep, &to, &err));
	for (unsigned i = 0; i < 4; i++)
		if (!replay_read(rep, places[i], &got[i], 1))
			got[i] = '.';
		else if (!got[i])
			got[i] = '0';
	CU_ASSERT_STRING_EQUAL(got, want);
}

void test_full_keyframe(void)
{
	struct dj_error err = { 0 };
	struct replay_stop stop;

	write_two();
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep = replay_open(path, &err));
	/* who comes from the left knows better */
	expect(0, 9, "0000");
	expect(0, 10, "0000");
	expect(1, 0, "0000");
	expect(1, 50, "0000");
	replay_close(rep);

	lose_beginning();
	CU_ASSERT_PTR_NOT_NULL_FATAL(rep = replay_open(path, &err));
	CU_ASSERT_EQUAL(dj_trace_process(rep->t, 0)->late_seq, 1);
	expect(0, 10, "wn.0");
	expect(0, 50, "wn.0");
	replay_step(rep, REPLAY_BACKWARD, &stop);
	expect(0, 10, "wn.0");
	/* the second may have begun before the first one wrote that, or after it; but later on it
	 * was there */
	expect(1, 0, "...0");
	expect(1, 50, "wn.0");
	replay_close(rep);
	unlink(path);
}
