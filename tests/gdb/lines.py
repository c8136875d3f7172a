# In gdb, on a trace: step back by lines from positions at random, with what deja tells the stub about
# lines and without it. It must end in the same places, and with it gdb must ask for fewer steps.
# POSITIONS says how many positions, SEED which, BREAKS in which functions.
# gdb is started with "set remotelogfile".
import os
import random
import re

import gdb

seed = int(os.environ.get("SEED", "1"))
random.seed(seed)
positions = int(os.environ.get("POSITIONS", "25"))
log = gdb.parameter("remotelogfile")
asked = {True: 0, False: 0}
stepped = differ = 0


def hooks(lines):
    for command in "step", "next":
        gdb.execute("define hook-reverse-%s\n_deja-selected%s\nend" % (command, " lines" if lines else ""))


def try_to(command):
    try:
        return gdb.execute(command, to_string=True)
    except gdb.error as e:
        return str(e)


def place():
    try:
        frame = gdb.newest_frame()
        sal = frame.find_sal()
        where = "%#x %s %s" % (frame.pc(), frame.name(), sal.line if sal.symtab else "")
    except gdb.error as e:
        where = str(e)
    return "%s %s" % (try_to("monitor when").strip(), where)


def walk(start, commands, lines):
    hooks(lines)
    try_to("set scheduler-locking replay")
    try_to("delete")
    try_to("monitor begin")
    try_to("monitor goto %s" % start)
    before, said = os.path.getsize(log), []
    for command in commands:
        try_to(command)
        said.append(place())
    with open(log) as f:
        f.seek(before)
        asked[lines] += f.read().count("$bs#")
    return said


gdb.execute("set pagination off")
for function in os.environ["BREAKS"].split():
    gdb.execute("break " + function)
starts = []
while len(starts) < positions:
    if "exit" in try_to("continue") or not gdb.selected_thread():
        try_to("monitor begin")
        continue
    try_to("stepi %d" % random.randrange(1, 60))
    starts.append(try_to("monitor when").strip())
gdb.execute("delete")
for start in starts:
    commands = []
    for _ in range(random.randrange(3, 9)):
        commands += random.choice([["reverse-next"], ["reverse-next"], ["reverse-step"], ["reverse-step"], ["reverse-next 3"],
                                   ["reverse-stepi"], ["reverse-stepi 3"], ["set exec-direction reverse", "stepi 4",
                                    "next", "set exec-direction forward"], ["reverse-finish"], ["step"], ["up", "reverse-next"],
                                   ["set scheduler-locking on"], ["set scheduler-locking step"],
                                   ["break %s" % random.choice(os.environ["BREAKS"].split())], ["delete"],
                                   ["reverse-next nonsense", "reverse-stepi 5"], ["thread 2"]])
    without, with_lines = (walk(start, commands, lines) for lines in (False, True))
    stepped += len(commands)
    for command, one, other in zip(commands, without, with_lines):
        if one != other:
            differ += 1
            print("from %s, SEED=%d, %s: %s comes to %s, with lines to %s" % (start, seed, commands, command, one, other))
            break
print("%d starts, %d commands, %d differ, %d requests for a step, %d without lines" %
      (len(starts), stepped, differ, asked[True], asked[False]))
