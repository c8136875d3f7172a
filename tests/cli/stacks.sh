#!/bin/bash
# deja stacks and deja count: the stacks that are kept by calls and returns are those that libunwind
# finds, at many positions; samples, the log and limits agree with each other; counters of a program
# of which every number is known.
# Runs in the build directory.
#
# usage: tests/cli/stacks.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
export DEJA=$deja LC_ALL=C
work_in stacks
can_record
check() {
	/usr/bin/env python3 "$here/stacks.py" "$@" || failures=$((failures + 1))
}
${CC:-gcc} -O2 -g -pthread -fno-inline "$here/profile-threads.c" -o threads || exit 99
"$deja" record -o threads.deja ./threads >/dev/null || fail "recording threads"
"${CXX:-g++}" -O1 -g -fno-inline "$here/backtrace.cc" -o shop || exit 99
(ulimit -c 0; "$deja" record -o shop.deja ./shop >/dev/null 2>&1) # it aborts
[ -s shop.deja ] || fail "recording shop"
${CC:-gcc} -O1 -g "$here/count.c" -o count || exit 99
"$deja" record -o count.deja ./count >/dev/null || fail "recording count"
check unwound shop.deja
check names shop.deja
check unwound threads.deja
check samples threads.deja
check log threads.deja
check count count.deja
# Addresses are those of each process, wherever its modules are.
for pie in -pie -no-pie; do
	${CC:-gcc} -O1 -pthread -fPIE $pie "$here/places.c" -o places || exit 99
	"$deja" record -o places.deja ./places 0x10000000 0x20000000 || fail "recording places: $pie"
	check places places.deja
done
${CC:-gcc} -O1 -g -fno-optimize-sibling-calls "$here/marks.c" -o marks || exit 99
"$deja" record -o marks.deja ./marks || fail "recording marks"
check marks marks.deja
${CC:-gcc} -O1 -g -pthread -fno-inline "$here/times.c" -o times || exit 99
"$deja" record -o times.deja ./times || fail "recording times"
check times times.deja
conclude
