"""Runs in gdb, on a recording: at random positions, gdb's frames against those of deja backtrace.

Of the environment: DEJA, TRACE, POSITIONS, SEED. Prints a line that begins with DIFFERENT for each
position at which they differ, and at the end how many frames were compared.
"""
import json
import os
import random
import re
import subprocess

import gdb

deja, trace = os.environ["DEJA"], os.environ["TRACE"]
random.seed(int(os.environ["SEED"]))


def gdb_frames():
    """(pc, name, inlined) of the frames that are on the stack, not gone by a tail call."""
    frames, frame = [], gdb.newest_frame()
    while frame is not None and len(frames) < 200:
        if frame.type() != gdb.TAILCALL_FRAME:
            frames.append((frame.pc(), frame.name(), frame.type() == gdb.INLINE_FRAME))
        try:
            frame = frame.older()
        except gdb.error:
            break
        if frames and frames[-1][1] in ("_start", "_dl_start_user"):
            break  # nobody called it; gdb may go on and guess
    return frames


def deja_frames(position):
    out = subprocess.run([deja, "backtrace", "--json", "--limit", "200", trace, position],
                         check=True, capture_output=True, text=True).stdout
    return [(f["pc"], f["function"], f["inlined"]) for f in json.loads(out)[0]["frames"]]


def plausible(pc, executable):
    return any(start <= pc < end for start, end in executable)


def described(pc, mappings, known={}):
    """Whether an unwind table says anything of the code there: of crtstuff's functions none does."""
    for start, end, path in mappings:
        if start <= pc < end:
            break
    else:
        return True
    if path not in known:
        out = subprocess.run(["readelf", "-W", "--debug-dump=frames", path], capture_output=True,
                             text=True).stdout
        known[path] = [(int(a, 16), int(b, 16))
                       for a, b in re.findall(r" FDE .* pc=([0-9a-f]+)\.\.([0-9a-f]+)", out)]
    base = min(m[0] for m in mappings if m[2] == path)
    return not known[path] or any(a <= pc - base < b for a, b in known[path])


def address(name):
    try:
        return int(gdb.parse_and_eval("(unsigned long)&'%s'" % name))
    except gdb.error:
        return None


def bare(name):
    """Of a function: without parameters, template arguments, versions, parts and aliases."""
    name = re.sub(r"\(anonymous namespace\)", "", name)
    name = re.sub(r"\[abi:.*?\]|@.*|\.(cold|part|constprop|isra|localalias).*", "", name)
    while re.search(r"<[^<>]*>", name):
        name = re.sub(r"<[^<>]*>", "", name)
    name = name.split("(")[0].split(" ")[-1].split("::")[-1]
    name = re.sub(r"^(__GI_)?_*(libc_)?", "", name)
    return name.replace("memcpy", "memmove")  # one code with two names


def same_name(pc, a, b):
    """A function may have several names: gdb knows one by its debug information, one by symbols."""
    if a is None or b is None or bare(a) == bare(b) or address(a) == address(b) is not None:
        return True
    symbol = gdb.execute("info symbol %#x" % pc, to_string=True)
    return bare(symbol.split(" in section")[0].split(" + ")[0]) == bare(b)


for setting in ("pagination off", "backtrace past-main on", "backtrace past-entry on",
                "debuginfod enabled off"):
    gdb.execute("set " + setting, to_string=True)
info = json.loads(subprocess.run([deja, "info", "--json", trace], check=True, capture_output=True,
                                 text=True).stdout)
total = info["instructions"]
different = frames = deepest = 0
names = inlined = guesses = 0
for _ in range(int(os.environ["POSITIONS"])):
    position = str(random.randrange(total))
    gdb.execute("monitor goto " + position, to_string=True)
    g, d = gdb_frames(), deja_frames(position)
    # where there are neither symbols nor tables gdb guesses, until there is no code any more
    ranges = re.findall(r"^\s*(0x[0-9a-f]+)\s+(0x[0-9a-f]+)\s.*\s[r-][w-]x",
                        gdb.execute("info proc mappings", to_string=True), re.MULTILINE)
    executable = [(int(a, 16), int(b, 16)) for a, b in ranges]
    mappings = [(int(a, 16), int(b, 16), path) for a, b, path in re.findall(
        r"^\s*(0x[0-9a-f]+)\s+(0x[0-9a-f]+)\s.*\s(/\S+)\s*$",
        gdb.execute("info proc mappings", to_string=True), re.MULTILINE)]
    # behind code that no table describes both guess, each in its own way
    for i in range(min(len(g), len(d))):
        if not described(g[i][0] - (i > 0), mappings):
            guesses += max(len(g), len(d)) > i + 1
            g, d = g[:i + 1], d[:i + 1]
            break
    while len(g) > len(d) and g[-1][1] is None and not plausible(g[-1][0], executable):
        g.pop()
    frames += len(g)
    deepest = max(deepest, len(g))
    names += sum(1 for a, b in zip(g, d) if a[1] and b[1])
    inlined += sum(1 for f in g if f[2])
    if [(f[0], f[2]) for f in g] != [(f[0], f[2]) for f in d] or not all(
            same_name(a[0], a[1], b[1]) for a, b in zip(g, d)):
        different += 1
        print("DIFFERENT at %s:" % position)
        for i in range(max(len(g), len(d))):
            print("  gdb %-60s deja %s" % tuple(
                "%#x %s %s" % x[i] if i < len(x) else "-" for x in (g, d)))
print("compared %d frames, %d inlined, %d names; deepest stack %d; %d guessed; %d positions differ"
      % (frames, inlined, names, deepest, guesses, different))
