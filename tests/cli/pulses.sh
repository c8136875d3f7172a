#!/bin/bash
# Whoever presses ^C and asks again comes to where he would have come: continue, steps, steps in a
# range and goto, both ways, from random positions of five programs recorded on the spot, each
# interrupted at one after the other of the times that the replay looks whether it is
# (tests/cli/replay-pulses.c). Runs in the build directory.
#
# usage: tests/cli/pulses.sh [ROUNDS [SEED]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
rounds=${1:-6} seed=${2:-1}
pulses=$build/tests/cli/replay-pulses
needs "$pulses"
work_in pulses
can_record

# interrupted SPACING PROGRAM ARG...: what the program's exit status is does not matter. If it says
# where its words are, those are watched.
interrupted() {
	local spacing=$1 word
	shift
	rm -f it.deja
	"$deja" record -o it.deja -- "$@" >it.out
	[ -s it.deja ] || { fail "recording $*"; return; }
	word=$(sed -n 's/^words at \(0x[0-9a-f]*\):.*/\1/p' it.out)
	[ "$word" ] || [ "$1" != ./disputed ] || fail "disputed does not say where its words are"
	# shellcheck disable=SC2086
	"$pulses" it.deja "$rounds" "$seed" "$spacing" $word ||
		fail "tests/cli/replay-pulses TRACE $rounds $seed $spacing $word, of: $*"
}

${CC:-gcc} -O1 -w -pthread "$here/disputed.c" -o disputed || exit 99
${CC:-gcc} -O1 -w -pthread "$here/../gdb/threads.c" -o threads || exit 99
${CC:-gcc} -O1 -w "$here/copies.c" -o copies || exit 99
# What two threads store to in turns; what string instructions copy and fill.
rounds=$((4 * rounds)) interrupted 3000 ./disputed
interrupted 3000 ./threads
interrupted 20000 ./copies
# Child processes, signals and pipes.
# shellcheck disable=SC2016
interrupted 20000 bash -c 'trap "n=\$((n + 1))" USR1
	for i in 1 2 3; do kill -USR1 $$; x=$(echo $i | sort); done; echo $n $x'
interrupted 20000 awk 'BEGIN { for (i = 0; i < 300; i++) { s = sprintf("%d %.3f", i, i / 7)
	t[i % 97] = t[i % 97] substr(s, 1, 2) } print t[5] }'
conclude
