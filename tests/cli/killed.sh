#!/bin/bash
# Programs of threads and processes are killed while they are recorded, by SIGKILL at random moments: the
# program, one of its children, a thread of theirs (which is the same to the kernel), or deja itself. Whatever
# is in the trace replays up to there, and no process is left behind.
#
# usage: tests/cli/killed.sh [TIMES [FIRST]]     (DEJA names the program under test)
#
# FIRST is the seed of the first time; each prints the command that does it again when it fails. The
# moment itself is not repeatable.
. "$(dirname "$0")/../lib/shell.sh"
times=${1:-8} first=${2:-1}
work_in killed
can_record
${CC:-gcc} -O1 -w -mcx16 "$here/../programs/threads/"*.c -o threads -lpthread || exit 99
cat >children <<'END'
while :; do seq 300 | sort | tail -n 1 >/dev/null; (exit 3) & ./threads create >/dev/null; wait; done
END
${CC:-gcc} -O1 -w "$here/vfork.c" -o vfork -lpthread || exit 99
cat >vforks <<'END'
while :; do for how in several nested many between clones; do ./vfork $how >/dev/null; done; done
END
killed=0 replayed=0 cut=0 early=0
exec 2>said # "Killed", of each
# what is recorded: something that goes on for as long as it is let
programs=("./threads kill kill kill kill" "./threads condvar mutex sem condvar mutex sem condvar mutex sem"
	"./threads short maps" "./threads fork spawn fork spawn" "./threads jit fresh malloc jit fresh malloc" "bash children" "bash vforks" "./vfork several")

# tree PID: all processes below it, and all their threads
tree() {
	local below
	below=$(cat /proc/"$1"/task/*/children 2>/dev/null)
	for pid in $below; do
		ls /proc/"$pid"/task 2>/dev/null
		tree "$pid"
	done
}

# On a machine that has much to do deja may be killed before there is anything to replay, so often that
# more are needed.
for ((seed = first; seed < first + times || (replayed * 2 < times && seed < first + 4 * times); seed++)); do
	RANDOM=$seed
	program=${programs[RANDOM % ${#programs[@]}]}
	wait_ms=$((RANDOM % 400 + 5)) whom=$((RANDOM % 5)) which=$RANDOM
	rm -f t.deja
	setsid "$deja" record -o t.deja $program >out 2>err </dev/null &
	recorder=$!
	sleep "$(printf '0.%03d' $wait_ms)"
	below=($(tree $recorder))
	if [ $whom = 0 ] || [ ${#below[@]} = 0 ]; then
		victim=$recorder
	elif [ $whom = 1 ]; then
		victim=${below[0]}
	else
		victim=${below[which % ${#below[@]}]}
	fi
	kill -KILL "$victim" 2>/dev/null && killed=$((killed + 1))
	if [ "$victim" != $recorder ]; then
		# a child that dies may leave the rest going on: they get a moment, then the first goes, too
		sleep 0.05
		[ ${#below[@]} = 0 ] || kill -KILL "${below[0]}" 2>/dev/null
		for ((i = 0; i < 100; i++)); do
			kill -0 $recorder 2>/dev/null || break
			sleep 0.1
			for pid in $(tree $recorder); do kill -KILL "$pid" 2>/dev/null; done
		done
		kill -KILL $recorder 2>/dev/null && {
			fail "tests/cli/killed.sh 1 $seed: deja does not end after $program has been killed"
		}
	fi
	wait $recorder 2>/dev/null
	# of those below deja none is left: a killed deja takes them with it
	for ((i = 0; i < 50; i++)); do
		left=
		for pid in "${below[@]}"; do
			[ -e /proc/"$pid" ] && ! grep -q '^State:.*Z' /proc/"$pid"/status 2>/dev/null && left="$left $pid"
		done
		[ -z "$left" ] && break
		sleep 0.1
	done
	[ -z "$left" ] || {
		fail "tests/cli/killed.sh 1 $seed: left behind:$left ($program, killed $victim of deja $recorder)"
		kill -KILL $left 2>/dev/null
	}
	if [ ! -e t.deja ] || ! "$deja" info t.deja >out 2>err; then
		# before there was anything to read
		[ "$victim" = $recorder ] && { cut=$((cut + 1)); continue; }
		# ... and before the program was there, which deja says
		[ ! -e t.deja ] && grep -q '^deja: .* ended before it began$' err && { cut=$((cut + 1)); continue; }
		fail "tests/cli/killed.sh 1 $seed: no trace of $program: $(tail -n 1 err)"
		continue
	fi
	timeout -s KILL 100 "$deja" verify t.deja >out 2>err
	status=$?
	if [ $status = 0 ]; then
		replayed=$((replayed + 1))
	elif grep -q '^instructions  0$' out && grep -q ' cut off' err; then
		cut=$((cut + 1))
	elif grep -q '^instructions  [0-9]\{1,5\}$' out && grep -q 'nothing was compared' err; then
		early=$((early + 1)) # before its first digest
	else
		fail "tests/cli/killed.sh 1 $seed: $program, $victim of deja $recorder killed after $wait_ms ms: status $status: $(tail -n 1 err)"
		[ -z "${KEEP-}" ] || cp t.deja "$KEEP/killed-$seed.deja"
	fi
done
echo "$killed killed, $replayed traces replay, $early before their first digest, $cut before there was anything in it"
[ $((replayed * 2)) -ge "$times" ] || fail "there was too little to replay"
conclude
