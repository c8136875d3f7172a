/*
 * Breakpoint conditions, evaluated here: gdb sends them as bytecode (gdb manual, "The GDB Agent
 * Expression Mechanism"), which saves it a stop, a look at the registers and a resume for each
 * time a condition is false.
 *
 * A condition that cannot be evaluated (unknown memory, division by zero, a bytecode of
 * tracepoints) counts as true: gdb evaluates it again at the stop and says what is wrong.
 */
#include "gdbstub/session.h"

#include <stdlib.h>
#include <string.h>

#define STACK_SIZE 64
#define MAX_OPS	   10000 /* conditions have no loops, but hostile ones might */

/* Bytes of a breakpoint's conditions. Longer ones are left to gdb, which looks at each stop. */
#define MAX_CONDITIONS 4096

enum op {
	OP_ADD = 0x02,
	OP_SUB,
	OP_MUL,
	OP_DIV_SIGNED,
	OP_DIV_UNSIGNED,
	OP_REM_SIGNED,
	OP_REM_UNSIGNED,
	OP_LSH,
	OP_RSH_SIGNED,
	OP_RSH_UNSIGNED,
	OP_LOG_NOT = 0x0e,
	OP_AND,
	OP_OR,
	OP_XOR,
	OP_NOT,
	OP_EQUAL,
	OP_LESS_SIGNED,
	OP_LESS_UNSIGNED,
	OP_EXT,
	OP_REF8,
	OP_REF16,
	OP_REF32,
	OP_REF64,
	OP_IF_GOTO = 0x20,
	OP_GOTO,
	OP_CONST8,
	OP_CONST16,
	OP_CONST32,
	OP_CONST64,
	OP_REG,
	OP_END,
	OP_DUP,
	OP_POP,
	OP_ZERO_EXT,
	OP_SWAP,
	OP_PICK = 0x32,
	OP_ROT,
};

/* How many stack items an operation takes, how many more it leaves, and how many bytes of
 * operand follow it; `known` tells rows from gaps. */
static const struct {
	uint8_t takes, operand;
	int8_t grows;
	bool known;
	/* clang-format off */
} shapes[] = {
#define BINARY	{ 2, 0, -1, true }
#define UNARY	{ 1, 0, 0, true }
#define CONST(n) { 0, n, 1, true }
	[OP_ADD] = BINARY, [OP_SUB] = BINARY, [OP_MUL] = BINARY, [OP_DIV_SIGNED] = BINARY,
	[OP_DIV_UNSIGNED] = BINARY, [OP_REM_SIGNED] = BINARY, [OP_REM_UNSIGNED] = BINARY,
	[OP_LSH] = BINARY, [OP_RSH_SIGNED] = BINARY, [OP_RSH_UNSIGNED] = BINARY,
	[OP_AND] = BINARY, [OP_OR] = BINARY, [OP_XOR] = BINARY, [OP_EQUAL] = BINARY,
	[OP_LESS_SIGNED] = BINARY, [OP_LESS_UNSIGNED] = BINARY,
	[OP_LOG_NOT] = UNARY, [OP_NOT] = UNARY, [OP_REF8] = UNARY, [OP_REF16] = UNARY,
	[OP_REF32] = UNARY, [OP_REF64] = UNARY,
	[OP_EXT] = { 1, 1, 0, true }, [OP_ZERO_EXT] = { 1, 1, 0, true },
	[OP_IF_GOTO] = { 1, 2, -1, true }, [OP_GOTO] = { 0, 2, 0, true },
	[OP_CONST8] = CONST(1), [OP_CONST16] = CONST(2), [OP_CONST32] = CONST(4),
	[OP_CONST64] = CONST(8), [OP_REG] = CONST(2),
	[OP_END] = { 1, 0, 0, true }, [OP_DUP] = { 1, 0, 1, true }, [OP_POP] = { 1, 0, -1, true },
	[OP_SWAP] = { 2, 0, 0, true }, [OP_PICK] = { 1, 1, 1, true }, [OP_ROT] = { 3, 0, 0, true },
};
/* clang-format on */

static bool binary(enum op op, uint64_t a, uint64_t b, uint64_t *out)
{
	switch (op) {
	case OP_ADD:
		*out = a + b;
		return true;
	case OP_SUB:
		*out = a - b;
		return true;
	case OP_MUL:
		*out = a * b;
		return true;
	case OP_DIV_SIGNED:
		if (b == 0 || (a == 1ULL << 63 && b == ~0ULL))
			return false;
		*out = (uint64_t)((int64_t)a / (int64_t)b);
		return true;
	case OP_REM_SIGNED:
		if (b == 0 || (a == 1ULL << 63 && b == ~0ULL))
			return false;
		*out = (uint64_t)((int64_t)a % (int64_t)b);
		return true;
	case OP_DIV_UNSIGNED:
		if (b == 0)
			return false;
		*out = a / b;
		return true;
	case OP_REM_UNSIGNED:
		if (b == 0)
			return false;
		*out = a % b;
		return true;
	case OP_LSH:
		*out = b < 64 ? a << b : 0;
		return true;
	case OP_RSH_UNSIGNED:
		*out = b < 64 ? a >> b : 0;
		return true;
	case OP_RSH_SIGNED:
		*out = (uint64_t)((int64_t)a >> (b < 64 ? b : 63));
		return true;
	case OP_AND:
		*out = a & b;
		return true;
	case OP_OR:
		*out = a | b;
		return true;
	case OP_XOR:
		*out = a ^ b;
		return true;
	case OP_EQUAL:
		*out = a == b;
		return true;
	case OP_LESS_SIGNED:
		*out = (int64_t)a < (int64_t)b;
		return true;
	case OP_LESS_UNSIGNED:
		*out = a < b;
		return true;
	default:
		return false;
	}
}

static bool reference(struct stub_session *s, uint64_t addr, unsigned size, uint64_t *out)
{
	uint8_t bytes[8];
	if (replay_read(s->r, addr, bytes, size) < size)
		return false;
	*out = 0;
	while (size-- > 0)
		*out = *out << 8 | bytes[size];
	return true;
}

/* What only moves the stack's items; end: behind the topmost of `depth`. */
static bool shuffle(enum op op, uint64_t operand, uint64_t *end, size_t depth)
{
	uint64_t top = end[-1];
	switch (op) {
	case OP_DUP:
		*end = top;
		return true;
	case OP_PICK:
		if (operand >= depth)
			return false;
		*end = end[-1 - (ptrdiff_t)operand];
		return true;
	case OP_SWAP:
		end[-1] = end[-2];
		end[-2] = top;
		return true;
	default: /* OP_ROT: a b c becomes c a b */
		end[-1] = end[-2];
		end[-2] = end[-3];
		end[-3] = top;
		return true;
	}
}

bool stub_agent_eval(struct stub_session *s, const uint8_t *code, size_t len, uint64_t *value)
{
	uint64_t stack[STACK_SIZE + 1];
	size_t at = 0, depth = 0;
	for (unsigned ops = 0; ops < MAX_OPS && at < len; ops++) {
		enum op op = code[at++];
		if (op >= sizeof(shapes) / sizeof(*shapes) || !shapes[op].known ||
		    depth < shapes[op].takes || len - at < shapes[op].operand)
			return false;
		uint64_t operand = 0; /* big-endian */
		for (unsigned i = 0; i < shapes[op].operand; i++)
			operand = operand << 8 | code[at++];
		uint64_t *end = stack + depth, *top = end - 1; /* top: only if something is there */
		switch (op) {
		case OP_CONST8:
		case OP_CONST16:
		case OP_CONST32:
		case OP_CONST64:
			*end = operand;
			break;
		case OP_REG:
			if (!stub_session_reg_value(s, operand, end))
				return false;
			break;
		case OP_EXT:
		case OP_ZERO_EXT:
			if (operand == 0 || operand > 64)
				return false;
			*top <<= 64 - operand;
			*top = op == OP_EXT ? (uint64_t)((int64_t)*top >> (64 - operand))
					    : *top >> (64 - operand);
			break;
		case OP_REF8:
		case OP_REF16:
		case OP_REF32:
		case OP_REF64:
			if (!reference(s, *top, 1u << (op - OP_REF8), top))
				return false;
			break;
		case OP_LOG_NOT:
			*top = !*top;
			break;
		case OP_NOT:
			*top = ~*top;
			break;
		case OP_IF_GOTO:
			if (*top)
				at = operand;
			break;
		case OP_GOTO:
			at = operand;
			break;
		case OP_DUP:
		case OP_PICK:
		case OP_SWAP:
		case OP_ROT:
			if (!shuffle(op, operand, end, depth))
				return false;
			break;
		case OP_POP:
			break;
		case OP_END:
			*value = *top;
			return true;
		default:
			if (!binary(op, end[-2], end[-1], &end[-2]))
				return false;
		}
		depth += (size_t)(ptrdiff_t)shapes[op].grows;
		if (depth > STACK_SIZE)
			return false;
	}
	return false;
}

/* ---- conditions of a breakpoint -------------------------------------------------------- */

/* "XLEN,BYTES", any number of them, into one block: a length in two bytes and the code, each.
 * Returns false if they are not well-formed or too long. */
bool stub_agent_scan_conditions(struct stub_scan *a, uint8_t **block, size_t *len)
{
	uint8_t *out = NULL;
	size_t used = 0;
	while (stub_scan_char(a, ';'))
		;
	while (stub_scan_char(a, 'X')) {
		uint64_t n;
		uint8_t *grown;
		if (!stub_scan_hex(a, &n) || !stub_scan_char(a, ',') || n == 0 || n > 0xffff ||
		    stub_scan_left(a) < 2 * n || !(grown = realloc(out, used + 2 + n))) {
			free(out);
			return false;
		}
		out = grown;
		out[used] = (uint8_t)(n >> 8);
		out[used + 1] = (uint8_t)n;
		if (stub_scan_hexbytes(a, out + used + 2, n) != (long)n) {
			free(out);
			return false;
		}
		used += 2 + n;
		while (stub_scan_char(a, ';'))
			;
	}
	if (used > MAX_CONDITIONS) {
		free(out);
		out = NULL;
		used = 0;
	}
	*block = out;
	*len = used;
	return true;
}

bool stub_agent_any_true(struct stub_session *s, const uint8_t *block, size_t len)
{
	while (len >= 2) {
		size_t n = (size_t)(block[0] << 8 | block[1]);
		uint64_t value;
		if (!stub_agent_eval(s, block + 2, n, &value) || value)
			return true;
		block += 2 + n;
		len -= 2 + n;
	}
	return false;
}
