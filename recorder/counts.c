/*
 * What a recording's time went into: stops by cause and what the translator did, counted over all
 * threads and address spaces. It goes into the trace, for `deja info`. And a warning, once, when a
 * program executes a great many instructions one at a time.
 */
#include "recorder/recorder.h"

#include <stdio.h>

static const char *const names[REC_COUNTS] = {
	[REC_COUNT_LINK] = "stops: code not yet translated",
	[REC_COUNT_INDIRECT] = "stops: target of an indirect branch",
	[REC_COUNT_ASKED] = "times code was made without a stop",
	[REC_COUNT_SYSCALL] = "stops: system call",
	[REC_COUNT_NATIVE] = "stops: instruction executed natively",
	[REC_COUNT_CHANGED] = "stops: code that changed unheard",
	[REC_COUNT_FACTS] = "stops: code new to the thread",
	[REC_COUNT_RING] = "stops: ring full",
	[REC_COUNT_ORDER] = "stops: place that another thread has",
	[REC_COUNT_CLOCK] = "stops: clock",
	[REC_COUNT_GATHER] = "stops: brought out for another thread",
	[REC_COUNT_SIGNAL] = "stops: signal or fault",
	[REC_COUNT_TRAP_CALLS] = "times SIGTRAP's handler was put back",
	[REC_COUNT_FORGOTTEN] = "changes of code that was known",
	[REC_COUNT_ARENAS] = "arenas",
	[REC_COUNT_FRAGMENTS] = "fragments made",
	[REC_COUNT_KEPT] = "fragments made once more",
	[REC_COUNT_BESIDE] = "of these while the program went on",
	[REC_COUNT_HEIRS] = "images that began with the code of one before",
	[REC_COUNT_HEIRS_FORKED] = "forked children that did",
	[REC_COUNT_ESTATES] = "images that began with an earlier recording's",
	[REC_COUNT_RETIRED] = "fragments given up",
	[REC_COUNT_INSNS] = "instructions translated",
	[REC_COUNT_BYTES] = "bytes of code made",
	[REC_COUNT_FLUSHES] = "times everything was given up",
	[REC_COUNT_CLEARS] = "crowded places of indirect targets",
	[REC_COUNT_KEYFRAMES] = "keyframes",
	[REC_COUNT_FULL_KEYFRAMES] = "of these full",
};

void rec_count(struct rec_thread *t, enum rec_count what)
{
	t->rec->counts[what]++;
}

void rec_count_translator(struct rec_process *proc)
{
	uint64_t *n = proc->rec->counts, at, size;
	struct tr_stats st;
	if (!proc->tr)
		return;
	tr_stats(proc->tr, &st);
	for (unsigned i = 0; tr_arena(proc->tr, i, &at, &size); i++)
		n[REC_COUNT_ARENAS]++;
	n[REC_COUNT_FRAGMENTS] += st.fragments;
	n[REC_COUNT_KEPT] += st.kept;
	n[REC_COUNT_RETIRED] += st.retired;
	n[REC_COUNT_INSNS] += st.instructions;
	n[REC_COUNT_BYTES] += st.code_bytes;
	n[REC_COUNT_FLUSHES] += st.flushes;
	n[REC_COUNT_CLEARS] += st.clears;
}

int rec_counts_write(struct rec_recording *rec, struct dj_error *err)
{
	struct dj_trace_count counts[REC_COUNTS];
	for (struct rec_process *p = rec->processes; p; p = p->next)
		if (!p->child)
			rec_count_translator(p);
	for (unsigned i = 0; i < REC_COUNTS; i++) {
		snprintf(counts[i].name, sizeof(counts[i].name), "%s", names[i]);
		counts[i].value = rec->counts[i];
	}
	return dj_writer_counts(rec->writer, counts, REC_COUNTS, err);
}

/* So many of one kind take a second or so. */
#define MANY 10000

void rec_count_native(struct rec_recording *rec, const struct insn *in)
{
	bool evex = in->vex == 4 || in->id == INSN_EVEX;
	rec->evex += evex;
	if (!evex || rec->evex != MANY)
		return;
	fprintf(stderr,
		"deja: %s executes AVX-512 instructions although CPUID shows it none; each takes a "
		"stop, which makes them very slow (`deja info` says where they are)\n",
		rec->argv[0]);
}
