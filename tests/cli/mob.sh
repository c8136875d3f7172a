#!/bin/bash
# Several threads that do things at random at the same time, and end in the midst of it: the program
# comes to what it comes to natively, and the trace replays. With options that make deja itself do
# more meanwhile.
#
# usage: tests/cli/mob.sh [SEEDS [FIRST]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
seeds=${1:-24} first=${2:-1}
work_in mob
${CC:-gcc} -O1 -o mob "$here/mob.c" "$here/mob-more.c" -lm || exit 99
can_record

ends=("" leave exec exit kill abort)
options=("" "--shadow-memory 1M" "" "--keyframes 100000" "" "--order load" "--randomize")
statuses=(0 0 0 5 137 134)
for ((i = first; i < first + seeds; i++)); do
	end=$((i % 6))
	args=("$i" $((2 + i % 11)) $((20 + i * 7 % 40)) ${ends[end]})
	read -ra with <<<"${options[i % 7]}"
	what="seed $i (./mob ${args[*]}; ${with[*]})"
	timeout -s KILL 100 "$deja" record "${with[@]}" -o t.deja -- ./mob "${args[@]}" >out 2>err
	status=$?
	[ $status = "${statuses[end]}" ] || fail "$what: status $status: $(tail -2 err)"
	if [ $end -le 2 ]; then
		./mob $((i + (end == 2))) "${args[1]}" $((end == 2 ? args[2] / 2 : args[2])) ${ends[end == 1]} >native ||
			fail "$what: natively it fails: $?"
		cmp -s native out || fail "$what: it said $(cat out); natively $(cat native)"
	fi
	timeout -s KILL 200 "$deja" verify t.deja >verified 2>&1 || fail "$what: $(tail -3 verified)"
done
conclude
