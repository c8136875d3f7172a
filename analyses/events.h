/*
 * What happened between the program and the kernel, in the order of positions: system calls,
 * signals, modules that were mapped, threads that began and ended, images that were replaced.
 */
#ifndef DEJA_ANALYSES_EVENTS_H
#define DEJA_ANALYSES_EVENTS_H

#include "analyses/places.h"

enum ana_event_kind {
	ANA_EVENT_CALL,
	ANA_EVENT_SIGNAL,
	ANA_EVENT_MODULE,
	ANA_EVENT_THREAD, /* it began */
	ANA_EVENT_EXIT,	  /* it ended */
	ANA_EVENT_KINDS
};
const char *ana_event_kind_name(enum ana_event_kind kind);
/* Whether an event can have this name, or this kind. */
bool ana_event_is_name(const char *name);

struct ana_event {
	enum ana_event_kind kind;
	struct replay_pos pos; /* before the call, the signal's delivery */
	char *text;	       /* as strace(1) has it; names of modules are as in the trace */
	const char *name;      /* CALL: "openat"; SIGNAL: "SIGSEGV"; MODULE: its path */
	bool returned;	       /* CALL */
	uint64_t result;
	/* If it is known: when the thread came there, and how long it stayed, in microseconds. */
	bool timed;
	uint64_t us, stayed;
};

/* Tell of all events in a part of the history. -1 with err; 1 if it was interrupted; `tell` may
 * return false to end it. */
int ana_events(struct replay *r, const struct ana_part *part,
	       bool (*tell)(void *ctx, const struct ana_event *e), void *ctx, struct dj_error *err);

#endif
