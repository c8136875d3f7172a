#!/usr/bin/python3
"""Start a server, use it, end it in its own way; for rows of tests/programs with the option driver.

usage: server.py KIND [NUMBER]     (kinds: see the classes at the end; NUMBER: how many requests)

The command in the environment variable RECORD, which may be empty, is put before the server's own.
Prints what is the same in every run: counts, contents, the server's exit status. With
SERVER_SECONDS=FILE the seconds that the load took are written there.

Only loopback addresses are used, everything is bounded in time, and no process is left behind,
however this ends: the servers run below a process of their own that adopts their orphans and
kills all that is left as soon as its parent is gone.
"""
import ctypes
import hashlib
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

scratch = None  # a directory, removed at the end
SECONDS = int(os.environ.get("SERVER_TIMEOUT", 90)) * int(os.environ.get("SLOW", 1))


# ---- nothing is left behind --------------------------------------------------------------------

def descendants(pid):
    """All processes below this one."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as f:
                    parent = int(f.read().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
            except (OSError, IndexError, ValueError):
                pass
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def guarded(work):
    """Run work() below a process that ends all its descendants; the exit status."""
    global scratch
    scratch = tempfile.mkdtemp(prefix="deja-server.")
    alive_r, alive_w = os.pipe()
    guard = os.fork()
    if guard:
        os.close(alive_r)
        return os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1])
    os.close(alive_w)
    os.setsid()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    worker = os.fork()
    if worker == 0:
        os.close(alive_r)
        status = 1
        try:
            status = work()
        except Trouble as e:
            print("server.py: %s" % e, file=sys.stderr)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            os._exit(status)
    status, deadline = None, time.monotonic() + SECONDS
    while status is None:
        pid, how = os.waitpid(-1, os.WNOHANG)
        if pid == worker:
            status = os.waitstatus_to_exitcode(how)
        elif pid == 0:
            gone = select.select([alive_r], [], [], 0.02)[0]
            if gone or time.monotonic() > deadline:
                status = 98
                if not gone:
                    print("server.py: not finished after %d s" % SECONDS, file=sys.stderr)
    try:
        for _ in range(500):
            for pid in descendants(os.getpid()):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.01)
    except ChildProcessError:
        pass
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(status)


# ---- one server ----------------------------------------------------------------------------------

class Trouble(Exception):
    pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tool(name):
    path = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not path:
        print("server.py: %s is not installed" % name, file=sys.stderr)
        os._exit(127)
    return path


def quiet(argv, **kw):
    """Run a client; what it prints."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=SECONDS, text=True, errors="replace", **kw)
    if done.returncode:
        raise Trouble("%s: status %d: %s" % (argv[0], done.returncode, done.stdout[-300:]))
    return done.stdout


class Server:
    def __init__(self, number):
        self.number = number or self.requests
        self.port = free_port()
        self.process = None
        self.log = os.path.join(scratch, "log")

    def start(self, argv, record=True):
        before = shlex.split(os.environ.get("RECORD", "")) if record else []
        self.process = subprocess.Popen(before + argv, stdin=subprocess.DEVNULL, stdout=open(self.log, "wb"),
                                        stderr=subprocess.STDOUT)
        end = time.monotonic() + SECONDS / 2
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Trouble("the server ends with status %d: %s" % (self.process.returncode, self.said()))
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Trouble("the server does not listen: " + self.said())

    def said(self):
        with open(self.log, errors="replace") as f:
            return f.read()[-400:]

    def end(self, sig=None):
        if sig:
            os.kill(self.process.pid, sig)
        try:
            print("status", self.process.wait(SECONDS / 2))
        except subprocess.TimeoutExpired:
            raise Trouble("the server does not end: " + self.said()) from None

    def run(self):
        self.begin()
        began = time.monotonic()
        self.load()
        if "SERVER_SECONDS" in os.environ:
            with open(os.environ["SERVER_SECONDS"], "w") as f:
                f.write("%.3f\n" % (time.monotonic() - began))
        self.check()
        self.stop()
        return 0

    def check(self):
        pass


class Redis(Server):
    requests = 1500
    options = []

    def begin(self):
        self.start([tool("redis-server"), "--bind", "127.0.0.1", "--port", str(self.port), "--save", "",
                    "--appendonly", "no", "--daemonize", "no", "--dir", scratch] +
                   self.options)

    def cli(self, *words):
        return quiet([tool("redis-cli"), "-p", str(self.port), *words]).strip()

    def load(self):
        quiet([tool("redis-benchmark"), "-p", str(self.port), "-n", str(self.number), "-c", "8", "-q", "-t",
               "set,get,incr,lpush,sadd"])

    def check(self):
        print("counter", self.cli("get", "counter:__rand_int__"), "list", self.cli("llen", "mylist"))
        print("hash", self.cli("eval", "local s = 0 for i = 1, 3000 do redis.call('hset', 'h', i, i * i) "
                               "s = s + redis.call('hget', 'h', i) % 7 end return s", "0"))
        print("sorted", self.cli("eval", "for i = 1, 500 do redis.call('zadd', 'z', i * 37 % 101, i) end "
                                 "return table.concat(redis.call('zrange', 'z', 0, 5), ' ')", "0"))
        print(self.cli("flushall", "async"), self.cli("dbsize"))

    def stop(self):
        subprocess.run([tool("redis-cli"), "-p", str(self.port), "shutdown", "nosave"], timeout=SECONDS,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.end()


class RedisThreads(Redis):
    """With threads for input and output, and a child that saves."""
    options = ["--io-threads", "3", "--io-threads-do-reads", "yes"]

    def check(self):
        print(self.cli("save"), self.cli("bgsave"))
        for _ in range(200):
            if "rdb_bgsave_in_progress:0" in self.cli("info", "persistence"):
                break
            time.sleep(0.05)
        print("last", [l.strip() for l in self.cli("info", "persistence").splitlines()
                       if l.startswith("rdb_last_bgsave_status")])
        super().check()


class Memcached(Server):
    requests = 1500

    def begin(self):
        argv = [tool("memcached"), "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-t", "4", "-m", "16"]
        self.start(argv + (["-u", "root"] if os.getuid() == 0 else []))

    def load(self):
        failed = []

        def client(me):
            try:
                with socket.create_connection(("127.0.0.1", self.port), SECONDS) as s:
                    f = s.makefile("rwb")
                    for i in range(self.number // 6):
                        value = b"%d" % (i * me) * 9
                        f.write(b"set k%d.%d 0 0 %d\r\n%s\r\n" % (me, i % 50, len(value), value))
                        f.write(b"get k%d.%d\r\n" % (me, i % 50))
                        f.write(b"incr n 1\r\n")
                        f.flush()
                        said = [f.readline() for _ in range(4)]
                        if said[0] != b"STORED\r\n" or said[2] != value + b"\r\n":
                            failed.append((me, i, said))
                        f.readline()
            except OSError as e:
                failed.append((me, str(e)))
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as s:
            s.sendall(b"set n 0 0 1\r\n0\r\n")
            s.recv(100)
        clients = [threading.Thread(target=client, args=(i,)) for i in range(6)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
        if failed:
            raise Trouble("wrong answer: %s" % (failed[0],))

    def check(self):
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as s:
            f = s.makefile("rwb")
            f.write(b"get n\r\nstats\r\n")
            f.flush()
            said = {}
            f.readline()
            print("n", f.readline().decode().strip())
            f.readline()
            for line in f:
                if line == b"END\r\n":
                    break
                _, name, value = line.decode().split(None, 2)
                said[name] = value.strip()
        print(*["%s %s" % (n, said[n]) for n in ("cmd_get", "cmd_set", "get_hits", "incr_hits", "curr_items")])

    def stop(self):
        self.end(signal.SIGTERM)


class Nginx(Server):
    requests = 600
    workers = "worker_processes 2;"
    site = ""

    def begin(self):
        top = scratch
        os.makedirs(os.path.join(top, "html"))
        for i in range(20):
            with open(os.path.join(top, "html", "%d.txt" % i), "w") as f:
                f.write("".join("%d " % (k * i) for k in range(500 * i + 1)))
        user = "user root;" if os.getuid() == 0 else ""
        with open(os.path.join(top, "conf"), "w") as f:
            f.write("%s %s daemon off; pid %s/pid; error_log %s/error;\n"
                    "events { worker_connections 64; }\n"
                    "http { access_log %s/access; gzip on; gzip_types *; gzip_min_length 1;\n"
                    % (user, self.workers, top, top, top) +
                    "".join("%s_temp_path %s/%s;\n" % (n, top, n)
                            for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")) +
                    "server { listen 127.0.0.1:%d; root %s/html; %s } }\n" % (self.port, top, self.site))
        self.top = top
        self.start([tool("nginx"), "-c", top + "/conf", "-p", top, "-e", top + "/error"])

    def load(self):
        urls = ["http://127.0.0.1:%d/%d.txt" % (self.port, i % 20) for i in range(100)]
        everything = hashlib.sha256()
        for k in range(self.number // 100):
            argv = [tool("curl"), "-s", "-Z", "--parallel-max", "6"] + (["--compressed"] if k % 2 else [])
            for i, u in enumerate(urls):
                argv += [u, "-o", os.path.join(scratch, "got.%d" % i)]
            quiet(argv)
            for i in range(len(urls)):
                with open(os.path.join(scratch, "got.%d" % i), "rb") as f:
                    everything.update(f.read())
        self.digest = everything.hexdigest()

    def check(self):
        print(self.digest)

    def stop(self):
        with open(self.top + "/pid") as f:
            os.kill(int(f.read()), signal.SIGQUIT)
        self.end()
        with open(self.top + "/access") as f:
            lines = f.readlines()
        # those that only looked whether it listens sent nothing, and are not in it
        print("requests", sum('" 200 ' in l for l in lines), "of", len(lines))


class NginxOne(Nginx):
    """One process with a pool of threads for reading."""
    workers = "master_process off; thread_pool default threads=3;"
    site = "aio threads; sendfile off; output_buffers 2 4k;"


class Postgres(Server):
    """initdb, some clients at once, a clean stop. Not as root, which it refuses."""
    requests = 40

    def begin(self):
        top = os.path.join(scratch, "pg")
        os.mkdir(top)
        self.bin = sorted(d for d in os.listdir("/usr/lib/postgresql"))[-1] \
            if os.path.isdir("/usr/lib/postgresql") else ""
        self.bin = os.path.join("/usr/lib/postgresql", self.bin, "bin")
        if not os.access(os.path.join(self.bin, "initdb"), os.X_OK):
            tool("initdb")
        self.become, self.user = [], []
        if os.getuid() == 0:
            os.chown(top, 65534, 65534)
            os.chmod(scratch, 0o755)
            self.become = [tool("setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        self.top = top
        quiet(self.become + [os.path.join(self.bin, "initdb"), "-D", top + "/db", "-U", "postgres", "-A",
                             "trust", "--locale=C", "-E", "UTF8", "-N"])
        self.start(self.become + [os.path.join(self.bin, "postgres"), "-D", top + "/db", "-p", str(self.port),
                                  "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + top,
                                  "-c", "shared_buffers=2MB", "-c", "fsync=off"])
        for _ in range(500):
            try:
                self.sql("select 1")
                break
            except Trouble:
                time.sleep(0.05)

    def client(self, name, *words):
        return quiet([os.path.join(self.bin, name), "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres",
                      *words, "postgres"], cwd="/")

    def sql(self, text):
        return self.client("psql", "-X", "-q", "-A", "-t", "-c", text).strip()

    def load(self):
        self.client("pgbench", "-i", "-q", "-s", "1")
        self.client("pgbench", "-n", "-c", "4", "-j", "2", "-t", str(self.number))

    def check(self):
        print("history", self.sql("select count(*) from pgbench_history"))
        print("balances", self.sql("select sum(abalance) = (select sum(delta) from pgbench_history) "
                                   "from pgbench_accounts"))
        print("sum", self.sql("select sum(g * g % 17), count(distinct g % 101) from generate_series(1, 20000) g"))

    def stop(self):
        self.end(signal.SIGINT)


KINDS = {"redis": Redis, "redis-threads": RedisThreads, "memcached": Memcached, "nginx": Nginx,
         "nginx-one": NginxOne, "postgres": Postgres}


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in KINDS:
        print("usage: server.py %s [NUMBER]" % "|".join(KINDS), file=sys.stderr)
        return 2
    number = int(sys.argv[2]) if len(sys.argv) == 3 else 0
    return guarded(lambda: KINDS[sys.argv[1]](number).run())


if __name__ == "__main__":
    sys.exit(main())
