/*
 * Facts about instructions that follow from their names and attributes, and that more than one room
 * asks for.
 */
#include "insn/insn.h"

bool insn_lockable(const struct insn *in)
{
	if (!in->has_mem || !(in->mem_access & INSN_W))
		return false;
	switch (in->id) {
	case INSN_ADD:
	case INSN_OR:
	case INSN_ADC:
	case INSN_SBB:
	case INSN_AND:
	case INSN_SUB:
	case INSN_XOR:
	case INSN_INC:
	case INSN_DEC:
	case INSN_NEG:
	case INSN_NOT:
	case INSN_BTS:
	case INSN_BTR:
	case INSN_BTC:
	case INSN_XADD:
	case INSN_XCHG:
	case INSN_CMPXCHG:
	case INSN_CMPXCHG8B:
	case INSN_CMPXCHG16B:
		return true;
	}
	return false;
}

bool insn_is_ordered(const struct insn *in)
{
	return in->attr & (INSN_A_ATOMIC | INSN_A_FENCE);
}

bool insn_store_pops(const struct insn *in)
{
	switch (in->id) {
	case INSN_FSTP:
	case INSN_FISTP:
	case INSN_FISTTP:
	case INSN_FBSTP:
		return in->mem_access & INSN_W;
	}
	return false;
}
