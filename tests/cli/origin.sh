#!/bin/bash
# deja origin finds what a person would name: of planted defects, each of which ends in a crash, the
# line, the call or the input that the value came from; and of the demo's heap corruption.
# Runs in the build directory.
#
# usage: tests/cli/origin.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in origin
can_record
${CC:-gcc} -O1 -g -w "$here/origins.c" -o prog -lpthread || exit 99
printf ABCDEFGH >input
export PLANTED=secret

line() {
	grep -n "culprit: $1" "$here/origins.c" | cut -d: -f1
}
# crash NAME PROGRAM ARGUMENT...
crash() {
	local name=$1
	shift
	(ulimit -c 0; "$deja" record -o "$name.deja" "$@" >/dev/null 2>&1)
}
# origin WAY PATTERN: of what check() was given; a line of the answer matches
origin() {
	crash "$1" ./prog "$1"
	timeout -s KILL 100 "$deja" origin end rdi "$1.deja" >"$1.txt" 2>&1 || fail "$1: $(cat "$1.txt")"
	grep -Eq "$2" "$1.txt" || {
		fail "$1: no line with $2"
		cat "$1.txt"
	}
	# the emulator alone finds the same
	[[ $1 = stack || $1 = freed || $1 = thread || $1 = copied || $1 = saved ]] || return
	timeout -s KILL 100 "$deja" origin --emulate end rdi "$1.deja" 2>&1 | cmp -s - "$1.txt" ||
		fail "$1: the emulator says something else"
}
origin heap "never initialised: the block at 0x[0-9a-f]* was allocated at [0-9:]* by uninitialised_heap at origins.c:$(line heap)"
origin stack 'on the stack, where a call that is over wrote it at [0-9]+:[0-9]+ '
origin overflow "set_name at origins.c:$(line overflow) "
origin freed "had been freed at [0-9:]* by use_after_free at origins.c:$(line freed)|use_after_free at origins.c:$(line reused) "
origin argument "constant in the instruction +wrong_argument at origins.c:$(line argument) "
origin file 'written by the kernel: read\([0-9]+, "ABCDEFGH", 8\) = 8'
origin socket 'written by the kernel: recvfrom\([0-9]+, "4711", 4, 0, NULL, NULL\) = 4'
origin thread "producer at origins.c:$(line thread) "
origin copied "made by a constant in the instruction +copied at origins.c:$(line copied) "
origin x87 "made by a constant in the instruction +x87 at origins.c:$(line x87) "
origin saved "copied from xmm5 +saved at .* fxsave64 "
grep -q " saved at origins.c:$(line saved) " saved.txt || fail "saved: $(cat saved.txt)"
origin saved87 "copied from st0 +saved at .* fxsave64 "
grep -q " saved at origins.c:$(line saved) " saved87.txt || fail "saved87: $(cat saved87.txt)"
origin far "made by a constant in the instruction +far at origins.c:$(line far) "
origin far87 "made by a constant in the instruction +far at origins.c:$(line far) "
origin environment 'the kernel, at the program.s start'
origin constant 'contents of the file .*/prog'
# every hop is a position that can be gone to, and the value is there
"$deja" origin --json end rdi copied.deja | /usr/bin/python3 -c '
import json, subprocess, sys
hops = json.load(sys.stdin)
assert len(hops) > 5 and all(h["value"] == "0x22b" for h in hops), hops
for h in hops[:3]:
    subprocess.run([sys.argv[1], "backtrace", "copied.deja", h["position"]], check=True,
                   stdout=subprocess.DEVNULL)' "$deja" || fail "hops of copied"

# the demo
${CC:-gcc} -g -o inventory "$here/../demo/inventory.c" || exit 99
crash inventory ./inventory
at=$("$deja" backtrace inventory.deja | sed -n 's/^#0 .* in //p')
grep -q '^total' <<<"$at" || fail "the demo does not end in total: $at"
timeout -s KILL 100 "$deja" origin end rax inventory.deja >inventory.txt 2>&1 || fail "the demo: $(cat inventory.txt)"
culprit=$(grep -n 'a->name\[i\] = name\[i\]' "$here/../demo/inventory.c" | cut -d: -f1)
grep -q "set_name at inventory.c:$culprit " inventory.txt || {
	fail "the demo's culprit is not found"
	cat inventory.txt
}

# values that come from other processes: through what they came, and the line that made them
${CC:-gcc} -O1 -g -w "$here/beyond.c" -o beyond || exit 99
"$deja" record -o beyond.deja ./beyond || fail "recording beyond"
"$deja" events -e exit beyond.deja >ends
# beyond NAME POSITION PATTERN [LINES]: there is such a hop, and the last is in the line that is named so
beyond() {
	timeout -s KILL 100 "$deja" origin "$2" "$1" beyond.deja >"$1.txt" 2>&1 || fail "$1: $(cat "$1.txt")"
	grep -Eq "$3" "$1.txt" && tail -1 "$1.txt" |
		grep -q "constant in the instruction .* at beyond.c:$(grep -n "culprit: ${4:-$1} " "$here/beyond.c" | cut -d: -f1) " || {
		fail "$1: no hop with $3, or its end is another"
		cat "$1.txt"
	}
}
position() {
	sed -n "s/^\([^ ]*\) .* exited with $1 .*/\1/p" ends
}
beyond by_pipe end ':3  .* through a pipe made at [0-9:@]*: write\([0-9]+, "\\316\\263\\276", 3\) = 3 '
beyond by_pipe end ':5  .* through a pipe made at '
beyond by_file end 'through a file /.*/half-done: writev\(20, '
beyond by_sendfile end 'through a pipe, and that a file /.*/half-done: writev' by_file
beyond by_sockets end 'through a pair of sockets made at [0-9:@]*: sendmsg\(50, '
beyond by_shared end ' shared_child at '
beyond by_mapped end ' mapped_child at '
beyond by_fork "$(position 4)" 'what the process began with'
beyond by_register "$(position 3)" 'r12 .*what the thread began with'
beyond by_path end 'through a connection to /.*/here: sendto\([0-9]*, '
beyond by_reply "$(position 5)" 'through a connection to /.*/here: write\([0-9]*, '
beyond by_port end 'through a connection to port [0-9]*: write\([0-9]*, '
beyond by_datagrams end 'through a socket @somewhere: sendto\([0-9]*, '
beyond by_rights end 'through a pipe made at [0-9:@]*: write\([0-9]*, '
beyond by_fifo end 'through a named pipe /.*/fifo: write\([0-9]*, '
# a file that somebody else has changed: what was written here is not what was read
cat >changed.c <<'END'
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
long v;
int main(int argc, char **argv)
{
	int fd = open("changing", O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (write(fd, "12345678", 8) != 8 || system(argv[1]) || pread(fd, &v, 8, 0) != 8)
		return 1;
	return 0;
}
END
${CC:-gcc} -O1 -g -w changed.c -o changed || exit 99
"$deja" record --no-follow -o changed.deja ./changed 'printf abcdefgh >changing' || fail "recording changed"
"$deja" origin end v changed.deja >changed.txt || fail "changed: $(cat changed.txt)"
grep -q 'written by the kernel: pread64' changed.txt && ! grep -q through changed.txt || fail "changed: $(cat changed.txt)"
"$deja" record --no-follow -o changed.deja ./changed true
"$deja" origin end v changed.deja | grep -q 'through a file /.*/changing: write([0-9]*, "12345678", 8)' || fail "not changed"

# bad questions: one clear line
refused 1 'no register, address or variable: nothing' origin end nothing heap.deja
refused 1 'no event 99999' origin 99999:0 rax heap.deja
refused 1 'no position' origin somewhere rax heap.deja
refused 1 'too few arguments' origin end
conclude
