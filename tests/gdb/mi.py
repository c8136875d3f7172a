#!/usr/bin/env python3
# A session of gdb's machine interface: commands one by one, each when the last one is done, or when
# the program has stopped if it made it run (gdb manual, "GDB/MI Output Syntax").
#
# usage: mi.py TARGET PROGRAM COMMAND...
import subprocess
import sys

gdb = subprocess.Popen(["gdb", "-nx", "-q", "--interpreter=mi3", sys.argv[2]], text=True,
                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(command):
    gdb.stdin.write(command + "\n")
    gdb.stdin.flush()
    runs = False
    for line in gdb.stdout:
        print(line, end="")
        if line.startswith("^running"):
            runs = True
        elif line.startswith("^") or (runs and line.startswith("*stopped")):
            return


run("-target-select " + sys.argv[1])
for command in sys.argv[3:]:
    run(command)
gdb.stdin.write("-gdb-exit\n")
gdb.stdin.close()
gdb.wait()
