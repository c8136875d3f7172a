// Threads as C++ programs use them, for the end-to-end tests: exceptions that cross threads, futures,
// atomics of all orders, thread_local objects, once, shared locks. Prints what is the same every run.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<long> built, gone;
struct Counted {
	long value = 0;
	Counted() { built++; }
	~Counted() { gone++; }
};
static thread_local Counted counted;
static thread_local std::string name = "none";

static long depth(int n)
{
	Counted c;
	if (n == 0)
		throw std::runtime_error("bottom");
	return depth(n - 1) + 1;
}

static long exceptions(int id)
{
	long caught = 0;
	for (int i = 0; i < 60; i++) {
		try {
			depth((id + i) % 20);
		} catch (const std::exception &e) {
			caught += e.what()[0] == 'b';
		}
		try {
			(void)std::stoi(i % 2 ? "12" : "x");
		} catch (const std::invalid_argument &) {
			caught++;
		}
	}
	return caught;
}

template <class F> static long together(int n, F f)
{
	std::vector<std::thread> threads;
	std::atomic<long> sum{0};
	for (int i = 0; i < n; i++)
		threads.emplace_back([&, i] { sum += f(i); });
	for (auto &t : threads)
		t.join();
	return sum;
}

class Pool {
	std::vector<std::thread> threads;
	std::queue<std::packaged_task<long()>> tasks;
	std::mutex m;
	std::condition_variable more;
	bool closed = false;

	void work()
	{
		for (;;) {
			std::unique_lock<std::mutex> l(m);
			more.wait(l, [&] { return closed || !tasks.empty(); });
			if (tasks.empty())
				return;
			auto t = std::move(tasks.front());
			tasks.pop();
			l.unlock();
			t();
		}
	}

      public:
	explicit Pool(int n)
	{
		for (int i = 0; i < n; i++)
			threads.emplace_back(&Pool::work, this);
	}
	std::future<long> add(std::function<long()> f)
	{
		std::packaged_task<long()> t(f);
		auto result = t.get_future();
		std::lock_guard<std::mutex> l(m);
		tasks.push(std::move(t));
		more.notify_one();
		return result;
	}
	~Pool()
	{
		{
			std::lock_guard<std::mutex> l(m);
			closed = true;
		}
		more.notify_all();
		for (auto &t : threads)
			t.join();
	}
};

int main()
{
	std::printf("exceptions %ld\n", together(4, exceptions));

	std::printf("thread_local %ld\n", together(6, [](int i) {
		counted.value += i;
		name += std::to_string(i);
		return counted.value * 100 + long(name.size());
	}));

	// An exception made in one thread and caught in another.
	long crossed = 0;
	for (int i = 0; i < 20; i++) {
		auto f = std::async(std::launch::async, [i] { return i % 2 ? depth(i) : 5L; });
		try {
			crossed += f.get();
		} catch (const std::runtime_error &e) {
			crossed += 1000;
		}
	}
	std::printf("async %ld\n", crossed);

	long sum = 0;
	{
		Pool pool(3);
		std::vector<std::future<long>> results;
		for (int i = 0; i < 300; i++)
			results.push_back(pool.add([i] {
				std::map<int, std::string> m;
				for (int k = 0; k < 20; k++)
					m[k * i % 17] += char('a' + k);
				long n = 0;
				for (auto &e : m)
					n += e.first * long(e.second.size());
				return n;
			}));
		for (auto &r : results)
			sum += r.get();
	}
	std::printf("pool %ld\n", sum);

	// A reference count that goes through many hands.
	auto object = std::make_shared<Counted>();
	long before = gone;
	std::printf("shared_ptr %ld\n", together(4, [object](int) {
		for (int i = 0; i < 2000; i++) {
			auto copy = object;
			std::weak_ptr<Counted> weak = copy;
			if (!weak.lock())
				return 0L;
		}
		return 1L;
	}));
	std::printf("destroyed early %d\n", gone - before > 4); // four thread_local ones at most
	object.reset();

	// Message passing by release and acquire, and by a fence.
	long data = 0, seen = 0;
	std::atomic<long> flag{0};
	std::thread producer([&] {
		for (long i = 1; i <= 3000; i++) {
			data = i * 3;
#ifdef __SANITIZE_THREAD__ // does not understand fences
			if (true)
#else
			if (i % 2)
#endif
				flag.store(i, std::memory_order_release);
			else {
				std::atomic_thread_fence(std::memory_order_seq_cst);
				flag.store(i, std::memory_order_relaxed);
			}
			while (flag.load(std::memory_order_acquire) == i)
				std::this_thread::yield();
		}
	});
	for (long i = 1; i <= 3000; i++) {
		while (flag.load(std::memory_order_acquire) != i)
			std::this_thread::yield();
		seen += data == i * 3;
		flag.store(-i, std::memory_order_release);
	}
	producer.join();
	std::printf("messages %ld\n", seen);

	std::once_flag once;
	std::shared_mutex both;
	long calls = 0, written = 0;
	std::printf("shared %ld\n", together(4, [&](int i) {
		long ok = 0;
		std::call_once(once, [&] { calls++; });
		for (int k = 0; k < 300; k++) {
			if ((k + i) % 10 == 0) {
				std::unique_lock<std::shared_mutex> l(both);
				written++;
			} else {
				std::shared_lock<std::shared_mutex> l(both);
				ok += written >= 0 && calls == 1;
			}
		}
		return ok;
	}));
	std::printf("written %ld\n", written);
	std::printf("built %ld gone %ld\n", long(built), long(gone) + 0 * counted.value);
	// Out of a thread by an exception that nobody catches: terminate.
	std::set_terminate([] {
		std::puts("terminate");
		std::fflush(stdout);
		std::_Exit(3);
	});
	std::thread([] { throw 1; }).join();
}
