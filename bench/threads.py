"""What several threads, servers and builds cost: native and recorded runs take turns, medians count."""

import os
import shutil
import statistics
import subprocess
import sys
import time

from inputs import SOURCES, source
from measure import Failed

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = os.path.join(HERE, "..", "tests", "programs", "server.py")


def wall(argv, directory, environment=None):
    """Seconds of a command that must end well."""
    began = time.monotonic()
    done = subprocess.run(argv, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=600,
                          env=dict(os.environ, **(environment or {})))
    if done.returncode:
        raise Failed("%s: status %d: %s" % (" ".join(argv), done.returncode, done.stderr[-300:]))
    return time.monotonic() - began, done.stdout


class Threads:
    def __init__(self, deja, directory, pairs):
        self.directory, self.pairs = directory, pairs
        self.trace = os.path.join(directory, "threads.deja")
        self.record = [deja, "record", "-o", self.trace, "--"]

    def alternate(self, first, second):
        """Medians of two ways to take the time of something, and of their ratio."""
        a, b = [], []
        for _ in range(self.pairs):
            a.append(first())
            b.append(second())
        return statistics.median(a), statistics.median(b), statistics.median(y / x for x, y in zip(a, b))

    def program(self):
        path = os.path.join(self.directory, "threads")
        subprocess.run(["gcc", "-O1", "-o", path, source("threads.c"), "-lpthread"], check=True)
        return path

    def seconds(self, argv):
        return int(wall(argv, self.directory)[1]) / 1e9

    def parallel(self):
        """Recorded on two processors, and the same on one."""
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2 or not shutil.which("taskset"):
            return None
        argv = self.record + [self.program(), "cpu", "600000000"]
        return self.alternate(lambda: self.seconds(["taskset", "-c", str(cpus[0])] + argv),
                              lambda: self.seconds(["taskset", "-c", "%d,%d" % tuple(cpus[:2])] + argv))

    def mutex(self):
        argv = [self.program(), "mutex", "2000000"]
        return self.alternate(lambda: self.seconds(argv), lambda: self.seconds(self.record + argv))

    def server(self, kind, package, requests):
        if not shutil.which(package, path="/usr/sbin:/usr/bin"):
            return None
        took = os.path.join(self.directory, "seconds")

        def load(record):
            wall([sys.executable, SERVER, kind, str(requests)], self.directory,
                 {"RECORD": " ".join(record), "SERVER_SECONDS": took})
            with open(took) as f:
                return float(f.read())
        return self.alternate(lambda: load([]), lambda: load(self.record))

    def build(self, warm):
        """make -j2 of a C project of some files: nothing is kept from earlier, or all is."""
        if not shutil.which("make"):
            return None
        top = os.path.join(self.directory, "project")
        shutil.rmtree(top, ignore_errors=True)
        os.mkdir(top)
        names = ["u%d" % i for i in range(12)]
        for name in names:
            with open(os.path.join(top, name + ".c"), "w") as f:
                f.write("".join("#include <%s.h>\n" % h for h in ("ctype", "math", "stddef", "stdio", "stdlib",
                                                                  "string")))
                for i in range(6):
                    f.write("#undef U\n#define U(x) x##_%s_%d\n#include \"unit.h\"\n" % (name, i))
        with open(os.path.join(top, "main.c"), "w") as f:
            f.write("int main(void) { return 0; }\n")
        with open(os.path.join(top, "Makefile"), "w") as f:
            f.write("prog: main.o %s\n\tgcc -o $@ $^ -lm\n%%.o: %%.c\n\tgcc -O2 -I%s -c -o $@ $<\n"
                    % (" ".join(n + ".o" for n in names), SOURCES))

        def make(record):
            for name in os.listdir(top):
                if name.endswith(".o") or name == "prog":
                    os.unlink(os.path.join(top, name))
            return wall(record + ["make", "-s", "-j2", "-C", top], self.directory, {"XDG_CACHE_HOME": kept})[0]

        def recorded():
            if not warm:
                shutil.rmtree(kept, ignore_errors=True)
                os.mkdir(kept)
            return make(self.record)
        kept = os.path.join(self.directory, "kept-of-build")
        os.makedirs(kept, exist_ok=True)
        if warm:
            make(self.record)
        return self.alternate(lambda: make([]), recorded)


def measure(deja, directory, pairs):
    """Print the table; true if all is within its limit."""
    b, good = Threads(deja, directory, pairs), True
    form = "%-46s %10s %10s %8s  %s"
    print(form % ("", "s before", "s after", "ratio", "limit"))
    for text, limit, what in [
            ("two threads recorded: on one processor, on two", 0.6, b.parallel),
            ("a lock of two threads: native, recorded", 5, b.mutex),
            ("redis, the load: native, recorded", 5, lambda: b.server("redis", "redis-server", 20000)),
            ("memcached, the load: native, recorded", 5, lambda: b.server("memcached", "memcached", 12000)),
            ("make -j2, nothing kept: native, recorded", 6, lambda: b.build(False)),
            ("make -j2, as again: native, recorded", 6, lambda: b.build(True))]:
        try:
            found = what()
        except (Failed, subprocess.SubprocessError, OSError) as e:
            print("%s: %s" % (text, e), flush=True)
            good = False
            continue
        if not found:
            print(form % (text, "-", "-", "-", "not here"), flush=True)
            continue
        met = found[2] <= limit
        good &= met
        print(form % (text, "%.2f" % found[0], "%.2f" % found[1], "%.2fx" % found[2],
                      "%.1fx" % limit + ("" if met else ": missed")), flush=True)
    if os.path.exists(b.trace):
        os.unlink(b.trace)
    return good
