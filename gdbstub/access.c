/*
 * Memory: reading, writing (which makes a throw-away copy, see scratch.c), searching, checksums.
 * What the replay does not know is an error, and a reply stops before it.
 */
#include "gdbstub/session.h"

#include <stdlib.h>
#include <string.h>

#define EFAULT_REPLY 14

static bool scan_range(struct stub_scan *a, uint64_t *addr, uint64_t *len)
{
	return stub_scan_hex(a, addr) && stub_scan_char(a, ',') && stub_scan_hex(a, len);
}

static bool writable(struct stub_session *s, uint64_t addr)
{
	const struct replay_mapping *maps;
	size_t n = replay_mappings(s->r, &maps);

	for (size_t i = 0; i < n && maps[i].start <= addr; i++)
		if (addr < maps[i].end)
			return maps[i].prot & 2;
	return false;
}

/* For a core file, which has whole mappings or nothing of them: zeros for what is not known. */
static size_t read_blank(struct stub_session *s, uint64_t addr, uint64_t len, uint8_t *buf,
			 size_t n)
{
	while (n < len && writable(s, addr + n)) {
		size_t line = 64 - (addr + n) % 64, rest = len - n;

		if (line > rest)
			line = rest;
		memset(buf + n, 0, line);
		for (size_t i = 0; i < line; i++)
			s->blanks += !replay_read(s->r, addr + n + i, buf + n + i, 1);
		n += line;
		n += replay_read(s->r, addr + n, buf + n, len - n);
	}
	return n;
}

/* Read up to SESSION_CHUNK bytes into a buffer of that size. */
static size_t read_chunk(struct stub_session *s, uint64_t addr, uint64_t len, uint8_t *buf)
{
	if (len > SESSION_CHUNK)
		len = SESSION_CHUNK;
	if (addr + len < addr)
		len = -addr;
	size_t n = replay_read(s->r, addr, buf, len);
	return s->blank ? read_blank(s, addr, len, buf, n) : n;
}

/* The bytes that "ADDR,LEN" asks for, as many as are known: NULL if it is malformed or none is; the
 * reply is an error then. */
static const uint8_t *read_asked(struct stub_session *s, struct stub_scan *a, size_t *n)
{
	static uint8_t buf[SESSION_CHUNK];
	uint64_t addr, len;

	if (!scan_range(a, &addr, &len) || a->p != a->end) {
		stub_reply_error(s, 1);
		return NULL;
	}
	*n = read_chunk(s, addr, len, buf);
	if (*n == 0 && len > 0) {
		stub_reply_error(s, EFAULT_REPLY);
		return NULL;
	}
	return buf;
}

bool stub_handle_mem_read(struct stub_session *s, struct stub_scan *a)
{
	size_t n;
	const uint8_t *bytes = read_asked(s, a, &n);

	if (bytes)
		stub_textbuf_hex(&s->reply, bytes, n);
	return true;
}

bool stub_handle_mem_read_binary(struct stub_session *s, struct stub_scan *a)
{
	size_t n;
	const uint8_t *bytes = read_asked(s, a, &n);

	if (bytes) {
		stub_textbuf_char(&s->reply, 'b');
		stub_textbuf_binary(&s->reply, bytes, n, LINK_PACKET_MAX);
	}
	return true;
}

static bool write_memory(struct stub_session *s, struct stub_scan *a,
			 long (*decode)(struct stub_scan *, void *, size_t))
{
	uint64_t addr, len;
	struct dj_error err;
	if (!scan_range(a, &addr, &len) || !stub_scan_char(a, ':') || len > LINK_PACKET_MAX)
		return stub_reply_error(s, 1);
	uint8_t *buf = malloc(len + 1);
	if (!buf)
		return stub_reply_error(s, 12);
	bool sent;
	if (decode(a, buf, len) != (long)len || a->p != a->end)
		sent = stub_reply_error(s, 1);
	else if (len && stub_scratch_write(s, addr, buf, len, &err) != 0)
		sent = stub_reply_error_text(s, "%s", err.text);
	else
		sent = stub_reply_ok(s); /* of no bytes: gdb asks whether X is supported */
	free(buf);
	return sent;
}

bool stub_handle_mem_write(struct stub_session *s, struct stub_scan *a)
{
	return write_memory(s, a, stub_scan_hexbytes);
}

bool stub_handle_mem_write_binary(struct stub_session *s, struct stub_scan *a)
{
	return write_memory(s, a, stub_scan_binary);
}

/* Where a search or checksum over a huge range looks up from its work for an interrupt. */
static bool interrupted(struct stub_session *s)
{
	return s->link && stub_link_poll_interrupt(s->link);
}

/* qSearch:memory:ADDR;LEN;PATTERN. Unknown memory ends the search. */
bool stub_handle_mem_search(struct stub_session *s, struct stub_scan *a)
{
	enum { WINDOW = 2 * SESSION_CHUNK };
	static uint8_t buf[WINDOW], pattern[SESSION_CHUNK];
	uint64_t addr, len;
	if (!stub_scan_hex(a, &addr) || !stub_scan_char(a, ';') || !stub_scan_hex(a, &len) ||
	    !stub_scan_char(a, ';'))
		return stub_reply_error(s, 1);
	long plen = stub_scan_binary(a, pattern, sizeof(pattern));
	if (plen <= 0)
		return stub_reply_error(s, 1);
	if (addr + len < addr)
		len = -addr;
	while (len >= (uint64_t)plen) {
		size_t want = len < WINDOW ? len : WINDOW;
		size_t n = replay_read(s->r, addr, buf, want);
		const uint8_t *hit = memmem(buf, n, pattern, (size_t)plen);
		if (hit) {
			stub_textbuf_printf(&s->reply, "1,%llx",
					    (unsigned long long)(addr + (uint64_t)(hit - buf)));
			return true;
		}
		if (n < want)
			return n == 0 ? stub_reply_error(s, EFAULT_REPLY)
				      : (stub_textbuf_char(&s->reply, '0'), true);
		if (interrupted(s))
			return stub_reply_error(s, 4);
		if (want == len)
			break;
		size_t step = want - (size_t)plen + 1; /* a match may straddle windows */
		addr += step;
		len -= step;
	}
	stub_textbuf_char(&s->reply, '0');
	return true;
}

/* qCRC:ADDR,LEN: the CRC-32 of gdb's compare-sections, polynomial 0x04c11db7, most significant
 * bit first, starting from all ones. */
bool stub_handle_mem_crc(struct stub_session *s, struct stub_scan *a)
{
	static uint8_t buf[SESSION_CHUNK];
	uint64_t addr, len;
	uint32_t crc = 0xffffffff;
	if (!scan_range(a, &addr, &len))
		return stub_reply_error(s, 1);
	while (len > 0) {
		size_t want = len < SESSION_CHUNK ? len : SESSION_CHUNK;
		if (read_chunk(s, addr, want, buf) < want)
			return stub_reply_error(s, EFAULT_REPLY);
		for (size_t i = 0; i < want; i++) {
			crc ^= (uint32_t)buf[i] << 24;
			for (int bit = 0; bit < 8; bit++)
				crc = crc << 1 ^ (crc >> 31 ? 0x04c11db7 : 0);
		}
		if (interrupted(s))
			return stub_reply_error(s, 4);
		addr += want;
		len -= want;
	}
	stub_textbuf_printf(&s->reply, "C%x", crc);
	return true;
}
