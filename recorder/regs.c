/* Registers and memory of the stopped program. */
#include "recorder/recorder.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

int rec_get_regs(struct rec_thread *t, struct user_regs_struct *r)
{
	return t->rec->tracer->get_regs(t->rec->tracer, t->tid, r);
}

int rec_set_regs(struct rec_thread *t, const struct user_regs_struct *r)
{
	int rc = t->rec->tracer->set_regs(t->rec->tracer, t->tid, r);
	t->from.rip = r->rip;
	t->from.rcx = r->rcx;
	if (rc && errno != ESRCH) /* a segment base out of the control block that is no address */
		rec_overwritten(t, T_GSBASE);
	return rc;
}

void rec_set_gs(struct rec_thread *t, uint64_t base)
{
	t->gs_base = base;
	*rec_tcb(t, T_GSBASE) = base;
}

uint64_t rec_gs(struct rec_thread *t)
{
	if (*rec_tcb(t, T_GSBASE) != t->gs_base)
		rec_overwritten(t, T_GSBASE);
	return t->gs_base;
}

void rec_from_user(const struct user_regs_struct *u, struct dj_regs *out)
{
	const unsigned long long g[16] = { u->rax, u->rcx, u->rdx, u->rbx, u->rsp, u->rbp,
					   u->rsi, u->rdi, u->r8,  u->r9,  u->r10, u->r11,
					   u->r12, u->r13, u->r14, u->r15 };
	for (int i = 0; i < 16; i++)
		out->gpr[i] = g[i];
	out->rip = u->rip;
	out->rflags = u->eflags & ~0x10100ULL; /* not our trap flag, nor RF */
	out->fs_base = u->fs_base;
	out->gs_base = u->gs_base;
	out->cs = (uint16_t)u->cs;
	out->ss = (uint16_t)u->ss;
	out->ds = (uint16_t)u->ds;
	out->es = (uint16_t)u->es;
	out->fs = (uint16_t)u->fs;
	out->gs = (uint16_t)u->gs;
}

/* The XSAVE area as ptrace gives it: standard format (SDM vol. 1, 13.4). */
static void from_xsave(const uint8_t *x, size_t len, struct dj_regs *out)
{
	memcpy(&out->fcw, x, 2);
	memcpy(&out->fsw, x + 2, 2);
	out->ftw = x[4];
	memcpy(&out->fop, x + 6, 2);
	memcpy(&out->fip, x + 8, 8);
	memcpy(&out->fdp, x + 16, 8);
	memcpy(&out->mxcsr, x + 24, 4);
	for (int i = 0; i < 8; i++) {
		memcpy(&out->st_mant[i], x + 32 + 16 * i, 8);
		memcpy(&out->st_exp[i], x + 40 + 16 * i, 2);
	}
	for (int i = 0; i < 16; i++) {
		memcpy(out->ymm[i], x + 160 + 16 * i, 16);
		if (len >= 832 && (x[512] & 4))
			memcpy(out->ymm[i] + 16, x + 576 + 16 * i, 16);
		else
			memset(out->ymm[i] + 16, 0, 16);
	}
}

void rec_full_regs(struct rec_thread *t, struct dj_regs *out)
{
	uint8_t x[16384];
	memset(out, 0, sizeof(*out));
	rec_from_user(&t->regs, out);
	out->gs_base = t->own ? rec_gs(t) : 0;
	ssize_t len = t->rec->tracer->get_xstate(t->rec->tracer, t->tid, x, sizeof(x));
	if (len >= 512)
		from_xsave(x, (size_t)len, out);
	else
		t->lost = true;
}

/* The program's address with this lower half, by its mappings; the stack goes first, where most
 * such operands are. False if there is none, or if there are several, a multiple of 4 GiB apart. */
static bool place_mapped(const struct rec_thread *t, uint32_t low, uint64_t *addr)
{
	const struct dj_mapping *m;
	/* a stack grows without a word: what lies above rsp belongs to it */
	uint64_t rsp = t->regs.rsp, stack = (rsp & ~0xffffffffULL) | low;
	const struct dj_mapping *above = dj_mappings_after(&t->proc->maps, rsp, 0);
	bool found = false;
	*addr = stack;
	if (above && stack >= rsp && stack < above->end)
		return true;
	for (uint64_t at = 0; (m = dj_mappings_after(&t->proc->maps, at, 0)); at = m->end) {
		uint64_t there = m->start + (uint32_t)(low - (uint32_t)m->start);
		if (there < m->start || there >= m->end || !(m->prot & PROT_READ))
			continue;
		if (found || m->end - there > 1ULL << 32)
			return false;
		*addr = there;
		found = true;
	}
	return found;
}

/* What is executed in the cache at the address that the processor has of its last x87 instruction.
 * Its upper half may be lost: a hypervisor that keeps the registers in the format of 32 bits, while
 * somebody else has the processor, gives back a 0 there. */
static bool locate_x87(const struct rec_thread *t, uint64_t rip, struct tr_where *w)
{
	struct translator *tr = t->proc->tr;
	uint64_t at, size;
	if (tr_in_cache(tr, rip))
		return tr_locate(tr, rip, 0, w);
	const struct dj_mapping *m = rec_maps_find(t->proc, rip);
	if (!rip || rip >> 32 || (m && (m->prot & PROT_EXEC)))
		return false;
	for (unsigned i = 0; tr_arena(tr, i, &at, &size); i++) {
		uint64_t off = (uint32_t)(rip - at);
		if (off < size && tr_locate(tr, at + off, 0, w))
			return true;
	}
	return false;
}

void rec_x87_place(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	struct user_fpregs_struct f;
	struct tr_where w;
	struct dj_regs regs;
	struct insn in;
	uint8_t code[INSN_MAX];
	if (tracer->get_fpregs(tracer, t->tid, &f) || !locate_x87(t, f.rip, &w))
		return;
	f.rip = w.pc;
	/* The shadow's place is the address's lower half. The instruction may be gone, and a
	 * register may have changed. */
	uint64_t addr = 0;
	size_t got = rec_read(t->proc, w.pc, code, sizeof(code));
	if (got && insn_decode(&in, code, got, w.pc) > 0 && in.has_mem) {
		rec_from_user(&t->regs, &regs);
		addr = insn_address(&in, regs.gpr, *rec_tcb(t, T_FSBASE), rec_gs(t));
	}
	if ((addr && (uint32_t)addr == f.rdp) ||
	    (f.rdp && !(f.rdp >> 32) && place_mapped(t, (uint32_t)f.rdp, &addr)))
		f.rdp = addr;
	tracer->set_fpregs(tracer, t->tid, &f);
}

void rec_x87_places(struct rec_process *proc)
{
	for (struct rec_thread *t = proc->rec->threads; t; t = t->next)
		if (t->proc == proc && t->in_hand && t->own)
			rec_x87_place(t);
}

size_t rec_read(struct rec_process *proc, uint64_t addr, void *buf, size_t len)
{
	struct rec_tracer *tr = proc->rec->tracer;
	size_t done = 0;
	while (done < len) {
		ssize_t n = tr->read(tr, proc->mem, addr + done, (char *)buf + done, len - done);
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done;
}

bool rec_write(struct rec_process *proc, uint64_t addr, const void *buf, size_t len)
{
	struct rec_tracer *tr = proc->rec->tracer;
	rec_pages_may_change(proc);
	return tr->write(tr, proc->mem, addr, buf, len) == (ssize_t)len;
}
