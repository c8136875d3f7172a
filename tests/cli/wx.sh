#!/bin/bash
# Code in pages that are written to and executed by turns: what faults natively faults, what has
# changed is what it is now, and what has not changed is not translated again.
#
# usage: tests/cli/wx.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in wx
${CC:-gcc} -O1 -w "$here/wx.c" -o wx -lpthread || exit 99
can_record

# run ARG...: natively and recorded
run() {
	./wx "$@" >native || exit 99
	timeout -s KILL 120 "$deja" record -o t.deja ./wx "$@" >out 2>err ||
		fail "$*: exit status $?: $(cat err)"
	diff native out || fail "$*: another output"
	"$deja" verify t.deja >verified || fail "$*: verify: $(cat verified)"
}

# count WHAT: from the recording's statistics
count() {
	"$deja" info t.deja | sed -n "s/^ *\([0-9,]*\) *$1\$/\1/p" | tr -d ,
}

run odd
run threads 200
for seed in 1 2 3 4 5 6; do
	run random 1500 $seed
done
run patch 1
few=$(count 'instructions translated') targets=$(count 'stops: target of an indirect branch')
calls=$(count 'stops: system call')
run patch 300
many=$(($(count 'instructions translated') - few))
targets=$(($(count 'stops: target of an indirect branch') - targets))
calls=$(($(count 'stops: system call') - calls))
echo "300 functions of 512 rewritten, 64 called each time: $many instructions translated, $targets stops" \
	"at targets and $calls at system calls"
# each changed function is three instructions, and each round calls into eight pages
[ $many -lt 10000 ] || fail "that is too many instructions"
[ $targets -lt 6000 ] || fail "that is too many stops"
# of the two changes of protection the first stops once, and the second not at all
[ $calls -lt 320 ] || fail "that is too many system calls with a stop"
conclude
