/*
 * Where a value came from, in parts: what a thread executed last (origin-window.c), who wrote
 * memory and registers last (origin-search.c, origin-register.c), what an instruction made a value
 * of (origin-step.c, origin-x87.c), and the way back through these (origin.c).
 */
#ifndef DEJA_ANALYSES_ORIGIN_H
#define DEJA_ANALYSES_ORIGIN_H

#include "analyses/analysis.h"
#include "analyses/channels.h"
#include "analyses/heaplog.h"

/* What holds the value: `size` bytes at `addr`, or from byte `off` on of a register; the flags. */
enum origin_kind { ORIGIN_MEMORY, ORIGIN_GPR, ORIGIN_VECTOR, ORIGIN_X87, ORIGIN_FLAGS };
struct origin_place {
	enum origin_kind kind;
	unsigned reg, off;
	uint64_t addr, size;
	uint32_t flags;
};

/* What it holds, as a number; not known, or too long. */
struct origin_value {
	bool known;
	uint64_t low, high;
};

/* ---- what a thread executed ---- */
enum origin_step_kind { ORIGIN_INSN, ORIGIN_CALL, ORIGIN_NATIVE, ORIGIN_SIGNAL, ORIGIN_EXEC };
struct origin_step {
	const struct insn *in; /* of a signal and of an exec NULL */
	uint64_t steps;
	uint32_t access; /* index of its first */
	uint8_t kind;
};
struct origin_access {
	uint64_t addr, size;
	bool write;
};
struct origin_window {
	uint32_t thread;
	struct origin_step *steps;
	struct origin_access *accesses;
	size_t n, cap, n_accesses, cap_accesses;
	struct insn **insns; /* by address */
	bool failed;
};
/* What the thread executed, `length` instructions of it, the last of them after `last` steps. */
int ana_origin_window_fill(struct origin_window *w, struct ana_job *job, uint32_t thread,
			   uint64_t last, uint64_t length, struct dj_error *err);
void ana_origin_window_free(struct origin_window *w);
/* What an event is as a step: false if it is none. */
bool ana_origin_event_step(struct replay_run *run, const struct replay_event *e, struct insn *in,
			   struct origin_step *step);
/* The accesses of a step: how many. */
size_t ana_origin_window_accesses(const struct origin_window *w, size_t i,
				  const struct origin_access **first);

/* ---- who wrote last ---- */
/* Of a register, before so many steps of the thread: 1, with `steps` before the instruction, and
 * the place as it is called behind that. 0: nobody; -1 with err. */
int ana_origin_register(struct ana_job *job, uint32_t thread, struct origin_place *place,
			uint64_t *steps, struct dj_error *err);

struct origin_write {
	bool found, call; /* call: a system call did */
	bool alike;	  /* it wrote the bytes that were given */
	bool exec;	  /* what was before belonged to another program */
	struct replay_pos pos;
	uint64_t first, length; /* what of the place it wrote */
	uint64_t elsewhere; /* to be added to an address, where the writer has it (another process)
			     */
};
/* The last write of any byte there before a position, in any thread of the process. If `bytes` are
 * given (of the whole place), one that wrote these is preferred: of what threads do at the same
 * time the order of positions tells nothing. */
int ana_origin_search(struct ana_job *job, uint32_t process, uint64_t addr, uint64_t size,
		      const uint8_t *bytes, const struct replay_pos *before,
		      struct origin_write *out, struct dj_error *err);
/* The last return at which the thread's stack pointer was above an address, between two of its
 * positions: what lies there belonged to a call that is over. False if there is none. */
bool ana_origin_left(struct ana_job *job, const struct replay_pos *from,
		     const struct replay_pos *to, uint64_t addr, struct replay_pos *at);

/* ---- what an instruction made it of ---- */
#define ORIGIN_SOURCES 6
struct origin_sources {
	struct origin_place s[ORIGIN_SOURCES];
	unsigned n;
	bool copy;	   /* the value is that of s[0] */
	bool unsure;	   /* a copy: or it was left as it was */
	bool elsewhere;	   /* it did not touch this part of the register */
	const char *final; /* what made it, if there is nothing behind */
};
/* Whether the step writes (a part of) the place, which is no memory. */
bool ana_origin_defines(const struct origin_step *step, const struct origin_place *place);
/* `regs` are those before it. If `unsure` the value tells whether it is the source's. */
void ana_origin_sources(const struct origin_window *w, size_t i, const struct origin_place *place,
			const struct dj_regs *regs, struct origin_sources *out);
/* Whether a condition holds (SDM vol. 1, appendix B). */
bool ana_origin_holds(unsigned cond, uint64_t flags);

/* x87 (origin-x87.c). A register behind the step becomes what it was called before it. */
void ana_origin_x87_before(const struct origin_step *step, struct origin_place *place);
bool ana_origin_x87_defines(const struct origin_step *step, const struct origin_place *place);
/* `mem`: what it read of memory, or NULL. */
void ana_origin_x87_sources(const struct insn *in, const struct origin_place *place,
			    const struct origin_access *mem, const struct dj_regs *regs,
			    struct origin_sources *out);
/* Of what it stores in memory; false: it stores none of these registers. */
bool ana_origin_x87_stores(const struct insn *in, struct origin_sources *out);

/* ---- the way back ---- */
#define ORIGIN_PARTS 32
struct origin {
	struct ana_job *job;
	struct replay *r;
	uint64_t limit;
	struct origin_window w;
	struct origin_place place;
	struct replay_pos pos; /* before this the place was made what it is */
	struct ana_heaplog heap;
	struct ana_table *t;
	bool last;
	/* other bytes of a value that several wrote, and where they were seen; the code that has
	 * been told of for the same value: what one loop has written is one answer */
	struct {
		struct origin_place place;
		struct replay_pos pos;
	} parts[ORIGIN_PARTS];
	unsigned n_parts, n_told;
	uint64_t told[ORIGIN_PARTS];
	bool is_part;
	struct ana_channels *channels; /* once they were needed */
};
/* Places (origin-place.c): as text, and their values where the replay stands. */
void ana_origin_place_text(const struct origin_place *p, char *buf, size_t size);
struct origin_value ana_origin_value(struct origin *o, const struct origin_place *p);
struct origin_value ana_origin_value_of(const uint8_t *bytes, uint64_t size);
bool ana_origin_same(const struct origin_value *a, const struct origin_value *b);
void ana_origin_value_text(const struct origin_value *v, char *buf, size_t size);
/* What somebody names: o->place. */
int ana_origin_parse_place(struct origin *o, const char *word, struct dj_error *err);

/* Stand at so many steps of the thread, with `o->pos` there. */
int ana_origin_stand(struct origin *o, uint32_t thread, uint64_t steps, struct dj_error *err);

/* Beyond the thread and its process (origin-beyond.c). The call that made the thread, with its
 * process if it is the first of that; false if nobody in the recording did. */
bool ana_origin_maker(struct origin *o, uint32_t thread, struct replay_pos *at);
/* If the memory is shared with other processes: `bytes` becomes what the thread finds there when it
 * next looks (before that nobody knows), and `*write` who wrote that last, in whichever process. */
int ana_origin_shared(struct origin *o, uint8_t *bytes, bool has_bytes, struct origin_write *write,
		      struct dj_error *err);
/* Behind a system call at o->pos that wrote o->place: another call of the recording that it had
 * this from. 1: go on with o->place and o->pos there, said in `how`; `size` may be less than that
 * of the place, then the rest came from elsewhere. 0: none; -1 with err. */
int ana_origin_through(struct origin *o, const uint8_t *bytes, char *how, size_t size,
		       struct dj_error *err);

/* What is to be said of memory (origin-memory.c); the replay stands where it was read. Whether it
 * held nothing of the program's making, since `write` is from before the memory was this: what it
 * is, and the position at which it became this. */
bool ana_origin_stale(struct origin *o, const struct origin_write *write, char *how, size_t size,
		      struct replay_pos *since);
/* That it was freed before, if it was. */
void ana_origin_freed_text(struct origin *o, char *how, size_t size);
/* Where the contents of memory come from that nobody has written. */
void ana_origin_unwritten_text(struct origin *o, char *how, size_t size);
/* The decoded call that the thread makes at the moment, behind what there is. Moves the replay. */
void ana_origin_call_text(struct origin *o, char *how, size_t size);

#endif
