/*
 * Exceptions in generated code. The program that was recorded had none there: where one of its
 * instructions raised a signal the trace has a record, and the emulator has taken over before that.
 * So an exception means that the trace is not honest, or that this processor is not what it is
 * taken for. Registers cannot be had back exactly; the engine gives up.
 *
 * rsp is the program's when it happens, so the handler has a stack of its own.
 */
#include "fast/fast-parts.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define STACK (64u << 10)

static const int caught[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };
static struct sigaction before[4];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Thread_local uint8_t *shadow; /* of the engine that runs */

void fast_running(uint8_t *s)
{
	shadow = s;
}

/* ---- fs ------------------------------------------------------------------------------------- */

/* Nothing here may need what belongs to a thread before fs is its own again, and the C library's
 * system calls have errno there. */
static long call(long nr, uint64_t a, uint64_t b, uint64_t c)
{
	__asm__ volatile("syscall" : "+a"(nr) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return nr;
}

static void set_fs(struct fast *f)
{
	const uint64_t base = FAST_U64(f, F_HOST_FS);

	if (FAST_U32(f, F_NOTE_ASKS) == FAST_NOTE_SETS)
		__asm__ volatile("wrfsbase %0" : : "r"(base) : "memory");
	else
		call(FAST_ARCH_PRCTL, FAST_SET_FS, base, 0);
	FAST_U32(f, F_NOTE_SET) = 0;
}

/* Somebody does need the first pages of the table of bytes read: generated code, or who reads it.
 * So they cannot tell who needs fs, and it is set back each time from now on. */
static void open_guard(struct fast_notes *n)
{
	FAST_U32(n->f, F_NOTE_ASKS) = FAST_NOTE_ASKS;
	call(SYS_mprotect, (uint64_t)(uintptr_t)n->high, (uint64_t)(n->guard_end - n->high),
	     PROT_READ | PROT_WRITE);
	n->guard_end = n->high;
}

/*
 * fs has the base that notes want while generated code runs that makes some, and with
 * FAST_NOTE_LATE also in C, which needs its own seldom: there is nothing where it finds nothing of
 * its thread. Whether all is well now: what has raised the exception can be done again.
 */
static bool own_fs(uint64_t rip, uint64_t addr)
{
	struct fast_notes *n = fast_notes_here;

	if (!n)
		return false;
	const bool late = FAST_U32(n->f, F_NOTE_ASKS) == FAST_NOTE_LATE,
		   coded = rip >= FAST_U64(n->f, F_CODE) && rip < FAST_U64(n->f, F_CODE_END),
		   guarded = late && addr >= (uint64_t)(uintptr_t)n->guard &&
			     addr < (uint64_t)(uintptr_t)n->guard_end,
		   set = FAST_U32(n->f, F_NOTE_SET);

	if (late && call(SYS_gettid, 0, 0, 0) != n->tid)
		return false;
	if (guarded && addr >= (uint64_t)(uintptr_t)n->high && (coded || !set)) {
		open_guard(n);
		return true;
	}
	if (!set)
		return false;
	set_fs(n->f);
	if (coded)
		return false;
	n->faults++;
	shadow = NULL;
	return guarded;
}

void fast_rest(struct fast *f)
{
	if (!f->notes || !FAST_U32(f, F_NOTE_SET))
		return;
	set_fs(f);
	fast_running(NULL);
}

/* ---- exceptions ----------------------------------------------------------------------------- */

static __attribute__((noinline)) void handle(int signo, void *context)
{
	ucontext_t *uc = context;
	uint64_t rip = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
	uint8_t *s = shadow;

	if (s && rip >= *(uint64_t *)(s + F_CODE) && rip < *(uint64_t *)(s + F_CODE_END)) {
		*(uint64_t *)(s + F_FAULT) = (uint64_t)signo;
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)fast_fault;
		return;
	}
	for (unsigned i = 0; i < 4;
	     i++) /* it is ours, then: happens again, as if we were not here */
		if (caught[i] == signo)
			sigaction(signo, &before[i], NULL);
}

static void handler(int signo, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;

	if (!own_fs((uint64_t)uc->uc_mcontext.gregs[REG_RIP], (uint64_t)(uintptr_t)info->si_addr))
		handle(signo, context);
}

static void drop_stack(void *stack)
{
	stack_t none = { .ss_flags = SS_DISABLE };

	sigaltstack(&none, NULL);
	munmap(stack, STACK);
}

static void install(void)
{
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigemptyset(&sa.sa_mask);
	for (unsigned i = 0; i < 4; i++)
		sigaction(caught[i], &sa, &before[i]);
	pthread_key_create(&key, drop_stack);
}

bool fast_catch(void)
{
	stack_t s = { .ss_size = STACK };

	pthread_once(&once, install);
	if (pthread_getspecific(key))
		return true;
	s.ss_sp = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s.ss_sp == MAP_FAILED)
		return false;
	if (sigaltstack(&s, NULL) || pthread_setspecific(key, s.ss_sp)) {
		munmap(s.ss_sp, STACK);
		return false;
	}
	return true;
}
