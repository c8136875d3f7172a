/*
 * Just enough JSON output: objects and arrays with the commas in the right places.
 */
#ifndef DEJA_CLI_JSON_H
#define DEJA_CLI_JSON_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

struct json {
	FILE *f;
	unsigned depth;
	bool more; /* something stands before this on the same level */
};

/* Open and close with '{' '}' or '[' ']'. `key` is NULL inside an array. */
void json_open(struct json *j, const char *key, char bracket);
void json_close(struct json *j, char bracket);

void json_string(struct json *j, const char *key, const char *value); /* NULL: null */
void json_u64(struct json *j, const char *key, uint64_t value);
void json_i64(struct json *j, const char *key, int64_t value);
void json_double(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);

#endif
