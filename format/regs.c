/*
 * Packing, comparing and digesting registers (format/regs.h).
 *
 * One table says which parts there are, in the order of their bits; x87 and the selectors
 * are the only ones that are not an array element of one size.
 */
#include "format/regs.h"

#include "format/bytes.h"
#include "format/error.h"

#include <stdio.h>
#include <xxhash.h>

#define X87_PACKED  103
#define SEGS_PACKED 12

/* clang-format off */
static const char *const part_names[48] = {
	"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	"rflags", "rip", "fs_base", "gs_base", "mxcsr", "x87", "segs",
	[32] = "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7",
	"ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15",
};
/* clang-format on */

/* The 64-bit registers of bits 16..19. */
#define WORDS(X, r) X(16, (r)->rflags) X(17, (r)->rip) X(18, (r)->fs_base) X(19, (r)->gs_base)
/* The selectors, in packed order. */
#define SELECTORS(X, r) X((r)->cs) X((r)->ss) X((r)->ds) X((r)->es) X((r)->fs) X((r)->gs)

static uint8_t *pack_x87(uint8_t *p, const struct dj_regs *r)
{
	p = dj_put16(p, r->fcw);
	p = dj_put16(p, r->fsw);
	*p++ = r->ftw;
	p = dj_put16(p, r->fop);
	p = dj_put64(p, r->fip);
	p = dj_put64(p, r->fdp);
	for (int i = 0; i < 8; i++) {
		p = dj_put64(p, r->st_mant[i]);
		p = dj_put16(p, r->st_exp[i]);
	}
	return p;
}

static void unpack_x87(struct dj_regs *r, struct dj_in *in)
{
	r->fcw = dj_in16(in);
	r->fsw = dj_in16(in);
	r->ftw = dj_in8(in);
	r->fop = dj_in16(in);
	r->fip = dj_in64(in);
	r->fdp = dj_in64(in);
	for (int i = 0; i < 8; i++) {
		r->st_mant[i] = dj_in64(in);
		r->st_exp[i] = dj_in16(in);
	}
}

size_t dj_regs_pack(const struct dj_regs *r, uint64_t mask, uint8_t *out)
{
	uint8_t *p = dj_put64(out, mask);

	DJ_ASSERT(!(mask & ~DJ_REG_ALL), "register mask %#llx", (unsigned long long)mask);
	for (int i = 0; i < 16; i++)
		if (mask & DJ_REG_GPR(i))
			p = dj_put64(p, r->gpr[i]);
#define X(bit, reg)                                                                                \
	if (mask & 1ULL << (bit))                                                                  \
		p = dj_put64(p, reg);
	WORDS(X, r)
#undef X
	if (mask & DJ_REG_MXCSR)
		p = dj_put32(p, r->mxcsr);
	if (mask & DJ_REG_X87)
		p = pack_x87(p, r);
	if (mask & DJ_REG_SEGS) {
#define X(sel) p = dj_put16(p, sel);
		SELECTORS(X, r)
#undef X
	}
	for (int i = 0; i < 16; i++) {
		if (mask & DJ_REG_YMM(i)) {
			memcpy(p, r->ymm[i], sizeof(r->ymm[i]));
			p += sizeof(r->ymm[i]);
		}
	}
	return (size_t)(p - out);
}

static size_t packed_size(uint64_t mask)
{
	return 8 + 8 * (size_t)__builtin_popcountll(mask & 0xfffff) +
	       (mask & DJ_REG_MXCSR ? 4 : 0) + (mask & DJ_REG_X87 ? X87_PACKED : 0) +
	       (mask & DJ_REG_SEGS ? SEGS_PACKED : 0) +
	       32 * (size_t)__builtin_popcountll(mask >> 32);
}

size_t dj_regs_unpack(struct dj_regs *r, uint64_t *mask, const uint8_t *bytes, size_t len)
{
	struct dj_in in = { bytes, bytes + len, false };
	uint64_t m = dj_in64(&in);

	/* all or nothing: a short form must not leave half of it behind */
	if (in.bad || m & ~DJ_REG_ALL || len < packed_size(m))
		return 0;
	*mask = m;
	for (int i = 0; i < 16; i++)
		if (m & DJ_REG_GPR(i))
			r->gpr[i] = dj_in64(&in);
#define X(bit, reg)                                                                                \
	if (m & 1ULL << (bit))                                                                     \
		reg = dj_in64(&in);
	WORDS(X, r)
#undef X
	if (m & DJ_REG_MXCSR)
		r->mxcsr = dj_in32(&in);
	if (m & DJ_REG_X87)
		unpack_x87(r, &in);
	if (m & DJ_REG_SEGS) {
#define X(sel) sel = dj_in16(&in);
		SELECTORS(X, r)
#undef X
	}
	for (int i = 0; i < 16; i++)
		if (m & DJ_REG_YMM(i))
			memcpy(r->ymm[i], dj_in_bytes(&in, 32), 32);
	return packed_size(m);
}

uint64_t dj_regs_diff(const struct dj_regs *a, const struct dj_regs *b)
{
	uint8_t xa[X87_PACKED], xb[X87_PACKED];
	uint64_t d = 0;

	for (int i = 0; i < 16; i++) {
		if (a->gpr[i] != b->gpr[i])
			d |= DJ_REG_GPR(i);
		if (memcmp(a->ymm[i], b->ymm[i], sizeof(a->ymm[i])))
			d |= DJ_REG_YMM(i);
	}
	if (a->rflags != b->rflags)
		d |= DJ_REG_RFLAGS;
	if (a->rip != b->rip)
		d |= DJ_REG_RIP;
	if (a->fs_base != b->fs_base)
		d |= DJ_REG_FS_BASE;
	if (a->gs_base != b->gs_base)
		d |= DJ_REG_GS_BASE;
	if (a->mxcsr != b->mxcsr)
		d |= DJ_REG_MXCSR;
	pack_x87(xa, a);
	pack_x87(xb, b);
	if (memcmp(xa, xb, sizeof(xa)))
		d |= DJ_REG_X87;
	if (a->cs != b->cs || a->ss != b->ss || a->ds != b->ds || a->es != b->es ||
	    a->fs != b->fs || a->gs != b->gs)
		d |= DJ_REG_SEGS;
	return d;
}

uint64_t dj_regs_digest(const struct dj_regs *r)
{
	uint8_t buf[DJ_REGS_PACKED_MAX];
	/* the x87 part follows mask, gprs, rip, both bases and mxcsr; fop, fip and fdp follow
	 * fcw, fsw and ftw in it */
	enum { X87_AT = 8 + 16 * 8 + 3 * 8 + 4, FOP_AT = X87_AT + 5 };
	size_t n = dj_regs_pack(r, DJ_DIGEST_PARTS, buf);

	memset(buf + FOP_AT, 0, 2 + 8 + 8);
	return XXH3_64bits(buf, n);
}

const char *dj_regs_part_name(uint64_t mask)
{
	const char *name =
		mask & DJ_REG_ALL ? part_names[__builtin_ctzll(mask & DJ_REG_ALL)] : NULL;

	return name ? name : "?";
}
