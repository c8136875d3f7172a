#!/bin/bash
# Programs that are killed wherever they are: in the middle of an exec, before the new image has its
# first instruction, while threads, children and mappings are made. The recording goes on with the
# others, and replays.
#
# usage: tests/cli/doomed.sh [SEEDS [FIRST]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
seeds=${1:-2} first=${2:-1}
work_in doomed
${CC:-gcc} -O1 -o doomed "$here/doomed.c" || exit 99
${CC:-gcc} -O1 -o mob "$here/mob.c" "$here/mob-more.c" -lm || exit 99
can_record

options=("" "--order load" "--shadow-memory 1M" "--keyframes 100000")

# times seed milliseconds command...
kill_it() {
	local o with what
	for o in "${options[@]}"; do
		read -ra with <<<"$o"
		what="./doomed $* ($o)"
		timeout -s KILL 100 "$deja" record "${with[@]}" -o t.deja -- ./doomed "$@" >out 2>err
		status=$?
		[ $status = 0 ] || fail "$what: status $status: $(cat out err)"
		[ ! -s err ] || fail "$what: it said $(cat err)"
		timeout -s KILL 200 "$deja" verify t.deja >verified 2>&1 || fail "$what: $(tail -3 verified)"
	done
}

for ((i = first; i < first + seeds; i++)); do
	for kind in first other left vfork; do
		kill_it 10 $i 60 ./doomed again $kind
	done
	kill_it 10 $i 120 ./mob $i $((2 + i % 7)) 2000
done
conclude
