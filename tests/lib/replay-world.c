/*
 * The made-up world: see replay-world.h.
 *
 * The recorder here is the emulator itself with hooks that do what instrumentation does: a
 * load that finds memory different from the shadow imports the line. So the records are
 * right by the format's definition, and every position's registers are known. It is one file:
 * executing a step, recording it and noting its position are the same functions.
 */
#include "tests/lib/random.h"
#include "tests/lib/replay-world.h"
#include "tests/lib/replay-world-code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The program, as source and as what the assembler made of it on x86-64: other machines have no
 * assembler for it. world_check() holds the two together where both are there.
 */
#ifdef __x86_64__
__asm__(".pushsection .rodata\n"
	".globl world_code, world_code_end\n"
	"world_code:\n"
	"	mov $0x10000000, %ebx\n"
	"	movabs $0x110000000, %rbp\n"
	"	mov $0, %r15\n"
	"world_loop:\n"
	"	mov 0x100(%rbx), %rax\n"
	"	add %r15, %rax\n"
	"	mov %rax, 0x108(%rbx)\n"
	"	cmpb $3, 0x10b(%rbx)\n"
	"	call world_function\n"
	"	xor %rax, 0x40(%rbp)\n"
	"	mov 0x48(%rbp), %edx\n"
	"	lock xadd %rdx, 0x200(%rbx)\n"
	"	movdqu 0x30(%rbx), %xmm1\n"
	"	paddd %xmm1, %xmm2\n"
	"	movdqu %xmm2, 0x1ff8(%rbx)\n" /* straddles a page */
	"	mov %r15b, 0x320(%rbx)\n"
	"	lea 0x300(%rbx), %rsi\n"
	"	lea 0x1010(%rbx), %rdi\n"
	"	mov %r15d, %ecx\n"
	"	and $63, %ecx\n"
	"world_rep:\n"
	"	rep movsb\n"
	"	lea 0x300(%rbp), %rdi\n"
	"	mov $9, %ecx\n"
	"	rep stosq\n"
	"	lea 0x500(%rbx), %rsi\n"
	"	lea 0x580(%rbx), %rdi\n"
	"	mov $20, %ecx\n"
	"	repe cmpsb\n"
	"	rdtsc\n"
	"	add %rax, %r8\n"
	"	test $7, %r15b\n"
	"	jnz 1f\n"
	"	mov $39, %eax\n"
	"	mov %r8, 0x2100(%rbx)\n"
	"world_syscall:\n"
	"	syscall\n"
	"	add %rax, %r9\n"
	"1:	push %r9\n"
	"	incq (%rsp)\n"
	"	pop %r10\n"
	"	imul $0x343fd, %r10, %r11\n"
	"	and $0xff8, %r11\n"
	"	mov 0x2800(%rbx,%r11), %r12\n"
	"	mov %r12, 0x1000(%rbp,%r11)\n"
	"	inc %r15\n"
	"	cmp %r14, %r15\n"
	"	jne world_loop\n"
	"	mov $60, %eax\n"
	"	syscall\n"
	"world_function:\n"
	"	push %rbx\n"
	"	sub $0x40, %rsp\n"
	"	mov %rax, 8(%rsp)\n"
	"	mov 0x110(%rbx), %rcx\n"
	"	lea 3(%rcx,%rax,2), %rax\n"
	"	add 8(%rsp), %rax\n"
	"	add $0x40, %rsp\n"
	"	pop %rbx\n"
	"	ret\n"
	"world_handler:\n"
	"	push %rax\n"
	"	mov 0x700(%rbx), %rax\n"
	"	add $1, %rax\n"
	"	mov %rax, 0x700(%rbx)\n"
	"	pop %rax\n"
	"	mov $15, %eax\n"
	"	syscall\n"
	"world_code_end:\n"
	".popsection\n");

extern const uint8_t world_code[], world_code_end[], world_loop[], world_rep[], world_syscall[],
	world_function[], world_handler[];

static void world_check(void)
{
	const struct {
		const char *name;
		const uint8_t *at;
	} labels[] = { { "loop", world_loop },	     { "rep", world_rep },
		       { "syscall", world_syscall }, { "function", world_function },
		       { "handler", world_handler }, { "code", world_code } };
	const size_t nlabels = sizeof(labels) / sizeof(labels[0]);
	const size_t n = (size_t)(world_code_end - world_code);
	bool same = n == sizeof(world_bytes) && !memcmp(world_code, world_bytes, n) &&
		    nlabels == sizeof(world_labels) / sizeof(world_labels[0]);

	for (size_t i = 0; same && i < nlabels; i++)
		same = !strcmp(labels[i].name, world_labels[i].name) &&
		       labels[i].at == world_code + world_labels[i].offset;
	if (same)
		return;
	printf("static const struct world_label world_labels[] = {\n");
	for (size_t i = 0; i < nlabels; i++)
		printf("\t{ \"%s\", %td },\n", labels[i].name, labels[i].at - world_code);
	printf("};\nstatic const uint8_t world_bytes[] = {");
	for (size_t i = 0; i < n; i++)
		printf("%s0x%02x,", i % 16 ? " " : "\n\t", world_code[i]);
	printf("\n};\nThat is what tests/lib/replay-world-code.h has to hold now.\n");
	exit(1);
}
#else
static void world_check(void)
{
}
#endif

uint64_t world_label(const char *name)
{
	for (size_t i = 0; i < sizeof(world_labels) / sizeof(world_labels[0]); i++)
		if (!strcmp(world_labels[i].name, name))
			return CODE_AT + world_labels[i].offset;
	abort();
}

static uint64_t rnd(struct world *w)
{
	return random_next(&w->random);
}

uint64_t world_hash(uint64_t h, uint64_t x)
{
	h ^= x;
	h *= 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

static struct world_region *region(struct world *w, uint64_t addr)
{
	for (size_t i = 0; i < 4; i++)
		if (addr >= w->region[i].start && addr - w->region[i].start < REGION)
			return &w->region[i];
	fprintf(stderr, "the program touched 0x%llx\n", (unsigned long long)addr);
	abort();
}

static uint8_t *byte(struct world *w, uint64_t addr)
{
	struct world_region *r = region(w->mates[0], addr);

	return &r->mem[addr - r->start];
}

enum way { READ, IMPORT, STORE };

/* A watched byte, as all threads in their order have it. */
static void see_in_order(struct world *w, unsigned which, uint64_t k, uint8_t value, enum way way)
{
	struct world *all = w->mates[0];
	bool *known = &all->last_known[which][k];

	if (way == READ)
		return;
	if (*known ? all->last_value[which][k] != value : way == STORE)
		w->all_watch[which] = true;
	*known = true;
	all->last_value[which][k] = value;
}

static void see(struct world *w, uint64_t addr, uint8_t value, enum way way)
{
	struct world_region *r = region(w, addr);
	uint64_t k = addr - r->start;
	bool changed = r->known[k] ? r->seen[k] != value : way == STORE;

	if (addr - WATCHED < 8)
		see_in_order(w, 0, addr - WATCHED, value, way);
	if (addr - WATCHED2 < 8)
		see_in_order(w, 1, addr - WATCHED2, value, way);
	r->touched[k] = w->stamp;
	if (way != READ)
		r->changed[k] = w->stamp;

	if (addr - WATCHED < 8 && changed)
		w->watch = true;
	if (addr - WATCHED2 < 8 && changed)
		w->watch2 = true;
	r->known[k] = 1;
	r->seen[k] = value;
}

static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	size_t size = sizeof(world_bytes);

	(void)ctx;
	if (addr < CODE_AT || addr >= CODE_AT + size)
		return 0;
	if (len > size - (addr - CODE_AT))
		len = size - (addr - CODE_AT);
	memcpy(buf, world_bytes + (addr - CODE_AT), len);
	return len;
}

static void before_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	struct world *w = ctx;
	bool differs = w->predict == DJ_PREDICT_NONE;

	if (addr < WATCHED + 8 && addr + size > WATCHED)
		w->reads = true;
	for (unsigned i = 0; i < size; i++)
		differs |= *byte(w, addr + i) != e->shadow[(uint32_t)addr + i];
	if (!differs) {
		for (unsigned i = 0; i < size; i++)
			see(w, addr + i, *byte(w, addr + i), READ);
		return;
	}
	for (uint64_t line = addr & ~63ULL; line < addr + size; line += 64) {
		uint8_t bytes[64];
		for (unsigned i = 0; i < 64; i++) {
			bytes[i] = *byte(w, line + i);
			see(w, line + i, bytes[i], IMPORT);
		}
		memcpy(e->shadow + (uint32_t)line, bytes, 64);
		dj_stream_import(w->thread, e->steps, w->rep_now, e->ordinal, line, bytes, NULL);
		w->imports++;
	}
}

static void nothing(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx;
	(void)e;
	(void)addr;
	(void)size;
}

static void after_store(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			const uint8_t *bytes)
{
	struct world *w = ctx;

	(void)e;
	for (unsigned i = 0; i < size; i++) {
		*byte(w, addr + i) = bytes[i];
		see(w, addr + i, bytes[i], STORE);
	}
}

static void put_record(struct world *w, struct dj_record *r)
{
	r->steps = w->e->steps;
	if (r->kind != DJ_REC_SEQ)
		r->seq = w->seq;
	if (dj_stream_record(w->thread, r, NULL))
		abort();
}

/* The record that follows is, or the instruction that follows has, an ordered event. */
static void number_event(struct world *w)
{
	struct dj_record r = { .kind = DJ_REC_SEQ, .seq = ++*w->last };

	if (r.seq != w->seq + 1)
		put_record(w, &r);
	w->events++;
}

/* What a person who looks at memory in this thread should be shown: what the thread knows, unless
 * another one has changed it since; of what it does not know, the latest change, or what somebody
 * has read. */
static uint64_t hash_shown(struct world *w)
{
	uint64_t h = 0;

	for (size_t i = 1; i < 4; i++)
		for (size_t k = 0; k < REGION; k++) {
			const struct world_region *r = &w->region[i];
			uint64_t at = r->known[k] ? r->touched[k] : 0;
			uint64_t value = r->known[k] ? r->seen[k] : 256;
			for (unsigned t = 0; t < w->nmates; t++) {
				const struct world_region *o = &w->mates[t]->region[i];
				if (o->known[k] && (o->changed[k] > at || value == 256)) {
					at = o->changed[k];
					value = o->seen[k];
				}
			}
			h = world_hash(h, value);
		}
	return h;
}

static uint64_t stamp(const struct world *w, uint64_t seq)
{
	return (seq + 1) * WORLD_THREADS + w->number;
}

static struct world_pos *note(struct world *w)
{
	struct dj_regs regs;

	if (w->n == w->cap) {
		w->cap = w->cap * 2 + 1024;
		w->pos = realloc(w->pos, w->cap * sizeof(*w->pos));
	}
	struct world_pos *p = &w->pos[w->n++];
	emu_get_regs(w->e, &regs);
	*p = (struct world_pos){ .steps = w->e->steps,
				 .signals = w->signals,
				 .rep = w->e->in_rep ? w->e->rep_iter : 0,
				 .rip = regs.rip,
				 .digest = dj_regs_digest(&regs),
				 .rflags = regs.rflags,
				 .seq = w->seq,
				 .within = w->e->steps - w->event_steps };
	if (w->nmates > 1 && w->n % 200 == 0 && !w->turn_begins)
		for (unsigned t = 0; t < w->nmates; t++)
			p->seen_by[t] = hash_shown(w->mates[t]);
	if (w->n % w->seen_every == 0)
		for (size_t i = 1; i < 4; i++)
			for (size_t k = 0; k < REGION; k++)
				p->seen = world_hash(p->seen, w->region[i].known[k]
								      ? w->region[i].seen[k]
								      : 256);
	return p;
}

/* Others write to memory. */
static void meddle(struct world *w)
{
	static const uint16_t at[] = {
		0x100, 0x108, 0x110, 0x38, 0x320, 0x505, 0x585, 0x700, 0x2808
	};
	unsigned pick = rnd(w) % 20;

	if (rnd(w) % 40)
		return;
	if (pick < sizeof(at) / sizeof(at[0]))
		*byte(w, DATA_AT + at[pick] + rnd(w) % 8) = (uint8_t)rnd(w);
	else
		*byte(w, (pick & 1 ? DATA_AT : ALIAS_AT) + rnd(w) % REGION) = (uint8_t)rnd(w);
}

static void do_signal(struct world *w, struct world_pos *p, bool in_rep)
{
	struct dj_record r = { .kind = DJ_REC_SIGNAL, .signo = 10, .mask = DJ_REG_ALL };

	p->signal = true;
	emu_get_regs(w->e, &w->saved);
	r.regs = w->saved;
	r.regs.rip = world_label("handler");
	r.regs.gpr[DJ_RSP] -= 0x200;
	r.rep = in_rep ? w->saved.gpr[DJ_RCX] : 0;
	r.siginfo[0] = 10;
	/* the kernel's frame, known without having been looked at */
	uint8_t frame[0x200 - 128];
	w->stamp = stamp(w, *w->last + 1);
	r.addr = r.regs.gpr[DJ_RSP];
	r.length = rnd(w) % (sizeof(frame) + 1);
	r.bytes = frame;
	for (size_t i = 0; i < r.length; i++) {
		*byte(w, r.addr + i) = frame[i] = (uint8_t)rnd(w);
		see(w, r.addr + i, frame[i], IMPORT);
	}
	number_event(w);
	put_record(w, &r);
	w->seq = *w->last;
	emu_set_regs(w->e, &r.regs, r.mask);
	w->e->in_rep = false;
	w->e->rep_iter = 0;
	w->signals++;
	w->event_steps = w->e->steps;
	w->in_handler = true;
}

static bool do_syscall(struct world *w, struct world_pos *p)
{
	struct emu *e = w->e;
	struct dj_record r = { .kind = DJ_REC_SYSCALL,
			       .result = rnd(w) & 0xffff,
			       .r11 = rnd(w) & 0xed5 };
	uint64_t nr = e->cpu.gpr[DJ_RAX];

	if (nr == 60)
		return false;
	p->syscall = true;
	number_event(w);
	put_record(w, &r);
	w->seq = *w->last;
	e->cpu.rip += 2;
	e->cpu.gpr[DJ_RAX] = r.result;
	e->cpu.gpr[DJ_RCX] = e->cpu.rip;
	e->cpu.gpr[DJ_R11] = r.r11;
	e->steps++;
	w->signals = 0;
	w->event_steps = e->steps;
	if (nr == 15) {
		struct dj_record g = { .kind = DJ_REC_REGS, .mask = DJ_REG_ALL, .regs = w->saved };
		put_record(w, &g);
		emu_set_regs(e, &w->saved, DJ_REG_ALL);
		w->in_handler = false;
	}
	return true;
}

static void do_rdtsc(struct world *w)
{
	struct emu *e = w->e;
	struct dj_record r = { .kind = DJ_REC_EFFECTS,
			       .why = DJ_WHY_TSC,
			       .insn = { 0x0f, 0x31 },
			       .insn_len = 2,
			       .mask = DJ_REG_GPR(DJ_RAX) | DJ_REG_GPR(DJ_RDX) | DJ_REG_RIP };

	r.regs.gpr[DJ_RAX] = rnd(w) & 0xffffffff;
	r.regs.gpr[DJ_RDX] = rnd(w) & 0xffff;
	r.regs.rip = e->cpu.rip + 2;
	put_record(w, &r);
	emu_set_regs(e, &r.regs, r.mask);
	e->steps++;
	w->signals = 0;
	w->effects++;
}

/* All flags, and the shadow of all memory. */
static void check(struct world *w, const struct dj_regs *regs)
{
	struct dj_check c = { .flags_known = UINT32_MAX, .flags = regs->rflags };
	uint8_t bytes[DJ_CODE_MAX];

	for (size_t i = 0; i < sizeof(w->region) / sizeof(w->region[0]); i++)
		for (uint64_t at = 0; at < REGION; at += DJ_CHECK_PAGE) {
			uint64_t addr = w->region[i].start + at;
			c.piece[c.n++] =
				(struct dj_check_piece){ addr, DJ_CHECK_PAGE,
							 dj_check_sum(w->e->shadow + (uint32_t)addr,
								      DJ_CHECK_PAGE) };
		}
	struct dj_record r = { .kind = DJ_REC_CHECK,
			       .length = dj_check_pack(&c, bytes),
			       .bytes = bytes };
	put_record(w, &r);
}

uint64_t world_spoil[WORLD_THREADS];

static void digest(struct world *w)
{
	struct dj_record r = { .kind = DJ_REC_DIGEST };
	struct dj_regs regs;

	emu_get_regs(w->e, &regs);
	r.digest = dj_regs_digest(&regs);
	if (w->digests + 1 == world_spoil[w->number])
		r.digest ^= 1;
	put_record(w, &r);
	check(w, &regs);
	w->digests++;
	w->digest_at = w->e->steps + 501;
}

static void decide(struct world *w)
{
	if (!w->decided)
		/* the handler needs what the first instructions do */
		w->will_signal = !w->in_handler && rnd(w) % 300 == 0 && w->e->steps > 3;
	w->decided = true;
}

/* With memory model 2 fences are ordered events. */
static bool fence(const struct world *w, const struct insn *in)
{
	return (in->attr & (INSN_A_ATOMIC | INSN_A_FENCE)) && w->seen_every & 1;
}

/* Whether the next step is an ordered event. */
static bool event_next(struct world *w)
{
	struct insn in;

	decide(w);
	if (!emu_peek(w->e, &in))
		abort();
	return w->will_signal || (in.attr & INSN_A_SYSCALL) || fence(w, &in);
}

/* The step from the position just noted; false at the end. */
static bool step(struct world *w)
{
	struct world_pos *p = note(w);
	struct emu *e = w->e;
	struct insn in;
	uint64_t before = e->steps;
	bool more = true;

	if (!emu_peek(e, &in))
		abort();
	w->watch = w->watch2 = w->reads = w->all_watch[0] = w->all_watch[1] = false;
	w->stamp = stamp(w, w->seq);
	decide(w);
	w->decided = false;
	if (w->will_signal) {
		do_signal(w, p, (in.attr & INSN_A_REP) && e->in_rep);
		p->all_watch = w->all_watch[0];
		p->all_watch2 = w->all_watch[1];
		return true;
	}
	meddle(w);
	if (in.attr & INSN_A_SYSCALL) {
		more = do_syscall(w, p);
	} else if (in.attr & INSN_A_NONDET) {
		do_rdtsc(w);
	} else {
		bool ordered = fence(w, &in);
		w->rep_now = in.attr & INSN_A_REP ? e->cpu.gpr[DJ_RCX] : 0;
		if (ordered) {
			number_event(w);
			w->stamp = stamp(w, *w->last);
		}
		if (emu_step(e) != EMU_STOP_STEPS)
			abort();
		if (ordered) {
			w->seq = *w->last;
			w->event_steps = e->steps;
		}
	}
	p->watch = w->watch;
	p->watch2 = w->watch2;
	p->all_watch = w->all_watch[0];
	p->all_watch2 = w->all_watch[1];
	p->reads = w->reads;
	if (e->steps != before)
		w->signals = 0;
	if (more && !e->in_rep && e->steps >= w->digest_at && e->steps != before)
		digest(w);
	return more;
}

/* The first records: registers, and mappings unless the thread finds them there. */
static void begin(struct world *w, unsigned rounds, int module, bool found)
{
	struct dj_record r = { .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };

	r.regs.rip = CODE_AT;
	r.regs.rflags = 0x202;
	r.regs.gpr[DJ_RSP] = STACK_AT + REGION - 0x100 - 0x800 * w->number;
	r.regs.gpr[DJ_R14] = rounds;
	r.regs.mxcsr = 0x1f80;
	r.regs.fcw = 0x37f;
	emu_set_regs(w->e, &r.regs, r.mask);
	put_record(w, &r);
	for (size_t i = 0; i < 4; i++) {
		struct dj_record m = { .kind = DJ_REC_MAP,
				       .addr = w->region[i].start,
				       .length = REGION,
				       .prot = i ? 3 : 5,
				       .flags = 0x22,
				       .module = i ? -1 : module,
				       .name = i ? NULL : "program" };
		if (!i)
			m.length = 4096;
		if (!found)
			put_record(w, &m);
	}
	if (found && dj_stream_facts(w->thread, 0, 4, NULL))
		abort();
	for (size_t i = 1; i < 4; i++)
		for (size_t k = 0; !w->number && k < REGION; k++)
			w->region[i].mem[k] = rnd(w) % 3 ? 0 : (uint8_t)rnd(w);
}

static struct dj_writer *create(const char *path, uint64_t seed, int predict, unsigned memory_model,
				int *module)
{
	static const char *const argv[] = { "program", NULL }, *const envp[] = { NULL };
	struct dj_trace_meta meta = { .predict = (uint32_t)predict,
				      .shadow_bits = 32,
				      .memory_model = memory_model,
				      .digest_interval = 501,
				      .pid = 1,
				      .page_size = 4096,
				      .deja_version = "test",
				      .machine = "test",
				      .exe = "/program",
				      /* either kind of processor, whatever this runs on */
				      .cpu = seed & 1 ? "AuthenticAMD" : "GenuineIntel",
				      .cwd = "/",
				      .argv = argv,
				      .envp = envp };
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);

	if (w)
		*module = dj_writer_module(w, "/program", world_bytes, sizeof(world_bytes), &err);
	if (w && *module >= 0)
		return w;
	fprintf(stderr, "%s\n", err.text);
	abort();
}

/* A run before its first record. */
static struct world *start(struct dj_writer *writer, struct dj_stream *process, int32_t tid,
			   uint64_t seed, int predict, unsigned memory_model)
{
	struct world *w = calloc(1, sizeof(*w));
	struct dj_error err = { 0 };

	world_check();

	if (!w)
		abort();
	w->random = seed * 0x9e3779b97f4a7c15ULL + 1;
	w->predict = predict;
	w->seen_every = memory_model == 2 ? 97 : 98;
	w->region[0].start = CODE_AT;
	w->region[1].start = DATA_AT;
	w->region[2].start = ALIAS_AT;
	w->region[3].start = STACK_AT;
	w->w = writer;
	w->tid = tid;
	w->last = &w->seq;
	w->mates[0] = w;
	w->nmates = 1;
	w->e = emu_new(&err);
	if (!w->e || !process ||
	    !(w->thread = dj_writer_thread(w->w, process, tid, "program", &err))) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	w->e->kind = seed & 1 ? DJ_CPU_AMD : DJ_CPU_INTEL;
	w->e->ctx = w;
	w->e->fetch = fetch;
	w->e->before_load = before_load;
	w->e->after_load = nothing;
	w->e->before_store = nothing;
	w->e->after_store = after_store;
	w->e->hooks = EMU_HOOK_IMPORT | EMU_HOOK_TRACK;
	w->e->mirror_stores = predict == DJ_PREDICT_SHADOW;
	return w;
}

static void finish(struct world *w)
{
	struct dj_record end = { .kind = DJ_REC_EXIT, .status = 0x300 };

	put_record(w, &end);
	if (dj_stream_flush(w->thread, w->e->steps, w->seq, NULL))
		abort();
}

static void close_trace(struct dj_writer *writer, uint64_t steps)
{
	if (dj_writer_close(writer, &(struct dj_trace_end){ .status = 0x300, .steps = steps },
			    NULL))
		abort();
}

struct world *world_record(const char *path, uint64_t seed, unsigned rounds, int predict,
			   unsigned memory_model)
{
	int module;
	struct dj_writer *writer = create(path, seed, predict, memory_model, &module);
	struct world *w = start(writer, dj_writer_process(writer, 1, NULL, NULL), 1, seed, predict,
				memory_model);
	uint64_t last = 0;

	w->last = &last;
	begin(w, rounds, module, false);
	while (step(w))
		;
	finish(w);
	close_trace(writer, w->e->steps);
	return w;
}

void world_record_two(const char *path, uint64_t seed, const unsigned rounds[2],
		      unsigned memory_model, unsigned processes, struct world *out[2])
{
	bool more[2] = { true, true };
	int module;
	struct dj_writer *writer = create(path, seed, DJ_PREDICT_SHADOW, memory_model, &module);
	struct dj_stream *process = dj_writer_process(writer, 1, NULL, NULL);
	uint64_t last = 0;

	out[0] = start(writer, process, 1, seed, DJ_PREDICT_SHADOW, memory_model);
	out[0]->last = &last;
	begin(out[0], rounds[0], module, false);
	while (last < 5)
		step(out[0]);
	if (processes > 1)
		process = dj_writer_process(writer, 2, process, NULL);
	out[1] = start(writer, process, 2, seed + 2, DJ_PREDICT_SHADOW, memory_model);
	out[1]->last = &last;
	out[1]->seq = last;
	if (dj_stream_flush(out[1]->thread, 0, last, NULL))
		abort();
	begin(out[1], rounds[1], module, processes == 1);
	while (more[0] || more[1]) {
		int i = rnd(out[0]) & 1;
		for (uint64_t n = rnd(out[0]) % 200; more[i] && n; n--) {
			more[i] = step(out[i]);
			if (!more[i])
				finish(out[i]);
		}
	}
	close_trace(writer, out[0]->e->steps + out[1]->e->steps);
}

/* Steps of one thread, the next one and then up to an ordered event. */
static bool take_turn(struct world *w)
{
	w->turn_begins = true;
	while (step(w)) {
		w->turn_begins = false;
		if (event_next(w))
			return true;
	}
	return false;
}

void world_record_many(const char *path, uint64_t seed, unsigned n, unsigned rounds,
		       unsigned memory_model, bool racy, struct world *out[])
{
	int module;
	struct dj_writer *writer = create(path, seed, DJ_PREDICT_SHADOW, memory_model, &module);
	struct dj_stream *process = dj_writer_process(writer, 1, NULL, NULL);
	uint64_t last = 0, steps = 0;
	unsigned begun = 0, left = n;
	bool more[WORLD_THREADS];

	while (left) {
		/* the next one begins, or one of those that are there goes on */
		if (begun < n && last >= begun * 4) {
			struct world *w = start(writer, process, (int32_t)begun + 1,
						seed + 2 * begun, DJ_PREDICT_SHADOW, memory_model);
			w->last = &last;
			w->seq = last;
			w->number = begun;
			out[begun] = w;
			for (unsigned i = 0; i <= begun; i++) {
				for (unsigned k = 0; k <= begun; k++)
					out[i]->mates[k] = out[k];
				out[i]->nmates = begun + 1;
			}
			if (begun && dj_stream_flush(w->thread, 0, last, NULL))
				abort();
			begin(w, rounds + begun * 7, module, begun != 0);
			more[begun] = true;
			/* what it does before its first event sorts here */
			if (!racy && begun)
				more[begun] = take_turn(w);
			begun++;
		}
		unsigned i = (unsigned)(rnd(out[0]) % begun);
		if (!more[i])
			continue;
		if (racy)
			for (uint64_t k = rnd(out[0]) % 200; more[i] && k; k--)
				more[i] = step(out[i]);
		else
			more[i] = take_turn(out[i]);
		if (!more[i]) {
			finish(out[i]);
			steps += out[i]->e->steps;
			left--;
		}
	}
	close_trace(writer, steps);
}

void world_free(struct world *w)
{
	emu_free(w->e);
	free(w->pos);
	free(w);
}
