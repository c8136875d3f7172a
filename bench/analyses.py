"""What analyses cost: instructions a second of each, by processor time, on the programs of the bench.

A pass replays from the beginning, so what counts is a run of some length. The figures of the whole
commands count, tables of thousands of functions and their symbols included. Beside those of the analyses
stand `deja verify` in translated code and by the emulator alone.
"""

import math
import statistics

from inputs import Unavailable
from measure import Failed, run

QUESTIONS = (
    ("verify", ["verify"]),
    ("emulated", ["verify", "--emulate"]),
    ("profile", ["profile", "--limit", "1"]),
    ("edges", ["edges", "--limit", "1"]),
    ("both", ["profile", "--limit", "1", "--with", "edges --limit 1"]),
    ("stacks", ["stacks"]),
    ("accesses", ["accesses", "0x1000:8"]),
    ("calls", ["calls", "--limit", "1000", "malloc"]),
)

# What is asked of the geometric mean of some of them, in million instructions a second.
TARGETS = (
    ("profile and edges in one pass", "both", 500),
    ("accesses to one place", "accesses", 200),
    ("calls of one function", "calls", 200),
)


def speed(bench, words, instructions):
    done = [run([bench.deja.path, *words, bench.deja.trace], bench.directory, check=False) for _ in range(2)]
    if any(d.status for d in done):  # a function that the program has not got, say
        return None
    return instructions / min(d.cpu for d in done)


def measure_program(bench, program, wanted):
    units = bench.calibrate(program)
    bench.deja.record(program.argv(bench.inputs, units), program.environment)
    short = max(1, int(units * min(1, wanted / bench.deja.info()["instructions"])))
    bench.deja.record(program.argv(bench.inputs, short), program.environment)
    instructions = bench.deja.info()["instructions"]
    return instructions, [speed(bench, words, instructions) for _, words in QUESTIONS]


def mean(rows, i):
    values = [math.log(r[i]) for r in rows if r[i]]
    return math.exp(statistics.mean(values)) / 1e6 if values else 0


def verdicts(rows):
    for what, name, wanted in TARGETS:
        measured = mean(rows, [n for n, _ in QUESTIONS].index(name))
        print("%-7s %s, million instructions a second, geometric mean, at least %d: %.1f" %
              ("met" if measured >= wanted else "MISSED", what, wanted, measured))


def cells(values):
    return "".join("%10s" % ("-" if v is None else "%.1f" % (v / 1e6)) for v in values)


def measure(bench, programs, wanted):
    """Print the table; true if all could be measured."""
    print("million instructions a second of processor time\n")
    print("%-12s %8s" % ("program", "10^6") + "".join("%10s" % name for name, _ in QUESTIONS))
    rows, good = [], True
    for program in programs:
        try:
            instructions, speeds = measure_program(bench, program, wanted)
        except (Failed, Unavailable) as e:
            print("%-12s %s" % (program.name, e))
            good &= isinstance(e, Unavailable)
            continue
        rows.append(speeds)
        print("%-12s %8.0f" % (program.name, instructions / 1e6) +
              cells(speeds), flush=True)
    if rows:
        print("%-12s %8s" % ("mean", "") + cells(1e6 * mean(rows, i) for i in range(len(QUESTIONS))))
        print()
        verdicts(rows)
    return good
