#!/usr/bin/python3
"""At a terminal, under a shell with job control, a command is stopped by ^Z and goes on with fg and bg, is
ended by a signal in the background, and once more by ^C. The command says "ready", and "continued" whenever it
gets SIGCONT, and dies of signals. Prints the first thing that does not come to pass; else "as it should be".
usage: job-control.py COMMAND..."""
import os
import pty
import re
import select
import shlex
import sys
import time

PATIENCE = 100  # seconds, for each thing

pid, terminal = pty.fork()
if pid == 0:
    os.environ["PS1"] = "prompt> "
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
shown = b""


def expect(what):
    """Until the terminal shows that; what comes before it is gone."""
    global shown
    end = time.monotonic() + PATIENCE
    while True:
        found = re.search(what, shown)
        if found:
            shown = shown[found.end():]
            return
        data = b""
        if select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:
                pass
        if not data:
            print("no", what, "but", shown[-500:])
            sys.exit(1)
        shown += data


def write(text):
    os.write(terminal, text.encode())


command = " ".join(shlex.quote(word) for word in sys.argv[1:]) + "\n"
expect(rb"prompt> ")
write(command)
expect(rb"ready\r\n")
for _ in range(3):
    write("\x1a")
    expect(rb"Stopped")
    write("jobs | wc -l; fg\n")
    expect(rb"1\r\n(.*\r\n)*continued\r\n")
write("\x1a")
expect(rb"Stopped")
write("bg\n")
expect(rb"continued\r\n")
write("kill -TERM %1; wait %1; echo status $?\n")
expect(rb"status 143\r\n")
write(command)
expect(rb"ready\r\n")
write("\x03")
write("\necho status $?\n")
expect(rb"status 130\r\n")
write("exit\n")
os.waitpid(pid, 0)
print("as it should be")
