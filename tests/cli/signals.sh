#!/bin/bash
# Signals that deja itself gets: the program gets each of them once, as it would without deja,
# whoever sends it, to deja alone or to the whole process group.
#
# usage: tests/cli/signals.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in signals
${CC:-gcc} -O1 -w "$here/signals.c" -o count || exit 99
can_record

# begin COMMAND...: in the background, a process group and session of its own; $pid is the command
begin() {
	rm -f out input
	mkfifo input
	: >out # the command may be slow to begin
	setsid "$@" >out 2>err <>input &
	pid=$!
	for _ in {1..200}; do
		grep -q ready out && return
		sleep 0.05
	done
	fail "$*: not ready: $(head -c 300 err)"
	kill -KILL -- "-$pid"
}

# finish WHAT EXPECTED: SIGTERM to the program, and what it then says
finish() {
	sleep 0.3
	kill -TERM "$pid"
	for _ in {1..200}; do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.05
	done
	kill -KILL -- "-$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	local status=$?
	[ "$status" = 7 ] || fail "$1: exit status $status: $(head -c 300 err)"
	[ "$(grep -v ready out | tr '\n' ' ')" = "$2" ] ||
		fail "$1: got $(grep -v ready out | tr '\n' ' '), not $2"
}

for mode in group child; do
	begin ./count $mode
	finish "natively, $mode" "$(grep -v ready out | tr '\n' ' ')$(
		for s in 1 2 3 5 6 10 11 12 14 15 28 29 30 34 64; do printf '%s: 1 ' $s; done)"
	begin "$deja" record -o t.deja ./count $mode
	finish "kill(0), $mode" "$(for s in 1 2 3 5 6 10 11 12 14 15 28 29 30 34 64; do
		printf '%s: 1 ' $s
	done)"
	"$deja" verify t.deja >out 2>err || fail "kill(0), $mode: the trace does not replay"
done

for mode in wait blocked "wait --no-wait"; do
	option=
	[ "$mode" = "${mode% *}" ] || option=${mode#* } mode=${mode% *}
	begin "$deja" record $option -o t.deja ./count $mode
	for s in HUP INT QUIT USR1 USR2 WINCH; do
		kill -$s "$pid"
		sleep 0.1
	done
	[ $mode = wait ] || echo >input
	finish "to deja alone, $mode" "1: 1 2: 1 3: 1 10: 1 12: 1 15: 1 28: 1 "

	begin "$deja" record $option -o t.deja ./count $mode
	for s in HUP INT QUIT USR1 USR2 WINCH; do
		kill -$s -- "-$pid"
	done
	sleep 0.1
	[ $mode = wait ] || echo >input
	finish "to the process group, $mode" "1: 1 2: 1 3: 1 10: 1 12: 1 15: 1 28: 1 "
done

# what a handler sees of the flags
${CC:-gcc} -O1 -w "$here/flags.c" -o flags -lm || exit 99
x87="x87 30"
if ./flags cuts; then
	echo "this machine loses the upper halves of x87's pointers now and then: only the lower ones are compared"
	x87="x87 30 cut"
fi
for args in "" fault plain passed trap "$x87" "x87 30 halve"; do
	./flags $args >out 2>&1 || fail "flags $args, natively: $(cat out)"
	timeout -s KILL 100 "$deja" record -o t.deja ./flags ${args:-1000} >out 2>&1 || fail "flags $args: $(cat out)"
	grep -q 'enough: 0 wrong' out || fail "flags $args: $(cat out)"
	"$deja" verify t.deja >out 2>&1 || fail "flags $args: the trace does not replay: $(cat out)"
done

# timers whose next signal is there before the recorder is done with the last one
${CC:-gcc} -O1 -w "$here/timers.c" -o timers || exit 99
for kind in interval again timer; do
	for us in 20 80 200; do
		as_natively "timers $kind $us" "" ./timers $kind $us
	done
done

# that costs something, and is done only for a handler that is told of the context, or looks at it
for args in fault plain passed number text; do
	"$deja" record --no-cache -v -o t.deja ./flags $args >out 2>&1
	grep -q 'instructions translated' out || fail "flags $args: $(cat out)"
	case $args in number | text) kept=0 ;; *) kept=1 ;; esac
	grep -q " $kept flushes" out || fail "flags $args: not $kept flushes: $(cat out)"
done

# a server tells its parent that it is ready
for option in --follow --no-wait; do
	got=$(bash -c 'trap "told=yes" USR1
		"$1" record $2 -o t.deja ./count parent >ready & for i in {1..200}; do
			[ -n "$told" ] && grep -q ready ready && break
			sleep 0.1
		done
		echo "${told:+told}"; kill -TERM $!; wait $!' x "$deja" $option 2>&1)
	[ "$got" = told ] || fail "the program's parent was told, $option: $got"
done
# The mask in its corners, and signals of a process for whoever of its threads lets them in.
if ${CC:-gcc} -O1 -w "$here/masks.c" -o masks; then
	for predict in shadow none; do
		as_natively "masks, $predict" "--predict=$predict" ./masks
	done
fi
conclude
