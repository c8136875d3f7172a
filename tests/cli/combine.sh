#!/bin/bash
# Random combinations of signals, masks, faults, stops, children, execs, filters and limits
# (tests/cli/combine.c): each seed is run natively and recorded, must print the same and end the same
# way, and its trace must replay. Prints the command that does a failing seed again.
#
# usage: tests/cli/combine.sh [SEEDS [CASES [FIRST]]]     (DEJA names the program under test)
set -u
here=$(cd "$(dirname "$0")" && pwd)
deja=${DEJA:-./deja}
seeds=${1:-20} cases=${2:-60} first=${3:-1}
deja=$(cd "$(dirname "$deja")" && pwd)/$(basename "$deja")
[ -x "$deja" ] || { echo "$deja is not built"; exit 77; }

work=$(mktemp -d "${TMPDIR:-/tmp}/deja-combine.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
${CC:-gcc} -O1 -w "$here/combine.c" -o combine || exit 99
"$deja" record -o probe.deja true 2>err || {
	grep -Eqi 'ptrace|not permitted' err || { cat err; exit 1; }
	echo "skipped: programs cannot be recorded here: $(cat err)"
	exit 77
}

# run OUT COMMAND...: its output, the exit status as the last line
run() {
	local out=$1
	shift
	( timeout --foreground -s KILL 100 "$@" >"$out" 2>>err; echo "status $?" >>"$out" ) 2>/dev/null
}

failed=0
for ((seed = first; seed < first + seeds; seed++)); do
	: >err
	predict=shadow
	case $((seed % 8)) in 3) predict=last ;; 7) predict=none ;; esac
	run native ./combine "$seed" "$cases"
	run recorded "$deja" record --predict=$predict -o t.deja ./combine "$seed" "$cases"
	if ! cmp -s native recorded; then
		run again ./combine "$seed" "$cases"
		cmp -s native again || echo "seed $seed: two native runs differ, too"
		echo "FAIL: tests/cli/combine.sh 1 $cases $seed"
		diff native recorded | head -n 12
		head -n 5 err
		failed=1
		continue
	fi
	"$deja" verify t.deja >out 2>&1 || {
		echo "FAIL: tests/cli/combine.sh 1 $cases $seed: the trace does not replay"
		tail -n 3 out
		failed=1
	}
done
exit $failed
