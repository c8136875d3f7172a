/*
 * How records are coded inside a stream chunk. Private to format/.
 *
 * A chunk has two areas: `heads`, where everything is but the bulky bytes of IMPORT and CODE
 * records, which lie one after another in `data`. Positions and import addresses are coded as
 * differences from the record before; the state for that starts afresh in each chunk.
 */
#ifndef DEJA_FORMAT_RECORD_CODE_H
#define DEJA_FORMAT_RECORD_CODE_H

#include "format/bytes.h"
#include "format/record.h"

/* First byte of a coded record: its kind, and which of the optional parts follow. */
#define CODE_KIND      0x1f
#define CODE_REP       0x20 /* `rep` is not zero: a varint */
#define CODE_ORDINAL   0x40 /* `ordinal` is not zero: a byte */
#define CODE_SAME_STEP 0x80 /* at the same steps as the record before: no varint */

/* In the file alone: where a thread's records meet its process's. */
#define CODE_FACTS 21
/* Kinds from here on say how long they are, so that they can be passed over. */
#define CODE_PASS 24

struct dj_code_state {
	uint64_t steps; /* of the record before; at the start of a chunk its first position */
	uint64_t addr;	/* of the IMPORT before; 0 at the start of a chunk */
};

/* More than any record needs in `heads`. */
#define CODE_HEAD_MAX (DJ_NAME_MAX + DJ_REGS_PACKED_MAX + 128 + 32 + 20 * DJ_VARINT_MAX)
/* The most any record needs in `data`. */
#define CODE_DATA_MAX DJ_CODE_MAX

/* Start of every record; the caller has checked that steps do not go back. */
static inline uint8_t *dj_record_code_start(uint8_t *p, struct dj_code_state *s, unsigned kind,
					    uint64_t steps, uint64_t rep, unsigned ordinal)
{
	uint64_t delta = steps - s->steps;

	*p++ = (uint8_t)(kind | (rep ? CODE_REP : 0) | (ordinal ? CODE_ORDINAL : 0) |
			 (delta ? 0 : CODE_SAME_STEP));
	if (delta)
		p = dj_put_varint(p, delta);
	if (rep)
		p = dj_put_varint(p, rep);
	if (ordinal)
		*p++ = (uint8_t)ordinal;
	s->steps = steps;
	return p;
}

/* The rest of an IMPORT's head. */
static inline uint8_t *dj_record_code_line(uint8_t *p, struct dj_code_state *s, uint64_t addr)
{
	p = dj_put_varint(p, dj_zigzag((int64_t)(addr - s->addr) / DJ_LINE));
	s->addr = addr;
	return p;
}

/* From here on the first `length` of the process's facts hold. */
static inline uint8_t *dj_record_code_facts(uint8_t *p, struct dj_code_state *s, uint64_t steps,
					    uint64_t facts)
{
	p = dj_record_code_start(p, s, CODE_FACTS, steps, 0, 0);
	return dj_put_varint(p, facts);
}

/* Code any record of a thread's stream. `head` has CODE_HEAD_MAX bytes of room, `data`
 * CODE_DATA_MAX; both are advanced. */
void dj_record_code(const struct dj_record *rec, struct dj_code_state *s, uint8_t **head,
		    uint8_t **data);
/* The same for a fact, in the stream of a process; `thread` is the number of a stream. */
void dj_fact_code(const struct dj_record *rec, uint32_t thread, uint8_t **head, uint8_t **data);

/*
 * Decode one record; it borrows from both areas. False if the bytes are not a record. The kind may
 * also be CODE_FACTS (the number is in `length`), or DJ_REC_KINDS and above: something to pass
 * over.
 */
bool dj_record_decode(struct dj_record *rec, struct dj_code_state *s, struct dj_in *head,
		      struct dj_in *data);
/* The same in the stream of a process. `thread` and `subject` are numbers of streams (-1: none). */
bool dj_fact_decode(struct dj_record *rec, struct dj_in *head, struct dj_in *data);

#endif
