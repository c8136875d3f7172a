#!/usr/bin/env python3
"""Checks of deja profile, for tests/cli/profile.sh: sums, paths, page, callgrind."""
import collections
import html.parser
import json
import os
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


def deja(*words):
    run = subprocess.run([DEJA, *words], capture_output=True, text=True, check=False, timeout=120)
    if run.returncode:
        fail("deja %s: %s" % (" ".join(words), run.stderr))
    return run.stdout


def profile(*words):
    return json.loads(deja("profile", "--json", *words))


def total(rows):
    return sum(r["self"] if "self" in r else r["count"] for r in rows)


def folded(name):
    paths = collections.Counter()
    with open(name, encoding="utf-8") as f:
        for line in f:
            path, n = line.rsplit(" ", 1)
            paths[tuple(path.split(";"))] += int(n)
    return paths


def check_deep(name):
    whole = int(re.search(r"instructions +(\d+)", deja("verify", name + ".deja")).group(1))
    paths = folded(name + ".folded")
    same("folded stacks", sum(paths.values()), whole)
    same("the deepest of them", max(len(path) for path in paths), 200)
    with open(name + ".speedscope", encoding="utf-8") as f:
        scope = json.load(f)["profiles"][0]
    same("speedscope", sum(scope["weights"]), whole)
    same("as many weights as samples", len(scope["weights"]), len(scope["samples"]))
    same("the deepest of speedscope", max(len(path) for path in scope["samples"]), 200)


# ---- sums


def check_sums(trace):
    """The same instructions, however they are added up."""
    verified = int(re.search(r"instructions +(\d+)", deja("verify", trace)).group(1))
    functions = profile("--threads", trace)
    same("threads", sum(t["instructions"] for t in functions["threads"]), verified)
    same("number of threads", len(functions["threads"]), 4)
    same("functions", total(functions["functions"]), verified)
    for by in ("line", "instruction"):
        same(by, total(profile("--by", by, trace)), verified)
    deja("profile", "--folded", "f", "--speedscope", "s", "--callgrind", "c", "--flame", "x.svg",
         trace)
    same("folded", sum(folded("f").values()), verified)
    with open("s", encoding="utf-8") as f:
        scope = json.load(f)
    same("speedscope", sum(sum(p["weights"]) for p in scope["profiles"]), verified)
    for p in scope["profiles"]:
        same("speedscope's end", sum(p["weights"]), p["endValue"])
        if any(i >= len(scope["shared"]["frames"]) for s in p["samples"] for i in s):
            fail("speedscope: there is no such frame")
    with open("c", encoding="utf-8") as f:
        same("callgrind's summary", re.search(r"^summary: (\d+)", f.read(), re.M).group(1),
             str(verified))
    # inclusive: not more than all, not less than self, and main has what it is called from
    for r in functions["functions"]:
        if not r["self"] <= r["inclusive"] <= verified:
            fail("inclusive of %s: %d, self %d" % (r["function"], r["inclusive"], r["self"]))
    # parts of the history add up: of one thread, and of all at a position of one
    tids = [t["tid"] for t in functions["threads"]]
    one = functions["threads"][1]["instructions"]
    same("one thread", total(profile("--thread", str(tids[1]), trace)), one)
    same("the others", sum(total(profile("--thread", str(t), trace)) for t in tids), verified)
    for position in ("40:3@%d" % tids[0], "60:0", "50000"):
        before = profile("--to", position, trace)
        after = profile("--from", position, trace)
        same("up to %s and from there" % position, total(before) + total(after), verified)
        both = collections.Counter()
        for r in before + after:
            both[r["function"], r["module"]] += r["self"]
        whole = collections.Counter()
        for r in functions["functions"]:
            whole[r["function"], r["module"]] += r["self"]
        same("functions up to %s and from there" % position, dict(+both), dict(+whole))
    # the same with one processor
    run = subprocess.run(["taskset", "-c", "0", DEJA, "profile", "--json", "--threads", trace],
                         capture_output=True, text=True, check=False)
    same("on one processor", json.loads(run.stdout), functions)


# ---- paths


def check_paths(trace):
    """What is below what, with coroutines, an alternate stack, longjmp and tail calls."""
    deja("profile", "--folded", "f", trace)
    callers = collections.defaultdict(set)
    paths = folded("f")
    for path in paths:
        for caller, callee in zip(path, path[1:]):
            callers[callee].add(caller)
        if path.count("main") > 1:
            fail("main is below itself: " + ";".join(path))
    def called(name, want):
        same("callers of " + name, callers[name], want)
    called("outer", {"work"})
    called("inner", {"outer", "in_handler", "after_jump", "in_coroutine", "between", "tail"})
    called("after_jump", {"main"})
    called("between", {"main"})
    called("tail", {"main"})
    called("in_coroutine", {"coroutine"})
    called("in_handler", {"handler"})
    called("work", {"start_thread"})
    # frames of another stack are not below those of this one
    for path in paths:
        if "coroutine" in path and "main" in path:
            fail("a coroutine is part of main's stack: " + ";".join(path))
    # a handler lies above what it interrupted, on whatever stack it runs
    for path in paths:
        if "in_handler" in path and "main" not in path:
            fail("a handler lies above nothing: " + ";".join(path))
    same("deepest of deep", max(p.count("deep") for p in paths), 11)
    rows = {r["function"]: r for r in profile(trace)}
    calls = {"inner": 120 + 1 + 1 + 4 + 3 + 1, "outer": 60, "deep": 11, "in_coroutine": 2,
             "between": 3, "in_handler": 1, "tail": 1, "work": 3}
    for name, n in calls.items():
        same("calls of " + name, rows[name]["calls"], n)
    # declared calls: what begins with a loop's branch
    marked = profile("--call", "inner", "--by", "path", trace)
    if len(marked) <= len(profile("--by", "path", trace)):
        fail("--call makes no difference")
    # a stack that is not deep enough says so, and loses no instruction
    text = deja("profile", "--depth", "5", trace)
    if "beyond --depth" not in text:
        fail("--depth 5 is not mentioned: " + text[-300:])
    same("with --depth", total(profile("--depth", "5", trace)), total(profile(trace)))


# ---- page


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.now, self.words = collections.defaultdict(list), [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in ("meta", "input", "link", "br"):
            self.now.append((tag, attrs))
        for key in ("src", "href"):
            if key in attrs:
                fail("the page refers to " + attrs[key])
        if tag == "link":
            fail("the page has a link")
        self.rows[tag].append(attrs)

    def handle_endtag(self, tag):
        if self.now:
            self.now.pop()

    def handle_data(self, data):
        if self.now and self.now[-1][0] not in ("script", "style"):
            self.words.append((self.now[-1][1].get("id"), data))


def browse(name, fragment):
    out = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu",
                          "--user-data-dir=" + os.path.abspath("chromium"),
                          "--virtual-time-budget=2000", "--dump-dom",
                          "file://%s#%s" % (os.path.abspath(name), fragment)],
                         capture_output=True, text=True, check=False, timeout=120)
    page = Page()
    page.feed(out.stdout)
    if not out.stdout:
        fail("the browser says nothing: " + out.stderr[-300:])
    return page


def boxes(page):
    return {a["title"].split(" ")[0]: a for a in page.rows["div"] if "data-node" in a}


def check_page(name):
    """Its script has drawn it: the threads, all paths, a search, a part of the graph."""
    with open(name, encoding="utf-8") as f:
        if re.search(r"https?:|//[a-z]+\.[a-z]|@import|url\(", f.read()):
            fail("the page refers to something outside itself")
    page = browse(name, "search=inner")
    have = boxes(page)
    same("lanes", sum(a.get("class") == "lane" for a in page.rows["div"]), 4)
    same("signals", sum("signal" in a.get("class", "") for a in page.rows["b"]), 1)
    if sum(a.get("title", "").startswith("getppid at ") for a in page.rows["b"]) != 12:
        fail("the system calls of the threads are not on the time line")
    for function in ("main", "work", "outer", "inner"):
        if function not in have:
            fail("the flame graph does not show " + function)
    same("found", {k for k, a in have.items() if "found" in a.get("class", "")}, {"inner"})
    matched = "".join(w for i, w in page.words if i == "matched")
    if not re.match(r"found in [1-9][0-9.]*%", matched):
        fail("the search says " + repr(matched))
    if not any("profile-threads.c:" in w for _, w in page.words):
        fail("there are no hot lines of the program")
    work = have["outer"]["data-node"]
    zoomed = boxes(browse(name, "zoom=" + work))
    if zoomed.get("outer", {}).get("style", "").find("width: 100%") < 0:
        fail("zooming does not make it wide: %s" % zoomed.get("outer"))
    if "main" in zoomed or "inner" not in zoomed or "work" not in zoomed:
        fail("zoomed to outer there are %s" % sorted(zoomed))
    check_times(page)
    check_keys(name)


def check_times(page):
    """The time line is one of time: it has a scale, and each thread's events are in their order on it,
    which is that of their positions."""
    if not any(re.match(r"[0-9.]+ s$", w) for _, w in page.words):
        fail("the time line has no scale")
    by_thread = collections.defaultdict(list)
    for a in page.rows["b"]:
        m = re.match(r"\w+ at (\d+):(\d+)@(\d+), ([0-9.,]+) s$", a.get("title", ""))
        if not m:
            fail("an event is called %r" % a.get("title"))
            continue
        by_thread[m[3]].append((int(m[1]), float(m[4]), float(re.search(r"left: ([0-9.]+)%", a["style"])[1])))
    for tid, events in by_thread.items():
        same("events of %s on the line" % tid, events, sorted(events, key=lambda e: (e[0], e[1:])))
        if events[-1][2] > 100 or len(events) > 1 and events[0][1:] > events[-1][1:]:
            fail("the line of %s ends at %s" % (tid, events[-1]))


def check_keys(name):
    """What keys do: arrows choose, Enter zooms, Escape shows the whole, n goes to what was found."""
    keys = ["ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft", "Enter", "Escape", "n"]
    with open(name, encoding="utf-8") as f:
        text = f.read()
    with open("keys.html", "w", encoding="utf-8") as f:
        f.write(text.replace("</body>", """<script>
const log = [], titles = w => [...$('flame').querySelectorAll(w)].map(e => e.title.split(':')[0]);
for (const key of %s) {
  $('flame').dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
  log.push([titles('.chosen'), titles('div').filter(t => t.startsWith('thread ')).length]);
}
add(document.body, 'pre', JSON.stringify(log)).id = 'log';
</script></body>""" % json.dumps(keys)))
    page = browse("keys.html", "search=inner")
    log = json.loads("".join(w for i, w in page.words if i == "log") or "[]")
    if len(log) != len(keys):
        fail("keys: %s" % log)
        return
    down, below, up, right, left, enter, escape, found = log
    same("a thread is chosen, of all", (len(down[0]), down[0][0][:7], down[1]), (1, "thread ", 4))
    same("what is below it is another", (len(below[0]), below[0] != down[0]), (1, True))
    same("up again", up, down)
    same("the next thread", (right[0] != down[0], right[0][0][:7]), (True, "thread "))
    same("and back", left, down)
    same("zoomed", enter, [down[0], 1])
    same("the whole", escape, [[], 4])
    same("found", found[0][0].split(" ")[0], "inner")


def check_stubs(trace):
    """The linker's stubs are called what objdump calls them, in profiles and backtraces."""
    program = trace.replace(".deja", "")
    out = subprocess.run(["objdump", "-d", program], capture_output=True, text=True, check=True).stdout
    theirs = set(re.findall(r"^[0-9a-f]+ <(.*@plt)>:$", out, re.M))
    ours = {r["function"] for r in profile(trace) if r["module"] == os.path.basename(program) and
            r["function"].endswith("@plt")}
    if not theirs:
        print("skipped: %s has no stubs" % program)
        return
    if "pthread_create@plt" not in ours or not ours <= theirs:
        fail("stubs: %s; objdump has %s" % (sorted(ours), sorted(theirs)))
    at = json.loads(deja("calls", "--json", "pthread_create@plt", trace))
    same("calls of a stub", len(at), 3)
    frames = json.loads(deja("backtrace", "--json", trace, at[0]["position"]))[0]["frames"]
    same("in a stub", [f["function"] for f in frames[:2]], ["pthread_create@plt", "main"])


# ---- callgrind

# What runs differently under valgrind: the dynamic linker, which valgrind takes part in; functions
# chosen by what processor there is, or that look at it; what ends a process with valgrind's own
# library loaded, and the system call that does.
DIFFERENT = re.compile(
    r"^_*(GI_)?(mem|str|wmem|wcs|rawmem|stp|bcmp|bcopy|index|rindex)"
    r"|cacheinfo|cpu_features|elision|tunable|ptmalloc_init|sysconf"
    r"|^__cxa_finalize$|unregister_atfork|^__libc_start|^__init_misc$|^_dl_|^dl_|^call_init"
    r"|^_init_first$|^_exit$|^__libc_early_init|^__run_exit_handlers$|sigsegv|^__vdso|_IO_cleanup|^getenv$")


def load_bias(path):
    """From offsets in a file to its addresses: [(offset, size, address)]."""
    out = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=False)
    return [tuple(int(x, 16) for x in (m[0], m[2], m[1])) for m in re.findall(
        r"^ +LOAD +(0x[0-9a-f]+) (0x[0-9a-f]+) 0x[0-9a-f]+ (0x[0-9a-f]+)", out.stdout, re.M)]


def read_callgrind(name):
    """Counts by object's name and address, paths of objects."""
    counts, names, paths = collections.Counter(), {}, {}
    obj, skip, at = "", False, 0
    with open(name, encoding="utf-8", errors="replace") as f:
        for line in f:
            m = re.match(r"c?ob=\((\d+)\)(?: (.*))?", line)
            if m:
                if m.group(2):
                    names[m.group(1)] = m.group(2)
                if line.startswith("ob="):
                    path = names[m.group(1)]
                    obj = os.path.basename(path)
                    paths[obj] = path
            elif line.startswith("calls="):
                skip = True
            elif re.match(r"0x|\+|\*|-", line):
                words = line.split()
                at = (int(words[0], 16) if words[0].startswith("0x") else
                      at if words[0] == "*" else
                      at + int(words[0], 0))
                if skip:
                    skip = False
                elif len(words) > 2:
                    counts[obj, at] += int(words[2])
    return counts, paths


def check_callgrind(name):
    theirs, paths = read_callgrind(name + ".cg")
    reps = {(r["module"], r["place"]): r for r in json.loads(deja("rep", "--json", name + ".deja"))}
    ours, functions = collections.Counter(), {}
    for r in profile("--by", "instruction", name + ".deja"):
        if r["module"] not in paths:
            continue
        for offset, size, addr in load_bias_of(paths[r["module"]]):
            if offset <= r["offset"] < offset + size:
                key = r["module"], r["offset"] - offset + addr
                rep = reps.get((r["module"], r["place"]))
                # callgrind counts a REP instruction once for each iteration, and once at the end
                ours[key] = r["count"] + (rep["done"] if rep else 0)
                functions[key] = r["place"].rsplit("+", 1)[0]
    compared, other, equal = set(), collections.defaultdict(list), 0
    for key in set(ours) | set(theirs):
        module = key[0]
        if module.startswith(("ld-linux", "vgpreload", "???")) or not module:
            continue
        function = functions.get(key)
        if function is None or key not in theirs:
            # nameless: the linker's stubs and what ends a program; callgrind has them elsewhere
            if function and not function.endswith("@plt") and not function.startswith(("?? ", "_init", "_fini", "_start",
                                                     "__do_global", "frame_dummy", "register_tm",
                                                     "deregister_tm")):
                other[module, function].append((hex(key[1]), theirs[key], ours[key]))
            continue
        compared.add((module, function))
        if ours[key] == theirs[key]:
            equal += ours[key]
        else:
            other[module, function].append((hex(key[1]), theirs[key], ours[key]))
    for (module, function), places in sorted(other.items()):
        if DIFFERENT.search(function) or (function.startswith("?? (libc") and
                                          len(places) < 20):
            continue
        fail("%s: %s of %s: %d places, such as at %s: callgrind %d, deja %d" %
             ((name, function, module, len(places)) + places[0]))
    print("%s: %d functions compared, %d the same, %d instructions in those" %
          (name, len(compared), len(compared - set(other)), equal))
    if len(compared) < 50 or equal < 0.6 * sum(
            n for (m, _), n in ours.items() if not m.startswith("ld-linux")):
        fail("%s: too little could be compared: %d" % (name, equal))


BIASES = {}


def load_bias_of(path):
    if path not in BIASES:
        BIASES[path] = load_bias(path)
    return BIASES[path]


def check_inlined(trace):
    """Functions that were inlined have what is theirs, and the others what is left."""
    every, all_plain = profile("--by", "inlined", trace), profile(trace)
    rows = {r["function"]: r for r in every if r["module"] == "inline"}
    plain = {r["function"]: r for r in all_plain if r["module"] == "inline"}
    leaf, inner, outer = rows["leaf"], rows["inner (inlined)"], rows["outer (inlined)"]
    one, two = rows["one"], rows["two"]
    same("all of it", total(every), total(all_plain))
    same("leaf", leaf, plain["leaf"])
    same("calls of what is inlined", [inner["calls"], outer["calls"]], [None, None])
    same("inner", inner["inclusive"], inner["self"] + leaf["inclusive"])
    # of all that inner executed, what two has of its own lies in two
    same("one and two", one["self"] + two["self"] + outer["self"] + inner["self"] + leaf["self"],
         one["inclusive"] + two["inclusive"])
    same("as they were", [one["inclusive"], two["inclusive"]],
         [plain["one"]["inclusive"], plain["two"]["inclusive"]])
    same("what they lost", one["self"] + two["self"] + outer["self"] + inner["self"],
         plain["one"]["self"] + plain["two"]["self"])
    if not outer["self"] < outer["inclusive"] < one["inclusive"] + two["inclusive"]:
        fail("outer: %s" % outer)
    # the lines of a function are in nobody else
    text = open(os.path.join(os.path.dirname(__file__), "profile-inline.c"), encoding="utf-8").read().split("\n")
    first = next(i for i, l in enumerate(text, 1) if "void inner(" in l)
    last = next(i for i in range(first, len(text)) if text[i - 1] == "}")
    lines = [(int(r["line"].split(":")[1]), r["self"]) for r in profile("--by", "line", trace)
             if (r["line"] or "").startswith("profile-inline.c:")]
    same("inner by line", sum(n for line, n in lines if first <= line <= last), inner["self"])


{"sums": check_sums, "inlined": check_inlined, "paths": check_paths, "stubs": check_stubs, "page": check_page,
 "callgrind": check_callgrind, "deep": check_deep}[sys.argv[1]](sys.argv[2])
sys.exit(failures != 0)
