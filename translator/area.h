/*
 * The layout of what the supervisor puts into a recorded program's address space. Included by
 * C and by assembler (runtime.S).
 *
 * For each thread there is one address S, its gs base while it runs translated code:
 *
 *   S - AREA_CONTROL ....  the order of events between threads (doc/order.md), and tables of the
 *                          targets of indirect branches (AREA_TABLES bytes)
 *   S + T_RING ..........  ring buffer halves
 *   S + T_LOG ...........  log of mapping calls (doc/mappings.md)
 *   S - 4096 ............  control block (the T_ offsets below)
 *   S ...................  shadow: 2^32 bytes, sparse, and its first page once more
 *
 * The tables are one set of pages for all threads of an address space, mapped below each S, so
 * that generated code reaches them as gs:[T_xxx] whoever executes it. Ring, control block and the
 * shadow's first page are the thread's own and lie in a row (AREA_THREAD bytes). All this is
 * shared with the supervisor (a memfd); the rest of the shadow is the program's own. The first
 * page lies in the memfd, too, so that it can be mapped a second time behind the shadow's end: an
 * operand that straddles a multiple of 4 GiB finds there what its upper part finds at index 0.
 * The shadow of address A is gs:[A mod 2^32], which the processor computes by itself when the
 * memory operand is repeated with an address-size prefix.
 *
 * Code lives in arenas (tr_add_arena), mapped read-execute near the program code they translate.
 */
#ifndef DEJA_TRANSLATOR_AREA_H
#define DEJA_TRANSLATOR_AREA_H

/* Places in an arena for instructions that are executed apart (tr_put_apart). */
#define TR_APART 8

/* Control block, relative to S. */
#define T_BASE	     (-4096)
#define T_SLOT(r)    (T_BASE + 8 * (r)) /* spilled program registers */
#define T_FLAGS	     (T_BASE + 0x080)	/* saved flags: ah = sf zf af pf cf, al = of */
#define T_ALONE	     (T_BASE + 0x088)	/* not 0: no other thread executes this code */
#define T_HEAD	     (T_BASE + 0x090)	/* where the next ring record goes */
#define T_LIMIT	     (T_BASE + 0x098)	/* records beyond here call the supervisor */
#define T_IMP_ADDR   (T_BASE + 0x0a0)	/* import: address of the load */
#define T_IMP_DESC   (T_BASE + 0x0a8)	/* import: size | ordinal << 8 | step offset << 16 */
#define T_IMP_RET    (T_BASE + 0x0b0)	/* import: where to go on */
#define T_IMP_REP    (T_BASE + 0x0b8)	/* import: count register inside REP, else 0 */
#define T_SAVE(i)    (T_BASE + 0x0c0 + 8 * (i)) /* runtime routines' own */
#define T_FSBASE     (T_BASE + 0x100)		/* the program's fs base */
#define T_GSBASE     (T_BASE + 0x108)		/* the program's (virtual) gs base */
#define T_RT_RET     (T_BASE + 0x110)		/* string routine: where to go on */
#define T_IN_SYSCALL (T_BASE + 0x118)		/* 1 while in a system call made from the cache */
#define T_RT_STEP    (T_BASE + 0x120)		/* string routine: step offset << 16 */
#define T_SELF	     (T_BASE + 0x128)		/* S itself */
#define T_BRANCH                                                                                   \
	(T_BASE + 0x130) /* number of the stop that tells which indirect branch was last           \
			  */
#define T_SEQ	    (T_BASE + 0x148) /* ordered events the thread has passed */
#define T_X87	    (T_BASE + 0x138) /* x87 status word before a store that pops */
#define T_X87_AFTER (T_BASE + 0x140) /* ... and after it */
#define T_ARGS	    (T_BASE + 0x150) /* arguments of calls that the supervisor makes */
#define T_ARGS_SIZE 0x90
#define T_INHERITED (T_BASE + 0x1e0) /* what SIGTRAP does in a new child */
#define T_UNIT	    (T_BASE + 0x200) /* a byte that may be read to learn DF */
/* Masked and gathered loads */
#define T_MASK		 (T_BASE + 0x240) /* import under a mask: a bit for each element */
#define T_GATHER	 (T_BASE + 0x248) /* shift of the index | elements << 8 | step offset << 16 */
#define T_GATHER_BASE	 (T_BASE + 0x250)	     /* address of index 0 */
#define T_GATHER_WRAP	 (T_BASE + 0x258)	     /* bits of an address that count */
#define T_GATHER_RET	 (T_BASE + 0x260)	     /* where to go on */
#define T_GATHER_SAVE(i) (T_BASE + 0x268 + 8 * (i))  /* 0..5: the routine's own */
#define T_VEC(i)	 (T_BASE + 0x2a0 + 32 * (i)) /* 0..2: vector registers */
#define T_SYSCLASS	 (T_BASE + 0x400) /* 512 bytes: SYS_ what to do, by system call number */
/* Mapping calls that are made in the cache; what all threads share of them is at T_MAPS */
#define T_MAPS_TRIES (T_BASE + 0x600) /* rt_map_check: so often it still looks at T_MAPS */
#define T_MAPS_WAIT  (T_BASE + 0x608) /* it has gone to the supervisor because of T_MAPS */
#define T_LOG_HEAD   (T_BASE + 0x650) /* where the next entry goes */
#define T_LOG_END    (T_BASE + 0x658) /* an entry that begins here has no room */
#define T_CALL	     (T_BASE + 0x660) /* the call being made, if it is to be logged, or 0 */
#define T_CALL_RET   (T_BASE + 0x668) /* rt_map_check, rt_map_log: where to go on */
#define T_CALL_SAVE  (T_BASE + 0x670) /* theirs */
/* rdi, rsi, rdx of a call that may be made once; which T_DATA it makes of that, or 0; and its
 * number */
#define T_PERMIT(i) (T_BASE + 0x7c0 + 8 * (i))
#define NO_PERMIT   -1 /* as the number; of no call */
#define PERMIT_USED -2 /* it is being made */
/* Ordered events */
#define T_ORDER_ID	(T_BASE + 0x678) /* the thread's, in a lock that it holds; not 0 */
#define T_ORDER_RET	(T_BASE + 0x680) /* rt_order_two: where to go on */
#define T_ORDER_OTHER	(T_BASE + 0x688) /* rt_order_two: the second lock */
#define T_ORDER_SAVE(i) (T_BASE + 0x690 + 8 * (i)) /* 0..2: rax, rcx, rdx */
#define T_ORDER_HELD	(T_BASE + 0x6b0)	   /* rt_order_hold: the two locks, 32 bits each */
#define T_ORDER_BACK	(T_BASE + 0x6b8)	   /* rt_order_hold: where to go on */
#define T_FACTS		(T_BASE + 0x6a8) /* facts of its process that the thread's stream knows of */
#define T_SEQ_AT	(T_BASE + 0x6c0) /* steps just after the last of the events in T_SEQ */
/* Instructions executed, but for the lag of the place (translate.h), are the sum of these. To add
 * to memory takes some six cycles after the last addition to the same place: so fragments share
 * them. */
#define T_STEPS(i)  (T_BASE + 0x6d0 + 8 * (i))
#define TR_COUNTERS 4
/* What calls made in the cache write (rt_call_data) */
#define T_DATA_NR     (T_BASE + 0x700) /* the call being made */
#define T_DATA_LIMIT  (T_BASE + 0x708) /* so many bytes of what it writes are kept */
#define T_DATA_STEPS  (T_BASE + 0x710) /* position and type of the records */
#define T_DATA_RESULT (T_BASE + 0x718)
#define T_DATA_ARG(i) (T_BASE + 0x720 + 8 * (i)) /* arguments 0..5; 6: ~0 */
#define T_DATA_MSG    (T_BASE + 0x758)		 /* the routine's own */
#define T_DATA_IOV    (T_BASE + 0x760)
#define T_DATA_IOVS   (T_BASE + 0x768)
#define T_DATA_BACK   (T_BASE + 0x770)
/* Asking without a stop (rt_ask, doc/code-cache.md): one line, as both sides look at it */
#define T_LISTEN     (T_BASE + 0x780) /* not 0: the supervisor looks at T_ASK */
#define T_ASK	     (T_BASE + 0x788) /* number of a link without a fragment, ASK_INDIRECT, or 0 */
#define T_ANSWER     (T_BASE + 0x790) /* where to go on; ANSWER_STOP; 0: not yet */
#define T_ASKED	     (T_BASE + 0x798) /* that number, or the target of the indirect branch */
#define T_ASK_TO     (T_BASE + 0x7a0) /* rt_ask: the answer */
#define ASK_INDIRECT 1
#define ANSWER_STOP  1
/* So often is looked for an answer that nobody has begun to make: some 100 microseconds. */
#define ASK_TRIES   4000
#define T_WRITES    (T_BASE + 0x800) /* 512 bytes: by number, the first of its forms, or 0 */
#define T_FORMS	    (T_BASE + 0xa00) /* FORM_SIZE bytes each; 0 is none */
#define AREA_FORMS  176
#define T_IOCTLS    (T_BASE + 0xf80) /* words of 16 bits: a request and how much it writes */
#define AREA_IOCTLS 16

/* Of what a call writes to the stack this much more is kept, if that is so near above the stack
 * pointer: local variables lie there, and one byte that is not known spoils a whole object. */
#define AREA_STACK_NEAR 0xc000
#define AREA_STACK_DATA 4096

#define AREA_HALF  (4 << 20) /* bytes of one ring half */
#define AREA_SLACK 4096	     /* end of a half that only a record under way may use */
#define AREA_LOG   (64 << 10)
#define T_LOG	   (T_BASE - AREA_LOG)
#define T_RING	   (T_LOG - 2 * AREA_HALF)
/* The target table: pairs of the wanted address and where to go. A place in it is found by the low
 * bits of the address plus a multiple of the others: what is close in the program is close here. */
#define AREA_TARGET_BITS  20
#define AREA_TARGET_MIX	  0x9e3779b1
#define AREA_TARGET_BYTES (16 << AREA_TARGET_BITS)
#define T_TARGETS	  (T_RING - AREA_TARGET_BYTES)
/* Indirect branches first look here, by the low 16 bits of the target: 65536 addresses of stubs
 * that check whether they are meant. */
#define AREA_FAST_BYTES (8 << 16)
/* One that is found in the target table takes its place in the fast one back, if there is but one
 * thread (T_ALONE): each time but so many. */
#define FAST_TURNS 7
#define T_TURN	   (T_BASE + 0x7a8)
#define T_FAST	   (T_TARGETS - AREA_FAST_BYTES)
/* Mapping calls that are made in the cache (doc/mappings.md): who makes one just now, as in
 * T_ORDER_ID, or MAPS_CLOSED, or 0; and how many have been logged. */
#define AREA_MAPS   256
#define T_MAPS	    (T_FAST - AREA_MAPS)
#define MAPS_CLOSED 1 /* they are for the supervisor to make; nobody has that id */
#define T_MAPS_N    (T_MAPS + 8)
#define AREA_DATA   4			     /* ranges */
#define T_DATA(i)   (T_MAPS + 64 + 16 * (i)) /* start, end: addresses with nothing but data */
#define T_BRK	    (T_MAPS + 128) /* lowest and highest place the break may be moved to */
/* What CPUID says, as far as it is known: entries of CPUID_SIZE bytes (rt_cpuid). */
#define AREA_CPUID (4096 - AREA_MAPS)
#define T_CPUID	   (T_MAPS - AREA_CPUID)
/* The order of events between threads: two pages, which all threads of a recording share. The locks
 * of places come first, one in each line, found by the bits of a place's address that choose a line
 * in its page. The counter has lines of its own, and so has what everybody reads at every event. */
#define AREA_ORDER     8192
#define T_ORDER	       (T_CPUID - AREA_ORDER)
#define T_ORDER_LOCKS  T_ORDER
#define ORDER_PLACE    0xfc0
#define T_ORDER_NUMBER (T_ORDER + 4096)	      /* of the last event, if it is kept here: */
#define T_ORDER_SHARED (T_ORDER + 4096 + 256) /* ORDER_ bits; 0: there is one thread */
#define ORDER_SEVERAL  1		      /* threads */
#define ORDER_IMPORTS  2 /* and what they import from each other puts them in order */
#define T_TABLES       T_ORDER
#define AREA_PAGE      4096
#define AREA_TABLES    (T_RING - T_TABLES)
#define AREA_THREAD    (-(T_RING) + AREA_PAGE)
#define AREA_CONTROL   (-(T_TABLES))		  /* bytes below S */
#define AREA_SHARED    (AREA_CONTROL + AREA_PAGE) /* bytes in the memfd */
#define AREA_SHADOW    ((1UL << 32) + AREA_PAGE)

/* Ring records: first word is steps | ordinal << 48 | type << 56. */
#define RING_IMPORT  1 /* address, rep, 64 bytes */
#define RING_SYSCALL 2 /* rax, r11, 0 */
#define RING_TSC     3 /* rax, rdx, rcx (rdtscp only), rip after; ordinal = instruction length */
#define RING_RECORD  4 /* pointer to a struct dj_record of the supervisor's */
#define RING_SEQ     5 /* number of the ordered event that follows */
#define RING_ORDER   6 /* number of the event that the instruction was, rep */
#define RING_CPUID   7 /* eax, ebx, ecx, edx (32 bits each), rip after */
#define RING_DATA    9 /* address, length, so many bytes and what fills up the last word */
/* rip after, MXCSR (32 bits), 0, all of ymm0 to ymm15, the instruction's bytes; ordinal = their
 * number */
#define RING_XRSTOR 10
/* rip after, what is in the register now, rflags, the instruction's bytes; ordinal = their number
 */
#define RING_RESULT	  11
#define RING_XGETBV	  12 /* as RING_TSC */
#define RING_DATA_HEAD	  24
#define RING_DATA_MAX	  1024
#define RING_IMPORT_SIZE  88
#define RING_SEQ_SIZE	  16
#define RING_ORDER_SIZE	  24
#define RING_SMALL_SIZE	  32
#define RING_TSC_SIZE	  48
#define RING_RESULT_FLAGS 24
#define RING_RESULT_INSN  32
#define RING_RESULT_SIZE  48
#define RING_XRSTOR_YMM	  24
#define RING_XRSTOR_INSN  536
#define RING_XRSTOR_SIZE  552

/* An entry of T_CPUID: the leaf, whether there is an entry, which bits of ecx matter and what they
 * are; eax, ebx, ecx, edx. 32 bits each. The second is written last. */
#define CPUID_LEAF  0
#define CPUID_THERE 4
#define CPUID_MASK  8
#define CPUID_SUB   12
#define CPUID_EAX   16
#define CPUID_EBX   20
#define CPUID_ECX   24
#define CPUID_EDX   28
#define CPUID_SIZE  32

/* What is done about a system call: made here, made by the supervisor; as rt_map_check says;
 * rt_sigaction, which goes to the supervisor if it is about SIGTRAP, or may set a handler of a
 * fault; rt_sigprocmask, if it may block SIGTRAP. */
#define SYS_HERE       0
#define SYS_SUPERVISED 1
#define SYS_CHECKED    2
#define SYS_SIGACTION  3
#define SYS_SIGMASK    4

/* What a call writes, bytes: the argument that points there, how much that is, the argument that
 * says it, whether it is the last form of its call; and a size (32 bits). */
#define FORM_ARG   0
#define FORM_HOW   1
#define FORM_OTHER 2
#define FORM_LAST  3
#define FORM_SIZES 4
#define FORM_SIZE  8
#define FORM_FIXED 0 /* how: the size */
#define FORM_RESULT                                                                                \
	1	      /* so many of them as the call returned, but no more bytes than other says   \
		       */
#define FORM_COUNT  2 /* so many as other says */
#define FORM_PAGES  3 /* a byte for each page of other */
#define FORM_BITS   4 /* so many bits as other says, in whole words */
#define FORM_LENGTH 5 /* as 32 bits at other say */
#define FORM_IOVEC  6 /* struct iovec, other says how many; what the call returned in all */
#define FORM_MSGHDR 7 /* struct msghdr; what the call returned in all */
#define FORM_IOCTL  8 /* other is the request */

/* An entry of the log, in words: the address in the ring behind the call's SYSCALL record, T_SEQ
 * after it, its number, rdi, rsi, rdx, r10, r9, the result; which entry it is of all threads'. */
#define LOG_PLACE  0
#define LOG_SEQ	   8
#define LOG_NUMBER 16
#define LOG_RDI	   24
#define LOG_RSI	   32
#define LOG_RDX	   40
#define LOG_R10	   48
#define LOG_R9	   56
#define LOG_RESULT 64
#define LOG_TURN   72
#define LOG_SIZE   80

/* Stops: an int3 with one of these in the 4 bytes after it. Below STOP_TABLE the runtime's. */
#define STOP_RING_FULL	  1
#define STOP_IBL_MISS	  2
#define STOP_SYSCALL_DONE 3
#define STOP_ORDER	  4 /* waiting for the lock at T_ORDER_LOCKS + rcx */
#define STOP_LINK	  5 /* at a link without a fragment, whose number is in r11 */
#define STOP_TABLE	  16

#endif
