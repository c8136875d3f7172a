/*
 * Seccomp filters, as the recorder executes them (recorder/filter.c) and as the kernel does: random
 * programs, each installed in a process of its own, must say the same of calls with random
 * arguments. usage: test-filter [SEED]
 */
#include "recorder/filter.c"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What filter.c needs of the recorder, none of which is used here. */
void rec_thread_named(struct rec_thread *t)
{
	(void)t;
}

size_t rec_read(struct rec_process *proc, uint64_t addr, void *buf, size_t len)
{
	(void)proc;
	memcpy(buf, (const void *)(uintptr_t)addr, len);
	return len;
}
enum rec_state rec_make_call(struct rec_thread *t)
{
	(void)t;
	return REC_SYSCALL;
}
enum rec_state rec_answer(struct rec_thread *t, int64_t result)
{
	(void)t;
	(void)result;
	return REC_SYSCALL;
}
enum rec_state rec_arena_begin(struct rec_thread *t, uint64_t pc)
{
	(void)t;
	(void)pc;
	return REC_CALL;
}
bool rec_window_hidden(const struct rec_process *proc)
{
	return proc->window.hidden;
}
enum rec_state rec_window_show(struct rec_thread *t)
{
	(void)t;
	return REC_CALL;
}
bool tr_wants_arena(struct translator *tr, uint64_t pc)
{
	(void)tr;
	(void)pc;
	return false;
}
const struct dj_mapping *dj_mappings_after(const struct dj_mappings *m, uint64_t addr,
					   uint32_t prot)
{
	(void)m;
	(void)addr;
	(void)prot;
	return NULL;
}

static uint64_t seed;

static uint32_t rnd(uint32_t n)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(seed >> 33) % n;
}

/* Small numbers are likelier to be equal to others. */
static uint32_t value(void)
{
	return rnd(2) ? rnd(8) : rnd(1u << 30) * 5u;
}

#define CELLS 4
#define LEN   60

static struct sock_filter statement(unsigned code, uint32_t k)
{
	return (struct sock_filter){ (uint16_t)code, 0, 0, k };
}

static struct sock_filter random_statement(unsigned left)
{
	static const uint16_t alu[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_AND,
					BPF_OR,	 BPF_XOR, BPF_LSH, BPF_RSH };
	static const uint16_t jumps[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET };
	unsigned far = left > 8 ? 8 : left;
	unsigned op = alu[rnd(sizeof(alu) / sizeof(*alu))];
	switch (rnd(11)) {
	case 0: /* not the instruction pointer, which is nobody's business here */
		return statement(BPF_LD | BPF_W | BPF_ABS, rnd(2) ? 4 * rnd(2) : 16 + 4 * rnd(12));
	case 1:
		return statement((rnd(2) ? BPF_LD : BPF_LDX) | BPF_IMM, value());
	case 2:
		return statement((rnd(2) ? BPF_LD : BPF_LDX) | BPF_MEM, rnd(CELLS));
	case 3:
		return statement(rnd(2) ? BPF_ST : BPF_STX, rnd(CELLS));
	case 4:
		return statement(BPF_MISC | (rnd(2) ? BPF_TAX : BPF_TXA), 0);
	case 5:
		return statement((rnd(2) ? BPF_LD : BPF_LDX) | BPF_W | BPF_LEN, 0);
	case 6:
		return statement(BPF_ALU | BPF_NEG, 0);
	case 7:
		return statement(BPF_ALU | op | BPF_X, 0);
	case 8:
		return statement(BPF_ALU | op | BPF_K, 1 + rnd(31));
	case 9:
		return statement(BPF_JMP | BPF_JA, rnd(far));
	default:
		return (struct sock_filter){ (uint16_t)(BPF_JMP | jumps[rnd(4)] |
							(rnd(2) ? BPF_X : BPF_K)),
					     (uint8_t)rnd(far), (uint8_t)rnd(far), value() };
	}
}

static unsigned generate(struct sock_filter *code)
{
	unsigned n = 0;
	/* all other calls are allowed */
	code[n++] = statement(BPF_LD | BPF_W | BPF_ABS, 0);
	code[n++] = (struct sock_filter){ BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SYS_getppid };
	code[n++] = statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	for (uint32_t i = 0; i < CELLS; i++)
		code[n++] = statement(BPF_ST, i);
	while (n < LEN - 4)
		code[n] = random_statement(LEN - 4 - n), n++;
	/* what came of it: the parity of some bits */
	code[n++] = (struct sock_filter){ BPF_JMP | BPF_JSET | BPF_K, 1, 0, 0x11 };
	code[n++] = statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 123);
	return n;
}

/* In a process of its own: 0 if both agree, 1 if not, 77 if filters cannot be installed. A call
 * that kills is foretold by `last`. */
static int compare(volatile int *last)
{
	struct sock_filter code[LEN];
	struct sock_fprog prog = { .filter = code };
	struct rec_thread thread = { .filters = NULL };
	prog.len = (unsigned short)generate(code);
	add(&thread, read_filter(NULL, (uint64_t)(uintptr_t)&prog));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return 77;
	for (int i = 0; i < 20; i++) {
		uint64_t a[6];
		for (int k = 0; k < 6; k++)
			a[k] = value() | (uint64_t)value() << 32;
		struct user_regs_struct r = {
			.rax = SYS_getppid,
			.rdi = a[0],
			.rsi = a[1],
			.rdx = a[2],
			.r10 = a[3],
			.r8 = a[4],
			.r9 = a[5],
		};
		*last = rec_filters_allow(&thread, 0, &r);
		bool allowed = syscall(SYS_getppid, a[0], a[1], a[2], a[3], a[4], a[5]) >= 0;
		if (allowed != *last)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
	volatile int *last =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned killed = 0;
	for (unsigned i = 0; i < 400; i++) {
		int status;
		seed = first + i;
		pid_t pid = fork();
		if (pid == 0)
			_exit(compare(last));
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			return 99;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			return 77;
		bool dead = WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
		killed += dead;
		if (dead ? *last : status) {
			printf("FAIL: status %#x, allowed %d: the kernel disagrees with seed "
			       "%llu\n",
			       (unsigned)status, *last, (unsigned long long)(first + i));
			return 1;
		}
	}
	printf("400 filters, %u of them killed; seeds from %llu\n", killed,
	       (unsigned long long)first);
	return 0;
}
