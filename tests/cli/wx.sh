#!/bin/bash
# Code in pages that are written to and executed by turns: what faults natively faults, what has
# changed is what it is now, and what has not changed is not translated again.
#
# usage: tests/cli/wx.sh     (DEJA names the program under test)
set -u
here=$(cd "$(dirname "$0")" && pwd)
deja=${DEJA:-./deja}
deja=$(cd "$(dirname "$deja")" && pwd)/$(basename "$deja")
[ -x "$deja" ] || { echo "$deja is not built"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/deja-wx.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
${CC:-gcc} -O1 -w "$here/wx.c" -o wx || exit 99
"$deja" record -o t.deja true 2>err || {
	grep -Eqi 'ptrace|not permitted' err || { cat err; exit 1; }
	echo "skipped: programs cannot be recorded here: $(cat err)"
	exit 77
}
failures=0

# run ARG...: natively and recorded
run() {
	./wx "$@" >native || exit 99
	timeout -s KILL 120 "$deja" record -o t.deja ./wx "$@" >out 2>err ||
		{ echo "FAIL: $*: exit status $?: $(cat err)"; failures=$((failures + 1)); }
	diff native out || { echo "FAIL: $*: another output"; failures=$((failures + 1)); }
	"$deja" verify t.deja >verified || { cat verified; failures=$((failures + 1)); }
}

# count WHAT: from the recording's statistics
count() {
	"$deja" info t.deja | sed -n "s/^ *\([0-9,]*\) *$1\$/\1/p" | tr -d ,
}

run odd
run patch 1
few=$(count 'instructions translated') targets=$(count 'stops: target of an indirect branch')
run patch 300
many=$(($(count 'instructions translated') - few))
targets=$(($(count 'stops: target of an indirect branch') - targets))
echo "300 functions of 512 rewritten, 64 called each time: $many instructions translated, $targets stops"
# each changed function is three instructions, and each round calls into eight pages
[ $many -lt 10000 ] || { echo "FAIL: that is too many instructions"; failures=$((failures + 1)); }
[ $targets -lt 6000 ] || { echo "FAIL: that is too many stops"; failures=$((failures + 1)); }
[ $failures = 0 ]
