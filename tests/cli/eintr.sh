#!/bin/bash
# A tracer's own stop is none of the program's business: while deja's clock interrupts it some
# thousands of times a second (DEJA_CLOCK), often an instant too late, when it has just begun a
# system call that says EINTR of any interruption, no call says so. And the recording is right.
#
# usage: tests/cli/eintr.sh [MILLISECONDS]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in eintr
${CC:-gcc} -O1 -w "$here/eintr.c" -o eintr || exit 99
can_record
./eintr 100 >native || { echo "FAIL: without deja: $(cat native)"; exit 1; }
# On a machine that has much to do it takes longer until it has been interrupted often.
for ms in "${1:-2000}" 10000 30000; do
	DEJA_CLOCK=30 timeout -s KILL 120 "$deja" record -o t.deja ./eintr "$ms" >out 2>err || {
		echo "FAIL: exit status $?: $(cat out err)"
		exit 1
	}
	cat out
	stops=$("$deja" info t.deja | sed -n 's/^ *\([0-9,]*\) *stops: clock$/\1/p' | tr -d ,)
	[ "${stops:-0}" -gt 100 ] && break
done
[ "${stops:-0}" -gt 100 ] || { echo "FAIL: the clock stopped it ${stops:-0} times only"; exit 1; }
"$deja" verify t.deja >out || { echo "FAIL: verify: $(cat out)"; exit 1; }
echo "$stops interruptions"

# However often it is asked for, the program gets on, and the recording ends when it is told to.
DEJA_CLOCK=1 timeout -s KILL 60 "$deja" record -o t.deja ./eintr 200 >out 2>err || {
	echo "FAIL: with the shortest clock, exit status $?: $(cat out err)"
	exit 1
}
"$deja" verify t.deja >out || { echo "FAIL: with the shortest clock, verify: $(cat out)"; exit 1; }
DEJA_CLOCK=1 timeout --foreground -s KILL 60 "$deja" record -o t.deja sh -c 'echo >begun; while :; do :; done' 2>err &
for ((i = 0; i < 600; i++)); do
	[ -s begun ] && break
	sleep 0.1
done
kill -TERM $! # to timeout, which passes it on to deja
wait $!
status=$?
[ $status = 143 ] || { echo "FAIL: SIGTERM with the shortest clock: exit status $status: $(cat err)"; exit 1; }
"$deja" verify t.deja >out || { echo "FAIL: SIGTERM with the shortest clock, verify: $(cat out)"; exit 1; }
