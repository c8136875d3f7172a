/*
 * Which bytes a space holds by its mappings and its code alone: see space.h.
 */
#include "replayer/space.h"

#include <string.h>

/* Bytes of mapping m at addr as the module file has them. What the last page holds beyond the
 * end of the file is zero; pages beyond that cannot be read by anybody. */
static size_t from_module(const struct dj_mapping *m, struct dj_trace *t, uint64_t addr,
			  uint8_t *buf, size_t len)
{
	size_t size;
	const uint8_t *file;
	uint64_t off = m->offset + (addr - m->start);

	if (m->module < 0 || (size_t)m->module >= dj_trace_modules(t) || off < m->offset)
		return 0;
	file = dj_trace_module_bytes(t, (size_t)m->module, &size, NULL);
	if (!file)
		return 0;
	uint64_t whole = ((uint64_t)size + CODE_PAGE - 1) & ~(uint64_t)(CODE_PAGE - 1);
	if (off >= whole)
		return 0;
	if (len > whole - off)
		len = (size_t)(whole - off);
	size_t have = off < size ? size - (size_t)off : 0;
	if (have > len)
		have = len;
	if (have)
		memcpy(buf, file + off, have);
	memset(buf + have, 0, len - have);
	return len;
}

static bool anonymous_private(const struct dj_mapping *m)
{
	return m->module < 0 && (m->flags & DJ_MAP_TYPE) != DJ_MAP_SHARED;
}

/* The part of [addr, addr+len) that lies in one mapping, by the mapping alone; zeros in fresh
 * memory only if asked for. (If not, it is about code: what of that was written is recorded.) */
static size_t map_contents(const struct rp_space *s, const struct dj_mapping *m, struct dj_trace *t,
			   uint64_t addr, uint8_t *buf, size_t len, bool zeros)
{
	size_t n = 0;

	if (m->moved || (m->lost && zeros))
		return 0;
	if (m->initial) {
		n = dj_trace_snapshot(t, s->process, s->image, addr, buf, len);
		if (n)
			return n;
		/* the snapshot may know of bytes further on: go piecewise up to them */
		if (len > CODE_PAGE - addr % CODE_PAGE)
			len = CODE_PAGE - addr % CODE_PAGE;
	}
	/* what others may write shows nowhere but in what the thread reads */
	if (m->module >= 0 &&
	    ((m->flags & DJ_MAP_TYPE) != DJ_MAP_SHARED || !(m->prot & DJ_PROT_WRITE)))
		return from_module(m, t, addr, buf, len);
	if (zeros && !m->initial && anonymous_private(m) && !(m->flags & DJ_MAP_GROWSDOWN) &&
	    (!*m->name || *m->name == '[')) {
		memset(buf, 0, len);
		return len;
	}
	return 0;
}

static size_t contents(const struct rp_space *s, struct dj_trace *t, uint64_t addr, uint8_t *buf,
		       size_t len, bool zeros)
{
	size_t done = 0;

	while (done < len && addr + done >= addr) {
		uint64_t at = addr + done;
		const struct dj_mapping *m = rp_space_find(s, at);
		if (!m)
			break;
		size_t want = len - done;
		if (want > m->end - at)
			want = (size_t)(m->end - at);
		size_t n = map_contents(s, m, t, at, buf + done, want, zeros);
		if (!n)
			break;
		done += n;
	}
	return done;
}

size_t rp_space_contents(const struct rp_space *s, struct dj_trace *t, uint64_t addr, uint8_t *buf,
			 size_t len)
{
	return contents(s, t, addr, buf, len, true);
}

size_t rp_space_fetch(const struct rp_space *s, struct dj_trace *t, uint64_t addr, uint8_t *buf,
		      size_t len)
{
	size_t done = 0;

	while (done < len && addr + done >= addr) {
		uint64_t at = addr + done, page = at / CODE_PAGE;
		size_t n = CODE_PAGE - at % CODE_PAGE;
		size_t i = rp_space_code_at(s, page);
		struct rp_space_code *c =
			i < s->ncode && s->code[i]->page == page ? s->code[i] : NULL;
		if (n > len - done)
			n = len - done;
		size_t have = contents(s, t, at, buf + done, n, false);
		size_t k = have;
		if (c) {
			for (k = 0; k < n; k++) {
				size_t b = (at + k) % CODE_PAGE;
				if (c->known[b / 64] >> b % 64 & 1)
					buf[done + k] = c->data[b];
				else if (k >= have)
					break;
			}
		}
		done += k;
		if (k < n)
			break;
	}
	return done;
}
