/* Places that hold a value (analyses/origin.h): as words, and what they hold at a moment. */
#include "analyses/origin.h"
#include "analyses/variable.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static const char *const gprs[16] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
				      "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15" };

void ana_origin_place_text(const struct origin_place *p, char *buf, size_t size)
{
	switch (p->kind) {
	case ORIGIN_MEMORY:
		snprintf(buf, size, "%#" PRIx64 ":%" PRIu64, p->addr, p->size);
		break;
	case ORIGIN_GPR:
		snprintf(buf, size, "%s", gprs[p->reg & 15]);
		break;
	case ORIGIN_VECTOR:
		snprintf(buf, size, "%cmm%u", p->off < 16 ? 'x' : 'y', p->reg);
		break;
	case ORIGIN_X87:
		snprintf(buf, size, "st%u", p->reg);
		break;
	case ORIGIN_FLAGS:
		snprintf(buf, size, "flags");
	}
}

/* A register's bytes, as they would lie in memory; how many. */
static size_t register_bytes(const struct origin_place *p, const struct dj_regs *regs, uint8_t *b)
{
	switch (p->kind) {
	case ORIGIN_GPR:
		for (unsigned i = 0; i < 8; i++)
			b[i] = (uint8_t)(regs->gpr[p->reg & 15] >> 8 * i);
		return 8;
	case ORIGIN_VECTOR:
		memcpy(b, regs->ymm[p->reg & 15], 32);
		return 32;
	case ORIGIN_X87:
		for (unsigned i = 0; i < 8; i++)
			b[i] = (uint8_t)(regs->st_mant[p->reg & 7] >> 8 * i);
		b[8] = (uint8_t)regs->st_exp[p->reg & 7];
		b[9] = (uint8_t)(regs->st_exp[p->reg & 7] >> 8);
		return 10;
	default:
		return 0;
	}
}

struct origin_value ana_origin_value_of(const uint8_t *b, uint64_t size)
{
	struct origin_value v = { .known = size && size <= 16 };

	for (uint64_t i = 0; v.known && i < size; i++)
		if (i < 8)
			v.low |= (uint64_t)b[i] << 8 * i;
		else
			v.high |= (uint64_t)b[i] << 8 * (i - 8);
	return v;
}

struct origin_value ana_origin_value(struct origin *o, const struct origin_place *p)
{
	struct origin_value unknown = { .known = false };
	struct dj_regs regs;
	uint8_t b[32];

	if (p->size > 16)
		return unknown;
	if (p->kind == ORIGIN_MEMORY)
		return replay_read(o->r, p->addr, b, (size_t)p->size) == p->size
			       ? ana_origin_value_of(b, p->size)
			       : unknown;
	replay_regs(o->r, &regs);
	size_t n = register_bytes(p, &regs, b);
	if (p->off >= n)
		return unknown;
	return ana_origin_value_of(b + p->off, p->size < n - p->off ? p->size : n - p->off);
}

bool ana_origin_same(const struct origin_value *a, const struct origin_value *b)
{
	return a->known && b->known && a->low == b->low && a->high == b->high;
}

void ana_origin_value_text(const struct origin_value *v, char *buf, size_t size)
{
	if (v->high)
		snprintf(buf, size, "%#" PRIx64 "%016" PRIx64, v->high, v->low);
	else
		snprintf(buf, size, "%#" PRIx64, v->low);
}

/* ---- what was asked for ---- */

static bool parse_register(const char *word, struct origin_place *p)
{
	unsigned n;
	char rest;

	word += *word == '$';
	for (unsigned i = 0; i < 16; i++)
		if (!strcmp(word, gprs[i])) {
			*p = (struct origin_place){ .kind = ORIGIN_GPR, .reg = i, .size = 8 };
			return true;
		}
	if (sscanf(word, "xmm%u%c", &n, &rest) == 1 && n < 16) {
		*p = (struct origin_place){ .kind = ORIGIN_VECTOR, .reg = n, .size = 8 };
		return true;
	}
	if (sscanf(word, "st%u%c", &n, &rest) == 1 && n < 8) {
		*p = (struct origin_place){ .kind = ORIGIN_X87, .reg = n, .size = 10 };
		return true;
	}
	return false;
}

int ana_origin_parse_place(struct origin *o, const char *word, struct dj_error *err)
{
	struct ana_place_ranges ranges = { 0 };

	if (parse_register(word, &o->place))
		return 0;
	int n = ana_place_ranges_add(o->job, &ranges, word, err);
	if (n > 0)
		o->place =
			(struct origin_place){ .kind = ORIGIN_MEMORY,
					       .addr = ranges.r[0].start,
					       .size = ranges.r[0].last - ranges.r[0].start + 1 };
	for (size_t i = 0; n > 0 && i < ranges.n; i++)
		if (ranges.r[i].process == dj_trace_thread(o->job->t, o->pos.thread)->process)
			o->place.addr = ranges.r[i].start;
	/* an address alone is that of a word */
	if (n > 0 && isdigit((unsigned char)word[0]) && o->place.size == 1 && !strchr(word, ':'))
		o->place.size = 8;
	ana_place_ranges_free(&ranges);
	if (!n)
		return dj_fail(err, 1, "no register, address or variable: %s", word);
	return n < 0 ? -1 : 0;
}
