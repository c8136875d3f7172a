/* Where there is no translated replay, the emulator does it all. */
#include "fast/fast.h"

bool fast_possible(enum dj_cpu_kind kind)
{
	(void)kind;
	return false;
}

struct fast *fast_new(struct emu *e)
{
	(void)e;
	return NULL;
}

void fast_free(struct fast *f)
{
	(void)f;
}

bool fast_fits(const struct fast *f)
{
	(void)f;
	return false;
}

void fast_rest(struct fast *f)
{
	(void)f;
}

bool fast_note_begin(struct fast *f)
{
	(void)f;
	return false;
}

uint8_t *fast_note_byte(const struct fast *f, bool wrote, uint64_t index)
{
	(void)f;
	(void)wrote;
	(void)index;
	return NULL;
}

void fast_note_there(const struct fast *f, uint64_t from, uint64_t to, unsigned char *there)
{
	(void)f;
	(void)from;
	(void)to;
	(void)there;
}

void fast_note_drop(const struct fast *f, const unsigned char *there, unsigned char bits)
{
	(void)f;
	(void)there;
	(void)bits;
}

void fast_note_forget(const struct fast *f)
{
	(void)f;
}

bool fast_whose_begin(struct fast *f, bool (*met)(void *ctx, uint64_t addr), void *ctx)
{
	(void)f;
	(void)met;
	(void)ctx;
	return false;
}

void fast_whose_set(const struct fast *f, uint64_t page, uint32_t upper)
{
	(void)f;
	(void)page;
	(void)upper;
}

void fast_whose_none(const struct fast *f, uint64_t page)
{
	(void)f;
	(void)page;
}

void fast_whose_clear(const struct fast *f)
{
	(void)f;
}

void fast_note_ran(struct fast *f)
{
	(void)f;
}

enum emu_stop fast_run(struct fast *f, uint64_t until)
{
	(void)f;
	(void)until;
	return EMU_STOP_UNKNOWN;
}

bool fast_broken(const struct fast *f)
{
	(void)f;
	return false;
}

uint64_t fast_steps(const struct fast *f)
{
	(void)f;
	return 0;
}
