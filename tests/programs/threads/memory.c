/*
 * Memory that threads have for themselves, share, map, unmap and write code to.
 */
#include "threads.h"
#include <dlfcn.h>
#include <linux/membarrier.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* ---- thread-local storage ---- */

static __thread long local = 7, zeroed;
static __thread _Alignas(64) char aligned_line[64];
static pthread_key_t keys[3];
static atomic_long destroyed;

static void destroy(void *value)
{
	destroyed += (long)value;
	if ((long)value < 100) /* sets itself again: called once more */
		pthread_setspecific(keys[0], (void *)((long)value + 100));
}

void case_tls(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	void init(void)
	{
		shared++;
	}
	void *user(void *arg)
	{
		expect(local == 7 && zeroed == 0 && (uintptr_t)aligned_line % 64 == 0);
		for (int i = 0; i < 500; i++)
			local += (long)arg, zeroed--, aligned_line[i % 64]++;
		pthread_once(&once, init);
		for (long k = 0; k < 3; k++)
			pthread_setspecific(keys[k], (void *)(200 + (long)arg));
		pthread_setspecific(keys[0], (void *)(10 + (long)arg));
		errno = (int)(long)arg + 1;
		sched_yield();
		expect(errno == (int)(long)arg + 1);
		return (void *)(local + zeroed + aligned_line[0]);
	}
	for (int k = 0; k < 3; k++)
		pthread_key_create(&keys[k], destroy);
	shared = 0;
	destroyed = 0;
	long sum = together(8, user);
	say("%ld, destructors saw %ld, once %ld", sum, destroyed, shared);
	for (int k = 0; k < 3; k++)
		pthread_key_delete(keys[k]);
}

void case_module(void)
{
	static void *volatile handle;
	static atomic_int step;
	pthread_t t;

	/* A thread that was there before the module. */
	void *earlier(void *arg)
	{
		until(&step, 1);
		long (*next)(void) = (long (*)(void))dlsym(handle, "module_next");
		expect(next);
		return (void *)(next() + next());
	}
	void *later(void *arg)
	{
		void *m = dlopen("./module.so", RTLD_NOW);
		expect(m);
		long (*next)(void) = (long (*)(void))dlsym(m, "module_next");
		long first = next();
		for (int i = 0; i < 20; i++)
			next();
		first = next() - first;
		expect(dlclose(m) == 0);
		return (void *)first;
	}
	for (int round = 0; round < 3; round++) {
		atomic_store(&step, 0);
		start(&t, earlier, NULL);
		handle = dlopen("./module.so", RTLD_NOW | RTLD_LOCAL);
		if (!handle) {
			say("%s", dlerror());
			exit(97);
		}
		tell(&step, 1);
		long first = (long)join(t), rest = together(6, later);
		long (*next)(void) = (long (*)(void))dlsym(handle, "module_next");
		say("%ld %ld %ld", first, rest, next());
		dlclose(handle);
	}
	/* Loading and unloading by several at once. */
	say("%ld", together(8, later));
}

/* ---- mappings and the heap ---- */

void case_maps(void)
{
	void *mapper(void *arg)
	{
		long sum = 0;
		size_t size = 4096 * (2 + (size_t)arg % 3);
		for (int i = 0; i < 150; i++) {
			long *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			expect(p != MAP_FAILED);
			for (size_t k = 0; k < size / sizeof(long); k += 64)
				sum += p[k], p[k] = (long)k + i;
			if (i % 3 == 0) {
				expect(mprotect(p, size, PROT_READ) == 0);
				expect(mprotect(p, size, PROT_READ | PROT_WRITE) == 0);
			}
			if (i % 5 == 0) {
				p = mremap(p, size, 2 * size, MREMAP_MAYMOVE);
				expect(p != MAP_FAILED && p[size / sizeof(long)] == 0);
				expect(munmap((char *)p + size, size) == 0);
			}
			for (size_t k = 0; k < size / sizeof(long); k += 64)
				sum += p[k];
			if (i % 7 == 0) {
				expect(madvise(p, size, MADV_DONTNEED) == 0);
				expect(p[0] == 0 && p[64] == 0);
			}
			expect(munmap(p, size) == 0);
		}
		return (void *)sum;
	}
	say("%ld", together(6, mapper));
}

/* Mapped by one, used by another, unmapped by a third. */
void case_handover(void)
{
	static long *volatile page[3];
	static sem_t s[3];

	void *stage(void *arg)
	{
		long me = (long)arg, sum = 0;
		for (long i = 0; i < 200; i++) {
			while (sem_wait(&s[me]))
				;
			long *p = page[0];
			if (me == 0) {
				p = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
				p[100] = i;
				page[0] = p;
			} else if (me == 1) {
				p[101] = p[100] * 3;
				p[1000] += p[101];
			} else {
				sum += p[101] + p[1000];
				munmap(p, 8192);
			}
			sem_post(&s[(me + 1) % 3]);
		}
		return (void *)sum;
	}
	for (int i = 0; i < 3; i++)
		sem_init(&s[i], 0, i == 0);
	say("%ld", together(3, stage));
}

void case_malloc(void)
{
	static void *_Atomic slot[64];

	void *user(void *arg)
	{
		uint64_t x = 88172645463325252ULL + (uint64_t)arg;
		for (int i = 0; i < 4000; i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			size_t size = x % 2000 + sizeof(size);
			char *p = malloc(size), *old;
			memset(p, (int)size, size);
			memcpy(p, &size, sizeof(size));
			old = atomic_exchange(&slot[x >> 20 & 63], p);
			if (old) {
				memcpy(&size, old, sizeof(size));
				for (size_t k = sizeof(size); k < size; k++)
					expect(old[k] == (char)size);
			}
			free(old);
		}
		return NULL;
	}
	together(4, user);
	for (int i = 0; i < 64; i++)
		free(atomic_exchange(&slot[i], NULL));
	say("16000 blocks");
}

/* ---- code that one thread writes and others execute ---- */

void case_jit(void)
{
	typedef int fn(void);
	static unsigned char *page;
	static pthread_barrier_t b;
	static atomic_int quit;

	void *executor(void *arg)
	{
		long sum = 0;
		for (int i = 0; i < 60; i++) {
			pthread_barrier_wait(&b);
			if ((long)arg == 0) { /* mov eax, i; ret */
				unsigned char code[] = { 0xb8, (unsigned char)i, 0, 0, 0, 0xc3 };
				memcpy(page, code, sizeof(code));
			}
			pthread_barrier_wait(&b);
			sum += ((fn *)(uintptr_t)page)();
		}
		return (void *)sum;
	}
	/* Patched while it is executed: eight aligned bytes at once. */
	void *patched(void *arg)
	{
		long last = 0, bad = 0;
		union {
			unsigned char b[8];
			uint64_t v;
		} u = { { 0xb8, 0, 0, 0, 0, 0xc3, 0x90, 0x90 } };
		if ((long)arg == 0) {
			for (int i = 1; i <= 500; i++) {
				memcpy(u.b + 1, &i, 4);
				__atomic_store_n((uint64_t *)page, u.v, __ATOMIC_SEQ_CST);
				if (i % 50 == 0)
					sched_yield();
			}
			tell(&quit, 1);
		} else {
			while (!atomic_load(&quit)) {
				int v = ((fn *)(uintptr_t)page)();
				bad += v < last || v > 500;
				last = v;
			}
		}
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
		return (void *)(bad * 1000000 + ((fn *)(uintptr_t)page)());
	}
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	pthread_barrier_init(&b, NULL, 4);
	long sum = together(4, executor);
	memcpy(page, "\xb8\0\0\0\0\xc3\x90\x90", 8);
	atomic_store(&quit, 0);
	long values = together(3, patched);
	/* Written, then made executable, many functions by each thread; and thrown away. */
	void *maker(void *arg)
	{
		long total = 0;
		for (int i = 0; i < 40; i++) {
			unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			unsigned char code[] = {
				0xb8, (unsigned char)i, (unsigned char)(long)arg, 0, 0, 0xc3
			};
			for (int k = 0; k < 16; k++) {
				code[1] = (unsigned char)(i + k);
				memcpy(p + k * 16, code, sizeof(code));
			}
			mprotect(p, 4096, PROT_READ | PROT_EXEC);
			for (int k = 0; k < 16; k++)
				total += ((fn *)(uintptr_t)(p + k * 16))();
			munmap(p, 4096);
		}
		return (void *)total;
	}
	say("%ld %ld %ld", sum, values, together(4, maker));
	munmap(page, 4096);
}

/* One thread makes code and tells of it by a plain store; the other spins, makes no system call and
 * executes no locked instruction, and goes there at once. New code in a new place, and in the old
 * one. */
static int (*volatile fresh)(void);
static volatile int answered;

static void *plain_executor(void *arg)
{
	int (*last)(void) = NULL, (*now)(void);
	long sum = 0;

	for (int i = 1; i <= 200; i++) {
		while ((now = fresh) == last)
			__builtin_ia32_pause();
		last = now;
		sum += now();
		answered = i;
	}
	return (void *)sum;
}

void case_fresh(void)
{
	unsigned char *page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *split =
		mmap(NULL, 200 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t;

	fresh = NULL;
	answered = 0;
	start(&t, plain_executor, NULL);
	for (int i = 1; i <= 200; i++) {
		unsigned char code[] = {
			0xb8, (unsigned char)i, (unsigned char)(i >> 8), 0, 0, 0xc3
		};
		unsigned char *at = page + i % 8 * 4096; /* used again and again */
		if (i % 3 == 0)
			at = split + i * 4096; /* written, then executable */
		memcpy(at, code, sizeof(code));
		if (i % 3 == 0)
			mprotect(at, 4096, PROT_READ | PROT_EXEC);
		if (i % 5 == 0) /* executed here, too, before or after */
			shared += ((int (*)(void))(uintptr_t)at)();
		fresh = (int (*)(void))(uintptr_t)at;
		for (int k = 0; answered != i; k++)
			if (k > 200)
				pause_ms(1);
		if (i % 7 == 0)
			shared += ((int (*)(void))(uintptr_t)at)();
	}
	say("%ld", (long)join(t));
	munmap(page, 1 << 16);
	munmap(split, 200 * 4096);
}

/* ---- the C library ---- */

void case_stdio(void)
{
	static FILE *f;
	char line[128];
	int lines = 0, torn = 0;

	void *writer(void *arg)
	{
		for (int i = 0; i < 500; i++) {
			if (i % 10 == 0) {
				flockfile(f);
				putc_unlocked('<', f);
				fprintf(f, "%ld %d", (long)arg, i);
				fputs_unlocked(">\n", f);
				funlockfile(f);
			} else
				fprintf(f, "<%ld %d>\n", (long)arg, i);
		}
		return NULL;
	}
	f = tmpfile();
	together(4, writer);
	rewind(f);
	while (fgets(line, sizeof(line), f)) {
		long who;
		int i, end = 0;
		torn += sscanf(line, "<%ld %d>\n%n", &who, &i, &end) != 2 ||
			(size_t)end != strlen(line);
		lines++;
	}
	fclose(f);
	say("%d lines, %d torn", lines, torn);
}
