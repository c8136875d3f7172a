/*
 * Where the program is when the processor is in translated code.
 */
#include "translator/runtime.h"

bool tr_locate(const struct translator *tr, uint64_t va, uint64_t rt_ret, struct tr_where *w)
{
	const struct tr_arena *a = tr_arena_at(tr, va);
	memset(w, 0, sizeof(*w));
	if (!a)
		return false;
	uint64_t at = va;
	bool string = va >= rt_va(a, rt_strings) && va < rt_va(a, rt_strings_end);
	if (string) {
		at = rt_ret - 1; /* inside the code of the string instruction */
		a = tr_arena_at(tr, at);
		if (!a)
			return false;
	}
	const struct tr_frag *f = tr_chunk_find(a, at);
	if (!f)
		return false;
	uint32_t off = (uint32_t)(at - f->entry);
	uint32_t i = f->n;
	while (i > 0 && f->insn[i - 1].start > off)
		i--;
	if (!i)
		return false;
	i--;
	const struct tr_finsn *fi = &f->insn[i];
	w->lag = fi->lag;
	w->pc = f->pc + fi->pc_off;
	w->flags_lost = fi->flags_lost;
	w->boundary = !string && fi->start == off;
	if (w->boundary) {
		w->spilled = fi->spilled_start;
		w->flags = fi->flags_start;
		return true;
	}
	w->string = fi->id_string;
	/* while flags are being saved rax has them */
	if (fi->after_syscall && off >= fi->body && off < fi->after_syscall) {
		/* nor are all registers the program's while flags are put back, by way of rax */
		uint32_t left = fi->after_syscall - off - fi->flags_before;
		w->before_syscall = !fi->flags_length || left - 1 >= fi->flags_length - 1u;
		w->spilled = fi->spilled_start;
		if (off + 2 == fi->after_syscall) /* the kernel has come back to it */
			w->spilled |= 1u << 1 | 1u << 11;
		w->flags = fi->flags_body;
		return true;
	}
	w->spilled = fi->spilled_body;
	w->flags = fi->flags_body;
	w->after_syscall = fi->after_syscall && off == fi->after_syscall;
	if (string) {
		uint32_t o = (uint32_t)(va - a->va);
		for (const uint32_t *h = rt_heads; h < rt_heads_end; h++)
			w->string_head |= *h == o;
	}
	return true;
}

bool tr_locate_comparison(const struct translator *tr, uint64_t va, struct tr_where *w)
{
	const struct tr_arena *a = tr_arena_at(tr, va);
	const struct tr_frag *f = a ? tr_chunk_find(a, va) : NULL;
	memset(w, 0, sizeof(*w));
	if (!f || va - f->entry >= f->insn[0].start)
		return false;
	w->pc = f->pc;
	w->lag = f->insn[0].lag;
	w->flags_lost = f->insn[0].flags_lost;
	w->spilled = CHECKS_SPILL;
	w->flags = TR_FLAGS_SAVED;
	return true;
}

uint64_t tr_string_singly(const struct translator *tr, uint64_t va)
{
	const struct tr_arena *a = tr_arena_at(tr, va);
	uint64_t o = a ? va - a->va : 0;
	for (const struct rt_bulk *b = rt_bulks; a && b < rt_bulks_end; b++)
		if (o >= b->start && o < b->end)
			return a->va + b->singly;
	return 0;
}

uint64_t tr_call_data_out(const struct translator *tr, uint64_t va)
{
	const struct tr_arena *a = tr_arena_at(tr, va);
	if (a && va >= rt_va(a, rt_open_check) && va < rt_va(a, rt_open_check_end))
		return rt_va(a, rt_open_check_out);
	return a && va >= rt_va(a, rt_call_data) && va < rt_va(a, rt_call_data_end)
		       ? rt_va(a, rt_call_data_out)
		       : 0;
}

bool tr_waits(const struct translator *tr, uint64_t va)
{
	const struct tr_arena *a = tr_arena_at(tr, va);
	return a && va >= rt_va(a, rt_order_spin) && va < rt_va(a, rt_order_spin_end);
}

bool tr_pushes_flags(const struct translator *tr, uint64_t va)
{
	const struct tr_arena *a = tr_arena_at(tr, va);
	return a && a->ours[va - a->va] == 0x9c;
}

bool tr_asks(const struct translator *tr, uint64_t va)
{
	const struct tr_arena *a = tr_arena_at(tr, va);
	return a && va >= rt_va(a, rt_miss) && va < rt_va(a, rt_ask_end);
}

uint64_t tr_syscall_insn(const struct translator *tr)
{
	return tr->arenas ? rt_va(tr->arenas, rt_syscall) : 0;
}

uint64_t tr_put_apart(struct translator *tr, unsigned place, const uint8_t *code, size_t len)
{
	const size_t off = (size_t)(rt_apart - rt_begin) + place * (INSN_MAX + 1);
	struct tr_arena *a = tr->arenas;
	if (!a)
		return 0;
	DJ_ASSERT(len <= INSN_MAX && place < TR_APART, "%zu bytes in place %u", len, place);
	uint8_t *at = a->ours + off;
	memcpy(at, code, len);
	at[len] = 0xcc; /* int3 */
	return a->va + off;
}

void tr_stats(const struct translator *tr, struct tr_stats *s)
{
	*s = tr->stats;
}
