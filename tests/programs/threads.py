# Threads, processes and futures of Python, for the end-to-end tests. Prints the same every time.
import concurrent.futures
import hashlib
import multiprocessing
import queue
import subprocess
import sys
import threading


def work(n):
    h = hashlib.sha256(b"%d" % n)
    for _ in range(200):
        h.update(h.digest())
    return int.from_bytes(h.digest()[:4], "big")


def threads():
    q, results, lock = queue.Queue(5), [], threading.Lock()

    def worker():
        while (n := q.get()) is not None:
            r = work(n)
            with lock:
                results.append(r)
    ts = [threading.Thread(target=worker) for _ in range(4)]
    for t in ts:
        t.start()
    for n in range(200):
        q.put(n)
    for _ in ts:
        q.put(None)
    for t in ts:
        t.join()
    print("threads", sum(results), len(results))
    local, event, barrier = threading.local(), threading.Event(), threading.Barrier(3)
    seen = []

    def meet(i):
        local.x = i
        event.wait()
        for _ in range(20):
            barrier.wait()
        seen.append(local.x)
    ts = [threading.Thread(target=meet, args=(i,)) for i in range(3)]
    for t in ts:
        t.start()
    event.set()
    for t in ts:
        t.join()
    print("met", sorted(seen))
    timer = threading.Timer(0.01, lambda: print("timer", flush=True))
    timer.start()
    timer.join()


def futures():
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        print("pool", sum(pool.map(work, range(150))))
        f = pool.submit(lambda: 1 // 0)
        print("raised", type(f.exception()).__name__)
        runs = list(pool.map(lambda i: subprocess.run(["sh", "-c", "exit %d" % i]).returncode, range(6)))
        print("children", runs)


def child(pipe, value):
    while (n := pipe.recv()) is not None:
        with value.get_lock():
            value.value += n
        pipe.send(work(n))


def processes(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        print(method, sum(pool.map(work, range(60), chunksize=7)))
    ours, theirs = context.Pipe()
    value = context.Value("l", 0)
    p = context.Process(target=child, args=(theirs, value))
    p.start()
    total = 0
    for n in range(50):
        ours.send(n)
        total += ours.recv()
    ours.send(None)
    p.join()
    print(method, total, value.value, p.exitcode)
    if method == "fork":
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            print("process pool", sum(pool.map(work, range(40))))


if __name__ == "__main__":
    for what in sys.argv[1:]:
        processes(what) if what in ("fork", "spawn", "forkserver") else globals()[what]()
