/*
 * Debug information of a megabyte that is years of work: units that all say that their code is
 * where one long list of ranges says, none of which has any. Whoever looks for the unit of an
 * address goes through the list for each.
 */
	.section .debug_abbrev, "", @progbits
	.uleb128 1, 0x11	/* a compile unit without children: */
	.byte	0
	.uleb128 0x55, 0x17	/* ranges, an offset */
	.uleb128 0x11, 0x01	/* low_pc, an address */
	.uleb128 0, 0
	.byte	0

	.section .debug_info, "", @progbits
	.rept	30000
	.long	20		/* bytes that follow */
	.value	4		/* version */
	.long	0		/* abbreviations */
	.byte	8		/* size of an address */
	.uleb128 1
	.long	0		/* the ranges */
	.quad	0
	.endr

	.section .debug_ranges, "", @progbits
	.rept	30000
	.quad	1, 2
	.endr
	.quad	0, 0

	.section .note.GNU-stack, "", @progbits
