#!/usr/bin/python3
"""The rooms keep to what doc/README.md says of them.

usage: tests/lib/check-rooms.py [BUILD-DIRECTORY]      from anywhere; exit status 1 on a complaint

The two tables below "What may include what" in doc/README.md are the rule, and are read from there:
- A source of a room includes headers of its own room, those that its row lists, and no others. What no
  row lists is private to its room. Sources that lie in no room (but tests, fuzz targets, benchmarks)
  are a complaint.
- A system header of the second table is included by the rooms that it names, and by no others.
With a build directory, the libraries there, too:
- Their public symbols begin with a prefix that the row of their room lists.
- They use no symbol of a room of which they may include nothing: a declaration written by hand would
  get around the includes.
"""
import fnmatch
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FREE = {"tests", "fuzz", "bench"}
EVERYWHERE = {"config.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
complaints = []


def complain(where, text):
    complaints.append("%s: %s" % (where, text))


def tables():
    """Of the page: rooms, as {room: (headers, prefixes)}, and system headers, as {header: rooms}."""
    with open(os.path.join(TOP, "doc", "README.md")) as f:
        text = f.read()
    part = re.search(r"^### What may include what\n(.*?)^##", text, re.MULTILINE | re.DOTALL)
    if not part:
        raise SystemExit("doc/README.md: no section \"What may include what\"")
    rooms, system = {}, {}
    for line in part.group(1).splitlines():
        cells = [re.findall(r"`([^`]+)`", c) for c in line.strip().strip("|").split("|")]
        if not line.startswith("|") or not cells[0]:
            continue
        if cells[0][0].startswith("<"):
            for header in cells[0]:
                system[header.strip("<>")] = {c.rstrip("/") for c in cells[1]}
        else:
            if len(cells) != 3:
                raise SystemExit("doc/README.md: not three columns: " + line)
            rooms[cells[0][0].rstrip("/")] = (cells[1], cells[2])
    if len(rooms) < 5 or not system:
        raise SystemExit("doc/README.md: the tables of rooms and of system headers were not found")
    return rooms, system


def sources():
    """Every C and assembler source below the top, build directories and hidden ones left out."""
    for where, dirs, files in os.walk(TOP):
        dirs[:] = [d for d in dirs if not d.startswith((".", "build")) and
                   not os.path.exists(os.path.join(where, d, "config.status"))]
        for name in sorted(files):
            if name.endswith((".c", ".h", ".S", ".cc")):
                yield os.path.relpath(os.path.join(where, name), TOP)


def check_includes(rooms, system):
    seen = 0
    for path in sources():
        room = path.split(os.sep)[0]
        if room in FREE:
            continue
        if room not in rooms:
            if os.sep in path:
                complain(path, "lies in a directory that is no room of doc/README.md")
            continue
        with open(os.path.join(TOP, path), errors="replace") as f:
            for number, line in enumerate(f, 1):
                m = INCLUDE.match(line)
                if not m:
                    continue
                seen += 1
                where, (own, foreign) = "%s:%d" % (path, number), m.groups()
                if foreign:
                    for header, users in system.items():
                        if fnmatch.fnmatch(foreign, header) and room not in users:
                            complain(where, "<%s> is for %s only" %
                                     (foreign, ", ".join(sorted(users))))
                elif own in EVERYWHERE or own.startswith(room + "/"):
                    pass
                elif "/" not in own:
                    complain(where, "\"%s\" has no path from the top" % own)
                elif own not in rooms[room][0]:
                    complain(where, "%s/ may not include %s" % (room, own))
    if seen < 100:
        raise SystemExit("check-rooms.py: found next to no includes: is this the source tree?")
    for room, (headers, _) in rooms.items():
        if not os.path.isdir(os.path.join(TOP, room)):
            complain("doc/README.md", "there is no room %s/" % room)
        for header in headers:
            if not os.path.exists(os.path.join(TOP, header)):
                complain("doc/README.md", "%s/ may include %s, which does not exist" % (room, header))


def symbols(library, *options):
    out = subprocess.run(["nm", "-g", *options, library], check=True, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    # without the symbols that compilers and sanitizers add
    return {l.split()[-1] for l in out.splitlines() if l and not l.endswith(":")
            and not l.split()[-1].startswith(("__", "DW.ref."))}


def check_symbols(rooms, build):
    defined, needed = {}, {}
    for room in rooms:
        library = os.path.join(build, "lib%s.a" % room)
        if os.path.exists(library):
            defined[room] = symbols(library, "--defined-only")
            needed[room] = symbols(library, "--undefined-only")
    if len(defined) < 4:
        raise SystemExit("check-rooms.py: %s has no libraries" % build)
    for room, names in defined.items():
        for name in sorted(names):
            if not name.startswith(tuple(rooms[room][1])):
                complain("lib%s.a" % room, "public symbol %s begins with none of: %s" %
                         (name, " ".join(rooms[room][1])))
    for room, names in needed.items():
        allowed = {h.split("/")[0] for h in rooms[room][0]} | {room}
        for other in defined:
            if other not in allowed:
                for name in sorted(names & defined[other] - defined[room]):
                    complain("lib%s.a" % room, "uses %s of %s/" % (name, other))


def main():
    rooms, system = tables()
    check_includes(rooms, system)
    if len(sys.argv) > 1:
        check_symbols(rooms, sys.argv[1])
    for c in complaints:
        print(c)
    return 1 if complaints else 0


sys.exit(main())
