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
strict=${*:-message plain mutex condvar futex pipe seqlock refcount queue rcu rcu-plain buffering}
work_in litmus
can_record
${CC:-gcc} -O2 -w -no-pie "$here/../programs/litmus.c" -o litmus -lpthread || exit 99
address() { nm litmus | awk -v name="$1" '$3 == name { print $1 }'; }
note=$(address note_store) cell=$(address cell_done)

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
	if [ "$2" = cells ]; then
		timeout -s KILL 300 "$check" t.deja "$cell" cells >out 2>&1
	else
		timeout -s KILL 300 "$check" t.deja "$note" $([ "$3" = $back ] || echo forward) >out 2>&1
	fi
}

for test in $strict; do
	spin= n=$rounds
	[ $test = plain ] && spin=spin n=$((rounds / 10)) # a system call would put them in order
	one fence $test $back $spin || {
		[ -s out ] && fail "$test, --order=fence, both ways: $(cat out)"
		continue
	}
	one fence $test "$n" $spin || {
		[ -s out ] && fail "$test, --order=fence: $(cat out)"
		continue
	}
	# every note is in the timeline
	grep -q "^notes $(sed -n 's/^notes //p' err)," out || fail "$test: $(cat out) where the program made $(cat err)"
	[ "$(sed -n 's/.* seen \([0-9]*\),.*/\1/p' out)" -gt 0 ] || fail "$test: nothing was seen"
done
# The stronger models keep that promise, too, and in the strongest a load finds what was stored there last.
[ $# -gt 0 ] || {
	for model in acqrel load; do
		for test in plain queue; do
			one $model $test $back || fail "$test, --order=$model: $(cat out)"
		done
	done
	one load cells 5000 spin || fail "cells, --order=load: $(cat out)"
	for try in 1 2 3; do # they may happen to run one after the other
		one kernel cells 5000 spin || break
	done
	grep -q ' early [1-9]' out || fail "cells, kernel: $(cat out)"
}
# Without numbers for locked instructions the same program shows what the numbers are for; if it does not, this
# test would not notice if they were wrong.
[ $# -gt 0 ] || {
	for test in message plain; do
		one kernel $test "$back" spin && fail "$test is in order without ordered events: $(cat out)"
		grep -q ' early [1-9]' out || fail "$test, kernel: $(cat out)"
	done
}
conclude
