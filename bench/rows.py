"""How long the table of real programs (tests/programs/programs.tsv) takes to record: the rows that
natively take less than a tenth of a second. Each is recorded once before, so that its code is kept;
then native and recorded runs take turns, and the medians count."""

import importlib.machinery
import importlib.util
import os
import shutil
import statistics
import subprocess
import tempfile
import time

SHORT = 0.1  # seconds natively
LIMIT = 0.3  # and recorded
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "programs", "run-programs")


def table():
    """tests/programs/run-programs as a module."""
    loader = importlib.machinery.SourceFileLoader("run_programs", PROGRAMS)
    spec = importlib.util.spec_from_loader("run_programs", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class Timed:
    def __init__(self, programs, row, where, deja):
        self.programs, self.row, self.where = programs, row, where
        self.deja = deja + " record -o ../trace.deja --"

    def set_up(self):
        os.mkdir(os.path.join(self.where, "base"))
        if self.row.setup == "-":
            return True
        script = ". \"$PROGRAMS/setup.sh\"; set -e; cd base; " + self.row.setup
        return self.programs.run(["sh", "-c", script], self.where, "setup", self.row.timeout) == 0

    def seconds(self, prefix):
        self.programs.make_copy(self.where)
        argv = self.programs.shell(self.row, self.where, prefix)
        # no timeout: to wait with one is to look every 50 ms
        begin = time.monotonic()
        subprocess.run(argv, cwd=self.where, env=self.programs.environment(self.where), stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, check=False)
        return time.monotonic() - begin


def measure_row(timed, pairs):
    """Median seconds natively and recorded; None if it takes longer."""
    if not timed.set_up() or min(timed.seconds("") for _ in range(3)) > SHORT:
        return None
    timed.seconds(timed.deja)
    native, recorded = [], []
    for _ in range(pairs):
        native.append(timed.seconds(""))
        recorded.append(timed.seconds(timed.deja))
    return statistics.median(native), statistics.median(recorded)


def measure(deja, directory, pairs):
    """Print the rows above the limit, and how many there are; true if there is none."""
    programs = table()
    rows = programs.read_table(programs.TABLE, [])
    missing = programs.missing_packages(rows)
    rows = [r for r in rows if not any(p in missing for p in r.packages)]
    short, above = [], 0
    for row in rows:
        where = tempfile.mkdtemp(prefix=row.name + ".", dir=directory)
        try:
            found = measure_row(Timed(programs, row, where, deja), pairs)
        except programs.Failure as e:
            print("%s: %s" % (row.name, e), flush=True)
            found = None
        finally:
            shutil.rmtree(where, ignore_errors=True)
        if not found:
            continue
        short.append(found)
        if found[1] > LIMIT:
            above += 1
            print("%-24s native %.3f s, recorded %.3f" % ((row.name,) + found), flush=True)
    print("%d rows take less than %.1f s natively; recorded, their code kept, %d take more than %.1f s, the median %.3f s"
          % (len(short), SHORT, above, LIMIT, statistics.median(r for _, r in short) if short else 0))
    return above == 0
