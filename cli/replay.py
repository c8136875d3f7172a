# What deja replay adds to gdb, in gdb's own Python: the host's scripts for the program's libraries,
# and the commands of gdb that mean something else, or nothing, in a recording. It is made part of
# the deja program when that is built, and read by gdb before the user's own configuration.
# doc/security.md says what a trace may not do here: everything that comes from one is text to be
# compared or printed, never code and never the name of a file to be run.

import gdb


def _deja_host_scripts(sysroot):
    """Load this host's scripts for the program's libraries, which print C++ containers, say.

    gdb would do it by itself if the files were not copies. A script may look for others beside the
    file it is for, so it is shown that name without the copies' directory. Only what belongs to
    root and cannot be written by others is run.
    """
    import os

    top = "/usr/share/gdb/auto-load"
    real = gdb.current_objfile

    class Objfile:
        def __init__(self, objfile, name):
            self.__dict__.update(_objfile=objfile, filename=name, username=name)

        def __getattr__(self, name):
            return getattr(self._objfile, name)

        def __setattr__(self, name, value):
            setattr(self._objfile, name, value)

    def load(event):
        objfile = event.new_objfile
        name = objfile.filename or ""
        if not name.startswith(sysroot + "/"):
            return
        name = name[len(sysroot):]
        script = top + name + "-gdb.py"
        if os.path.realpath(script) != script or not os.path.isfile(script):
            return
        st = os.stat(script)
        if st.st_uid != 0 or st.st_mode & 0o022:
            return
        gdb.current_objfile = lambda: Objfile(objfile, name)
        try:
            with open(script) as f:
                code = compile(f.read(), script, "exec")
            exec(code, {"__name__": "__main__", "__file__": script, "gdb": gdb})
        except Exception as e:
            print("warning: %s: %s" % (script, e))
        finally:
            gdb.current_objfile = real

    gdb.events.new_objfile.connect(load)


def _deja_monitor():
    """monitor goto and its like, as commands that move the program: gdb looks at it anew, tells its
    front end, and passes ^C on, none of which it does for monitor commands (gdbstub/monitor.c)."""

    def send(command):
        connection = gdb.selected_inferior().connection
        if not hasattr(connection, "send_packet"):
            raise gdb.GdbError("gdb is not connected to a recording")
        reply = connection.send_packet("qRcmd," + command.encode(errors="surrogateescape").hex())
        return "" if reply in (b"OK", b"") else bytes.fromhex(reply.decode()).decode(errors="replace")

    class Monitor(gdb.Command):
        """Send a command to the remote monitor: "monitor help" lists them."""

        def __init__(self):
            super().__init__("monitor", gdb.COMMAND_OBSCURE)

        def invoke(self, args, from_tty):
            words = args.split(None, 1)
            word = words[0] if words else ""
            to = words[1:] if word == "goto" else {
                "begin": ["begin"], "start": ["begin"], "restart": ["begin"], "end": ["end"],
            }.get(word, [])
            if not to:
                print(send(args), end="")
                return
            said = send("later " + to[0])
            if not said.startswith("Type stepi"):
                print(said, end="")
                return
            # backwards, and no other thread: gdb does not step this one or others off a breakpoint
            # first, after which only that may stop (proceed() and finish_step_over() of gdb 13)
            said = gdb.execute("with scheduler-locking on -- reverse-stepi", to_string=True)
            if "[deja:" in said:  # it did not get there
                print(said, end="")
            else:
                print(send("here"), end="")

    class Lines:
        """Ranges of code that gdb goes through without a thought when it steps back (gdbstub/lines.c):
        those that it takes for one line (find_pc_line() is what it asks, too), and in which it sees
        the same inlined functions."""

        NEAR = 4096  # bytes of a long function, in pieces of this size, on each side

        def __init__(self):
            self.known = {}
            self.sent = None  # to which connection, and which
            self.meant = None  # the connection whose stub expects such a command
            for event in "new_objfile", "clear_objfiles":
                getattr(gdb.events, event).connect(lambda event: self.known.clear())

        def inlined(self, pc):
            """What tells apart the inlined functions that an address is in."""
            block, depth = gdb.block_for_pc(pc), 0
            found = block and (block.start, block.end, str(block.function))
            while block and not block.is_static and not block.is_global:
                block, depth = block.superblock, depth + 1
            return found, depth

        def ranges(self, start, end):
            found, pc = [], start
            while pc < end:
                sal = gdb.find_pc_line(pc)
                if not sal.symtab or not sal.line or not sal.last or sal.last < pc:
                    pc += 1
                    continue
                beyond = min(sal.last + 1, end)
                places = [self.inlined(at) for at in range(pc, beyond)]
                edges = [pc] + [pc + i for i in range(1, len(places)) if places[i] != places[i - 1]]
                found += zip(edges, edges[1:] + [beyond])
                pc = beyond
            return found

        def around(self, pc):
            """Those of the function that holds pc, as the stub wants them, and a name for them."""
            block, function = gdb.block_for_pc(pc), None
            while block and not block.is_static and not block.is_global:
                block, function = block.superblock, block
            if not function:
                return None, ""
            start, end = function.start, function.end
            if end - start > 2 * self.NEAR:
                start = max(start, (pc // self.NEAR - 1) * self.NEAR)
                end = min(end, start + 3 * self.NEAR)
            key = start, end, str(function.function), gdb.selected_inferior().progspace.filename
            if key not in self.known:
                self.known[key] = ";".join("%x,%x" % (a, b - a) for a, b in self.ranges(start, end))
            return key, self.known[key]

        def forget(self):
            """Another command comes, which may mean single instructions: the last one may have failed."""
            connection, self.meant = self.meant, None
            if connection and connection.is_valid():
                connection.send_packet("QDejaLines:")
                self.sent = None

        def tell(self, connection):
            # where a value is watched gdb looks at each instruction; the other way round it refuses the command
            watched = any(b.type == gdb.BP_WATCHPOINT for b in gdb.breakpoints())
            refused = gdb.parameter("exec-direction") == "reverse"
            key, text = (None, "") if watched or refused else self.around(gdb.newest_frame().pc())
            if not text:
                self.forget()
                return
            now = connection, key, text
            connection.send_packet("QDejaLines" + ("" if self.sent == now else ":" + text))
            self.sent, self.meant = now, connection

    class Selected(gdb.Command):
        """Before a reverse command: tell which thread it is for, which gdb does not, and of which code
        no more is wanted than to go back through it."""

        def __init__(self):
            super().__init__("_deja-selected", gdb.COMMAND_OBSCURE)
            self.lines = Lines()

        def invoke(self, args, from_tty):
            thread = gdb.selected_thread()
            if thread and len(gdb.selected_inferior().threads()) > 1:
                send("selected %d" % thread.ptid[1])
            connection = gdb.selected_inferior().connection
            try:
                if thread and args == "lines" and hasattr(connection, "send_packet"):
                    self.lines.tell(connection)
                else:
                    self.lines.forget()
            except gdb.error:
                pass  # it goes without

    class Unknown(gdb.Command):
        """Before and after a core file is written, which has a mapping as a whole or not at all."""

        def __init__(self):
            super().__init__("_deja-unknown", gdb.COMMAND_OBSCURE)

        def invoke(self, args, from_tty):
            try:
                print(send("unknown " + args), end="")
            except gdb.error:  # it is not a recording that is being debugged
                pass

    if hasattr(gdb, "RemoteTargetConnection"):
        Monitor()
        Selected()
        Unknown()
        gdb.execute("define hook-generate-core-file\n_deja-unknown zero\nend")
        gdb.execute("define hookpost-generate-core-file\n_deja-unknown error\nend")
        for command in ("step", "stepi", "next", "nexti", "finish"):
            lines = " lines" if command in ("step", "next") else ""
            gdb.execute("define hook-reverse-%s\n_deja-selected%s\nend" % (command, lines))
        gdb.execute("define set hook-exec-direction\n_deja-selected\nend")


def _deja_position(text):
    """A position as deja writes one, of a process that a trace may have taken over: it becomes part of a
    command, and nothing else may."""
    import re

    if not isinstance(text, str) or not re.fullmatch(r"[0-9]+:[0-9]+(\+[0-9]+)?(@[0-9]+)?", text):
        raise gdb.GdbError("What answers for the recording gave no position.")
    return text


def _deja_commands():
    """checkpoint and bookmark keep positions; record has nothing to record."""

    class Places:
        """Numbered positions in the recording, of one kind."""

        def __init__(self, kind):
            self.kind = kind
            self.places = {}
            self.last = 0

        def add(self):
            position = gdb.execute("monitor when", to_string=True).strip()
            if not position or ":" not in position:
                raise gdb.GdbError("No recording is being replayed.")
            position = _deja_position(position.partition(",")[0])
            where = ""
            try:
                frame = gdb.selected_frame()
                sal = frame.find_sal()
                where = frame.name() or ""
                if sal.symtab and sal.line:
                    where += " at %s:%d" % (sal.symtab.filename, sal.line)
            except gdb.error:
                pass
            self.last += 1
            self.places[self.last] = (position, where)
            print("%s %d: position %s %s" % (self.kind, self.last, position, where))

        def number(self, text):
            try:
                n = int(text.strip())
            except ValueError:
                n = -1
            if n not in self.places:
                raise gdb.GdbError("No %s number %s." % (self.kind.lower(), text.strip()))
            return n

        def go(self, text):
            gdb.execute("monitor goto " + self.places[self.number(text)][0], to_string=True)
            gdb.execute("frame")

        def delete(self, text):
            if not text.strip():
                self.places.clear()
            for word in text.split():
                del self.places[self.number(word)]

        def show(self):
            if not self.places:
                print("No %ss." % self.kind.lower())
            for n, (position, where) in sorted(self.places.items()):
                print("%-3d %-20s %s" % (n, position, where))

    checkpoints, bookmarks = Places("Checkpoint"), Places("Bookmark")

    def command(name, kind, text, run):
        def invoke(self, args, from_tty):
            self.dont_repeat()
            run(args)

        cls = type("DejaCommand", (gdb.Command,), {"__doc__": text, "invoke": invoke})
        cls(name, kind)

    def no_record(args):
        raise gdb.GdbError("The program is being replayed from a recording: reverse execution needs "
                           "no \"record\".")

    data, running = gdb.COMMAND_OBSCURE, gdb.COMMAND_RUNNING
    command("checkpoint", data, "Keep this position in the recording; restart N goes back to it.",
            lambda args: checkpoints.add())
    command("restart", running, "Go to checkpoint N.", checkpoints.go)
    command("info checkpoints", gdb.COMMAND_STATUS, "The checkpoints made.",
            lambda args: checkpoints.show())
    command("delete checkpoint", data, "Forget checkpoints N...", checkpoints.delete)
    command("bookmark", data, "Keep this position in the recording; goto-bookmark N goes back to it.",
            lambda args: bookmarks.add())
    command("goto-bookmark", running, "Go to bookmark N.", bookmarks.go)
    command("info bookmarks", gdb.COMMAND_STATUS, "The bookmarks made.",
            lambda args: bookmarks.show())
    command("delete bookmark", data, "Forget bookmarks N...", bookmarks.delete)
    command("record", data, "Not needed: the program is replayed from a recording.", no_record)


def _deja_questions(program, trace):
    """deja calls, deja accesses...: the questions of the shell's command to the whole history, about
    gdb's expressions. Answers are numbered, and deja go N goes to where one is."""
    import json
    import os
    import re
    import signal
    import subprocess

    with_value = ("--from", "--to", "--thread", "--process", "--limit", "--only", "-e", "--code", "--data",
                  "--type", "--by", "--hot", "--callers", "--start", "--stop", "--threshold", "--at", "--every",
                  "--after", "--buffer", "--full", "--call", "--return", "--depth")
    positions = []

    def clean(text):
        """Without what a terminal might obey: it comes from the recording."""
        return "".join(c if c.isprintable() else "?" for c in str(text))

    def split(args):
        """Options, and the rest as it was."""
        options, rest = [], args.strip()
        while rest.startswith("-"):
            word, _, rest = rest.partition(" ")
            rest = rest.strip()
            options.append(word)
            if word in with_value and rest:
                word, _, rest = rest.partition(" ")
                rest = rest.strip()
                options.append(word)
        return options, rest

    def place(text):
        """An expression as ADDRESS:LENGTH, or a register."""
        if re.match(r"\$(r[a-d]x|r[sb]p|r[sd]i|r\d+|xmm\d+)$", text):
            return text[1:]
        value = gdb.parse_and_eval(text)
        kind = value.type.strip_typedefs()
        if text.startswith("&") and kind.code == gdb.TYPE_CODE_PTR:
            return "%#x:%d" % (int(value), max(kind.target().sizeof, 1))
        if kind.code == gdb.TYPE_CODE_FUNC:
            return "%#x" % int(value.address)
        if value.address is not None:
            return "%#x:%d" % (int(value.address), max(kind.sizeof, 1))
        return "%#x" % (int(value) & (1 << 64) - 1)

    def function(text):
        """A name is meant wherever it is; anything else is an address."""
        if re.match(r"[\w:~+.@-]+$", text):
            return text
        return "%#x" % (int(gdb.parse_and_eval(text)) & (1 << 64) - 1)

    def ask(name, words):
        with subprocess.Popen([program, name, "--json", *words, trace], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              start_new_session=True) as running:
            try:
                out, err = running.communicate()
            except KeyboardInterrupt:  # what has been found comes now
                os.killpg(running.pid, signal.SIGINT)
                out, err = running.communicate()
        said = clean(err.decode(errors="replace").strip()).replace("deja: ", "", 1)
        if not out:
            raise gdb.GdbError(said or "deja %s: no answer" % name)
        return json.loads(out), said

    def show(rows, most):
        """As a table for people: what each value is stands above."""
        if rows:
            keys = [k for k in rows[0] if k not in ("position", "first")]
            print("%-4s %-16s %s" % ("", "position" if len(keys) < len(rows[0]) else "", "  ".join(keys)))
        for row in rows[:most]:
            position = row.pop("position", row.pop("first", None))
            number = ""
            if position:
                positions.append(position)
                number = "%d" % len(positions)
            texts = []
            for key, value in row.items():
                if isinstance(value, dict):
                    value = value.get("function")
                elif key in ("address", "to") and isinstance(value, int):
                    value = "%#x" % value
                if value is not None and value != "":
                    texts.append(clean(value))
            print("%-4s %-16s %s" % (number, clean(position or ""), "  ".join(texts)))
        if len(rows) > most:
            print("(%d more; --limit says how many are wanted)" % (len(rows) - most))

    class Deja(gdb.Command):
        """Questions to the whole recording: deja NAME [OPTIONS] [WHAT], and deja go N.

deja calls FUNCTION, deja accesses EXPRESSION, deja origin EXPRESSION (of the value now), deja events,
deja heap, and all that "deja --help" lists in the shell; deja NAME --help says more. Each answer has a
number; deja go N goes to where it was. With --go among the options the program continues from here to
the first answer, and stops there: deja count --code f --threshold 100 --go."""

        def __init__(self):
            super().__init__("deja", gdb.COMMAND_DATA)

        def go(self, text):
            try:
                position = positions[int(text) - 1] if int(text) > 0 else None
            except (ValueError, IndexError):
                position = None
            if not position:
                raise gdb.GdbError("No answer number %s." % text)
            gdb.execute("monitor goto " + _deja_position(position), to_string=True)
            gdb.execute("frame")

        def invoke(self, args, from_tty):
            self.dont_repeat()
            name, _, rest = args.strip().partition(" ")
            if name == "go":
                self.go(rest.strip())
                return
            if not re.match(r"[a-z]+$", name) or name in ("record", "replay", "serve", "pack", "dump",
                                                          "verify", "info", "ps", "backtrace"):
                raise gdb.GdbError("deja NAME: calls, accesses, origin, events, heap...; deja go N")
            options, rest = split(rest)
            if "--help" in options or "-h" in options:
                print(subprocess.run([program, name, "--help"], capture_output=True, text=True,
                                     check=False).stdout, end="")
                return
            if name == "origin":
                now = _deja_position(gdb.execute("monitor when", to_string=True).strip().partition(",")[0])
                words = [now, place(rest or "$rax")]
            elif name == "accesses" and rest:
                words = [place(rest)]
            elif name == "calls" and rest:
                words = [function(rest)]
            else:
                words = rest.split()
            first, now, most = len(positions), None, 100
            if "--limit" in options[:-1] and options[options.index("--limit") + 1].isdigit():
                most = int(options[options.index("--limit") + 1])
            if "--go" in options:
                options.remove("--go")
                now = _deja_position(gdb.execute("monitor when", to_string=True).strip().partition(",")[0])
                if "--from" not in options:
                    options += ["--from", now]
            answer, said = ask(name, options + words)
            tables = answer.items() if isinstance(answer, dict) else [("", answer)]
            for title, rows in tables:
                if title:
                    print(clean(title) + ":")
                show(rows if isinstance(rows, list) else [rows], most)
            if said:
                print(said)
            if now:
                later = [n for n in range(first, len(positions)) if positions[n] != now]
                if not later:
                    raise gdb.GdbError("There is no answer from here on.")
                self.go(str(later[0] + 1))

    Deja()


_deja_host_scripts(gdb.parameter("sysroot") or "")
_deja_monitor()
_deja_commands()
_deja_questions(_deja_program, _deja_trace)
