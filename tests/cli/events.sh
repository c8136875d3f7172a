#!/bin/bash
# deja events: system calls read as strace(1) prints them (compared line by line where it is
# installed), with positions that can be gone to; threads, children, signals, modules and ends; bad
# arguments get one line.
# Runs in the build directory.
#
# usage: tests/cli/events.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in events
can_record
${CC:-gcc} -w -O1 -g "$here/events.c" -o prog -lpthread || exit 99

# Addresses and numbers of processes differ from run to run. How a poll went is told elsewhere on the
# line; returns from handlers are no calls that come back; the protocol's name depends on the family.
normal() {
	local pid
	cat >text
	pid=$(sed -n 's/^getpid() *= //p' text | head -n 1)
	sed -E 's/ += / = /; s/0x[0-9a-f]{6,}/ADDR/g; s/\b('"${pid:-none}"'|[0-9]{5,})\b/N/g; s/, IPPROTO_IP\)/, 0)/
		s/, revents=POLLIN//; s/ \(\[\{fd=[0-9]+\}\]\)$//; s/ \(flags O_.*//; /^rt_sigreturn/d' text |
		sed -n '/some.tfile/,$p'
}
"$deja" record -o plain.deja ./prog 2>/dev/null
"$deja" events --only call --only signal plain.deja >plain || fail "events of a good trace"
sed 's/^[^ ]* *//' plain | normal >mine
[ "$(wc -l <mine)" -gt 50 ] || fail "too few events: $(wc -l <mine)"
if command -v strace >/dev/null && strace -o probe true 2>/dev/null; then
	strace -e trace=all -o raw ./prog
	sed '/^+++/d' raw | normal >theirs
	cmp -s mine theirs || { fail "strace says something else (left: strace, right: deja)"; diff theirs mine; }
else
	echo "strace cannot be used here: not compared"
fi
# the position of an event is before it, and can be gone to
position=$(sed -n 's/ *rename(.*//p' plain)
"$deja" backtrace plain.deja "$position" >stack || fail "no such position: $position"
grep -q 'in rename' stack || { fail "rename is not called at $position"; cat stack; }

(ulimit -c 0; "$deja" record -o more.deja ./prog more >/dev/null 2>&1)
"$deja" events more.deja >more || fail "events of several processes"
for line in 'clone\(.*SIGCHLD' 'clone.*CLONE_THREAD' '\+\+\+ begins \+\+\+' 'write\(1, "thread.n", 7\) *= 7' \
	'execve\("/bin/true", \["true", "two words"\]' 'module .*/libc.so.6 at 0x' \
	'\+\+\+ exited with 0 \+\+\+' '--- SIGSEGV \{si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=NULL\} ---' \
	'\+\+\+ killed by SIGSEGV \+\+\+'; do
	grep -Eq -- "$line" more || fail "no event $line"
done
[ "$(grep -c 'begins' more)" = 3 ] || fail "not three threads begin"
tid=$(sed -n 's/^[^@]*@\([0-9]*\) *write(1, "thread.*/\1/p' more)
"$deja" events --thread "$tid" more.deja >one
grep -v "@$tid " one && fail "--thread shows other threads"
grep -q 'write(1, "thread' one || fail "--thread does not show its calls"
"$deja" events --json --failed more.deja | /usr/bin/python3 -c '
import json, sys
events = json.load(sys.stdin)
assert events and all(e["kind"] == "call" and e["result"] < 0 for e in events)' || fail "--json --failed"
from=$(sed -n 's/ *rename(.*//p' more | head -1)
to=$(sed -n 's/ *rmdir(.*//p' more | head -1)
"$deja" events --from "$from" --to "$to" --only call more.deja | sed 's/^[^ ]* *//; s/(.*//' | tr '\n' ' ' >part
[ "$(cat part)" = "rename mkdir rmdir " ] || fail "--from --to: $(cat part)"
LC_ALL=C grep -q $'\033' more plain && fail "a control character got through"

# What a call wrote is there, also where a signal's interrupt comes right behind it in user mode (there
# was nothing for one call in six of those that signals came behind).
cat >often.c <<'END'
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile sig_atomic_t alarms;
static struct timespec now;
static void on_alarm(int sig)
{
	alarms += sig == SIGALRM;
}
int main(void)
{
	struct itimerval often = { { 0, 200 }, { 0, 200 } };
	int calls = 0;
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &often, NULL);
	while (alarms < 500)
		calls += !syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	printf("%d\n", calls);
	return 0;
}
END
${CC:-gcc} -w -O1 often.c -o often || exit 99
timeout -s KILL 100 "$deja" record -o often.deja ./often >calls 2>/dev/null || fail "often: exit status $?"
"$deja" events -e clock_gettime often.deja >often.txt || fail "events of many signals"
grep -Evm 1 ' clock_gettime\(CLOCK_MONOTONIC, \{tv_sec=[0-9]+, tv_nsec=[0-9]+\}\) *= 0$' often.txt &&
	fail "what a call wrote is not there"
[ "$(wc -l <often.txt)" = "$(cat calls)" ] || fail "$(cat calls) calls, and $(wc -l <often.txt) events"

# bad ARGUMENT...: one line, and it says something about it
bad() {
	local expected=$1
	shift
	"$deja" "$@" >bad.out 2>bad.err && fail "deja $*: good"
	{ [ ! -s bad.out ] && [ "$(wc -l <bad.err)" = 1 ] && grep -q "^deja: .*$expected" bad.err; } || {
		fail "deja $*: not one line with \"$expected\""
		cat bad.out bad.err
	}
}
bad 'no thread 99999999' events --thread 99999999 plain.deja
bad 'history has no event' events --from 99999999:0 plain.deja
bad 'is no position' events --from here plain.deja
bad 'lies before' events --from end --to begin plain.deja
bad 'bad option' events --nonsense plain.deja
bad 'no system call, signal or kind of event called opn' events -e openat -e opn plain.deja
head -c $(($(stat -c %s plain.deja) / 2)) plain.deja >cut.deja
"$deja" events cut.deja >cut 2>cut.err
[ $? = 2 ] || fail "the status does not tell that a recording was cut"
[ -s cut.err ] && [ "$(wc -l <cut.err)" -le 2 ] || { fail "a cut trace"; cat cut.err; }
# a thread's end is where it made its last call, not where the history before that begins
[ "$("$deja" events probe.deja | tail -n 2 | cut -d' ' -f1 | uniq | wc -l)" = 1 ] ||
	fail "the end is elsewhere: $("$deja" events probe.deja | tail -n 2)"
conclude
