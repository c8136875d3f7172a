#!/usr/bin/python3
"""Check that no room includes what the table in doc/README.md does not allow.

usage: tests/lib/check-includes.py [-v]

The table follows the heading "What may include what": a room, and the headers of other rooms that its
sources may include (`format/*` stands for all of a room). Every directory with sources is
either in the table or among those that may include everything.

Exit status 0 if all is as the table says, else 1 with one line for each that is not. With -v, what
each room includes.
"""
import fnmatch
import os
import re
import sys

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
FREE = {"tests", "fuzz", "bench"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as f:
        return f.read()


def table(text):
    """{room: [patterns]} of the page."""
    section = text.split("### What may include what", 1)[1]
    rows = {}
    for line in section.split("\n"):
        m = re.match(r"\| `(\w+)/` \|(.*)\|$", line)
        if m:
            rows[m.group(1)] = re.findall(r"`([^`]+)`", m.group(2))
        elif rows and not line.startswith("|"):
            break
    return rows


def includes():
    """(room, file, header) of every include of a header of ours."""
    for room in sorted(os.listdir(TOP)):
        where = os.path.join(TOP, room)
        if room.startswith((".", "build")) or not os.path.isdir(where):
            continue
        for name in sorted(os.listdir(where)):
            if name.endswith((".c", ".h", ".S")):
                for header in INCLUDE.findall(read(room, name)):
                    yield room, "%s/%s" % (room, name), header


def judge(rows, found, verbose=False):
    """One line for everything that is wrong."""
    bad = []
    for room, name, header in found:
        if room in FREE or header == "config.h":
            continue
        if room not in rows:
            bad.append("%s: the table has no room %s" % (name, room))
            continue
        if header.split("/")[0] == room:
            continue
        if not any(fnmatch.fnmatchcase(header, p) for p in rows[room]):
            bad.append("%s: %s/ may not include %s" % (name, room, header))
        elif verbose:
            print("%s: %s" % (name, header))
    return bad


def self_test():
    rows = table("### What may include what\n\n| room | may include |\n|---|---|\n"
                 "| `a/` | |\n| `b/` | `a/*` `c/x.h` |\n\n| `d/` | |\n")
    assert rows == {"a": [], "b": ["a/*", "c/x.h"]}, rows
    right = [("b", "b/1.c", "a/y.h"), ("b", "b/2.c", "c/x.h"), ("a", "a/1.c", "a/1.h"),
             ("tests", "tests/1.c", "b/1.h")]
    assert not judge(rows, right), judge(rows, right)
    for wrong in (("a", "a/1.c", "b/1.h"), ("b", "b/1.c", "c/y.h"), ("e", "e/1.c", "e/1.h"),
                  ("a", "a/1.c", "plain.h")):
        assert len(judge(rows, right + [wrong])) == 1, wrong


self_test()
rows = table(read("doc", "README.md"))
bad = judge(rows, includes(), sys.argv[1:] == ["-v"])
print("\n".join(bad) if bad else "%d rooms include what doc/README.md allows" % len(rows))
sys.exit(1 if bad or not rows else 0)
