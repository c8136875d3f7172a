#!/bin/bash
# Code that is asked for without a stop (recorder/ask.c): a program all of whose code is executed once prints
# what it prints without deja, and its recording replays; also with signals all the time, stopped and
# continued, with children that are killed, and if it writes to the words in which is asked, or to the files
# of its own modules. With one processor nothing is asked, and all is the same.
#
# usage: tests/cli/ask.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in ask
cc=${CC:-gcc}
$cc -w -DLIBRARY -shared -fPIC -nostdlib "$here/ask.c" -o lib1.so || exit 99
$cc -w -DPATCHED -shared -fPIC -nostdlib -Wl,-Bsymbolic "$here/ask.c" -o patched.so || exit 99
$cc -O1 -w "$here/ask.c" -o ask -ldl -lpthread || exit 99
for n in 2 3 4 5 6 7 8; do cp lib1.so lib$n.so; done
can_record

# same WHAT: what was recorded has printed what the program prints alone
same() {
	[ "$status" = 0 ] && cmp -s native out || fail "$1: exit status $status: $(diff native out | head -n 3; head -n 3 err)"
	replays "$1"
}

# counted WHAT: how often that happened while t.deja was recorded
counted() {
	"$deja" info --json t.deja | sed -n "s/.*\"[^\"]*$1\": *\([0-9]*\).*/\1/p"
}

# without_stop: how often code of t.deja was made without a stop
without_stop() {
	counted "times code was made without a stop"
}

# record COMMAND...: leaves the status, and what it prints in out
record() {
	timeout --foreground -s KILL 60 "$@" >out 2>err
	status=$?
}

# asks WHAT MORE COMMAND...: code is made without a stop more often than that. Nobody listens where both processors
# are busy with something else: then it is tried again.
asks() {
	local what=$1 more=$2 try asked
	shift 2
	for ((try = 0; try < 20; try++)); do
		record "$@"
		same "$what"
		asked=$(without_stop)
		[ "${asked:-0}" -le "$more" ] && [ "$(nproc)" -gt 1 ] || return
		sleep 1
	done
	fail "$what was made without a stop ${asked:-0} times only"
}

./ask run 1 2 >native
asks "code executed once" 10 "$deja" record --no-cache -o t.deja ./ask run 1 2
record taskset -c "$(taskset -pc $$ | sed 's/.*: *\([0-9]*\).*/\1/')" "$deja" record --no-cache -o t.deja ./ask run 1 2
same "with one processor"
[ "$(without_stop)" = 0 ] || fail "with one processor code was made without a stop $(without_stop) times"

# Code that the program makes is asked for, too, and by one of several threads. What there is in a page of which
# the trace has been told stays, when something else is written there.
for threads in 1 2 6; do
	./ask made $threads >native
	record "$deja" record --no-cache -o t.deja ./ask made $threads
	same "code that $threads make"
done
# The code of modules is kept here, so that it is made code that is asked for. (2,000 with three other programs beside,
# 7,000 without; up to 120 where only modules' code is asked for.)
./ask make 6 >native
mkdir cache
asks "code that all make" 1000 env XDG_CACHE_HOME="$PWD/cache" "$deja" record -o t.deja ./ask make 6
./ask made 1 >native
record "$deja" record --no-cache -o t.deja ./ask made 1
same "code that one thread makes"
changed=$(counted "code that changed unheard")
[ "${changed:-9999}" -le 1200 ] || fail "a thread that makes code was stopped $changed times because of what it had changed"
gone=$(counted "fragments given up")
[ "${gone:-99999}" -le 13000 ] || fail "$gone fragments were given up where only some lines had changed"
./ask crowd >native
record "$deja" record --no-cache -o t.deja ./ask crowd
same "code in more pages than are remembered"
# The trace is told of each page, and need not have a stop for that. (2,000 times and more, 600 with three other programs
# beside; two at most where a page that is new to the trace is a reason to stop.)
./ask pages 6 >native
asks "code in many pages" 200 env XDG_CACHE_HOME="$PWD/cache" "$deja" record -o t.deja ./ask pages 6
./ask exec 3 >native
for n in 1 2 3 4 5; do
	record "$deja" record --no-cache -o t.deja ./ask exec $n
	same "an exec while $n others ask"
done

# signals, the clock, and job control all at once
./ask run 1 1 >native
for clock in '' 1000; do
	DEJA_CLOCK=$clock
	[ -n "$clock" ] && export DEJA_CLOCK || unset DEJA_CLOCK
	timeout --foreground -s KILL 60 "$deja" record --no-cache -o t.deja ./ask run 1 1 1500 >out 2>err &
	for i in 1 2 3 4 5 6; do
		sleep 0.1
		pid=$(pgrep -P "$(pgrep -P $! | head -n 1)" 2>/dev/null | head -n 1)
		[ -n "$pid" ] && kill -STOP "$pid" 2>/dev/null && sleep 0.02 && kill -CONT "$pid" 2>/dev/null
	done
	wait $!
	status=$?
	same "with signals and job control${clock:+, and the clock}"
done
unset DEJA_CLOCK

./ask children >native
record "$deja" record --no-cache -o t.deja ./ask children
same "children"
./ask kill >native
record "$deja" record --no-cache -o t.deja ./ask kill
same "children that are killed"

# deja is killed: nobody stays, waiting for an answer or not
for wait in 0.1 0.3; do
	"$deja" record --no-cache -o t.deja ./ask run 1 8 >out 2>err &
	recorder=$!
	sleep $wait
	below=$(pgrep -P $recorder)
	{ kill -KILL $recorder; wait $recorder; } 2>/dev/null
	for pid in $below; do
		for ((i = 0; i < 50; i++)); do
			[ -e /proc/"$pid" ] && ! grep -q '^State:.*Z' /proc/"$pid"/status 2>/dev/null || break
			sleep 0.1
		done
		[ $i -lt 50 ] || { fail "deja was killed, and left $pid behind"; kill -KILL "$pid"; }
	done
done

# ends WHAT: deja has, and not by a mistake of its own
ends() {
	case $status in
	137) fail "$1: no end" ;;
	134 | 139) grep -q internal err && fail "$1: $(head -n 3 err)" ;;
	esac
	! grep -q internal err || fail "$1: $(head -n 3 err)"
	"$deja" info t.deja >info 2>&1
	! grep -q 'cut off' info || fail "$1: deja has died, with $status"
}

# A program that writes to the words gets what it asked for, and perhaps dies of it, or waits for ever. Then it
# ends when it is told to.
for seed in $(seq 8); do
	timeout --foreground -s INT -k 20 2 "$deja" record --no-cache -o t.deja ./ask write "$seed" >out 2>err
	status=$?
	ends "written at random, $seed"
done
for seconds in 2 20; do
	timeout --foreground -s INT -k 20 $seconds "$deja" record --no-cache -o t.deja ./ask spin >out 2>err
	status=$?
	! grep -q spins out || break
done
ends "one that waits for ever"
grep -q spins out && [ $status = 124 ] || fail "one that waits for ever: exit status $status: $(cat out err)"

# A module's file is written to between what is asked: what is executed is in the trace.
for n in $(seq 0 23); do cp patched.so patched$n.so; done
./ask patch 24 >native
for n in $(seq 0 23); do cp patched.so patched$n.so; done
record "$deja" record --no-cache -o t.deja ./ask patch 24
same "modules that are written to"
conclude
