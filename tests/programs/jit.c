/* Code made and changed at run time, for the end-to-end tests: in a page that is writable and
 * executable all the time, in one that is switched by mprotect, and through a second, writable
 * mapping of the same memory; code that changes itself; code at odd
 * addresses under EFLAGS.AC; and code that is unmapped and mapped
 * elsewhere. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int fn(int);

/* lea eax, [rdi + imm]; ret */
static void emit(uint8_t *p, int imm)
{
	p[0] = 0x8d;
	p[1] = 0x87;
	memcpy(p + 2, &imm, 4);
	p[6] = 0xc3;
}

int main(void)
{
	long sum = 0;
	uint8_t *rwx = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 300; i++) {
		emit(rwx + 64 * (i % 7), i);
		for (int k = 0; k < 20; k++)
			sum += ((fn *)(rwx + 64 * (i % 7)))(k);
	}
	printf("rwx %ld\n", sum);

	uint8_t *wx = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 1500; i++) {
		mprotect(wx, 4096, PROT_READ | PROT_WRITE);
		emit(wx, 3 * i);
		mprotect(wx, 4096, PROT_READ | PROT_EXEC);
		for (int k = 0; k < 20; k++)
			sum += ((fn *)wx)(k);
	}
	printf("switched %ld\n", sum);

	int fd = memfd_create("code", 0);
	if (ftruncate(fd, 4096))
		return 1;
	uint8_t *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint8_t *x = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	for (int i = 0; i < 50; i++) {
		emit(w, 5 * i);
		sum += ((fn *)x)(i);
	}
	printf("two views %ld\n", sum);

	/* a function that patches its own next instruction:
	 *   mov [rip+1], edi ; writes the immediate of the next one
	 *   mov eax, imm32; ret */
	static const uint8_t self[] = { 0x89, 0x3d, 0x01, 0, 0, 0, 0xb8, 0, 0, 0, 0, 0xc3 };
	memcpy(rwx + 4096, self, sizeof(self));
	for (int i = 0; i < 50; i++)
		sum += ((fn *)(rwx + 4096))(i * 7);
	printf("itself %ld\n", sum);

	/* flags that are of no use to what comes next, until that is something else:
	 *   cmp edi, 3; jmp to 64, where it says: add edi, edi; lea eax, [rdi]; ret, or
	 *   sete al; movzx eax, al; ret */
	memcpy(rwx, "\x83\xff\x03\xe9\x38\0\0\0", 8);
	for (int i = 0; i < 12; i++) {
		memcpy(rwx + 64,
		       i & 1 ? "\x0f\x94\xc0\x0f\xb6\xc0\xc3" : "\x01\xff\x8d\x07\xc3\xc3\xc3", 7);
		for (int k = 3; k < 5; k++)
			sum = sum * 3 + ((fn *)rwx)(k);
	}
	printf("flags %ld\n", sum);

	/* code at odd addresses, with EFLAGS.AC: what is not aligned faults, which code is not:
	 *   lea eax, [rdi+imm8]; ret */
	for (int i = 0; i < 30; i++) {
		uint8_t *odd = rwx + 512 + i;
		int got;
		memcpy(odd, "\x8d\x47\x01\x90\x90\x90\x90\x90\x90\xc3", 10);
		odd[2] = (uint8_t)i;
		__asm__ volatile("pushfq; orl $0x40000, (%%rsp); popfq; call *%2; "
				 "pushfq; andl $~0x40000, (%%rsp); popfq"
				 : "=a"(got)
				 : "D"(i), "r"(odd)
				 : "memory", "cc");
		sum += got;
	}
	printf("aligned %ld\n", sum);

	munmap(wx, 4096);
	for (int i = 0; i < 5; i++) {
		uint8_t *n = mmap(wx, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		emit(n, 1000 * i);
		sum += ((fn *)n)(i);
		munmap(n, 4096);
	}
	printf("mapped again %ld\n", sum);

	for (int i = 0; i < 3; i++) {
		void *h = dlopen("libm.so.6", RTLD_NOW);
		double (*f)(double) = h ? (double (*)(double))dlsym(h, "cbrt") : NULL;
		if (f)
			printf("cbrt %.6f\n", f(27.0 + i));
		if (h)
			dlclose(h);
	}
	return 0;
}
