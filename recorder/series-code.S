/*
 * What the program executes to make several system calls in a row (series.c): position-independent,
 * copied to a page of its own. rbx is where the list is, r12 is 0. At the trap, rbx is at the call
 * that failed or at the list's end, rax is what the call returned, and r12 has a bit for each call
 * before it, the last one lowest: set if it failed, and might.
 */
#include "recorder/series.h"

	.section .rodata
	.globl	rec_series_begins, rec_series_ends
rec_series_begins:
1:	mov	(%rbx), %rbp
	test	%rbp, %rbp
	js	4f
	mov	8(%rbx), %rdi
	mov	16(%rbx), %rsi
	mov	24(%rbx), %rdx
	mov	32(%rbx), %r10
	mov	40(%rbx), %r8
	mov	48(%rbx), %r9
	cmp	$SERIES_KEPT, %rdi
	cmove	%r13, %rdi
	cmp	$SERIES_KEPT, %r8
	cmove	%r13, %r8
	mov	%ebp, %eax
	syscall
	bt	$SERIES_KEEPS_BIT, %rbp
	cmovc	%rax, %r13
	cmp	$-4095, %rax
	jae	3f
	add	%r12, %r12
2:	add	$SERIES_CALL, %rbx
	jmp	1b
3:	bt	$SERIES_MAY_BIT, %rbp
	jnc	4f
	stc
	adc	%r12, %r12
	jmp	2b
4:	int3
rec_series_ends:

	.section .note.GNU-stack, "", @progbits
