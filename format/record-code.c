/*
 * Coding and decoding of records (format/record-code.h). deja-trace(5) has the same table.
 */
#include "format/record-code.h"

#include "format/error.h"

/* What a record of each kind consists of, beyond its start. Coded in this order. */
enum {
	F_LINE = 1 << 0, /* import address, as a difference in lines, zigzag */
	F_ADDR = 1 << 1, /* varint, like all that is not marked otherwise */
	F_LENGTH = 1 << 2,
	F_PROT = 1 << 3,
	F_FLAGS = 1 << 4,
	F_MODULE = 1 << 5, /* plus one, so that 0 is "none" */
	F_OFFSET = 1 << 6,
	F_RESULT = 1 << 7, /* zigzag */
	F_R11 = 1 << 8,
	F_SIGNO = 1 << 9,
	F_SIGINFO = 1 << 10, /* 128 bytes */
	F_WHY = 1 << 11,     /* byte */
	F_INSN = 1 << 12,    /* byte: length; that many bytes */
	F_REGS = 1 << 13,    /* packed registers: mask, parts */
	F_DIGEST = 1 << 14,  /* 8 bytes */
	F_PID = 1 << 15,     /* zigzag */
	F_STATUS = 1 << 16,  /* zigzag */
	F_NAME = 1 << 17,    /* length plus two, bytes, a zero byte; or 0: no name */
	F_BYTES64 = 1 << 18, /* 64 bytes in the data area */
	F_BYTES = 1 << 19,   /* `length` bytes in the data area */
	F_SEQ = 1 << 20,     /* plus one, so that 0 is "unknown" */
	F_WHAT = 1 << 21,
	F_SUBJECT = 1 << 22, /* plus one, so that 0 is "none" */
	F_IMAGE = 1 << 23,
	F_NONE = 1 << 24, /* a zero: nothing more in the heads area, for who passes over it */
};

_Static_assert((int)DJ_REC_SYSDATA < CODE_FACTS && (int)DJ_REC_CHECK >= CODE_PASS,
	       "kinds that the file alone has lie between the others");

static const uint32_t fields[DJ_REC_KINDS] = {
	[DJ_REC_IMPORT] = F_LINE | F_BYTES64,
	[DJ_REC_EFFECTS] = F_WHY | F_INSN | F_REGS,
	[DJ_REC_SYSCALL] = F_RESULT | F_R11,
	[DJ_REC_REGS] = F_REGS,
	[DJ_REC_SIGNAL] = F_ADDR | F_LENGTH | F_SIGNO | F_SIGINFO | F_REGS | F_BYTES,
	[DJ_REC_MAP] = F_ADDR | F_LENGTH | F_PROT | F_FLAGS | F_MODULE | F_OFFSET | F_NAME,
	[DJ_REC_UNMAP] = F_ADDR | F_LENGTH,
	[DJ_REC_PROTECT] = F_ADDR | F_LENGTH | F_PROT,
	[DJ_REC_CODE] = F_ADDR | F_LENGTH | F_BYTES,
	[DJ_REC_DIGEST] = F_REGS | F_DIGEST | F_SEQ,
	[DJ_REC_CHILD] = F_PID | F_WHAT | F_SUBJECT,
	[DJ_REC_EXEC] = F_IMAGE | F_NAME,
	[DJ_REC_EXIT] = F_STATUS,
	[DJ_REC_END] = F_NAME,
	[DJ_REC_SEQ] = F_SEQ,
	[DJ_REC_KEYFRAME] = F_ADDR | F_LENGTH | F_REGS | F_SEQ | F_WHAT | F_NAME | F_BYTES,
	[DJ_REC_GAP] = F_LENGTH | F_NAME,
	[DJ_REC_MARK] = F_RESULT | F_WHAT | F_NAME,
	[DJ_REC_THREAD] = F_PID | F_WHAT | F_SUBJECT | F_NAME,
	[DJ_REC_SYSDATA] = F_ADDR | F_LENGTH | F_BYTES,
	[CODE_FACTS] = F_LENGTH,
	[DJ_REC_ORDER] = F_SEQ,
	[DJ_REC_CHECK] = F_NONE | F_LENGTH | F_BYTES,
};

/* The plain numbers: field, member, how it becomes a varint and back. */
#define NUMBERS(X)                                                                                 \
	X(F_ADDR, addr, dj_put_varint(p, v), dj_in_varint(in))                                     \
	X(F_LENGTH, length, dj_put_varint(p, v), dj_in_varint(in))                                 \
	X(F_PROT, prot, dj_put_varint(p, (uint32_t)v), dj_in_varint(in))                           \
	X(F_FLAGS, flags, dj_put_varint(p, (uint32_t)v), dj_in_varint(in))                         \
	X(F_MODULE, module, dj_put_varint(p, (uint32_t)(v + 1)), dj_in_varint(in) - 1)             \
	X(F_OFFSET, offset, dj_put_varint(p, v), dj_in_varint(in))                                 \
	X(F_RESULT, result, dj_put_varint(p, dj_zigzag((int64_t)v)),                               \
	  dj_unzigzag(dj_in_varint(in)))                                                           \
	X(F_R11, r11, dj_put_varint(p, v), dj_in_varint(in))                                       \
	X(F_SIGNO, signo, dj_put_varint(p, (uint32_t)v), dj_in_varint(in))

#define MORE_NUMBERS(X)                                                                            \
	X(F_DIGEST, digest, dj_put64(p, v), dj_in64(in))                                           \
	X(F_PID, pid, dj_put_varint(p, dj_zigzag((int32_t)v)), dj_unzigzag(dj_in_varint(in)))      \
	X(F_STATUS, status, dj_put_varint(p, dj_zigzag((int32_t)v)),                               \
	  dj_unzigzag(dj_in_varint(in)))                                                           \
	X(F_SEQ, seq, dj_put_varint(p, v + 1), dj_in_varint(in) - 1)                               \
	X(F_WHAT, what, dj_put_varint(p, v), dj_in_varint(in))                                     \
	X(F_SUBJECT, subject, dj_put_varint(p, (uint32_t)(v + 1)), dj_in_varint(in) - 1)           \
	X(F_IMAGE, image, dj_put_varint(p, v), dj_in_varint(in))

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t n)
{
	memcpy(p, bytes, n);
	return p + n;
}

static uint8_t *put_name(uint8_t *p, const char *name)
{
	size_t n;

	if (!name)
		return dj_put_varint(p, 0);
	n = strnlen(name, DJ_NAME_MAX - 1);
	p = dj_put_varint(p, n + 2);
	p = put_bytes(p, name, n);
	*p++ = 0;
	return p;
}

/* What follows a record's start. */
static void code_fields(const struct dj_record *rec, struct dj_code_state *s, uint8_t *p,
			uint8_t **head, uint8_t **data)
{
	uint32_t f = fields[rec->kind];

	if (f & F_NONE)
		p = dj_put_varint(p, 0);
	if (f & F_LINE)
		p = dj_record_code_line(p, s, rec->addr);
#define X(field, member, put, get)                                                                 \
	if (f & (field)) {                                                                         \
		uint64_t v = (uint64_t)rec->member;                                                \
		p = put;                                                                           \
	}
	NUMBERS(X)
	if (f & F_SIGINFO)
		p = put_bytes(p, rec->siginfo, sizeof(rec->siginfo));
	if (f & F_WHY)
		*p++ = rec->why;
	if (f & F_INSN) {
		DJ_ASSERT(rec->insn_len <= sizeof(rec->insn), "instruction of %u bytes",
			  rec->insn_len);
		*p++ = rec->insn_len;
		p = put_bytes(p, rec->insn, rec->insn_len);
	}
	if (f & F_REGS)
		p += dj_regs_pack(&rec->regs, rec->mask, p);
	MORE_NUMBERS(X)
#undef X
	if (f & F_NAME)
		p = put_name(p, rec->name);
	if (f & F_BYTES64)
		*data = put_bytes(*data, rec->bytes, DJ_LINE);
	if (f & F_BYTES && rec->length)
		*data = put_bytes(*data, rec->bytes, rec->length);
	*head = p;
}

void dj_record_code(const struct dj_record *rec, struct dj_code_state *s, uint8_t **head,
		    uint8_t **data)
{
	uint8_t *p = dj_record_code_start(*head, s, rec->kind, rec->steps, rec->rep, rec->ordinal);

	code_fields(rec, s, p, head, data);
}

void dj_fact_code(const struct dj_record *rec, uint32_t thread, uint8_t **head, uint8_t **data)
{
	uint8_t *p = *head;

	*p++ = (uint8_t)rec->kind;
	p = dj_put_varint(p, thread);
	p = dj_put_varint(p, rec->steps);
	p = dj_put_varint(p, rec->seq + 1);
	code_fields(rec, NULL, p, head, data);
}

static const char *in_name(struct dj_in *in)
{
	uint64_t n = dj_in_varint(in);
	const char *name;

	if (n == 0)
		return NULL;
	n--; /* the terminating zero included */
	if (n == 0 || n > DJ_NAME_MAX || !(name = (const char *)dj_in_bytes(in, n)) ||
	    memchr(name, 0, n) != name + n - 1) {
		in->bad = true;
		return NULL;
	}
	return name;
}

static void in_regs(struct dj_record *rec, struct dj_in *in)
{
	size_t n =
		in->bad ? 0
			: dj_regs_unpack(&rec->regs, &rec->mask, in->p, (size_t)(in->end - in->p));

	if (!n)
		in->bad = true;
	dj_in_bytes(in, n);
}

static bool decode_fields(struct dj_record *rec, uint32_t f, struct dj_code_state *s,
			  struct dj_in *in, struct dj_in *data)
{
	const uint8_t *bytes;

	if (f & F_NONE && dj_in_varint(in))
		return false;
	if (f & F_LINE)
		rec->addr = s->addr += (uint64_t)dj_unzigzag(dj_in_varint(in)) * DJ_LINE;
#define X(field, member, put, get)                                                                 \
	if (f & (field))                                                                           \
		rec->member = (typeof(rec->member))(get);
	NUMBERS(X)
	if (f & F_SIGINFO && (bytes = dj_in_bytes(in, sizeof(rec->siginfo))))
		memcpy(rec->siginfo, bytes, sizeof(rec->siginfo));
	if (f & F_WHY)
		rec->why = dj_in8(in);
	if (f & F_INSN) {
		unsigned n = dj_in8(in);

		if (n > sizeof(rec->insn) || !(bytes = dj_in_bytes(in, n)))
			return false;
		memcpy(rec->insn, bytes, n);
		rec->insn_len = (uint8_t)n;
	}
	if (f & F_REGS)
		in_regs(rec, in);
	MORE_NUMBERS(X)
#undef X
	if (f & F_NAME)
		rec->name = in_name(in);
	if (f & F_BYTES64)
		rec->bytes = dj_in_bytes(data, DJ_LINE);
	if (f & F_BYTES) {
		if (rec->length > DJ_CODE_MAX)
			return false;
		rec->bytes = dj_in_bytes(data, rec->length);
	}
	return !in->bad && !data->bad;
}

/* A record of a kind to come: it says how long its parts in both areas are. */
static bool pass_over(struct dj_in *in, struct dj_in *data)
{
	dj_in_bytes(in, dj_in_varint(in));
	dj_in_bytes(data, dj_in_varint(in));
	return !in->bad && !data->bad;
}

bool dj_record_decode(struct dj_record *rec, struct dj_code_state *s, struct dj_in *in,
		      struct dj_in *data)
{
	unsigned start = dj_in8(in), kind = start & CODE_KIND;
	uint64_t delta;

	if (in->bad || dj_record_is_fact(kind))
		return false;
	memset(rec, 0, offsetof(struct dj_record, regs));
	rec->kind = kind;
	delta = start & CODE_SAME_STEP ? 0 : dj_in_varint(in);
	if (delta > UINT64_MAX - s->steps)
		return false;
	rec->steps = s->steps += delta;
	if (start & CODE_REP)
		rec->rep = dj_in_varint(in);
	if (start & CODE_ORDINAL)
		rec->ordinal = dj_in8(in);
	if (kind >= DJ_REC_KINDS)
		return pass_over(in, data);
	return fields[kind] && decode_fields(rec, fields[kind], s, in, data);
}

bool dj_fact_decode(struct dj_record *rec, struct dj_in *in, struct dj_in *data)
{
	unsigned kind = dj_in8(in);
	uint64_t thread, seq;

	if (in->bad || kind > CODE_KIND || !(dj_record_is_fact(kind) || kind >= CODE_PASS))
		return false;
	memset(rec, 0, offsetof(struct dj_record, regs));
	rec->kind = kind;
	thread = dj_in_varint(in);
	rec->thread = thread > INT32_MAX ? -1 : (int32_t)thread;
	rec->steps = dj_in_varint(in);
	seq = dj_in_varint(in) - 1;
	if (kind >= CODE_PASS)
		return pass_over(in, data);
	if (!decode_fields(rec, fields[kind], NULL, in, data))
		return false;
	rec->seq = seq;
	return true;
}
