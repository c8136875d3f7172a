/*
 * Routines that translated code jumps to: position-independent, copied to the start of
 * every code arena. They keep nothing on the program's stack: state is in the control
 * block (gs:), return addresses included. On entry arithmetic flags are free.
 *
 * Long: what is copied is one piece of code, from rt_begin to rt_end.
 */
#include "translator/area.h"

	.section .rodata
	.globl	rt_heads, rt_heads_end
	.p2align 2
rt_heads:

	/* bulk loops: start, end, and the loop that does the same element by element */
	.section .rodata.bulk, "a"
	.globl	rt_bulks, rt_bulks_end
	.p2align 2
rt_bulks:

	.text
	.globl	rt_begin, rt_import, rt_import_masked, rt_import_patch8, rt_other, rt_places, rt_miss, rt_ask, rt_ask_end, rt_syscall, rt_apart, rt_map_check, rt_open_check, rt_open_check_end, rt_open_check_out, rt_map_log, rt_cpuid, rt_call_data, rt_call_data_out, rt_call_data_end, rt_state_data, rt_order_wait, rt_order_spin, rt_order_spin_end, rt_order_two, rt_order_hold, rt_order_look, rt_order_give, rt_end

	.macro	ADD_STEPS reg
	add	%gs:T_STEPS(0), \reg
	add	%gs:T_STEPS(1), \reg
	add	%gs:T_STEPS(2), \reg
	add	%gs:T_STEPS(3), \reg
	.endm

	.p2align 6
rt_begin:

/*
 * Import: the load of T_IMP_DESC.size bytes at T_IMP_ADDR found something else than the shadow.
 * Copy each line it touches from memory to shadow and ring. If another thread has had a number since this one's last, the import is
 * an ordered event, with a number that is taken when all has been read.
 */
rt_import:
	mov	%rax, %gs:T_SAVE(0)
	mov	%rcx, %gs:T_SAVE(1)
	mov	%rdx, %gs:T_SAVE(2)
	mov	%rsi, %gs:T_SAVE(3)
	mov	%gs:T_IMP_ADDR, %rcx
	movzbl	%gs:T_IMP_DESC, %edx
	lea	-1(%rcx,%rdx), %rdx
import_lines:
	and	$-64, %rdx
	and	$-64, %rcx
1:	mov	%gs:T_HEAD, %rax
	movzwl	%gs:(T_IMP_DESC + 2), %esi
	ADD_STEPS %rsi
	mov	%rsi, (%rax)
	movzbl	%gs:(T_IMP_DESC + 1), %esi
	movb	%sil, 6(%rax)
	movb	$RING_IMPORT, 7(%rax)
	mov	%rcx, 8(%rax)
	mov	%gs:T_IMP_REP, %rsi
	mov	%rsi, 16(%rax)
	.irp	k, 0, 8, 16, 24, 32, 40, 48, 56
	mov	\k(%rcx), %rsi
	mov	%rsi, 24+\k(%rax)
	mov	%rsi, %gs:\k(%ecx)
	.endr
	add	$RING_IMPORT_SIZE, %rax
	mov	%rax, %gs:T_HEAD
	cmp	%gs:T_LIMIT, %rax
	jae	5f
3:	cmp	%rdx, %rcx
	lea	64(%rcx), %rcx
	jne	1b
	testb	$ORDER_IMPORTS, %gs:T_ORDER_SHARED
	jnz	7f
6:	mov	%gs:T_SAVE(3), %rsi
	mov	%gs:T_SAVE(2), %rdx
	mov	%gs:T_SAVE(1), %rcx
	mov	%gs:T_SAVE(0), %rax
	jmp	*%gs:T_IMP_RET
7:	mov	%gs:T_ORDER_NUMBER, %rsi
	cmp	%rsi, %gs:T_SEQ
	je	6b
	mov	$1, %esi
	lock xadd %rsi, %gs:T_ORDER_NUMBER
	inc	%rsi
	mov	%rsi, %gs:T_SEQ
	mov	%gs:T_HEAD, %rax	/* the slack has room */
	mov	%rsi, 8(%rax)
	mov	%gs:T_IMP_REP, %rsi
	mov	%rsi, 16(%rax)
	movzwl	%gs:(T_IMP_DESC + 2), %esi
	ADD_STEPS %rsi
	mov	%rsi, (%rax)
	inc	%rsi
	mov	%rsi, %gs:T_SEQ_AT
	movb	$RING_ORDER, 7(%rax)
	add	$RING_ORDER_SIZE, %rax
	mov	%rax, %gs:T_HEAD
	jmp	6b
5:	int3
	.long	STOP_RING_FULL
	jmp	3b

/*
 * Import for a masked load of elements of T_IMP_DESC.size bytes at T_IMP_ADDR: from the first that T_MASK
 * selects to the last. What lies outside need not be there.
 */
rt_import_masked:
	mov	%rax, %gs:T_SAVE(0)
	mov	%rcx, %gs:T_SAVE(1)
	mov	%rdx, %gs:T_SAVE(2)
	mov	%rsi, %gs:T_SAVE(3)
	mov	%gs:T_IMP_ADDR, %rcx
	movzbl	%gs:T_IMP_DESC, %esi
	mov	%gs:T_MASK, %eax
	bsr	%eax, %edx
	inc	%edx
	imul	%esi, %edx
	lea	-1(%rcx,%rdx), %rdx
	bsf	%eax, %eax
	imul	%esi, %eax
	add	%rax, %rcx
	jmp	import_lines

/*
 * Import for an atomic read-modify-write, which has already changed memory: as above, and then
 * the value it really consumed (T_SAVE(4), and T_SAVE(5) for 16 bytes) is put into the ring's
 * and the shadow's copy. An operand that straddles lines takes two records.
 */
rt_import_patch8:
	mov	%rax, %gs:T_SAVE(0)
	mov	%rcx, %gs:T_SAVE(1)
	mov	%rdx, %gs:T_SAVE(2)
	mov	%rsi, %gs:T_SAVE(3)
	mov	%gs:T_IMP_ADDR, %rcx
	movzbl	%gs:T_IMP_DESC, %edx
	lea	-1(%rcx,%rdx), %rdx
	xor	%rcx, %rdx
	test	$-64, %rdx
	jnz	20f
	and	$-64, %rcx
	mov	%gs:T_HEAD, %rax
	movzwl	%gs:(T_IMP_DESC + 2), %esi
	ADD_STEPS %rsi
	mov	%rsi, (%rax)
	movb	$0, 6(%rax)
	movb	$RING_IMPORT, 7(%rax)
	mov	%rcx, 8(%rax)
	movq	$0, 16(%rax)
	.irp	k, 0, 8, 16, 24, 32, 40, 48, 56
	mov	\k(%rcx), %rsi
	mov	%rsi, 24+\k(%rax)
	.endr
	mov	%gs:T_IMP_ADDR, %ecx
	and	$63, %ecx
	lea	24(%rax,%rcx), %rcx
	mov	%gs:T_SAVE(4), %rsi
	movzbl	%gs:T_IMP_DESC, %edx
	cmp	$1, %edx
	je	1f
	cmp	$2, %edx
	je	2f
	cmp	$4, %edx
	je	4f
	mov	%rsi, (%rcx)
	cmp	$8, %edx
	je	9f
	mov	%gs:T_SAVE(5), %rsi
	mov	%rsi, 8(%rcx)
	jmp	9f
1:	mov	%sil, (%rcx)
	jmp	9f
2:	mov	%si, (%rcx)
	jmp	9f
4:	mov	%esi, (%rcx)
9:	mov	8(%rax), %ecx
	.irp	k, 0, 8, 16, 24, 32, 40, 48, 56
	mov	24+\k(%rax), %rsi
	mov	%rsi, %gs:\k(%rcx)
	.endr
	add	$RING_IMPORT_SIZE, %rax
	mov	%rax, %gs:T_HEAD
	cmp	%gs:T_LIMIT, %rax
	jae	5f
3:	mov	%gs:T_SAVE(3), %rsi
	mov	%gs:T_SAVE(2), %rdx
	mov	%gs:T_SAVE(1), %rcx
	mov	%gs:T_SAVE(0), %rax
	jmp	*%gs:T_IMP_RET
5:	int3
	.long	STOP_RING_FULL
	jmp	3b

	/* Straddling: both lines to the shadow, where they lie in a row, the value over them, and
	 * from there to the ring. rdx is the place of the line at hand. */
20:	and	$-64, %rcx
	mov	%ecx, %edx
	.irp	k, 0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120
	mov	\k(%rcx), %rsi
	mov	%rsi, %gs:\k(%rdx)
	.endr
	mov	%gs:T_IMP_ADDR, %ecx
	mov	%gs:T_SAVE(4), %rsi
	movzbl	%gs:T_IMP_DESC, %eax
	cmp	$2, %eax
	je	22f
	cmp	$4, %eax
	je	24f
	mov	%rsi, %gs:(%rcx)
	jmp	29f
22:	mov	%si, %gs:(%rcx)
	jmp	29f
24:	mov	%esi, %gs:(%rcx)
29:	mov	%gs:T_HEAD, %rax
	mov	%gs:T_IMP_ADDR, %rcx
	and	$-64, %rcx
	.rept	2
	movzwl	%gs:(T_IMP_DESC + 2), %esi
	ADD_STEPS %rsi
	mov	%rsi, (%rax)
	movb	$0, 6(%rax)
	movb	$RING_IMPORT, 7(%rax)
	mov	%rcx, 8(%rax)
	movq	$0, 16(%rax)
	.irp	k, 0, 8, 16, 24, 32, 40, 48, 56
	mov	%gs:\k(%rdx), %rsi
	mov	%rsi, 24+\k(%rax)
	.endr
	add	$RING_IMPORT_SIZE, %rax
	add	$64, %rcx
	add	$64, %rdx
	.endr
	mov	%rax, %gs:T_HEAD
	cmp	%gs:T_LIMIT, %rax
	jae	5b
	jmp	3b

/*
 * Indirect branches. r11 is the wanted address; the program's r11 and rcx are in their slots and its flags in T_FLAGS. The fast
 * table has led to a stub that was not meant, or to nothing. Others change the tables meanwhile (doc/code-cache.md): a key and its
 * value may not belong together. What is found gets its place in the fast table back now and then: of two targets with the same low
 * bits that of one which is wanted a million times goes to another one that was entered later, and is wanted once.
 */
	.p2align 4
rt_other:
	mov	%rax, %gs:T_SLOT(0)
	imul	$(AREA_TARGET_MIX - (1 << 32)), %r11, %rax
	shr	$32, %rax
	add	%eax, %eax
	.p2align 3			/* the mask, behind one byte, is changed by one store */
rt_places:
1:	and	$((2 << AREA_TARGET_BITS) - 2), %eax
	cmp	%r11, %gs:T_TARGETS(,%rax,8)
	je	3f
	cmpq	$0, %gs:T_TARGETS(,%rax,8)
	je	4f
	add	$2, %eax
	jmp	1b
3:	test	%r11, %r11		/* address 0 looks like an empty place */
	jz	4f
	mov	%gs:(T_TARGETS + 8)(,%rax,8), %rcx
	cmpl	$0, %gs:T_ALONE
	jne	6f
5:	mov	%gs:T_SLOT(0), %rax
	jmp	*%rcx
6:	decl	%gs:T_TURN
	jns	5b
	movl	$FAST_TURNS, %gs:T_TURN
	movslq	3(%rcx), %rax		/* a target's stub (tr_emit_indirect) says whose it is */
	cmpw	$0x8149, (%rcx)		/* cmp $TARGET, %r11 */
	je	7f
	cmpw	$0x8d48, (%rcx)		/* lea TARGET(%rip), %rcx */
	jne	5b
	lea	7(%rcx,%rax), %rax
7:	cmp	%r11, %rax
	jne	5b
	movzwl	%r11w, %eax
	mov	%rcx, %gs:T_FAST(,%rax,8)
	jmp	5b
4:	mov	%gs:T_SLOT(0), %rax
rt_miss:
	cmpq	$0, %gs:T_LISTEN
	je	9f
	mov	%r11, %gs:T_ASKED
	movq	$ASK_INDIRECT, %gs:T_ASK
	mov	$ASK_TRIES, %ecx
1:	pause
	cmpq	$0, %gs:T_ANSWER
	jne	5f
	cmpq	$0, %gs:T_LISTEN
	je	3f
	dec	%ecx
	jnz	1b
3:	xor	%ecx, %ecx
	xchg	%rcx, %gs:T_ASK
	test	%rcx, %rcx
	jnz	9f
4:	pause				/* it is being answered */
	cmpq	$0, %gs:T_ANSWER
	je	4b
5:	mov	%gs:T_ANSWER, %rcx
	movq	$0, %gs:T_ANSWER
	cmp	$ANSWER_STOP, %rcx
	je	9f
	jmp	*%rcx
9:	int3
	.long	STOP_IBL_MISS

/*
 * A link leads to no fragment yet. r11 is its number, the program's r11 is in its slot, and all else is the program's, flags
 * too, which none of these instructions changes. If the supervisor listens it is asked for a fragment, else there is a stop.
 */
	.p2align 4
8:	mov	%gs:T_ASKED, %r11
9:	mov	%gs:T_SLOT(1), %rcx
	int3
	.long	STOP_LINK
rt_ask:
	mov	%rcx, %gs:T_SLOT(1)
	mov	%gs:T_LISTEN, %rcx
	jrcxz	9b
	mov	%r11, %gs:T_ASKED
	mov	%r11, %gs:T_ASK
	mov	$ASK_TRIES, %r11d
1:	pause
	mov	%gs:T_ANSWER, %rcx
	jrcxz	2f
	jmp	5f
2:	mov	%gs:T_LISTEN, %rcx
	jrcxz	3f
	lea	-1(%r11), %r11
	mov	%r11, %rcx
	jrcxz	3f
	jmp	1b
3:	mov	$0, %ecx
	xchg	%rcx, %gs:T_ASK
	jrcxz	4f
6:	jmp	8b
4:	pause				/* it is being answered */
	mov	%gs:T_ANSWER, %rcx
	jrcxz	4b
5:	movq	$0, %gs:T_ANSWER
	mov	%rcx, %gs:T_ASK_TO
	lea	-ANSWER_STOP(%rcx), %rcx
	jrcxz	6b
	mov	%gs:T_SLOT(1), %rcx
	jmp	*%gs:T_ASK_TO
rt_ask_end:

/*
 * A gather that found something else than the shadow in one of its elements: each element in turn, imported if it differs and then
 * taken from the shadow, because a later element's import may lie in the same place of the shadow. T_VEC(0), (1), (2) are
 * destination, indices and mask. On return T_VEC(0) is the result.
 */
	.macro	GATHER name, size, index
	.globl	rt_gather_\name
	.p2align 4
rt_gather_\name:
	mov	%rax, %gs:T_GATHER_SAVE(0)
	mov	%rcx, %gs:T_GATHER_SAVE(1)
	mov	%rdx, %gs:T_GATHER_SAVE(2)
	mov	%rsi, %gs:T_GATHER_SAVE(3)
	mov	%rdi, %gs:T_GATHER_SAVE(4)
	mov	%r8, %gs:T_GATHER_SAVE(5)
	xor	%esi, %esi		/* the element */
	xor	%edi, %edi		/* its ordinal << 8: how many were loaded before */
1:	.if	\size == 4
	cmpl	$0, %gs:T_VEC(2)(,%rsi,4)
	.else
	cmpq	$0, %gs:T_VEC(2)(,%rsi,8)
	.endif
	jge	4f
	.if	\index == 4
	movslq	%gs:T_VEC(1)(,%rsi,4), %rdx
	.else
	mov	%gs:T_VEC(1)(,%rsi,8), %rdx
	.endif
	movzbl	%gs:T_GATHER, %ecx
	shl	%cl, %rdx
	add	%gs:T_GATHER_BASE, %rdx
	and	%gs:T_GATHER_WRAP, %rdx
	.if	\size == 4
	mov	(%rdx), %eax
	cmp	%gs:(%edx), %eax
	.else
	mov	(%rdx), %rax
	cmp	%gs:(%edx), %rax
	.endif
	je	3f
	mov	%rdx, %gs:T_IMP_ADDR
	mov	%gs:T_GATHER, %r8d
	and	$0xffff0000, %r8d
	lea	\size(%r8,%rdi), %r8d
	mov	%r8d, %gs:T_IMP_DESC
	lea	2f(%rip), %r8
	mov	%r8, %gs:T_IMP_RET
	jmp	rt_import
2:	.if	\size == 4
	mov	%gs:(%edx), %eax
3:	mov	%eax, %gs:T_VEC(0)(,%rsi,4)
	.else
	mov	%gs:(%edx), %rax
3:	mov	%rax, %gs:T_VEC(0)(,%rsi,8)
	.endif
	add	$0x100, %edi
4:	inc	%esi
	movzbl	%gs:(T_GATHER + 1), %ecx
	cmp	%ecx, %esi
	jb	1b
	mov	%gs:T_GATHER_SAVE(5), %r8
	mov	%gs:T_GATHER_SAVE(4), %rdi
	mov	%gs:T_GATHER_SAVE(3), %rsi
	mov	%gs:T_GATHER_SAVE(2), %rdx
	mov	%gs:T_GATHER_SAVE(1), %rcx
	mov	%gs:T_GATHER_SAVE(0), %rax
	jmp	*%gs:T_GATHER_RET
	.endm
	GATHER	dd, 4, 4
	GATHER	dq, 8, 4
	GATHER	qd, 4, 8
	GATHER	qq, 8, 8

/*
 * Ordered events (doc/order.md). Another thread has the lock at T_ORDER_LOCKS + rcx: wait until it looks free, and go on at rdx. It
 * is held for a few instructions only, so long waiting means that its owner does not run. eax counts (tr_waits).
 */
#define ORDER_SPINS 200
rt_order_wait:
	mov	$ORDER_SPINS, %eax
rt_order_spin:
	pause
	cmpq	$0, %gs:T_ORDER_LOCKS(%rcx)
	je	1f
	dec	%eax
	jnz	rt_order_spin
rt_order_spin_end:
	int3
	.long	STOP_ORDER
1:	jmp	*%rdx

/*
 * Take the locks of an operand that may straddle two lines: its first byte is at ecx, its last at eax (of the addresses, what
 * T_ORDER_LOCKS needs). The lower lock first, so that two threads never wait for each other. Goes on at T_ORDER_RET; rdx is free,
 * too.
 */
rt_order_two:
	and	$ORDER_PLACE, %ecx
	and	$ORDER_PLACE, %eax
	cmp	%ecx, %eax
	jae	1f
	mov	%eax, %edx
	mov	%ecx, %eax
	mov	%edx, %ecx
1:	mov	%rax, %gs:T_ORDER_OTHER
2:	mov	%gs:T_ORDER_ID, %rdx
	xor	%eax, %eax
	lock cmpxchg %rdx, %gs:T_ORDER_LOCKS(%rcx)
	jne	3f
	cmp	%rcx, %gs:T_ORDER_OTHER
	mov	%gs:T_ORDER_OTHER, %rcx
	jne	2b
	jmp	*%gs:T_ORDER_RET
3:	lea	2b(%rip), %rdx
	jmp	rt_order_wait

/*
 * A plain load or store that is made under locks (doc/order.md, "Models"): rax, rcx and rdx are in T_ORDER_SAVE, ecx is the operand's
 * first byte and eax its last. Goes on at T_ORDER_BACK with everything as it was.
 */
rt_order_hold:
	and	$ORDER_PLACE, %ecx
	and	$ORDER_PLACE, %eax
	mov	%ecx, %gs:T_ORDER_HELD
	mov	%eax, %gs:(T_ORDER_HELD + 4)
	lea	1f(%rip), %rdx
	mov	%rdx, %gs:T_ORDER_RET
	jmp	rt_order_two
1:	mov	%gs:T_ORDER_SAVE(0), %rax
	mov	%gs:T_ORDER_SAVE(1), %rcx
	mov	%gs:T_ORDER_SAVE(2), %rdx
	jmp	*%gs:T_ORDER_BACK

/*
 * It has been made: a number, if others have had one since this thread's last, and the locks are given back (rt_order_give). Or there
 * were none (rt_order_look). ecx is the instruction's place in its fragment, and its value is in T_ORDER_SAVE(1). Goes on at
 * T_ORDER_RET.
 */
rt_order_give:
	mov	%rax, %gs:T_ORDER_SAVE(0)
	mov	%rdx, %gs:T_ORDER_SAVE(2)
	mov	%gs:T_ORDER_NUMBER, %rax
	cmp	%rax, %gs:T_SEQ
	je	1f
	mov	$1, %eax
	lock xadd %rax, %gs:T_ORDER_NUMBER
	inc	%rax
1:	mov	%gs:T_ORDER_HELD, %edx
	movq	$0, %gs:T_ORDER_LOCKS(%rdx)
	cmp	%gs:(T_ORDER_HELD + 4), %edx
	mov	%gs:(T_ORDER_HELD + 4), %edx
	je	2f
	movq	$0, %gs:T_ORDER_LOCKS(%rdx)
2:	cmp	%rax, %gs:T_SEQ
	jne	3f
	jmp	4f
rt_order_look:
	mov	%rax, %gs:T_ORDER_SAVE(0)
	mov	%rdx, %gs:T_ORDER_SAVE(2)
	mov	%gs:T_ORDER_NUMBER, %rax
	cmp	%rax, %gs:T_SEQ
	je	4f
	mov	$1, %eax
	lock xadd %rax, %gs:T_ORDER_NUMBER
	inc	%rax
3:	mov	%rax, %gs:T_SEQ
	mov	%gs:T_HEAD, %rdx
	mov	%rax, 8(%rdx)
	movq	$0, 16(%rdx)
	ADD_STEPS %rcx
	mov	%rcx, (%rdx)
	inc	%rcx
	mov	%rcx, %gs:T_SEQ_AT
	movb	$RING_ORDER, 7(%rdx)
	add	$RING_ORDER_SIZE, %rdx
	mov	%rdx, %gs:T_HEAD
	cmp	%gs:T_LIMIT, %rdx
	jae	5f
4:	mov	%gs:T_ORDER_SAVE(0), %rax
	mov	%gs:T_ORDER_SAVE(1), %rcx
	mov	%gs:T_ORDER_SAVE(2), %rdx
	jmp	*%gs:T_ORDER_RET
5:	int3
	.long	STOP_RING_FULL
	jmp	4b

/*
 * CPUID, if what it says is known. T_SAVE(0) is the instruction's place in its fragment, T_SAVE(1) the
 * address behind it; r11 and flags are free. Goes on at T_CALL_RET, with r11d 1 and a record in the ring; or with
 * 0 and everything as it was.
 */
rt_cpuid:
	mov	%rdx, %gs:T_SAVE(2)
	xor	%r11d, %r11d
1:	cmpl	$0, %gs:(T_CPUID + CPUID_THERE)(%r11)
	je	3f
	cmp	%eax, %gs:(T_CPUID + CPUID_LEAF)(%r11)
	jne	2f
	mov	%ecx, %edx
	and	%gs:(T_CPUID + CPUID_MASK)(%r11), %edx
	cmp	%edx, %gs:(T_CPUID + CPUID_SUB)(%r11)
	je	4f
2:	add	$CPUID_SIZE, %r11d
	cmp	$AREA_CPUID, %r11d
	jb	1b
3:	mov	%gs:T_SAVE(2), %rdx
	xor	%r11d, %r11d
	jmp	*%gs:T_CALL_RET
4:	mov	%gs:T_HEAD, %rdx
	mov	%gs:T_SAVE(0), %eax
	ADD_STEPS %rax
	mov	%rax, (%rdx)
	movb	$RING_CPUID, 7(%rdx)
	mov	%gs:T_SAVE(1), %rax
	mov	%rax, 24(%rdx)
	mov	%gs:(T_CPUID + CPUID_EDX)(%r11), %ecx
	mov	%ecx, 20(%rdx)
	mov	%gs:(T_CPUID + CPUID_EAX)(%r11), %eax
	mov	%eax, 8(%rdx)
	mov	%gs:(T_CPUID + CPUID_EBX)(%r11), %ebx
	mov	%ebx, 12(%rdx)
	mov	%gs:(T_CPUID + CPUID_ECX)(%r11), %ecx
	mov	%ecx, 16(%rdx)
	add	$RING_SMALL_SIZE, %rdx
	mov	%rdx, %gs:T_HEAD
	mov	-12(%rdx), %edx
	mov	$1, %r11d
	jmp	*%gs:T_CALL_RET

/* A system call made on behalf of the supervisor, by single-stepping its first instruction. */
rt_syscall:
	syscall
	int3
	.long	STOP_SYSCALL_DONE

/* Instructions that are not executed where the program has them (tr_put_apart), with a trap behind each. */
rt_apart:
	.skip	16 * TR_APART, 0xcc

/*
 * May the system call with number eax be made in the cache, by its arguments (doc/mappings.md)?
 * rcx and r11 are free; T_CALL_RET is entered with ecx 1 if so, else 0. Of those that are logged the thread has T_MAPS until
 * rt_map_log has written the entry.
 */
#define NR_MMAP	    9
#define NR_MPROTECT 10
#define NR_MUNMAP   11
#define NR_BRK	    12
#define NR_MREMAP   25
#define NR_LSEEK    8
#define NR_PWRITE64 18
#define NR_MADVISE  28
#define NR_PWRITEV  296
#define NR_PWRITEV2 328
#define NR_MEMBARRIER 324
#define NR_PRLIMIT64 302
#define NR_SCHED_GETAFFINITY 204
#define RLIMIT_STACK 3
#define NR_OPEN	    2
#define NR_OPENAT   257
#define PROC	    0x2f636f72702f /* "/proc/" */
#define MEMBARRIER_RSEQ 0x180 /* commands; linux/membarrier.h */
#define READ_WRITE  3 /* PROT_ */
#define READ_EXECUTE 5
#define PAGE	    4096
/* MAP_SHARED, PRIVATE, FIXED, ANONYMOUS, 32BIT, DENYWRITE, EXECUTABLE, LOCKED, NORESERVE, POPULATE,
 * NONBLOCK, STACK, FIXED_NOREPLACE */
#define KNOWN_FLAGS 0x13f873
#define ANONYMOUS   0x20
#define MAYMOVE	    1
#define MAPS_TRIES  200
	.macro	IN_DATA start, there /* to `there` if [start, rcx) is in a range of data */
	.irp	i, 0, 1, 2, 3
	cmp	%gs:T_DATA(\i), \start
	jb	90f
	cmp	%gs:(T_DATA(\i) + 8), %rcx
	jbe	\there
90:
	.endr
	.endm

rt_map_check:
	cmp	$NR_MADVISE, %eax
	je	10f
	cmp	$NR_LSEEK, %eax
	je	11f
	cmp	$NR_PWRITE64, %eax
	je	12f
	cmp	$NR_PWRITEV, %eax
	je	12f
	cmp	$NR_PWRITEV2, %eax
	je	12f
	cmp	$NR_MEMBARRIER, %eax
	je	25f
	cmp	$NR_OPENAT, %eax
	je	27f
	cmp	$NR_OPEN, %eax
	je	26f
	cmp	$NR_PRLIMIT64, %eax
	je	34f
	cmp	$NR_SCHED_GETAFFINITY, %eax
	je	35f
	mov	%gs:T_LOG_HEAD, %rcx
	cmp	%gs:T_LOG_END, %rcx
	jae	8f
	mov	%rax, %r11
	movl	$MAPS_TRIES, %gs:T_MAPS_TRIES
28:	mov	%gs:T_ORDER_ID, %rcx
	xor	%eax, %eax
	lock cmpxchg %rcx, %gs:T_MAPS
	jne	30f
	mov	%r11, %rax
	cmp	%gs:T_PERMIT(4), %rax
	je	32f
33:	cmp	$NR_MMAP, %eax
	je	1f
	cmp	$NR_MUNMAP, %eax
	je	3f
	cmp	$NR_MPROTECT, %eax
	je	2f
	cmp	$NR_BRK, %eax
	je	5f
	cmp	$NR_MREMAP, %eax
	jne	18f
	test	$~MAYMOVE, %r10
	jnz	18f
	mov	%rdx, %rcx /* it may grow where it is */
	cmp	%rsi, %rcx
	jae	6f
	jmp	3f
1:	test	$~READ_WRITE, %rdx
	jnz	18f
	test	$~KNOWN_FLAGS, %r10
	jnz	18f
	test	$ANONYMOUS, %r10b
	jz	18f
	test	%rdi, %rdi /* also a hint gets what it would get without deja */
	jz	7f
	jmp	3f
2:	cmp	$READ_EXECUTE, %rdx
	je	20f
	test	$~READ_WRITE, %rdx
	jnz	18f
3:	mov	%rsi, %rcx /* all of [rdi, rdi+rcx) is data */
6:	add	%rdi, %rcx
	jc	18f
	IN_DATA	%rdi, 7f
	jmp	18f
5:	test	%rdi, %rdi
	jz	7f
	cmp	%gs:T_BRK, %rdi
	jb	18f
	cmp	%gs:(T_BRK + 8), %rdi
	ja	18f
7:	mov	%rax, %gs:T_CALL
	mov	$1, %ecx
	jmp	*%gs:T_CALL_RET
18:	movq	$0, %gs:T_MAPS
8:	xor	%ecx, %ecx
	jmp	*%gs:T_CALL_RET
32:	cmp	%gs:T_PERMIT(0), %rdi /* permitted, if it is with these arguments */
	jne	33b
	cmp	%gs:T_PERMIT(1), %rsi
	jne	33b
	cmp	%gs:T_PERMIT(2), %rdx
	jne	33b
	movq	$PERMIT_USED, %gs:T_PERMIT(4)
	jmp	7b
30:	cmp	$MAPS_CLOSED, %rax /* another one is made, which takes a moment; or by the supervisor */
	je	31f
	pause
	decl	%gs:T_MAPS_TRIES
	jnz	28b
31:	mov	%r11, %rax
	movq	$1, %gs:T_MAPS_WAIT
	jmp	8b
10:	mov	%rsi, %rcx /* those that change no mapping are not logged */
	mov	%rdi, %r11
	jmp	14f
11:	mov	%rsi, %r11 /* a place in a file: not the address of code */
	jmp	13f
12:	mov	%r10, %r11
13:	mov	$1, %ecx
14:	add	%r11, %rcx
	jc	8b
	IN_DATA	%r11, 16f
	jmp	8b
rt_open_check_out:
16:	mov	$1, %ecx
	jmp	*%gs:T_CALL_RET
20:	test	$PAGE - 1, %edi /* data that becomes code: it is in no range of data any more */
	jnz	18b
	mov	%rsi, %rcx
	add	%rdi, %rcx
	jc	18b
	IN_DATA	%rdi, 22f
	jmp	18b
22:	add	$PAGE - 1, %rcx
	and	$-PAGE, %rcx
	.irp	i, 0, 1, 2, 3
	cmp	%gs:(T_DATA(\i) + 8), %rdi
	jae	24f
	cmp	%gs:T_DATA(\i), %rcx
	jbe	24f
	cmp	%gs:T_DATA(\i), %rdi
	jbe	23f
	mov	%rdi, %gs:(T_DATA(\i) + 8)
	jmp	24f
23:	mov	%rcx, %gs:T_DATA(\i)
24:
	.endr
	movq	$0, %gs:(T_BRK + 8)
	jmp	7b
34:	test	%rdx, %rdx /* its own stack's, which every program asks for and deja never changes */
	jnz	8b
	test	%edi, %edi
	jnz	8b
	cmp	$RLIMIT_STACK, %esi
	jne	8b
	jmp	16b
35:	test	%edi, %edi /* the thread's own (recorder/near.c) */
	jnz	8b
	jmp	16b
25:	test	%edi, %edi /* what there is; and what is about rseq(2) */
	jz	8b
	test	$MEMBARRIER_RSEQ, %edi
	jnz	8b
	jmp	16b
26:	mov	%rdi, %rcx /* a path; if it cannot be read the kernel says so (rt_open_check_out) */
	jmp	rt_open_check
27:	mov	%rsi, %rcx
rt_open_check:
	mov	(%rcx), %rcx
rt_open_check_end:
	movabs	$PROC, %r11
	xor	%r11, %rcx
	shl	$16, %rcx
	jz	8b
	jmp	16b

/*
 * The call that rt_map_check let through is over, with its result in rax, and its record is in the ring.
 * rcx is free, and r11's value is in T_CALL_SAVE and back in r11 at the end.
 */
rt_map_log:
	mov	%gs:T_LOG_HEAD, %rcx
	mov	%gs:T_HEAD, %r11
	mov	%r11, LOG_PLACE(%rcx)
	mov	%gs:T_SEQ, %r11
	mov	%r11, LOG_SEQ(%rcx)
	mov	%gs:T_CALL, %r11
	mov	%r11, LOG_NUMBER(%rcx)
	mov	%rdi, LOG_RDI(%rcx)
	mov	%rsi, LOG_RSI(%rcx)
	mov	%rdx, LOG_RDX(%rcx)
	mov	%r10, LOG_R10(%rcx)
	mov	%r9, LOG_R9(%rcx)
	mov	%rax, LOG_RESULT(%rcx)
	mov	%gs:T_MAPS_N, %r11
	inc	%r11
	mov	%r11, LOG_TURN(%rcx)
	add	$LOG_SIZE, %rcx
	mov	%rcx, %gs:T_LOG_HEAD
	mov	%r11, %gs:T_MAPS_N
	movq	$0, %gs:T_CALL
	cmpq	$PERMIT_USED, %gs:T_PERMIT(4)
	jne	1f
	movq	$NO_PERMIT, %gs:T_PERMIT(4)
	test	%rax, %rax
	jnz	1f
	mov	%gs:T_PERMIT(3), %rcx
	jrcxz	1f
	lea	PAGE - 1(%rdi, %rsi), %r11
	and	$-PAGE, %r11
	movq	$0, %gs:8(%rcx) /* others may look at it */
	mov	%rdi, %gs:(%rcx)
	mov	%r11, %gs:8(%rcx)
1:	movq	$0, %gs:T_MAPS
	mov	%gs:T_CALL_SAVE, %r11
	jmp	*%gs:T_CALL_RET

/*
 * The call T_DATA_NR is over, with its result in rax, and its record is in the ring. What it wrote, as
 * far as T_WRITES and T_FORMS say and no more than T_DATA_LIMIT, follows there, for people to look at:
 * nothing depends on it. rcx is the lag behind the call, and free; r11's value is in T_CALL_SAVE and back in r11 at
 * the end.
 *
 * The memory need not be there. Another thread may have unmapped it, or the call has written less than
 * the forms say. A fault at any place in here goes on at rt_call_data_out: the supervisor sees to that
 * (recorder/calldata.c).
 *
 * r8: what may still be kept; r9: the form.
 */
	.macro	DATA_BEGIN
	mov	%rdi, %gs:T_DATA_ARG(0)
	mov	%rsi, %gs:T_DATA_ARG(1)
	mov	%rdx, %gs:T_DATA_ARG(2)
	mov	%r10, %gs:T_DATA_ARG(3)
	mov	%r8, %gs:T_DATA_ARG(4)
	mov	%r9, %gs:T_DATA_ARG(5)
	mov	%rax, %gs:T_DATA_RESULT
	ADD_STEPS %rcx
	mov	%rcx, %gs:T_DATA_STEPS
	movb	$RING_DATA, %gs:(T_DATA_STEPS + 7)
	.endm

rt_call_data:
	DATA_BEGIN
	cmp	$-4096, %rax
	ja	rt_call_data_out	/* it failed */
	mov	%gs:T_DATA_LIMIT, %r8
	movzwl	%gs:T_DATA_NR, %ecx
	movzbl	%gs:T_WRITES(%rcx), %r9d
10:	movzbl	%gs:(T_FORMS + FORM_ARG)(,%r9,FORM_SIZE), %ecx
	mov	%gs:T_DATA_ARG(0)(,%rcx,8), %rsi
	movzbl	%gs:(T_FORMS + FORM_OTHER)(,%r9,FORM_SIZE), %ecx
	mov	%gs:T_DATA_ARG(0)(,%rcx,8), %rdi
	mov	%gs:(T_FORMS + FORM_SIZES)(,%r9,FORM_SIZE), %edx
	movzbl	%gs:(T_FORMS + FORM_HOW)(,%r9,FORM_SIZE), %ecx
	lea	19f(%rip), %r11
	test	%rsi, %rsi
	jz	19f
	test	%ecx, %ecx
	jz	50f
	cmp	$FORM_COUNT, %ecx
	je	12f
	cmp	$FORM_PAGES, %ecx
	je	13f
	cmp	$FORM_BITS, %ecx
	je	14f
	cmp	$FORM_LENGTH, %ecx
	je	15f
	mov	%gs:T_DATA_RESULT, %r10
	cmp	$FORM_IOVEC, %ecx
	je	30f
	cmp	$FORM_MSGHDR, %ecx
	je	20f
	cmp	$FORM_IOCTL, %ecx
	je	40f
	imul	%r10, %rdx		/* FORM_RESULT */
	cmp	%rdi, %rdx
	cmova	%rdi, %rdx
	jmp	50f
12:	imul	%rdi, %rdx
	jmp	50f
13:	lea	4095(%rdi), %rdx
	shr	$12, %rdx
	jmp	50f
14:	mov	%edi, %edx
	add	$63, %rdx
	shr	$6, %rdx
	shl	$3, %rdx
	jmp	50f
15:	mov	(%rdi), %edx
	jmp	50f

19:	cmpb	$0, %gs:(T_FORMS + FORM_LAST)(,%r9,FORM_SIZE)
	lea	1(%r9), %r9
	je	10b
rt_call_data_out:
	mov	%gs:T_DATA_ARG(0), %rdi
	mov	%gs:T_DATA_ARG(1), %rsi
	mov	%gs:T_DATA_ARG(2), %rdx
	mov	%gs:T_DATA_ARG(3), %r10
	mov	%gs:T_DATA_ARG(4), %r8
	mov	%gs:T_DATA_ARG(5), %r9
	mov	%gs:T_DATA_RESULT, %rax
	mov	%gs:T_CALL_SAVE, %r11
	jmp	*%gs:T_CALL_RET

	/* struct msghdr: name, its length, iovec, how many, control data, their length, flags */
20:	mov	%rsi, %gs:T_DATA_MSG
	mov	24(%rsi), %rdi
	mov	16(%rsi), %rsi
	lea	21f(%rip), %r11
	jmp	30f
21:	mov	%gs:T_DATA_MSG, %rdi
	mov	(%rdi), %rsi
	mov	8(%rdi), %edx
	lea	22f(%rip), %r11
	jmp	50f
22:	mov	%gs:T_DATA_MSG, %rdi
	mov	32(%rdi), %rsi
	mov	40(%rdi), %rdx
	lea	23f(%rip), %r11
	jmp	50f
23:	mov	%gs:T_DATA_MSG, %rsi
	add	$8, %rsi
	mov	$4, %edx
	lea	24f(%rip), %r11
	jmp	50f
24:	mov	%gs:T_DATA_MSG, %rsi
	add	$40, %rsi
	mov	$12, %edx
	lea	19b(%rip), %r11
	jmp	50f

	/* rdi of struct iovec at rsi have r10 bytes; then to r11 */
30:	mov	%rsi, %gs:T_DATA_IOV
	mov	%rdi, %gs:T_DATA_IOVS
	mov	%r11, %gs:T_DATA_BACK
	lea	31f(%rip), %r11
31:	decq	%gs:T_DATA_IOVS
	js	32f
	test	%r8, %r8
	jz	32f
	test	%r10, %r10
	jz	32f
	mov	%gs:T_DATA_IOV, %rdi
	addq	$16, %gs:T_DATA_IOV
	mov	(%rdi), %rsi
	mov	8(%rdi), %rdx
	cmp	%r10, %rdx
	cmova	%r10, %rdx
	sub	%rdx, %r10
	jmp	50f
32:	jmp	*%gs:T_DATA_BACK

	/* an ioctl's request has the size in it, unless it is one of the old ones */
40:	movzwl	%di, %eax
	cmp	%eax, %edi
	jne	43f
	xor	%ecx, %ecx
41:	movzwl	%gs:T_IOCTLS(,%rcx,4), %edx
	test	%edx, %edx
	jz	42f
	cmp	%edx, %eax
	movzwl	%gs:(T_IOCTLS + 2)(,%rcx,4), %edx
	je	50f
	inc	%ecx
	jmp	41b
42:	shr	$8, %eax
	cmp	$0x89, %eax		/* struct ifreq */
	jne	19b
	mov	$40, %edx
	jmp	50f
43:	test	%edi, %edi
	jns	19b
	mov	%edi, %edx
	shr	$16, %edx
	and	$0x3fff, %edx

	/* rdx bytes at rsi go to the ring, or fewer, though more on the stack; then to r11 */
50:	test	%rsi, %rsi
	jz	59f
	lea	128(%rsi), %rcx
	sub	%rsp, %rcx
	cmp	$AREA_STACK_NEAR, %rcx
	mov	%r8, %rcx
	jae	60f
	add	$AREA_STACK_DATA, %rcx
60:	cmp	%rcx, %rdx
	cmova	%rcx, %rdx
	sub	%rdx, %r8
	jae	51f
	xor	%r8d, %r8d
51:	test	%rdx, %rdx
	jz	59f
	mov	$RING_DATA_MAX, %ecx
	cmp	%rcx, %rdx
	cmovb	%edx, %ecx
	sub	%rcx, %rdx
	mov	%gs:T_HEAD, %rdi
	mov	%gs:T_DATA_STEPS, %rax
	mov	%rax, (%rdi)
	mov	%rsi, 8(%rdi)
	mov	%rcx, 16(%rdi)
	add	$RING_DATA_HEAD, %rdi
	sub	$32, %ecx
	jb	53f
52:	.irp	k, 0, 8, 16, 24
	mov	\k(%rsi), %rax
	mov	%rax, \k(%rdi)
	.endr
	add	$32, %rsi
	add	$32, %rdi
	sub	$32, %ecx
	jae	52b
53:	add	$24, %ecx
	js	55f
54:	mov	(%rsi), %rax
	mov	%rax, (%rdi)
	add	$8, %rsi
	add	$8, %rdi
	sub	$8, %ecx
	jns	54b
55:	add	$8, %ecx
	jz	57f
56:	mov	(%rsi), %al		/* what lies behind the last byte may not be there */
	mov	%al, (%rdi)
	inc	%rsi
	inc	%rdi
	dec	%ecx
	jnz	56b
57:	add	$7, %rdi
	and	$-8, %rdi
	mov	%rdi, %gs:T_HEAD
	cmp	%gs:T_LIMIT, %rdi
	jb	51b
	int3
	.long	STOP_RING_FULL
	jmp	51b
59:	jmp	*%r11

/*
 * The same for the T_DATA_IOVS bytes at T_DATA_MSG, where fxsave or one of its kin has put registers.
 * T_DATA_LIMIT only says whether anything is to be kept: one byte that is missing would spoil what lies there
 * later. rcx is the lag behind the instruction; its value is in T_DATA_IOV.
 */
rt_state_data:
	DATA_BEGIN
	cmpq	$0, %gs:T_DATA_LIMIT
	je	rt_call_data_out
	mov	%gs:T_DATA_MSG, %rsi
	mov	%gs:T_DATA_IOVS, %edx
	mov	%rdx, %r8
	lea	rt_call_data_out(%rip), %r11
	jmp	50b
rt_call_data_end:

/*
 * String instructions. The program's rsi, rdi, rcx and rax are in their registers and
 * exact at the top of each iteration (rt_heads lists these places); r8 to r11 are spilled and
 * free. T_RT_STEP is the step offset << 16. On return flags are what the
 * instruction leaves (for cmps and scas) or garbage (for the others, whose flags the
 * caller has saved).
 *
 * One load of an element: value in \val, address register \addr (rsi or rdi).
 */
	.macro	LOADCHECK size, addr, addr32, val, ordinal, rep
	.if	\size == 1
	movzbl	(%\addr), %r8d
	cmp	%r8b, %gs:(%\addr32)
	.elseif	\size == 2
	movzwl	(%\addr), %r8d
	cmp	%r8w, %gs:(%\addr32)
	.elseif	\size == 4
	mov	(%\addr), %r8d
	cmp	%r8d, %gs:(%\addr32)
	.else
	mov	(%\addr), %r8
	cmp	%r8, %gs:(%\addr32)
	.endif
	je	77f
	mov	%\addr, %gs:T_IMP_ADDR
	mov	%gs:T_RT_STEP, %r8d
	or	$(\size + (\ordinal << 8)), %r8d
	mov	%r8d, %gs:T_IMP_DESC
	.if	\rep
	mov	%rcx, %gs:T_IMP_REP
	.endif
	lea	76f(%rip), %r8
	mov	%r8, %gs:T_IMP_RET
	jmp	rt_import
76:
	.if	\rep
	movq	$0, %gs:T_IMP_REP
	.endif
	.if	\size == 1
	movzbl	%gs:(%\addr32), %r8d
	.elseif	\size == 2
	movzwl	%gs:(%\addr32), %r8d
	.elseif	\size == 4
	mov	%gs:(%\addr32), %r8d
	.else
	mov	%gs:(%\addr32), %r8
	.endif
77:
	.endm

	.macro	STOREBOTH size, addr, addr32, b, w, d, q
	.if	\size == 1
	mov	%\b, (%\addr)
	mov	%\b, %gs:(%\addr32)
	.elseif	\size == 2
	mov	%\w, (%\addr)
	mov	%\w, %gs:(%\addr32)
	.elseif	\size == 4
	mov	%\d, (%\addr)
	mov	%\d, %gs:(%\addr32)
	.else
	mov	%\q, (%\addr)
	mov	%\q, %gs:(%\addr32)
	.endif
	.endm

	/* The top of an iteration: the thread may be stopped here as if between instructions. */
	.macro	HEAD
75:	.pushsection .rodata
	.long	75b - rt_begin
	.popsection
	.endm

	/* r10 = +size or -size as DF says. pushf-free: DF is read by a harmless lods. */
	.macro	STRIDE size
	mov	%rsi, %gs:T_SAVE(6)
	mov	%rax, %gs:T_SAVE(7)
	lea	T_UNIT, %rsi
	add	%gs:T_SELF, %rsi
	mov	%rsi, %r10
	lodsb
	sub	%r10, %rsi
	mov	%rsi, %r10
	.if	\size == 2
	add	%r10, %r10
	.elseif	\size == 4
	shl	$2, %r10
	.elseif	\size == 8
	shl	$3, %r10
	.endif
	mov	%gs:T_SAVE(6), %rsi
	mov	%gs:T_SAVE(7), %rax
	.endm

/*
 * REP MOVS in bulk: eight bytes at a time while the direction is up, eight remain, and the
 * destination does not lie in the eight bytes after the source, in memory or in the shadow.
 * A fault in here happens before anything of the piece was done; the supervisor goes on with the
 * single elements, because some of them may come before the fault.
 */
	.macro	MOVS size, shift, rep
	.globl	rt_movs\size\()_\rep
	.p2align 4
rt_movs\size\()_\rep:
	STRIDE	\size
	.if	\rep
	.if	\size < 8
	jmp	10f
11:	mov	%rdi, %r9
	sub	%rsi, %r9
	cmp	$8, %r9
	jb	1f
	cmp	$8, %r9d
	jb	1f
	neg	%r9
	cmp	$8, %r9
	jb	1f
	cmp	$8, %r9d
	jb	1f
	.p2align 4
12:	HEAD
	cmp	$(8 / \size), %rcx
	jb	1f
	LOADCHECK 8, rsi, esi, r8, 0, 1
	mov	%r8, (%rdi)
	mov	%r8, %gs:(%edi)
	add	$8, %rsi
	add	$8, %rdi
	sub	$(8 / \size), %rcx
	jmp	12b
10:	cmp	$(8 / \size * 2), %rcx
	jb	1f
	cmp	$\size, %r10
	je	11b
	.endif
	.endif
1:	HEAD
	.if	\rep
	jrcxz	9f
	.if	\size < 8
	.pushsection .rodata.bulk
	.long	12b - rt_begin, 10b - rt_begin, 1b - rt_begin
	.popsection
	.endif
	.endif
	LOADCHECK \size, rsi, esi, r8, 0, \rep
	STOREBOTH \size, rdi, edi, r8b, r8w, r8d, r8
	add	%r10, %rsi
	add	%r10, %rdi
	.if	\rep
	dec	%rcx
	jmp	1b
	.endif
9:	jmp	*%gs:T_RT_RET
	.endm

/*
 * REP STOS in bulk: 32 bytes at a time, of a pattern in r8. After a fault in here the supervisor goes on with the single
 * elements from the beginning of the piece: what of it was stored is stored again, alike.
 */
	.macro	STOS size, shift, rep
	.globl	rt_stos\size\()_\rep
	.p2align 4
rt_stos\size\()_\rep:
	STRIDE	\size
	.if	\rep
	jmp	10f
11:
	.if	\size == 1
	movzbl	%al, %r8d
	mov	$0x0101010101010101, %r9
	imul	%r9, %r8
	.elseif	\size == 2
	movzwl	%ax, %r8d
	mov	$0x0001000100010001, %r9
	imul	%r9, %r8
	.elseif	\size == 4
	mov	%eax, %r8d
	mov	%r8, %r9
	shl	$32, %r9
	or	%r9, %r8
	.else
	mov	%rax, %r8
	.endif
	.p2align 4
13:	HEAD
	cmp	$(32 / \size), %rcx
	jb	1f
	.irp	off, 0, 8, 16, 24
	mov	%r8, \off(%rdi)
	mov	%r8, %gs:\off(%edi)
	.endr
	add	$32, %rdi
	sub	$(32 / \size), %rcx
	jmp	13b
10:	cmp	$(32 / \size), %rcx
	jb	1f
	cmp	$\size, %r10
	je	11b
	.endif
1:	HEAD
	.if	\rep
	jrcxz	9f
	.pushsection .rodata.bulk
	.long	13b - rt_begin, 10b - rt_begin, 1b - rt_begin
	.popsection
	.endif
	STOREBOTH \size, rdi, edi, al, ax, eax, rax
	add	%r10, %rdi
	.if	\rep
	dec	%rcx
	jmp	1b
	.endif
9:	jmp	*%gs:T_RT_RET
	.endm

	.macro	LODS size, shift, rep
	.globl	rt_lods\size\()_\rep
	.p2align 4
rt_lods\size\()_\rep:
	STRIDE	\size
1:	HEAD
	.if	\rep
	jrcxz	9f
	.endif
	LOADCHECK \size, rsi, esi, r8, 0, \rep
	.if	\size == 1
	mov	%r8b, %al
	.elseif	\size == 2
	mov	%r8w, %ax
	.elseif	\size == 4
	mov	%r8d, %eax
	.else
	mov	%r8, %rax
	.endif
	add	%r10, %rsi
	.if	\rep
	dec	%rcx
	jmp	1b
	.endif
9:	jmp	*%gs:T_RT_RET
	.endm

	.macro	CMPVALUES size, a, b
	.if	\size == 1
	cmp	%\b\()b, %\a\()b
	.elseif	\size == 2
	cmp	%\b\()w, %\a\()w
	.elseif	\size == 4
	cmp	%\b\()d, %\a\()d
	.else
	cmp	%\b, %\a
	.endif
	.endm

	/* rep: 0 none, 1 repe, 2 repne. No iteration leaves the flags as they were: the caller
	 * jumps around the routine when the count is zero. */
	.macro	CMPS size, shift, rep
	.globl	rt_cmps\size\()_\rep
	.p2align 4
rt_cmps\size\()_\rep:
	STRIDE	\size
1:	HEAD
	LOADCHECK \size, rsi, esi, r8, 0, \rep
	mov	%r8, %r9
	LOADCHECK \size, rdi, edi, r8, 1, \rep
	lea	(%rsi,%r10), %rsi
	lea	(%rdi,%r10), %rdi
	.if	\rep
	lea	-1(%rcx), %rcx
	.endif
	CMPVALUES \size, r9, r8
	.if	\rep
	jrcxz	9f
	.if	\rep == 1
	je	1b
	.else
	jne	1b
	.endif
	.endif
9:	jmp	*%gs:T_RT_RET
	.endm

	.macro	SCAS size, shift, rep
	.globl	rt_scas\size\()_\rep
	.p2align 4
rt_scas\size\()_\rep:
	STRIDE	\size
1:	HEAD
	LOADCHECK \size, rdi, edi, r8, 0, \rep
	lea	(%rdi,%r10), %rdi
	.if	\rep
	lea	-1(%rcx), %rcx
	.endif
	.if	\size == 1
	cmp	%r8b, %al
	.elseif	\size == 2
	cmp	%r8w, %ax
	.elseif	\size == 4
	cmp	%r8d, %eax
	.else
	cmp	%r8, %rax
	.endif
	.if	\rep
	jrcxz	9f
	.if	\rep == 1
	je	1b
	.else
	jne	1b
	.endif
	.endif
9:	jmp	*%gs:T_RT_RET
	.endm

	.globl	rt_strings
rt_strings:
	.irp	size, 1, 2, 4, 8
	.irp	rep, 0, 1
	MOVS	\size, 0, \rep
	STOS	\size, 0, \rep
	LODS	\size, 0, \rep
	.endr
	.irp	rep, 0, 1, 2
	CMPS	\size, 0, \rep
	SCAS	\size, 0, \rep
	.endr
	.endr
	.globl	rt_strings_end
rt_strings_end:
rt_end:
	.section .rodata
rt_heads_end:
	.section .rodata.bulk
rt_bulks_end:
	.section .note.GNU-stack,"",@progbits
