/* The routines of runtime.S, which every arena begins with a copy of. */
#ifndef DEJA_TRANSLATOR_RUNTIME_H
#define DEJA_TRANSLATOR_RUNTIME_H

#include "translator/cache.h"

extern const uint8_t rt_begin[], rt_end[], rt_import[], rt_import_masked[], rt_import_patch8[],
	rt_syscall[], rt_apart[], rt_map_check[], rt_open_check[], rt_open_check_end[],
	rt_open_check_out[], rt_map_log[], rt_cpuid[], rt_call_data[], rt_call_data_out[],
	rt_call_data_end[], rt_state_data[], rt_order_wait[], rt_order_spin[], rt_order_spin_end[],
	rt_order_two[], rt_order_hold[], rt_order_look[], rt_order_give[], rt_gather_dd[],
	rt_gather_dq[], rt_gather_qd[], rt_gather_qq[], rt_other[], rt_places[], rt_miss[],
	rt_ask[], rt_ask_end[], rt_strings[], rt_strings_end[];
/* Tops of iterations in string routines, as offsets from rt_begin. */
extern const uint32_t rt_heads[], rt_heads_end[];
extern const struct rt_bulk {
	uint32_t start, end, singly; /* relative to rt_begin */
} rt_bulks[], rt_bulks_end[];

static inline uint64_t rt_va(const struct tr_arena *a, const uint8_t *routine)
{
	return a->va + (uint64_t)(routine - rt_begin);
}

#endif
