#!/bin/bash
# A tracer that is late, reports what has happened in another order, and has threads stop for nothing and
# stay there for a while (tests/cli/pester.c): programs do what they do natively, and their traces replay. Prints the command
# that does a failing seed again; what comes when is different each time, so it may take a few times.
#
# usage: tests/cli/pester.sh [SEEDS [FIRST]]
. "$(dirname "$0")/../lib/shell.sh"
needs ./tests/cli/pestered
seeds=${1:-6} first=${2:-1}
deja=$build/tests/cli/pestered
work_in pester
${CC:-gcc} -O1 -w "$here/pester-traps.c" -o traps -lpthread || exit 99
${CC:-gcc} -O1 -w "$here/pester-exits.c" -o exits -lpthread || exit 99
${CC:-gcc} -O1 -w "$here/torment.c" -o torment -lpthread || exit 99
can_record

for ((seed = first; seed < first + seeds; seed++)); do
	export DEJA_PESTER=$seed
	as_natively "tests/cli/pester.sh 1 $seed" "--digest-interval 1000" ./traps 200
	as_natively "tests/cli/pester.sh 1 $seed" "" ./exits 40
	as_natively "tests/cli/pester.sh 1 $seed" "--digest-interval 1000" ./torment "$seed" 3
done
conclude
