// Stacks for tests/cli/backtrace.sh: recursion, callbacks from a library, a signal's handler, an
// exception on its way, an abort.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdexcept>
#include <algorithm>
#include <map>
#include <string>
namespace shop
{
struct Item {
	std::string name;
	int price;
};
static int cmp(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}
template <class T> __attribute__((noinline)) int total(const std::map<std::string, T> &m, int depth)
{
	if (depth)
		return total(m, depth - 1) + 1;
	int s = 0;
	for (auto &i : m)
		s += i.second.price;
	if (s > 1000)
		throw std::runtime_error("dear");
	return s;
}
} // namespace shop
static volatile int seen;
static void handler(int)
{
	char b[40];
	snprintf(b, sizeof b, "%d", seen);
	seen += atoi(b) + 1;
}
int main()
{
	std::map<std::string, shop::Item> m;
	signal(SIGUSR1, handler);
	int sum = 0;
	for (int i = 0; i < 40; i++) {
		m[std::to_string(i)] = { "x" + std::to_string(i), i };
		int v[16];
		for (int k = 0; k < 16; k++)
			v[k] = rand();
		qsort(v, 16, sizeof *v, shop::cmp);
		std::sort(v, v + 16, [](int a, int b) { return a > b; });
		if (i % 8 == 0)
			raise(SIGUSR1);
		try {
			sum += shop::total(m, i % 7);
		} catch (std::exception &e) {
			sum += strlen(e.what());
		}
	}
	printf("%d %d\n", sum, seen);
	if (sum)
		abort();
}
