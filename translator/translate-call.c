/*
 * Translation of system calls that are made in the cache, and of instructions whose result no
 * emulator can know: all leave a record in the ring.
 */
#include "translator/build.h"
#include "translator/runtime.h"

#include <signal.h>

void tr_call_runtime(struct tr_build *b, struct cg *c, const uint8_t *routine)
{
	struct ea back = { .rip = true };
	cg_rm(c, 8, 0x8d, 11, &back, 0);
	uint8_t *at = c->p - 4;
	cg_store_gs(c, 11, T_CALL_RET);
	cg_jmp(c, rt_va(b->arena, routine));
	if (!c->overflow)
		cg_patch32(at, c->delta, cg_va(c));
}

static void cold_call(struct tr_build *b, const uint8_t *routine)
{
	tr_call_runtime(b, b->cold, routine);
}

/* In cold code: to `go` if the call may be made by its arguments, else on. */
static void check_arguments(struct tr_build *b, uint64_t go)
{
	struct cg *c = b->cold;
	cg_store_gs(c, 1, T_SLOT(1));
	cg_store_gs(c, HOME, T_SLOT(HOME));
	cold_call(b, rt_map_check);
	cg_bytes(c, "\x85\xc9", 2); /* test ecx, ecx */
	cg_load_gs(c, 1, T_SLOT(1));
	cg_load_gs(c, HOME, T_SLOT(HOME));
	cg_jcc(c, 5, go);
}

/* The call's record is in the ring: if it came by check_arguments() it gets its log entry. */
static void log_call(struct tr_build *b)
{
	struct cg *c = b->c;
	struct ea call = ea_gs(T_CALL);
	cg_rm(c, 4, 0x83, 7, &call, 1); /* cmp dword gs:[T_CALL], 0 */
	cg8(c, 0);
	cg_jcc(c, 5, cg_va(b->cold));
	cg_store_gs(b->cold, 11, T_CALL_SAVE);
	cold_call(b, rt_map_log);
	cg_load_gs(b->cold, 1, T_HEAD);
	cg_jmp(b->cold, cg_va(c));
}

/* ... and what it wrote, if that is known and wanted. rcx is T_HEAD before and after. */
static void call_data(struct tr_build *b)
{
	struct cg *c = b->c;
	struct ea nr = ea_gs(T_DATA_NR);
	struct ea writes = { .base = 1, .index = -1, .scale = 1, .disp = T_WRITES, .gs = true };
	cg_rm(c, 4, 0x0fb7, 1, &nr, 0);	  /* movzx ecx, word gs:[T_DATA_NR] */
	cg_rm(c, 4, 0x80, 7, &writes, 1); /* cmp byte gs:[rcx + T_WRITES], 0 */
	cg8(c, 0);
	cg_jcc(c, 5, cg_va(b->cold));
	cg_store_gs(b->cold, 11, T_CALL_SAVE);
	cg_imm(b->cold, 1, tr_lag(b) + 1);
	cold_call(b, rt_call_data);
	uint64_t back = cg_va(c);
	cg_load_gs(c, 1, T_HEAD);
	cg_jmp(b->cold, back);
}

static void class_is(struct cg *c, unsigned class)
{
	struct ea at = { .base = 0, .index = -1, .scale = 1, .disp = T_SYSCLASS, .gs = true };
	cg_rm(c, 4, 0x80, 7, &at, 1); /* cmp byte gs:[rax + T_SYSCLASS], class */
	cg8(c, (uint8_t) class);
}

#define NEAR_STACK 0x4000 /* bytes above the stack pointer */

/* Goes to cold code if the supervisor makes the call, which is to be emitted there next. Changes
 * nothing but flags, and may fault at the argument of rt_sigprocmask. */
static void whose(struct tr_build *b)
{
	struct cg *c = b->c;
	struct ea set = ea_base(6, 0);
	/* SIGTRAP is deja's, too (sigtrap.c); handlers of faults see flags (tr_keep_fault_flags),
	 * but who only asks has none, and who wants none has it on the stack, where libc has it: to
	 * look elsewhere might be a fault */
	static const uint8_t faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };
	struct ea action = ea_base(6, 0);
	uint8_t *away[6], *here[6], *fault[sizeof(faults)];

	cg_bytes(c, "\x48\x3d", 2); /* cmp rax, 512 */
	cg32(c, 512);
	away[0] = cg_jcc(c, 3, 0);
	class_is(c, SYS_HERE);
	here[0] = cg_jcc8(c, 0x74);
	class_is(c, SYS_SUPERVISED);
	away[1] = cg_jcc(c, 4, 0);
	class_is(c, SYS_CHECKED);
	cg_jcc(c, 4, cg_va(b->cold));
	class_is(c, SYS_SIGACTION);
	uint8_t *mask = cg_jcc8(c, 0x75);
	cg_bytes(c, "\x83\xff", 2); /* cmp edi, the signal's number */
	cg8(c, SIGTRAP);
	away[2] = cg_jcc(c, 4, 0);
	for (unsigned k = 0; k < sizeof(faults); k++) {
		cg_bytes(c, "\x83\xff", 2);
		cg8(c, faults[k]);
		fault[k] = cg_jcc8(c, 0x74);
	}
	here[1] = cg_jcc8(c, 0xeb);
	for (unsigned k = 0; k < sizeof(faults); k++)
		cg_here8(c, fault[k]);
	cg_bytes(c, "\x48\x85\xf6", 3); /* test rsi, rsi */
	here[2] = cg_jcc8(c, 0x74);
	cg_rr(c, 8, 0x29, 4, 6);	/* sub rsi, rsp */
	cg_bytes(c, "\x48\x81\xfe", 3); /* cmp rsi, NEAR_STACK */
	cg32(c, NEAR_STACK);
	cg_bytes(c, "\x48\x8d\x34\x34", 4); /* lea rsi, [rsp + rsi] */
	away[3] = cg_jcc(c, 3, 0);
	cg_rm(c, 8, 0x83, 7, &action, 1); /* cmp qword [rsi], SIG_IGN */
	cg8(c, 1);
	here[3] = cg_jcc8(c, 0x76);
	away[5] = cg_jmp(c, 0);
	cg_here8(c, mask);
	cg_bytes(c, "\x48\x85\xf6", 3); /* test rsi, rsi */
	here[4] = cg_jcc8(c, 0x74);
	cg_bytes(c, "\x83\xff\x01", 3); /* cmp edi, SIG_UNBLOCK */
	here[5] = cg_jcc8(c, 0x74);
	cg_rm(c, 4, 0xf6, 0, &set, 1); /* test byte [rsi], the bit of SIGTRAP */
	cg8(c, 1 << 4);
	away[4] = cg_jcc(c, 5, 0);
	check_arguments(b, cg_va(c));
	for (int k = 0; k < 6; k++)
		cg_here8(c, here[k]);
	for (unsigned k = 0; k < 6 && !c->overflow; k++)
		cg_patch32(away[k], c->delta, cg_va(b->cold));
}

/*
 * A system call. Those that change the address space, threads, signals or the process (T_SYSCLASS)
 * leave for the supervisor with all state in place. The others run here. After the
 * instruction rcx and r11 are ours until they get the values the program expects.
 */
void tr_call_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;
	struct tr_finsn *fi = &b->f->insn[b->i];

	tr_flags_clobber(b, false);
	for (unsigned r = 0; r < 16; r++)
		if (b->st.spilled & 1u << r)
			tr_reg_reload(c, r);
	b->st.clean |= b->st.spilled;
	b->st.spilled = 0;
	tr_mark_body(b);

	whose(b);
	tr_exit_stop(b, b->cold, b->st, TR_STOP_SYSCALL, in->addr, tr_lag(b), b->live[b->i]);

	uint64_t flags_at = cg_va(c);
	tr_flags_need(b, c); /* for r11 */
	uint64_t flags_end = cg_va(c);
	if (b->st.flags == TR_FLAGS_BOTH)
		b->st.flags = TR_FLAGS_SAVED; /* what follows overwrites them */
	/* for a call that has to be undone (recorder/gather.c) */
	cg_store_gs(c, 1, T_SLOT(1));
	cg_store_gs(c, 11, T_SLOT(11));
	cg_store_gs(c, 0, T_DATA_NR);
	cg_imm_gs(c, T_IN_SYSCALL, 1);
	cg_bytes(c, "\x0f\x05", 2);
	fi->after_syscall = (uint16_t)(cg_va(c) - b->f->entry);
	fi->flags_length = (uint8_t)(flags_end - flags_at);
	fi->flags_before = (uint8_t)(cg_va(c) - flags_end);
	cg_imm_gs(c, T_IN_SYSCALL, 0);
	tr_order_number(b, 0, 0);
	struct ea at = ea_base(1, 0), at8 = ea_base(1, 8), at16 = ea_base(1, 16);
	cg_load_gs(c, 1, T_HEAD);
	cg_store(c, 0, &at8);
	cg_store(c, 11, &at16);
	tr_emit_get_steps(c, 11, (int32_t)tr_lag(b));
	cg_store(c, 11, &at);
	struct ea type = ea_base(1, 7);
	cg_rm(c, 4, 0xc6, 0, &type, 1);
	cg8(c, RING_SYSCALL);
	cg_load(c, 11, &at16);
	cg_lea(b->c, 1, 1, RING_SMALL_SIZE);
	cg_store_gs(c, 1, T_HEAD);
	log_call(b);
	call_data(b);
	tr_ring_check(b, 1);
	cg_addr(c, 1, in->addr + in->len);
	b->st.clean &= ~(1u << 0 | 1u << 1 | 1u << 11);
}

/* An instruction that wrote rax, rdx and maybe rcx is logged; flags and register s are free. */
static void log_two(struct tr_build *b, unsigned s, uint8_t kind)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;
	struct ea m[5];
	for (int k = 0; k < 5; k++)
		m[k] = ea_base((int)s, 8 * k);
	cg_load_gs(c, s, T_HEAD);
	cg_store(c, 0, &m[1]);
	cg_store(c, 2, &m[2]);
	cg_store(c, 1, &m[3]);
	cg_addr(c, 0, in->addr + in->len);
	cg_store(c, 0, &m[4]);
	tr_emit_get_steps(c, 0, (int32_t)tr_lag(b));
	cg_store(c, 0, &m[0]);
	struct ea type = ea_base((int)s, 7), length = ea_base((int)s, 6);
	cg_rm(c, 4, 0xc6, 0, &type, 1);
	cg8(c, kind);
	cg_rm(c, 4, 0xc6, 0, &length, 1);
	cg8(c, in->len);
	cg_load(c, 0, &m[1]);
	cg_lea(b->c, s, s, RING_TSC_SIZE);
	cg_store_gs(c, s, T_HEAD);
	tr_ring_check(b, s);
}

/* rdtsc, rdtscp: executed here and logged. */
void tr_tsc_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	int s = tr_reg_scratch(b, 0x7, false);
	if (b->failed)
		return;
	tr_flags_clobber(b, true);
	cg_bytes(b->c, in->bytes, in->len);
	log_two(b, (unsigned)s, RING_TSC);
}

/* All registers are the program's but HOME, which is free, as flags are. */
static void all_but_home(struct tr_build *b)
{
	tr_flags_clobber(b, false);
	for (unsigned r = 0; r < 16; r++)
		if (r != HOME && b->st.spilled & 1u << r)
			tr_reg_reload(b->c, r);
	b->st.clean |= b->st.spilled & ~HOME_BIT;
	b->st.spilled &= HOME_BIT;
	tr_reg_spill(b, HOME);
}

/* Into the ring, where `at` is: the position, rip behind the instruction, its bytes. Flags and
 * register `t` are free. */
static void log_insn(struct tr_build *b, unsigned at, unsigned t, uint8_t type, int32_t bytes)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;
	struct ea m = ea_base((int)at, 0), m8 = ea_base((int)at, 8);
	cg_addr(c, t, in->addr + in->len);
	cg_store(c, t, &m8);
	tr_emit_get_steps(c, t, (int32_t)tr_lag(b));
	cg_store(c, t, &m);
	struct ea kind = ea_base((int)at, 7), length = ea_base((int)at, 6);
	cg_rm(c, 4, 0xc6, 0, &kind, 1);
	cg8(c, type);
	cg_rm(c, 4, 0xc6, 0, &length, 1);
	cg8(c, in->len);
	for (unsigned i = 0; i < 4; i++) {
		struct ea part = ea_base((int)at, bytes + 4 * (int32_t)i);
		uint32_t v = 0;
		for (unsigned k = 4 * i; k < in->len && k < 4 * i + 4; k++)
			v |= (uint32_t)in->bytes[k] << 8 * (k - 4 * i);
		cg_rm(c, 4, 0xc7, 0, &part, 4);
		cg32(c, v);
	}
}

/*
 * xrstor, of which the dynamic linker executes one for each function that it finds when that is
 * first called: executed here, and what it has loaded is logged. If it is about more than vector
 * registers, or what comes with them on newer processors, the supervisor executes it.
 */
void tr_xrstor_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	const uint32_t others = ~0xeeu; /* x87, and what lies behind AVX-512 (SDM vol. 1, 13.1) */
	struct ea mxcsr = ea_base(HOME, 16);
	struct cg *c = b->c;
	uint8_t *away[2];

	all_but_home(b);
	cg8(c, 0xa9); /* test eax, imm32 */
	cg32(c, others);
	away[0] = cg_jcc(c, 5, 0);
	cg_bytes(c, "\x85\xd2", 2); /* test edx, edx */
	away[1] = cg_jcc(c, 5, 0);
	for (unsigned k = 0; k < 2 && !c->overflow; k++)
		cg_patch32(away[k], c->delta, cg_va(b->cold));
	tr_exit_stop(b, b->cold, b->st, TR_STOP_NATIVE, in->addr, tr_lag(b), b->live[b->i]);
	tr_mark_body(b);
	cg_bytes(c, in->bytes, in->len);
	cg_load_gs(c, HOME, T_HEAD);
	cg_rm(c, 4, 0x0fae, 3, &mxcsr, 0); /* stmxcsr */
	for (int r = 0; r < 16; r++) {
		struct ea m = ea_base(HOME, RING_XRSTOR_YMM + 32 * r);
		cg_vex_rm(c, VMOVUPS_STORE, true, (unsigned)r, 0, &m);
	}
	cg_store_gs(c, 1, T_SLOT(1));
	log_insn(b, HOME, 1, RING_XRSTOR, RING_XRSTOR_INSN);
	cg_load_gs(c, 1, T_SLOT(1));
	cg_lea(c, HOME, HOME, RING_XRSTOR_SIZE);
	cg_store_gs(c, HOME, T_HEAD);
	tr_ring_check(b, HOME);
}

/* xgetbv of XCR0, of which programs see three bits (recorder/native.c); the supervisor answers what
 * is asked for besides. */
void tr_xgetbv_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;

	all_but_home(b);
	cg_bytes(c, "\x85\xc9", 2); /* test ecx, ecx */
	uint8_t *other = cg_jcc(c, 5, 0);
	if (!c->overflow)
		cg_patch32(other, c->delta, cg_va(b->cold));
	tr_exit_stop(b, b->cold, b->st, TR_STOP_NATIVE, in->addr, tr_lag(b), b->live[b->i]);
	cg_bytes(c, in->bytes, in->len);
	cg_bytes(c, "\x83\xe0\x07", 3); /* and eax, 7 */
	cg_bytes(c, "\x31\xd2", 2);	/* xor edx, edx */
	log_two(b, HOME, RING_XGETBV);
}

/* What writes one register, and maybe flags, and nobody knows what: executed here, and logged. */
void tr_result_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;
	bool flags = in->flags_written & ARITH;
	int s = tr_reg_scratch(b, 0, false), t = tr_reg_scratch(b, 1u << s, false);
	struct ea value = ea_base(s, 16);

	if (b->failed)
		return;
	if (!flags)
		tr_flags_clobber(b, true);
	else if (tr_flags_killed(in) != ARITH)
		tr_flags_need(b, c);
	cg_bytes(c, in->bytes, in->len);
	b->st.spilled &= ~in->gpr_full;
	b->st.clean &= ~in->gpr_written;
	if (flags) {
		b->st.flags = TR_FLAGS_HW;
		b->st.lost &= ~tr_flags_killed(in);
		tr_flags_save(b);
		b->st.flags = TR_FLAGS_SAVED;
	}
	cg_load_gs(c, (unsigned)s, T_HEAD);
	if (flags) { /* all of them, where they are to lie */
		cg_lea(c, (unsigned)s, (unsigned)s, RING_RESULT_FLAGS + 8);
		cg_rr(c, 8, 0x87, (unsigned)s, 4); /* xchg s, rsp */
		cg8(c, 0x9c);
		cg_rr(c, 8, 0x87, (unsigned)s, 4);
		cg_lea(c, (unsigned)s, (unsigned)s, -RING_RESULT_FLAGS);
	}
	cg_store(c, in->opnd[0].reg, &value);
	log_insn(b, (unsigned)s, (unsigned)t, RING_RESULT, RING_RESULT_INSN);
	cg_lea(c, (unsigned)s, (unsigned)s, RING_RESULT_SIZE);
	cg_store_gs(c, (unsigned)s, T_HEAD);
	tr_ring_check(b, (unsigned)s);
}

/* cpuid: answered from a table, and logged; the supervisor answers what is not there. */
void tr_cpuid_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;

	all_but_home(b);
	cg_imm_gs(c, T_SAVE(0), tr_lag(b));
	cg_addr(c, HOME, in->addr + in->len);
	cg_store_gs(c, HOME, T_SAVE(1));
	tr_call_runtime(b, c, rt_cpuid);
	cg_bytes(c, "\x45\x85\xdb", 3); /* test r11d, r11d */
	uint8_t *unknown = cg_jcc(c, 4, 0);
	if (!c->overflow)
		cg_patch32(unknown, c->delta, cg_va(b->cold));
	tr_exit_stop(b, b->cold, b->st, TR_STOP_NATIVE, in->addr, tr_lag(b), b->live[b->i]);
	cg_load_gs(c, HOME, T_HEAD);
	tr_ring_check(b, HOME);
	b->st.clean &= ~0xfu; /* rax, rcx, rdx, rbx */
}
