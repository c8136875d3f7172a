/*
 * Seccomp filters of the program. What deja makes the program call must not be what kills it. A
 * filter is a program for the kernel (seccomp(2)), which cannot be asked what it would say, but it
 * can be read when it is installed: so it is kept, and executed here for every call that is about
 * to be made for deja's purposes. What the filters would not let through is not made, and whoever
 * wanted it gets EPERM.
 *
 * Arenas need calls, so before a filter is installed the arenas for all code that is mapped by then
 * are made. Code that is mapped later, by a program whose filter forbids mremap, may have none, and
 * is executed natively: slow, but right.
 *
 * A call that the supervisor answers by itself is left to the kernel if a filter has a say in it.
 *
 * A filter is its thread's, unless all others of the process are to get it, too. Filters survive
 * exec and are inherited by children.
 */
#include "recorder/area.h"
#include "recorder/syscalls.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct rec_filter {
	struct rec_filter *next;
	unsigned len; /* 0: SECCOMP_MODE_STRICT */
	struct sock_filter code[];
};

/* ---- executing one ----------------------------------------------------------------------------
 */

struct machine {
	uint32_t a, x, mem[BPF_MEMWORDS];
};

/* The second operand of an arithmetic instruction or a conditional jump. */
static uint32_t operand(const struct machine *m, const struct sock_filter *f)
{
	return BPF_SRC(f->code) == BPF_X ? m->x : f->k;
}

static uint32_t arithmetic(const struct machine *m, const struct sock_filter *f)
{
	uint32_t a = m->a, b = operand(m, f);
	switch (BPF_OP(f->code)) {
	case BPF_ADD:
		return a + b;
	case BPF_SUB:
		return a - b;
	case BPF_MUL:
		return a * b;
	case BPF_DIV:
		return a / b;
	case BPF_AND:
		return a & b;
	case BPF_OR:
		return a | b;
	case BPF_XOR:
		return a ^ b;
	case BPF_LSH:
		return a << (b & 31);
	case BPF_RSH:
		return a >> (b & 31);
	default:
		return -a; /* BPF_NEG */
	}
}

static uint32_t jump(const struct machine *m, const struct sock_filter *f)
{
	uint32_t a = m->a, b = operand(m, f);
	bool taken;
	switch (BPF_OP(f->code)) {
	case BPF_JA:
		return f->k;
	case BPF_JEQ:
		taken = a == b;
		break;
	case BPF_JGT:
		taken = a > b;
		break;
	case BPF_JGE:
		taken = a >= b;
		break;
	default:
		taken = (a & b) != 0; /* BPF_JSET */
	}
	return taken ? f->jt : f->jf;
}

static uint32_t load(const struct machine *m, const struct sock_filter *f,
		     const struct seccomp_data *data)
{
	uint32_t word = 0;
	switch (BPF_MODE(f->code)) {
	case BPF_ABS:
		if (f->k <= sizeof(*data) - sizeof(word))
			memcpy(&word, (const char *)data + f->k, sizeof(word));
		return word;
	case BPF_MEM:
		return f->k < BPF_MEMWORDS ? m->mem[f->k] : 0;
	case BPF_LEN:
		return sizeof(*data);
	default:
		return f->k; /* BPF_IMM */
	}
}

/* What it says of the call: SECCOMP_RET_... The kernel has checked it: jumps go forward only. */
static uint32_t execute(const struct rec_filter *filter, const struct seccomp_data *data)
{
	struct machine m = { 0 };
	for (uint64_t pc = 0; pc < filter->len; pc++) {
		const struct sock_filter *f = &filter->code[pc];
		switch (BPF_CLASS(f->code)) {
		case BPF_LD:
			m.a = load(&m, f, data);
			break;
		case BPF_LDX:
			m.x = load(&m, f, data);
			break;
		case BPF_ST:
		case BPF_STX:
			if (f->k < BPF_MEMWORDS)
				m.mem[f->k] = BPF_CLASS(f->code) == BPF_ST ? m.a : m.x;
			break;
		case BPF_ALU:
			/* the end, by a result of 0 (net/core/filter.c, bpf_convert_filter) */
			if (BPF_OP(f->code) == BPF_DIV && !operand(&m, f))
				return SECCOMP_RET_KILL_THREAD;
			m.a = arithmetic(&m, f);
			break;
		case BPF_JMP:
			pc += jump(&m, f);
			break;
		case BPF_RET:
			return BPF_RVAL(f->code) == BPF_A ? m.a : f->k;
		default:
			if (BPF_MISCOP(f->code) == BPF_TAX)
				m.x = m.a;
			else
				m.a = m.x;
		}
	}
	return SECCOMP_RET_KILL_PROCESS;
}

static bool strict_allows(uint64_t nr)
{
	return nr == SYS_read || nr == SYS_write || nr == SYS_exit || nr == SYS_rt_sigreturn;
}

bool rec_filters_allow(const struct rec_thread *t, uint64_t at, const struct user_regs_struct *r)
{
	struct seccomp_data data = { .nr = (int)r->rax,
				     .arch = AUDIT_ARCH_X86_64,
				     .instruction_pointer = at + 2,
				     .args = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 } };
	for (const struct rec_filter *f = t->filters; f; f = f->next) {
		if (!f->len) {
			if (!strict_allows(r->rax))
				return false;
			continue;
		}
		uint32_t says = execute(f, &data) & SECCOMP_RET_ACTION_FULL;
		if (says != SECCOMP_RET_ALLOW && says != SECCOMP_RET_LOG)
			return false;
	}
	return true;
}

/* ---- a new one --------------------------------------------------------------------------------
 */

static void add(struct rec_thread *t, struct rec_filter *f)
{
	f->next = t->filters;
	t->filters = f;
}

void rec_filters_free(struct rec_thread *t)
{
	while (t->filters) {
		struct rec_filter *f = t->filters;
		t->filters = f->next;
		free(f);
	}
}

void rec_filters_copy(struct rec_thread *to, const struct rec_thread *from)
{
	rec_filters_free(to);
	for (const struct rec_filter *f = from->filters; f; f = f->next) {
		size_t size = sizeof(*f) + f->len * sizeof(f->code[0]);
		struct rec_filter *copy = malloc(size);
		DJ_ASSERT(copy, "out of memory for a filter");
		memcpy(copy, f, size);
		add(to, copy);
	}
}

/* The filter that the program is about to install; NULL if the kernel will not like it. */
static struct rec_filter *read_filter(struct rec_process *proc, uint64_t at)
{
	struct sock_fprog prog;
	if (rec_read(proc, at, &prog, sizeof(prog)) != sizeof(prog) || !prog.len ||
	    prog.len > BPF_MAXINSNS)
		return NULL;
	size_t size = prog.len * sizeof(*prog.filter);
	struct rec_filter *f = malloc(sizeof(*f) + size);
	DJ_ASSERT(f, "out of memory for a filter");
	f->len = prog.len;
	if (rec_read(proc, (uint64_t)(uintptr_t)prog.filter, f->code, size) == size)
		return f;
	free(f);
	return NULL;
}

/* The next place where an arena is wanted, or 0. */
static uint64_t without_arena(struct rec_thread *t)
{
	const struct dj_mapping *m;
	while ((m = dj_mappings_after(&t->proc->maps, t->sys.ahead, DJ_PROT_EXEC))) {
		t->sys.ahead = m->end;
		if (tr_wants_arena(t->proc->tr, m->start))
			return m->start;
	}
	return 0;
}

/* `filter` is the address of a struct sock_fprog, or 0 for the strict mode. After each arena the
 * program comes here again, and after the window has been made executable. */
static enum rec_state begin(struct rec_thread *t, uint64_t filter)
{
	uint64_t pc = without_arena(t);
	if (pc)
		return rec_arena_begin(t, pc);
	if (rec_window_hidden(t->proc))
		return rec_window_show(t);
	t->sys.ahead = 0;
	t->sys.filter = filter ? read_filter(t->proc, filter) : calloc(1, sizeof(*t->sys.filter));
	return rec_make_call(t);
}

static void forget_new(struct rec_thread *t)
{
	free(t->sys.filter);
	t->sys.filter = NULL;
}

enum rec_state rec_begin_seccomp(struct rec_thread *t)
{
	forget_new(t);
	if (t->regs.rdi == SECCOMP_SET_MODE_STRICT)
		return begin(t, 0);
	if (t->regs.rdi == SECCOMP_SET_MODE_FILTER)
		return begin(t, t->regs.rdx);
	return rec_make_call(t);
}

enum rec_state rec_begin_prctl(struct rec_thread *t)
{
	forget_new(t);
	/* it looks at the instruction pointer, which is in translated code (kernel:
	 * Documentation/admin-guide/syscall-user-dispatch.rst) */
	if (t->regs.rdi == PR_SET_SYSCALL_USER_DISPATCH && t->regs.rsi != PR_SYS_DISPATCH_OFF)
		return rec_answer(t, -EINVAL);
	if (t->regs.rdi != PR_SET_SECCOMP)
		return rec_make_call(t);
	if (t->regs.rsi == SECCOMP_MODE_STRICT)
		return begin(t, 0);
	if (t->regs.rsi == SECCOMP_MODE_FILTER)
		return begin(t, t->regs.rdx);
	return rec_make_call(t);
}

void rec_after_seccomp(struct rec_thread *t, const struct user_regs_struct *in, uint64_t r)
{
	(void)r;
	if (in->rax == SYS_prctl && in->rdi == PR_SET_NAME) {
		rec_thread_named(t);
		return;
	}
	if (!t->sys.filter)
		return;
	add(t, t->sys.filter);
	t->sys.filter = NULL;
	if (in->rax != SYS_seccomp || !(in->rsi & SECCOMP_FILTER_FLAG_TSYNC))
		return;
	for (struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->group == t->group && o != t)
			rec_filters_copy(o, t);
}
