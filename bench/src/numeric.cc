/*
 * C++ numbers: bodies under gravity, a sparse matrix in std::map, a sort with a comparator and
 * exceptions now and then. Argument: rounds.
 */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct Body {
	double x[3], v[3], mass;
};

static void step(std::vector<Body> &bodies, double dt)
{
	for (size_t i = 0; i < bodies.size(); i++)
		for (size_t j = i + 1; j < bodies.size(); j++) {
			double d[3], r2 = 1e-9;
			for (int k = 0; k < 3; k++) {
				d[k] = bodies[i].x[k] - bodies[j].x[k];
				r2 += d[k] * d[k];
			}
			double f = dt / (r2 * std::sqrt(r2));
			for (int k = 0; k < 3; k++) {
				bodies[i].v[k] -= d[k] * bodies[j].mass * f;
				bodies[j].v[k] += d[k] * bodies[i].mass * f;
			}
		}
	for (auto &b : bodies)
		for (int k = 0; k < 3; k++)
			b.x[k] += dt * b.v[k];
}

static double sparse(unsigned seed)
{
	std::map<std::pair<int, int>, double> m;
	std::vector<std::string> names;
	for (int i = 0; i < 200; i++) {
		seed = seed * 1664525u + 1013904223u;
		m[{(int)(seed >> 24), (int)(seed >> 16 & 255)}] += seed * 1e-9;
		names.push_back("n" + std::to_string(seed % 1000));
	}
	std::sort(names.begin(), names.end());
	double sum = 0;
	for (auto &[at, x] : m) {
		if (at.first > 253)
			throw std::out_of_range(names.front());
		sum += x * at.second;
	}
	return sum;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1, thrown = 0;
	std::vector<Body> bodies;
	for (int i = 0; i < 8; i++)
		bodies.push_back({{std::cos(i), std::sin(i * 2), i * .5}, {.01 * i, 0, -.01 * i}, 1. / (1 + i)});
	double sum = 0;
	for (long r = 0; r < rounds; r++) {
		for (int i = 0; i < 200; i++)
			step(bodies, 1e-4);
		try {
			sum += sparse((unsigned)r);
		} catch (const std::out_of_range &e) {
			thrown += e.what()[0] == 'n';
		}
	}
	printf("%.9f %.9f %ld\n", bodies[0].x[0], sum, thrown);
}
