#!/bin/bash
# Many threads that all do the same at once: the program comes to what it comes to natively, the
# trace replays, and who waits for others does not stop again and again for it: four times as many
# threads make some four times as many stops, not sixteen times. The same holds for what each of them has
# to put back that others take away.
#
# usage: tests/cli/crowd.sh [N]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
n=${1:-45}
work_in crowd
${CC:-gcc} -O1 -o crowd "$here/crowd.c" || exit 99
can_record

# record KIND N: sets $stops, and $restored to how often SIGTRAP's handler was put back
record() {
	timeout -s KILL 100 "$deja" record -v -o t.deja ./crowd "$1" "$2" >out 2>err ||
		fail "$1 by $2: status $?: $(tail -2 err)"
	./crowd "$1" "$2" | cmp -s - out || fail "$1 by $2: it said $(cat out)"
	stops=$(sed -n 's/.* \([0-9]*\) stops.*/\1/p' err)
	restored=$("$deja" info t.deja | sed -n "s/,//g; s/ *\([0-9]*\) *times SIGTRAP's handler was put back$/\1/p")
	"$deja" verify t.deja >verified 2>&1 || fail "$1 by $2: $(cat verified)"
}

# in_proportion KIND: of N threads, and of four times as many
in_proportion() {
	local few seldom
	record "$1" "$n"
	few=${stops:-0} seldom=${restored:-0}
	record "$1" $((4 * n))
	seen="$few stops by $n threads, ${stops:-none} by $((4 * n)); put back $seldom times, ${restored:-none}"
	((few > n && stops < 8 * few)) && { [ "$1" != handle ] || ((seldom > n && restored < 8 * seldom)); }
}

# Where the scheduler takes the processor from a thread that has a place of the order, each of the others
# stops for that place: one of three must do.
for kind in thread file code ignore handle mask signal fork spawn grow vdso; do
	in_proportion $kind || in_proportion $kind || in_proportion $kind || fail "$kind: $seen"
done
# These make as many as they need. While some are on their way out of the cache for a SIGTRAP, which takes its
# handler away again and again, the others leave it at that.
few_put_back() {
	record await "$1"
	((${restored:-0} > 0 && restored < 100 * $1))
}
for n in 3 4 8; do
	few_put_back $n || few_put_back $n || few_put_back $n || fail "await by $n: put back ${restored:-no} times"
done
conclude
