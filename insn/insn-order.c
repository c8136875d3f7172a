/*
 * Instructions that other threads can see the order of. Relies on the decoder's attributes.
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
