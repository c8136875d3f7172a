"""The programs that are measured: one row each.

A row says how to run the program with a given amount of work ("units": rounds, bytes, whatever
grows the run in proportion), how many units to try first, and which Debian package it is from.
The harness finds the number of units that takes long enough on the machine at hand.
"""

import os
import shutil
import subprocess

from inputs import MIB, Unavailable, source


def tool(*names):
    """The first of these programs that is installed; absolute names keep wrappers out."""
    for name in names:
        for directory in ("/usr/bin", "/bin", "/usr/local/bin"):
            path = os.path.join(directory, name)
            if os.access(path, os.X_OK):
                return path
    path = shutil.which(names[0])
    if path:
        return path
    raise Unavailable("%s is not installed" % names[0])


def cc1():
    try:
        path = subprocess.run(["gcc", "-print-prog-name=cc1"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        raise Unavailable("gcc is not installed") from None
    if not os.path.isabs(path):
        raise Unavailable("gcc's cc1 is not installed")
    return path


def repeated(argv, path, units, size):
    """argv with `path` (of `size` bytes) as often as makes `units` bytes, at least once."""
    return argv + [path] * max(1, round(units / size))


def disassemble(units):
    """`units` bytes of code from the middle of a big program; the whole and more repeats it."""
    program = cc1()
    for line in subprocess.run([tool("objdump"), "-h", program], check=True, text=True,
                               stdout=subprocess.PIPE).stdout.splitlines():
        field = line.split()
        if len(field) > 4 and field[1] == ".text":
            size, start = int(field[2], 16), int(field[3], 16)
            break
    else:
        raise Unavailable("%s has no .text" % program)
    part = min(int(units), size)
    return repeated([tool("objdump"), "-d", "--start-address=%#x" % start,
                     "--stop-address=%#x" % (start + part)], program, units, part)


class Program:
    def __init__(self, name, package, units, argv, **environment):
        self.name = name
        self.package = package
        self.first_units = units
        self._argv = argv
        self.environment = environment

    def argv(self, inputs, units):
        return self._argv(inputs, max(1, int(units)))


PROGRAMS = [
    Program("lua", "lua5.4", 50,
            lambda i, n: [tool("lua5.4", "lua"), source("work.lua"), str(n)]),
    Program("python3", "python3", 50,
            lambda i, n: [tool("python3"), "-S", source("work.py"), str(n)],
            PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1"),
    Program("perl", "perl", 100,
            lambda i, n: [tool("perl"), source("work.pl"), str(n)],
            PERL_HASH_SEED="0", PERL_PERTURB_KEYS="0"),
    Program("sqlite3", "sqlite3", 20000,
            lambda i, n: [tool("sqlite3"), "-init", i.script("work.sql", n), ":memory:", ".quit"]),
    Program("awk", "mawk", 1000,
            lambda i, n: [tool("mawk", "gawk", "awk"), "-v", "rounds=%d" % n, "-f", source("work.awk")]),
    Program("bc", "bc", 100,
            lambda i, n: [tool("bc"), "-q", i.script("work.bc", n)]),
    Program("xz", "xz-utils", MIB // 2,
            lambda i, n: [tool("xz"), "-T1", "-c", i.text(n)]),
    Program("zstd", "zstd", 4 * MIB,
            lambda i, n: [tool("zstd"), "-9", "--single-thread", "--no-asyncio", "-q", "-c", i.text(n)]),
    Program("bzip2", "bzip2", 2 * MIB,
            lambda i, n: [tool("bzip2"), "-c", i.text(n)]),
    Program("gzip", "gzip", 2 * MIB,
            lambda i, n: [tool("gzip"), "-c", i.text(n)]),
    Program("sort", "coreutils", 4 * MIB,
            lambda i, n: [tool("sort"), "--parallel=1", "-k2,2", "-k6,6n", i.text(n)]),
    Program("sha256sum", "coreutils", 64 * MIB,
            lambda i, n: repeated([tool("sha256sum")], i.text(8 * MIB), n, 8 * MIB)),
    Program("openssl-dgst", "openssl", 128 * MIB,
            lambda i, n: repeated([tool("openssl"), "dgst", "-sha512"], i.text(8 * MIB), n, 8 * MIB)),
    Program("openssl-enc", "openssl", 128 * MIB,
            lambda i, n: [tool("openssl"), "enc", "-aes-256-cbc", "-K", "0123456789abcdef" * 4,
                          "-iv", "00" * 16, "-in", i.zeros(n), "-out", "/dev/null"]),
    Program("cc1", "gcc", 10,
            lambda i, n: [cc1(), "-quiet", "-O2", "-fpreprocessed", i.preprocessed(n), "-o", "/dev/stdout"]),
    Program("objdump", "binutils", MIB,
            lambda i, n: disassemble(n)),
    Program("c++", "g++", 100,
            lambda i, n: [i.compiled("numeric.cc", "g++"), str(n)]),
    Program("fortran", "gfortran", 500,
            lambda i, n: [i.compiled("numeric.f90", "gfortran"), str(n)]),
]
