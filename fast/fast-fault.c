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

/* fs is not the C library's while generated code makes notes, and nothing that belongs to a thread
 * can be found then. */
static void own_fs(uint64_t rip)
{
	const struct fast_notes *n = fast_notes_here;

	if (!n || rip < n->code || rip >= n->code + FAST_CODE)
		return;
	if (!n->asks) {
		__asm__ volatile("wrfsbase %0" : : "r"(*n->host_fs) : "memory");
	} else {
		long nr = FAST_ARCH_PRCTL;
		__asm__ volatile("syscall"
				 : "+a"(nr)
				 : "D"(FAST_SET_FS), "S"(*n->host_fs)
				 : "rcx", "r11", "memory");
	}
}

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
	(void)info;
	own_fs((uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]);
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
