/*
 * Thread-local variables: where a thread's copy of a module's block is (qGetTLSAddr).
 *
 * The C library's dynamic thread vector says it ("ELF Handling For Thread-Local Storage",
 * section 3.4.6, variant II): the thread pointer is fs base, the vector is what the word 8 bytes
 * above points to, and its entry number m, of 16 bytes, begins with the address of module m's
 * block. A module is named by its link map, in which the number is at an offset that glibc
 * keeps for libthread_db in a variable; the debugger tells where that is (qSymbol).
 */
#include "gdbstub/session.h"

#include <string.h>

/* glibc, nptl_db/db_info.c: three words of 32 bits: size in bits, elements, offset */
static const char modid_symbol[] = "_thread_db_link_map_l_tls_modid";

#define DTV_POINTER	8 /* from the thread pointer */
#define DTV_ENTRY	16
#define DTV_UNALLOCATED ~0ULL
#define MODULES_MAX	65536
#define LINK_MAP_MAX	65536

static bool read_word(struct stub_session *s, uint64_t addr, unsigned size, uint64_t *out)
{
	uint8_t bytes[8];

	if (replay_read(s->r, addr, bytes, size) < size)
		return false;
	*out = 0;
	while (size-- > 0)
		*out = *out << 8 | bytes[size];
	return true;
}

/* qSymbol::, the offer to look symbols up, or qSymbol:VALUE:NAME, one that was. */
bool stub_handle_symbol(struct stub_session *s, struct stub_scan *a)
{
	uint64_t value;

	if (stub_scan_char(a, ':')) {
		if (a->p != a->end)
			return stub_reply_ok(s); /* not known (yet) */
		stub_textbuf_str(&s->reply, "qSymbol:");
		stub_textbuf_hex(&s->reply, modid_symbol, strlen(modid_symbol));
		return true;
	}
	if (stub_scan_hex(a, &value) && stub_scan_char(a, ':'))
		s->tls_modid_at = value;
	return stub_reply_ok(s);
}

/* The module's number in the vector, 0 if it is not known. */
static uint64_t module_number(struct stub_session *s, uint64_t link_map)
{
	uint64_t bits, offset, number;

	if (!link_map)
		return 1; /* a static program */
	if (!s->tls_modid_at || !read_word(s, s->tls_modid_at, 4, &bits) || bits != 64 ||
	    !read_word(s, s->tls_modid_at + 8, 4, &offset) || offset > LINK_MAP_MAX ||
	    !read_word(s, link_map + offset, 8, &number) || number > MODULES_MAX)
		return 0;
	return number;
}

/* Where the selected thread's block of the module with this link map is; 0 if it has none. */
static uint64_t block_of(struct stub_session *s, uint64_t link_map)
{
	uint64_t number = module_number(s, link_map), dtv, block;
	struct dj_regs regs;

	replay_regs(s->r, &regs);
	if (!number || !regs.fs_base || !read_word(s, regs.fs_base + DTV_POINTER, 8, &dtv) ||
	    !dtv || !read_word(s, dtv + DTV_ENTRY * number, 8, &block) || block == DTV_UNALLOCATED)
		return 0;
	return block;
}

/* THREAD,OFFSET,LINKMAP */
bool stub_handle_tls_address(struct stub_session *s, struct stub_scan *a)
{
	uint64_t offset, link_map, block;
	int32_t pid, tid;
	struct replay_thread t, selected;
	struct dj_error err;

	if (!stub_scan_thread_id(a, &pid, &tid) || !stub_scan_char(a, ',') ||
	    !stub_scan_hex(a, &offset) || !stub_scan_char(a, ',') || !stub_scan_hex(a, &link_map) ||
	    tid <= 0 || !stub_session_thread(s, pid, tid, &t))
		return stub_reply_error(s, 1);
	replay_thread(s->r, &selected);
	if (replay_select(s->r, t.number, &err))
		return stub_reply_error_text(s, "%s", err.text);
	block = block_of(s, link_map);
	replay_select(s->r, selected.number, &err);
	if (!block)
		return stub_reply_error_text(s, "the thread has no such variable yet");
	stub_textbuf_printf(&s->reply, "%llx", (unsigned long long)(block + offset));
	return true;
}
