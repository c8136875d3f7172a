#!/bin/bash
# Call stacks at random positions: what deja backtrace unwinds is what gdb unwinds there, frame by
# frame (tests/cli/backtrace.py), in C and C++ programs without frame pointers: the program counters
# of all frames, inlined ones too, and the functions where both have a name.
# Runs in the build directory.
#
# usage: tests/cli/backtrace.sh [POSITIONS [SEED]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
export DEJA=$deja POSITIONS=${1:-60} SEED=${2:-1}
command -v gdb >/dev/null || { echo "gdb is not installed"; exit 77; }
work_in backtrace
can_record
if "$DEJA" backtrace "$work/probe.deja" 2>&1 | grep -q 'has no libunwind'; then
	echo "skipped: this build of deja has no libunwind"
	exit 77
fi

# compare NAME PROGRAM ARG...
compare() {
	export TRACE=$work/$1.deja
	shift
	(ulimit -c 0; "$DEJA" record -o "$TRACE" -- "$@" >/dev/null 2>&1)
	timeout $((60 + POSITIONS)) "$DEJA" replay "$TRACE" -- -nx -q -batch -x "$here/backtrace.py" \
		>"$work/out" 2>&1 </dev/null
	grep -q '^compared ' "$work/out" && ! grep -q '^DIFFERENT' "$work/out" || {
		fail "tests/cli/backtrace.sh $POSITIONS $SEED, of: $*"
		tail -40 "$work/out"
	}
	grep '^compared ' "$work/out"
}

"${CXX:-g++}" -O2 -g -fomit-frame-pointer "$here/backtrace.cc" -o "$work/shop" || exit 99
compare c++ "$work/shop"
compare sort sort -n /etc/services
conclude
