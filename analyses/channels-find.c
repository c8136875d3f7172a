/* Which call wrote what another one read (analyses/channels.h). */
#include "analyses/channels-int.h"

#include <string.h>

/* Where byte `at` of what a call moves lies in memory, and how many follow it. */
static bool bytes_at(struct ana_channels *c, const struct channel_call *call, uint64_t at,
		     uint64_t *addr, uint64_t *more)
{
	unsigned kind = ana_channel_rule(call->nr)->bytes;
	uint64_t vector = call->arg[1], count = call->arg[2];

	*addr = call->arg[1] + at;
	*more = call->result - at;
	if (kind == BYTES_BUFFER)
		return true;
	if (!ana_channel_stand(c, &call->pos, false))
		return false;
	if (kind == BYTES_MESSAGE && (!ana_channel_number(c, call->arg[1] + 16, 8, &vector) ||
				      !ana_channel_number(c, call->arg[1] + 24, 8, &count)))
		return false;
	for (uint64_t i = 0; i < count && i < 1024; i++) {
		uint64_t base, length;

		if (!ana_channel_number(c, vector + 16 * i, 8, &base) ||
		    !ana_channel_number(c, vector + 16 * i + 8, 8, &length))
			return false;
		if (at < length) {
			*addr = base + at;
			*more = length - at < *more ? length - at : *more;
			return true;
		}
		at -= length;
	}
	return false;
}

/* The write that byte `byte` of what this move read came from; NULL if none is known. */
static const struct channel_move *written(const struct ana_channels *c, size_t read, uint64_t byte)
{
	const struct channel_move *v = c->moves.v, *m = &v[read];
	bool stream = strcmp(ana_channel_object(c, m->object)->kind, "file") != 0;
	bool messages = ana_channel_object(c, m->object)->messages;

	for (size_t i = stream ? c->moves.n : read; i-- > (stream ? 0 : m->since);)
		if (v[i].write && v[i].object == m->object &&
		    (messages ? v[i].first == m->first && byte - m->first < v[i].length
			      : byte - v[i].first < v[i].length))
			return &v[i];
	return NULL;
}

static bool source(struct ana_channels *c, size_t read, uint64_t at, uint64_t size,
		   struct ana_channel_source *out)
{
	const struct channel_move *v = c->moves.v, *w;
	uint64_t byte, more;

	for (unsigned hops = 0; hops < 16; hops++) {
		const struct channel_object *o = ana_channel_object(c, v[read].object);

		byte = v[read].first + at;
		w = written(c, read, byte);
		if (!w)
			return false;
		size_t n = strlen(out->through);
		snprintf(out->through + n, sizeof(out->through) - n, "%sa %s%s%s",
			 n ? ", and that " : "", o->kind, o->name ? " " : "",
			 o->name ? o->name : "");
		out->is_made = !o->name;
		out->made = o->made;
		at = byte - w->first;
		if (!w->from) {
			const struct channel_call *call = ana_log_at(&c->calls, w->call);

			out->pos = call->pos;
			if (!bytes_at(c, call, at, &out->addr, &more))
				return false;
			out->size = size < more ? size : more;
			return true;
		}
		if (w->from == SIZE_MAX)
			return false;
		read = w->from - 1;
	}
	return false;
}

bool ana_channel_source(struct ana_channels *c, const struct replay_pos *pos, uint64_t at,
			uint64_t size, struct ana_channel_source *out)
{
	const struct channel_move *v = c->moves.v;

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < c->moves.n; i++) {
		const struct channel_call *call = ana_log_at(&c->calls, v[i].call);
		uint64_t addr, more, skipped = 0;

		if (v[i].write || call->act != ACT_READ || call->pos.thread != pos->thread ||
		    call->pos.steps != pos->steps)
			continue;
		/* which of its bytes went there */
		while (skipped < call->result && bytes_at(c, call, skipped, &addr, &more) && more) {
			if (at - addr < more)
				return source(c, i, skipped + (at - addr), size, out);
			skipped += more;
		}
	}
	return false;
}
