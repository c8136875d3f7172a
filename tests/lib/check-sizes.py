#!/usr/bin/python3
"""No source file above 600 lines, no function above 80, unless it says why.

usage: tests/lib/check-sizes.py      from anywhere; exit status 1 on a complaint

The reason stands in a comment, as a sentence that begins with "Long:": for a file in the comment that
it opens with, for a function in the comment above it. Tables (insn/insn-table*) and what belongs to the
tests may be as long as they are.

Functions are found by how clang-format lays them out: a brace of its own at the beginning of a line,
and the next one that closes there. The lines in between count.
"""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILE, FUNCTION = 600, 80
FREE = {"tests", "fuzz", "bench"}
TABLE = re.compile(r"insn/insn-(table.*|ids\.h)")


def sources():
    for where, dirs, files in os.walk(TOP):
        dirs[:] = [d for d in dirs if not d.startswith((".", "build")) and
                   not os.path.exists(os.path.join(where, d, "config.status"))]
        for name in sorted(files):
            path = os.path.relpath(os.path.join(where, name), TOP)
            if name.endswith((".c", ".h", ".S")) and path.split(os.sep)[0] not in FREE and \
                    not TABLE.fullmatch(path):
                yield path


def comment_above(lines, at):
    """The comment that ends right above the function whose opening brace is lines[at]."""
    while at and lines[at - 1].strip() and not lines[at - 1].rstrip().endswith("*/"):
        at -= 1  # the declaration, over several lines perhaps
    text = []
    while at and lines[at - 1].strip():
        at -= 1
        text.insert(0, lines[at])
        if lines[at].lstrip().startswith("/*"):
            break
    return "".join(text)


def main():
    complaints, files, functions = [], 0, 0
    for path in sources():
        with open(os.path.join(TOP, path)) as f:
            lines = f.readlines()
        files += 1
        opening = "".join(lines).split("*/", 1)[0]
        if len(lines) > FILE and "Long:" not in opening:
            complaints.append("%s: %d lines, more than %d" % (path, len(lines), FILE))
        begin = None
        for i, line in enumerate(lines):
            if line == "{\n":
                begin = i
            elif line == "}\n" and begin is not None:
                functions += 1
                length = i - begin - 1
                if length > FUNCTION and "Long:" not in comment_above(lines, begin):
                    complaints.append("%s:%d: a function of %d lines, more than %d" %
                                      (path, begin + 1, length, FUNCTION))
                begin = None
    if files < 50 or functions < 500:
        raise SystemExit("check-sizes.py: found next to no sources: is this the source tree?")
    for c in complaints:
        print(c)
    return 1 if complaints else 0


sys.exit(main())
