/*
 * Two of these at a time execute new code by turns: a function each, then it is the other's turn.
 *
 * usage: turns FIRST [alone]	(the functions FIRST, FIRST + 2...; without `alone` it reads a byte
 *				before each of them and writes one behind it)
 */
#include <stdlib.h>
#include <unistd.h>

static volatile int sum;

/* clang-format off */
#define S(bit) if (sum & bit) sum = sum * 5 + bit;
#define F(n) static __attribute__((noinline)) void f##n(void) { \
	sum += n; S(1) S(2) S(4) S(8) S(16) S(32) S(64) S(128) S(256) S(512) S(1024) S(2048) }
#define F8(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)
#define F64(n) F8(n##0) F8(n##1) F8(n##2) F8(n##3) F8(n##4) F8(n##5) F8(n##6) F8(n##7)
#define N(n) f##n,
#define N8(n) N(n##0) N(n##1) N(n##2) N(n##3) N(n##4) N(n##5) N(n##6) N(n##7)
#define N64(n) N8(n##0) N8(n##1) N8(n##2) N8(n##3) N8(n##4) N8(n##5) N8(n##6) N8(n##7)
F64(1) F64(2) F64(3) F64(4) F64(5) F64(6) F64(7)
static void (*const function[])(void) = { N64(1) N64(2) N64(3) N64(4) N64(5) N64(6) N64(7) };
/* clang-format on */

int main(int argc, char **argv)
{
	char byte = 0;
	size_t first = argc > 1 ? (size_t)atoi(argv[1]) : 0;
	for (size_t i = first; i < sizeof(function) / sizeof(*function); i += 2) {
		if (argc < 3 && read(0, &byte, 1) != 1)
			return 1;
		function[i]();
		if (argc < 3 && write(1, &byte, 1) != 1)
			return 1;
	}
	return 0;
}
