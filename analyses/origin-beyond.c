/*
 * Where a value came from, beyond the thread and the process that has it (analyses/origin.h): who
 * made them, memory that processes share, and what went through pipes, sockets and files.
 */
#include "analyses/origin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- makers --------------------------------------------------------------------------------- */

bool ana_origin_maker(struct origin *o, uint32_t thread, struct replay_pos *at)
{
	const struct dj_thread_info *info = dj_trace_thread(o->job->t, thread);
	int32_t parent = dj_trace_process(o->job->t, info->process)->parent;
	bool first = !thread || dj_trace_thread(o->job->t, thread - 1)->process != info->process;
	const struct dj_record *rec;
	struct dj_error err;
	bool found = false;

	for (uint32_t i = 0; i < thread; i++)
		first = first && dj_trace_thread(o->job->t, i)->process != info->process;
	if (info->late || (first && parent < 0))
		return false;
	struct dj_cursor *c =
		dj_cursor_new_facts(o->job->t, first ? (size_t)parent : info->process, &err);
	while (c && !found && (rec = dj_cursor_next(c, &err))) {
		if (first ? rec->kind == DJ_REC_CHILD && rec->subject == (int32_t)info->process
			  : rec->kind == DJ_REC_THREAD && rec->what == DJ_THREAD_MADE &&
				    rec->subject == (int32_t)thread) {
			*at = (struct replay_pos){ .thread = (uint32_t)rec->thread,
						   .steps = rec->steps };
			/* a child that began in its maker's memory has none of that here */
			if (first && rec->what == DJ_CHILD_VFORK)
				break;
			found = rec->thread >= 0;
		}
	}
	dj_cursor_free(c);
	return found;
}

/* ---- shared memory -------------------------------------------------------------------------- */

/* What must be added to an address of a shared mapping to have it in another process, by a mapping
 * that this one made at any time; false if that is another's memory. A mapping of no file is shared
 * by who has a copy of it, at the same address. */
static bool same_memory(const struct dj_record *rec, const struct replay_mapping *m, uint64_t addr,
			uint64_t *shift)
{
	uint64_t offset = m->offset + (addr - m->start);
	const char *name = rec->name ? rec->name : "";

	if (rec->kind != DJ_REC_MAP || !(rec->flags & MAP_SHARED) || strcmp(name, m->name) != 0)
		return false;
	if (!*name && addr - rec->addr >= rec->length)
		return false;
	if (*name && offset - rec->offset >= rec->length)
		return false;
	*shift = *name ? rec->addr + (offset - rec->offset) - addr : 0;
	return true;
}

/* All places at which a process ever had the memory, if they are few. */
#define PLACES 4
static size_t places_in(struct origin *o, uint32_t process, const struct replay_mapping *m,
			uint64_t shifts[PLACES])
{
	const struct dj_record *rec;
	struct dj_error err;
	struct dj_cursor *c = dj_cursor_new_facts(o->job->t, process, &err);
	size_t n = 0;

	while (c && n < PLACES && (rec = dj_cursor_next(c, &err))) {
		bool known = !same_memory(rec, m, o->place.addr, &shifts[n]);

		for (size_t i = 0; i < n && !known; i++)
			known = shifts[i] == shifts[n];
		n += !known;
	}
	dj_cursor_free(c);
	return n;
}

static int look_there(struct origin *o, uint32_t process, uint64_t shift, const uint8_t *bytes,
		      struct origin_write *write, struct dj_error *err)
{
	struct origin_write w;

	if (ana_origin_search(o->job, process, o->place.addr + shift, o->place.size, bytes, &o->pos,
			      &w, err))
		return -1;
	if (!w.found || w.alike < write->alike ||
	    (write->found && w.alike == write->alike && replay_pos_cmp(&w.pos, &write->pos) < 0))
		return 0;
	w.first -= shift;
	w.elsewhere = shift;
	*write = w;
	return 0;
}

int ana_origin_shared(struct origin *o, uint8_t *bytes, bool has_bytes, struct origin_write *write,
		      struct dj_error *err)
{
	struct replay_pos here = o->pos;
	struct replay_mapping m;
	uint32_t own = dj_trace_thread(o->job->t, o->pos.thread)->process;
	char name[4096];
	uint64_t shifts[PLACES];

	if (!replay_mapping_at(o->r, o->place.addr, &m) || !(m.flags & MAP_SHARED))
		return 0;
	snprintf(name, sizeof(name), "%s", m.name);
	m.name = name;
	if (has_bytes && here.steps < dj_trace_thread(o->job->t, here.thread)->last_steps) {
		if (ana_origin_stand(o, here.thread, here.steps + 1, err))
			return -1;
		replay_read(o->r, o->place.addr, bytes, o->place.size);
		if (ana_origin_stand(o, here.thread, here.steps, err) ||
		    ana_origin_search(o->job, own, o->place.addr, o->place.size, bytes, &o->pos,
				      write, err))
			return -1;
	}
	for (uint32_t p = 0; p < dj_trace_processes(o->job->t); p++) {
		size_t n = p == own ? 0 : places_in(o, p, &m, shifts);

		for (size_t i = 0; i < n; i++)
			if (look_there(o, p, shifts[i], has_bytes ? bytes : NULL, write, err))
				return -1;
	}
	return 0;
}

/* ---- what calls moved ----------------------------------------------------------------------- */

int ana_origin_through(struct origin *o, const uint8_t *bytes, char *how, size_t size,
		       struct dj_error *err)
{
	struct ana_channel_source from;
	struct replay_pos call = o->pos;
	uint8_t sent[64];

	if (!o->channels)
		o->channels = ana_channels_new(o->job, o->r, err);
	if (!o->channels)
		return -1;
	bool found = ana_channel_source(o->channels, &call, o->place.addr, o->place.size, &from);
	if (found && ana_origin_stand(o, from.pos.thread, from.pos.steps, err))
		return -1;
	/* counts may be wrong where a file was changed from outside, or several threads read a
	 * stream */
	if (!found || from.size > sizeof(sent) ||
	    replay_read(o->r, from.addr, sent, from.size) < from.size ||
	    memcmp(sent, bytes, from.size) != 0)
		return ana_origin_stand(o, call.thread, call.steps, err);
	snprintf(how, size, "through %s", from.through);
	if (from.is_made) {
		char at[64];
		replay_pass_text(o->job->t, &from.made, at, sizeof(at));
		snprintf(how + strlen(how), size - strlen(how), " made at %s", at);
	}
	o->place.addr = from.addr;
	o->place.size = from.size;
	ana_origin_call_text(o, how, size);
	return ana_origin_stand(o, from.pos.thread, from.pos.steps, err) ? -1 : 1;
}
