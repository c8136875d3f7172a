#!/bin/bash
# The records about mappings say what the kernel does, at every moment, whoever makes the calls
# (doc/mappings.md): random programs print their own mappings, and the trace has the same; so do four
# threads that map, unmap and protect the same pages at once. And calls that need no stop make none;
# nor do images that are like the one before.
#
# usage: tests/cli/mappings.sh [RUNS [SEED]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
runs=${1:-6} seed=${2:-1}
at=$build/tests/cli/mappings-at
needs "$at"
work_in mappings
${CC:-gcc} -O1 -o "$work/mappings" "$here/mappings.c" || exit 99
can_record

# as_the_kernel SEED ARGUMENT...: records that, and compares what it says
as_the_kernel() {
	local i=$1
	shift
	timeout -s KILL 100 "$deja" record -o "$work/t.deja" -- "$work/mappings" "$@" >"$work/kernel" 2>"$work/err" ||
		fail "$1, seed $i: status $?: $(cat "$work/err" "$work/kernel" | tail -3)"
	"$at" "$work/t.deja" >"$work/trace" 2>&1 || fail "$1, seed $i: reading the trace: $(tail -1 "$work/trace")"
	cmp -s "$work/kernel" "$work/trace" || {
		fail "$1, seed $i: the trace has other mappings than the kernel"
		diff "$work/kernel" "$work/trace" | head -20
	}
	"$deja" verify "$work/t.deja" >"$work/out" 2>&1 || fail "$1, seed $i: $(cat "$work/out")"
	[ "$(grep -c mark "$work/kernel")" -ge 61 ] || fail "$1, seed $i: no marks"
}

# The last of them replaces itself and begins again.
for ((i = seed; i < seed + runs; i++)); do
	again=()
	((i + 1 == seed + runs)) && again=("$work/mappings")
	as_the_kernel "$i" random "$i" 3000 "${again[@]}"
	as_the_kernel "$i" threads "$i" 3000
done

# stops KIND N AT-MOST
stops() {
	local n
	timeout -s KILL 100 "$deja" record -v -o "$work/t.deja" -- "$work/mappings" "$1" "$2" 2>"$work/err" ||
		fail "$1: status $?: $(cat "$work/err")"
	n=$(sed -n 's/.* \([0-9]*\) stops.*/\1/p' "$work/err")
	[ "${n:-$2}" -le "$3" ] || fail "$1: $2 rounds made ${n:-?} stops, more than $3"
	"$deja" verify "$work/t.deja" >"$work/out" 2>&1 || fail "$1: $(cat "$work/out")"
}
# What the last image stopped for is translated at once for the next.
stops exec 20 4000
for kind in pair after brk mprotect mremap many; do
	stops $kind 20000 1500
done
stops threads 20000 5000
conclude
