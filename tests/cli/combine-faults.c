/* Operations of one instruction: faults, traps, what a system call leaves: see combine.h. */
#define _GNU_SOURCE
#include "combine.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The flags and registers that are dead or overwritten around the fault are on purpose. */
__asm__(".globl at_load, at_end, target, fault_load\n.text\n"
	"fault_load: xor %eax,%eax\n"
	"at_load: mov (%rdi),%rax\n add $1,%rax\n ret\n"
	"fault_store: sub %eax,%eax\n"
	"at_store: mov %rax,(%rdi)\n ret\n"
	"fault_rmw: stc\n"
	"at_rmw: adc %rdi,(%rdi)\n ret\n"
	"fault_xadd: mov $5,%eax\n lock xadd %rdi,(%rdi)\n ret\n"
	"fault_div: xor %edx,%edx\n mov $1,%eax\n xor %ecx,%ecx\n"
	"at_div: div %ecx\n ret\n"
	"fault_ud: clc\n"
	"at_ud: ud2\n ret\n"
	"fault_int3: clc\n int3\n"
	"at_int3: ret\n"
	"fault_push: mov %rsp,%rdx\n mov %rdi,%rsp\n"
	"at_push: push %rax\n mov %rdx,%rsp\n ret\n"
	"fault_call: call *(%rdi)\n ret\n"
	"fault_rep: mov $100,%ecx\n mov %rdi,%rsi\n rep movsb\n ret\n"
	"fault_edge: mov $100,%ecx\n lea -37(%rdx),%rdi\n lea at_load(%rip),%rsi\n"
	"rep movsb\n ret\n"
	"fault_words: mov $30,%ecx\n lea -44(%rdx),%rdi\n lea at_load(%rip),%rsi\n"
	"rep movsl\n ret\n"
	"fault_callpush: mov %rdi,%rsp\n mov $77,%ecx\n lea target(%rip),%rax\n call *(%rax)\n"
	"fault_callrcx: mov %rdi,%rsp\n lea target(%rip),%rcx\n call *(%rcx)\n"
	"fault_callreg: mov %rdi,%rsp\n mov $78,%ecx\n lea target(%rip),%rax\n call *%rax\n"
	"fault_pushmem: mov %rdi,%rsp\n mov $79,%ecx\n push target(%rip)\n"
	"fault_sgdt: clc\n sgdt (%rdi)\n ret\n"
	"fault_str: mov %rdi,%r9\n str -2(%r9)\n ret\n"
	"fault_gather: vpcmpeqd %xmm2,%xmm2,%xmm2\n vpxor %xmm0,%xmm0,%xmm0\n"
	"vmovdqu indices(%rip),%xmm1\n lea target(%rip),%rax\n"
	"vgatherdps %xmm2,(%rax,%xmm1,4),%xmm0\n ret\n"
	/* at each trap the handler says where it is */
	"tf_on: pop %rdx\n pushf\n orl $0x100,(%rsp)\n popf\n push %rdx\n ret\n"
	"tf_off: pop %rdx\n pushf\n andl $~0x100,(%rsp)\n popf\n push %rdx\n ret\n"
	"tf_plain: call tf_on\n nop\n nop\n stc\n adc $1,%eax\n call tf_off\n ret\n"
	"tf_calls: call tf_on\n mov $110,%eax\n syscall\n nop\n mov $216,%eax\n xor %edi,%edi\n"
	"xor %esi,%esi\n xor %r10d,%r10d\n syscall\n nop\n call tf_off\n ret\n"
	"tf_odd: push %rbx\n call tf_on\n xor %eax,%eax\n cpuid\n rdtsc\n mov $3,%ecx\n"
	"lea -64(%rsp),%rdi\n rep stosb\n lock incl -64(%rsp)\n fld1\n fstp %st\n call tf_off\n"
	"pop %rbx\n ret\n"
	"tf_own: call tf_on\n nop\n int3\n nop\n .byte 0xf1\n nop\n call tf_off\n ret\n"
	"tf_kill: call tf_on\n cmp $3,%sil\n mov $10,%edx\n mov $62,%eax\n syscall\n nop\n call "
	"tf_off\n ret\n"
	"tf_kept: call tf_on\n str %eax\n nop\n nop\n sgdt -64(%rsp)\n smsw %ecx\n nop\n"
	"sidt -64(%rsp)\n sldt %eax\n cpuid\n call tf_off\n ret\n" /* the kernel emulates these */
	"tf_ss: call tf_on\n mov %ss,%eax\n mov %eax,%ss\n nop\n nop\n call tf_off\n ret\n"
	"call_flags: push %rbx\n mov %edi,%ebx\n mov %rsi,%r8\n"
	/* dead flags, live flags; in the cache and not */
	"add $0x7f,%bl\n mov $110,%eax\n syscall\n mov %r11,(%r8)\n xor %eax,%eax\n"
	"cmp $5,%bl\n mov $110,%eax\n syscall\n mov %r11,8(%r8)\n pushf\n pop 16(%r8)\n"
	"lea 1f(%rip),%r10\n stc\n mov $216,%eax\n mov %r8,%rbx\n xor %edi,%edi\n xor %esi,%esi\n"
	"sub $1,%edi\n syscall\n1: pushf\n pop 24(%rbx)\n mov %r11,32(%rbx)\n sub %r10,%rcx\n"
	"mov %rcx,40(%rbx)\n pop %rbx\n ret\n"
	/* a signal to itself; one that is let in; what is behind that is executed natively */
	"call_mask: push %rbx\n mov $14,%eax\n mov $8,%r10d\n xor %edx,%edx\n cmp $3,%dil\n "
	"syscall\n"
	"cpuid\n pop %rbx\n ret\n"
	"call_kill: sub $128,%rsp\n mov $62,%eax\n cmp $3,%sil\n syscall\n add $128,%rsp\n ret\n"
	"at_end: ret\n"
	".data\n target: .quad at_end\n indices: .long 0, 1, 0x40000000, 0\n .text\n");
extern void call_flags(int n, uint64_t *out), call_kill(pid_t pid, int sig);
extern void call_mask(int how, const sigset_t *set);
extern void tf_plain(void), tf_calls(void), tf_odd(void), tf_own(void), tf_ss(void), tf_kept(void);
extern void tf_kill(pid_t pid, int sig);
extern fault_code fault_store, fault_rmw, fault_xadd, fault_div, fault_ud, fault_int3, fault_push,
	fault_call, fault_rep, fault_edge, fault_words, fault_callpush, fault_callrcx,
	fault_callreg, fault_pushmem, fault_gather, fault_sgdt, fault_str;

void fault(void)
{
	static char *pages;
	static fault_code *const faults[] = { fault_load,    fault_store,   fault_rmw,
					      fault_xadd,    fault_div,	    fault_ud,
					      fault_int3,    fault_call,    fault_rep,
					      fault_edge,    fault_words,   fault_callpush,
					      fault_callrcx, fault_callreg, fault_pushmem,
					      fault_gather,  fault_sgdt,    fault_str };
	unsigned k = rnd(sizeof(faults) / sizeof(*faults));
	sigset_t unblock;
	if (k == 15 && !__builtin_cpu_supports("avx2"))
		k = 0;
	gathers = k == 15;
	int sig = k == 4 ? SIGFPE : k == 5 ? SIGILL : k == 6 ? SIGTRAP : SIGSEGV;

	note("fault", k);
	/* forced signals that are blocked kill; that is for the last case only */
	sigemptyset(&unblock);
	sigaddset(&unblock, sig);
	sigprocmask(SIG_UNBLOCK, &unblock, NULL);
	random_handler(sig);
	if (k > 10 && k < 15) { /* without a stack */
		struct sigaction sa = { .sa_sigaction = handler,
					.sa_flags = SA_SIGINFO | SA_ONSTACK };
		sigaction(sig, &sa, NULL);
	}
	if (!pages) {
		pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		mprotect(pages + 4096, 4096, PROT_NONE);
	}
	edge = k == 9 || k == 10 ? pages + 4096 : NULL;
	recovering = 1;
	if (sigsetjmp(recover, 1) == 0)
		faults[k]((void *)(uintptr_t)(8 * (1 + rnd(100))), NULL, edge);
	recovering = 0;
	edge = NULL;
}

/* The trap flag, set by the program itself: by popf, or in the frame of a handler. */
void trap_flag(void)
{
	static void (*const traps[])(void) = { tf_plain, tf_calls, tf_odd, tf_own, tf_ss };
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	sigset_t trap;
	unsigned k = rnd(9);

	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	sigaddset(&trap, SIGSYS); /* of a filter (seccomp_trap) */
	sigprocmask(SIG_UNBLOCK, &trap, NULL);
	sigaction(SIGTRAP, &sa, NULL);
	long before = *counter;
	note("tf", k);
	if (k < 5) {
		traps[k]();
	} else if (k == 5) {
		tf_kill(getpid(), rnd(2) ? SIGUSR1 : SIGHUP);
	} else if (k == 6) { /* up to the next so many */
		sigaction(SIGUSR1, &sa, NULL);
		sigprocmask(SIG_SETMASK, NULL, &trap);
		sigdelset(&trap, SIGUSR1);
		sigprocmask(SIG_SETMASK, &trap, NULL);
		set_trap_flag = 1 + (int)rnd(40);
		raise(SIGUSR1);
	} else if (k == 7) {
		void *saved;
		__asm__ volatile("mov %%rbx, %0\n\tcall tf_kept\n\tmov %0, %%rbx"
				 : "=&r"(saved)
				 :
				 : "rax", "rcx", "rdx", "cc", "memory");
	} else {
		__asm__ volatile(".byte 0xf1"); /* int1 */
	}
	note("traps", *counter - before);
}

/* What SIGTRAP does and whether it is blocked, as a number below 64. */
static int trap_state(void)
{
	struct sigaction sa;
	unsigned long long mask = mask_now();

	sigaction(SIGTRAP, NULL, &sa);
	int what = sa.sa_handler == SIG_DFL ? 0 : sa.sa_handler == SIG_IGN ? 1 : 2;
	return what + 4 * (int)(mask >> (SIGTRAP - 1) & 1) + 8 * !!(sa.sa_flags & SA_NODEFER) +
	       16 * !!(sa.sa_flags & SA_SIGINFO) + 32 * !!(sa.sa_mask.__val[0] & 1);
}

/* Whether one more would be the end: by default, or when the one that waits has been handled. (Two
 * can wait, one for the thread and one for the process.) */
static bool fatal_trap(void)
{
	struct sigaction sa;
	sigset_t pending;

	sigaction(SIGTRAP, NULL, &sa);
	sigpending(&pending);
	return (trap_state() & 7) == 0 ||
	       (sa.sa_flags & (int)SA_RESETHAND && sigismember(&pending, SIGTRAP));
}

/* A signal to itself with a code of the kernel's. */
static void send_as(int sig, int code)
{
	siginfo_t info = { .si_signo = sig, .si_code = code };

	info.si_addr = (void *)0x123;
	note("sent", syscall(SYS_rt_sigqueueinfo, getpid(), sig, &info));
}

/* SIGTRAP is the program's, whatever else uses it. */
void own_traps(void)
{
	sigset_t trap, pending;
	struct timespec zero = { 0, 0 };
	struct sigaction once = { .sa_sigaction = handler,
				  .sa_flags = SA_SIGINFO | (int)SA_RESETHAND };
	unsigned n = 2 + rnd(8);

	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	for (unsigned i = 0; i < n; i++) {
		unsigned k = rnd(12);
		put(" ");
		put_number(k);
		switch (k) {
		case 0:
			sigprocmask(SIG_BLOCK, &trap, NULL);
			break;
		case 1:
			while ((trap_state() & 7) == 4 && sigtimedwait(&trap, NULL, &zero) > 0)
				; /* one that waits would be the end */
			sigprocmask(SIG_UNBLOCK, &trap, NULL);
			break;
		case 2:
			signal(SIGTRAP, SIG_IGN);
			break;
		case 3:
			random_handler(SIGTRAP);
			break;
		case 4:
			if (!fatal_trap())
				raise(SIGTRAP);
			break;
		case 5:
			if (!fatal_trap())
				sigqueue(getpid(), SIGTRAP, (union sigval){ .sival_int = (int)i });
			break;
		case 6:
			sigpending(&pending);
			note("pending", sigismember(&pending, SIGTRAP));
			break;
		case 7:
			if (trap_state() & 4)
				note("got", sigtimedwait(&trap, NULL, &zero));
			break;
		case 8: {
			int status;
			pid_t child = rnd(2) ? fork() : vfork();
			if (child == 0)
				_exit(trap_state());
			while (waitpid(child, &status, 0) < 0 && errno == EINTR)
				;
			note("inherits", WEXITSTATUS(status));
			break;
		}
		case 9: /* gone when it is entered */
			while (trap_state() & 4 && sigtimedwait(&trap, NULL, &zero) > 0)
				;
			sigaction(SIGTRAP, &once, NULL);
			raise(SIGTRAP);
			break;
		case 10: /* forced, while it is neither blocked nor ignored */
			if ((trap_state() & 7) == 2)
				__asm__ volatile("int3");
			break;
		case 11: /* one that looks like a trap, or like a fault */
			if ((trap_state() & 7) == 2)
				send_as(SIGTRAP, rnd(2) ? TRAP_TRACE : SI_KERNEL);
			random_handler(SIGSEGV);
			sigemptyset(&pending);
			sigaddset(&pending, SIGSEGV);
			sigprocmask(SIG_UNBLOCK, &pending, NULL);
			send_as(SIGSEGV, rnd(2) ? SEGV_MAPERR : SI_KERNEL);
			break;
		}
		note("is", trap_state());
		mmap(NULL, 0, 0, 0, -1, 0);
	}
	random_handler(SIGTRAP);
}

/* What the system call instruction leaves in registers. */
void after_calls(void)
{
	uint64_t out[6];
	sigset_t none, filtered;

	sigemptyset(&filtered);
	sigaddset(&filtered, SIGSYS); /* of a filter (seccomp_trap) */
	sigprocmask(SIG_UNBLOCK, &filtered, NULL);
	call_flags((int)rnd(256), out);
	for (int i = 0; i < 6; i++)
		note("r", (long long)(out[i] & 0xdd5));
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	call_kill(getpid(), rnd(2) ? SIGUSR1 : SIGHUP);
	sigset_t some;
	sigemptyset(&some);
	sigaddset(&some, SIGUSR1);
	if (rnd(2))
		sigaddset(&some, SIGTRAP); /* then the supervisor makes the call */
	sigprocmask(SIG_BLOCK, &some, NULL);
	kill(getpid(), SIGUSR1);
	sigdelset(&some, SIGTRAP);
	call_mask(SIG_UNBLOCK, &some);
	sigprocmask(SIG_SETMASK, &none, NULL);
}
