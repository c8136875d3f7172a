/*
 * deja origin: where a value came from. From a place at a position, a register or memory, backwards
 * to the instruction that made it so, from there to what that instruction made it of, and so on,
 * through copies, arithmetic, memory and other threads, until an instruction or the kernel made it
 * of nothing that could be followed.
 *
 * Of what several things were computed from, the greatest is followed, which is the pointer where
 * there is one; the others are named, and can be asked for with the position beside them. On the
 * way it is noticed when memory held nothing of the program's: when the block of the heap was
 * allocated after it was written, had been freed, or the call to whose frame it belonged was over.
 */
#include "analyses/origin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW	   50000u /* instructions */
#define HOPS	   200
#define HEAP_LIMIT 4000000

/* ---- rows ---- */

static void row(struct origin *o, const struct replay_pos *pos, const struct origin_place *p,
		const struct origin_value *value, const struct insn *in, const char *how)
{
	char position[64], place[64], number[40], text[120] = "", code[300] = "";
	struct ana_place places[ANA_PLACES];
	struct dj_regs regs;

	replay_pass_text(o->job->t, pos, position, sizeof(position));
	ana_origin_place_text(p, place, sizeof(place));
	ana_origin_value_text(value, number, sizeof(number));
	replay_regs(o->r, &regs);
	if (in)
		insn_text(in, false, text, sizeof(text));
	struct ana_symbols *s = ana_symbols_new(o->r);
	if (s) {
		ana_symbols_at(s, regs.rip, places);
		if (places[0].function && places[0].file)
			snprintf(code, sizeof(code), "%s at %s:%d", places[0].function,
				 ana_base(places[0].file), places[0].line);
		else if (places[0].function)
			snprintf(code, sizeof(code), "%s+%#" PRIx64, places[0].function,
				 places[0].offset);
		else
			snprintf(code, sizeof(code), "%#" PRIx64, regs.rip);
	}
	ana_symbols_free(s);
	ana_table_row(o->t, (struct ana_cell[]){ { .text = position },
						 { .text = place },
						 { .text = number, .none = !value->known },
						 { .text = how },
						 { .text = code },
						 { .text = text } });
}

/* ---- parts of a value ---- */

/* The bytes of the place that a write has not written. */
static void keep_parts(struct origin *o, const struct origin_write *w)
{
	uint64_t before = w->first - o->place.addr;
	uint64_t after = o->place.size - before - w->length;
	struct origin_place p = o->place;

	if (after && o->n_parts < ORIGIN_PARTS) {
		p.addr = w->first + w->length;
		p.size = after;
		o->parts[o->n_parts].place = p;
		o->parts[o->n_parts++].pos = o->pos;
	}
	if (before && o->n_parts < ORIGIN_PARTS) {
		p.addr = o->place.addr;
		p.size = before;
		o->parts[o->n_parts].place = p;
		o->parts[o->n_parts++].pos = o->pos;
	}
}

/* Whether the code has been told of as the writer of another part; it has, from now on. */
static bool told_already(struct origin *o, uint64_t addr)
{
	for (unsigned i = 0; i < o->n_told; i++)
		if (o->told[i] == addr)
			return true;
	if (o->n_told < ORIGIN_PARTS)
		o->told[o->n_told++] = addr;
	return false;
}

/* On with a part that is left; false if there is none. */
static bool next_part(struct origin *o, struct dj_error *err)
{
	if (!o->n_parts)
		return false;
	o->n_parts--;
	o->place = o->parts[o->n_parts].place;
	o->pos = o->parts[o->n_parts].pos;
	o->last = false;
	o->is_part = true;
	return !replay_seek(o->r, &o->pos, err) && !replay_select(o->r, o->pos.thread, err);
}

/* ---- one hop ---- */

int ana_origin_stand(struct origin *o, uint32_t thread, uint64_t steps, struct dj_error *err)
{
	const struct replay_pos to = { .thread = thread, .steps = steps };

	if (replay_seek(o->r, &to, err) || replay_select(o->r, thread, err))
		return -1;
	replay_pos(o->r, &o->pos);
	return 0;
}

/* The last step of the window before `steps` for which the place is defined, by what it is called
 * behind that. What is left of `*n` steps is not looked at. */
static bool defined_in_window(struct origin *o, uint64_t steps, struct origin_place *place,
			      size_t *n)
{
	const struct origin_window *w = &o->w;

	for (; *n; --*n) {
		const struct origin_step *step = &w->steps[*n - 1];

		if (step->steps >= steps)
			continue;
		if (ana_origin_defines(step, place))
			return true;
		ana_origin_x87_before(step, place);
	}
	return false;
}

/* The same of the whole history. 1: found, a step of a window; 0: there is none; -1 with err. */
static int find_definition(struct origin *o, uint32_t thread, uint64_t steps, size_t *found,
			   struct dj_error *err)
{
	uint64_t first = dj_trace_thread(o->job->t, thread)->first_steps;
	struct origin_window *w = &o->w;
	struct origin_place place = o->place;

	if (steps == first)
		return 0;
	if (w->thread != thread || !w->n || w->steps[w->n - 1].steps < steps - 1 ||
	    w->steps[0].steps >= steps)
		if (ana_origin_window_fill(w, o->job, thread, steps - 1, WINDOW, err))
			return -1;
	size_t n = w->n;
	if (!defined_in_window(o, steps, &place, &n)) {
		if (!w->n || w->steps[0].steps <= first)
			return 0;
		steps = w->steps[0].steps;
		int ret = ana_origin_register(o->job, thread, &place, &steps, err);
		if (ret <= 0)
			return ret;
		if (ana_origin_window_fill(w, o->job, thread, steps, WINDOW, err))
			return -1;
		n = w->n;
		if (!defined_in_window(o, steps + 1, &place, &n))
			return dj_fail(err, 1, "the instruction that wrote it was not found again");
	}
	o->place = place;
	*found = n - 1;
	return 1;
}

/* The step of the window at which the write was made. */
static int find_step(struct origin *o, const struct replay_pos *pos, size_t *found,
		     struct dj_error *err)
{
	struct origin_window *w = &o->w;

	if (w->thread != pos->thread || !w->n || w->steps[0].steps > pos->steps ||
	    w->steps[w->n - 1].steps < pos->steps)
		if (ana_origin_window_fill(w, o->job, pos->thread, pos->steps, WINDOW, err))
			return -1;
	for (size_t i = w->n; i-- > 0;)
		if (w->steps[i].steps == pos->steps) {
			*found = i;
			return 0;
		}
	return dj_fail(err, 1, "the instruction that wrote it was not found again");
}

/* Of several sources the greatest; the others are named. */
static unsigned choose(struct origin *o, const struct origin_sources *s, char *also, size_t size)
{
	struct origin_value v[ORIGIN_SOURCES];
	uint64_t best = 0;
	unsigned chosen = 0;
	size_t n = 0;

	for (unsigned i = 0; i < s->n; i++) {
		v[i] = ana_origin_value(o, &s->s[i]);
		if (v[i].known && !v[i].high && (int64_t)v[i].low > 0 && v[i].low > best) {
			best = v[i].low;
			chosen = i;
		}
	}
	*also = 0;
	for (unsigned i = 0; i < s->n && n < size; i++) {
		char place[64], number[40];

		if (i == chosen)
			continue;
		ana_origin_place_text(&s->s[i], place, sizeof(place));
		n += (size_t)snprintf(also + n, size - n, "%s%s", n ? ", " : " and ", place);
		ana_origin_value_text(&v[i], number, sizeof(number));
		if (n < size && v[i].known)
			n += (size_t)snprintf(also + n, size - n, " (%s)", number);
	}
	return chosen;
}

/* Whether the value may be the source's; if it is not, the instruction left that out. */
static bool perhaps_from(struct origin *o, const struct origin_sources *s,
			 const struct origin_value *value)
{
	struct origin_value now = ana_origin_value(o, &s->s[0]);

	return !now.known || !value->known || ana_origin_same(&now, value);
}

/* Of some instructions the decoder does not know what they write: what is now as it was before was
 * not written. */
static bool left_alone(struct origin *o, const struct insn *in, const struct origin_value *value)
{
	if (!in || (in->id != INSN_EVEX && in->id != INSN_XOP))
		return false;
	struct origin_value now = ana_origin_value(o, &o->place);
	return ana_origin_same(&now, value);
}

/* On from the instruction of the window that made the place what it is, at which the replay stands.
 */
static int from_step(struct origin *o, size_t i, const struct origin_value *value)
{
	const struct origin_step *step = &o->w.steps[i];
	struct origin_sources s;
	struct dj_regs regs;
	char how[2400], also[200], place[64];

	replay_regs(o->r, &regs);
	ana_origin_sources(&o->w, i, &o->place, &regs, &s);
	if (s.unsure && !perhaps_from(o, &s, value)) {
		s.elsewhere = o->place.kind == ORIGIN_MEMORY;
		s.final = "this instruction, which sets registers to zero";
	}
	if (s.elsewhere || left_alone(o, step->in, value))
		return 0; /* further back, the same place */
	if (s.final || !s.n) {
		snprintf(how, sizeof(how), "made by %s", s.final ? s.final : "this instruction");
		struct replay_pos pos = o->pos;
		if (step->kind == ORIGIN_CALL)
			ana_origin_call_text(o, how, sizeof(how));
		if (ana_origin_stand(o, pos.thread, pos.steps, &(struct dj_error){ 0 }))
			o->pos = pos;
		row(o, &o->pos, &o->place, value, step->in, how);
		o->last = true;
		return 0;
	}
	unsigned chosen = s.n > 1 ? choose(o, &s, also, sizeof(also)) : (also[0] = 0, 0);
	ana_origin_place_text(&s.s[chosen], place, sizeof(place));
	snprintf(how, sizeof(how), "%s %s%s", s.copy ? "copied from" : "computed from", place,
		 also);
	row(o, &o->pos, &o->place, value, step->in, how);
	o->place = s.s[chosen];
	return 0;
}

/* The registers of a new thread are those of the one that made it, but for what the call changes.
 */
static int from_maker(struct origin *o, uint32_t thread, struct dj_error *err)
{
	const unsigned changed = 1u << DJ_RAX | 1u << DJ_RSP | 1u << DJ_RCX | 1u << DJ_R11;
	struct replay_pos at;

	if (!ana_origin_maker(o, thread, &at) ||
	    (o->place.kind == ORIGIN_GPR && changed >> o->place.reg & 1)) {
		o->last = true;
		return 0;
	}
	return ana_origin_stand(o, at.thread, at.steps, err);
}

static int hop_register(struct origin *o, struct dj_error *err)
{
	uint32_t thread = o->pos.thread;
	struct origin_value value = ana_origin_value(o, &o->place);
	size_t i = 0;

	int res = find_definition(o, thread, o->pos.steps, &i, err);
	if (res < 0)
		return -1;
	if (!res) {
		if (ana_origin_stand(o, thread, dj_trace_thread(o->job->t, thread)->first_steps,
				     err))
			return -1;
		row(o, &o->pos, &o->place, &value, NULL, "what the thread began with");
		return from_maker(o, thread, err);
	}
	return ana_origin_stand(o, thread, o->w.steps[i].steps, err) ? -1 : from_step(o, i, &value);
}

static bool first_thread(const struct origin *o, uint32_t process, uint32_t *thread)
{
	for (uint32_t i = 0; i < dj_trace_threads(o->job->t); i++)
		if (dj_trace_thread(o->job->t, i)->process == process) {
			*thread = i;
			return true;
		}
	return false;
}

/* The place was written by a system call, at which the replay stands; `seen` is where it was read.
 */
static int from_call(struct origin *o, const struct replay_pos *seen,
		     const struct origin_value *value, const uint8_t *bytes, struct dj_error *err)
{
	struct origin_place place = o->place;
	struct replay_pos call = o->pos;
	char how[2400] = "written by the kernel";

	ana_origin_call_text(o, how, sizeof(how));
	if (ana_origin_stand(o, call.thread, call.steps, err))
		return -1;
	row(o, &o->pos, &o->place, value, NULL, how);
	int res = bytes ? ana_origin_through(o, bytes, how, sizeof(how), err) : 0;
	if (res <= 0) {
		o->last = true;
		return res;
	}
	row(o, &o->pos, &o->place,
	    o->place.size == place.size ? value : &(struct origin_value){ .known = false }, NULL,
	    how);
	if (o->place.size < place.size) { /* the rest came from elsewhere */
		struct origin_write w = { .first = place.addr, .length = o->place.size };
		struct origin_place from = o->place;
		struct replay_pos at = o->pos;
		o->place = place;
		o->pos = *seen;
		keep_parts(o, &w);
		o->place = from;
		o->pos = at;
	}
	return 0;
}

static int hop_memory(struct origin *o, struct dj_error *err)
{
	uint32_t process = dj_trace_thread(o->job->t, o->pos.thread)->process;
	struct origin_write w;
	struct replay_pos since;
	uint32_t thread;
	uint8_t bytes[64];
	uint64_t size = o->place.size < sizeof(bytes) ? o->place.size : sizeof(bytes);
	bool has_bytes;
	char how[2400] = "", freed[1200];
	size_t i = 0;

	o->place.size = size;
	struct origin_value value = ana_origin_value(o, &o->place);
	has_bytes = replay_read(o->r, o->place.addr, bytes, size) == size;
	if (ana_origin_search(o->job, process, o->place.addr, size, has_bytes ? bytes : NULL,
			      &o->pos, &w, err))
		return -1;
	if (ana_origin_shared(o, bytes, has_bytes, &w, err))
		return -1;
	if (ana_origin_stale(o, &w, how, sizeof(how), &since)) {
		if (ana_origin_stand(o, since.thread, since.steps, err))
			return -1;
		row(o, &since, &o->place, &value, NULL, how);
		o->last = true;
		return 0;
	}
	ana_origin_freed_text(o, freed, sizeof(freed));
	if (!w.found && !w.exec && first_thread(o, process, &thread) &&
	    ana_origin_maker(o, thread, &since)) {
		struct replay_pos began;
		replay_thread_begin(o->r, thread, &began);
		row(o, &began, &o->place, &value, NULL, "what the process began with");
		return ana_origin_stand(o, since.thread, since.steps, err);
	}
	if (!w.found) {
		ana_origin_unwritten_text(o, how, sizeof(how));
		strncat(how, freed, sizeof(how) - strlen(how) - 1);
		row(o, &o->pos, &o->place, &value, NULL, how);
		o->last = true;
		return 0;
	}
	bool partly = w.length < o->place.size, is_part = o->is_part;
	struct replay_pos seen = o->pos;
	uint64_t at = o->place.addr;
	if (partly)
		keep_parts(o, &w);
	o->is_part = false;
	o->place.addr = w.first;
	o->place.size = w.length;
	value = ana_origin_value_of(bytes + (w.first - at), has_bytes ? w.length : 0);
	if (*freed) /* a hop of its own: it is what people look for */
		row(o, &o->pos, &o->place, &value, NULL, freed + 2);
	if (ana_origin_stand(o, w.pos.thread, w.pos.steps, err))
		return -1;
	uint64_t skipped = w.first - at;
	o->place.addr += w.elsewhere;
	if (w.call)
		return from_call(o, &seen, &value, has_bytes ? bytes + skipped : NULL, err);
	if (find_step(o, &w.pos, &i, err))
		return -1;
	if ((partly || is_part) && told_already(o, o->w.steps[i].in->addr)) {
		o->last = true;
		return 0;
	}
	return from_step(o, i, &value);
}

/* ---- the question ---- */

static int go(struct origin *o, struct dj_error *err)
{
	uint64_t hops = 0;

	while ((!o->last || next_part(o, err)) && hops++ < o->limit) {
		struct origin_place before = o->place;
		struct replay_pos pos = o->pos;

		if (o->place.kind == ORIGIN_MEMORY ? hop_memory(o, err) : hop_register(o, err))
			return -1;
		if (!o->last && !replay_pos_cmp(&pos, &o->pos) &&
		    !memcmp(&before, &o->place, sizeof(before)))
			return dj_fail(err, 1, "the way back ends here");
	}
	return err->text[0] ? -1 : 0;
}

/* A process that has exited has no memory: the last moment that it had some is meant. */
static int before_exit(struct origin *o, struct dj_error *err)
{
	const struct dj_thread_info *info = dj_trace_thread(o->job->t, o->pos.thread);
	const struct replay_mapping *maps;

	if (o->pos.steps != info->last_steps || info->last_steps == info->first_steps ||
	    replay_mappings(o->r, &maps))
		return 0;
	return ana_origin_stand(o, o->pos.thread, info->last_steps - 1, err);
}

static int ask(struct origin *o, struct dj_error *err)
{
	struct replay_listener listener;
	const struct replay_listener *listeners[] = { &listener };

	if (ana_origin_parse_place(o, o->job->operands[1], err))
		return -1;
	o->heap.events.limit = HEAP_LIMIT;
	if (!ana_heap_listener(&o->heap, o->job, false, &listener)) {
		o->job->to = o->pos; /* what comes later does not count */
		o->job->has_to = true;
		if (ana_pass(o->job, listeners, 1, err))
			return -1;
		if (o->job->passed.interrupted)
			return -1;
		ana_heap_sort(&o->heap);
	}
	err->text[0] = 0;
	o->t = ana_table_new("origin", (struct ana_column[]){ { "position", ANA_TEXT },
							      { "place", ANA_TEXT },
							      { "value", ANA_TEXT },
							      { "how", ANA_TEXT },
							      { "code", ANA_TEXT },
							      { "instruction", ANA_TEXT },
							      { 0 } });
	if (!o->t)
		return dj_fail(err, 1, "out of memory");
	int ret = go(o, err);
	ana_table_end(&o->job->out, o->t);
	if (ret && *o->job->interrupt) {
		o->job->cut = true;
		dj_fail(err, ANA_INTERRUPTED, "interrupted: these are the hops found by then");
		return 0;
	}
	if (!ret && !o->last)
		ana_out_lack(&o->job->out, "It goes on; --limit says how many hops are wanted.");
	return ret;
}

/* To where the way back begins; from there it goes to nothing later. */
static int prepare(void *state, struct ana_job *job, struct dj_error *err)
{
	struct origin *o = state;
	struct dj_regs regs;
	uint8_t byte;

	o->job = job;
	o->r = job->moving = replay_open(dj_trace_path(job->t), err);
	if (!o->r || replay_goto_text(o->r, job->operands[0], err))
		return -1;
	replay_pos(o->r, &o->pos);
	if (before_exit(o, err))
		return -1;
	/* memory is looked for in the other threads, too: they come along */
	replay_regs(o->r, &regs);
	replay_read(o->r, regs.gpr[DJ_RSP], &byte, 1);
	return *job->interrupt ? dj_fail(err, ANA_INTERRUPTED, "interrupted") : 0;
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct origin *o = state;

	if (!o->limit)
		o->limit = HOPS;
	int ret = ask(o, err);
	job->moving = NULL;
	ana_origin_window_free(&o->w);
	ana_channels_free(o->channels);
	ana_heap_free(&o->heap);
	replay_close(o->r);
	return ret;
}

static int option(void *state, unsigned option, const char *arg, struct dj_error *err)
{
	(void)option;
	return ana_number("limit", arg, 1, &((struct origin *)state)->limit, err);
}

const struct ana_analysis ana_origin = {
	.name = "origin",
	.args = "[OPTIONS] POSITION PLACE [FILE]",
	.help = "where a value came from",
	.usage = "Usage: deja origin [OPTIONS] POSITION PLACE [FILE]\n"
		 "Where the value of PLACE at POSITION came from, backwards: each hop with "
		 "position, the\n"
		 "place that held it, and what it was made of there. PLACE is a register (rax, "
		 "xmm0,\n"
		 "st0), ADDRESS or VARIABLE[+OFFSET], either with :LENGTH behind it.\n"
		 "\n"
		 "      --limit N       at most N hops (200)\n",
	.operands = 2,
	.options = { { "limit", true } },
	.translated = true,
	.alone = true,
	.size = sizeof(struct origin),
	.option = option,
	.prepare = prepare,
	.run = run,
};
