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
            said = gdb.execute("stepi", to_string=True)
            if "[deja:" in said:  # it did not get there
                print(said, end="")
            else:
                print(send("here"), end="")

    class Selected(gdb.Command):
        """Before a reverse command: tell which thread it is for, which gdb does not."""

        def __init__(self):
            super().__init__("_deja-selected", gdb.COMMAND_OBSCURE)

        def invoke(self, args, from_tty):
            thread = gdb.selected_thread()
            if thread and len(gdb.selected_inferior().threads()) > 1:
                send("selected %d" % thread.ptid[1])

    if hasattr(gdb, "RemoteTargetConnection"):
        Monitor()
        Selected()
        for command in ("step", "stepi", "next", "nexti", "finish"):
            gdb.execute("define hook-reverse-%s\n_deja-selected\nend" % command)


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


_deja_host_scripts(gdb.parameter("sysroot") or "")
_deja_monitor()
_deja_commands()
