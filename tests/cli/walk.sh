#!/bin/bash
# Random positions of two programs recorded on the spot: every step undone comes back to the
# same state, and a position is the same whichever side one comes from (tests/cli/replay-walk.c).
# Runs in the build directory.
#
# usage: tests/cli/walk.sh [POSITIONS [SEED]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
positions=${1:-200} seed=${2:-1}
walk=$build/tests/cli/replay-walk
needs "$walk"
work_in walk
can_record

# walk NAME PROGRAM ARG...
walk() {
	local trace=$work/$1.deja
	shift
	"$deja" record -o "$trace" -- "$@" >/dev/null || { fail "recording $*"; return; }
	"$walk" "$trace" "$positions" "$seed" ||
		fail "tests/cli/replay-walk TRACE $positions $seed, of: $*"
}

# Regular expressions and floating point; child processes, signals and pipes.
walk awk awk 'BEGIN { for (i = 0; i < 2000; i++) { s = sprintf("%d %.3f", i, i / 7)
	gsub(/[37]/, "xy", s); t[i % 97] = t[i % 97] substr(s, 1, 2); n += length(s) * sqrt(i) }
	print n, t[5] }'
# shellcheck disable=SC2016
walk sh bash -c 'trap "n=\$((n + 1))" USR1
	for i in 1 2 3 4 5 6; do kill -USR1 $$; x=$(echo $i | sort); done; echo $n $x; ls -l / | wc -l'
conclude
