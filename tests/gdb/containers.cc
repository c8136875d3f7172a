// A container, which gdb prints with the C++ library's own scripts.
#include <string>
#include <vector>

__attribute__((noinline)) int use(const std::vector<std::string> &words)
{
	return words.size() == 2 ? 7 : 1;
}

int main()
{
	std::vector<std::string> words = {"time", "travel"};
	return use(words);
}
