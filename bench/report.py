"""The table, the geometric means and a verdict for each target."""

import math
import os
import platform
import statistics
import subprocess
import time

MIB = 1 << 20

# What each column shows: heading, key of the row (or a function of it), how it is written.
COLUMNS = [
    ("program", lambda r: r["name"], "%s"),
    ("native s", "native", "%.2f"),
    ("record", "slowdown", "%.2fx"),
    ("cpu time", "cpu_slowdown", "%.2fx"),
    ("10^9 instr", lambda r: r["instructions"] / 1e9, "%.2f"),
    ("bits/instr", "bits", "%.4f"),
    ("trace MB", lambda r: r["file_size"] / 1e6, "%.1f"),
    ("native MiB", lambda r: r["native_peak"] / MIB, "%.0f"),
    ("record MiB", lambda r: r["peak"] / MIB, "%.0f"),
    ("verify M/s", lambda r: r["replay_speed"] / 1e6, "%.1f"),
    ("by cpu time", lambda r: r["replay_cpu_speed"] / 1e6, "%.1f"),
    ("/ native", "replay_native", "%.2fx"),
    ("/ record", "replay_recorded", "%.2fx"),
    ("all cpus", "replay_together", "%.2fx"),
    ("keyed", "keyed_together", "%.2fx"),
    ("keyed size", "keyed_size", "%.2fx"),
    ("index", "index", "%.2fx"),
    ("index MB", lambda r: r["index_size"] / 1e6, "%.2f"),
    ("valgrind", "valgrind", "%.1fx"),
    ("gdb instr/s", "gdb", "%.0f"),
    ("stops", lambda r: r["statistics"]["stops"], "%d"),
    ("natively", lambda r: r["statistics"]["executed natively"], "%d"),
    ("imports", lambda r: r["records"]["import"], "%d"),
]


def cell(value, form):
    return "-" if value is None else form % value


def value_of(row, column):
    key = column[1]
    try:
        return key(row) if callable(key) else row.get(key)
    except (KeyError, TypeError):
        return None


def geomean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else None


def memory_limit(row):
    return 3 * row["native_peak"] + 256 * MIB


def describe_machine():
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("model name"):
                    name = line.split(":", 1)[1].strip()
                    break
        with open("/proc/cpuinfo") as f:
            count = sum(line.startswith("processor") for line in f)
    except OSError:
        count = 0
    return "%s, %d processors, Linux %s" % (name, count, platform.release())


def version_of(argv):
    try:
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        return argv[0] + " unknown"


class Result:
    def __init__(self, rows, start, options):
        self.rows = rows
        self.start = start
        self.options = options
        self.verdicts = list(self._verdicts())

    def _column(self, key):
        return [r[key] for r in self.rows if r.get(key) is not None]

    def _verdicts(self):
        """(what, measured, met) with met None where nothing was measured."""
        def judge(what, measured, form, met):
            return (what, cell(measured, form), None if measured is None else bool(met))

        slow = self._column("slowdown")
        mean = geomean(slow)
        yield judge("recording slowdown, geometric mean, at most 2.2x", mean, "%.2fx",
                    mean and mean <= 2.2)
        worst = max(slow, default=None)
        yield judge("recording slowdown, none above 4x", worst, "%.2fx", worst and worst <= 4)
        worked = self._column("cpu_slowdown")
        mean = geomean(worked)
        yield judge("the same by processor time, geometric mean", mean, "%.2fx", mean and mean <= 2.2)
        worst = max(worked, default=None)
        yield judge("the same by processor time, worst", worst, "%.2fx", worst and worst <= 4)
        bits = self._column("bits")
        average = statistics.fmean(bits) if bits else None
        yield judge("bits per instruction on average, at most 0.5", average, "%.4f",
                    average is not None and average <= 0.5)
        # on one processor: what it has is what it takes when nobody else wants it
        speed = self._column("replay_cpu_speed")
        lowest = geomean(speed)
        yield judge("deja verify, million instructions a second, geometric mean, at least 2000",
                    lowest and lowest / 1e6, "%.1f", lowest and lowest >= 2000e6)
        slowest = min(speed, default=None)
        yield judge("deja verify, slowest program, at least 600", slowest and slowest / 1e6, "%.1f",
                    slowest and slowest >= 600e6)
        mean = geomean(self._column("replay_native"))
        yield judge("deja verify by processor time against the native run, geometric mean, at most 4x",
                    mean, "%.2fx", mean and mean <= 4)
        mean = geomean(self._column("replay_together"))
        if (os.cpu_count() or 1) == 2:
            yield judge("deja verify on both processors against one, geometric mean, at least 1.8x", mean,
                        "%.2fx", mean and mean >= 1.8)
            mean = geomean(self._column("keyed_together"))
            yield judge("the same with a keyframe every 500 million instructions, at least 1.8x", mean,
                        "%.2fx", mean and mean >= 1.8)
        mean = geomean(self._column("index"))
        yield judge("deja index by processor time against deja verify, geometric mean, at most 2x", mean,
                    "%.2fx", mean and mean <= 2)
        indexed = [r for r in self.rows if r.get("index_size")]
        large = [r["name"] for r in indexed if r["index_size"] > r["index_room"]]
        yield judge("the index within a tenth of the trace or 1 MB per 10^9 instructions",
                    (", ".join(large) or "all within") if indexed else None, "%s", not large)
        for name, limit in (("/bin/true", 0.3), ("/bin/true, nothing kept", 0.3),
                            ("python3 -c pass", 0.25), ("python3 -c pass, nothing kept", 0.25)):
            seconds = self.start.get(name)
            yield judge("record -- %s, at most %g s" % (name, limit), seconds, "%.2f s",
                        seconds is not None and seconds <= limit)
        ratio = self.start.get("half a second of cc1")
        yield judge("record -- cc1 for half a second, against native, at most 5x", ratio, "%.2fx",
                    ratio is not None and ratio <= 5)
        measured = [r for r in self.rows if r.get("peak")]
        over = [r["name"] for r in measured if r["peak"] > memory_limit(r)]
        yield judge("memory of program and supervisor within 3x native + 256 MiB",
                    (", ".join(over) or "all within") if measured else None, "%s", not over)
        broken = [r["name"] for r in self.rows if "error" in r]
        yield judge("every program recorded, with its own output, and verified",
                    ", ".join(broken) or "all", "%s", not broken)

    def _cells(self):
        lines = [[c[0] for c in COLUMNS]]
        for row in self.rows:
            lines.append([cell(value_of(row, c), c[2]) for c in COLUMNS])
        means = ["geometric mean"]
        for c in COLUMNS[1:]:
            keep = c[0] in ("record", "cpu time", "bits/instr", "verify M/s", "by cpu time",
                              "/ native", "/ record", "all cpus", "keyed", "keyed size", "index",
                              "valgrind", "gdb instr/s")
            values = [v for v in (value_of(r, c) for r in self.rows) if v] if keep else []
            means.append(cell(geomean(values), c[2]) if values else "")
        return lines + [means]

    def _remarks(self):
        busy = self._column("busy")
        if busy and statistics.median(busy) > 1.15:
            yield ("the machine was busy with other work: native runs took %.1f times their processor "
                   "time; trust the columns by processor time" % statistics.median(busy))
        for row in self.rows:
            for kind in ("skipped", "error"):
                if kind in row:
                    yield "%s: %s: %s" % (row["name"], kind, row[kind])

    def text(self):
        lines = self._cells()
        widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
        out = []
        for line in lines:
            out.append("  ".join(c.ljust(w) if i == 0 else c.rjust(w)
                                 for i, (c, w) in enumerate(zip(line, widths))))
        out.append("")
        out += self._remarks()
        for what, measured, met in self.verdicts:
            out.append("%-7s %s: %s" % ({True: "met", False: "MISSED", None: "-"}[met], what, measured))
        return "\n".join(out)

    def markdown(self):
        lines = self._cells()
        out = ["# deja measured", "",
               "Written by `make bench BENCHFLAGS=--write`; what the columns mean is in [README.md](README.md).",
               "", "- %s" % describe_machine(), "- %s" % time.strftime("%Y-%m-%d"),
               "- %s; %s; %s" % (version_of([self.options.deja, "--version"]),
                                 version_of(["valgrind", "--version"]), version_of(["gdb", "--version"])),
               "- %d pairs of runs of %.1f s or more; replay of about %.1e instructions" %
               (self.options.pairs, self.options.seconds, self.options.replay), ""]
        out.append("| " + " | ".join(lines[0]) + " |")
        out.append("|---|" + "---:|" * (len(COLUMNS) - 1))
        out += ["| " + " | ".join(line) + " |" for line in lines[1:]]
        out += ["", "| target | measured | |", "|---|---|---|"]
        out += ["| %s | %s | %s |" % (what, measured, {True: "met", False: "missed", None: "not measured"}[met])
                for what, measured, met in self.verdicts]
        remarks = list(self._remarks())
        if remarks:
            out += [""] + ["- " + r.replace("\n", " ") for r in remarks]
        return "\n".join(out) + "\n"
