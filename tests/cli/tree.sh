#!/bin/bash
# Recordings of several processes: every one is in the trace and replays; their order; what cannot
# be recorded; what is killed; --no-follow.
#
# usage: tests/cli/tree.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in tree
${CC:-gcc} -g -O1 -pthread "$here/tree.c" -o tree || exit 99
can_record

# has WHAT N: so many processes are in the trace
has() {
	local n
	n=$("$deja" ps t.deja | tail -n +2 | wc -l)
	[ "$n" = "$2" ] || fail "$1: $n processes in the trace, not $2: $("$deja" ps t.deja)"
}

# same WHAT N COMMAND...: the same natively, recorded, and recorded without its children
same() {
	local what=$1 n=$2 native follow
	shift 2
	timeout --foreground -s KILL 60 "$@" >native.out 2>native.err
	native=$?
	for follow in --no-follow --follow; do
		timeout --foreground -s KILL 100 "$deja" record $follow -o t.deja -- "$@" >out 2>err
		[ $? = $native ] || fail "$what, $follow: exit status not $native: $(head -c 300 err)"
		cmp -s out native.out || fail "$what, $follow: output differs: $(head -c 300 out)"
		cmp -s err native.err || fail "$what, $follow: standard error differs: $(head -c 300 err)"
		replays "$what, $follow"
		[ $follow = --follow ] || has "$what, $follow" 1
	done
	[ "$n" = any ] || has "$what" "$n"
}

# ---- everything is in the trace ----------------------------------------------------------------

same "a shell with pipes" 8 sh -c 'for i in 1 2; do (echo $i; exit $i) | cat; done; echo $(echo x | tr x y)'
same "forks of a thread" 11 ./tree threads
same "eight threads" 3 ./tree crowd
# more than there is room for cannot be made, and that is all
DEJA_THREADS=5 "$deja" record -o t.deja ./tree crowd >out 2>err
sed 's/^8 threads, Success/5 threads, Resource temporarily unavailable/' native.out | cmp -s out - ||
	fail "more threads than there is room for: $(head -c 300 out err)"
replays "more threads than there is room for"
same "a daemon" 3 ./tree daemon
same "many at once" 82 bash -c 'for i in $(seq 40); do (read -r -t 0.3 <> <(:)) & done; wait; echo done'

# deja stays until the last process has ended; its exit status is the first one's
"$deja" record -o t.deja sh -c '(sleep 0.5; echo orphan >late) & exit 3' >out 2>err
[ $? = 3 ] || fail "an orphan: exit status is not the first process's: $(cat err)"
[ "$(cat late 2>/dev/null)" = orphan ] || fail "deja did not wait for an orphan"
replays "an orphan"
has "an orphan" 3

# a signal for deja, then, is for those that are left
"$deja" record -o t.deja sh -c 'echo $$ >first
	(trap "echo term >got; exit" TERM; echo >set; while :; do sleep 0.1; done) & exit 3' >out 2>err &
recorder=$!
for _ in {1..300}; do # it is ready, and the first one has ended
	[ -e set ] && [ ! -e "/proc/$(cat first)" ] && break
	sleep 0.1
done
sleep 0.3
kill -TERM $recorder
wait $recorder
[ $? = 3 ] && [ "$(cat got 2>/dev/null)" = term ] || fail "SIGTERM for deja when the first process has ended: $(cat err)"
replays "a signal for an orphan"

# ps has the command lines
"$deja" record -o t.deja sh -c "expr 1 + 1 '*' '' \"don't\"; :" >out 2>err
"$deja" ps t.deja | grep -Fq "expr 1 + 1 '*' '' 'don'\\''t'" || fail "ps without a command line: $("$deja" ps t.deja)"

# ---- order ---------------------------------------------------------------------------------------

# The last number of each child is below one that its parent takes before it makes the next child.
same "one child after the other" 11 ./tree order
first=$("$deja" dump t.deja | head -n 1 | cut -d' ' -f1)
"$deja" dump t.deja | awk -v first="$first" '
	$3 == "child" && $1 == first { for (i = 4; i <= NF; i++) if ($i ~ /^pid=/) order[++n] = substr($i, 5) }
	$3 == "seq" && $1 == first { split($4, a, "="); seq[++k] = a[2] }
	$3 == "digest" { for (i = 4; i <= NF; i++) if ($i ~ /^seq=/) last[$1] = substr($i, 5) }
	END {
		before = 0
		for (i = 1; i <= n; i++) {
			l = last[order[i]] + 0
			next_number = 0
			for (j = 1; j <= k; j++) if (seq[j] > l) { next_number = seq[j]; break }
			if (l <= before || !next_number) { print "child " i ": " l " after " before ", then " next_number; bad = 1 }
			before = next_number
		}
		exit bad || n != 10
	}' >out || fail "children are not in order with their parent: $(cat out)"

# What a child has from its parent a debugger sees at the child's first instruction.
if command -v gdb >/dev/null; then
	second=$("$deja" ps t.deja | sed -n 3p | awk '{ print $1 }')
	timeout -s KILL 60 "$deja" replay -p "$second" t.deja -- -nx -batch -ex 'print counter' \
		-ex backtrace >out 2>&1
	grep -q '= 77$' out && grep -q ' in main \| in do_order ' out ||
		fail "a child's memory in gdb: $(cat out)"
fi

# ---- what is killed ------------------------------------------------------------------------------

for seed in 1 2 3; do
	"$deja" record -o t.deja ./tree killed $seed >out 2>err || fail "killed $seed: $(cat err)"
	[ "$(cat out)" = "-9 -9 -9 -9 -9 -9 -9 -9 -9 -9 -9 -9 " ] || fail "killed $seed: $(cat out)"
	replays "killed $seed"
done

# deja itself: all are killed with it, and the trace is good up to there
"$deja" record -o t.deja sh -c 'sleep 100 & echo $! >pids; (echo $$; while :; do :; done) & echo $! >>pids; wait' 2>err >out &
recorder=$!
touch pids
for _ in $(seq 100); do
	[ "$(wc -l 2>/dev/null <pids)" = 2 ] && break
	sleep 0.1
done
sleep 0.7
kill -KILL $recorder
wait $recorder 2>/dev/null
for pid in $(cat pids); do
	for _ in {1..100}; do
		case $(cut -d' ' -f3 "/proc/$pid/stat" 2>/dev/null) in '' | Z) continue 2 ;; esac
		sleep 0.1
	done
	fail "process $pid survives deja"
done
timeout -s KILL 100 "$deja" verify t.deja >verify.out 2>verify.err
[ -s verify.out ] && ! grep -q divergence verify.out ||
	fail "deja killed: the trace does not replay: $(tail -n 2 verify.out verify.err)"

# ---- what cannot be recorded ---------------------------------------------------------------------

# a 32-bit program: mov eax, 1; mov ebx, 7; int 0x80
{
	printf '\177ELF\1\1\1\0\0\0\0\0\0\0\0\0\2\0\3\0\1\0\0\0\124\200\004\010\064\0\0\0'
	printf '\0\0\0\0\0\0\0\0\064\0\040\0\1\0\0\0\0\0\0\0'
	printf '\1\0\0\0\0\0\0\0\0\200\004\010\0\200\004\010\140\0\0\0\140\0\0\0\5\0\0\0\0\020\0\0'
	printf '\270\1\0\0\0\273\7\0\0\0\315\200'
} >elf32
chmod 755 elf32
./elf32 2>/dev/null
if [ $? = 7 ]; then
	"$deja" record -o t.deja sh -c './elf32; echo $?; ./elf32; echo $?; echo end' >out 2>err
	[ $? = 0 ] && [ "$(paste -s -d ' ' out)" = "7 7 end" ] || fail "a 32-bit child: $(cat out err)"
	[ "$(grep -c unrecorded err)" = 1 ] || fail "a 32-bit child: not one line: $(cat err)"
	"$deja" dump t.deja | grep -q ' end .*32-bit' || fail "a 32-bit child: the trace does not say so"
	replays "a 32-bit child"
else
	# the kernel executes none at all: a recorded program is told the same
	try_32='for i in 1 2; do ./elf32; echo $?; done; echo end'
	sh -c "$try_32" >native 2>native.err
	"$deja" record -o t.deja sh -c "$try_32" >out 2>err
	[ $? = 0 ] && [ "$(tail -n 1 out)" = end ] && cmp -s native out && cmp -s native.err err ||
		fail "a 32-bit child where there are none: $(cat out err)"
	replays "a 32-bit child where there are none"
fi

# ---- deja ends with the first process ------------------------------------------------------------------

rm -f late
mkfifo go
timeout 60 "$deja" record --no-wait -o t.deja \
	sh -c '(read -r x <go; expr 1 + 1; echo late >late) >/dev/null & exit 5' >out 2>err
[ $? = 5 ] || fail "--no-wait: not status 5: $(cat err)"
timeout 60 sh -c 'echo >go' # now the one that waits for it goes on
for _ in {1..100}; do
	[ -e late ] && "$deja" info --json t.deja 2>/dev/null | grep -q '"complete": *true' && break
	sleep 0.1
done
[ -e late ] || fail "--no-wait: who goes on has not got far"
replays "--no-wait"
has "--no-wait" 3
"$deja" record --no-wait -o t.deja sh -c 'kill -SEGV $$' >out 2>err
[ $? = 139 ] || fail "--no-wait: not killed as the program: $(cat err)"
replays "--no-wait, nobody goes on"
has "--no-wait, nobody goes on" 1

# ---- what must not be traced by deja -----------------------------------------------------------------

same "traced children" 5 ./tree traced
"$deja" dump t.deja | grep -c 'end .*another process traces it' | grep -qx 4 ||
	fail "traced children: the trace does not say that they went on by themselves"

# what clone3 makes is what the kernel was told, not what its arguments say a moment before or after
./tree changing >native.out 2>&1
for _ in 1 2 3; do
	timeout --foreground -s KILL 100 "$deja" record -o t.deja ./tree changing >out 2>&1
	cmp -s out native.out || fail "changing arguments of clone3: $(paste -s out), natively $(paste -s native.out)"
	replays "changing arguments of clone3"
	"$deja" dump t.deja >dump
	for what in 'child .*what=fork' 'thread .*what=made'; do
		grep -q " $what" dump || fail "changing arguments of clone3: no $what"
	done
done

# a set-user-ID program gets its privileges, recorded by somebody who has none
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	cp tree suid && chmod 4755 suid && chmod 755 . && mkdir own && chmod 777 own
	as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
	as ./tree user ./suid >native.out 2>&1
	if ! as test -x "$deja"; then
		cp "$deja" own/deja && deja=$work/own/deja
	fi
	as "$deja" record -o own/t.deja ./tree user ./suid >out 2>err
	cmp -s out native.out || fail "a set-user-ID child: $(paste -s out err), natively $(paste -s native.out)"
	cp own/t.deja t.deja
	replays "a set-user-ID child"
fi

# one that shares the program's memory looks at it with ptrace(2), whatever it is doing
${CC:-gcc} -w -O1 "$here/looks.c" -o looks || exit 99
./looks >native.out 2>&1
if grep -q '^200 attached, 200 seen, 0$' native.out; then
	for signals in '' signals; do
		timeout --foreground -s KILL 100 "$deja" record -o t.deja ./looks $signals >out 2>&1
		cmp -s out native.out || fail "attaching ($signals): $(paste -s out), natively $(paste -s native.out)"
		replays "attaching ($signals)"
	done
else
	echo "a process cannot look at its parent here: $(paste -s native.out)"
fi

[ $failures = 0 ] || exit 1
echo "processes: all of them recorded, in order"
