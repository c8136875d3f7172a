#!/bin/bash
# Random combinations of what several threads do at once (tests/cli/torment.c): each seed is run natively and
# recorded, must print the same and end the same way, and its trace must replay. Prints the command that does
# a failing seed again.
#
# usage: tests/cli/torment.sh [SEEDS [ROUNDS [FIRST]]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
seeds=${1:-10} rounds=${2:-10} first=${3:-1}
work_in torment
${CC:-gcc} -O1 -w "$here/torment.c" -o torment -lpthread || exit 99
can_record

for ((seed = first; seed < first + seeds; seed++)); do
	: >err
	order=fence
	[ $((seed % 5)) = 4 ] && order=kernel
	run_into native ./torment "$seed" "$rounds"
	run_into recorded "$deja" record --order=$order -o t.deja ./torment "$seed" "$rounds"
	if ! cmp -s native recorded; then
		run_into again ./torment "$seed" "$rounds"
		cmp -s native again || echo "seed $seed: two native runs differ, too"
		fail "tests/cli/torment.sh 1 $rounds $seed"
		diff native recorded | head -n 12
		head -n 5 err
		continue
	fi
	timeout -s KILL 100 "$deja" verify t.deja >out 2>&1 || {
		fail "tests/cli/torment.sh 1 $rounds $seed: the trace does not replay"
		tail -n 3 out
	}
done
conclude
