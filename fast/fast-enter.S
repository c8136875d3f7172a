/*
 * Into generated code and out of it: the program's registers are exchanged for ours.
 *
 * While generated code runs all registers are the program's, rsp included, but r11, which is the number
 * of instructions that may still be executed (F_LEFT). So nothing may be pushed here before rsp is
 * ours again.
 */
#include "fast/fast-area.h"

	.text
	.globl	fast_enter, fast_leave, fast_other, fast_fault

#define GPR(n) (8 * (n))(%r11)

/* void fast_enter(void *entry) */
	.p2align 4
	.type	fast_enter, @function
fast_enter:
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	mov	%rsp, %gs:F_HOST_RSP
	mov	%rdi, %gs:F_ENTRY
	stmxcsr	%gs:F_HOST_MXCSR
	ldmxcsr	%gs:F_MXCSR
	mov	%gs:F_NOTE_FS, %rax
	test	%rax, %rax
	jz	3f
	cmpl	$0, %gs:F_NOTE_SET
	jne	5f
	mov	%fs:0, %rcx		/* the base itself (System V ABI, TLS variant II) */
	mov	%rcx, %gs:F_HOST_FS
	movl	$1, %gs:F_NOTE_SET
	cmpl	$FAST_NOTE_SETS, %gs:F_NOTE_ASKS
	jne	4f
	wrfsbase %rax
	jmp	5f
4:	mov	%rax, %rsi
	mov	$FAST_SET_FS, %edi
	mov	$FAST_ARCH_PRCTL, %eax
	syscall
5:	cmpl	$0, %gs:F_NOTE_WIDE
	je	3f
	vpternlogd $0xff, %ymm31, %ymm31, %ymm31
3:
	mov	%gs:F_VEC, %r11
	cmpl	$0, %gs:F_WIDE
	jne	1f
	vzeroupper
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movups	(32 * \n)(%r11), %xmm\n
	.endr
	jmp	2f
1:	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	vmovups	(32 * \n)(%r11), %ymm\n
	.endr
2:	mov	%gs:F_GPR, %r11
	mov	GPR(11), %rax
	mov	%rax, %gs:F_R11
	mov	%gs:F_FLAGS, %eax
	add	$127, %al
	sahf
	mov	GPR(0), %rax
	mov	GPR(1), %rcx
	mov	GPR(2), %rdx
	mov	GPR(3), %rbx
	mov	GPR(4), %rsp
	mov	GPR(5), %rbp
	mov	GPR(6), %rsi
	mov	GPR(7), %rdi
	mov	GPR(8), %r8
	mov	GPR(9), %r9
	mov	GPR(10), %r10
	mov	GPR(12), %r12
	mov	GPR(13), %r13
	mov	GPR(14), %r14
	mov	GPR(15), %r15
	mov	%gs:F_LEFT, %r11
	jmp	*%gs:F_ENTRY
	.size	fast_enter, . - fast_enter

/* Jumped to by generated code, with the program's registers and the count in r11. */
	.p2align 4
	.type	fast_leave, @function
fast_leave:
	mov	%r11, %gs:F_LEFT
	mov	%gs:F_GPR, %r11
	mov	%rax, GPR(0)
	mov	%rcx, GPR(1)
	mov	%rdx, GPR(2)
	mov	%rbx, GPR(3)
	mov	%rsp, GPR(4)
	mov	%rbp, GPR(5)
	mov	%rsi, GPR(6)
	mov	%rdi, GPR(7)
	mov	%r8, GPR(8)
	mov	%r9, GPR(9)
	mov	%r10, GPR(10)
	mov	%r12, GPR(12)
	mov	%r13, GPR(13)
	mov	%r14, GPR(14)
	mov	%r15, GPR(15)
	lahf
	seto	%al
	mov	%eax, %gs:F_FLAGS
	mov	%gs:F_R11, %rax
	mov	%rax, GPR(11)
	mov	%gs:F_VEC, %r11
	.irp	n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	vmovups	%ymm\n, (32 * \n)(%r11)
	.endr
	stmxcsr	%gs:F_MXCSR
fast_fault: /* or by the handler of a signal: nothing is worth keeping */
	ldmxcsr	%gs:F_HOST_MXCSR
	vzeroupper
	mov	%gs:F_HOST_RSP, %rsp
	cmpl	$0, %gs:F_NOTE_SET
	je	1f
	cmpl	$FAST_NOTE_LATE, %gs:F_NOTE_ASKS
	je	1f
	mov	%gs:F_HOST_FS, %rsi
	cmpl	$FAST_NOTE_SETS, %gs:F_NOTE_ASKS
	jne	2f
	wrfsbase %rsi
	jmp	3f
2:	mov	$FAST_SET_FS, %edi
	mov	$FAST_ARCH_PRCTL, %eax
	syscall
3:	movl	$0, %gs:F_NOTE_SET
1:	cld
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	ret
	.size	fast_leave, . - fast_leave

/*
 * Jumped to for an indirect branch whose entry in F_NEAR is of another target, or none. r11 is the
 * target; rcx and the count are in F_RCX and F_LEFT. What is found in F_PAIRS is the place behind a
 * stub's check.
 */
	.p2align 4
	.type	fast_other, @function
fast_other:
	mov	%rax, %gs:F_RAX
	lahf
	seto	%al
	mov	%eax, %gs:F_FLAGS
	movabs	$FAST_MIX, %rcx
	imul	%r11, %rcx
	shr	$(64 - FAST_HASH_BITS), %rcx
	shl	$4, %ecx
	cmp	%r11, %gs:F_PAIRS(%rcx)
	jne	1f
	mov	%gs:(F_PAIRS + 8)(%rcx), %rcx
	jrcxz	1f		/* target 0 looks like an empty pair */
	mov	%gs:F_FLAGS, %eax
	add	$127, %al
	sahf
	mov	%gs:F_RAX, %rax
	jmp	*%rcx
1:	mov	%gs:F_FLAGS, %eax
	add	$127, %al
	sahf
	mov	%gs:F_RAX, %rax
	mov	%gs:F_RCX, %rcx
	mov	%r11, %gs:F_TARGET
	movl	$FAST_EXIT_MISS, %gs:F_EXIT
	mov	%gs:F_LEFT, %r11
	jmp	fast_leave
	.size	fast_other, . - fast_other

	.section .note.GNU-stack, "", @progbits
