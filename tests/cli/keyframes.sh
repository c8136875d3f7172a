#!/bin/bash
# Keyframes: a recording that has them is verified in parts, with the same result; from any of them a
# replay comes to the same as from the beginning; one that lies is found; what has lost its beginning
# goes on from the next.
#
# usage: tests/cli/keyframes.sh     (DEJA names the program under test; in the build directory)
. "$(dirname "$0")/../lib/shell.sh"
edit=$build/tests/cli/edit-trace parts=$build/tests/cli/replay-parts walk=$build/tests/cli/replay-walk
needs "$edit" "$parts" "$walk"
work_in keyframes
can_record
export DEJA_CLOCK=1000 # many stops, at any place

# recorded NAME POSITIONS PROGRAM ARG...: has keyframes, and says the same however it is divided
recorded() {
	local name=$1 positions=$2 found
	shift 2
	"$deja" record --keyframes 20000 -o "$name.deja" -- "$@" >out 2>err || fail "recording $name: $(cat err)"
	found=$("$deja" dump "$name.deja" | grep -c ' keyframe what=light ')
	[ "$found" -ge 10 ] || fail "$name has $found keyframes"
	"$deja" verify "$name.deja" >all 2>err || fail "verify $name: $(cat err)"
	taskset -c 0 "$deja" verify "$name.deja" >one 2>err || fail "verify $name on one processor: $(cat err)"
	cmp <(grep -Ev '^(seconds|speed|translated)' all) <(grep -Ev '^(seconds|speed|translated)' one) ||
		fail "$name, divided: $(cat all one)"
	"$parts" "$name.deja" "$positions" 1 >out || fail "$name from its keyframes: $(head -3 out)"
	grep -Eq '^[1-9][0-9]+ positions compared' out || fail "$name from its keyframes: $(cat out)"
}
# Regular expressions, floating point, string instructions; signals, children and exec; threads.
recorded awk 30 awk 'BEGIN { for (i = 0; i < 2000; i++) { s = sprintf("%d %.3f", i, i / 7)
	gsub(/[37]/, "xy", s); t[i % 97] = t[i % 97] substr(s, 1, 2); n += length(s) * sqrt(i) } print n, t[5] }'
# shellcheck disable=SC2016
recorded sh 10 bash -c 'trap "n=\$((n + 1))" USR1
	for i in 1 2 3; do kill -USR1 $$; x=$(echo $i | sort); done; echo $n $x; ls -l / | wc -l; exec true'
seq 20000 | sort -R >numbers
recorded sort 10 sort --parallel=2 -n -S 100K numbers
# both ways, for a debugger
"$walk" awk.deja 60 1 >out || fail "walking over keyframes: $(head -3 out)"

# one that lies is found, wherever the history is divided
"$edit" awk.deja lie.deja spoil keyframe 5 || fail "edit-trace"
for processor in all one; do
	if [ $processor = all ]; then only=; else only='taskset -c 0'; fi
	$only "$deja" verify lie.deja >"lie.$processor" 2>err
	[ $? = 1 ] || fail "a keyframe that lies: $(cat err)"
	grep -Eq '^deja: the replay diverges: thread [0-9]+ at [0-9]+:[0-9]+ .*: rbx is [0-9a-f]+, expected [0-9a-f]+$' err ||
		fail "a keyframe that lies: $(cat err)"
done
cmp <(grep -Ev '^(seconds|speed|translated)' lie.all) <(grep -Ev '^(seconds|speed|translated)' lie.one) ||
	fail "a keyframe that lies, divided: $(cat lie.all lie.one)"

# damage FILE NUMBER: to the chunk of that number of the first thread's stream
damage() {
	/usr/bin/python3 - "$1" "$2" <<'EOF'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
at = 32
while data[at:at + 4] == b"DJCK":
    stream, number = struct.unpack_from("<II", data, at + 8)
    length, = struct.unpack_from("<I", data, at + 68)
    if data[at + 4] == 6 and stream == 1 and number == int(sys.argv[2]):
        data[at + 88] ^= 1
    at += 88 + length
open(sys.argv[1], "wb").write(data)
EOF
}
total=$(sed -n 's/^instructions *//p' one)
for chunk in 1 4; do
	cp sort.deja cut.deja
	damage cut.deja $chunk
	"$deja" verify cut.deja >out 2>err
	grep -Eq '^deja: .*damaged or incomplete at byte .* that of thread [0-9]+ begins after [1-9]' err ||
		fail "chunk $chunk is damaged: $(cat err)"
	grep -q 'all match' out || fail "chunk $chunk is damaged: $(cat out err)"
	left=$(sed -n 's/^instructions *//p' out)
	[ "$left" -lt "$total" ] && [ "$left" -gt $((total / 2)) ] || fail "chunk $chunk is damaged: $left of $total"
done
# What was written before that is not known, and is not made up; what nobody could write is, and so is
# what is read later. Keyframes are where the program stops by itself: how often the clock stops it, and
# so where there are keyframes, and whether there are any, is a matter of time.
cat >data.c <<'EOF'
#include <sys/prctl.h>
volatile unsigned long changed = 1, early[512] = { 5 };
volatile unsigned long later = 78;
const unsigned long fixed = 77;
int main(void)
{
	changed = 2;
	for (unsigned i = 0; i < 400000; i++) {
		if (i % 40000 == 0)
			prctl(PR_GET_DUMPABLE);
		early[64] += later;
	}
	return 0;
}
EOF
${CC:-gcc} -O1 -static -no-pie data.c -o data || exit 99
"$deja" record --keyframes 100000 -o data.deja ./data || fail "recording data"
# at TRACE: what the variables are where history begins
at() {
	for name in changed later fixed; do
		"$parts" "$1" at "$(nm data | sed -n "s/ [a-zA-Z] $name$//p")"
	done | paste -s -d ' '
}
[ "$(at data.deja)" = '1 78 77' ] || fail "from the beginning: $(at data.deja)"
damage data.deja 1
[ "$(at data.deja)" = 'unknown 78 77' ] ||
	fail "without the beginning: $(at data.deja) ($("$deja" info data.deja 2>&1 | grep ^damage))"
conclude
