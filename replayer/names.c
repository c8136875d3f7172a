/*
 * Names of mappings, each kept once: see space.h.
 *
 * They are for people. So a trace that brings more of them than any program has (they pack well)
 * is replayed all the same, and its mappings from there on have none.
 */
#include "replayer/space.h"
#include "format/scatter.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_BYTES_MAX (32u << 20)
#define LOOKED_FOR	64u

/* Where the text is, or where there is room for it. There is a free place. */
static char **place_of(char **table, size_t size, const char *text)
{
	size_t i = dj_scatter(dj_scatter_text(text), size);

	while (table[i] && strcmp(table[i], text) != 0)
		i = (i + 1) & (size - 1);
	return &table[i];
}

/* Room for one more, with half of the table free. */
static bool reserve(struct rp_space_names *names)
{
	size_t cap = names->cap ? 2 * names->cap : 64;
	char **table;

	if (2 * (names->n + 1) <= names->cap)
		return true;
	table = calloc(cap, sizeof(*table));
	if (!table)
		return false;
	for (size_t i = 0; i < names->cap; i++)
		if (names->text[i])
			*place_of(table, cap, names->text[i]) = names->text[i];
	free(names->text);
	names->text = table;
	names->cap = cap;
	return true;
}

const char *rp_space_intern(struct rp_space_names *names, const char *text)
{
	char **place;
	size_t len;

	if (!text || !*text || !reserve(names))
		return "";
	/* when there is no more room, only names that say what a mapping is are looked for */
	if (names->full && strnlen(text, LOOKED_FOR) == LOOKED_FOR)
		return "";
	place = place_of(names->text, names->cap, text);
	if (*place)
		return *place;
	len = strlen(text) + 1;
	names->full = names->bytes + len > NAMES_BYTES_MAX;
	if (names->full || !(*place = strdup(text)))
		return "";
	names->bytes += len;
	names->n++;
	return *place;
}

void rp_space_names_free(struct rp_space_names *names)
{
	for (size_t i = 0; i < names->cap; i++)
		free(names->text[i]);
	free(names->text);
	*names = (struct rp_space_names){ 0 };
}
