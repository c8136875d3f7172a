/*
 * The ELF images that are mapped at the moment: which module an address belongs to, how far it was
 * moved when it was loaded, where its unwind table is.
 *
 * Headers come from the modules in the trace, or (the vdso, which has no file) from memory. Either
 * may be made to harm: what is found is only ever used as an address to read from.
 */
#ifndef DEJA_ANALYSES_IMAGE_H
#define DEJA_ANALYSES_IMAGE_H

#include "replayer/replay.h"

/* The image that an address belongs to. */
struct ana_image {
	int32_t module; /* its number in the trace, or -1: it is no module */
	uint64_t bias;	/* what was added to the addresses in the file */
	uint64_t start; /* of the mapping that has its headers */
	char name[64];	/* of what is no module: "[vdso]" */
};
bool ana_image_at(struct replay *r, uint64_t addr, struct ana_image *image);

/* The table of .eh_frame_hdr (LSB Core, "The .eh_frame_hdr Section"), binary search form. */
struct ana_unwind_table {
	uint64_t start, end; /* of the code it is for: the executable mapping around the address */
	uint64_t header;     /* address of .eh_frame_hdr */
	uint64_t entries;    /* address of its table: pairs of 4 bytes */
	uint64_t count;
};
bool ana_image_unwind_table(struct replay *r, uint64_t addr, struct ana_unwind_table *table);

/* As replay_read(), but what lies in a part of a module that nobody can write is taken from the
 * module, which is quicker. */
size_t ana_image_read(struct replay *r, uint64_t addr, void *buf, size_t len);

#endif
