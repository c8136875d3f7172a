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

for mode in wait blocked; do
	begin "$deja" record -o t.deja ./count $mode
	for s in HUP INT QUIT USR1 USR2 WINCH; do
		kill -$s "$pid"
		sleep 0.1
	done
	[ $mode = wait ] || echo >input
	finish "to deja alone, $mode" "1: 1 2: 1 3: 1 10: 1 12: 1 15: 1 28: 1 "

	begin "$deja" record -o t.deja ./count $mode
	for s in HUP INT QUIT USR1 USR2 WINCH; do
		kill -$s -- "-$pid"
	done
	sleep 0.1
	[ $mode = wait ] || echo >input
	finish "to the process group, $mode" "1: 1 2: 1 3: 1 10: 1 12: 1 15: 1 28: 1 "
done

# a server tells its parent that it is ready
got=$(bash -c 'trap "echo told" USR1
	"$1" record -o t.deja ./count parent >/dev/null & sleep 1; kill -TERM $!; wait $!' x "$deja" 2>&1)
[ "$got" = told ] || fail "the program's parent was told: $got"
conclude
