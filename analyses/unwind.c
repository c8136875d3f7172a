/* Call stacks by unwinding (analyses/unwind.h). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "analyses/unwind.h"
#include "analyses/image.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_LIBUNWIND
#include <libunwind-x86_64.h>

/* Exported by libunwind for those that bring their own tables, and declared in none of its headers
 * (its sources have a header for that, which is not installed). */
extern int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t as, unw_word_t ip,
					      unw_dyn_info_t *di, unw_proc_info_t *pi,
					      int need_unwind_info, void *arg);

/* Reads of memory that one stack may take: an honest frame takes some hundred. */
#define MAX_READS 4000000

struct unwinding {
	struct replay *r;
	struct dj_regs regs;
	uint64_t reads;
};

static int find_proc_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *pi,
			  int need_unwind_info, void *arg)
{
	struct unwinding *u = arg;
	struct ana_unwind_table table;
	unw_dyn_info_t di;

	if (!ana_image_unwind_table(u->r, ip, &table))
		return -UNW_ENOINFO;
	memset(&di, 0, sizeof(di));
	di.format = UNW_INFO_FORMAT_REMOTE_TABLE;
	di.start_ip = table.start;
	di.end_ip = table.end;
	di.u.rti.segbase = table.header;
	di.u.rti.table_data = table.entries;
	di.u.rti.table_len = table.count * 8 / sizeof(unw_word_t);
	return UNW_OBJ(dwarf_search_unwind_table)(as, ip, &di, pi, need_unwind_info, arg);
}

static void put_unwind_info(unw_addr_space_t as, unw_proc_info_t *pi, void *arg)
{
	(void)as;
	(void)arg;
	free(pi->unwind_info);
	pi->unwind_info = NULL;
}

static int no_dyn_info(unw_addr_space_t as, unw_word_t *addr, void *arg)
{
	(void)as;
	(void)addr;
	(void)arg;
	return -UNW_ENOINFO;
}

static int access_mem(unw_addr_space_t as, unw_word_t addr, unw_word_t *value, int write, void *arg)
{
	struct unwinding *u = arg;
	uint8_t bytes[8];

	(void)as;
	if (write || u->reads++ > MAX_READS || ana_image_read(u->r, addr, bytes, 8) < 8)
		return -UNW_EINVAL;
	*value = 0;
	for (int i = 7; i >= 0; i--)
		*value = *value << 8 | bytes[i];
	return 0;
}

static int access_reg(unw_addr_space_t as, unw_regnum_t reg, unw_word_t *value, int write,
		      void *arg)
{
	/* by DWARF's numbers (System V ABI for x86-64, figure 3.36) */
	static const uint8_t number[16] = { DJ_RAX, DJ_RDX, DJ_RCX, DJ_RBX, DJ_RSI, DJ_RDI,
					    DJ_RBP, DJ_RSP, 8,	    9,	    10,	    11,
					    12,	    13,	    14,	    15 };
	struct unwinding *u = arg;

	(void)as;
	if (write || reg < 0 || reg > UNW_X86_64_RIP)
		return -UNW_EBADREG;
	*value = reg == UNW_X86_64_RIP ? u->regs.rip : u->regs.gpr[number[reg]];
	return 0;
}

static int no_fpreg(unw_addr_space_t as, unw_regnum_t reg, unw_fpreg_t *value, int write, void *arg)
{
	(void)as;
	(void)reg;
	(void)value;
	(void)write;
	(void)arg;
	return -UNW_EBADREG;
}

static int no_resume(unw_addr_space_t as, unw_cursor_t *c, void *arg)
{
	(void)as;
	(void)c;
	(void)arg;
	return -UNW_EINVAL;
}

static int no_name(unw_addr_space_t as, unw_word_t addr, char *name, size_t size, unw_word_t *off,
		   void *arg)
{
	(void)as;
	(void)addr;
	(void)name;
	(void)size;
	(void)off;
	(void)arg;
	return -UNW_ENOINFO;
}

static bool frame_of(unw_cursor_t *c, struct ana_frame *frame)
{
	unw_word_t pc, sp;

	if (unw_get_reg(c, UNW_REG_IP, &pc) || unw_get_reg(c, UNW_REG_SP, &sp))
		return false;
	*frame = (struct ana_frame){ .pc = pc, .sp = sp, .signalled = unw_is_signal_frame(c) > 0 };
	return true;
}

/* The frames beyond the first, which is there. */
static size_t outwards(unw_cursor_t *c, struct ana_frame *frames, size_t max, const char **why)
{
	size_t n = 1;
	int rc = 0;

	while (n < max && (rc = unw_step(c)) > 0) {
		if (!frame_of(c, &frames[n]) || !frames[n].pc)
			break;
		/* stacks grow downwards: what does not come nearer to the end goes round in
		 * circles; but a handler may run on a stack of its own */
		if (frames[n].sp <= frames[n - 1].sp && !frames[n - 1].signalled) {
			*why = "the stack goes round in circles";
			return n;
		}
		frames[n].exact = frames[n].signalled || frames[n - 1].signalled;
		n++;
	}
	if (rc < 0)
		*why = rc == -UNW_ENOINFO ? "there is no unwind information for the outermost frame"
					  : "the outermost frame cannot be unwound";
	else if (n == max && unw_step(c) > 0)
		*why = "there are more frames";
	return n;
}

int ana_unwind(struct replay *r, struct ana_frame *frames, size_t max, const char **why)
{
	static unw_accessors_t accessors = {
		.find_proc_info = find_proc_info,
		.put_unwind_info = put_unwind_info,
		.get_dyn_info_list_addr = no_dyn_info,
		.access_mem = access_mem,
		.access_reg = access_reg,
		.access_fpreg = no_fpreg,
		.resume = no_resume,
		.get_proc_name = no_name,
	};
	struct unwinding u = { .r = r };
	const char *unused;
	unw_addr_space_t as;
	unw_cursor_t c;
	size_t n = 1;

	why = why ? why : &unused;
	*why = NULL;
	if (!max)
		return 0;
	replay_regs(r, &u.regs);
	frames[0] = (struct ana_frame){ .pc = u.regs.rip, .sp = u.regs.gpr[DJ_RSP], .exact = true };
	as = unw_create_addr_space(&accessors, 0);
	if (!as || unw_init_remote(&c, as, &u)) {
		*why = "the innermost frame cannot be unwound";
	} else {
		unw_set_caching_policy(as, UNW_CACHE_NONE);
		frames[0].signalled = unw_is_signal_frame(&c) > 0;
		n = outwards(&c, frames, max, why);
	}
	if (as)
		unw_destroy_addr_space(as);
	return (int)n;
}

#else

int ana_unwind(struct replay *r, struct ana_frame *frames, size_t max, const char **why)
{
	(void)r;
	(void)frames;
	(void)max;
	if (why)
		*why = "this build of deja has no libunwind";
	return -1;
}

#endif
