/*
 * Makes hostile traces: small files that would have a reader take much memory or time, run for
 * ever, or show a terminal what it obeys. Each is named; tests/cli/hostile-cost.py knows what is to
 * become of it.
 *
 * usage: make-hostile --list | NAME FILE
 *
 * Most are well-formed and made by the real writer. What no writer makes is written as raw chunks.
 */
#include "format/bytes.h"
#include "format/chunk.h"
#include "format/trace.h"
#include "format/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CODE_AT	 0x4000000u
#define STACK_AT 0x7ffffffff000u

static struct dj_writer *w;
static struct dj_stream *process, *thread;
static struct dj_error err;
static uint64_t at; /* instructions of the thread */
static struct dj_regs regs;
static uint64_t last_steps; /* 0: where the records end */

static void good(bool is, const char *what)
{
	if (is)
		return;
	fprintf(stderr, "make-hostile: %s: %s\n", what, err.text);
	exit(1);
}

/* ---- what traces are made of ------------------------------------------------------------- */

static void put(struct dj_record r)
{
	if (r.kind != DJ_REC_SEQ && r.kind != DJ_REC_DIGEST)
		r.seq = DJ_SEQ_UNKNOWN;
	r.steps = at;
	good(!dj_stream_record(thread, &r, &err), "record");
}

static void map(uint64_t addr, uint64_t length, const char *name)
{
	put((struct dj_record){ .kind = DJ_REC_MAP,
				.addr = addr,
				.length = length,
				.prot = 7,
				.flags = 0x22,
				.module = -1,
				.name = name });
}

static void unmap(uint64_t addr, uint64_t length)
{
	put((struct dj_record){ .kind = DJ_REC_UNMAP, .addr = addr, .length = length });
}

static void code(uint64_t addr, const void *bytes, size_t length)
{
	put((struct dj_record){
		.kind = DJ_REC_CODE, .addr = addr, .length = length, .bytes = bytes });
}

static void set_regs(void)
{
	put((struct dj_record){ .kind = DJ_REC_REGS, .mask = DJ_REG_ALL, .regs = regs });
}

static void import(uint64_t addr, const void *line)
{
	uint8_t bytes[DJ_LINE] = { 0 };

	if (line)
		memcpy(bytes, line, DJ_LINE);
	put((struct dj_record){ .kind = DJ_REC_IMPORT, .addr = addr & ~63ull, .bytes = bytes });
}

static void call(uint64_t result)
{
	put((struct dj_record){ .kind = DJ_REC_SYSCALL, .result = result, .r11 = 0x202 });
	at++;
}

static void name_record(enum dj_record_kind kind, const char *name)
{
	put((struct dj_record){ .kind = kind, .name = name, .subject = -1 });
}

/* A world with this code and these registers. */
static void world(const void *bytes, size_t length)
{
	map(CODE_AT, 0x1000, "");
	map(STACK_AT - 0x20000, 0x21000, "[stack]");
	code(CODE_AT, bytes, length);
	regs.rip = CODE_AT;
	regs.gpr[DJ_RSP] = regs.gpr[DJ_RSP] ? regs.gpr[DJ_RSP] : STACK_AT - 0x1000;
	regs.rflags = 0x202;
	regs.mxcsr = 0x1f80;
	regs.fcw = 0x37f;
	set_regs();
}
#define WORLD(...)                                                                                 \
	do {                                                                                       \
		static const uint8_t bytes_[] = { __VA_ARGS__ };                                   \
		world(bytes_, sizeof(bytes_));                                                     \
	} while (0)

/* The smallest: two instructions. What comes to pass, does so before the first. */
static void two_steps(void)
{
	WORLD(0x90, 0x90);
	last_steps = 2;
}

/* The longest name that a record can have. */
static void long_name(char name[DJ_NAME_MAX])
{
	memset(name, 'n', DJ_NAME_MAX - 1);
	name[DJ_NAME_MAX - 1] = 0;
}

static void maps(unsigned n, const char *name)
{
	for (unsigned i = 0; i < n; i++)
		map(0x10000000 + 0x2000ull * i, 0x1000, name);
}

static void raw(struct dj_chunk_header h, const void *bytes, size_t length)
{
	good(!dj_writer_chunk(w, &h, bytes, length, &err), "chunk");
}

static uint8_t *block(size_t length, int byte)
{
	uint8_t *p = malloc(length);

	good(p != NULL, "memory");
	memset(p, byte, length);
	return p;
}

/* ---- REP ---------------------------------------------------------------------------------- */

static void rep(uint8_t prefix, uint8_t opcode, uint64_t count)
{
	const uint8_t bytes[] = { prefix, 0x48, opcode, 0x90, 0x90 };

	regs.gpr[DJ_RCX] = count;
	regs.gpr[DJ_RDI] = 0x10000000;
	regs.gpr[DJ_RSI] = 0x20000000;
	regs.gpr[DJ_RAX] = 0x1111111111111111;
	world(bytes, sizeof(bytes));
	last_steps = 2;
}

static void rep_stos(void)
{
	rep(0xf3, 0xab, 1ull << 60);
}
static void rep_movs(void)
{
	rep(0xf3, 0xa5, UINT64_MAX);
}
static void rep_lods(void)
{
	rep(0xf3, 0xad, 1ull << 43);
}
static void rep_scas(void)
{
	regs.gpr[DJ_RAX] = 1;
	rep(0xf2, 0xaf, 1ull << 60); /* never found */
}
static void rep_cmps(void)
{
	rep(0xf3, 0xa7, 1ull << 60);
}
static void rep_stos_unmapped(void)
{
	rep(0xf3, 0xab, 1ull << 40);
}
/* Imports at iterations far apart. */
static void rep_imports(void)
{
	uint8_t bytes[DJ_LINE] = { 0 };

	rep(0xf3, 0xad, 1ull << 43);
	for (unsigned i = 0; i < 100; i++)
		put((struct dj_record){ .kind = DJ_REC_IMPORT,
					.rep = (1ull << 42) - ((uint64_t)i << 30),
					.addr = 0x20000000 + i * 64,
					.bytes = bytes });
}

/* ---- steps --------------------------------------------------------------------------------- */

static void loop_for_ever(void)
{
	WORLD(0xeb, 0xfe);
	last_steps = 1ull << 59;
}
static void steps_enormous(void)
{
	WORLD(0xeb, 0xfe);
	last_steps = UINT64_MAX - 1;
}
/* Long enough to be replayed in translated code: accesses all over the 64 bits of addresses, of
 * which few pages are left of the shadow's. imul rdi, rdi, 1664525; add rdi, 1013904223; mov rsi,
 * rdi; shl rsi, 20; mov [rsi+rdi*0+8], rax; add rax, [rsi-8]; movups xmm0, [rsi-1]; movups [rsi],
 * xmm0; jmp */
static void code_wild(void)
{
	WORLD(0x48, 0x69, 0xff, 0x0d, 0x66, 0x19, 0x00, 0x48, 0x81, 0xc7, 0x5f, 0xf3, 0x6e, 0x3c,
	      0x48, 0x89, 0xfe, 0x48, 0xc1, 0xe6, 0x18, 0x48, 0x89, 0x46, 0x08, 0x48, 0x03, 0x46,
	      0xf8, 0x0f, 0x10, 0x46, 0xff, 0x0f, 0x11, 0x06, 0xeb, 0xda);
	map(0, 64 << 20, "");
	last_steps = 100000;
}
/* The same, and then to where nothing is: mov ecx, 100000; dec ecx; jne; mov rax, rdi; jmp rax */
static void code_nowhere(void)
{
	regs.gpr[DJ_RDI] = 0x8000123456789abc;
	WORLD(0xb9, 0xa0, 0x86, 0x01, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0x48, 0x89, 0xf8, 0xff, 0xe0);
	last_steps = 1ull << 30;
}
/* An operand that the processor wants aligned, and a division by zero: mov ecx, 100000; movaps
 * [rsp+1], xmm0; dec ecx; jne; div ecx */
static void code_exceptions(void)
{
	WORLD(0xb9, 0xa0, 0x86, 0x01, 0x00, 0x0f, 0x29, 0x44, 0x24, 0x01, 0xff, 0xc9, 0x75, 0xf7,
	      0xf7, 0xf1);
	last_steps = 1ull << 30;
}
/* A new page at every second instruction: mov [rdi], rax; add rdi, 4096; jmp */
static void stores_everywhere(void)
{
	regs.gpr[DJ_RDI] = 0x100000000;
	WORLD(0x48, 0x89, 0x07, 0x48, 0x81, 0xc7, 0x00, 0x10, 0x00, 0x00, 0xeb, 0xf4);
	last_steps = 1ull << 40;
}
static void imports_everywhere(void)
{
	WORLD(0x48, 0x8b, 0x07, 0x48, 0x81, 0xc7, 0x00, 0x10, 0x00, 0x00, 0xeb, 0xf4);
	for (unsigned i = 0; i < 400000; i++) {
		at = 3 * (uint64_t)i;
		import((uint64_t)i << 12, NULL);
	}
	last_steps = at + 1;
}
/* Pages whose numbers, times the factor of hash tables before each process chose its own, agree in
 * bits 32 to 47: there they were all in one place. mov rax, [rdi]; add rdi, rdx; jmp */
static void pages_aimed(void)
{
	const uint64_t apart = 0x4dbc32c66000;

	regs.gpr[DJ_RDX] = apart;
	WORLD(0x48, 0x8b, 0x07, 0x48, 0x01, 0xd7, 0xeb, 0xf8);
	for (unsigned i = 0; i < 60000; i++) {
		at = 3 * (uint64_t)i;
		import(i * apart, NULL);
	}
	last_steps = at + 1;
}
static void imports_at_once(void)
{
	WORLD(0x48, 0x8b, 0x07, 0x90);
	for (unsigned i = 0; i < 5000; i++)
		import((uint64_t)i << 12, NULL);
	last_steps = 2;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* System calls in a loop, with the registers as they are: syscall; jmp. rcx becomes 2 + rip. */
static void calls(unsigned n, uint64_t result)
{
	static const uint8_t bytes[] = {
		0x0f, 0x05, 0x48, 0x01, 0xd6, 0x4c, 0x89, 0xc0, 0xeb, 0xf6
	};

	world(bytes, sizeof(bytes)); /* syscall; add rsi, rdx; mov rax, r8; jmp */
	for (unsigned i = 0; i < n; i++) {
		call(result);
		at += 3;
	}
	last_steps = at;
}
static void stale_reads(void)
{
	regs.gpr[DJ_R8] = regs.gpr[DJ_RAX] = 0;
	regs.gpr[DJ_RSI] = 1ull << 40;
	regs.gpr[DJ_RDX] = 1ull << 26;
	calls(60, 1ull << 46);
}
/* A line of four pairs that read as iovecs of 4 GB each, all elsewhere. */
static void iovecs(uint8_t *line, unsigned number)
{
	for (unsigned k = 0; k < DJ_LINE; k += 16) {
		dj_put64(line + k, 0x200000000000 + ((uint64_t)(4 * number + k / 16) << 32));
		dj_put64(line + k + 8, 1ull << 32);
	}
}
/* Calls that write through 1024 of struct mmsghdr at MESSAGES, or of iovecs behind them. */
#define MESSAGES 0x10000000u
static void vectors(uint64_t sysno, uint64_t where, unsigned n)
{
	uint8_t line[DJ_LINE];

	regs.gpr[DJ_R8] = regs.gpr[DJ_RAX] = sysno;
	regs.gpr[DJ_RSI] = where;
	regs.gpr[DJ_RDX] = 1024;
	map(MESSAGES, 0x20000, "");
	/* nop five times; syscall; nop; mov rax, r8; jmp */
	WORLD(0x90, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0x90, 0x4c, 0x89, 0xc0, 0xeb, 0xf8);
	for (unsigned i = 0; i < 1024 + 256; i++) {
		at = i / 256;
		iovecs(line, i);
		if (i < 1024) /* its iovecs are behind all messages */
			dj_put64(line + 16, MESSAGES + 0x10000);
		import(MESSAGES + i * 64ull, line);
	}
	for (at = 5; n-- > 0; at += 3)
		call(1ull << 46);
	last_steps = at;
}
static void stale_vectors(void)
{
	vectors(19, MESSAGES + 0x10000, 20);
}
static void stale_messages(void)
{
	vectors(299, MESSAGES, 20);
}
static void mremap_flood(void)
{
	regs.gpr[DJ_R8] = regs.gpr[DJ_RAX] = 25;
	regs.gpr[DJ_RDI] = 1ull << 40;
	regs.gpr[DJ_RSI] = regs.gpr[DJ_RDX] = 1ull << 45;
	calls(20000, 1ull << 46);
}
/* The stack's mapping begins so low that below it there is nothing. */
static void stack_reached(void)
{
	map(8u << 20, 0x1000, "[stack]");
	regs.gpr[DJ_RSP] = 1ull << 40;
	WORLD(0x90, 0x90, 0x90);
	last_steps = 3;
}

/* ---- mappings and other facts ------------------------------------------------------------------
 */

static void names_flood(void)
{
	char name[DJ_NAME_MAX];

	long_name(name);
	two_steps();
	for (unsigned i = 0; i < 300000; i++) {
		snprintf(name, 9, "%08x", i);
		name[8] = 'n';
		map(0x10000000, 0x1000, name);
	}
}
static void maps_flood(void)
{
	two_steps();
	maps(1100000, "");
}
/* As many as may be, with long names: who lists them has gigabytes. */
static void maps_named(void)
{
	char name[DJ_NAME_MAX];

	long_name(name);
	two_steps();
	maps(100000, name);
}
/* Many that are as they should be: a list of them is long, and a client may want it often. */
static void maps_many(void)
{
	two_steps();
	maps(250000, "");
}
static void maps_huge(void)
{
	two_steps();
	map(0, 1ull << 63, "");
	map(1ull << 63, (1ull << 63) - 0x1000, "");
}
static void maps_beyond(void)
{
	two_steps();
	map(0xfffffffffffff000, 0x2000, "");
}
static void maps_negative(void)
{
	two_steps();
	map(0x10000000, UINT64_MAX - 0xfff, "");
}
static void maps_odd(void)
{
	two_steps();
	map(0x10000001, 3, "");
}
static void unmap_flood(void)
{
	two_steps();
	for (unsigned i = 0; i < 300000; i++)
		unmap(0x1000000000, 1ull << 46);
}
static void code_flood(void)
{
	uint8_t page[DJ_CODE_MAX];

	memset(page, 0x90, sizeof(page));
	two_steps();
	for (unsigned i = 0; i < 300000; i++)
		code(0x10000000 + (uint64_t)i * sizeof(page), page, sizeof(page));
}
static void exec_flood(void)
{
	two_steps();
	for (unsigned i = 0; i < 100000; i++)
		name_record(DJ_REC_EXEC, "again");
}
static void marks_flood(void)
{
	two_steps();
	for (unsigned i = 0; i < 5000000; i++)
		name_record(DJ_REC_MARK, NULL);
}
static void records_back(void)
{
	WORLD(0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0x90, 0x90);
	at = 4;
	put((struct dj_record){ .kind = DJ_REC_SEQ, .seq = 1000 });
	call(0);
	put((struct dj_record){ .kind = DJ_REC_SEQ, .seq = 3 });
	last_steps = 6;
}
static void digests_alone(void)
{
	WORLD(0x90, 0x90, 0x90, 0x90);
	for (at = 1; at < 3; at++)
		put((struct dj_record){
			.kind = DJ_REC_DIGEST, .digest = 1, .seq = DJ_SEQ_UNKNOWN });
	last_steps = 4;
}
static void signal_at(unsigned i)
{
	put((struct dj_record){ .kind = DJ_REC_SIGNAL,
				.signo = 200 + i,
				.addr = 0x10000000 + ((uint64_t)i << 12),
				.bytes = (const uint8_t *)"x",
				.length = 1 });
}
static void signals_flood(void)
{
	two_steps();
	for (unsigned i = 0; i < 200000; i++)
		signal_at(i);
}
/* As many pages as may be, with moments between them that a debugger would like to keep. */
static void signals_kept(void)
{
	WORLD(0xeb, 0xfe);
	for (unsigned i = 0; i < 80000; i++) {
		at = i / 8000 * 2000000;
		signal_at(i);
	}
	last_steps = at + 2000000;
}

/* ---- chunks -------------------------------------------------------------------------------------
 */

static void bomb_records(void)
{
	uint8_t *p = block(CHUNK_RAW_MAX, 0x16);

	two_steps();
	good(!dj_stream_flush(thread, 2, DJ_SEQ_UNKNOWN, &err), "flush");
	dj_put32(p, CHUNK_RAW_MAX - 4);
	for (uint32_t i = 0; i < 100; i++)
		raw((struct dj_chunk_header){ .type = CHUNK_STREAM,
					      .stream = dj_stream_number(thread),
					      .number = 2 + i,
					      .first = 2,
					      .last = 2,
					      .first_seq = DJ_SEQ_UNKNOWN,
					      .last_seq = DJ_SEQ_UNKNOWN,
					      .facts = 3,
					      .arg = CHUNK_RAW_MAX - 4 },
		    p, CHUNK_RAW_MAX);
	free(p);
	last_steps = UINT64_MAX;
}
static void bomb_meta(void)
{
	uint8_t *p = block(CHUNK_RAW_MAX, 0);

	for (uint32_t i = 0; i < 400; i++)
		raw((struct dj_chunk_header){ .type = CHUNK_META,
					      .number = 1 + i,
					      .stream = NO_STREAM },
		    p, CHUNK_RAW_MAX);
	free(p);
	two_steps();
}
static void bomb_memory(void)
{
	uint8_t *p = block(CHUNK_RAW_MAX, 0x90);

	for (uint32_t i = 0; i < 64; i++)
		raw((struct dj_chunk_header){ .type = CHUNK_SNAPSHOT,
					      .stream = dj_stream_number(process),
					      .number = i,
					      .arg = (uint64_t)i << 24 },
		    p, CHUNK_RAW_MAX);
	free(p);
	map(0, 0x80000000, "");
	regs.rip = 0x1000000 - 1;
	set_regs();
	last_steps = 3;
}
static void describe_module(uint32_t number, const char *path, uint64_t size, uint64_t sum)
{
	uint8_t info[49 + DJ_NAME_MAX] = { 0 };

	dj_put64(info, size);
	dj_put64(info + 8, sum);
	info[16] = 20;
	memset(info + 17, (int)number, 20);
	snprintf((char *)info + 49, DJ_NAME_MAX, "%s", path);
	raw((struct dj_chunk_header){ .type = CHUNK_MODULE, .stream = number, .last = size }, info,
	    49 + strlen(path));
}
/* A module that says it has `size` bytes, made of pieces of this byte. */
static void module(uint32_t number, const char *path, uint64_t size, int byte)
{
	uint8_t *p = block(size ? CHUNK_RAW_MAX : 4, byte);
	uint32_t n = 1;

	memcpy(p, "\177ELF", 4);
	describe_module(number, path, size, 0);
	for (uint64_t done = 0; done < size; done += CHUNK_RAW_MAX)
		raw((struct dj_chunk_header){ .type = CHUNK_MODULE_DATA,
					      .stream = number,
					      .number = n++,
					      .first = done,
					      .last = done + CHUNK_RAW_MAX },
		    p, CHUNK_RAW_MAX);
	free(p);
}
/* An instruction in each of the modules. */
static void run_modules(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		put((struct dj_record){ .kind = DJ_REC_MAP,
					.addr = 0x100000000ull * (i + 1),
					.length = 0x1000,
					.prot = 5,
					.flags = 2,
					.module = (int32_t)i,
					.offset = 0x1000 });
	regs.rip = 0x100000000;
	set_regs();
	for (at = 1; at < n; at++) {
		regs.rip = 0x100000000ull * (at + 1);
		set_regs();
	}
	last_steps = at;
}
/* Code that lies in modules. */
static void in_modules(uint32_t n, uint64_t size, int byte)
{
	char path[32];

	for (uint32_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/lib/module%u.so", i);
		module(i, path, size, byte);
	}
	run_modules(n);
}
/* Modules that are all in the same file of the store beside the trace. */
static void modules_shared(void)
{
	const size_t size = 100u << 20;
	uint8_t *p = block(size, 0x90);
	struct dj_store_key key;
	uint64_t sum;
	char path[32];

	memcpy(p, "\177ELF", 4);
	sum = dj_chunk_sum(0, p, size);
	good(!dj_writer_module(w, "/lib/module0.so", p, size, &err), "module");
	dj_store_key(&key, p, size);
	for (uint32_t i = 1; i < 3000; i++) {
		snprintf(path, sizeof(path), "/lib/module%u.so", i);
		describe_module(i, path, size, sum);
		raw((struct dj_chunk_header){ .type = CHUNK_STORED, .stream = i, .number = 1 },
		    key.hash, sizeof(key.hash));
	}
	free(p);
	run_modules(3000);
}
static void bomb_modules(void)
{
	in_modules(3, 512ull << 20, 0);
}
static void bomb_modules_full(void)
{
	in_modules(8, 200u << 20, 0x90);
}
static void copies_full(void)
{
	in_modules(1, 1u << 30, 0x90);
}
static void modules_many(void)
{
	char path[DJ_NAME_MAX];

	memset(path, 'p', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = 0;
	for (uint32_t i = 0; i < 150000; i++)
		module(i, path, 0, 0);
	two_steps();
}
static void module_far(void)
{
	module(0xfffffff0, "/far", 0, 0);
	two_steps();
}
static void records_garbage(const char *payload, size_t length, uint64_t n)
{
	two_steps();
	good(!dj_stream_flush(thread, 2, DJ_SEQ_UNKNOWN, &err), "flush");
	raw((struct dj_chunk_header){ .type = CHUNK_STREAM,
				      .stream = dj_stream_number(thread),
				      .number = 2,
				      .first = 2,
				      .last = 2,
				      .facts = 3,
				      .arg = n },
	    payload, length);
	last_steps = UINT64_MAX;
}
static void counts_enormous(void)
{
	records_garbage("\4\0\0\0\x16\0\0\0", 8, UINT64_MAX);
}
/* An END record whose name has no end. */
static void string_endless(void)
{
	records_garbage("\7\0\0\0\x8e\x05more...", 13, 1);
}
static void string_long(void)
{
	records_garbage("\7\0\0\0\x8e\xff\xff\xff\xff\x0f.", 11, 1);
}
static void facts_missing(void)
{
	records_garbage("\6\0\0\0\x95\xff\xff\xff\xff\x0f", 10, 1);
}
static void to_pass_over(void)
{
	uint8_t *p = block(STREAM_HEADS_MAX + 4, 0);

	two_steps();
	good(!dj_stream_flush(thread, 2, DJ_SEQ_UNKNOWN, &err), "flush");
	dj_put32(p, STREAM_HEADS_MAX);
	for (size_t i = 0; i + 3 <= STREAM_HEADS_MAX; i += 3)
		p[4 + i] = 0x9f; /* of kind 31, with nothing in it */
	for (uint32_t i = 0; i < 300; i++)
		raw((struct dj_chunk_header){ .type = CHUNK_STREAM,
					      .stream = dj_stream_number(thread),
					      .number = 2 + i,
					      .first = 2,
					      .last = 2,
					      .facts = 3,
					      .arg = STREAM_HEADS_MAX / 3 },
		    p, STREAM_HEADS_MAX + 4);
	free(p);
	last_steps = UINT64_MAX;
}
/* Chunks that follow one another in a circle, by the index. */
static void index_circle(void)
{
	uint8_t entries[3 * INDEX_ENTRY_SIZE] = { 0 };

	WORLD(0x90, 0x90);
	for (unsigned i = 0; i < 3; i++) {
		dj_put64(entries + INDEX_ENTRY_SIZE * i, i == 1 ? 500 : FILE_HEADER_SIZE);
		dj_put32(entries + INDEX_ENTRY_SIZE * i + 8, CHUNK_STREAM);
	}
	raw((struct dj_chunk_header){ .type = CHUNK_INDEX, .stream = NO_STREAM }, entries,
	    sizeof(entries));
	last_steps = UINT64_MAX;
}

/* ---- processes and threads
 * ------------------------------------------------------------------------ */

static void threads_many(void)
{
	WORLD(0x90, 0x90);
	last_steps = 2;
	for (int i = 0; i < 20000; i++) {
		uint8_t payload[8];
		dj_put32(payload, dj_stream_number(process));
		dj_put32(payload + 4, (uint32_t)(2000 + i));
		raw((struct dj_chunk_header){ .type = CHUNK_THREAD,
					      .stream =
						      dj_stream_number(thread) + 1 + (uint32_t)i },
		    payload, sizeof(payload));
	}
}
static void processes_many(void)
{
	WORLD(0x90, 0x90);
	last_steps = 2;
	for (uint32_t i = 0; i < 100000; i++) {
		uint8_t payload[8];
		dj_put32(payload, 2000 + i);
		dj_put32(payload + 4, i ? dj_stream_number(thread) + i : 0);
		raw((struct dj_chunk_header){ .type = CHUNK_PROCESS,
					      .stream = dj_stream_number(thread) + 1 + i },
		    payload, sizeof(payload));
	}
}
/* Each of many threads has all the facts of its process. */
static void facts_for_all(void)
{
	static const uint8_t records[] = { 4, 0, 0, 0, 0x95, 0xc0, 0x9a, 0x0c };
	uint32_t first = dj_stream_number(thread) + 1;

	WORLD(0x90, 0x90);
	for (unsigned i = 0; i < 200000; i++)
		unmap(0x1000000000, 0x1000);
	good(!dj_stream_flush(thread, 2, DJ_SEQ_UNKNOWN, &err), "flush");
	for (uint32_t i = 0; i < 200; i++) {
		uint8_t payload[8];
		dj_put32(payload, dj_stream_number(process));
		dj_put32(payload + 4, 2000 + i);
		raw((struct dj_chunk_header){ .type = CHUNK_THREAD, .stream = first + i }, payload,
		    sizeof(payload));
		raw((struct dj_chunk_header){ .type = CHUNK_STREAM,
					      .stream = first + i,
					      .number = 1,
					      .facts = 200000,
					      .first_seq = DJ_SEQ_UNKNOWN,
					      .last_seq = DJ_SEQ_UNKNOWN,
					      .arg = 1 },
		    records, sizeof(records));
	}
	last_steps = UINT64_MAX;
}

/* ---- what is shown
 * ----------------------------------------------------------------------------------- */

#define EVIL                                                                                       \
	"\x1b]0;evil\a\x1b[2J\xc2\x9b"                                                             \
	"31m\x9b"                                                                                  \
	"5n\xe2\x80\xae\r\n\x7f"

static void escapes(void)
{
	map(0x10000000, 0x1000, EVIL);
	two_steps();
	good(dj_writer_module(w, "/lib/" EVIL, "\177ELF" EVIL, 20, &err) >= 0, "module");
	name_record(DJ_REC_THREAD, EVIL);
	put((struct dj_record){ .kind = DJ_REC_MAP,
				.addr = CODE_AT,
				.length = 0x1000,
				.prot = 7,
				.flags = 0x22,
				.name = EVIL });
	code(CODE_AT, "\x90\x90", 2);
	regs.rip = CODE_AT + 1;
	put((struct dj_record){ .kind = DJ_REC_EFFECTS,
				.mask = DJ_REG_RIP,
				.regs = regs,
				.insn = { 0x90 },
				.insn_len = 1 });
	struct dj_trace_count count = { .name = "\x1b[2J\xc2\x9bm", .value = 1 };
	good(!dj_writer_counts(w, &count, 1, &err), "counts");
	at = 1;
	name_record(DJ_REC_MARK, EVIL);
	name_record(DJ_REC_GAP, EVIL);
	name_record(DJ_REC_END, EVIL);
}

/* ---- all of them
 * --------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*make)(void);
	/* clang-format off */
} traces[] = {
#define X(name) { #name, name }
	X(rep_stos), X(rep_movs), X(rep_lods), X(rep_scas), X(rep_cmps), X(rep_stos_unmapped),
	X(rep_imports), X(loop_for_ever), X(code_wild), X(code_nowhere), X(code_exceptions), X(steps_enormous), X(stores_everywhere),
	X(imports_everywhere), X(pages_aimed), X(imports_at_once), X(stale_reads), X(stale_vectors),
	X(stale_messages), X(mremap_flood), X(stack_reached), X(names_flood), X(maps_flood),
	X(maps_named), X(maps_many), X(maps_huge), X(maps_beyond), X(maps_negative), X(maps_odd), X(unmap_flood),
	X(code_flood), X(exec_flood), X(marks_flood), X(records_back), X(digests_alone),
	X(signals_flood), X(signals_kept), X(bomb_records), X(bomb_meta), X(bomb_memory), X(bomb_modules),
	X(bomb_modules_full), X(copies_full), X(modules_many), X(modules_shared), X(module_far),
	X(counts_enormous),
	X(string_endless), X(string_long), X(facts_missing), X(to_pass_over), X(index_circle),
	X(threads_many), X(processes_many), X(facts_for_all), X(escapes),
#undef X
};
/* clang-format on */
#define TRACES (sizeof(traces) / sizeof(traces[0]))

static void make(size_t i, const char *path)
{
	bool evil = traces[i].make == escapes;
	const char *const argv[] = { "hostile", evil ? EVIL : "argument", NULL };
	struct dj_trace_meta meta = { .shadow_bits = 32,
				      .memory_model = 1,
				      .pid = 1000,
				      .page_size = 4096,
				      .deja_version = evil ? EVIL : "0",
				      .machine = evil ? EVIL : "",
				      .cpu = evil ? EVIL : "",
				      .exe = evil ? "/" EVIL : "/hostile",
				      .cwd = evil ? "/" EVIL : "/",
				      .argv = argv,
				      .envp = argv };

	w = (traces[i].make == modules_shared ? dj_writer_create_sharing
					      : dj_writer_create)(path, &meta, &err);
	good(w != NULL, path);
	process = dj_writer_process(w, 1000, NULL, &err);
	thread = process ? dj_writer_thread(w, process, 1000, evil ? EVIL : "thread", &err) : NULL;
	good(thread != NULL, "streams");
	traces[i].make();
	if (last_steps != UINT64_MAX)
		good(!dj_stream_flush(thread, last_steps, DJ_SEQ_UNKNOWN, &err), "flush");
	struct dj_trace_end end = { .present = true, .steps = last_steps };
	good(!dj_writer_close(w, &end, &err), "end");
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < TRACES; i++)
			puts(traces[i].name);
		return 0;
	}
	for (size_t i = 0; argc == 3 && i < TRACES; i++) {
		if (strcmp(traces[i].name, argv[1]) != 0)
			continue;
		make(i, argv[2]);
		return 0;
	}
	fprintf(stderr, "usage: make-hostile --list | NAME FILE\n");
	return 2;
}
