#!/usr/bin/env python3
"""Checks of deja edges, for tests/cli/edges.sh."""
import collections
import json
import os
import subprocess
import sys

DEJA = os.environ["DEJA"]
failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAIL: " + text)


def edges(*words):
    run = subprocess.run([DEJA, "edges", "--json", *words], capture_output=True, text=True,
                         check=False, timeout=120)
    if run.returncode:
        fail("deja edges %s: %s" % (" ".join(words), run.stderr))
    return json.loads(run.stdout)


def check_gcov(trace, gcov):
    """Of each source line: how often its branches went each way."""
    with open(gcov, encoding="utf-8") as f:
        files = json.loads(f.readline())["files"]
    theirs = {}
    for file in files:
        if file["file"].endswith("edges.c"):
            for line in file["lines"]:
                # a call that may not return has arcs, too, but no branch
                counts = sorted(b["count"] for b in line["branches"])
                if counts:
                    theirs[line["line_number"]] = counts
    ours = collections.defaultdict(list)
    for b in edges(trace):
        if b["kind"] == "conditional" and b["line"].startswith("edges.c:") and b["module"] == "covered":
            ours[int(b["line"].split(":")[1])] += [b["taken"], b["not taken"]]
    for line in sorted(set(theirs) | set(ours)):
        have, want = sorted(ours.get(line, [])), theirs.get(line, [])
        # a branch that was never reached is in no history
        while len(have) < len(want) and want[:2] == [0, 0]:
            want = want[2:]
        if have != want:
            fail("line %d: %s, gcov has %s" % (line, have, want))
    print("gcov: %d lines with branches are the same" % len(theirs))
    if len(theirs) < 15:
        fail("there are only %d lines with branches" % len(theirs))


def check_sampling(trace):
    """Ten times the samples are about a third of the distance (one in the root of ten)."""
    distances = []
    for period in (3000, 300, 30):
        r = edges("--sample", "--period", str(period), "--random", str(period // 3), trace)
        s = r["sampling"][0]
        distances.append(s["distance"])
        print("period %5d: %6d samples, distance %.4f, of independent ones %.4f" %
              (period, s["samples"], s["distance"], s["independent"]))
        if not 0.4 * s["independent"] < s["distance"] < 2.5 * s["independent"]:
            fail("period %d: distance %.4f, where independent samples have %.4f" %
                 (period, s["distance"], s["independent"]))
    if not distances[0] > distances[1] > distances[2]:
        fail("the distances do not fall: %s" % distances)
    # the whole path counts what is not taken, too; every branch in turn is the exact profile
    r = edges("--sample", "--period", "1", "--ring", "2", "--last", "1", trace)
    for b in r["branches"]:
        if b["kind"] != "conditional" and b["sampled"] < b["taken"] - 3:
            fail("with every branch sampled: %s" % b)
            break
    r = edges("--sample", "--period", "100", "--ring", "32", "--last", "32", trace)
    seen = sum(b["sampled not"] for b in r["branches"])
    exact = sum(b["not taken"] for b in r["branches"])
    if not 0.28 * exact < seen < 0.36 * exact:
        fail("of %d branches not taken %d are in the samples" % (exact, seen))
    # of 32 branches the last 8; and by instructions: as many samples as periods go into the run
    few = edges("--sample", "--period", "100", "--ring", "32", "--last", "8", trace)["sampling"][0]
    if few["branches"] != 8 * few["samples"]:
        fail("the last 8 of 32: %s" % few)
    by = edges("--sample", "--period", "1000", "--unit", "instructions", trace)["sampling"][0]["samples"]
    all_of_it = json.loads(subprocess.run([os.environ["DEJA"], "count", "--json", trace], check=True,
                                          stdout=subprocess.PIPE).stdout)[0]["executed"]
    if not 0.9 * all_of_it / 1000 <= by <= all_of_it / 1000:
        fail("%d samples of %d instructions" % (by, all_of_it))
    if edges("--sample", "--seed", "5", trace) != edges("--sample", "--seed", "5", trace):
        fail("two answers to one question")


def check_calls(trace):
    calls = {(c["caller"], c["callee"]): c["calls"] for c in edges("--calls", trace)}
    if calls["main", "both"] != 3000 or calls["main", "next"] != 15000:
        fail("calls by main: %s" % {k: v for k, v in calls.items() if k[0] == "main"})
    indirect = [calls["main", f] for f in ("chain", "loops", "recursive")]
    if sum(indirect) != 3000 or min(indirect) < 900:
        fail("calls through the table: %s" % indirect)
    if calls["recursive", "recursive"] % 2:
        fail("recursive() calls itself %d times" % calls["recursive", "recursive"])


{"gcov": check_gcov, "sampling": check_sampling, "calls": check_calls}[sys.argv[1]](*sys.argv[2:])
sys.exit(failures != 0)
