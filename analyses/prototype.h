/*
 * What a function takes and gives, as its debug information has it, and how that is passed (System
 * V ABI for x86-64, 3.2.3): enough to show a call's arguments and its result.
 */
#ifndef DEJA_ANALYSES_PROTOTYPE_H
#define DEJA_ANALYSES_PROTOTYPE_H

#include "analyses/symbols.h"

enum ana_value {
	ANA_VALUE_OTHER, /* it is not shown */
	ANA_VALUE_NONE,	 /* void */
	ANA_VALUE_SIGNED,
	ANA_VALUE_UNSIGNED,
	ANA_VALUE_POINTER,
	ANA_VALUE_BOOL,
	ANA_VALUE_FLOAT,
};

struct ana_parameter {
	char name[40]; /* "" if it has none */
	enum ana_value value;
	uint64_t size; /* bytes */
};

#define ANA_PARAMETERS 12
struct ana_prototype {
	bool known;
	struct ana_parameter result, p[ANA_PARAMETERS];
	unsigned n;
	bool more; /* parameters than these, or any number of them */
};

/* Of the function around this offset in a module's file. */
void ana_prototype_of(struct ana_symbols *s, size_t module, uint64_t offset,
		      struct ana_prototype *proto);

#define ANA_STACK_WORDS 6
/* What is looked at when a function is entered. */
struct ana_entry {
	uint64_t gpr[6];		 /* rdi rsi rdx rcx r8 r9 */
	uint64_t xmm[8];		 /* their lowest parts */
	uint64_t stack[ANA_STACK_WORDS]; /* above the return address */
};
/* "n=3, s=0x1234". */
void ana_arguments_text(const struct ana_prototype *proto, const struct ana_entry *e, char *buf,
			size_t size);
/* A result, by what rax and xmm0 hold. */
void ana_result_text(const struct ana_prototype *proto, uint64_t rax, uint64_t xmm, char *buf,
		     size_t size);

#endif
