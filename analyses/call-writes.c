/* What system calls wrote to memory (analyses/call-writes.h), by the table of format/calls.h. */
#include "analyses/call-writes.h"

#include "format/calls.h"

#include <string.h>

struct telling {
	const struct replay_run *run;
	void (*wrote)(void *ctx, uint64_t addr, uint64_t length);
	void *ctx;
};

uint64_t ana_number_at(const struct replay_run *run, uint64_t addr, unsigned size)
{
	uint8_t b[8];
	uint64_t v = 0;

	replay_run_peek(run, addr, b, size);
	for (unsigned i = size; i-- > 0;)
		v = v << 8 | b[i];
	return v;
}

static bool number(void *ctx, uint64_t at, unsigned size, uint64_t *value)
{
	*value = ana_number_at(((const struct telling *)ctx)->run, at, size);
	return true;
}

static void wrote(void *ctx, uint64_t addr, uint64_t length)
{
	const struct telling *t = ctx;

	t->wrote(t->ctx, addr, length);
}

void ana_call_wrote(const struct replay_run *run, const struct replay_event *e,
		    void (*tell)(void *ctx, uint64_t addr, uint64_t length), void *ctx)
{
	struct telling t = { run, tell, ctx };
	struct dj_call call = { .nr = e->number, .result = e->result };
	const struct dj_call_reader reader = { .ctx = &t, .number = number, .wrote = wrote };

	if (e->kind != REPLAY_EV_SYSCALL || dj_call_failed(e->result))
		return;
	memcpy(call.arg, e->args, sizeof(call.arg));
	dj_call_writes(&call, &reader);
}
