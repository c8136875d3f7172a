#!/usr/bin/python3
"""Run a command on a terminal of its own and copy what it prints there to standard output.
The last line says whether the terminal has the settings it had before, and who is in the foreground.
usage: terminal.py COMMAND..."""
import fcntl
import os
import pty
import signal
import sys
import termios

master, slave = pty.openpty()
before = termios.tcgetattr(slave)
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in 0, 1, 2:
        os.dup2(slave, fd)
    # the shell that would wait for the command, and keeps the terminal open
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(sys.argv[1], sys.argv[1:])
    status = os.waitpid(child, 0)[1]
    same = termios.tcgetattr(0) == before
    front = os.tcgetpgrp(0) == child
    os.write(1, b"status %d, settings %s, foreground %s\n"
             % (status, b"same" if same else b"changed", b"same" if front else b"changed"))
    os._exit(0)
os.close(slave)
while True:
    try:
        data = os.read(master, 4096)
    except OSError:
        break
    if not data:
        break
    sys.stdout.buffer.write(data)
sys.exit(os.waitpid(pid, 0)[1] != 0)
