"""Input files and compiled programs of the benchmarks, made once in a work directory.

Everything is generated from fixed seeds, so two machines with the same Debian packages run
the same work. A file that exists already is taken as it is: the name says what is in it.
"""

import os
import random
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "src")
MIB = 1 << 20


class Unavailable(Exception):
    """The program cannot run here: a package is missing. The text says which."""


def source(name):
    return os.path.join(SOURCES, name)


class Inputs:
    def __init__(self, directory):
        self.directory = directory
        os.makedirs(directory, exist_ok=True)

    def _make(self, name, write):
        path = os.path.join(self.directory, name)
        if not os.path.exists(path):
            part = path + ".part"
            write(part)
            os.rename(part, path)
        return path

    def text(self, size):
        """Lines of words with the frequencies of a natural language, and numbers between them."""
        size = max(4096, int(size) // 4096 * 4096)

        def write(path):
            letters = random.Random(1)
            words = ["".join(letters.choices("etaoinshrdlucmfwypvbgkqjxz", k=letters.randint(2, 11),
                                             weights=range(26, 0, -1))) for _ in range(20000)]
            cumulative, total = [], 0.0
            for rank in range(len(words)):
                total += 1.0 / (rank + 2)
                cumulative.append(total)
            rng = random.Random(2)
            with open(path, "wb") as f:
                while f.tell() < size:
                    picked = rng.choices(words, cum_weights=cumulative, k=100000)
                    lines = []
                    for i in range(0, len(picked), 10):
                        lines.append(" ".join(picked[i:i + 5]) + " %d " % rng.getrandbits(20) +
                                     " ".join(picked[i + 5:i + 10]))
                    f.write(("\n".join(lines) + "\n").encode())
                f.truncate(size)
        return self._make("text-%d" % size, write)

    def zeros(self, size):
        """A file with one big hole, for ciphers, to which all bytes are alike."""
        size = int(size) // 4096 * 4096 + 4096

        def write(path):
            with open(path, "wb") as f:
                f.truncate(size)
        return self._make("zeros-%d" % size, write)

    def script(self, name, rounds):
        """A script whose size is in its text: @ROUNDS@ replaced."""
        def write(path):
            with open(source(name)) as f, open(path, "w") as out:
                out.write(f.read().replace("@ROUNDS@", str(rounds)))
        base, ext = os.path.splitext(name)
        return self._make("%s-%d%s" % (base, rounds, ext), write)

    def preprocessed(self, units):
        """A preprocessed C file: the headers, then unit.h that many times."""
        def write(path):
            lines = ["#include <%s.h>" % h for h in
                     ("ctype", "math", "stddef", "stdio", "stdlib", "string")]
            for i in range(units):
                lines += ["#undef U", "#define U(x) x##_%d" % i, '#include "unit.h"']
            self._run(["gcc", "-E", "-P", "-I", SOURCES, "-x", "c", "-o", path, "-"],
                      input="\n".join(lines).encode() + b"\n")
        return self._make("unit-%d.i" % units, write)

    def compiled(self, name, compiler):
        def write(path):
            self._run([compiler, "-O2", "-o", path, source(name)])
        return self._make(name.replace(".", "-"), write)

    @staticmethod
    def _run(argv, **kw):
        try:
            subprocess.run(argv, check=True, **kw)
        except FileNotFoundError:
            raise Unavailable("%s is not installed" % argv[0]) from None
