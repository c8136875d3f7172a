/* Fuzz target: as fuzz-replay.c, with several threads and processes in the trace. */
#define FUZZ_STREAMS 1
#include "fuzz/fuzz-replay.c"
