/* The ELF images that are mapped at the moment (analyses/image.h). */
#include "analyses/image.h"

#include <elf.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_HEADERS 64

static const uint8_t *module_bytes(struct replay *r, int32_t module, size_t *size)
{
	struct dj_trace *t = replay_trace(r);
	struct dj_error err = { 0 };

	if (module < 0 || (size_t)module >= dj_trace_modules(t))
		return NULL;
	return dj_trace_module_bytes(t, (size_t)module, size, &err);
}

size_t ana_image_read(struct replay *r, uint64_t addr, void *buf, size_t len)
{
	struct replay_mapping here;
	const struct replay_mapping *m = replay_mapping_at(r, addr, &here) ? &here : NULL;
	size_t size = 0;
	const uint8_t *bytes =
		m && !(m->prot & PROT_WRITE) ? module_bytes(r, m->module, &size) : NULL;
	uint64_t at = bytes ? addr - m->start + m->offset : 0;

	if (bytes && m->end - addr >= len && at <= size && size - at >= len) {
		memcpy(buf, bytes + at, len);
		return len;
	}
	return replay_read(r, addr, buf, len);
}

/* Bytes of the image's file (or, without one, of memory at its start). */
static bool file_bytes(struct replay *r, const struct ana_image *image, uint64_t off, void *out,
		       size_t len)
{
	size_t size = 0;
	const uint8_t *bytes = module_bytes(r, image->module, &size);

	if (bytes) {
		if (off > size || size - off < len)
			return false;
		memcpy(out, bytes + off, len);
		return true;
	}
	return image->module < 0 && replay_read(r, image->start + off, out, len) == len;
}

/* The program headers; how many. */
static size_t headers(struct replay *r, const struct ana_image *image, Elf64_Phdr *out)
{
	Elf64_Ehdr eh;

	if (!file_bytes(r, image, 0, &eh, sizeof(eh)) || memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_ident[EI_DATA] != ELFDATA2LSB ||
	    le16toh(eh.e_phentsize) != sizeof(Elf64_Phdr))
		return 0;
	size_t n = le16toh(eh.e_phnum) < MAX_HEADERS ? le16toh(eh.e_phnum) : MAX_HEADERS;
	if (!file_bytes(r, image, le64toh(eh.e_phoff), out, n * sizeof(*out)))
		return 0;
	for (size_t i = 0; i < n; i++) {
		out[i].p_type = le32toh(out[i].p_type);
		out[i].p_flags = le32toh(out[i].p_flags);
		out[i].p_offset = le64toh(out[i].p_offset);
		out[i].p_vaddr = le64toh(out[i].p_vaddr);
		out[i].p_filesz = le64toh(out[i].p_filesz);
	}
	return n;
}

bool ana_image_at(struct replay *r, uint64_t addr, struct ana_image *image)
{
	struct replay_mapping here;
	const struct replay_mapping *m = replay_mapping_at(r, addr, &here) ? &here : NULL;
	Elf64_Phdr ph[MAX_HEADERS];

	if (!m || (m->module < 0 && strcmp(m->name, "[vdso]") != 0))
		return false;
	memset(image, 0, sizeof(*image));
	image->module = m->module;
	image->start = m->start;
	snprintf(image->name, sizeof(image->name), "%s", m->module < 0 ? m->name : "");
	size_t n = headers(r, image, ph);
	uint64_t off = m->offset;
	for (size_t i = 0; i < n; i++) {
		if (ph[i].p_type != PT_LOAD)
			continue;
		/* pages of the segment: the mapping is of some of them */
		uint64_t begin = ph[i].p_offset & -4096ULL;
		if (image->module < 0 || (off >= begin && off < ph[i].p_offset + ph[i].p_filesz &&
					  !(m->prot & PROT_EXEC) == !(ph[i].p_flags & PF_X))) {
			image->bias = m->start - off + ph[i].p_offset - ph[i].p_vaddr;
			return true;
		}
	}
	return false;
}

bool ana_image_unwind_table(struct replay *r, uint64_t addr, struct ana_unwind_table *table)
{
	struct replay_mapping here;
	const struct replay_mapping *m = replay_mapping_at(r, addr, &here) ? &here : NULL;
	struct ana_image image;
	Elf64_Phdr ph[MAX_HEADERS];
	uint8_t h[12];

	if (!m || !ana_image_at(r, addr, &image))
		return false;
	size_t n = headers(r, &image, ph), i = 0;
	while (i < n && ph[i].p_type != PT_GNU_EH_FRAME)
		i++;
	if (i == n)
		return false;
	table->start = m->start;
	table->end = m->end;
	table->header = image.bias + ph[i].p_vaddr;
	table->entries = table->header + sizeof(h);
	/* version 1; the pointer to .eh_frame relative to here, 4 bytes signed (0x1b); the count
	 * 4 bytes (0x03); the table relative to the header, 4 bytes signed (0x3b): what GNU ld,
	 * gold and lld write */
	if (ana_image_read(r, table->header, h, sizeof(h)) < sizeof(h) || h[0] != 1 ||
	    h[1] != 0x1b || h[2] != 0x03 || h[3] != 0x3b)
		return false;
	table->count = h[8] | (uint64_t)h[9] << 8 | (uint64_t)h[10] << 16 | (uint64_t)h[11] << 24;
	return table->count > 0;
}
