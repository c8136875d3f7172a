"""What system calls cost that change the address space or the process: native and recorded runs of
src/calls.c take turns, and the medians count."""

import os
import statistics
import subprocess

from inputs import source
from measure import Failed

# kind, what a round of it is, rounds, what recording may cost: times the native cost, microseconds
KINDS = [
    ("pair", "anonymous mmap and munmap", 4000, 5, None),
    ("touched", "the same, with a page touched", 2000, 5, None),
    ("brk", "brk", 4000, 5, None),
    ("mprotect", "mprotect of data", 4000, 5, None),
    ("mremap", "mremap", 4000, 5, None),
    ("many", "mmap, 45000 mappings", 3000, 5, None),
    ("file", "mmap of a file", 200, None, 50),
    ("code", "mprotect of code", 200, None, 50),
    ("wx", "protect, write, protect, call", 200, 20, None),
    ("exec", "exec", 20, None, 30000),
]


def build(directory):
    program = os.path.join(directory, "calls")
    subprocess.run(["gcc", "-O1", "-o", program, source("calls.c")], check=True)
    return program


def nanoseconds(argv, directory):
    done = subprocess.run(argv, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=300)
    if done.returncode or not done.stdout.strip().isdigit():
        raise Failed("%s: status %d: %s" % (" ".join(argv), done.returncode, done.stderr[-300:]))
    return int(done.stdout)


def measure(deja, directory, pairs):
    """Print the table; true if all is within its limit."""
    program, good = build(directory), True
    trace = os.path.join(directory, "calls.deja")
    form = "%-32s %12s %12s %9s  %s"
    print(form % ("a round of", "native us", "recorded us", "ratio", "limit"))
    for kind, text, rounds, ratio_limit, limit in KINDS:
        argv = [program, kind, str(rounds)]
        native, recorded = [], []
        for _ in range(pairs):
            native.append(nanoseconds(argv, directory))
            recorded.append(nanoseconds([deja, "record", "-o", trace, "--"] + argv, directory))
        ratio = statistics.median(r / n for n, r in zip(native, recorded))
        microseconds = statistics.median(recorded) / 1000
        met = ratio <= ratio_limit if ratio_limit else microseconds <= limit
        good &= met
        print(form % (text, "%.2f" % (statistics.median(native) / 1000), "%.2f" % microseconds,
                      "%.1fx" % ratio,
                      ("%dx" % ratio_limit if ratio_limit else "%d us" % limit) +
                      ("" if met else ": missed")), flush=True)
    os.unlink(trace)
    return good
