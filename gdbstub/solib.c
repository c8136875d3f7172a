/*
 * Shared libraries, out of replayed memory.
 *
 * The list of libraries is the dynamic linker's own: auxiliary vector -> program headers ->
 * dynamic section -> DT_DEBUG -> struct r_debug -> struct link_map (glibc's <link.h>; ELF gABI,
 * "Dynamic Linking"). Before the linker has set it up the list is empty, and since it is read
 * afresh from memory at each position it is right both ways. A library's name is that of the
 * module mapped at its dynamic section, under which the trace keeps its file: the linker's name
 * may be a symbolic link. (The program's name for the linker itself vfile.c finds, too.)
 *
 * Nothing read from memory is trusted: the recorded program may have overwritten all of it.
 */
#include "format/text.h"
#include "gdbstub/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AUX_PHDR = 3, AUX_PHENT = 4, AUX_PHNUM = 5, AUX_BASE = 7 };
enum { PHDR_DYNAMIC = 2, PHDR_INTERP = 3, PHDR_PHDR = 6, TAG_DEBUG = 21 };

#define MAX_LIBRARIES  4096
#define MAX_NAMESPACES 32
#define MAX_DYNAMIC    4096

static uint64_t le64(const uint8_t *p)
{
	uint64_t x = 0;
	for (int i = 7; i >= 0; i--)
		x = x << 8 | p[i];
	return x;
}

static bool read_words(struct stub_session *s, uint64_t addr, uint64_t *words, size_t n)
{
	uint8_t buf[8 * 8];
	if (n > 8 || replay_read(s->r, addr, buf, 8 * n) < 8 * n)
		return false;
	for (size_t i = 0; i < n; i++)
		words[i] = le64(buf + 8 * i);
	return true;
}

static bool read_string(struct stub_session *s, uint64_t addr, char *out, size_t size)
{
	size_t n = replay_read(s->r, addr, out, size - 1);
	out[n] = '\0';
	return strlen(out) < n;
}

static uint64_t aux_value(struct stub_session *s, uint64_t type)
{
	const struct stub_session_image *image = stub_session_image(s);
	for (size_t i = 0; i + 16 <= image->auxv_len; i += 16)
		if (le64(image->auxv + i) == type)
			return le64(image->auxv + i + 8);
	return 0;
}

static const char *module_path(struct stub_session *s, uint64_t addr)
{
	struct replay_mapping m;
	struct dj_trace *t = replay_trace(s->r);
	if (replay_mapping_at(s->r, addr, &m) && m.module >= 0 &&
	    (size_t)m.module < dj_trace_modules(t))
		return dj_trace_module(t, (size_t)m.module)->path;
	return NULL;
}

/* ---- libraries --------------------------------------------------------------------------------
 */

/* Where the program has what its header of this type is for; 0 if it has none. */
static uint64_t program_part(struct stub_session *s, uint32_t type)
{
	uint64_t phdr = aux_value(s, AUX_PHDR), phnum = aux_value(s, AUX_PHNUM);
	uint64_t bias = 0, at = 0;
	uint64_t ph[7]; /* Elf64_Phdr: type+flags, offset, vaddr, paddr, filesz, memsz, align */
	if (!phdr || phnum > 256 || aux_value(s, AUX_PHENT) != sizeof(ph))
		return 0;
	for (uint64_t i = 0; i < phnum; i++) {
		if (!read_words(s, phdr + i * sizeof(ph), ph, 7))
			return 0;
		if ((uint32_t)ph[0] == PHDR_PHDR)
			bias = phdr - ph[2];
		if ((uint32_t)ph[0] == type)
			at = ph[2];
	}
	return at ? at + bias : 0;
}

/* Where the program's dynamic section has the address of struct r_debug; 0 if nowhere. */
static uint64_t find_debug_entry(struct stub_session *s)
{
	uint64_t dynamic = program_part(s, PHDR_DYNAMIC);
	if (!dynamic)
		return 0;
	uint64_t pair[2];
	for (unsigned i = 0; i < MAX_DYNAMIC; i++) {
		if (!read_words(s, dynamic + 16 * i, pair, 2) || pair[0] == 0)
			return 0;
		if (pair[0] == TAG_DEBUG)
			return dynamic + 16 * i + 8;
	}
	return 0;
}

/* The address of struct r_debug, or 0. */
static uint64_t find_r_debug(struct stub_session *s)
{
	uint64_t at = find_debug_entry(s), debug;
	return at && read_words(s, at, &debug, 1) ? debug : 0;
}

/* lldb wants to know where the address of struct r_debug is, or else takes the list's main-lm for
 * that (ProcessGDBRemote::GetImageInfoAddress of lldb 14), and finds no libraries there. */
bool stub_handle_shlib_info(struct stub_session *s, struct stub_scan *a)
{
	uint64_t at = find_debug_entry(s);
	if (a->p != a->end || !at)
		return stub_reply_error(s, 1);
	stub_textbuf_printf(&s->reply, "%llx", (unsigned long long)at);
	return true;
}

/*
 * gdb (13, for one) dies when the library goes away that a `catch throw` is in. Its location keeps
 * a pointer to a probe, which is freed with the library's symbols, and unlike those of breakpoints
 * it is not taken out first (disable_breakpoints_in_unloaded_shlib in gdb/breakpoint.c). With
 * history running backwards libraries go away all the time. So this one, once gdb has heard of it,
 * stays in the list of its image.
 */
static bool must_stay(const char *path)
{
	const char *slash = strrchr(path, '/');
	return strncmp(slash ? slash + 1 : path, "libstdc++.so", strlen("libstdc++.so")) == 0;
}

static void keep(struct stub_session *s, const char *entry, size_t len)
{
	char *copy = strndup(entry, len);
	if (!copy)
		return;
	free(s->kept_library);
	s->kept_library = copy;
	s->kept_image = stub_session_image(s);
}

/* Whether it is one that must stay. */
static bool put_library(struct stub_session *s, struct stub_textbuf *b, const uint64_t *lm,
			uint64_t addr, uint64_t space)
{
	char name[1024];
	const char *path = module_path(s, lm[2]);
	/* the dynamic linker keeps the program's name for it, by which gdb knows it already */
	if (!path || lm[0] == aux_value(s, AUX_BASE)) {
		if (!read_string(s, lm[1], name, sizeof(name)) || !*name)
			return false;
		path = name;
	}
	size_t before = b->len;
	stub_textbuf_str(b, "<library name=\"");
	stub_textbuf_xml(b, path);
	stub_textbuf_printf(
		b, "\" lm=\"0x%llx\" l_addr=\"0x%llx\" l_ld=\"0x%llx\" lmid=\"0x%llx\"/>\n",
		(unsigned long long)addr, (unsigned long long)lm[0], (unsigned long long)lm[2],
		(unsigned long long)space);
	if (!must_stay(path) || b->failed)
		return false;
	keep(s, b->p + before, b->len - before);
	return true;
}

/* The dynamic linker, where the kernel put it, while it has not put itself into its list. gdb finds
 * it by itself when a program starts, but not when it comes back there. */
static void put_linker(struct stub_session *s, struct stub_textbuf *b)
{
	uint64_t base = aux_value(s, AUX_BASE);
	uint64_t phoff, count, ph[7], dynamic = 0;
	uint64_t interp = program_part(s, PHDR_INTERP); /* the name by which gdb knows it */
	char path[1024];
	/* e_phoff and, in the word at 56, e_phnum of the ELF header */
	if (!base || !interp || !read_string(s, interp, path, sizeof(path)) || !*path ||
	    !read_words(s, base + 32, &phoff, 1) || !read_words(s, base + 56, &count, 1))
		return;
	for (uint64_t i = 0; i < (count & 0xff); i++)
		if (read_words(s, base + phoff + i * sizeof(ph), ph, 7) &&
		    (uint32_t)ph[0] == PHDR_DYNAMIC)
			dynamic = base + ph[2];
	stub_textbuf_str(b, "<library name=\"");
	stub_textbuf_xml(b, path);
	stub_textbuf_printf(b, "\" lm=\"0x0\" l_addr=\"0x%llx\" l_ld=\"0x%llx\" lmid=\"0x0\"/>\n",
			    (unsigned long long)base, (unsigned long long)dynamic);
}

void stub_put_library_list(struct stub_session *s, struct stub_textbuf *b)
{
	struct stub_textbuf list = { 0 };
	uint64_t debug = find_r_debug(s), main_lm = 0;
	uint64_t base = aux_value(s, AUX_BASE);
	unsigned left = MAX_LIBRARIES;
	bool linker = false; /* is in it */
	bool kept_there = false;
	for (unsigned space = 0; debug && space < MAX_NAMESPACES; space++) {
		uint64_t d[6];	/* version, map, brk, state, ldbase; from version 2 on: next */
		uint64_t lm[4]; /* addr, name, ld, next */
		if (!read_words(s, debug, d, 5))
			break;
		uint64_t addr = d[1];
		for (bool first = space == 0; addr && left && read_words(s, addr, lm, 4); left--) {
			if (first) /* the program itself */
				main_lm = addr;
			else
				kept_there |= put_library(s, &list, lm, addr, debug);
			linker |= lm[0] == base;
			first = false;
			addr = lm[3];
		}
		if ((uint32_t)d[0] < 2 || !read_words(s, debug + 40, &debug, 1))
			break;
	}
	if (!linker)
		put_linker(s, &list);
	if (!kept_there && s->kept_library && s->kept_image == stub_session_image(s))
		stub_textbuf_str(&list, s->kept_library);
	stub_textbuf_str(b, "<library-list-svr4 version=\"1.0\"");
	if (main_lm)
		stub_textbuf_printf(b, " main-lm=\"0x%llx\"", (unsigned long long)main_lm);
	stub_textbuf_str(b, ">\n");
	stub_textbuf_bytes(b, list.p, list.len);
	stub_textbuf_str(b, "</library-list-svr4>\n");
	b->failed |= list.failed;
	stub_textbuf_free(&list);
}
