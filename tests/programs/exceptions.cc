// Exceptions through several frames, with destructors, rethrown and by type; containers and
// streams besides.
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

static int alive;

struct guard {
	guard() { alive++; }
	~guard() { alive--; }
};

struct special : std::runtime_error {
	int code;
	special(int c) : std::runtime_error("special " + std::to_string(c)), code(c) {}
};

static int deep(int n, int k)
{
	guard g;
	if (n > 0)
		return deep(n - 1, k) + 1;
	switch (k % 4) {
	case 0: throw special(k);
	case 1: throw std::out_of_range("range " + std::to_string(k));
	case 2: throw k;
	}
	return 0;
}

static std::string once(int k)
{
	try {
		try {
			return "returned " + std::to_string(deep(k % 9, k));
		} catch (const special &e) {
			if (e.code % 8)
				throw;
			return e.what();
		}
	} catch (const std::exception &e) {
		return std::string("caught ") + e.what();
	} catch (int i) {
		return "int " + std::to_string(i);
	}
}

int main()
{
	std::map<std::string, int> seen;
	std::vector<std::unique_ptr<std::string>> all;
	for (int k = 0; k < 2000; k++) {
		all.push_back(std::make_unique<std::string>(once(k)));
		seen[all.back()->substr(0, 6)]++;
	}
	std::ostringstream out;
	for (const auto &[name, count] : seen)
		out << name << ' ' << count << '\n';
	out << "alive " << alive << ", last " << *all.back() << ", " << 22.0 / 7 << '\n';
	std::cout << out.str();
	return alive;
}
