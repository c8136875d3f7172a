"""Counts of lines: those of a program itself, and those that deja finds in its recording.

usage: counted.py LCOV TABLE GCOV...
(LCOV from deja coverage, TABLE from objdump --dwarf=decodedline, GCOV from gcov --json-format)

What the program counted must be in the recording, or some of it ran unrecorded. It may have more: a
loop's first line is begun anew in each round, which gcov does not count, and what ended by a signal
has told gcov nothing. Lines to which no code belongs are gcov's alone, such as a `continue` that has become
the condition's jump."""
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


def coded(path):
    places = set()
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            fields = line.split()
            if len(fields) > 2 and fields[1].isdigit():
                places.add((os.path.basename(fields[0]), int(fields[1])))
    return places


have, code, want = ours(sys.argv[1]), coded(sys.argv[2]), theirs(sys.argv[3:])
executed = [place for place in want if want[place] and place in code]
missing = [place for place in executed if have.get(place, 0) < want[place]]
for place in missing:
    print("%s:%d: %d times, recorded %s" % (*place, want[place], "%d times" % have[place] if place in have else "not at all"))
if len(executed) < 10:
    sys.exit("only %d lines compared" % len(executed))
print("%d lines compared" % len(executed))
sys.exit(1 if missing else 0)
