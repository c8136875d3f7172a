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
	grep -q '^compared .* [0-9] guessed;' "$work/out" && ! grep -q '^DIFFERENT' "$work/out" || {
		fail "tests/cli/backtrace.sh $POSITIONS $SEED, of: $*"
		tail -40 "$work/out"
	}
	grep '^compared ' "$work/out"
}

"${CXX:-g++}" -O2 -g -fomit-frame-pointer "$here/backtrace.cc" -o "$work/shop" || exit 99
compare c++ "$work/shop"
compare sort sort -n /etc/services

# How a program died, in deja info: with the stack, and beneath it nothing of who was not there.
cat >crash.c <<'EOS'
#include <stdlib.h>
static int __attribute__((noinline)) deep(int n)
{
	return n ? deep(n - 1) + 1 : *(volatile int *)0;
}
int main(void)
{
	return deep(3);
}
EOS
${CC:-gcc} -O1 -g crash.c -o crash || exit 99
(ulimit -c 0; "$DEJA" record -o crash.deja ./crash >/dev/null 2>&1)
"$DEJA" info crash.deja | sed -n '/died at/,$p' | sed 1d | awk '{ print $4 }' | sed 's/+.*//' | head -5 | tr '\n' ' ' >out
[ "$(cat out)" = "deep deep deep deep main " ] || fail "the stack of a crash in deja info: $(cat out)"
"$DEJA" info --json crash.deja | /usr/bin/python3 -c '
import json, sys
crash, = json.load(sys.stdin)["crashes"]
assert [f["function"] for f in crash["frames"]][:5] == ["deep"] * 4 + ["main"], crash' || fail "deja info --json"
"$DEJA" info "$work/probe.deja" | grep -q 'died at' && fail "a good end is a crash in deja info"
conclude
