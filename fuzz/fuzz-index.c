/*
 * Fuzz target: an index beside a trace that is good.
 *
 * The trace is replayed once, and what was found out is kept. Then the input's first bytes say what
 * becomes of the index's blocks. They are put together again with sums that are right, and a
 * debugger begins with what is in them; what it does is the rest of the input, as in fuzz-replay.c.
 */
#define FUZZ_INDEX 1
#include "format/index.h"
#include "fuzz/fuzz-replay.c"
#include "replayer/keep.h"
#include "replayer/wire.h"

#define EDITS_MAX  16u
#define BLOCKS_MAX 64u
#define SPACING	   64u /* instructions from one checkpoint to the next */

static const uint64_t odd[] = { 0,	    1,		0xff,
				0x7fff,	    0x10000,	0xffffffff,
				1ULL << 32, 1ULL << 48, (uint64_t)INT64_MAX,
				UINT64_MAX };

/* What fuzz-replay.c reads as a trace: a loop that stores and loads, and records of all kinds that
 * need no instruction of their own. */
struct world {
	uint8_t bytes[4096];
	size_t n;
};

static void say(struct world *w, const void *bytes, size_t n)
{
	memcpy(w->bytes + w->n, bytes, n);
	w->n += n;
}
#define SAY(w, ...)                                                                                \
	say(w, (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))

static void say_world(struct world *w)
{
	static const uint8_t code[] = {
		0x48, 0x89, 0x0c, 0xcf,	      /* again: mov [rdi + rcx * 8], rcx */
		0x48, 0x8b, 0x14, 0xcf,	      /* mov rdx, [rdi + rcx * 8] */
		0x48, 0x83, 0xc1, 0x09,	      /* add rcx, 9 */
		0x81, 0xe1, 0xff, 0x0f, 0, 0, /* and ecx, 0xfff */
		0x48, 0x01, 0xd0,	      /* add rax, rdx */
		0xeb, 0xe9,		      /* jmp again */
	};

	SAY(w, 1, 255);
	for (unsigned i = 0; i < 16; i++)
		SAY(w, i == DJ_RDI ? 1 : 6, 0);
	SAY(w, 0, 0, 0, 6, 0, 0, 0, 0);
	SAY(w, sizeof(code) - 1);
	say(w, code, sizeof(code));
	for (unsigned i = 0; i < 64; i++)
		SAY(w, (uint8_t)i);
	for (unsigned i = 0; i < 24; i++) {
		SAY(w, DJ_REC_MAP - 1, 0x80 | 54, 2, 0, 0, 8 | 7, (uint8_t)i, 1, 3);
		SAY(w, DJ_REC_UNMAP - 1, 0x80 | 30, 8 | 7, (uint8_t)(i / 2), 0, 0);
		SAY(w, DJ_REC_SYSDATA - 1, 0, 2, (uint8_t)i, 4, 1, 2, 3, 4);
		SAY(w, DJ_REC_CODE - 1, 0x80 | 30, 4, (uint8_t)i, 3, 0x90, 0x90, 0x90, 0x90);
		SAY(w, DJ_REC_IMPORT - 1, 0x80 | 1, 1, 0, 0);
		for (unsigned k = 0; k < DJ_LINE; k++)
			SAY(w, (uint8_t)(i + k));
		SAY(w, DJ_REC_PROTECT - 1, 0x80 | 5, 8 | 7, (uint8_t)i, 1, 1);
	}
	SAY(w, 100, 1);
}

/* A thread's history is gone through from one checkpoint to the next, and these are kept. */
static void keep_index(const char *path)
{
	struct dj_error err;
	struct replay *r = replay_open(path, &err);
	unsigned polls = 0;

	if (!r)
		return;
	replay_limits(r, SPACING, 40, 16u << 20);
	replay_set_poll(r, poll_now, &polls);
	for (uint64_t at = 0; at < r->th->end_steps && at < STEPS_MAX; at += SPACING) {
		struct replay_pos pos = { .steps = at };
		polls = 0;
		if (replay_seek(r, &pos, &err) < 0)
			break;
	}
	(void)replay_keep(r, true, &err);
	replay_close(r);
}

/* A change of a block, whose length it may change, too. */
static void edit(uint8_t *block, size_t *n, struct input *in)
{
	uint8_t how = (uint8_t)take(in, 1);
	/* the numbers of what follows are in a message's first part */
	uint64_t place = how & 0x80 ? take(in, 4) : 8 * take(in, 1), v;
	unsigned size = 1u << (how >> 4 & 3);

	if (!*n)
		return;
	place %= *n;
	v = how & 0x40 ? odd[how % (sizeof(odd) / sizeof(*odd))] : take(in, size);
	if ((how & 15) == 15)
		*n = place;
	else
		for (unsigned i = 0; i < size && place + i < *n; i++)
			block[place + i] = (uint8_t)(v >> 8 * i);
}

/* One block after the other, some of them changed, left out, or there twice. */
static void edit_index(struct dj_trace *t, struct input *in)
{
	struct dj_index *x = dj_index_open(t, rp_wire_layout());
	struct dj_index_writer *w = dj_index_begin(t, rp_wire_layout());
	const uint8_t *bytes;
	uint64_t at = 0;
	size_t n;

	for (unsigned k = 0; x && w && k < BLOCKS_MAX && (bytes = dj_index_next(x, 0, &at, &n));
	     k++) {
		uint8_t what = (uint8_t)take(in, 1), *copy = malloc(n + 1);
		if (!copy)
			break;
		memcpy(copy, bytes, n);
		for (unsigned i = what & 7; i; i--)
			edit(copy, &n, in);
		for (unsigned i = (what & 0xc0) == 0xc0 ? 0 : 1 + (what >> 5 & 1); i; i--)
			dj_index_put(w, 0, copy, n, SIZE_MAX);
		free(copy);
	}
	if (w)
		(void)dj_index_write(w, NULL);
	dj_index_drop(w);
	dj_index_close(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	size_t n = len ? bytes[0] : 0;
	struct input edits = { bytes, bytes }, in = { bytes, bytes + len };
	struct world world = { .n = 0 };
	struct dj_error err;
	char path[40] = "/dev/shm/fuzz-index-XXXXXX", index[sizeof(path) + 8];
	int fd;

	take(&in, 1);
	n = n < len ? n : 0;
	edits = (struct input){ in.p, in.p + n };
	in.p += n;
	fd = mkstemp(path); /* on a disk it takes ten times as long */
	if (fd < 0)
		fd = mkstemp(strcpy(path, "/tmp/fuzz-index-XXXXXX"));
	if (fd < 0)
		return 0;
	snprintf(index, sizeof(index), "%s.index", path);
	unlink(path); /* the writer wants none of another's */
	say_world(&world);
	struct input fixed = { world.bytes, world.bytes + world.n };
	if (write_trace(path, &fixed)) {
		keep_index(path);
		struct replay *r = replay_open(path, &err);
		if (r) {
			replay_limits(r, SPACING, 40, 16u << 20);
			edit_index(replay_trace(r), &edits);
			replay_use_index(r);
			debug(r, &in);
			replay_close(r);
		}
	}
	close(fd);
	unlink(path);
	unlink(index);
	return 0;
}
