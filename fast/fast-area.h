/*
 * The control block of generated code: offsets from S, the address of the shadow, which is the gs
 * base meanwhile. Generated code's own operands reach S and the 4 GiB above it; this lies below.
 * Included by C and by assembler.
 */
#ifndef DEJA_FAST_FAST_AREA_H
#define DEJA_FAST_FAST_AREA_H

#define F_BASE	     (-4096)
#define F_LEFT	     (F_BASE + 0x00) /* instructions that may still be executed, when not in r11 */
#define F_R11	     (F_BASE + 0x08) /* the program's r11 */
#define F_RCX	     (F_BASE + 0x10) /* the program's, while rcx is used for something else */
#define F_RAX	     (F_BASE + 0x18)
#define F_FLAGS	     (F_BASE + 0x20) /* ah: as lahf has them; al: OF */
#define F_EXIT	     (F_BASE + 0x28) /* by which exit the code was left */
#define F_TARGET     (F_BASE + 0x30) /* where an indirect branch leads that found no code */
#define F_LEAVE	     (F_BASE + 0x38) /* addresses of fast_leave and fast_other */
#define F_OTHER	     (F_BASE + 0x40)
#define F_ENTRY	     (F_BASE + 0x48)
#define F_GPR	     (F_BASE + 0x50) /* addresses of the emulator's registers */
#define F_VEC	     (F_BASE + 0x58)
#define F_MXCSR	     (F_BASE + 0x60) /* the program's */
#define F_HOST_MXCSR (F_BASE + 0x64)
#define F_HOST_RSP   (F_BASE + 0x68)
#define F_WIDE	     (F_BASE + 0x70) /* not 0: upper halves of vector registers are not all zero */
#define F_FENCES     (F_BASE + 0x78) /* ordered events since the code was entered */
#define F_FENCE_LEFT (F_BASE + 0x80) /* what F_LEFT was behind the last of them */
#define F_FAULT	     (F_BASE + 0x88) /* not 0: number of a signal */
#define F_SELF	     (F_BASE + 0x90) /* the engine */
#define F_CODE	     (F_BASE + 0x98) /* where generated code begins and ends */
#define F_CODE_END   (F_BASE + 0xa0)
#define F_NO_X87     (F_BASE + 0xa8) /* 0: the processor has the program's x87 state */
#define F_NOTE_FS    (F_BASE + 0xb0) /* the fs base that notes want (fast-note.c); 0: none */
#define F_HOST_FS    (F_BASE + 0xb8)
#define F_LOG	     (F_BASE + 0xc0) /* where the next branch is logged */
#define F_WATCH_MASK (F_BASE + 0xc8) /* what is 0 in the distance from watched bytes */
#define F_SIGN	     (F_BASE + 0xd0) /* bit 63 */
#define F_ABOVE	     (F_BASE + 0xd8) /* returns are told if this and the stack pointer are >= 0 */
#define F_NOTE_WIDE  (F_BASE + 0xe0) /* not 0: notes want ymm31 to be all ones */
#define F_NOTE_ASKS  (F_BASE + 0xe8) /* FAST_NOTE_...: how fs is set */
#define F_NOTE_SET   (F_BASE + 0xf0) /* not 0: fs has the base that notes want */
#define F_MET	     (F_BASE + 0xf8) /* the address that is looked at (fast-whose.c) */

/* How fs gets the base that notes want, and its own again: by instructions; by the kernel, each
 * time that generated code is entered and left; by the kernel, when C needs its own (fast-fault.c).
 */
#define FAST_NOTE_SETS 0
#define FAST_NOTE_ASKS 1
#define FAST_NOTE_LATE 2

/* arch_prctl(2): asm/unistd_64.h, asm/prctl.h */
#define FAST_ARCH_PRCTL 158
#define FAST_SET_GS	0x1001
#define FAST_SET_FS	0x1002

/* Where indirect branches lead: first by the low 16 bits of the target, the address of a stub that
 * checks that it is meant; then pairs of target and stub by a hash. */
#define FAST_HASH_BITS 16
#define F_PAIRS	       (F_BASE - (16 << FAST_HASH_BITS))
#define F_NEAR	       (F_PAIRS - (8 << 16))
/* A byte for each stretch of code, not 0 if it ran: with notes only. */
#define FAST_RAN   (1 << 18)
#define F_RAN	   (F_NEAR - FAST_RAN)
#define FAST_BELOW (-(F_RAN))
/* To whom each page of the shadow belongs, four bytes for each (fast-whose.c); accessible only if
 * somebody wants to know. */
#define FAST_WHOSE (4 << 20)
#define F_WHOSE	   (F_RAN - FAST_WHOSE)
#define FAST_MIX   0x9e3779b97f4a7c15

#define FAST_EXIT_MISS 0

#endif
