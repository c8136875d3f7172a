/*
 * litmus-check TRACE ADDRESS [forward|cells]: does the timeline of a recording of
 * tests/programs/litmus.c show values only after they were written?
 *
 * ADDRESS is that of note_store: who comes there with esi 0 is about to write number rax on channel
 * edx, who comes with 1 has seen it. Goes through the history forward, stopping at each note of any
 * thread. A number that is seen before its note of writing, or a note that comes earlier than the
 * one before it in the order of positions, is a fault of the timeline. Then goes back from the end,
 * and must meet the same notes. Prints "notes N, seen S, early E"; exit status 1 if E or anything
 * else is wrong. For `cells' ADDRESS is that of cell_done, and early is what was loaded although
 * something else was stored there last.
 */
#include "replayer/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 16, SHOWN = 5 };

struct seen {
	struct replay_pos pos;
	uint64_t number;
	uint32_t channel, kind;
};

static struct seen *notes;
static size_t count, room;
static unsigned long early, disorder;

static void add(struct replay *r, const struct replay_stop *stop)
{
	struct dj_regs regs;
	struct seen *s;

	if (count == room) {
		room = room ? 2 * room : 1024;
		notes = realloc(notes, room * sizeof(*notes));
		if (!notes)
			exit(99);
	}
	s = &notes[count++];
	memset(s, 0, sizeof(*s));
	s->pos = stop->pos;
	replay_regs(r, &regs);
	s->number = regs.gpr[DJ_RAX];
	s->kind = (uint32_t)regs.gpr[DJ_RSI];
	s->channel = (uint32_t)regs.gpr[DJ_RDX];
	if (s->kind > 1 || s->channel >= CHANNELS) {
		printf("a note of kind %u on channel %u at %" PRIu64 ":%" PRIu64 "\n", s->kind,
		       s->channel, s->pos.seq, s->pos.within);
		exit(1);
	}
}

static bool run(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	replay_continue(r, dir, stop);
	if (stop->reason == REPLAY_BREAK)
		return true;
	if (stop->reason == REPLAY_FAILED) {
		printf("the replay fails: %s\n", stop->err.text);
		exit(1);
	}
	if (stop->reason != REPLAY_BEGIN && stop->reason != REPLAY_END) {
		printf("an unexpected stop, %d\n", (int)stop->reason);
		exit(1);
	}
	return false;
}

static void check_order(bool cells)
{
	uint64_t written[CHANNELS] = { 0 }, when[CHANNELS] = { 0 };
	unsigned long seen = 0;

	for (size_t i = 0; i < count; i++) {
		const struct seen *s = &notes[i];
		if (i && replay_pos_cmp(&notes[i - 1].pos, &s->pos) >= 0 && disorder++ < SHOWN)
			printf("stop %zu at %" PRIu64 ":%" PRIu64
			       " of thread %u is not after the one "
			       "before it, at %" PRIu64 ":%" PRIu64 " of thread %u\n",
			       i, s->pos.seq, s->pos.within, s->pos.thread, notes[i - 1].pos.seq,
			       notes[i - 1].pos.within, notes[i - 1].pos.thread);
		if (s->kind == 0) {
			written[s->channel] = s->number;
			when[s->channel] = s->pos.seq;
			continue;
		}
		seen++;
		if ((cells ? s->number != written[s->channel] : s->number > written[s->channel]) &&
		    early++ < SHOWN)
			printf("thread %u sees %" PRIu64 " of channel %u at %" PRIu64 ":%" PRIu64
			       "; last written there was %" PRIu64 ", at %" PRIu64 "\n",
			       s->pos.thread, s->number, s->channel, s->pos.seq, s->pos.within,
			       written[s->channel], when[s->channel]);
	}
	printf("notes %zu, seen %lu, early %lu\n", count, seen, early);
}

int main(int argc, char **argv)
{
	struct dj_error err;
	struct replay_stop stop;
	struct replay *r;
	uint64_t address;
	size_t back = 0;

	if (argc != 3 && argc != 4)
		return 2;
	address = strtoull(argv[2], NULL, 16);
	r = replay_open(argv[1], &err);
	if (!r) {
		printf("%s\n", err.text);
		return 1;
	}
	if (replay_break_add(r, address)) {
		printf("no breakpoint\n");
		return 1;
	}
	while (run(r, REPLAY_FORWARD, &stop))
		add(r, &stop);
	check_order(argc == 4 && !strcmp(argv[3], "cells"));
	if (argc == 4) /* not back */
		back = count;
	while (argc == 3 && count && run(r, REPLAY_BACKWARD, &stop)) {
		struct dj_regs regs;
		replay_regs(r, &regs);
		back++;
		if (back > count || replay_pos_cmp(&stop.pos, &notes[count - back].pos) ||
		    regs.gpr[DJ_RAX] != notes[count - back].number) {
			printf("going back, stop %zu is at %" PRIu64 ":%" PRIu64 " of thread %u\n",
			       back, stop.pos.seq, stop.pos.within, stop.pos.thread);
			return 1;
		}
	}
	if (back != count)
		printf("going back meets %zu notes of %zu\n", back, count);
	replay_close(r);
	free(notes);
	return early || disorder || back != count;
}
