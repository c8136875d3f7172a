/*
 * Registers: the target description and the packets g, G, p and P, from one table.
 *
 * The table's order is the numbering: a row's index is the register's number in the description
 * and in the packets. The features, and the names and types in them, are those that gdb knows
 * (gdb manual, "i386 Features"); the order within them is its amd64 Linux one.
 */
#include "gdbstub/session.h"

#include <stdio.h>
#include <string.h>

enum reg_kind {
	REG_U64,   /* the 8 bytes at `offset` of struct dj_regs */
	REG_SEL,   /* the selector (2 bytes) at `offset`, shown as 32 bits */
	REG_FLAGS, /* rflags as 32 bits */
	REG_U32,   /* the 4 bytes at `offset` */
	REG_ST,	   /* ST(n), 10 bytes */
	REG_CTL16, /* the 2 bytes at `offset`, shown as 32 bits */
	REG_FTAG,  /* the full tag word */
	REG_FPLO,
	REG_FPHI, /* lower 32 and next 16 bits of the pointer at `offset` */
	REG_XMM,
	REG_YMMH,
	REG_ORIG_RAX,
};

enum reg_feature { IN_CORE, IN_SSE, IN_LINUX, IN_SEGMENTS, IN_AVX, FEATURES };

struct reg {
	const char *name, *type, *group;
	uint16_t offset;
	uint8_t kind, feature, bytes, n;
	uint64_t part; /* DJ_REG_... */
};

#define GPR(name_, n_, type_)                                                                      \
	{                                                                                          \
		.name = name_, .type = type_, .kind = REG_U64, .feature = IN_CORE, .bytes = 8,     \
		.offset = offsetof(struct dj_regs, gpr) + 8 * (n_), .part = DJ_REG_GPR(n_)         \
	}
#define SEL(field)                                                                                 \
	{                                                                                          \
		.name = #field, .type = "int32", .kind = REG_SEL, .feature = IN_CORE, .bytes = 4,  \
		.offset = offsetof(struct dj_regs, field), .part = DJ_REG_SEGS                     \
	}
#define ST(n_)                                                                                     \
	{                                                                                          \
		.name = "st" #n_, .type = "i387_ext", .kind = REG_ST, .feature = IN_CORE,          \
		.bytes = 10, .n = n_, .part = DJ_REG_X87                                           \
	}
#define FP(name_, kind_, field)                                                                    \
	{                                                                                          \
		.name = name_, .type = "int", .group = "float", .kind = kind_, .feature = IN_CORE, \
		.bytes = 4, .offset = offsetof(struct dj_regs, field), .part = DJ_REG_X87          \
	}
#define XMM(n_)                                                                                    \
	{                                                                                          \
		.name = "xmm" #n_, .type = "vec128", .kind = REG_XMM, .feature = IN_SSE,           \
		.bytes = 16, .n = n_, .part = DJ_REG_YMM(n_)                                       \
	}
#define YMMH(n_)                                                                                   \
	{                                                                                          \
		.name = "ymm" #n_ "h", .type = "uint128", .kind = REG_YMMH, .feature = IN_AVX,     \
		.bytes = 16, .n = n_, .part = DJ_REG_YMM(n_)                                       \
	}
#define SIXTEEN(M)                                                                                 \
	M(0), M(1), M(2), M(3), M(4), M(5), M(6), M(7), M(8), M(9), M(10), M(11), M(12), M(13),    \
		M(14), M(15)

/* Numbers that a stop reply carries along. */
#define REGNUM_RBP 6
#define REGNUM_RSP 7
#define REGNUM_RIP 16

/* clang-format off */
static const struct reg table[] = {
	GPR("rax", DJ_RAX, "int64"),
	GPR("rbx", DJ_RBX, "int64"),
	GPR("rcx", DJ_RCX, "int64"),
	GPR("rdx", DJ_RDX, "int64"),
	GPR("rsi", DJ_RSI, "int64"),
	GPR("rdi", DJ_RDI, "int64"),
	GPR("rbp", DJ_RBP, "data_ptr"),
	GPR("rsp", DJ_RSP, "data_ptr"),
	GPR("r8", DJ_R8, "int64"),
	GPR("r9", DJ_R9, "int64"),
	GPR("r10", DJ_R10, "int64"),
	GPR("r11", DJ_R11, "int64"),
	GPR("r12", DJ_R12, "int64"),
	GPR("r13", DJ_R13, "int64"),
	GPR("r14", DJ_R14, "int64"),
	GPR("r15", DJ_R15, "int64"),
	{ .name = "rip", .type = "code_ptr", .kind = REG_U64, .feature = IN_CORE, .bytes = 8,
	  .offset = offsetof(struct dj_regs, rip), .part = DJ_REG_RIP },
	{ .name = "eflags", .type = "i386_eflags", .kind = REG_FLAGS, .feature = IN_CORE,
	  .bytes = 4, .part = DJ_REG_RFLAGS },
	SEL(cs), SEL(ss), SEL(ds), SEL(es), SEL(fs), SEL(gs),
	ST(0), ST(1), ST(2), ST(3), ST(4), ST(5), ST(6), ST(7),
	FP("fctrl", REG_CTL16, fcw),
	FP("fstat", REG_CTL16, fsw),
	FP("ftag", REG_FTAG, ftw),
	FP("fiseg", REG_FPHI, fip),
	FP("fioff", REG_FPLO, fip),
	FP("foseg", REG_FPHI, fdp),
	FP("fooff", REG_FPLO, fdp),
	FP("fop", REG_CTL16, fop),
	SIXTEEN(XMM),
	{ .name = "mxcsr", .type = "i386_mxcsr", .group = "vector", .kind = REG_U32,
	  .feature = IN_SSE, .bytes = 4, .offset = offsetof(struct dj_regs, mxcsr),
	  .part = DJ_REG_MXCSR },
	{ .name = "orig_rax", .type = "int", .kind = REG_ORIG_RAX, .feature = IN_LINUX,
	  .bytes = 8 },
	{ .name = "fs_base", .type = "int", .kind = REG_U64, .feature = IN_SEGMENTS, .bytes = 8,
	  .offset = offsetof(struct dj_regs, fs_base), .part = DJ_REG_FS_BASE },
	{ .name = "gs_base", .type = "int", .kind = REG_U64, .feature = IN_SEGMENTS, .bytes = 8,
	  .offset = offsetof(struct dj_regs, gs_base), .part = DJ_REG_GS_BASE },
	SIXTEEN(YMMH),
};
/* clang-format on */
#define N_REGS (sizeof(table) / sizeof(*table))

/* ---- values ------------------------------------------------------------------------- */

static void put_le(uint8_t *out, uint64_t x, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		out[i] = (uint8_t)(x >> (8 * i));
}

static uint64_t get_le(const uint8_t *in, unsigned n)
{
	uint64_t x = 0;
	while (n-- > 0)
		x = x << 8 | in[n];
	return x;
}

/* The two-bit tags of all registers from their contents (SDM vol. 1, 8.1.7): 0 valid, 1 zero,
 * 2 special, 3 empty. */
static uint16_t full_tag(const struct dj_regs *r)
{
	unsigned top = r->fsw >> 11 & 7, tags = 0;
	for (unsigned phys = 0; phys < 8; phys++) {
		unsigned i = (phys - top) & 7, exp = r->st_exp[i] & 0x7fff, tag;
		if (!(r->ftw >> phys & 1))
			tag = 3;
		else if (exp == 0 && r->st_mant[i] == 0)
			tag = 1;
		else if (exp == 0 || exp == 0x7fff || !(r->st_mant[i] >> 63))
			tag = 2;
		else
			tag = 0;
		tags |= tag << (2 * phys);
	}
	return (uint16_t)tags;
}

static void reg_get(const struct stub_session *s, const struct dj_regs *r, const struct reg *d,
		    uint8_t *out)
{
	const uint8_t *field = (const uint8_t *)r + d->offset;
	uint64_t u64;
	uint32_t u32;
	uint16_t u16;
	switch ((enum reg_kind)d->kind) {
	case REG_U64:
		memcpy(&u64, field, 8);
		put_le(out, u64, 8);
		break;
	case REG_U32:
		memcpy(&u32, field, 4);
		put_le(out, u32, 4);
		break;
	case REG_SEL:
	case REG_CTL16:
		memcpy(&u16, field, 2);
		put_le(out, u16, 4);
		break;
	case REG_FLAGS:
		put_le(out, r->rflags, 4);
		break;
	case REG_ST:
		put_le(out, r->st_mant[d->n], 8);
		put_le(out + 8, r->st_exp[d->n], 2);
		break;
	case REG_FTAG:
		put_le(out, full_tag(r), 4);
		break;
	case REG_FPLO:
		memcpy(&u64, field, 8);
		put_le(out, u64, 4);
		break;
	case REG_FPHI:
		memcpy(&u64, field, 8);
		put_le(out, u64 >> 32 & 0xffff, 4);
		break;
	case REG_XMM:
		memcpy(out, r->ymm[d->n], 16);
		break;
	case REG_YMMH:
		memcpy(out, r->ymm[d->n] + 16, 16);
		break;
	case REG_ORIG_RAX:
		put_le(out, (uint64_t)s->sysno, 8);
		break;
	}
}

static void reg_set(struct dj_regs *r, const struct reg *d, const uint8_t *in)
{
	uint8_t *field = (uint8_t *)r + d->offset;
	uint64_t u64;
	uint32_t u32 = (uint32_t)get_le(in, 4);
	uint16_t u16 = (uint16_t)u32;
	switch ((enum reg_kind)d->kind) {
	case REG_U64:
		u64 = get_le(in, 8);
		memcpy(field, &u64, 8);
		break;
	case REG_U32:
		memcpy(field, &u32, 4);
		break;
	case REG_SEL:
	case REG_CTL16:
		memcpy(field, &u16, 2);
		break;
	case REG_FLAGS:
		r->rflags = u32;
		break;
	case REG_ST:
		r->st_mant[d->n] = get_le(in, 8);
		r->st_exp[d->n] = (uint16_t)get_le(in + 8, 2);
		break;
	case REG_FTAG:
		r->ftw = 0;
		for (unsigned phys = 0; phys < 8; phys++)
			if ((u16 >> (2 * phys) & 3) != 3)
				r->ftw |= (uint8_t)(1u << phys);
		break;
	case REG_FPLO:
		memcpy(&u64, field, 8);
		u64 = (u64 & 0xffffffff00000000u) | u32;
		memcpy(field, &u64, 8);
		break;
	case REG_FPHI:
		memcpy(&u64, field, 8);
		u64 = (u64 & 0xffff0000ffffffffu) | (uint64_t)u16 << 32;
		memcpy(field, &u64, 8);
		break;
	case REG_XMM:
		memcpy(r->ymm[d->n], in, 16);
		break;
	case REG_YMMH:
		memcpy(r->ymm[d->n] + 16, in, 16);
		break;
	case REG_ORIG_RAX:
		break; /* says how the kernel was entered, nothing of the program's */
	}
}

/* ---- packets ------------------------------------------------------------------------- */

#define REG_MAX 16

bool stub_handle_regs_read(struct stub_session *s, struct stub_scan *a)
{
	struct dj_regs regs;
	uint8_t value[REG_MAX];
	(void)a;
	replay_regs(s->r, &regs);
	for (size_t i = 0; i < N_REGS; i++) {
		reg_get(s, &regs, &table[i], value);
		stub_textbuf_hex(&s->reply, value, table[i].bytes);
	}
	return true;
}

bool stub_handle_reg_read(struct stub_session *s, struct stub_scan *a)
{
	struct dj_regs regs;
	uint8_t value[REG_MAX];
	uint64_t n;
	if (!stub_scan_hex(a, &n) || n >= N_REGS)
		return stub_reply_error(s, 1);
	replay_regs(s->r, &regs);
	reg_get(s, &regs, &table[n], value);
	stub_textbuf_hex(&s->reply, value, table[n].bytes);
	return true;
}

void stub_put_expedited_regs(struct stub_session *s)
{
	static const unsigned char numbers[] = { REGNUM_RBP, REGNUM_RSP, REGNUM_RIP };
	struct dj_regs regs;
	uint8_t value[REG_MAX];
	replay_regs(s->r, &regs);
	for (size_t i = 0; i < sizeof(numbers); i++) {
		const struct reg *d = &table[numbers[i]];
		reg_get(s, &regs, d, value);
		stub_textbuf_printf(&s->reply, "%02x:", numbers[i]);
		stub_textbuf_hex(&s->reply, value, d->bytes);
		stub_textbuf_char(&s->reply, ';');
	}
}

bool stub_session_reg_value(struct stub_session *s, uint64_t number, uint64_t *value)
{
	struct dj_regs regs;
	uint8_t bytes[REG_MAX];
	if (number >= N_REGS || table[number].bytes > 8)
		return false;
	uint64_t part = table[number].part;
	if (part && part <= DJ_REG_GPR(15)) {
		*value = replay_gpr(s->r, (unsigned)__builtin_ctzll(part));
		return true;
	}
	replay_regs(s->r, &regs);
	reg_get(s, &regs, &table[number], bytes);
	*value = get_le(bytes, table[number].bytes);
	return true;
}

static bool write_regs(struct stub_session *s, const struct dj_regs *regs, uint64_t mask)
{
	struct dj_error err;
	if (stub_scratch_set_regs(s, regs, mask, &err) != 0)
		return stub_reply_error_text(s, "%s", err.text);
	return stub_reply_ok(s);
}

bool stub_handle_reg_write(struct stub_session *s, struct stub_scan *a)
{
	struct dj_regs regs;
	uint8_t value[REG_MAX];
	uint64_t n;
	if (!stub_scan_hex(a, &n) || n >= N_REGS || !stub_scan_char(a, '=') ||
	    stub_scan_hexbytes(a, value, table[n].bytes) != table[n].bytes)
		return stub_reply_error(s, 1);
	replay_regs(s->r, &regs);
	reg_set(&regs, &table[n], value);
	return write_regs(s, &regs, table[n].part);
}

/* The packet may end early: the registers it does not reach stay. */
bool stub_handle_regs_write(struct stub_session *s, struct stub_scan *a)
{
	struct dj_regs regs;
	uint64_t mask = 0;
	replay_regs(s->r, &regs);
	for (size_t i = 0; i < N_REGS && a->p < a->end; i++) {
		uint8_t value[REG_MAX];
		size_t digits = 2u * table[i].bytes;
		if (stub_scan_left(a) >= digits && memchr(a->p, 'x', digits)) {
			a->p += digits; /* "xxxx": the debugger does not know this one */
			continue;
		}
		if (stub_scan_hexbytes(a, value, table[i].bytes) != table[i].bytes)
			return stub_reply_error(s, 1);
		reg_set(&regs, &table[i], value);
		mask |= table[i].part;
	}
	return write_regs(s, &regs, mask);
}

/* ---- the target description -------------------------------------------------------------- */

struct bit {
	const char *name;
	unsigned char n;
};

static const struct bit eflags_bits[] = {
	{ "CF", 0 },  { "", 1 },    { "PF", 2 },   { "AF", 4 },	  { "ZF", 6 },	{ "SF", 7 },
	{ "TF", 8 },  { "IF", 9 },  { "DF", 10 },  { "OF", 11 },  { "NT", 14 }, { "RF", 16 },
	{ "VM", 17 }, { "AC", 18 }, { "VIF", 19 }, { "VIP", 20 }, { "ID", 21 },
};
static const struct bit mxcsr_bits[] = {
	{ "IE", 0 },  { "DE", 1 },  { "ZE", 2 },  { "OE", 3 },	{ "UE", 4 },
	{ "PE", 5 },  { "DAZ", 6 }, { "IM", 7 },  { "DM", 8 },	{ "ZM", 9 },
	{ "OM", 10 }, { "UM", 11 }, { "PM", 12 }, { "FZ", 15 },
};

static const struct {
	const char *id, *field, *type;
	unsigned count;
	/* clang-format off */
} vectors[] = {
	{ "v4f", "v4_float", "ieee_single", 4 }, { "v2d", "v2_double", "ieee_double", 2 },
	{ "v16i8", "v16_int8", "int8", 16 },	 { "v8i16", "v8_int16", "int16", 8 },
	{ "v4i32", "v4_int32", "int32", 4 },	 { "v2i64", "v2_int64", "int64", 2 },
};
/* clang-format on */

static void put_flags_type(struct stub_textbuf *b, const char *id, const struct bit *bits, size_t n)
{
	stub_textbuf_printf(b, "<flags id=\"%s\" size=\"4\">", id);
	for (size_t i = 0; i < n; i++)
		stub_textbuf_printf(b, "<field name=\"%s\" start=\"%u\" end=\"%u\"/>", bits[i].name,
				    bits[i].n, bits[i].n);
	stub_textbuf_str(b, "</flags>");
}

static void put_vector_types(struct stub_textbuf *b)
{
	size_t n = sizeof(vectors) / sizeof(*vectors);
	for (size_t i = 0; i < n; i++)
		stub_textbuf_printf(b, "<vector id=\"%s\" type=\"%s\" count=\"%u\"/>",
				    vectors[i].id, vectors[i].type, vectors[i].count);
	stub_textbuf_str(b, "<union id=\"vec128\">");
	for (size_t i = 0; i < n; i++)
		stub_textbuf_printf(b, "<field name=\"%s\" type=\"%s\"/>", vectors[i].field,
				    vectors[i].id);
	stub_textbuf_str(b, "<field name=\"uint128\" type=\"uint128\"/></union>");
}

void stub_put_target_xml(struct stub_textbuf *b)
{
	static const char *const names[FEATURES] = { "core", "sse", "linux", "segments", "avx" };
	stub_textbuf_str(b, "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n"
			    "<target version=\"1.0\"><architecture>i386:x86-64</architecture>"
			    "<osabi>GNU/Linux</osabi>");
	for (size_t i = 0; i < N_REGS; i++) {
		const struct reg *d = &table[i];
		if (i == 0 || d->feature != table[i - 1].feature) {
			stub_textbuf_printf(b, "%s<feature name=\"org.gnu.gdb.i386.%s\">",
					    i ? "</feature>\n" : "\n", names[d->feature]);
			if (d->feature == IN_CORE)
				put_flags_type(b, "i386_eflags", eflags_bits,
					       sizeof(eflags_bits) / sizeof(*eflags_bits));
			if (d->feature == IN_SSE) {
				put_vector_types(b);
				put_flags_type(b, "i386_mxcsr", mxcsr_bits,
					       sizeof(mxcsr_bits) / sizeof(*mxcsr_bits));
			}
		}
		stub_textbuf_printf(b, "<reg name=\"%s\" bitsize=\"%u\" type=\"%s\" regnum=\"%zu\"",
				    d->name, 8u * d->bytes, d->type, i);
		if (d->group)
			stub_textbuf_printf(b, " group=\"%s\"", d->group);
		stub_textbuf_str(b, "/>");
	}
	stub_textbuf_str(b, "</feature>\n</target>\n");
}
