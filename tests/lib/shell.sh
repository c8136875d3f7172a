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

# What is recorded is kept for later recordings, in the tests' own place: many run with it, and fill it.
export XDG_CACHE_HOME=$build/test-cache
mkdir -p "$XDG_CACHE_HOME"

needs "$deja"
deja=$(cd "$(dirname "$deja")" && pwd)/$(basename "$deja")

# Whether deja is built with AddressSanitizer, which wants memory of its own, and much of it.
sanitized() {
	grep -q __asan_init "$deja"
}

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

# left_out PROGRAM: it is not here, so a part of the test is left to ./check --all, which installs it
left_out() {
	echo "${DEJA_CHECK_ALL:+skipped: }left to ./check --all: $1 is not installed"
}

# another FILE AT: this byte of it becomes another
another() {
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	# shellcheck disable=SC2059
	printf "\\$(printf %o $((byte ^ 0x58)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>dd.err
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

# as_natively AGAIN OPTIONS PROGRAM ARG...: recorded with these options it prints the same and ends the
# same way, and its trace replays. AGAIN does it again. If there is a function by_chance, and it says that
# the files native and recorded differ in what differs between native runs, too, there are two more tries.
as_natively() {
	local again=$1 options=$2 try
	shift 2
	for try in 1 2 3; do
		: >err
		run_into native "$@"
		# shellcheck disable=SC2086
		run_into recorded "$deja" record $options -o t.deja "$@"
		cmp -s native recorded && break
		declare -F by_chance >/dev/null && by_chance || break
	done
	if ! cmp -s native recorded; then
		run_into again "$@"
		cmp -s native again || echo "$*: two native runs differ, too"
		fail "$again"
		diff native recorded | head -n 40
		head -n 5 err
		return
	fi
	timeout -s KILL 100 "$deja" verify t.deja >out 2>&1 || {
		fail "$again: the trace does not replay"
		tail -n 3 out
	}
}

# replays WHAT: the trace t.deja does
replays() {
	timeout --foreground -s KILL 100 "$deja" verify t.deja >verify.out 2>verify.err ||
		fail "$1: the trace does not replay: $(tail -n 2 verify.out verify.err)"
}

# refused STATUS WORDS ARGUMENT...: to this question deja has no answer, but one clear line
refused() {
	local status=$1 words=$2 have
	shift 2
	timeout 100 "$deja" "$@" >out 2>err
	have=$?
	[ $have = "$status" ] || fail "status of deja $*: $have, not $status"
	[ ! -s out ] || fail "deja $* prints: $(head -3 out)"
	[ "$(wc -l <err)" = 1 ] && grep -q "^deja: .*$words" err || fail "deja $* says: $(cat err)"
}

# conclude: the end of the script
conclude() {
	[ "$failures" = 0 ] && exit 0
	echo "$failures failures"
	exit 1
}
