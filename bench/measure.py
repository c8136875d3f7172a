"""Running one program: natively, recorded, verified, under valgrind and under gdb.

Wall-clock time decides; the processor time of the process tree stands beside it, because it
says the same on a busy machine. Nothing here draws conclusions: see report.py.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time


class Failed(Exception):
    """A run went wrong; the text has the command."""


def shell_text(argv):
    text = " ".join(a if re.fullmatch(r"[\w@%+=:,./-]+", a) else "'%s'" % a for a in argv)
    return text if len(text) < 400 else text[:400] + "..."


class Run:
    """What one finished process tree used."""

    def __init__(self, wall, rusage, status, output, errors):
        self.wall = wall
        self.cpu = rusage.ru_utime + rusage.ru_stime
        self.status = status
        self.output = output  # SHA-256 of stdout
        self.errors = errors


def own_peak(pid):
    """Peak resident set of a process since its exec (what wait4 says includes our own at the fork)."""
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


class Sampler(threading.Thread):
    """Peak memory: `alone` is the resident set of the process itself, `peak` the proportional set
    sizes of it and its descendants, added up.

    A page that two of them map counts once altogether, half for each. A page also mapped
    by a stranger (a common library) counts in part only: a few megabytes too little.
    """

    def __init__(self, pid, interval=0.1):
        super().__init__(daemon=True)
        self.pid = pid
        self.interval = interval
        self.peak = 0
        self.alone = 0
        self.by_name = {}
        self.stopped = threading.Event()

    @staticmethod
    def _pss(pid):
        with open("/proc/%d/smaps_rollup" % pid) as f:
            for line in f:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) << 10
        return 0

    def _family(self):
        todo, found = [self.pid], []
        while todo:
            pid = todo.pop()
            found.append(pid)
            try:
                for task in os.listdir("/proc/%d/task" % pid):
                    with open("/proc/%d/task/%s/children" % (pid, task)) as f:
                        todo += [int(p) for p in f.read().split()]
            except OSError:
                pass
        return found

    def run(self):
        while not self.stopped.wait(self.interval):
            sizes = {}
            try:
                self.alone = max(self.alone, own_peak(self.pid))
            except OSError:
                pass
            for pid in self._family():
                try:
                    with open("/proc/%d/comm" % pid) as f:
                        name = f.read().strip()
                    sizes[name] = sizes.get(name, 0) + self._pss(pid)
                except OSError:
                    pass
            if sum(sizes.values()) > self.peak:
                self.peak = sum(sizes.values())
                self.by_name = sizes


def one_processor():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def run(argv, directory, environment=None, sample=False, timeout=1200, check=True, alone=False):
    """Run to the end and return a Run (and the Sampler). stdin is empty, stdout is a file. `alone`:
    on one processor."""
    out, err = os.path.join(directory, "stdout"), os.path.join(directory, "stderr")
    env = dict(os.environ, LC_ALL="C", **(environment or {}))
    with open(out, "wb") as o, open(err, "wb") as e:
        start = time.monotonic()
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=o, stderr=e, env=env,
                                 start_new_session=True,
                                 preexec_fn=one_processor if alone else None)
        sampler = Sampler(child.pid) if sample else None
        if sampler:
            sampler.start()
        expired = []

        def expire():
            expired.append(True)
            os.killpg(child.pid, signal.SIGKILL)
        watch = threading.Timer(timeout, expire)
        watch.start()
        try:
            _, status, rusage = os.wait4(child.pid, 0)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
        finally:
            watch.cancel()
        wall = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if sampler:
            sampler.stopped.set()
            sampler.join()
    digest = hashlib.sha256()
    with open(out, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            digest.update(block)
    with open(err, errors="replace") as f:
        errors = f.read()
    result = Run(wall, rusage, child.returncode, digest.hexdigest(), errors)
    if expired:
        raise Failed("more than %d s: %s" % (timeout, shell_text(argv)))
    if check and child.returncode != 0:
        raise Failed("status %d: %s%s" % (child.returncode, shell_text(argv),
                                          "\n    " + errors.strip()[-300:] if errors.strip() else ""))
    return (result, sampler) if sample else result


class Deja:
    """The program under measurement, and one trace file that every recording overwrites."""

    def __init__(self, path, directory):
        self.path = path
        self.directory = directory
        self.trace = os.path.join(directory, "bench.deja")

    def record(self, argv, environment=None, sample=False, options=()):
        if os.path.exists(self.trace):
            os.unlink(self.trace)
        return run([self.path, "record", *options, "-o", self.trace, "--", *argv], self.directory,
                   environment, sample)

    def info(self):
        done = subprocess.run([self.path, "info", "--json", self.trace], stdout=subprocess.PIPE)
        if done.returncode != 0:
            raise Failed("status %d: deja info --json" % done.returncode)
        return json.loads(done.stdout)

    def verify(self, alone):
        """The Run; `alone`: on one processor."""
        done = run([self.path, "verify", self.trace], self.directory, check=False, alone=alone)
        with open(os.path.join(self.directory, "stdout")) as f:
            text = f.read()
        if done.status != 0:
            raise Failed("deja verify: status %d: %s" % (done.status, (text + done.errors).strip()[-300:]))
        return done

    def index(self):
        """Make the index anew, and remove it: the Run, and its size in bytes."""
        name = self.trace + ".index"
        if os.path.exists(name):
            os.unlink(name)
        done = run([self.path, "index", self.trace], self.directory)
        size = os.path.getsize(name)
        os.unlink(name)
        return done, size


def record_statistics(text):
    """The numbers `deja record -v` leaves on stderr: "322 stops, 71 executed natively, ...". """
    found = {}
    for number, what in re.findall(r"(\d+) ([a-z ]+?)(?= into|,|\n|$)", text):
        found[what] = int(number)
    return found


def valgrind(argv, directory, environment):
    """Wall seconds under valgrind --tool=none; None if it is not installed or fails."""
    if not shutil.which("valgrind"):
        return None
    try:
        return run(["valgrind", "--tool=none", "-q", *argv], directory, environment)
    except Failed:
        return None


def gdb_record(argv, directory, environment, steps=20000):
    """Instructions per second of gdb's `record full` from the program's first instruction.

    gdb cannot record AVX nor XSAVE, so glibc is told to leave both alone.
    """
    if not shutil.which("gdb"):
        return None
    commands = ["set confirm off", "set pagination off", "set debuginfod enabled off",
                "set startup-with-shell off",
                "set environment LD_BIND_NOW 1",
                "set environment GLIBC_TUNABLES glibc.cpu.hwcaps="
                "-AVX512F,-AVX512VL,-AVX2,-AVX,-XSAVE,-XSAVEC,-ERMS",
                "starti", "record full", "set record full insn-number-max unlimited",
                "shell date +BEGAN=%s.%N", "stepi %d" % steps, "shell date +ENDED=%s.%N", "info record",
                "kill"]
    full = ["gdb", "-nx", "-batch"]
    for c in commands:
        full += ["-ex", c]
    try:
        run(full + ["--args", *argv], directory, environment, timeout=120, check=False)
    except Failed:
        return None
    with open(os.path.join(directory, "stdout"), errors="replace") as f:
        text = f.read()
    began = re.search(r"BEGAN=([\d.]+)", text)
    ended = re.search(r"ENDED=([\d.]+)", text)
    log = re.search(r"Log contains (\d+) instructions", text)
    if not (began and ended and log):
        return None
    return int(log.group(1)) / (float(ended.group(1)) - float(began.group(1)))
