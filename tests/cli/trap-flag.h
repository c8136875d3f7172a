/* Five instructions behind each of which the trap flag traps. For torment.c and pester-traps.c. */
#ifndef DEJA_TESTS_TRAP_FLAG_H
#define DEJA_TESTS_TRAP_FLAG_H

static inline void trap_flag_over_five(void)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushf\n\torl $0x100, (%%rsp)\n\tpopf\n\t"
			 "nop\n\tnop\n\tpushf\n\tandl $~0x100, (%%rsp)\n\tpopf\n\t"
			 "lea 128(%%rsp), %%rsp"
			 :
			 :
			 : "memory", "cc");
}

#endif
