/*
 * Program images: the one that the recording began with, and what each exec brought, by the facts
 * in the trace. So they are known wherever the replay stands, and however it came there.
 */
#include "format/text.h"
#include "gdbstub/session.h"

#include <stdlib.h>
#include <string.h>

/* What a hostile trace may make us keep. */
#define MAX_IMAGES (1u << 20)

static int add(struct stub_session *s, const struct stub_session_image *image, const char *exe)
{
	if (s->n_images % 64 == 0) {
		struct stub_session_image *grown =
			realloc(s->images, (s->n_images + 64) * sizeof(*s->images));
		if (!grown)
			return -1;
		s->images = grown;
	}
	char *copy = strdup(exe ? exe : "");
	if (!copy)
		return -1;
	dj_text_clean(copy);
	s->images[s->n_images] = *image;
	s->images[s->n_images++].exe = copy;
	return 0;
}

/* Those that a process brought, in order. */
static int add_of(struct stub_session *s, uint32_t process)
{
	struct dj_trace *t = replay_trace(s->r);
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new_facts(t, process, &err);
	const struct dj_record *rec;
	int result = 0;
	while (c && result == 0 && s->n_images < MAX_IMAGES && (rec = dj_cursor_next(c, &err))) {
		if (rec->kind != DJ_REC_EXEC || rec->thread < 0 ||
		    (size_t)rec->thread >= dj_trace_threads(t))
			continue;
		struct stub_session_image image = { .process = process,
						    .number = rec->image,
						    .pos = { .thread = (uint32_t)rec->thread,
							     .steps = rec->steps,
							     .seq = rec->seq } };
		result = add(s, &image, rec->name);
	}
	dj_cursor_free(c);
	return result;
}

int stub_session_images(struct stub_session *s)
{
	const struct dj_trace_meta *meta = dj_trace_meta(replay_trace(s->r));
	struct stub_session_image first = { .looked = true };
	if (add(s, &first, meta->exe) != 0)
		return -1;
	for (uint32_t i = 0; i < s->n_processes; i++)
		if (add_of(s, i) != 0)
			return -1;
	first.auxv_len = meta->auxv ? meta->auxv_len : 0;
	s->images[0].auxv = first.auxv_len ? malloc(first.auxv_len) : NULL;
	if (s->images[0].auxv) {
		memcpy(s->images[0].auxv, meta->auxv, first.auxv_len);
		s->images[0].auxv_len = first.auxv_len;
	}
	return 0;
}

void stub_session_images_free(struct stub_session *s)
{
	for (size_t i = 0; i < s->n_images; i++) {
		free(s->images[i].exe);
		free(s->images[i].auxv);
	}
	free(s->images);
}

/* ---- what it began with --------------------------------------------------------------- */

static bool read_words(struct stub_session *s, const struct stub_session_image *image,
		       uint64_t addr, uint64_t *words, size_t n)
{
	uint8_t buf[16];
	if (dj_trace_snapshot(replay_trace(s->r), image->process, image->number, addr, buf, 8 * n) <
	    8 * n)
		return false;
	for (size_t i = 0; i < n; i++) {
		words[i] = 0;
		for (int k = 7; k >= 0; k--)
			words[i] = words[i] << 8 | buf[8 * i + (size_t)k];
	}
	return true;
}

/* Whole words at most; what the kernel gives is some 400 bytes. */
#define MAX_AUXV 1024

/* What exec leaves on the stack: argc, argv, 0, envp, 0, auxv (System V ABI for x86-64,
 * "Initial Stack and Register State"). */
static void read_auxv(struct stub_session *s, struct stub_session_image *image, uint64_t at)
{
	uint64_t pair[2];
	if (!read_words(s, image, at, pair, 1) || pair[0] > 1u << 20)
		return;
	at += 8 * (pair[0] + 2);
	for (size_t i = 0; i < 1u << 20; i++, at += 8)
		if (!read_words(s, image, at, pair, 1))
			return;
		else if (pair[0] == 0)
			break;
	at += 8;
	image->auxv = malloc(MAX_AUXV);
	while (image->auxv && image->auxv_len + 16 <= MAX_AUXV &&
	       read_words(s, image, at, pair, 2)) {
		for (int k = 0; k < 16; k++)
			image->auxv[image->auxv_len++] = (uint8_t)(pair[k / 8] >> (8 * (k % 8)));
		if (pair[0] == 0)
			break;
		at += 16;
	}
}

/* Its first registers are the record that follows the exec. */
static void look(struct stub_session *s, struct stub_session_image *image)
{
	struct dj_error err = { 0 };
	const struct dj_record *rec;
	bool there = false;
	if (image->looked)
		return;
	image->looked = true;
	struct dj_cursor *c = dj_cursor_new(replay_trace(s->r), image->pos.thread, &err);
	if (c && dj_cursor_seek_steps(c, image->pos.steps, &err) == 0)
		while ((rec = dj_cursor_next(c, &err)) && rec->steps <= image->pos.steps) {
			there |= rec->kind == DJ_REC_EXEC && rec->image == image->number;
			if (!there || rec->kind != DJ_REC_REGS)
				continue;
			image->rip = rec->regs.rip;
			read_auxv(s, image, rec->regs.gpr[DJ_RSP]);
			break;
		}
	dj_cursor_free(c);
}

/* ---- which one ------------------------------------------------------------------------- */

/* Whether a position is one of the image or of a later one, given where code is executed there:
 * exec itself takes no step. */
static bool covers(struct stub_session *s, struct stub_session_image *image,
		   const struct replay_pos *pos, uint64_t rip)
{
	const struct replay_pos *from = &image->pos;
	if (from->thread != pos->thread)
		return from->seq != DJ_SEQ_UNKNOWN &&
		       (from->seq < pos->seq ||
			(from->seq == pos->seq && from->thread < pos->thread));
	if (from->steps != pos->steps)
		return from->steps < pos->steps;
	look(s, image);
	return image->rip == rip;
}

/* The newest of the process; if it has none of its own, the one that its parent had when it was
 * made; of whoever has none, the one that the recording began with. */
const struct stub_session_image *stub_session_image(struct stub_session *s)
{
	const struct dj_trace *t = replay_trace(s->r);
	struct replay_thread thread;
	struct replay_pos pos;
	struct dj_regs regs;
	replay_thread(s->r, &thread);
	replay_pos(s->r, &pos);
	replay_regs(s->r, &regs);
	int32_t process = (int32_t)thread.process;
	for (unsigned depth = 0; process >= 0 && depth < 1000; depth++) {
		for (size_t i = s->n_images; i-- > 1;)
			if (s->images[i].process == (uint32_t)process &&
			    covers(s, &s->images[i], &pos, regs.rip)) {
				look(s, &s->images[i]);
				return &s->images[i];
			}
		uint32_t first = 0;
		while (first < dj_trace_threads(t) &&
		       dj_trace_thread(t, first)->process != (uint32_t)process)
			first++;
		if (first == dj_trace_threads(t))
			break;
		replay_thread_begin(s->r, first, &pos);
		process = dj_trace_process(t, (size_t)process)->parent;
		if (process >= (int32_t)s->n_processes)
			break;
	}
	return &s->images[0];
}

const char *stub_session_exe(struct stub_session *s)
{
	return stub_session_image(s)->exe;
}
