/*
 * Names of code made at run time, out of the map files that programs write for perf
 * (/tmp/perf-PID.map; Linux: tools/perf/Documentation/jit-interface.txt), which recordings keep
 * among their modules. A line is "START SIZE NAME", numbers in hexadecimal. Code may be replaced:
 * of lines about one place the last counts.
 */
#ifndef DEJA_ANALYSES_PERFMAP_H
#define DEJA_ANALYSES_PERFMAP_H

#include "format/trace.h"

struct ana_perf_entry {
	uint64_t start, size;
	const char *name;
};

struct ana_perf_map;
/* Those of a process, by its number in the trace; NULL if it has written none. */
struct ana_perf_map *ana_perf_map_new(struct dj_trace *t, uint32_t process);
void ana_perf_map_free(struct ana_perf_map *m);
/* By start, none inside another. */
const struct ana_perf_entry *ana_perf_map_entries(const struct ana_perf_map *m, size_t *n);
/* The one that has this address, or NULL. */
const struct ana_perf_entry *ana_perf_map_at(const struct ana_perf_map *m, uint64_t addr);

#endif
