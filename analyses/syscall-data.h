/* What arguments of system calls point to, as text (analyses/syscall-data.c). */
#ifndef DEJA_ANALYSES_SYSCALL_DATA_H
#define DEJA_ANALYSES_SYSCALL_DATA_H

#include "replayer/replay.h"

#include <stdio.h>

void ana_data_pointer(uint64_t at, FILE *f);
/* The little-endian number of `size` bytes; false if the recording does not have it. */
bool ana_data_number(struct replay *r, uint64_t at, unsigned size, uint64_t *value);
void ana_data_string(struct replay *r, uint64_t at, FILE *f);
void ana_data_bytes(struct replay *r, uint64_t at, uint64_t len, FILE *f);

/* Arrays of strings: all of them; how many there are. */
void ana_data_strings(struct replay *r, uint64_t at, FILE *f);
void ana_data_environment(struct replay *r, uint64_t at, FILE *f);
/* Addresses of sockets, `len` bytes of one or as many as the word at `length` says. */
void ana_data_address(struct replay *r, uint64_t at, uint32_t len, FILE *f);
void ana_data_address_out(struct replay *r, uint64_t at, uint64_t length, FILE *f);
/* Buffers in an array, of which `total` bytes count; those of a message. */
void ana_data_iovec(struct replay *r, uint64_t at, uint64_t count, uint64_t total, FILE *f);
void ana_data_message(struct replay *r, uint64_t at, uint64_t total, FILE *f);
void ana_data_poll(struct replay *r, uint64_t at, uint64_t count, FILE *f);
/* The structure that a letter stands for; false if it stands for none. */
bool ana_data_struct(struct replay *r, uint64_t at, char letter, FILE *f);

#endif
