/*
 * What system calls wrote to the program's memory, for people to look at.
 *
 * A replay needs none of it: what the program reads is imported when it reads it. But a person at
 * the debugger wants to see the buffer after read(2), all members of a struct stat, the padding of
 * what is copied as a whole; and what the program never looks at is in no other record. So up to
 * `--call-data` bytes of what a call wrote are put behind its record, as SYSDATA records. The table
 * of what writes where is in format/calls.h.
 *
 * Most calls are made in the cache, where there is no table but what is put into the control block:
 * T_WRITES has, by number of the call, the first of its forms in T_FORMS. rt_call_data copies the
 * bytes into the ring. (A few rows are too strange to have a form: such calls leave nothing.) Calls
 * that the supervisor makes, or completes because a signal came, it looks after by itself.
 *
 * Nothing is sure about that memory: another thread may unmap it, and a table says what a call may
 * write, not what it wrote (with MSG_TRUNC recv(2) returns what it would have liked to). So
 * rt_call_data may fault. Then it is led on to its end; what it had not finished is not in the
 * ring. (The kernel resets SIGSEGV to its default if it is blocked or ignored at such a fault.)
 */
#include "format/calls.h"
#include "recorder/recorder.h"

#include <string.h>

_Static_assert(RING_DATA_MAX <= DJ_CODE_MAX && RING_DATA_MAX < AREA_SLACK / 2,
	       "a record takes a piece, and the ring's end has room for it");

/* ---- what the cache is told ------------------------------------------------------------- */

/* -1: there is no form for it. */
static int how(const struct dj_call_write *w)
{
	switch ((enum dj_call_how)w->how) {
	case DJ_CALL_FIXED:
		return FORM_FIXED;
	case DJ_CALL_RESULT:
		return FORM_RESULT;
	case DJ_CALL_COUNT:
		return FORM_COUNT;
	case DJ_CALL_PAGES:
		return FORM_PAGES;
	case DJ_CALL_BITS:
		return FORM_BITS;
	case DJ_CALL_LENGTH:
		return FORM_LENGTH;
	case DJ_CALL_IOVEC:
		return FORM_IOVEC;
	case DJ_CALL_MSGHDR:
		return FORM_MSGHDR;
	case DJ_CALL_IOCTL:
		return FORM_IOCTL;
	case DJ_CALL_MMSGHDR:
	case DJ_CALL_FCNTL:
	case DJ_CALL_PRCTL:
	case DJ_CALL_ARCH_PRCTL:
		break;
	}
	return -1;
}

static void put_form(uint8_t *form, const struct dj_call_write *w)
{
	uint32_t size = w->size;
	form[FORM_ARG] = w->arg;
	form[FORM_HOW] = (uint8_t)how(w);
	form[FORM_OTHER] = w->how == DJ_CALL_RESULT && !w->other ? 6 : w->other;
	form[FORM_LAST] = 1;
	memcpy(form + FORM_SIZES, &size, sizeof(size));
}

void rec_call_data_init(struct rec_thread *t)
{
	uint8_t *writes = (uint8_t *)rec_tcb(t, T_WRITES), *forms = (uint8_t *)rec_tcb(t, T_FORMS);
	size_t rows, requests;
	const struct dj_call_write *table = dj_call_table(&rows);
	const struct dj_call_ioctl *ioctls = dj_call_ioctls(&requests);
	unsigned n = 1, k = 0;

	*rec_tcb(t, T_DATA_LIMIT) = t->rec->opt.call_data;
	*rec_tcb(t, T_DATA_ARG(6)) = UINT64_MAX;
	memset(writes, 0, 512);
	for (size_t i = 0; i < rows && t->rec->opt.call_data; i++) {
		if (how(&table[i]) < 0)
			continue;
		DJ_ASSERT(n < AREA_FORMS, "too many forms of system calls");
		put_form(forms + (size_t)n * FORM_SIZE, &table[i]);
		if (!writes[table[i].nr])
			writes[table[i].nr] = (uint8_t)n;
		else
			forms[(size_t)(n - 1) * FORM_SIZE + FORM_LAST] = 0;
		n++;
	}
	uint8_t *list = (uint8_t *)rec_tcb(t, T_IOCTLS);
	memset(list, 0, sizeof(uint32_t) * AREA_IOCTLS);
	for (size_t i = 0; i < requests; i++) {
		if (!ioctls[i].size) /* most write nothing: those not listed do not, either */
			continue;
		DJ_ASSERT(++k < AREA_IOCTLS, "too many ioctls");
		memcpy(list, &ioctls[i].request, 2);
		memcpy(list + 2, &ioctls[i].size, 2);
		list += 4;
	}
}

bool rec_call_data_faulted(struct rec_thread *t, struct user_regs_struct *r)
{
	uint64_t out = tr_call_data_out(t->proc->tr, r->rip);
	if (!out)
		return false;
	rec_ring_check(t); /* that is another reason to fault */
	r->rip = out;
	r->orig_rax = (unsigned long long)-1;
	return !rec_over(t->rec) && !rec_set_regs(t, r);
}

/* ---- calls that the supervisor makes ------------------------------------------------------ */

struct look {
	struct rec_thread *t;
	uint64_t left, sp;
};

static bool number(void *ctx, uint64_t at, unsigned size, uint64_t *value)
{
	const struct look *l = ctx;
	*value = 0;
	return l->left && rec_read(l->t->proc, at, value, size) == size;
}

static void wrote(void *ctx, uint64_t addr, uint64_t length)
{
	struct look *l = ctx;
	uint8_t bytes[DJ_CODE_MAX];
	struct dj_record r = { .kind = DJ_REC_SYSDATA, .steps = l->t->steps, .bytes = bytes };
	uint64_t left = l->left;
	if (left && addr + 128 - l->sp < AREA_STACK_NEAR && left < UINT64_MAX - AREA_STACK_DATA)
		left += AREA_STACK_DATA;
	if (length > left)
		length = left;
	l->left -= length < l->left ? length : l->left;
	while (addr && length) {
		uint64_t want = length;
		if (want > sizeof(bytes))
			want = sizeof(bytes);
		r.addr = addr;
		r.length = rec_read(l->t->proc, addr, bytes, want);
		if (r.length)
			rec_ring_record(l->t, &r);
		if (r.length < want)
			return;
		addr += want;
		length -= want;
	}
}

void rec_call_data(struct rec_thread *t, uint64_t nr, const struct user_regs_struct *in,
		   uint64_t result)
{
	const struct dj_call call = { .nr = nr,
				      .arg = { in->rdi, in->rsi, in->rdx, in->r10, in->r8, in->r9 },
				      .result = result };
	struct look l = { t, t->rec->opt.call_data, in->rsp };
	const struct dj_call_reader reader = { &l, number, wrote };
	if (l.left && !dj_call_failed(result))
		dj_call_writes(&call, &reader);
}

/* ---- instructions that were executed natively ---------------------------------------------- */

/* At least what the replay takes for written: rp_thread_native_accesses(). */
void rec_native_data(struct rec_thread *t, const struct insn *in, const struct dj_regs *before)
{
	const uint64_t *gpr = before->gpr;
	struct look l = { .t = t, .left = t->rec->opt.call_data ? UINT64_MAX : 0 };
	if (in->attr & INSN_A_STACK && !in->has_mem)
		wrote(&l, gpr[DJ_RSP] - 8, 8);
	if (in->attr & INSN_A_STRING)
		wrote(&l, gpr[DJ_RDI], 64);
	if (in->id == INSN_CLZERO)
		wrote(&l, gpr[DJ_RAX] & ~63ULL, 64);
	if (in->id == INSN_MOVDIR64B)
		wrote(&l, gpr[in->reg & 15], 64);
	if (in->id == INSN_MASKMOVDQU || in->id == INSN_MASKMOVQ)
		wrote(&l,
		      gpr[DJ_RDI] + (in->seg == 4   ? before->fs_base
				     : in->seg == 5 ? before->gs_base
						    : 0),
		      16);
	/* a vector of indices leads anywhere */
	if (in->nopnd && in->opnd[0].kind == OPND_VSIB)
		return;
	if (!in->has_mem || (!(in->mem_access & INSN_W) && !(in->attr & INSN_A_XSTATE)))
		return;
	/* of fxsave and its kin as in the translator's tr_xsave_insn */
	wrote(&l, insn_address(in, gpr, before->fs_base, before->gs_base),
	      in->attr & INSN_A_XSTATE ? 512 + 64 + 256 : in->mem_size);
}
