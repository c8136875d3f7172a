#!/usr/bin/python3
"""Check that every file of ours which documentation or a comment names exists.

usage: tests/lib/check-paths.py [--self-test]

Looked at are the manual pages, *.md, and the comments of sources, scripts and tables. A name is

  - what begins with one of our directories and a slash (`*` stands for anything in it, and so
    does a word in capitals, as in cli/cmd-NAME.c);
  - a file name alone that ends in .c, .h or .S: some directory must have it;
  - the target of a link in *.md, relative to the page.

Exit status 0 if all exist, else 1 with one line for each that does not.
"""
import fnmatch
import glob
import os
import re
import sys

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
SKIP = re.compile(r"^(\.git|build.*|autom4te\.cache|m4|build-aux|bench-work|corpus-.*|deja-[0-9.]+|"
                  r"configure~?|aclocal\.m4|Makefile\.in|.*\.orig|.*\.log)$")
LINE_COMMENTS = (".py", ".sh", ".am", ".ac", ".tsv", ".gdb")
# Names of other people's files, and names that stand for any file.
STRANGERS = {"s.h", "a.c"}


def tree():
    """All files below the top, relative to it, but for what is built."""
    found = []
    for where, dirs, files in os.walk(TOP):
        dirs[:] = sorted(d for d in dirs if not SKIP.match(d))
        found += [os.path.relpath(os.path.join(where, f), TOP)
                  for f in sorted(files) if not SKIP.match(f)]
    return found


def prose(name, text):
    """The part of a file that people read, with line numbers kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    if name.endswith((".md", ".1", ".5")):
        return text.replace("\\-", "-").replace("\\/", "/")
    if name.endswith((".c", ".h", ".S", ".cc")):
        parts, at = [], 0
        for m in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.S):
            parts += [re.sub(r"[^\n]", " ", text[at:m.start()]), m.group(0)]
            at = m.end()
        return "".join(parts) + re.sub(r"[^\n]", " ", text[at:])
    if name.endswith(LINE_COMMENTS) or text.startswith("#!"):
        text = re.sub(r"^[^#\n]*$", "", text, flags=re.M)
        return re.sub(r"^[^#\n]+(?=#)", blank, text, flags=re.M)
    return ""


def names(text, dirs):
    """(line, name) of all that looks like a file of ours."""
    ours = r"(?<![\w./$<-])(?:%s)/[\w*./-]*[\w*]" % "|".join(map(re.escape, dirs))
    alone = r"(?<![\w./$*<-])[a-z][\w*-]*\.[chS](?![\w-])"
    for number, line in enumerate(text.split("\n"), 1):
        for m in re.finditer("%s|%s" % (ours, alone), line):
            yield number, m.group(0)


def exists(name, files):
    if name in STRANGERS or os.path.exists(os.path.join(TOP, name)):
        return True
    pattern = re.sub(r"\b[A-Z]+\b", "*", name)
    if "/" not in name:
        return any(fnmatch.fnmatchcase(os.path.basename(f), pattern) for f in files)
    return bool(glob.glob(os.path.join(TOP, pattern)) or
                glob.glob(os.path.join(TOP, pattern + ".*")))


def missing(name, text, files):
    """One line for each name in the text that no file has."""
    dirs = sorted({f.split("/")[0] for f in files if "/" in f and not f.startswith(".")})
    bad = ["%s:%d: there is no %s" % (name, number, what)
           for number, what in names(prose(name, text), dirs) if not exists(what, files)]
    if name.endswith(".md"):
        for m in re.finditer(r"\]\(([^)#:]+)(#[^)]*)?\)", text):
            target = os.path.normpath(os.path.join(os.path.dirname(name), m.group(1)))
            if not os.path.exists(os.path.join(TOP, target)):
                bad.append("%s:%d: the link %s leads nowhere" %
                           (name, text.count("\n", 0, m.start()) + 1, m.group(1)))
    return bad


def self_test(files):
    """What must be found is found, and what is right is let through."""
    wrong = {"a.md": "see `emu/no-such-file.c` and [this](no-such-page.md)",
             "a.c": "int x; /* as in\n * no-such-file.c */",
             "a.py": "x = 1  # tests/no-such-script.py does this"}
    right = {"a.md": "emu/emu.c, `insn/insn-table-*.c`, [this](README.md), emu/, foo/bar.c",
             "a.c": '#include "no-such-file.h"\n/* emu.h; cli/deja.c. */',
             "a.py": 'x = "emu/no-such-file.c"'}
    count = {n: len(missing(n, t, files)) for n, t in wrong.items()}
    assert count == {"a.md": 2, "a.c": 1, "a.py": 1}, count
    for n, t in right.items():
        assert not missing(n, t, files), missing(n, t, files)


def main():
    files = tree()
    me = os.path.relpath(os.path.abspath(__file__), TOP)
    self_test(files)
    if sys.argv[1:] == ["--self-test"]:
        return 0
    bad = []
    for name in files:
        if name == me:  # its examples of wrong names
            continue
        try:
            with open(os.path.join(TOP, name), encoding="utf-8") as f:
                text = f.read()
        except (UnicodeDecodeError, OSError):
            continue
        bad += missing(name, text, files)
    print("\n".join(bad) if bad else "every file that is named exists")
    return 1 if bad else 0


sys.exit(main())
