#!/bin/bash
# --shadow-memory: threads that sleep lose their shadows, notice nothing of it, and their recording is
# as good as any. Every way of sleeping, signals, forks and the end of the process while shadows are gone,
# keyframes and models of order besides; a process in which nobody is awake.
#
# usage: tests/cli/idle.sh     (DEJA names the program under test; in the build directory)
. "$(dirname "$0")/../lib/shell.sh"
parts=$build/tests/cli/replay-parts
needs "$parts"
work_in idle
can_record
export DEJA_CLOCK=20000 # a thread has slept for long after 80 milliseconds

${CC:-gcc} -O1 -g -pthread "$here/idle.c" -o idle || exit 99
# The threads fill 24 MB, and so much are their shadows, too.
for mode in threads process pipe terminal; do
	./idle $mode 12 >native.$mode || fail "idle $mode, natively"
	grep still native.$mode && fail "idle $mode takes that natively"
done

# recorded MODE OPTION...: as natively, in little memory; the recording is whole, and some shadows went
recorded() {
	local mode=$1 found
	shift
	"$deja" record "$@" -o idle.deja ./idle "$mode" 12 >out 2>err || fail "recording $mode $*: $(cat err)"
	cmp out native."$mode" || fail "$mode $* differs: $(cat out)"
	"$deja" verify idle.deja >out 2>err || fail "verify $mode $*: $(cat err)"
	found=$("$deja" dump idle.deja | grep -c ' keyframe what=light ')
	[ "$found" -ge "$least" ] || fail "$mode $*: $found keyframes"
}
least=10 recorded threads --shadow-memory 3M
"$parts" idle.deja 8 1 >out || fail "from the keyframes: $(head -3 out)"
grep -Eq '^[1-9][0-9]* positions compared' out || fail "from the keyframes: $(cat out)"
least=40 recorded threads --shadow-memory 3M --keyframes 1000000 --order=acqrel --exact-flags
least=1 recorded process --shadow-memory 3M --keyframes 0
least=1 recorded pipe --shadow-memory 3M --keyframes 0
unset DEJA_CLOCK # with it calls are interrupted now and then
least=0 recorded terminal --shadow-memory 3M --keyframes 0

# what is no size
for size in x 1T 4Mx -1 99999999999G ''; do
	"$deja" record --shadow-memory "$size" true >out 2>err
	[ $? != 0 ] && grep -q '^deja: .*--shadow-memory takes a number of bytes' err || fail "--shadow-memory '$size': $(cat err)"
done
conclude
