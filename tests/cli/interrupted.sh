#!/bin/bash
# ^C ends every question to a history, with what has been found, and says up to where that is all.
# Runs in the build directory.
#
# usage: tests/cli/interrupted.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in interrupted
can_record
${CC:-gcc} -O1 -g "$here/interrupted.c" -o long || exit 99
"$deja" record -o long.deja ./long || fail "recording"

# interrupted WORDS QUESTION...: it says so, in these words, and its answer is whole JSON (or nothing).
# A machine that has much to do may not have begun to answer when the first ^C comes.
interrupted() {
	local words=$1 delay status
	shift
	for delay in 0.25 0.6 2 5; do
		timeout --preserve-status -s INT $delay "$deja" "$@" --json long.deja >out 2>err
		status=$?
		[ $status != 130 ] || [ -s err ] && break
	done
	[ $status = 130 ] || fail "deja $* and ^C: status $status, $(cat err)"
	[ "$(wc -l <err)" = 1 ] && grep -q "^deja: interrupted$words" err || fail "deja $* and ^C: $(cat err)"
	[ ! -s out ] || /usr/bin/python3 -c 'import json; json.load(open("out"))' || fail "deja $* and ^C: no JSON"
}
for question in rep "profile --by path" "edges --sample" "count --threshold 1000000" \
		"stacks --every 100000" "calls main" "accesses from" coverage heap races; do
	# in the emulator, or some are done too soon
	# shellcheck disable=SC2086
	interrupted ': this is what was found up to [0-9]*:[0-9]*$' $question --emulate
done
interrupted ': this is what was found' stacks --log
interrupted '' origin end long_counter
interrupted '' diff long.deja
interrupted ': there may be more' events

# what it says it has found is what there is up to that position
for delay in 0.3 1 3; do
	timeout --preserve-status -s INT $delay "$deja" count --json --code long_step long.deja >part 2>err && break
	position=$(grep -o '[0-9]*:[0-9]*$' err) && [ "${position#*:}" -gt 1000000 ] && break
done
if [ -n "${position:-}" ]; then
	"$deja" count --json --code long_step --to "$position" long.deja >to || fail "up to $position: $(cat to)"
	cmp part to || fail "up to $position: $(cat part), and $(cat to)"
fi
conclude
