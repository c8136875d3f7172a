/*
 * Names of record kinds and of the reasons for side-effect records (format/record.h).
 */
#include "format/record.h"

/* clang-format off */
static const char *const kind_names[DJ_REC_KINDS] = {
	[DJ_REC_IMPORT] = "import",   [DJ_REC_EFFECTS] = "effects", [DJ_REC_SYSCALL] = "syscall",
	[DJ_REC_REGS] = "regs",	      [DJ_REC_SIGNAL] = "signal",   [DJ_REC_MAP] = "map",
	[DJ_REC_UNMAP] = "unmap",     [DJ_REC_PROTECT] = "protect", [DJ_REC_CODE] = "code",
	[DJ_REC_DIGEST] = "digest",   [DJ_REC_CHILD] = "child",   [DJ_REC_EXEC] = "exec",
	[DJ_REC_EXIT] = "exit",	      [DJ_REC_END] = "end",	    [DJ_REC_SEQ] = "seq",
	[DJ_REC_ORDER] = "order",
	[DJ_REC_KEYFRAME] = "keyframe", [DJ_REC_GAP] = "gap",	    [DJ_REC_MARK] = "mark",
	[DJ_REC_THREAD] = "thread",   [DJ_REC_SYSDATA] = "sysdata",
	[DJ_REC_CHECK] = "check",
};
/* clang-format on */

static const char *const why_names[DJ_WHYS] = {
	[DJ_WHY_UNEMULATED] = "unemulated", [DJ_WHY_TSC] = "tsc",
	[DJ_WHY_CPUID] = "cpuid",	    [DJ_WHY_RANDOM] = "random",
	[DJ_WHY_XSTATE] = "xstate",	    [DJ_WHY_FAULTING] = "faulting",
	[DJ_WHY_OTHER] = "other",
};

const char *dj_record_kind_name(enum dj_record_kind k)
{
	return (unsigned)k < DJ_REC_KINDS && kind_names[k] ? kind_names[k] : "?";
}

const char *dj_why_name(unsigned why)
{
	return why < DJ_WHYS ? why_names[why] : "?";
}

const char *dj_what_name(enum dj_record_kind k, unsigned what)
{
	static const char *const children[DJ_CHILDREN] = { "fork", "vfork", "clone" };
	static const char *const threads[DJ_THREAD_WHATS] = { "made", "named" };
	static const char *const keyframes[DJ_KEYFRAMES] = { "light", "full", "part" };
	static const char *const marks[DJ_MARKS] = { "user", "time", "switch-out", "switch-in",
						     "command" };

	switch (k) {
	case DJ_REC_CHILD:
		return what < DJ_CHILDREN ? children[what] : "?";
	case DJ_REC_THREAD:
		return what < DJ_THREAD_WHATS ? threads[what] : "?";
	case DJ_REC_KEYFRAME:
		return what < DJ_KEYFRAMES ? keyframes[what] : "?";
	case DJ_REC_MARK:
		return what < DJ_MARKS ? marks[what] : "?";
	default:
		return "?";
	}
}
