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
	order=fence
	[ $((seed % 5)) = 4 ] && order=kernel
	as_natively "tests/cli/torment.sh 1 $rounds $seed" --order=$order ./torment "$seed" "$rounds"
done
conclude
