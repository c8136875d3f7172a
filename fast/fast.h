/*
 * Translated replay: a thread's program code executed on its shadow by generated machine code, at
 * nearly the speed it had. The emulator (emu/) is the reference; this does the same where it can
 * and leaves the rest to it.
 *
 * An engine belongs to one emulator: it works on its registers and its shadow, and between two
 * calls all state is the emulator's. doc/replay-code.md says what the generated code is like, and
 * why it cannot reach anything but the shadow.
 */
#ifndef DEJA_FAST_FAST_H
#define DEJA_FAST_FAST_H

#include "emu/emu.h"

struct fast;

/* Whether this host can execute code of a processor of that kind. */
bool fast_possible(enum dj_cpu_kind kind);

/* An engine for the emulator; NULL if it cannot be had. The emulator hears of it only by
 * e->forgotten. */
struct fast *fast_new(struct emu *e);
void fast_free(struct fast *f);

/* Whether nobody wants to be told of or asked about what the emulator executes, so that fast_run()
 * can stand for emu_run(). */
bool fast_fits(const struct fast *f);

/*
 * Notes, for who wants to know what the program has met. From now on generated code notes which
 * bytes of the shadow it reads and writes, in two tables with a byte for each; what it executes it
 * tells the emulator's `ran`. What the emulator executes calls its hooks as ever: EMU_HOOK_TRACK
 * may be on. Right after fast_new(); false if it cannot be: one engine of a process can have them.
 */
bool fast_note_begin(struct fast *f);
/* They may be made by instructions of AVX-512, if the host has them; false only in tests. */
extern bool fast_note_by_avx512;
/* The bases of gs and fs are set by wrgsbase and wrfsbase, if programs may execute them here; false
 * only in tests: then the kernel is asked as elsewhere. */
extern bool fast_base_by_program;
/* The tables have a page for each of the shadow, and for some more, where accesses at its end end.
 * A page is there once something was noted on it; to look at one that is not makes it be there. */
#define FAST_NOTE_TABLE ((1ULL << 32) + 65536)
#define FAST_NOTE_PAGE	4096u
#define FAST_NOTE_PAGES (FAST_NOTE_TABLE / FAST_NOTE_PAGE)
#define FAST_NOTE_FIRST                                                                            \
	65536u /* the first byte of the table of bytes written that can ever be there */
/* Where the byte for `index` is. */
uint8_t *fast_note_byte(const struct fast *f, bool wrote, uint64_t index);
/* Which pages from `from` up to `to`, excluded, are there: these bits are set in there[] of the
 * page's number, and nothing is cleared. */
#define FAST_NOTE_FOUND 1u
#define FAST_NOTE_WROTE 2u
void fast_note_there(const struct fast *f, uint64_t from, uint64_t to, unsigned char *there);
/* Nothing is noted on those that do not have one of these bits in there[]: give back their memory.
 */
void fast_note_drop(const struct fast *f, const unsigned char *there, unsigned char bits);
/* Nothing is noted any more. */
void fast_note_forget(const struct fast *f);
/*
 * Notes have 32 bits of an address. Where that is not enough generated code can look, before each
 * access, whether its page of the shadow and the two beside it belong to that address now. If one
 * does not `met` is called, which is to give it the page, and answers whether it was somebody
 * else's; the emulator makes the access. False: there is no memory. Not before fast_note_begin(),
 * and for ever. All pages belong to nobody then.
 */
bool fast_whose_begin(struct fast *f, bool (*met)(void *ctx, uint64_t addr), void *ctx);
/* That page of the shadow, from 0 to 2^20 - 1, belongs to addresses with this upper half. */
void fast_whose_set(const struct fast *f, uint64_t page, uint32_t upper);
/* It belongs to nobody; none does. */
void fast_whose_none(const struct fast *f, uint64_t page);
void fast_whose_clear(const struct fast *f);
/* Tell `ran` what ran since it was last asked. */
void fast_note_ran(struct fast *f);

/* As emu_run(), EMU_STOP_STEPS also on the way, after FAST_GO instructions at the latest: each may
 * touch a page of the shadow that was not touched before, and somebody has to look at how many
 * there are. On the way flags are only those that the program may still read. */
#define FAST_GO (1u << 16)
enum emu_stop fast_run(struct fast *f, uint64_t until);

/* Whoever has called fast_run() does something else now, perhaps for long: the thread is as it was
 * before. */
void fast_rest(struct fast *f);

/* The generated code has raised an exception that the program had not raised, or the like: memory
 * and registers are worth nothing. What it was is in e->why. */
bool fast_broken(const struct fast *f);

/* Instructions executed by generated code. */
uint64_t fast_steps(const struct fast *f);

#endif
