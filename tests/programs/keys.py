#!/usr/bin/python3
"""Run a program on a terminal and type into it; for rows of tests/programs with the option driver.

usage: keys.py KEYS COMMAND...

The command in the environment variable RECORD, which may be empty, is put before COMMAND. KEYS is
sent a piece at a time, when the program has been quiet for a moment, the first one not before it has
set up the terminal and drawn something; pieces are separated by "|", and \\e, \\r and \\xNN mean what
they mean in C. What the program draws is not shown, as it depends on
time; prints its exit status, and whether the terminal was left as it was.
"""
import ast
import os
import pty
import select
import shlex
import signal
import sys
import termios
import time

LIMIT = 60 * int(os.environ.get("SLOW", 1))


def main():
    pieces = [ast.literal_eval("b'%s'" % p.replace("\\e", "\\x1b").replace("'", "\\'"))
              for p in sys.argv[1].split("|")]
    argv = shlex.split(os.environ.get("RECORD", "")) + sys.argv[2:]
    pid, master = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execvp(argv[0], argv)
    before = termios.tcgetattr(master)
    end, quiet, drawn, ready, status = time.monotonic() + LIMIT, 0, 0, False, None
    while status is None:
        if time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            print("keys.py: not finished after %d s" % LIMIT, file=sys.stderr)
            return 98
        # quiet for a third of a second after it has drawn something; a slow start is no quiet
        if select.select([master], [], [], 0.05)[0]:
            try:
                got = os.read(master, 65536)
            except OSError:
                got = b""
            if not got:
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                break
            drawn, quiet = drawn + len(got), 0
        elif not ready:
            ready = drawn > 0 and termios.tcgetattr(master) != before
        else:
            quiet += 1
            if pieces and drawn and quiet >= 7:
                os.write(master, pieces.pop(0))
                drawn = quiet = 0
            elif pieces and quiet >= 100:  # nothing is drawn, not even in five seconds
                os.write(master, pieces.pop(0))
                quiet = 0
        if not pieces:
            done, how = os.waitpid(pid, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(how)
    print("status", status)
    try:
        print("terminal", "as before" if termios.tcgetattr(master) == before else "changed")
    except termios.error:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
