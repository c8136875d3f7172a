/*
 * Which chunks of a thread's stream are its history (format/reader.h).
 *
 * A history is one piece. Where a chunk is missing it ends, and can begin again with a keyframe; of
 * several pieces the longest counts.
 */
#include "format/reader.h"

#include <stdlib.h>

/* How much of a thread's history these chunks are. */
static uint64_t span(const struct dj_reader_chunks *chunks)
{
	return chunks->n ? chunks->v[chunks->n - 1].h.last - chunks->v[0].h.first + 1 : 0;
}

bool dj_reader_begin_part(struct dj_reader_stream *s, const struct dj_reader_chunk *c)
{
	struct dj_reader_chunks was = s->chunks;

	if (s->process || !(c->h.flags & CHUNK_AT_KEYFRAME) || c->h.number <= s->number_seen)
		return false;
	if (span(&was) > span(&s->longest)) {
		s->chunks = s->longest;
		s->longest = was;
	}
	s->chunks.n = 0;
	s->number_seen = c->h.number - 1;
	s->cut = false;
	return true;
}

int dj_reader_finish_thread(struct dj_reader_stream *s, struct dj_thread_info *info)
{
	const struct dj_reader_chunks *chunks = &s->chunks;

	if (s->longest.n && span(&s->longest) >= span(&s->chunks)) {
		struct dj_reader_chunks other = s->chunks;

		s->chunks = s->longest;
		s->longest = other;
		s->cut = true;
	}
	for (size_t i = 0; i < chunks->n; i++) {
		size_t *v;

		info->records += chunks->v[i].h.arg;
		if (!(chunks->v[i].h.flags & CHUNK_AT_KEYFRAME))
			continue;
		info->records -= info->records != 0; /* the number of facts behind it */
		v = dj_reader_grow(s->keyframes, s->nkeyframes, sizeof(*v));
		if (!v)
			return -1;
		s->keyframes = v;
		v[s->nkeyframes++] = i;
	}
	if (chunks->n) {
		info->first_steps = chunks->v[0].h.first;
		info->first_seq = chunks->v[0].h.first_seq;
		info->last_steps = chunks->v[chunks->n - 1].h.last;
		info->last_seq = chunks->v[chunks->n - 1].h.last_seq;
	}
	info->keyframes = s->nkeyframes;
	info->late = s->nkeyframes && !s->keyframes[0];
	return 0;
}

/* The chunk of keyframe `i`, or NULL. */
static const struct dj_reader_chunk *keyframe(const struct dj_trace *t, size_t thread, size_t i)
{
	const struct dj_reader_stream *s =
		thread < t->nthreads ? &t->streams[t->threads[thread].stream] : NULL;

	return s && i < s->nkeyframes ? &s->chunks.v[s->keyframes[i]] : NULL;
}

bool dj_trace_keyframe(const struct dj_trace *t, size_t thread, size_t i, uint64_t *steps,
		       uint64_t *seq)
{
	const struct dj_reader_chunk *c = keyframe(t, thread, i);

	if (!c)
		return false;
	*steps = c->h.first;
	*seq = c->h.first_seq;
	return true;
}
