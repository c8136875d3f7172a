/*
 * What is mapped where in the recorded process, and which bytes its code has: built up
 * from MAP, UNMAP, PROTECT, CODE and EXEC records as a replay passes them.
 *
 * A space is shared by reference and copied when it is changed while shared, so that a
 * checkpoint keeps the one that was current for the price of a pointer.
 */
#ifndef DEJA_REPLAYER_SPACE_H
#define DEJA_REPLAYER_SPACE_H

#include "format/mappings.h"
#include "format/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODE_PAGE 4096u

/* Code that differs from what is mapped: one page's worth, with a bit per known byte. */
struct rp_space_code {
	uint64_t page; /* address / CODE_PAGE */
	unsigned refs;
	uint8_t data[CODE_PAGE];
	uint64_t known[CODE_PAGE / 64];
};

struct rp_space {
	unsigned refs;
	uint64_t image_steps; /* position of the image's start: 0 or of the latest exec */
	uint64_t image_seq;   /* number of the last ordered event there, once anything was mapped */
	size_t process;	      /* index in the trace */
	uint32_t image;	      /* of the process: 0, or as the latest exec says */
	struct dj_mappings maps;
	size_t ncode, code_cap;
	struct rp_space_code **code; /* by page */
};

/* Strings that live as long as the table: names.c. */
struct rp_space_names {
	size_t n, cap;
	char **text; /* a hash table with `cap` places */
	uint64_t bytes;
	bool full;
};
/* The text in there; "" if that would be too much. */
const char *rp_space_intern(struct rp_space_names *names, const char *text);
void rp_space_names_free(struct rp_space_names *names);

/* An empty space with one reference; NULL if memory cannot be had. */
struct rp_space *rp_space_new(void);
struct rp_space *rp_space_ref(struct rp_space *s);
void rp_space_unref(struct rp_space *s);

/* Changes. `*s` is replaced by a private copy first if others hold it too. Return -1 with
 * err on senseless ranges. */
int rp_space_map(struct rp_space **s, const struct dj_mapping *m, struct dj_error *err);
int rp_space_unmap(struct rp_space **s, uint64_t addr, uint64_t length, struct dj_error *err);
int rp_space_protect(struct rp_space **s, uint64_t addr, uint64_t length, uint32_t prot,
		     struct dj_error *err);
int rp_space_code(struct rp_space **s, uint64_t addr, const uint8_t *bytes, size_t length,
		  struct dj_error *err);
/* exec at `steps`: nothing is mapped. */
int rp_space_clear(struct rp_space **s, uint64_t steps, struct dj_error *err);

struct rp_space_code *rp_space_code_ref(struct rp_space_code *c);
void rp_space_code_unref(struct rp_space_code *c);
/* Index of the first page of code at or after `page`. */
size_t rp_space_code_at(const struct rp_space *s, uint64_t page);

/* The mapping that holds addr, or NULL. */
const struct dj_mapping *rp_space_find(const struct rp_space *s, uint64_t addr);

/* Copy code bytes from addr on: what CODE records say, else the module file, else the
 * snapshot. Returns how many are known, contiguous. */
size_t rp_space_fetch(const struct rp_space *s, struct dj_trace *t, uint64_t addr, uint8_t *buf,
		      size_t len);

/*
 * What a byte range holds by its mapping alone, for memory nobody touched: the snapshot where
 * the mapping is as the image started, the module file, zeros in anonymous memory mapped
 * later. Returns how many bytes from addr on are known, contiguous.
 */
size_t rp_space_contents(const struct rp_space *s, struct dj_trace *t, uint64_t addr, uint8_t *buf,
			 size_t len);

#endif
