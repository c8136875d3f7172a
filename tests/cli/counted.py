"""Counts of lines: those of a program itself, and those that deja finds in its recording.

usage: counted.py LCOV GCOV...      (LCOV from deja coverage, GCOV from gcov --json-format)

What the program counted must be in the recording, or some of it ran unrecorded. It may have more: a
loop's first line is begun anew in each round, which gcov does not count, and what ended by a signal
has told gcov nothing."""
import gzip
import json
import os
import sys


def ours(path):
    counts, name = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("SF:"):
                name = os.path.basename(line[3:].strip())
            elif line.startswith("DA:"):
                number, count = line[3:].split(",")[:2]
                counts[name, int(number)] = int(count)
    return counts


def theirs(paths):
    counts = {}
    for path in paths:
        with gzip.open(path) as f:
            files = json.load(f)["files"]
        for file in files:
            name = os.path.basename(file["file"])
            if not name.endswith(".c"):
                continue
            for line in file["lines"]:
                place = name, line["line_number"]
                counts[place] = counts.get(place, 0) + line["count"]
    return counts


have, want = ours(sys.argv[1]), theirs(sys.argv[2:])
executed = [place for place in want if want[place]]
missing = [place for place in executed if place in have and have[place] < want[place]]
for place in missing:
    print("%s:%d: %d times, recorded %d times" % (*place, want[place], have[place]))
compared = sum(place in have for place in executed)
if compared < 10 or compared < len(executed) * 0.9:
    sys.exit("only %d of %d lines compared" % (compared, len(executed)))
print("%d lines compared" % compared)
sys.exit(1 if missing else 0)
