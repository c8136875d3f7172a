/*
 * A replay whose history is a formula: see fake-replay.h. It is one file, as that one header is
 * what it takes the place of: each function answers for the formula at the current position.
 */
#include "tests/lib/fake-replay.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POINTS 8192
#define THREADS	   3

struct dj_trace {
	int unused;
};

struct point {
	int id;
	unsigned kind; /* 0: breakpoint */
	uint64_t addr, len;
};

struct replay {
	uint64_t n;
	uint32_t selected, moved; /* 1: the second thread; 2: the child */
	enum replay_scope scope;
	struct dj_trace trace;
	struct point points[MAX_POINTS];
	size_t n_points;
	int next_id;
	bool catch_all;
	uint64_t caught[64];
	size_t n_caught;
	uint64_t signals;
	bool interrupt;
	bool (*poll)(void *);
	void *poll_ctx;
	bool copy;
	struct dj_regs copy_regs;
	uint8_t copy_data[FAKE_DATA_SIZE];
};

/* ---- the trace -------------------------------------------------------------------------- */

static const char *const fake_argv[] = { "fake", "--all", NULL };
static const char *const fake_envp[] = { "HOME=/", NULL };
static uint8_t fake_auxv[64];
static const struct dj_trace_meta fake_meta = {
	.pid = FAKE_PID,
	.page_size = 4096,
	.deja_version = "0",
	.machine = "Linux fake",
	.cpu = "fake",
	.exe = FAKE_EXE,
	.cwd = "/home",
	.argv = fake_argv,
	.envp = fake_envp,
	.auxv = fake_auxv,
	.auxv_len = sizeof(fake_auxv),
};
static const struct dj_process_info fake_processes[2] = {
	{ .pid = FAKE_PID, .parent = -1 },
	{ .pid = FAKE_CHILD, .parent = 0 },
};
static const struct dj_thread_info fake_threads[THREADS] = {
	{ .tid = FAKE_PID, .name = "fake<thread>", .last_steps = FAKE_STEPS, .records = 1 },
	{ .tid = FAKE_TID2, .name = "second", .last_steps = FAKE_STEPS, .records = 1 },
	{ .tid = FAKE_CHILD,
	  .process = 1,
	  .name = "child",
	  .last_steps = FAKE_STEPS,
	  .records = 1 },
};
static const struct life {
	uint64_t begin, end, base, rip, mark, mark_at;
} lives[THREADS] = {
	{ 0, UINT64_MAX, 0, 0, 0, 0 },
	{ FAKE_BEGIN2, FAKE_END2, 500000, FAKE_CODE2, FAKE_MARK2, FAKE_MARK2_AT },
	{ FAKE_FORK_AT + 1, FAKE_CHILD_END, 700000, FAKE_CODE3, FAKE_MARK3, FAKE_MARK3_AT },
};
static const struct dj_module_info fake_modules[] = {
	{ .path = FAKE_EXE, .size = 6 },
	{ .path = FAKE_LIB, .size = 70000 },
};
static uint8_t fake_lib_bytes[70000];

const struct dj_trace_meta *dj_trace_meta(const struct dj_trace *t)
{
	(void)t;
	return &fake_meta;
}
size_t dj_trace_threads(const struct dj_trace *t)
{
	(void)t;
	return THREADS;
}
size_t dj_trace_processes(const struct dj_trace *t)
{
	(void)t;
	return 2;
}
const struct dj_process_info *dj_trace_process(const struct dj_trace *t, size_t i)
{
	(void)t;
	return &fake_processes[i];
}
const struct dj_thread_info *dj_trace_thread(const struct dj_trace *t, size_t i)
{
	(void)t;
	return &fake_threads[i];
}
size_t dj_trace_modules(const struct dj_trace *t)
{
	(void)t;
	return 2;
}
const struct dj_module_info *dj_trace_module(const struct dj_trace *t, size_t i)
{
	(void)t;
	return &fake_modules[i];
}
const uint8_t *dj_trace_module_bytes(struct dj_trace *t, size_t i, size_t *size,
				     struct dj_error *err)
{
	(void)t;
	(void)err;
	*size = fake_modules[i].size;
	for (size_t k = 0; k < sizeof(fake_lib_bytes); k++)
		fake_lib_bytes[k] = (uint8_t)(k * 7);
	return i ? fake_lib_bytes : (const uint8_t *)"\177ELF}*";
}
/* There are no records, and no memory but the replay's. */
struct dj_cursor *dj_cursor_new(struct dj_trace *t, size_t i, struct dj_error *err)
{
	(void)t;
	(void)i;
	(void)err;
	return NULL;
}
struct dj_cursor *dj_cursor_new_facts(struct dj_trace *t, size_t i, struct dj_error *err)
{
	return dj_cursor_new(t, i, err);
}
const struct dj_record *dj_cursor_next(struct dj_cursor *c, struct dj_error *err)
{
	(void)c;
	(void)err;
	return NULL;
}
int dj_cursor_seek_steps(struct dj_cursor *c, uint64_t steps, struct dj_error *err)
{
	(void)c;
	(void)steps;
	return dj_fail(err, 1, "no such position");
}
void dj_cursor_free(struct dj_cursor *c)
{
	(void)c;
}
size_t dj_trace_snapshot(struct dj_trace *t, size_t process, uint32_t image, uint64_t addr,
			 void *out, size_t len)
{
	(void)t;
	(void)process;
	(void)image;
	(void)addr;
	(void)out;
	(void)len;
	return 0;
}
const char *dj_trace_damage(const struct dj_trace *t)
{
	(void)t;
	return NULL;
}
const char *dj_trace_path(const struct dj_trace *t)
{
	(void)t;
	return "fake.deja";
}

/* ---- opening ---------------------------------------------------------------------------- */

static void put64(uint8_t *p, uint64_t x)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(x >> (8 * i));
}

struct replay *fake_replay_new(void)
{
	struct replay *r = calloc(1, sizeof(*r));
	const uint64_t auxv[] = { 3, FAKE_PHDR, 4, 56, 5, 2, 0, 0 };
	for (size_t i = 0; i < 8; i++)
		put64(fake_auxv + 8 * i, auxv[i]);
	return r;
}

struct replay *replay_open(const char *path, struct dj_error *err)
{
	(void)path;
	(void)err;
	return fake_replay_new();
}
void replay_close(struct replay *r)
{
	free(r);
}
struct dj_trace *replay_trace(struct replay *r)
{
	return &r->trace;
}
uint64_t fake_signal_mask(const struct replay *r)
{
	return r->signals;
}
size_t fake_points(const struct replay *r)
{
	return r->n_points;
}
enum replay_scope fake_scope(const struct replay *r)
{
	return r->scope;
}
void replay_set_scope(struct replay *r, enum replay_scope scope)
{
	r->scope = scope;
}

/* ---- state as a function of the position ----------------------------------------------------- */

/* Program headers, a dynamic section with DT_DEBUG, and two link maps. */
static const struct {
	uint64_t addr, value;
	/* clang-format off */
} words[] = {
	{ FAKE_PHDR, 6 }, { FAKE_PHDR + 16, FAKE_PHDR }, /* PT_PHDR, no bias */
	{ FAKE_PHDR + 56, 2 }, { FAKE_PHDR + 56 + 16, 0x602000 },
	{ 0x602000, 21 }, { 0x602008, 0x603000 },		      /* DT_DEBUG */
	{ 0x603000, 1 }, { 0x603008, 0x604000 },		      /* r_debug */
	{ 0x604010, 0x602000 }, { 0x604018, 0x604100 },		      /* the program */
	{ 0x604100, FAKE_LIB_AT }, { 0x604108, 0x605000 },	      /* the library */
	{ 0x604110, FAKE_LIB_AT + 0x800 }, { 0x604118, 0 },
};
/* clang-format on */

static void history_data(uint64_t n, uint8_t *data)
{
	memset(data, 0, FAKE_DATA_SIZE);
	put64(data + (FAKE_COUNTER - FAKE_DATA), n / 10);
	memcpy(data + (FAKE_TEXT - FAKE_DATA), "needle}#$*", 10);
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		put64(data + (words[i].addr - FAKE_DATA), words[i].value);
	memcpy(data + 0x5000, "libfake.so.1", 13);
}

static bool one_frame;

void fake_one_frame(bool on)
{
	one_frame = on;
}

static void history_regs(uint64_t n, struct dj_regs *regs)
{
	memset(regs, 0, sizeof(*regs));
	for (unsigned i = 0; i < 16; i++)
		regs->gpr[i] = 1000 * n + i;
	regs->gpr[DJ_RSP] = FAKE_STACK;
	if (one_frame)
		regs->gpr[DJ_RBP] = FAKE_STACK;
	regs->rip = FAKE_CODE + 4 * (n % FAKE_LOOP);
	regs->rflags = 0x202;
	regs->mxcsr = 0x1f80;
	regs->fcw = 0x37f;
	for (unsigned i = 0; i < 16; i++)
		for (unsigned k = 0; k < 32; k++)
			regs->ymm[i][k] = (uint8_t)(i * 16 + k);
	regs->st_mant[0] = 0x8000000000000000;
	regs->st_exp[0] = 0x3fff;
	regs->fsw = 7 << 11;
	regs->ftw = 0x80;
}

void replay_regs(struct replay *r, struct dj_regs *regs)
{
	if (r->copy)
		*regs = r->copy_regs;
	else
		history_regs(r->n, regs);
	if (r->copy || !r->selected)
		return;
	const struct life *l = &lives[r->selected];
	for (unsigned i = 0; i < 16; i++)
		regs->gpr[i] = l->base + r->n + i;
	regs->rip = r->n == l->mark_at ? l->mark : l->rip;
}

uint64_t replay_gpr(const struct replay *r, unsigned reg)
{
	struct dj_regs regs;

	replay_regs((struct replay *)(uintptr_t)r, &regs);
	return regs.gpr[reg];
}

size_t replay_read(struct replay *r, uint64_t addr, void *buf, size_t len)
{
	static uint8_t data[FAKE_DATA_SIZE];
	if (addr >= FAKE_CODE && addr < FAKE_CODE + 0x3000) {
		size_t n = FAKE_CODE + 0x3000 - addr < len ? FAKE_CODE + 0x3000 - addr : len;
		memset(buf, 0x90, n);
		return n;
	}
	if (addr < FAKE_DATA || addr >= FAKE_DATA + FAKE_DATA_SIZE)
		return 0;
	if (!r->copy)
		history_data(r->n, data);
	size_t left = FAKE_DATA + FAKE_DATA_SIZE - addr, n = len < left ? len : left;
	memcpy(buf, (r->copy ? r->copy_data : data) + (addr - FAKE_DATA), n);
	return n;
}

bool replay_siginfo(struct replay *r, uint8_t out[128])
{
	memset(out, 0, 128);
	out[0] = SIGUSR1;
	return r->n == FAKE_SIGNAL_AT && !r->copy;
}

size_t replay_mappings(struct replay *r, const struct replay_mapping **maps)
{
	static const struct replay_mapping table[] = {
		{ FAKE_CODE, FAKE_CODE + 0x3000, 0, 5, 2, 0, FAKE_EXE },
		{ FAKE_DATA, FAKE_DATA + FAKE_DATA_SIZE, 0, 3, 2, -1, "" },
		{ FAKE_LIB_AT, FAKE_LIB_AT + 0x1000, 0, 5, 2, 1, FAKE_LIB },
	};
	(void)r;
	*maps = table;
	return 3;
}

bool replay_mapping_at(struct replay *r, uint64_t addr, struct replay_mapping *out)
{
	const struct replay_mapping *maps;
	size_t n = replay_mappings(r, &maps);

	for (size_t i = 0; i < n; i++) {
		if (addr < maps[i].start || addr >= maps[i].end)
			continue;
		*out = maps[i];
		return true;
	}
	return false;
}

static bool alive(const struct replay *r, uint32_t thread)
{
	return r->n >= lives[thread].begin && r->n < lives[thread].end;
}

static void describe(uint32_t thread, struct replay_thread *out)
{
	uint32_t process = fake_threads[thread].process;
	*out = (struct replay_thread){ .number = thread,
				       .process = process,
				       .pid = fake_processes[process].pid,
				       .tid = fake_threads[thread].tid,
				       .name = fake_threads[thread].name };
}

size_t replay_threads(struct replay *r, uint32_t process, struct replay_thread *out, size_t max)
{
	size_t n = 0;

	for (uint32_t i = 0; i < THREADS; i++) {
		if (!alive(r, i) || (process != REPLAY_ALL && process != fake_threads[i].process))
			continue;
		if (n < max)
			describe(i, &out[n]);
		n++;
	}
	return n;
}
size_t replay_processes(struct replay *r, struct replay_process *out, size_t max)
{
	size_t n = alive(r, 2) ? 2 : 1;
	for (uint32_t i = 0; i < n && i < max; i++)
		out[i] = (struct replay_process){ .number = i, .pid = fake_processes[i].pid };
	return n;
}
bool replay_thread_find(struct replay *r, int32_t pid, int32_t tid, struct replay_thread *out)
{
	for (uint32_t i = 0; i < THREADS; i++) {
		describe(i, out);
		if ((!pid || pid == out->pid) && tid == out->tid && alive(r, i))
			return true;
	}
	*out = (struct replay_thread){ 0 };
	return false;
}
void replay_thread(struct replay *r, struct replay_thread *out)
{
	describe(r->selected, out);
}
int replay_select(struct replay *r, uint32_t thread, struct dj_error *err)
{
	if (thread >= THREADS || !alive(r, thread) || (r->copy && thread != r->selected))
		return dj_fail(err, 1, "no such thread");
	r->selected = thread;
	return 0;
}
int replay_thread_doings(struct replay *r, uint32_t thread, struct replay_doings *out,
			 struct dj_error *err)
{
	(void)err;
	*out = (struct replay_doings){ .pos = { .thread = thread, .steps = r->n } };
	if (r->n % 100 == 50) {
		out->doing = REPLAY_CALLS;
		out->sysno = r->n / 100 % 4;
	}
	return 0;
}

/* ---- positions ------------------------------------------------------------------------------ */

void replay_pos(struct replay *r, struct replay_pos *pos)
{
	*pos = (struct replay_pos){ .thread = r->moved, .steps = r->n };
}
int replay_pos_cmp(const struct replay_pos *a, const struct replay_pos *b)
{
	return a->steps < b->steps ? -1 : a->steps > b->steps;
}
void replay_thread_begin(struct replay *r, uint32_t thread, struct replay_pos *pos)
{
	(void)r;
	*pos = (struct replay_pos){ .thread = thread,
				    .steps = lives[thread].begin,
				    .seq = lives[thread].begin / 100,
				    .within = lives[thread].begin % 100 };
}
void replay_begin_pos(struct replay *r, struct replay_pos *pos)
{
	(void)r;
	*pos = (struct replay_pos){ .steps = 0 };
}
void replay_end_pos(struct replay *r, struct replay_pos *pos)
{
	(void)r;
	*pos = (struct replay_pos){ .steps = FAKE_STEPS };
}
void replay_pos_text(struct replay *r, char *buf, size_t size)
{
	snprintf(buf, size, "%" PRIu64 ":%" PRIu64, r->n / 100, r->n % 100);
}
int replay_seek(struct replay *r, const struct replay_pos *pos, struct dj_error *err)
{
	if (pos->steps > FAKE_STEPS)
		return dj_fail(err, 1, "no such position");
	r->n = pos->steps;
	r->moved = r->selected = alive(r, pos->thread) ? pos->thread : 0;
	return 0;
}
int replay_goto_text(struct replay *r, const char *text, struct dj_error *err)
{
	struct replay_pos pos = { 0 };
	if (strcmp(text, "end") == 0)
		pos.steps = FAKE_STEPS;
	else if (strcmp(text, "begin") != 0 && sscanf(text, "%" SCNu64, &pos.steps) != 1)
		return dj_fail(err, 1, "\"%s\" is not a position", text);
	return replay_seek(r, &pos, err);
}

/* ---- moving ------------------------------------------------------------------------------------
 */

static void stop_here(struct replay *r, struct replay_stop *stop, enum replay_reason reason)
{
	stop->reason = reason;
	if (!alive(r, r->selected))
		r->selected = 0;
	r->moved = r->selected;
	replay_pos(r, &stop->pos);
	stop->pid = fake_processes[fake_threads[r->selected].process].pid;
	stop->tid = fake_threads[r->selected].tid;
}

static bool overlaps(const struct point *p, uint64_t addr)
{
	return addr < p->addr + p->len && p->addr < addr + 8;
}

/* Does executing instruction k trigger a watchpoint? */
static bool watch_hit(struct replay *r, uint64_t k, struct replay_stop *stop)
{
	for (size_t i = 0; i < r->n_points; i++) {
		const struct point *p = &r->points[i];
		bool wrote = k % 10 == 9 && overlaps(p, FAKE_COUNTER);
		bool read = k % 7 == 3 && overlaps(p, FAKE_PROBE);
		if ((p->kind & REPLAY_WATCH_WRITE && wrote) ||
		    (p->kind & REPLAY_WATCH_READ && read)) {
			stop_here(r, stop, REPLAY_WATCH);
			stop->watch = p->id;
			stop->watch_addr = p->addr;
			return true;
		}
	}
	return false;
}

static bool catches(struct replay *r, uint64_t k, uint64_t *sysno)
{
	*sysno = k / 100 % 4;
	if (k % 100 != 50)
		return false;
	for (size_t i = 0; i < r->n_caught; i++)
		if (r->caught[i] == *sysno)
			return true;
	return r->catch_all;
}

/* One instruction of history; true if something stopped it. */
static bool history_step(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	uint64_t end = dir == REPLAY_FORWARD ? FAKE_STEPS : 0;
	if (r->n == end) {
		stop_here(r, stop, dir == REPLAY_FORWARD ? REPLAY_END : REPLAY_BEGIN);
		stop->exited = true;
		stop->status = 3 << 8;
		return true;
	}
	uint64_t executed = dir == REPLAY_FORWARD ? r->n++ : --r->n;
	if (watch_hit(r, executed, stop))
		return true;
	if (catches(r, r->n, &stop->sysno)) {
		stop_here(r, stop, REPLAY_SYSCALL_ENTRY);
		return true;
	}
	if (r->n > 0 && catches(r, r->n - 1, &stop->sysno)) {
		stop_here(r, stop, REPLAY_SYSCALL_RETURN);
		return true;
	}
	if (r->n == FAKE_SIGNAL_AT && r->signals >> SIGUSR1 & 1) {
		stop_here(r, stop, REPLAY_SIGNAL);
		stop->signo = SIGUSR1;
		return true;
	}
	bool looks = r->selected == 0 || r->scope == REPLAY_PROCESSES ||
		     (r->scope == REPLAY_PROCESS && r->selected == 1);
	if (looks && (r->n == FAKE_FORK_AT || r->n == FAKE_VFORK_AT)) {
		r->selected = 0;
		stop_here(r, stop, REPLAY_FORKED);
		stop->child = r->n == FAKE_FORK_AT ? FAKE_CHILD : FAKE_CHILD2;
		stop->how = r->n == FAKE_FORK_AT ? DJ_CHILD_FORK : DJ_CHILD_VFORK;
		return true;
	}
	return false;
}

static bool at_break(struct replay *r)
{
	struct dj_regs regs;
	replay_regs(r, &regs);
	for (size_t i = 0; i < r->n_points; i++)
		if (!r->points[i].kind && r->points[i].addr == regs.rip)
			return true;
	return false;
}

/* A breakpoint where another thread comes to. */
static bool break_elsewhere(struct replay *r, struct replay_stop *stop)
{
	uint32_t selected = r->selected;
	if (r->scope == REPLAY_THREAD || r->copy)
		return false;
	for (uint32_t i = 1; i < THREADS; i++) {
		if (i == selected || !alive(r, i) || r->n != lives[i].mark_at ||
		    (r->scope == REPLAY_PROCESS &&
		     fake_threads[i].process != fake_threads[selected].process))
			continue;
		r->selected = i;
		if (at_break(r)) {
			stop_here(r, stop, REPLAY_BREAK);
			return true;
		}
	}
	r->selected = selected;
	return false;
}

static bool copy_step(struct replay *r, struct replay_stop *stop)
{
	struct dj_regs *c = &r->copy_regs;
	if (c->rip == FAKE_SYSCALL || c->rip < FAKE_CODE || c->rip > FAKE_CODE + 0x3000) {
		stop_here(r, stop, REPLAY_FAILED);
		dj_fail(&stop->err, 1, "system calls cannot be made in a copy");
		return true;
	}
	if (c->rip != FAKE_RET) {
		c->rip += 4;
		return false;
	}
	uint8_t ret[8] = { 0 };
	replay_read(r, c->gpr[DJ_RSP], ret, 8);
	c->rip = 0;
	for (int i = 7; i >= 0; i--)
		c->rip = c->rip << 8 | ret[i];
	c->gpr[DJ_RSP] += 8;
	c->gpr[DJ_RAX] = 77;
	return false;
}

void replay_step(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	*stop = (struct replay_stop){ 0 };
	if (r->copy ? !copy_step(r, stop)
		    : !history_step(r, dir, stop) && !break_elsewhere(r, stop))
		stop_here(r, stop, REPLAY_STEPPED);
}

void replay_continue(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	*stop = (struct replay_stop){ 0 };
	for (;;) {
		if (r->copy ? copy_step(r, stop) : history_step(r, dir, stop))
			return;
		if (at_break(r)) {
			stop_here(r, stop, REPLAY_BREAK);
			return;
		}
		if (break_elsewhere(r, stop))
			return;
		if (r->interrupt || (r->poll && r->poll(r->poll_ctx))) {
			r->interrupt = false;
			stop_here(r, stop, REPLAY_INTERRUPTED);
			return;
		}
	}
}

void replay_step_range(struct replay *r, uint64_t lo, uint64_t hi, struct replay_stop *stop)
{
	struct dj_regs regs;
	do {
		replay_step(r, REPLAY_FORWARD, stop);
		replay_regs(r, &regs);
		if (stop->reason == REPLAY_STEPPED && at_break(r))
			stop->reason = REPLAY_BREAK;
	} while (stop->reason == REPLAY_STEPPED && regs.rip >= lo && regs.rip < hi);
}

void replay_interrupt(struct replay *r)
{
	r->interrupt = true;
}
void replay_set_poll(struct replay *r, bool (*poll)(void *), void *ctx)
{
	r->poll = poll;
	r->poll_ctx = ctx;
}

void replay_set_condition(struct replay *r, replay_holds_fn *holds, void *ctx)
{
	(void)r;
	(void)holds;
	(void)ctx;
}

void replay_ahead(struct replay *r, bool (*busy)(void *ctx), void *ctx)
{
	(void)r;
	while (!busy(ctx))
		;
}

void replay_ahead_progress(struct replay *r, uint64_t *done, uint64_t *all)
{
	(void)r;
	*done = *all = 0;
}

void replay_observe(struct replay *r, const struct replay_observer *o)
{
	(void)r;
	(void)o;
}
void replay_set_output(struct replay *r, void (*output)(void *ctx, const void *bytes, size_t len),
		       void *ctx)
{
	(void)r;
	(void)output;
	(void)ctx;
}

/* ---- conditions
 * ----------------------------------------------------------------------------------- */

static int add(struct replay *r, unsigned kind, uint64_t addr, uint64_t len)
{
	if (r->n_points == MAX_POINTS)
		return -1;
	r->points[r->n_points++] = (struct point){ r->next_id, kind, addr, len };
	return r->next_id++;
}
int replay_break_add(struct replay *r, uint64_t addr)
{
	return add(r, 0, addr, 1) < 0 ? -1 : 0;
}
int replay_break_del(struct replay *r, uint64_t addr)
{
	for (size_t i = 0; i < r->n_points; i++)
		if (!r->points[i].kind && r->points[i].addr == addr) {
			r->points[i] = r->points[--r->n_points];
			return 0;
		}
	return -1;
}
int replay_watch_add(struct replay *r, uint64_t addr, uint64_t len, unsigned kind)
{
	return add(r, kind, addr, len);
}
void replay_watch_del(struct replay *r, int id)
{
	for (size_t i = 0; i < r->n_points; i++)
		if (r->points[i].kind && r->points[i].id == id) {
			r->points[i] = r->points[--r->n_points];
			return;
		}
}
void replay_catch_syscalls(struct replay *r, bool on, const uint64_t *numbers, size_t n)
{
	r->catch_all = on && n == 0;
	r->n_caught = on && n <= 64 ? n : 0;
	if (r->n_caught)
		memcpy(r->caught, numbers, n * sizeof(*numbers));
}
void replay_report_signals(struct replay *r, uint64_t mask)
{
	r->signals = mask;
}

/* ---- the copy
 * ---------------------------------------------------------------------------------------- */

int replay_fork_copy(struct replay *r, struct dj_error *err)
{
	(void)err;
	replay_regs(r, &r->copy_regs);
	history_data(r->n, r->copy_data);
	r->copy = true;
	return 0;
}
bool replay_in_copy(struct replay *r)
{
	return r->copy;
}
void replay_discard(struct replay *r)
{
	r->copy = false;
}
int replay_write(struct replay *r, uint64_t addr, const void *buf, size_t len)
{
	if (addr < FAKE_DATA || addr >= FAKE_DATA + FAKE_DATA_SIZE ||
	    len > FAKE_DATA + FAKE_DATA_SIZE - addr)
		return -1;
	memcpy(r->copy_data + (addr - FAKE_DATA), buf, len);
	return 0;
}
int replay_set_regs(struct replay *r, const struct dj_regs *regs, uint64_t mask)
{
	for (unsigned i = 0; i < 16; i++)
		if (mask & DJ_REG_GPR(i))
			r->copy_regs.gpr[i] = regs->gpr[i];
	if (mask & DJ_REG_RIP)
		r->copy_regs.rip = regs->rip;
	if (mask & DJ_REG_X87) {
		r->copy_regs.ftw = regs->ftw;
		memcpy(r->copy_regs.st_mant, regs->st_mant, sizeof(regs->st_mant));
		memcpy(r->copy_regs.st_exp, regs->st_exp, sizeof(regs->st_exp));
	}
	return 0;
}
