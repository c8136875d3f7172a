# In gdb, on a trace: go to positions at random, and look at every argument and local variable of
# every frame and at every word of the stack. Prints how many of them are not known.
# POSITIONS says how many positions, SEED which.
import os
import random
import re

import gdb

random.seed(int(os.environ.get("SEED", "1")))
total = int(re.search(r": (\d+) instructions", gdb.execute("monitor info", to_string=True)).group(1))
positions = int(os.environ.get("POSITIONS", "100"))
count = {"frames": 0, "variables": 0, "unknown": 0, "words": 0, "unknown words": 0, "lost": 0}


def variables(frame):
    try:
        block = frame.block()
    except RuntimeError:  # no debug information
        return
    while block:
        yield from (s for s in block if s.is_variable or s.is_argument)
        if block.function:
            return
        block = block.superblock


def look_at_frames(where):
    frame = gdb.newest_frame()
    for _ in range(200):
        count["frames"] += 1
        for symbol in variables(frame):
            count["variables"] += 1
            try:
                symbol.value(frame).fetch_lazy()
            except gdb.MemoryError as e:
                count["unknown"] += 1
                print("at %d: %s of %s: %s" % (where, symbol.name, frame.name(), e))
            except gdb.error:
                pass  # no location here
        try:
            older = frame.older()
        except gdb.error as e:
            count["lost"] += 1
            print("at %d: behind %s: %s" % (where, frame.name(), e))
            return
        if older is None:
            return
        frame = older


def look_at_stack():
    sp = int(gdb.parse_and_eval("$sp"))
    for line in gdb.execute("monitor mappings", to_string=True).splitlines():
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) .*\[stack\]", line)
        if not found or not int(found.group(1), 16) <= sp < int(found.group(2), 16):
            continue
        end = int(found.group(2), 16)
        count["words"] += (end - sp) // 8
        try:
            gdb.selected_inferior().read_memory(sp, end - sp)
            continue
        except gdb.MemoryError:
            pass
        for at in range(sp, end, 8):
            try:
                gdb.selected_inferior().read_memory(at, 8)
            except gdb.MemoryError:
                count["unknown words"] += 1


for _ in range(positions):
    position = random.randrange(total)
    gdb.execute("monitor goto %d" % position, to_string=True)
    look_at_frames(position)
    look_at_stack()
print(", ".join("%d %s" % (n, what) for what, n in count.items()))
