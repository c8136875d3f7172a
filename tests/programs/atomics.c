/*
 * Threads that do nothing but atomic operations on places that share their lines and the low bits
 * of their addresses: such as translated code knows, such as are executed natively, and such as
 * fault, because the page is taken away again and again; and all the while signals arrive. What
 * comes out is known beforehand.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS	4000
#define FAULTS	60

static struct {
	_Alignas(4096) uint64_t add;
	uint64_t carry;
	uint8_t bytes[4], pad[40];
	uint32_t lines[64];
	_Alignas(16) uint64_t pair[2];
	uint64_t swapped, tokens;
} all;
static uint64_t *page; /* its first word has the lock of `all.add` */
static unsigned long signals, refused;
static int sent; /* main() has sent its signals */

static void on_signal(int sig)
{
	(void)sig;
	__atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
}

static void on_fault(int sig, siginfo_t *si, void *context)
{
	(void)context;
	if ((uint64_t *)si->si_addr != page || mprotect(page, 4096, PROT_READ | PROT_WRITE))
		_exit(100 + sig);
	__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
}

static void *count(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg, token = number;
	for (int i = 0; i < ROUNDS; i++) {
		/* A thread does not end before it has been signalled. */
		while (i == ROUNDS - 100 && !__atomic_load_n(&sent, __ATOMIC_ACQUIRE))
			sched_yield();
		__asm__ volatile("lock incq %0" : "+m"(all.add) : : "cc", "memory");
		uint32_t one = 1;
		__asm__ volatile("lock xaddl %0, %1"
				 : "+r"(one), "+m"(all.lines[0])
				 :
				 : "cc", "memory");
		/* these two the recorder executes natively */
		if (i % 50 == 0) {
			__asm__ volatile("clc\n\tlock adcq $1, %0"
					 : "+m"(all.carry)
					 :
					 : "cc", "memory");
			__asm__ volatile("mov $1, %%ah\n\tlock xaddb %%ah, %0"
					 : "+m"(all.bytes[1])
					 :
					 : "rax", "cc", "memory");
		}
		uint64_t old[2] = { all.pair[0], all.pair[1] }, new;
		unsigned char done;
		do {
			new = old[0] + 1;
			__asm__ volatile("lock cmpxchg16b %1\n\tsetz %0"
					 : "=q"(done), "+m"(all.pair), "+a"(old[0]), "+d"(old[1])
					 : "b"(new), "c"(~new)
					 : "cc", "memory");
		} while (!done);
		if (old[0] && old[1] != ~old[0])
			_exit(1);
		__asm__ volatile("xchg %0, %1" : "+r"(token), "+m"(all.swapped) : : "memory");
		if (i % 100 == 0)
			__asm__ volatile("mfence" : : : "memory");
	}
	__atomic_fetch_add(&all.tokens, token, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *fault(void *arg)
{
	(void)arg;
	for (int i = 0; i < FAULTS; i++) {
		mprotect(page, 4096, i & 1 ? PROT_NONE : PROT_READ);
		if (i % 3)
			__asm__ volatile("lock incq %0" : "+m"(*page) : : "cc", "memory");
		else
			__asm__ volatile("clc\n\tlock adcq $1, %0"
					 : "+m"(*page)
					 :
					 : "cc", "memory");
	}
	return NULL;
}

int main(void)
{
	struct sigaction sa = { .sa_flags = SA_RESTART, .sa_handler = on_signal };
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { { 0, 0 }, { 0, 0 } };
	pthread_t threads[THREADS], faults;
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 1;
	sigaction(SIGPROF, &sa, NULL);
	sa.sa_flags = SA_SIGINFO;
	sa.sa_sigaction = on_fault;
	sigaction(SIGSEGV, &sa, NULL);
	setitimer(ITIMER_PROF, &often, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, count, (void *)(uintptr_t)(1ULL << i));
	pthread_create(&faults, NULL, fault, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_kill(threads[i], SIGPROF);
	__atomic_store_n(&sent, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_join(faults, NULL);
	setitimer(ITIMER_PROF, &never, NULL);
	printf("%llu %llu %u %u %llu %llu %llu %lu\n", (unsigned long long)all.add,
	       (unsigned long long)all.carry, all.bytes[1], all.lines[0],
	       (unsigned long long)all.pair[0], (unsigned long long)*page,
	       (unsigned long long)(all.swapped + all.tokens), refused);
	return !signals;
}
