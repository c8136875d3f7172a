/*
 * What is mapped where in an address space, as MAP, UNMAP and PROTECT records change it. The
 * recorder keeps this for the program it records and the replayer for the moment it stands at;
 * both must come to the same.
 *
 * It is a balanced tree, so that every question and every change takes time that grows with the
 * logarithm of the number of mappings. Its nodes are never changed while they are shared, but
 * copied along the path to the change: a copy of the whole costs nothing until then, and
 * checkpoints keep one each.
 */
#ifndef DEJA_FORMAT_MAPPINGS_H
#define DEJA_FORMAT_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* mmap(2) flags and protections as the x86-64 kernel numbers them (asm-generic/mman-common.h): the
 * host that replays may number them otherwise. */
#define DJ_PROT_WRITE	 0x2u
#define DJ_PROT_EXEC	 0x4u
#define DJ_MAP_SHARED	 0x01u
#define DJ_MAP_TYPE	 0x0fu
#define DJ_MAP_ANONYMOUS 0x20u
#define DJ_MAP_GROWSDOWN 0x0100u

struct dj_mapping {
	uint64_t start, end; /* end 0 would mean 2^64: never made */
	uint64_t offset;     /* of start within the file */
	uint32_t prot, flags;
	int32_t module;	  /* -1: none */
	bool initial;	  /* made at the start of the image: the snapshot speaks of it */
	bool moved;	  /* contents came from elsewhere (mremap): nothing to fall back on */
	bool sure;	  /* the recorder's: it is no other file that was taken for the module */
	const char *name; /* "" if none; lives as long as the mapping */
	/* In a history whose beginning is missing: made before that; and writable then or later, so
	 * that nobody knows what was written there. */
	bool early, lost;
};

struct dj_mappings {
	struct dj_mapping_node *root; /* NULL: nothing is mapped */
};

/* `to`, which holds nothing, becomes what `from` is; either can be changed then. */
void dj_mappings_copy(struct dj_mappings *to, const struct dj_mappings *from);
/* Nothing is mapped. */
void dj_mappings_clear(struct dj_mappings *m);
size_t dj_mappings_count(const struct dj_mappings *m);

/* The mapping that holds addr, or NULL. What these return is valid until the next change. */
const struct dj_mapping *dj_mappings_find(const struct dj_mappings *m, uint64_t addr);
/* The first that ends after addr, and the last that begins before it; of those that have one of
 * the bits `prot` if that is not 0. NULL: there is none. */
const struct dj_mapping *dj_mappings_after(const struct dj_mappings *m, uint64_t addr,
					   uint32_t prot);
const struct dj_mapping *dj_mappings_before(const struct dj_mappings *m, uint64_t addr,
					    uint32_t prot);

/* Changes. Ranges are whole pages, not empty and without overflow. Mappings that are cut keep
 * their offsets right; those that touch and are one in every respect are joined. */
void dj_mappings_put(struct dj_mappings *m, const struct dj_mapping *what);
void dj_mappings_remove(struct dj_mappings *m, uint64_t start, uint64_t end);
void dj_mappings_protect(struct dj_mappings *m, uint64_t start, uint64_t end, uint32_t prot);

#endif
