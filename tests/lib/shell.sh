# What the shell tests of the command have in common. A script sources it first:
#
#	. "$(dirname "$0")/../lib/shell.sh"
#
# and then has $here (the script's directory), $deja (the program under test, which DEJA names), $build
# (where it was started) and the functions below. shellcheck shell=bash
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$PWD
deja=${DEJA:-./deja}

# needs PROGRAM...: they are built
needs() {
	local program
	for program in "$@"; do
		[ -x "$program" ] || { echo "$program is not built"; exit 77; }
	done
}

needs "$deja"
deja=$(cd "$(dirname "$deja")" && pwd)/$(basename "$deja")

# work_in NAME: in a new directory, $work, which goes when the script ends
work_in() {
	work=$(mktemp -d "${TMPDIR:-/tmp}/deja-$1.XXXXXX") || exit 99
	trap 'rm -rf "$work"' EXIT
	cd "$work" || exit 99
}

# can_record: or there is nothing to test here. Leaves probe.deja, a recording of true.
can_record() {
	"$deja" record -o probe.deja true 2>err && return
	grep -Eqi 'ptrace|not permitted' err || { cat err; exit 1; }
	echo "skipped: programs cannot be recorded here: $(cat err)"
	exit 77
}

# run_into OUT COMMAND...: its output, the exit status as the last line
run_into() {
	local out=$1
	shift
	( timeout --foreground -s KILL 100 "$@" >"$out" 2>>err; echo "status $?" >>"$out" ) 2>/dev/null
}

failures=0
fail() {
	failures=$((failures + 1))
	echo "FAIL: $*"
}

# conclude: the end of the script
conclude() {
	[ "$failures" = 0 ] && exit 0
	echo "$failures failures"
	exit 1
}
