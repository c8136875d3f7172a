/* Code made at run time, with names in the file that perf reads: made_one calls made_two twice.
 * Prints its process id. With an argument the names are not those of the code. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int function(int);

int main(int argc, char **argv)
{
	/* call two; mov edi, eax; call two; ret; ...; lea eax, [rdi + 1]; ret */
	static const unsigned char one[] = { 0xe8, 0x3b, 0, 0, 0, 0x89, 0xc7,
					     0xe8, 0x34, 0, 0, 0, 0xc3 };
	static const unsigned char two[] = { 0x8d, 0x47, 1, 0xc3 };
	unsigned char *code =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char name[64];
	int sum = 0;

	(void)argv;
	memcpy(code, one, sizeof(one));
	memcpy(code + 64, two, sizeof(two));
	mprotect(code, 4096, PROT_READ | PROT_EXEC);
	snprintf(name, sizeof(name), "/tmp/perf-%d.map", getpid());
	FILE *f = fopen(name, "w");
	if (!f)
		return 1;
	fprintf(f, "%lx 80 what_was_there_before\n", (unsigned long)code);
	fprintf(f, "no line of that kind\n\n12345 zz\nffffffffffffffff 10 beyond\n");
	fprintf(f, "%lx %zx made_one\n", (unsigned long)code, sizeof(one));
	fprintf(f, "%lx %zx made_two with blanks\n", (unsigned long)code + 64, sizeof(two));
	for (int i = 0; i < 100; i++) {
		function *made = (function *)code;
		sum += made(i);
	}
	if (argc > 1) /* what is read of it ends anywhere */
		fprintf(f, "%lx", (unsigned long)code);
	fclose(f);
	printf("%d\n", getpid());
	return sum != 4950 + 200;
}
