/*
 * Runs a fuzz target without libFuzzer: over files, or over mutations of them.
 *
 *   fuzz-X [--mutate N] [--seed S] [--only N] [FILE|DIRECTORY...]
 *
 * Every file is given to the target as it is; then N mutations, each made out of a file
 * by a generator that depends on S and the mutation's number alone, so that --only repeats
 * one of them. Without files the target's own corpus is used, and some mutations are made:
 * that is what `make check` does. What was being run is said when the target crashes or
 * takes longer than TIME_LIMIT.
 */
#include "fuzz/fuzz.h"
#include "tests/lib/random.h"

#include <dirent.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef FUZZ_CORPUS
#define FUZZ_CORPUS "corpus"
#endif
#ifndef CHECK_MUTATIONS
#define CHECK_MUTATIONS 4000
#endif
#define TIME_LIMIT 30
#define GROWTH_MAX 4096 /* bytes that mutations may add */

struct input {
	char *path;
	uint8_t *bytes;
	size_t len;
};

static struct input *inputs;
static size_t ninputs;
static char running[400]; /* what the target is being given */

/* ---- reporting a crash ---------------------------------------------------------------- */

static void say_running(void)
{
	static const char what[] = "\nfuzz: while running ";

	if (write(2, what, sizeof(what) - 1) < 0 || write(2, running, strlen(running)) < 0 ||
	    write(2, "\n", 1) < 0)
		return;
}

static void on_signal(int signo)
{
	say_running();
	signal(signo, SIG_DFL);
	raise(signo);
}

/* Of the sanitizers' runtime, if that is linked in. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void watch_crashes(void)
{
	static const int fatal[] = { SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV };

	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(say_running);
	for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
		if (!__sanitizer_set_death_callback || fatal[i] == SIGALRM)
			signal(fatal[i], on_signal);
}

static void run(const uint8_t *bytes, size_t len)
{
	/* of exactly this size, so that a sanitizer sees a read past the end */
	uint8_t *exact = malloc(len ? len : 1);

	if (!exact)
		abort();
	if (len)
		memcpy(exact, bytes, len);
	alarm(TIME_LIMIT);
	LLVMFuzzerTestOneInput(exact, len);
	alarm(0);
	free(exact);
}

/* ---- inputs -------------------------------------------------------------------------- */

static bool add_file(const char *path)
{
	struct stat st;
	FILE *f = fopen(path, "rb");
	struct input *in;

	if (!f || fstat(fileno(f), &st)) {
		fprintf(stderr, "fuzz: cannot read %s\n", path);
		return false;
	}
	inputs = realloc(inputs, (ninputs + 1) * sizeof(*inputs));
	in = &inputs[ninputs++];
	in->path = strdup(path);
	in->bytes = malloc((size_t)st.st_size + 1);
	in->len = fread(in->bytes, 1, (size_t)st.st_size, f);
	fclose(f);
	return true;
}

static int visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

/* A file, or a directory's files by name. */
static bool add_path(const char *path)
{
	struct dirent **list;
	int n = scandir(path, &list, visible, alphasort);
	bool good = true;

	if (n < 0)
		return add_file(path);
	for (int i = 0; i < n; i++) {
		char file[4096];

		snprintf(file, sizeof(file), "%s/%s", path, list[i]->d_name);
		good &= add_file(file);
		free(list[i]);
	}
	free(list);
	return good;
}

/* ---- mutations ------------------------------------------------------------------------ */

static size_t below(uint64_t *state, size_t n)
{
	return n ? (size_t)(random_next(state) % n) : 0;
}

/* clang-format off */
static const uint64_t odd_numbers[] = {
	0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0xffff, 0x10000, 0xffffff, 0x1000000,
	0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, INT64_MAX, (uint64_t)INT64_MAX + 1,
	UINT64_MAX - 63, UINT64_MAX,
};
/* clang-format on */
#define ODD_NUMBERS (sizeof(odd_numbers) / sizeof(odd_numbers[0]))

/* Change `bytes` a little; there is room for GROWTH_MAX more than the input had. */
static size_t mutate(uint8_t *bytes, size_t len, size_t room, uint64_t *rng)
{
	const struct input *other = &inputs[below(rng, ninputs)];
	size_t at = below(rng, len), n = 1 + below(rng, below(rng, 2) ? 8 : 300);
	size_t from = below(rng, len), left = len - at;
	uint64_t number =
		odd_numbers[below(rng, ODD_NUMBERS)] + (below(rng, 3) ? 0 : below(rng, 9));

	if (!len)
		return 0;
	n = n < left ? n : left;
	switch (below(rng, 9)) {
	case 0: /* one bit */
		bytes[at] ^= (uint8_t)(1 << below(rng, 8));
		return len;
	case 1: /* one byte */
		bytes[at] = (uint8_t)random_next(rng);
		return len;
	case 2: /* a number of 1, 2, 4 or 8 bytes, little-endian */
		for (size_t i = 0; i < left && i < (size_t)1 << below(rng, 4); i++)
			bytes[at + i] = (uint8_t)(number >> 8 * i);
		return len;
	case 3: /* add to a byte */
		bytes[at] += (uint8_t)(below(rng, 9) - 4);
		return len;
	case 4: /* take out */
		memmove(bytes + at, bytes + at + n, left - n);
		return len - n;
	case 5: /* copy within */
		n = n < len - from ? n : len - from;
		memmove(bytes + at, bytes + from, n);
		return len;
	case 6: /* insert a copy of what is there */
		if (len + n > room)
			return len;
		memmove(bytes + at + n, bytes + at, left);
		return len + n;
	case 7: /* a piece of another input */
		from = below(rng, other->len);
		n = n < other->len - from ? n : other->len - from;
		memcpy(bytes + at, other->bytes + from, n < left ? n : left);
		return len;
	default: /* cut, rarely: it loses much */
		return below(rng, 4) ? len : at;
	}
}

static void run_mutation(uint64_t seed, uint64_t number)
{
	uint64_t rng = seed * 0x100000001b3ull + number;
	const struct input *in = &inputs[below(&rng, ninputs)];
	size_t room = in->len + GROWTH_MAX, len = in->len;
	uint8_t *bytes = malloc(room);

	if (!bytes)
		abort();
	memcpy(bytes, in->bytes, len);
	for (size_t n = 1 + below(&rng, 6); n > 0; n--)
		len = mutate(bytes, len, room, &rng);
	snprintf(running, sizeof(running), "%s --seed %llu --only %llu", in->path,
		 (unsigned long long)seed, (unsigned long long)number);
	run(bytes, len);
	free(bytes);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "mutate", required_argument, NULL, 'm' },
		{ "seed", required_argument, NULL, 's' },
		{ "only", required_argument, NULL, 'o' },
		{ 0 },
	};
	uint64_t seed = 1, first = 0, mutations = argc == 1 ? CHECK_MUTATIONS : 0;
	bool good = true, only = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return 2;
		if (c == 'm')
			mutations = strtoull(optarg, NULL, 0);
		else if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else
			only = true, first = strtoull(optarg, NULL, 0), mutations = 1;
	}
	if (optind == argc) {
		const char *srcdir = getenv("srcdir");
		char corpus[4096];

		snprintf(corpus, sizeof(corpus), "%s/%s", srcdir ? srcdir : ".", FUZZ_CORPUS);
		good &= add_path(corpus);
	}
	for (; optind < argc; optind++)
		good &= add_path(argv[optind]);
	if (!ninputs) {
		fprintf(stderr, "fuzz: no inputs\n");
		return 2;
	}
	watch_crashes();
	for (size_t i = 0; i < ninputs && !only; i++) {
		snprintf(running, sizeof(running), "%s", inputs[i].path);
		run(inputs[i].bytes, inputs[i].len);
	}
	for (uint64_t n = first; n < first + mutations; n++)
		run_mutation(seed, n);
	printf("fuzz: %zu inputs, %llu mutations with seed %llu\n", only ? 0 : ninputs,
	       (unsigned long long)mutations, (unsigned long long)seed);
	for (size_t i = 0; i < ninputs; i++) {
		free(inputs[i].path);
		free(inputs[i].bytes);
	}
	free(inputs);
	return good ? 0 : 2;
}
