"""How long a debugger waits: moves in a long recording (src/seek.c), by processor time, and gdb's own
commands in a recording against gdb with a program that runs."""

import os
import re
import subprocess

from inputs import source
from measure import Failed

# name in the output of seek, what it is, limit in seconds
MOVES = [
    ("open", "opening", 0.3),
    ("to-end", "to the end, for the first time", None),
    ("to-end-elapsed", "the same, with what others do for it", None),
    ("goto-median", "to random positions, median", 0.05),
    ("goto-worst", "the same, worst", 0.3),
    ("back-step-median", "a step back there, median", 0.005),
    ("back-step-99", "the same, 99th percentile", 0.05),
    ("back-to-change", "back from the end to the only change", 1),
    ("back-to-break", "back from the end to the only call", 1),
    ("conditions", "a false condition", 1e-6),
    ("conditions-back", "the same backwards", 1e-6),
]

TIMED = """
import time
def timed(name, command, n=1):
    began = time.time()
    for i in range(n):
        gdb.execute(command, to_string=True)
    print("TIME %s %.3f" % (name, time.time() - began))
"""


def output(argv, directory, timeout=600):
    done = subprocess.run(argv, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, timeout=timeout)
    if done.returncode:
        raise Failed("%s: status %d: %s" % (" ".join(argv), done.returncode, done.stdout[-300:]))
    return done.stdout


def address(program, name):
    for line in output(["nm", program], None).splitlines():
        fields = line.split()
        if fields[-1] == name:
            return "0x" + fields[0]
    raise Failed("%s: no %s" % (program, name))


def in_gdb(argv, directory, backwards):
    script = os.path.join(directory, "debugger.py.gdb")
    line = "REPEAT(2000"
    number = 1 + [line in text for text in open(source("long.c"))].index(True)
    with open(script, "w") as f:
        f.write("set pagination off\nset confirm off\nbreak %d\n%s\n" %
                (number, "continue" if backwards else "run"))
        f.write("python\n" + TIMED + 'timed("next", "next")\n')
        if backwards:
            f.write('timed("reverse-next", "reverse-next")\n')
        f.write('timed("stepi", "stepi", 1000)\n')
        if backwards:
            f.write('timed("reverse-stepi", "reverse-stepi", 1000)\n')
        f.write("end\nkill\nquit\n")
    text = output(argv + ["-nx", "-batch", "-x", script], directory)
    return {name: float(value) for name, value in re.findall(r"^TIME (\S+) (\S+)$", text, re.M)}


def measure(deja, directory):
    """Print the tables; true if all is within its limit."""
    program, trace = os.path.join(directory, "long"), os.path.join(directory, "long.deja")
    seek = os.path.join(os.path.dirname(deja), "bench", "src", "seek")
    subprocess.run(["gcc", "-g", "-O0", "-no-pie", "-o", program, source("long.c")], check=True)
    output([deja, "record", "-o", trace, "--", program, "250"], directory)  # 11.7 G instructions
    form, good = "%-40s %14s  %s", True
    for title in "moves in a long recording", "the same with an index":
        text = output([seek, trace] + [address(program, n) for n in ("first", "mark", "step")], directory, 3600)
        values = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
        print(form % (title, "seconds of cpu", "limit"))
        for name, what, limit in MOVES:
            met = limit is None or float(values[name]) <= limit
            good &= met
            print(form % (what, "%.7f" % float(values[name]),
                          "" if limit is None else "%g%s" % (limit, "" if met else ": missed")), flush=True)
        if not os.path.exists(trace + ".index"):
            began = os.times()
            output([deja, "index", trace], directory, 3600)
            ended = os.times()
            print(form % ("making the index", "%.3f" % (ended[2] + ended[3] - began[2] - began[3]), ""))
            print(form % ("its size in bytes", os.path.getsize(trace + ".index"), os.path.getsize(trace)))
    live = in_gdb(["gdb", program], directory, False)
    ours = in_gdb([deja, "replay", trace, "--"], directory, True)
    print(form % ("in gdb", "seconds", "gdb alone"))
    for name, what in (("next", "next over 2000 calls"), ("reverse-next", "reverse-next over them"),
                       ("stepi", "1000 stepi"), ("reverse-stepi", "1000 reverse-stepi")):
        print(form % (what, "%.2f" % ours[name], "%.2f" % live[name] if name in live else ""))
    os.unlink(trace)
    os.unlink(trace + ".index")
    return good
