#!/bin/bash
# The order of events between threads (doc/order.md): tests/programs/litmus.c is recorded, and in the
# timeline of its traces nobody sees a value before it was written (tests/cli/litmus-check.c).
#
# usage: tests/cli/litmus.sh [ROUNDS [TEST...]]     (DEJA names the program under test; in the build directory)
. "$(dirname "$0")/../lib/shell.sh"
check=$build/tests/cli/litmus-check
needs "$check"
rounds=${1:-3000} back=60 # as many when it goes back, too
shift
# What plain loads and stores hand over is ordered by the stronger models only.
strict=${*:-message mutex condvar futex pipe seqlock refcount queue rcu}
work_in litmus
can_record
${CC:-gcc} -O2 -w -no-pie "$here/../programs/litmus.c" -o litmus -lpthread || exit 99
address=$(nm litmus | awk '$3 == "note_store" { print $1 }')

# one MODEL TEST ROUNDS [spin]: record it, verify it, count; out has what the checker says
one() {
	: >out
	timeout -s KILL 120 "$deja" record --order="$1" -o t.deja ./litmus "$2" "$3" ${4-} >said 2>err
	local status=$?
	[ $status = 0 ] && grep -q ' 0 wrong$' said || {
		fail "$2: recorded, with --order=$1: status $status: $(cat said err)"
		return 1
	}
	timeout -s KILL 120 "$deja" verify t.deja >out 2>&1 || {
		fail "$2, --order=$1: it does not replay: $(tail -n 1 out)"
		return 1
	}
	timeout -s KILL 300 "$check" t.deja "$address" $([ "$3" = $back ] || echo forward) >out 2>&1
}

for test in $strict; do
	one fence $test $back || {
		[ -s out ] && fail "$test, --order=fence, both ways: $(cat out)"
		continue
	}
	one fence $test "$rounds" || {
		[ -s out ] && fail "$test, --order=fence: $(cat out)"
		continue
	}
	# every note is in the timeline
	grep -q "^notes $(sed -n 's/^notes //p' err)," out || fail "$test: $(cat out) where the program made $(cat err)"
	[ "$(sed -n 's/.* seen \([0-9]*\),.*/\1/p' out)" -gt 0 ] || fail "$test: nothing was seen"
done
# Without numbers for locked instructions the same program shows what the numbers are for; if it does not, this
# test would not notice if they were wrong.
[ $# -gt 0 ] || {
	one kernel message "$back" spin && fail "message passing is in order without ordered events: $(cat out)"
	grep -q ' early [1-9]' out || fail "kernel: $(cat out)"
}
conclude
