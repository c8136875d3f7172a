// Threads of Java, for the end-to-end tests: a pool, monitors, garbage to collect, loops that get
// compiled. Prints the same every time.
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.stream.*;

public class Threads {
	static long shared;

	static synchronized void add(long n) {
		shared += n;
	}

	static int hot(int n) {
		int s = 0;
		for (int i = 0; i < n; i++)
			s = s * 31 + (i ^ (s >>> 3));
		return s;
	}

	public static void main(String[] args) throws Exception {
		List<Thread> threads = new ArrayList<>();
		AtomicLong atomic = new AtomicLong();
		for (int t = 0; t < 4; t++) {
			final int me = t;
			Thread thread = new Thread(() -> {
				for (int i = 0; i < 1000; i++) {
					add(me);
					atomic.addAndGet(hot(50 + i % 7));
				}
			}, "worker-" + t);
			threads.add(thread);
			thread.start();
		}
		for (Thread t : threads)
			t.join();
		System.out.println("threads " + shared + " " + atomic.get());

		ExecutorService pool = Executors.newFixedThreadPool(3);
		List<Future<Integer>> results = new ArrayList<>();
		for (int i = 0; i < 100; i++) {
			final int n = i;
			results.add(pool.submit(() -> {
				Map<String, byte[]> garbage = new HashMap<>();
				for (int k = 0; k < 100; k++)
					garbage.put("k" + (k * n % 37), new byte[5000]);
				return garbage.size();
			}));
		}
		int sum = 0;
		for (Future<Integer> f : results)
			sum += f.get();
		pool.shutdown();
		System.out.println("pool " + sum + " " + pool.awaitTermination(60, TimeUnit.SECONDS));

		BlockingQueue<Integer> queue = new ArrayBlockingQueue<>(4);
		Thread producer = new Thread(() -> {
			try {
				for (int i = 0; i <= 500; i++)
					queue.put(i);
			} catch (InterruptedException e) {
			}
		});
		producer.start();
		long got = 0;
		for (int i = 0; i <= 500; i++)
			got += queue.take();
		System.out.println("queue " + got);
		System.out.println("stream " + IntStream.range(0, 20000).parallel().mapToLong(i -> hot(i % 50)).sum());
		int nulls = 0;
		for (int i = 0; i < 2000; i++) {
			try {
				String s = i % 3 == 0 ? null : "x";
				nulls += s.length() - 1;
			} catch (NullPointerException e) {
				nulls++;
			}
		}
		System.out.println("nulls " + nulls);
		System.gc();
		Thread sleeper = new Thread(() -> {
			try {
				Thread.sleep(60000);
			} catch (InterruptedException e) {
				System.out.println("interrupted");
			}
		});
		sleeper.start();
		sleeper.interrupt();
		sleeper.join();
		System.exit(4);
	}
}
