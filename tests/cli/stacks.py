#!/usr/bin/env python3
"""Checks of deja stacks and deja count, for tests/cli/stacks.sh."""
import collections
import json
import os
import random
import re
import subprocess
import sys

DEJA = os.environ["DEJA"]
failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAIL: " + text)


def same(what, have, want):
    if have != want:
        fail("%s: %s, not %s" % (what, have, want))


def deja(*words, status=0):
    run = subprocess.run([DEJA, *words], capture_output=True, text=True, check=False, timeout=100)
    if run.returncode != status:
        fail("deja %s: status %d: %s" % (" ".join(words), run.returncode, run.stderr))
    return run


def ask(*words):
    return json.loads(deja(words[0], "--json", *words[1:]).stdout)


def check_unwound(trace):
    """At positions all over the run: the program's own calls are on the stack in the same order."""
    random.seed(int(os.environ.get("STACKS_SEED", "7")))
    total = ask("profile", "--threads", trace)["threads"][0]["instructions"]
    compared = 0
    for _ in range(20):
        at = str(random.randrange(total // 2, total))
        run = subprocess.run([DEJA, "backtrace", "--json", trace, at], capture_output=True,
                             text=True, check=False, timeout=60)
        if run.returncode:
            continue  # of the first thread, which may not have so many
        theirs = json.loads(run.stdout)[0]
        ours = [f for f in ask("stacks", "--at", at, trace) if f["tid"] == theirs["tid"]]
        module = os.path.basename(trace).replace(".deja", "")
        have = [f["address"] for f in ours if f["module"] == module and f["function"] != "_start"]
        want = [f["pc"] for f in theirs["frames"]
                if os.path.basename(f["module"] or "") == module and not f["inlined"] and
                not (f["function"] or "").startswith("_start")]
        if theirs["incomplete"]:
            continue
        compared += 1
        # deja has the call, libunwind where it returns to; a tail call's frame only deja has
        left = list(have)
        for pc in want:
            while left and not (left[0] == pc or left[0] < pc <= left[0] + 8):
                left.pop(0)
            if not left:
                fail("%s at %s: %s is not on the stack: %s, libunwind has %s" %
                     (trace, at, hex(pc), [hex(x) for x in have], [hex(x) for x in want]))
                break
            left.pop(0)
        # the one that is compiled without tail calls has no other frames
        if len(have) > len(want) + (0 if module == "shop" else 3):
            fail("%s at %s: %d frames, libunwind has %d" % (trace, at, len(have), len(want)))
    print("%s: %d stacks are as libunwind finds them" % (trace, compared))
    if compared < 8:
        fail("only %d stacks could be compared" % compared)


def check_names(trace):
    """What a template made is called as in the source, with its arguments or without."""
    # i % 7 calls in calls, for each i
    want = sum(i % 7 + 1 for i in range(40))
    for name in ("shop::total", "shop::total<shop::Item>"):
        same("calls of " + name, len(ask("calls", name, "--all", trace)), want)
    for name in ("total", "int", "shop::tot", "shop::total<int>"):
        if "have no function" not in deja("calls", name, trace, status=1).stderr:
            fail("%s is the name of a function" % name)
    same("nothing is said to be nothing", deja("races", trace).stdout.splitlines()[1:], ["(none)"])


def check_samples(trace):
    """Every N-th instruction of every thread is in one sample; the whole profile is every 1st."""
    total = int(re.search(r"instructions +(\d+)", deja("verify", trace).stdout).group(1))
    threads = len(ask("profile", "--threads", trace)["threads"])
    whole = collections.Counter()
    for n in (1, 100, 5000):
        deja("stacks", "--every", str(n), "--folded", "f", "--flame", "f.svg", trace)
        with open("f", encoding="utf-8") as f:
            lines = [line.rsplit(" ", 1) for line in f]
        found = sum(int(k) for _, k in lines)
        if not total // n - threads <= found <= total // n + threads:
            fail("every %d: %d samples of %d instructions" % (n, found, total))
        if n == 1:
            whole = {path: int(k) for path, k in lines}
        for path, k in lines:
            if int(k) > whole[path] // n + threads + whole[path] // 2:
                fail("every %d: %s has %s samples of %d" % (n, path, k, whole[path]))
    deja("profile", "--folded", "p", trace)
    with open("p", encoding="utf-8") as f:
        same("every instruction", {p: int(k) for p, k in (x.rsplit(" ", 1) for x in f)}, whole)


def check_log(trace):
    """Entries and exits fit together, and are as many as the profile counts."""
    log = ask("stacks", "--log", trace)
    by_thread = collections.defaultdict(list)
    calls = collections.Counter()
    for e in log:
        tid = e["position"].split("@")[1]
        stack = by_thread[tid]
        if e["what"] == "return":
            if e["function"] == "inner":
                stack.pop()
        elif e["function"] == "inner":
            stack.append(e)
        if e["what"] not in ("return", "under"):
            calls[e["function"]] += 1
    for tid, stack in by_thread.items():
        same("inner still entered in " + tid, stack, [])
    # who has not returned is one of those that never do, none of them the program's
    left = collections.Counter()
    for e in log:
        left[e["function"], e["position"].split("@")[1]] += {"return": -1, "under": 0}.get(e["what"], 1)
    left = {k: n for k, n in left.items() if n}
    if set(left.values()) != {1} or len(left) > 20 or {f for f, _ in left} & {
            "main", "work", "outer", "inner", "deep", "between", "in_coroutine", "handler"}:
        fail("entered and not left: %s" % left)
    rows = collections.Counter()
    for r in ask("profile", trace):
        rows[r["function"]] += r["calls"]
    for name in ("inner", "outer", "work", "deep", "main", "between", "in_coroutine", "handler"):
        same("entries of " + name, calls[name], rows[name])
    # a position of the log is one that can be gone to, where the function begins
    entry = [e for e in log if e["function"] == "after_jump" and e["what"] == "call"][0]
    stack = ask("stacks", "--at", entry["position"], trace)
    if not any(f["function"] in ("main", "after_jump") for f in stack):
        fail("at %s there is %s" % (entry["position"], stack[:3]))
    # a limit is told, a declared call is one
    if "deeper than --depth 3" not in deja("stacks", "--depth", "3", trace).stderr:
        fail("--depth 3 is not mentioned")
    marked = ask("stacks", "--log", "--call", "between", trace)
    if not any(e["what"] == "marked" for e in marked):
        fail("--call makes no entries")
    if len(ask("stacks", "--log", "--limit", "5", trace)) != 5:
        fail("--limit 5 is not five lines")


def check_hot(trace):
    """All that have so great a share by the exact profile, and no others, with the same numbers."""
    profile = ask("profile", trace)
    whole = sum(r["self"] for r in profile)
    for percent in (1, 5, 30, 100):
        want = sorted((r["function"], r["self"]) for r in profile if 100 * r["self"] >= percent * whole)
        hot = ask("count", "--hot", str(percent), trace)
        same("hot from %d %% on" % percent, sorted((r["place"], r["executed"]) for r in hot), want)
        if percent == 1 and not 3 <= len(want) <= len(profile) // 2:
            fail("hot: %d of %d functions say nothing" % (len(want), len(profile)))


def check_count(trace):
    rows = {r["range"]: r for r in ask("count", "--code", "leaf", "--code", "middle", "--code",
                                       "other", trace)}
    leaf = 10 * 7 + 5 + 3 * (4 + 2)
    same("leaf is entered", rows["leaf"]["entered"], leaf)
    same("other is entered", rows["other"]["entered"], 10)
    # by its caller, and by leaf's returns
    same("middle is entered", rows["middle"]["entered"], 16 + 10 * 7 + 3 * 6)
    whole = int(re.search(r"instructions +(\d+)", deja("verify", trace).stdout).group(1))
    same("everything", ask("count", trace)[0]["executed"], whole)
    same("calls in middle", ask("count", "--code", "middle", "--type", "calls", trace)[0]["executed"],
         leaf - 5)
    same("returns of leaf", ask("count", "--code", "leaf", "--type", "returns", trace)[0]["executed"],
         leaf)
    same("an instruction", ask("count", "--code", "leaf+0", trace)[0]["executed"], leaf)
    data = ask("count", "--data", "counter", "--data", "table", "--data", "table+8:8", trace)["data"]
    same("counter", [data[0]["reads"], data[0]["writes"]], [leaf + 1, leaf])
    same("table", [data[1]["reads"], data[1]["writes"]], [50, 0])
    same("a part of table", [data[2]["reads"], data[2]["writes"]], [50, 0])
    same("unaligned", ask("count", "--code", "loads", "--type", "unaligned", trace)[0]["executed"],
         100)
    for kind, n in ("branches", 61), ("returns", 1), ("strings", 3), ("vector", 20), ("memory", 64):
        same(kind, ask("count", "--code", "types", "--type", kind, trace)[0]["executed"], n)
    marks = ask("count", "--start", "mark_begin", "--stop", "mark_end", "--code", "leaf+0", trace)
    same("times between the marks", marks["marks"][0]["times"], 3)
    same("leaf between the marks", marks["code"][0]["executed"], 12)
    # a threshold: where the 20th, 40th... call of leaf is, with the stack
    r = ask("count", "--code", "leaf+0", "--threshold", "20", trace)["reports"]
    same("reports", len(r), leaf // 20)
    if not re.match(r"leaf < middle < main < ", r[0]["stack"]):
        fail("the stack of the first report: " + r[0]["stack"])
    at = ask("stacks", "--at", r[0]["position"], trace)
    same("at the report", [f["function"] for f in at[:3]], ["leaf", "middle", "main"])
    # of accesses, at the access
    r = ask("count", "--data", "counter", "--threshold", "50", trace)["reports"]
    same("reports of accesses", [len(r), r[0]["stack"].split(" < ")[0]], [(2 * leaf + 1) // 50, "leaf"])
    nth = ask("accesses", "counter", trace)[49]["position"]
    same("the 50th access", r[0]["position"], nth)
    callers = [(c["depth"], c["function"], c["calls"]) for c in ask("count", "--callers", "leaf", trace)]
    same("callers", callers[:3], [(0, "leaf", leaf), (1, "middle", leaf - 5), (2, "main", leaf - 5)])
    if (1, "other", 5) not in callers:
        fail("other is no caller: %s" % callers)
    for by in ("page", "function", "module", "instruction"):
        same("by " + by, sum(r["executed"] for r in ask("count", "--by", by, trace)), whole)
    check_hot(trace)
    by = {r["place"]: r for r in ask("count", "--by", "function", trace)}
    same("calls by middle", by["middle"]["calls"], leaf - 5)
    same("middle was entered", by["middle"]["entered"], 16)


def check_places(trace):
    """Of tests/cli/places.c: what was executed at addresses where a function's code is mapped as well."""
    words = ["rounds", "0x10000000", "0x10000005", "0x10000000-0x10001000", "0x20000000-0x20001000",
             "0x10000000-0x20001000", "0x30000000"]
    rows = ask("count", *[w for word in words for w in ("--code", word)], trace)
    want = [(252, 21), (10, 10), (50, 50), (120, 10), (120, 10), (240, 20), (0, 0)]
    same("in code at addresses", [(r["executed"], r["entered"]) for r in rows], want)
    rows = ask("count", "--by", "instruction", "--code", "0x10000000-0x10001000", trace)
    same("instructions there", [(r["executed"], r["place"]) for r in rows],
         [(50, "rounds+0x5"), (50, "rounds+0x7"), (10, "rounds+0"), (10, "rounds+0x9")])
    answer = ask("count", "--threshold", "20", "--code", "0x20000000-0x20001000", trace)
    same("reports there", [answer["code"][0]["executed"], len(answer["reports"])], [120, 36 // 20 + 84 // 20])
    for name, calls in ("0x10000000", [10, 10]), ("0x20000000", [10, 10, 10]), ("0x30000000", []), \
            ("rounds", [21, 20, 10]):
        rows = ask("count", "--callers", name, trace)
        same("callers of " + name, [r["calls"] for r in rows][:len(calls)], calls)
        same("functions of " + name, [r["function"] for r in rows][:len(calls)],
             ["rounds", "times", "second"][:len(calls)])
        same("so many of " + name, len(rows) > 3, bool(calls))
    # a thread of a process: both must be so
    threads = ask("profile", "--threads", trace)["threads"]
    first, child, other = [t["tid"] for t in threads]
    same("processes", [t["pid"] for t in threads], [first, child, child])
    for only, want in (("--process", child), [child, other]), (("--thread", first), [first]), \
            (("--process", child, "--thread", other), [other]), \
            (("--thread", other, "--thread", first, "--process", child), [other]), \
            (("--process", child, "--process", first, "--thread", child), [child]):
        rows = ask("profile", "--threads", *[str(word) for word in only], trace)["threads"]
        same("threads of %s %s..." % only[:2], [t["tid"] for t in rows], want)
    said = deja("profile", "--process", str(first), "--thread", str(child), trace, status=1)
    same("no thread is left", [said.stdout, said.stderr],
         ["", "deja: none of these threads is of these processes\n"])



def check_times(trace):
    """Snapshots at moments: of each thread as many as there were while it lived, or ran, by what is
    noted of time."""
    times = collections.defaultdict(list)
    for line in deja("dump", "--times", trace).stdout.splitlines():
        tid, steps, _, us, _ = line.split()
        times[tid].append((int(us), int(steps)))
    every = 7000
    for options in ([], ["--running"]):
        out = deja("stacks", "--every", "7ms", *options, trace).stdout
        samples = [line.rsplit(" ", 1) for line in out.splitlines()]
        for tid, noted in times.items():
            have = sum(int(n) for path, n in samples if path.startswith("thread %s " % tid))
            ticks = range(0, noted[-1][0] + every, every)
            if options:
                want = sum(any(t0 <= k < t1 and s1 > s0
                               for (t0, s0), (t1, s1) in zip(noted, noted[1:])) for k in ticks)
            else:
                want = sum(noted[0][0] <= k < noted[-1][0] for k in ticks)
            same("snapshots of thread %s %s" % (tid, options), have, want)
        of = {f: sum(int(n) for path, n in samples if ";%s;" % f in path + ";")
              for f in ("asleep", "busy")}
        # six tenths of a second at least, and three
        if of["busy"] < 20 and not options or of["busy"] < 1:
            fail("%d snapshots of busy %s" % (of["busy"], options))
        if (of["asleep"] > 42) if options else (of["asleep"] < 43):
            fail("%d snapshots of asleep %s" % (of["asleep"], options))
    # an event says when it was, and that the thread was long in it
    calls = ask("events", "--times", trace)
    sleep = [e for e in calls if e["name"] in ("nanosleep", "clock_nanosleep")][0]
    if not 300000 < sleep["stayed"] < sleep["us"] + sleep["stayed"] <= times[str(sleep["tid"])][-1][0]:
        fail("the sleep: %s" % sleep)
    for tid in times:
        us = [e["us"] for e in calls if str(e["tid"]) == tid]
        same("events of %s are in the order of their times" % tid, us, sorted(us))
    if not re.search(r" \d\.\d{6} .*nanosleep.* = 0 <0\.\d{6}>$", deja("events", "-t", trace).stdout, re.M):
        fail("events -t does not print times")
    # a time is where the thread was: asleep, in the middle of it; and at what was noted exactly there
    middle = "%dus@%d" % (sleep["us"] + sleep["stayed"] // 2, sleep["tid"])
    if " in asleep" not in deja("backtrace", trace, middle).stdout:
        fail("at %s: %s" % (middle, deja("backtrace", trace, middle).stdout))
    tid, noted = [(t, v) for t, v in times.items() if t != str(sleep["tid"])][0]
    (t0, s0), (t1, s1) = noted[len(noted) // 3], noted[2 * len(noted) // 3]
    out = deja("profile", "--thread", tid, "--from", "%.6fs" % (t0 / 1e6), "--to", "%dus" % t1, trace).stdout
    same("instructions between two moments", int(out.split()[0]), s1 - s0)
    for words, said in ((["profile", "--from", "1ms"], "--thread"), (["events", "--to", "1ms"], "--thread"),
                        (["backtrace", trace, "999s"], "the last moment is"), (["backtrace", trace, "1m"], "no position")):
        run = deja(*words, *([] if trace in words else [trace]), status=1)
        if said not in run.stderr:
            fail("%s says %s" % (words, run.stderr))
    for words, said in ((["--every", "0ms"], "--every"), (["--every", "7m"], "--every"),
                        (["--running"], "needs --every"), (["--running", "--every", "5"], "needs --every")):
        if said not in deja("stacks", *words, trace, status=1).stderr:
            fail("stacks %s is not refused" % words)


def check_marks(trace):
    """Calls and returns by hand, which only who has written them knows; and stacks that grow."""
    def log(*marks):
        return [(e["what"], e["function"]) for e in ask("stacks", "--log", *marks, trace)
                if e["function"].startswith("hand_")]
    call, back = ("--call", "hand_caller+8"), ("--return", "hand_target+8")
    same("unmarked", log(), 20 * [("call", "hand_caller"), ("return", "hand_caller")])
    same("a call", log(*call), 20 * [("call", "hand_caller"), ("marked", "hand_target"),
                                     ("return", "hand_target"), ("return", "hand_caller")])
    same("a call and a return", log(*call, *back), log(*call))
    # a return alone is that of the function it returns from: before hand_caller's own
    returns = [[int(e["position"].split(":")[1]) for e in ask("stacks", "--log", *marks, trace)
                if (e["what"], e["function"]) == ("return", "hand_caller")] for marks in ((), back)]
    same("a return", returns[1], [at - 1 for at in returns[0]])
    rows = {r["function"]: r for r in ask("profile", *call, trace)}
    same("calls and instructions", [rows["hand_target"]["calls"], rows["hand_target"]["inclusive"]], [20, 60])
    same("its caller has them, too", rows["hand_caller"]["inclusive"], 140)
    # a work area grows as needed, and its limit is reported
    at = ask("calls", "deep", "--all", trace)[-1]["position"]
    frames = [f["function"] for f in ask("stacks", "--at", at, trace)]
    same("deep", frames.count("deep"), 20001)
    run = deja("stacks", "--json", "--depth", "1000", "--at", at, trace)
    same("limited", len(json.loads(run.stdout)), 1001)
    same("and said", re.findall(r"(\d+) frames are missing", run.stderr), [str(len(frames) - 1001)])


{"unwound": check_unwound, "marks": check_marks, "samples": check_samples, "log": check_log,
 "count": check_count, "names": check_names, "times": check_times,
 "places": check_places}[sys.argv[1]](sys.argv[2])
sys.exit(failures != 0)
