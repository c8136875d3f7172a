#!/usr/bin/env python3
"""Hostile traces cost no more than an honest trace of their size, and ^C ends what they begin.

usage: tests/cli/hostile-cost.py [--all] [--verbose] [NAME...]   (in the build directory; DEJA names
       the program under test)

Each trace that tests/cli/make-hostile makes goes through info, dump, ps, backtrace and verify, and a client of the
remote protocol moves about in it. All of it ends within 20 seconds and 600 MB; nothing crashes, no
assertion fails; what is refused is refused with one line on standard error and an exit status
other than 0, and nothing that a terminal obeys is shown. Without --all those that take longer than a
moment are left out; with it, each is also looked at in gdb, which may copy 100 MB at most to the disk.
"""
import concurrent.futures
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time

SECONDS = 20
MEGABYTES = 600
ANSWER = 10  # seconds after ^C, on a machine that is busy with other things

# What becomes of verify: "refused" with a message; "damaged", said when it is opened, and replayed as
# far as it is good; "long", an honest replay that takes its time and is interrupted; "plain", all is
# well.
TRACES = {
    "rep_stos": ("refused", "repeats more often than there is memory"),
    "rep_movs": ("refused", "repeats more often than there is memory"),
    "rep_lods": ("long",),
    "rep_scas": ("long",),
    "rep_cmps": ("long",),
    "rep_stos_unmapped": ("refused", "more than .* MB of memory"),
    "rep_imports": ("long",),
    "loop_for_ever": ("long",),
    "code_wild": ("plain",),
    "code_nowhere": ("refused", "no code known"),
    "code_exceptions": ("refused", "divide error"),
    "steps_enormous": ("damaged", "damaged or incomplete"),
    "stores_everywhere": ("refused", "more than .* MB of memory"),
    "imports_everywhere": ("refused", "more than .* MB of memory"),
    "pages_aimed": ("plain",),
    "imports_at_once": ("refused", "more than 1024 imports"),
    "stale_reads": ("plain",),
    "stale_vectors": ("plain",),
    "stale_messages": ("plain",),
    "mremap_flood": ("plain",),
    "stack_reached": ("plain",),
    "names_flood": ("plain",),
    "maps_flood": ("refused", "more than 1000000 mappings"),
    "maps_named": ("plain",),
    "maps_many": ("plain",),
    "maps_huge": ("refused", "no code known"),
    "maps_beyond": ("refused", "an empty mapping"),
    "maps_negative": ("refused", "an empty mapping"),
    "maps_odd": ("refused", "makes no sense"),
    "unmap_flood": ("plain",),
    "code_flood": ("refused", "more than .* MB of memory"),
    "exec_flood": ("refused", "more than 4194304 records at"),
    "marks_flood": ("refused", "more than 4194304 records at"),
    "records_back": ("refused", "too low"),
    "digests_alone": ("refused", "digest"),
    "signals_flood": ("plain",),
    "signals_kept": ("plain",),
    "bomb_records": ("damaged", "damaged or incomplete"),
    "bomb_meta": ("damaged", "damaged or incomplete"),
    "bomb_memory": ("damaged", "damaged or incomplete"),
    "bomb_modules": ("refused", "no code known"),
    "bomb_modules_full": ("refused", "no code known"),
    "copies_full": ("refused", "no code known"),
    "modules_many": ("damaged", "damaged or incomplete"),
    "modules_shared": ("plain",),
    "module_far": ("damaged", "damaged or incomplete"),
    "counts_enormous": ("damaged", "damaged or incomplete"),
    "string_endless": ("refused", "malformed records"),
    "string_long": ("refused", "malformed records"),
    "facts_missing": ("refused", "malformed records"),
    "to_pass_over": ("refused", "malformed records"),
    "index_circle": ("plain",),
    "threads_many": ("plain",),
    "processes_many": ("plain",),
    "facts_for_all": ("plain", "", "backtrace"),  # which asks all threads, one after the other
    "escapes": ("plain",),
}
# The same with an index beside the trace (tests/cli/make-hostile-index), which only a debugger looks at: what
# becomes of verify is what becomes of it without.
INDEXES = {}
if os.access("tests/cli/make-hostile-index", os.X_OK):
    INDEXES = dict(line.split() for line in subprocess.run(
        ["tests/cli/make-hostile-index", "--list"], capture_output=True, text=True).stdout.splitlines())
# a second and more, to make or to go through
SLOW = {"maps_many", "bomb_meta", "bomb_modules", "bomb_modules_full", "copies_full", "modules_many", "marks_flood",
        "threads_many", "facts_for_all", "names_flood", "maps_flood", "code_flood", "bomb_memory",
        "maps_named", "processes_many", "mremap_flood", "exec_flood", "signals_flood", "signals_kept",
        "index_threads", "index_blocks", "index_memory", "index_mappings", "index_names",
        "imports_everywhere", "unmap_flood", "stale_reads", "rep_stos_unmapped", "stores_everywhere", "to_pass_over"}

here = os.getcwd()
deja = os.path.abspath(os.environ.get("DEJA", "./deja"))
maker = os.path.join(here, "tests/cli/make-hostile")
index_maker = maker + "-index"
failures = []
verbose = "--verbose" in sys.argv
patience = 1.0 if "--all" in sys.argv else 0.2  # seconds before ^C


def fail(name, what):
    failures.append(name)
    print(f"FAIL: {name}: {what}")


def reap(name, what, child):
    """Wait for a child's end; its time and memory are as they should be."""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    # the processor's time: others may keep it busy
    seconds, megabytes = used.ru_utime + used.ru_stime, used.ru_maxrss // 1024
    if verbose:
        print(f"  {name} {what}: {seconds:.1f} s, {megabytes} MB, status {child.returncode}")
    if seconds > SECONDS:
        fail(name, f"{what} took {seconds:.0f} seconds")
    if megabytes > MEGABYTES:
        fail(name, f"{what} took {megabytes} MB")
    return child.returncode


# what a terminal obeys: C0 but ends of lines and tabs, delete, C1 alone and in UTF-8, and directions
OBEYED = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|(?:^|[^\xc2-\xf4\x80-\xbf])[\x80-\x9f]|\xc2[\x80-\x9f]"
                    rb"|\xe2\x80[\x8e\x8f\xaa-\xae]")


def harmless(name, what, text):
    found = OBEYED.search(text)
    if found:
        fail(name, f"{what} shows {found.group()!r} in {text[max(0, found.start() - 40):][:90]!r}")


def run(name, trace, command, interrupt):
    """A command on the trace: its exit status and what it said. Interrupted after a while, if asked."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        words = [deja, *command] if trace in command else [deja, *command, trace]
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=errors, preexec_fn=limit_output,
                                 start_new_session=True)
        poll = select.poll()
        fd = os.pidfd_open(child.pid)
        poll.register(fd, select.POLLIN)
        if not poll.poll(patience * 1000 if interrupt else 3 * SECONDS * 1000):
            os.killpg(child.pid, signal.SIGINT)  # as the terminal does
            if not poll.poll(ANSWER * 1000):
                fail(name, f"{command[0]} does not end" + (" on ^C" if interrupt else ""))
                os.killpg(child.pid, signal.SIGKILL)
            if not interrupt:
                fail(name, f"{command[0]} does not end in time")
        elif interrupt and command[0] == "verify":
            fail(name, "verify was to take long")
        os.close(fd)
        status = reap(name, command[0], child)
        out.seek(0)
        errors.seek(0)
        said, complaint = out.read(1 << 20), errors.read(1 << 16)
    harmless(name, command[0], said)
    harmless(name, command[0], complaint)
    if b"internal error" in complaint or b"runtime error" in complaint or b"Sanitizer" in complaint:
        fail(name, f"{command[0]}: {complaint[:500].decode('latin1')}")
    if status < 0 and not (interrupt and status == -signal.SIGINT) and status != -signal.SIGXFSZ:
        fail(name, f"{command[0]} died of signal {-status}")
    return status, complaint.decode("latin1")


def limit_output():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Client:
    """Speaks the remote protocol with deja serve; each answer within a time, if need be by ^C."""

    def __init__(self, name, trace):
        self.name = name
        self.errors = tempfile.TemporaryFile()
        self.child = subprocess.Popen([deja, "serve", "--stdio", "--at-once", trace], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=self.errors,
                                      preexec_fn=limit_output)
        self.buffer = bytearray()
        self.whole = False  # a packet may end in it
        self.open = True

    def more(self, seconds):
        if not select.select([self.child.stdout], [], [], max(0, seconds))[0]:
            return False
        data = os.read(self.child.stdout.fileno(), 1 << 16)
        self.open = bool(data)
        self.buffer += data
        self.whole |= b"#" in data
        return True

    def write(self, data):
        try:
            os.write(self.child.stdin.fileno(), data)
        except BrokenPipeError:
            self.open = False

    def answer(self, seconds):
        """The next packet that is not console output; None if it does not come."""
        end = time.monotonic() + seconds
        while self.open:
            found = self.whole and re.search(rb"\$([^#]*)#..", self.buffer)
            if found:
                text = expand(bytes(found.group(1)))
                end_of = found.end()
                found = None  # it keeps the buffer from shrinking
                del self.buffer[:end_of]
                self.whole = b"#" in self.buffer
                self.write(b"+")
                if text.startswith(b"O") and text != b"OK":
                    harmless(self.name, "the console", bytes.fromhex(text[1:].decode()))
                    continue
                return text
            if time.monotonic() >= end or not self.more(end - time.monotonic()):
                return None
        return None

    def ask(self, packet):
        if not self.open:
            return b""
        self.write(b"$" + packet + b"#%02x" % (sum(packet) & 255))
        text = self.answer(patience)
        if text is None and self.open:
            self.write(b"\x03")
            text = self.answer(ANSWER)
            if text is None and self.open:
                fail(self.name, f"no answer to {packet.decode()}, nor to ^C")
                self.child.kill()
                self.open = False
        if packet.startswith((b"qRcmd", b"qThreadExtra")) and text and text != b"OK" and text[:1] != b"E":
            harmless(self.name, packet.decode(), bytes.fromhex(text.decode()))
        elif text and packet.startswith((b"qXfer:threads", b"qXfer:exec", b"qXfer:lib")):
            harmless(self.name, packet.decode(), text)
        return text or b""

    def end(self):
        self.child.stdin.close()
        try:
            while self.more(ANSWER) and self.open:
                pass
        except OSError:
            pass
        if self.open:
            fail(self.name, "serve does not end with its client")
            self.child.kill()
        status = reap(self.name, "serve", self.child)
        self.errors.seek(0)
        complaint = self.errors.read(1 << 16)
        if status < 0 or b"internal error" in complaint or b"Sanitizer" in complaint or \
                b"runtime error" in complaint:
            fail(self.name, f"serve: status {status}, {complaint[:500]!r}")
        harmless(self.name, "serve", complaint)


def expand(data):
    """Run-length encoding undone (gdb manual, "Overview" of the remote protocol)."""
    return re.sub(rb"(.)\*(.)", lambda m: m.group(1) * (1 + m.group(2)[0] - 29), data, flags=re.S)


def monitor(command):
    return b"qRcmd," + command.encode().hex().encode()


def session(name, trace):
    c = Client(name, trace)
    for packet in (b"qSupported:multiprocess+;swbreak+", b"?", b"g", b"qfThreadInfo",
                   b"qXfer:threads:read::0,1000", b"qXfer:libraries-svr4:read::0,1000",
                   b"qXfer:exec-file:read::0,1000", b"qThreadExtraInfo,p3e8.3e8",
                   b"m7fffffffe000,40", b"m7ff000,40", b"m3ff000,40", b"m10000000,40",
                   monitor("info"), monitor("mappings"), b"s", b"vCont;c", b"bs", b"bc",
                   b"Z0,4000004,1", b"Z2,10000000,8", b"vCont;c", b"bc", b"m10000000,40",
                   b"M7fffffffe000,1:00", b"qSearch:memory:0;ffffffffffffffff;zz",
                   monitor("goto 2"), monitor("end"), b"bs", monitor("later end"), b"vCont;s", b"m20000000,1000", monitor("begin"),
                   *[b"vFile:open:" + b"/proc/1000/maps".hex().encode() + b",0,0"] * 32,
                   b"qXfer:libraries-svr4:read::0,1000"):
        c.ask(packet)
    c.end()


def in_gdb(name, trace, moves, directory):
    """The same in gdb: what it shows, how long it takes, and how much it has copied to the disk."""
    size, tmp = os.path.join(directory, "size"), os.path.join(directory, "tmp")
    os.makedirs(tmp, exist_ok=True)
    commands = [f"shell du -sm {tmp} >{size}", "info threads", "bt", "x/2i $pc", "info sharedlibrary",
                "info proc mappings", "stepi", *(["continue"] if moves else []), "info registers rip",
                "reverse-stepi", "monitor info", "x/4gx 0x10000000", "info proc cmdline", "kill"]
    arguments = [deja, "replay", trace, "--", "-q", "-nx", "-batch", "-ex", "set confirm off"]
    for command in commands:
        arguments += ["-ex", command]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=5 * SECONDS, preexec_fn=limit_output,
                              env={**os.environ, "TMPDIR": tmp, "HOME": tmp})
    except subprocess.TimeoutExpired:
        fail(name, "gdb does not end in time")
        return
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    if verbose:
        print(f"  {name} gdb: {seconds:.1f} s")
    if seconds > SECONDS:
        fail(name, f"gdb took {seconds:.0f} seconds")
    # gdb styles what it says only on a terminal, so that all escapes are the trace's
    harmless(name, "gdb", done.stdout)
    if b"internal error" in done.stdout or b"internal-error" in done.stdout or done.returncode < 0:
        fail(name, f"gdb: status {done.returncode}, {done.stdout[-500:].decode('latin1')}")
    megabytes = int(open(size).read().split()[0]) if os.path.exists(size) else 0
    if megabytes > 100:
        fail(name, f"copies of {megabytes} MB for gdb")


def try_trace(name, directory):
    of = INDEXES.get(name, name)
    expected, started = TRACES[of], time.monotonic()
    trace = os.path.join(directory, name + ".deja")
    if subprocess.run([maker, of, trace]).returncode or \
            (of != name and subprocess.run([index_maker, name, trace]).returncode):
        fail(name, "cannot be made")
        return
    for command in (["info"], ["info", "--json"], ["ps"], ["dump"], ["backtrace", trace, "begin"]):
        run(name, trace, command, False)
    status, complaint = run(name, trace, ["verify"], expected[0] == "long")
    lines = complaint.splitlines()
    if expected[0] in ("refused", "damaged"):
        if (status <= 0 and expected[0] == "refused") or not re.search(expected[1], complaint):
            fail(name, f"verify: status {status}, {complaint!r}")
        if not lines or len(lines) > 2 or not all(line.startswith("deja: ") for line in lines):
            fail(name, f"verify says {complaint!r}")
    elif expected[0] == "plain" and status and "nothing was compared" not in complaint:
        fail(name, f"verify: status {status}, {complaint!r}")
    if expected[0] == "long" or "backtrace" in expected[2:]:
        status, complaint = run(name, trace, ["backtrace"], True)
        if "backtrace" in expected[2:] and (status != 130 or "interrupted" not in complaint):
            fail(name, f"backtrace on ^C: status {status}, {complaint!r}")
    session(name, trace)
    if "--all" in sys.argv:
        in_gdb(name, trace, expected[0] != "long", directory)
    os.unlink(trace)
    if of != name:
        os.unlink(trace + ".index")
    if verbose:
        print(f"{name}: {time.monotonic() - started:.1f} s")


def listening(name, directory):
    """On another address than the loopback interface's, serve says what that means."""
    trace = os.path.join(directory, "listened.deja")
    subprocess.run([maker, "stack_reached", trace], check=True)
    for address, told in ((":0", False), ("127.0.0.1:0", False), ("0.0.0.0:0", True)):
        child = subprocess.Popen([deja, "serve", "--listen", address, trace], stdin=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, preexec_fn=limit_output)
        said = b""
        while b"Listening on" not in said and select.select([child.stderr], [], [], 5)[0]:
            data = os.read(child.stderr.fileno(), 4096)
            if not data:
                break
            said += data
        child.kill()
        child.wait()
        child.stderr.close()
        if b"Listening on" not in said or (b"whoever can connect" in said) != told:
            fail(name, f"--listen {address} says {said!r}")


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    made = subprocess.run([maker, "--list"], capture_output=True, text=True).stdout.split()
    if sorted(made) != sorted(TRACES):
        fail("make-hostile", f"not the same traces: {set(made) ^ set(TRACES)}")
    if not names:
        names = [n for n in made + list(INDEXES) if "--all" in sys.argv or n not in SLOW]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deja-hostile.") as directory:
        # most of the quick ones wait for the right moment to interrupt
        with concurrent.futures.ThreadPoolExecutor(1 if "--all" in sys.argv else 3) as pool:
            for done in [pool.submit(try_trace, name, directory) for name in names]:
                done.result()
        listening("serve", directory)
    print(f"{len(names)} hostile traces in {time.monotonic() - started:.0f} s, "
          f"{len(set(failures))} failed")
    return 1 if failures else 0


if not (os.access(deja, os.X_OK) and os.access(maker, os.X_OK) and os.access(index_maker, os.X_OK)):
    print("deja or make-hostile is not built")
    sys.exit(77)
sys.exit(main())
