/*
 * Code that changes without a mapping call, for the end-to-end tests: through /proc/self/mem, by
 * process_vm_writev, by madvise, and in the file that it is mapped from, which gets shorter, too.
 * Each function is called before and after.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

typedef int fn(int);

static uint8_t text[8];

/* lea eax, [rdi + imm]; ret */
static uint8_t *code(int imm)
{
	text[0] = 0x8d;
	text[1] = 0x87;
	memcpy(text + 2, &imm, 4);
	text[6] = 0xc3;
	return text;
}

static int fd;
static uint8_t *page;
static volatile long sum; /* a replay with other values takes another way */

static int call(void)
{
	int r = 0;
	for (int i = 0; i < 5; i++)
		r += ((fn *)page)(i);
	for (volatile int i = 0; i < (r & 255); i++)
		sum += i;
	return r;
}

static void by_pwrite(int imm)
{
	if (pwrite(fd, code(imm), 7, (off_t)(uintptr_t)page) != 7)
		perror("pwrite");
}

static void by_write(int imm)
{
	lseek(fd, (off_t)(uintptr_t)page, SEEK_SET);
	if (write(fd, code(imm), 7) != 7)
		perror("write");
}

static void by_writev(int imm)
{
	struct iovec v[2] = { { code(imm), 3 }, { text + 3, 4 } };
	lseek(fd, (off_t)(uintptr_t)page, SEEK_SET);
	if (writev(fd, v, 2) != 7)
		perror("writev");
}

static void by_pwritev(int imm)
{
	struct iovec v[2] = { { code(imm), 3 }, { text + 3, 4 } };
	if (pwritev(fd, v, 2, (off_t)(uintptr_t)page) != 7)
		perror("pwritev");
}

static void by_sendfile(int imm)
{
	int from = memfd_create("from", 0);
	off_t at = 0;
	lseek(fd, (off_t)(uintptr_t)page, SEEK_SET);
	if (write(from, code(imm), 7) != 7 || sendfile(fd, from, &at, 7) != 7)
		printf("(no sendfile) "), by_pwrite(imm);
	close(from);
}

static void by_vm_write(int imm)
{
	/* into a page that may be written to, from another view of which it is executed */
	struct iovec from = { code(imm), 7 }, to = { page, 7 };
	mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
	if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != 7)
		perror("process_vm_writev");
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
}

static void try_way(const char *name, void (*change)(int imm))
{
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(page, code(1), 7);
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	printf("%s: %d", name, call());
	for (int i = 2; i < 6; i++) {
		change(100 * i);
		printf(" %d", call());
	}
	printf("\n");
	munmap(page, 4096);
}

/* Private pages of a file that have been written to, and are the file's again. */
static void by_madvise(void)
{
	int file = memfd_create("file", 0);
	if (write(file, code(7), 7) != 7)
		return;
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	for (int i = 0; i < 3; i++) {
		mprotect(page, 4096, PROT_READ | PROT_WRITE);
		memcpy(page, code(1000 * i), 7);
		mprotect(page, 4096, PROT_READ | PROT_EXEC);
		printf("madvise: %d", call());
		madvise(page, 4096, MADV_DONTNEED);
		printf(" %d\n", call());
	}
	munmap(page, 4096);

	/* the file changes, by a call and in another mapping */
	page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	uint8_t *view = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	printf("file: %d", call());
	for (int i = 0; i < 3; i++) {
		if (pwrite(file, code(50 + i), 7, 0) != 7)
			perror("pwrite");
		printf(" %d", call());
		memcpy(view, code(70 + i), 7);
		printf(" %d", call());
	}
	printf("\n");
}

/* A library's page that has been written to is the file's again. (Other files are not believed to
 * stay what they are, so that what is translated from them is compared each time.) */
static void library_madvise(void)
{
	uint8_t *start = page - (uintptr_t)page % 4096;

	printf("library, madvise: %d", call());
	for (int i = 0; i < 3; i++) {
		mprotect(start, 4096, PROT_READ | PROT_WRITE);
		memcpy(page, code(300 + i), 7);
		mprotect(start, 4096, PROT_READ | PROT_EXEC);
		printf(" %d", call());
		madvise(start, 4096, MADV_DONTNEED);
		printf(" %d", call());
	}
	printf("\n");
}

static sigjmp_buf back;

static void on_bus(int sig)
{
	siglongjmp(back, sig);
}

static int called(void)
{
	int sig = sigsetjmp(back, 1);
	return sig ? -sig : call();
}

/* A file that is no module gets shorter, and longer again: behind its end is nothing to execute,
 * nor to be compared with what was translated. */
static void shortened(int flags)
{
	int file = memfd_create("file", 0);
	signal(SIGBUS, on_bus);
	signal(SIGSEGV, on_bus);
	page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, flags, file, 0);
	printf("shortened: %d", called());
	for (int i = 0; i < 3; i++) {
		if (pwrite(file, code(90 + i), 7, 0) != 7)
			perror("pwrite");
		printf(" %d", called());
		if (i < 2 ? ftruncate(file, 0)
			  : fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096))
			perror("shortened");
		printf(" %d", called());
	}
	printf("\n");
	munmap(page, 4096);
	close(file);
}

/* A library is written to where it lies. That is noticed at the next stop of the program. */
static void library(const char *name)
{
	void *h = dlopen(name, RTLD_NOW);
	int file = open(name, O_RDWR);
	static uint8_t all[65536];
	if (!h || file < 0)
		return;
	page = dlsym(h, "f");
	library_madvise();
	ssize_t n = read(file, all, sizeof(all));
	uint8_t *at = memmem(all, (size_t)n, page, 64);
	printf("library: %d", call());
	for (int i = 0; i < 4; i++) {
		if (!at || pwrite(file, code(i * 1000), 7, at - all) != 7)
			perror("pwrite");
		mprotect(page - (uintptr_t)page % 4096, 4096, PROT_READ | PROT_EXEC);
		printf(" %d", call());
	}
	printf("\n");
	if (ftruncate(file, 0))
		perror("ftruncate");
	mprotect(page - (uintptr_t)page % 4096, 4096, PROT_READ | PROT_EXEC);
	printf("cut: %d\n", called());
}

/* What has nothing to do with code. */
static void others(void)
{
	int file = memfd_create("data", 0);
	char *heap =
		mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 2000; i++) {
		lseek(file, i * 100, SEEK_SET);
		pwrite(file, &i, sizeof(i), i * 4096L);
		heap[4096 * (i % 256)] = (char)i;
		madvise(heap + 4096 * (i % 256), 4096, MADV_DONTNEED);
		sum += heap[4096 * (i % 256)];
	}
	printf("others: %ld\n", (long)lseek(file, 0, SEEK_END));
}

int main(void)
{
	fd = open("/proc/self/mem", O_RDWR);
	try_way("pwrite", by_pwrite);
	try_way("pwritev", by_pwritev);
	try_way("write", by_write);
	try_way("writev", by_writev);
	try_way("sendfile", by_sendfile);
	try_way("process_vm_writev", by_vm_write);
	close(fd);
	by_madvise();
	shortened(MAP_SHARED);
	shortened(MAP_PRIVATE);
	others();
	library("./f.so");
	printf("%ld\n", sum);
	fflush(stdout);
	_exit(0); /* the library is not there any more */
}
