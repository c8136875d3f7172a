/*
 * Positions and ranges of them, as queries are asked and answered: text that replay_goto_text()
 * understands, for any position, and which part of the history and which threads a query is about.
 */
#ifndef DEJA_ANALYSES_PLACES_H
#define DEJA_ANALYSES_PLACES_H

#include "replayer/replay.h"

#define ANA_POS_TEXT 96

/* "12:345+6@789". */
void ana_pos_text(struct dj_trace *t, const struct replay_pos *pos, char buf[ANA_POS_TEXT]);

/* What part of the history counts. */
struct ana_part {
	struct replay_pos from, to;
	uint32_t thread, process; /* numbers, or REPLAY_ALL */
};
/* Out of what a user says: positions (NULL: from the beginning, to the end), a tid and a pid (0:
 * all). Moves the replay. */
int ana_part_parse(struct replay *r, const char *from, const char *to, uint64_t tid, uint64_t pid,
		   struct ana_part *part, struct dj_error *err);
/* Whether a position of a thread that counts lies within. */
bool ana_part_has(const struct ana_part *part, struct dj_trace *t, const struct replay_pos *pos);
/* Go to where it begins, in a thread that counts, with the scope set to those that do. */
int ana_part_begin(struct replay *r, const struct ana_part *part, struct dj_error *err);

#endif
