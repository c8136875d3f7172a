#!/bin/bash
# Children that execute in their parent's memory until their exec (vfork, posix_spawn, clone): what
# they do is as without deja, and in the recording from their first instruction.
#
# usage: tests/cli/vfork.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in vfork
${CC:-gcc} -g -O1 -pthread "$here/vfork.c" -o vfork || exit 99
can_record

# same WHAT MODE OPTION...: the program does natively what it does recorded with these options
same() {
	local what=$1 mode=$2 native
	shift 2
	timeout --foreground -s KILL 60 ./vfork "$mode" >native.out 2>native.err
	native=$?
	timeout --foreground -s KILL 100 "$deja" record "$@" -o t.deja ./vfork "$mode" >out 2>err
	[ $? = $native ] || fail "$what: exit status not $native: $(head -c 300 err)"
	cmp -s out native.out || fail "$what: output differs: $(diff native.out out | head -n 4)"
	replays "$what"
}

# has WHAT N TEXT: so many lines of what deja ps says of threads end with this
has() {
	local n
	"$deja" ps --threads t.deja >ps.out
	n=$(grep -c -- "$3" ps.out)
	[ "$n" = "$2" ] || fail "$1: $n times '$3', not $2: $(head -n 30 ps.out)"
}

# quiet WHAT: recorded without a word
quiet() { [ ! -s err ] || fail "$1: $(head -c 300 err)"; }

# ---- what is recorded --------------------------------------------------------------------------

same "writes to the parent's memory" writes
quiet "writes to the parent's memory"
has "writes to the parent's memory" 6 '^ *[0-9]* *thread *[1-9][0-9]* .* vfork$'
for status in 1 2 3 4; do
	has "writes to the parent's memory" 1 " 0  *0 .*exited with status $status\$"
done
"$deja" events t.deja >events.out
[ "$(grep -c 'execve("/no/such/program".* = -1 ENOENT' events.out)" = 5 ] ||
	fail "calls of the children are not among the events: $(cat events.out)"
"$deja" calls in_child t.deja >calls.out
[ "$(grep -c ' n=10 ' calls.out) $(grep -c ' n=1 ' calls.out)" = "5 5" ] ||
	fail "calls of functions in the children: $(cat calls.out)"
"$deja" heap t.deja >heap.out
grep -Eq '^0 bytes in 0 blocks are alive; ([1-9][0-9]*) allocations of [0-9]+ bytes, \1 frees' heap.out ||
	fail "what children allocate: $(cat heap.out)"
"$deja" races t.deja >races.out
[ "$(tail -n 1 races.out)" = "(none)" ] || fail "a child and its parent race: $(cat races.out)"

if command -v gdb >/dev/null; then
	timeout -s KILL 60 "$deja" replay t.deja -- -nx -batch -ex 'break in_child if n == 10' -ex continue \
		-ex 'info threads' -ex finish -ex 'print counter' -ex 'watch counter' -ex continue \
		-ex 'monitor when' -ex reverse-continue -ex reverse-continue -ex 'monitor when' >out 2>&1
	grep -q 'hit Breakpoint 1, in_child (n=.*10)' out || fail "a breakpoint in a child: $(cat out)"
	grep -Eq '^  1 +Thread ([0-9]+)\.\1 .*vfork' out && grep -Eq '^\* 2 +Thread [0-9]+\.[0-9]+ .*in_child' out ||
		fail "threads of parent and child: $(cat out)"
	threads=$("$deja" ps --threads t.deja | awk '$2 == "thread" { print $1 }' | head -n 2 | paste -s -d' ')
	[ "$(sed -n 's/^[0-9]*:[0-9]*@//p' out | paste -s -d' ')" = "$threads" ] && grep -q '^\$1 = 10$' out ||
		fail "who changes a variable of the parent's: $(cat out)"
else
	left_out gdb
fi

# its process begins at its exec, with the number that the thread had
same "an exec" exec
quiet "an exec"
"$deja" ps --threads t.deja >ps.out
awk '$2 == "thread" && !/ sh$/ { tid[$1]++ } $3 == 1 && / sh -c .echo from a shell; exit 4. / { n += tid[$1] } END { exit n != 3 }' ps.out ||
	fail "children with an exec are not both thread and process: $(cat ps.out)"
# ... and its positions are not those of the thread
"$deja" events t.deja | sed -n 's/^\([0-9]*:[0-9]*@[0-9]*\).*begins.*/\1/p' | grep -v ^0:0 >begins.out
"$deja" events t.deja | sed -n 's/^\([0-9]*:[0-9]*@[0-9]*\).*/\1/p' | sort | uniq -d >double.out
while read -r at; do
	grep -qx "$at" double.out && fail "an image begins where its thread was: $at"
done <begins.out
[ "$(wc -l <begins.out)" -ge 6 ] || fail "who begins is not told: $(cat begins.out)"

# its descriptors are its own: what was written to the pipe that it has made its output is found, and
# the parent's are as they were
same "a pipe" pipe
at=$("$deja" calls check t.deja | sed -n '2s/ .*//p')
timeout -s KILL 100 "$deja" origin "$at" piped t.deja >out 2>&1
grep -q 'through a pipe made at .*: write(1, "through a pipe.n", 15) = 15' out ||
	fail "what came through a pipe: $(cat out)"
grep -q 'memory that is not mapped' out && fail "beyond an exec: $(cat out)"

# ---- as without deja ---------------------------------------------------------------------------

for follow in --follow --no-follow; do
	for mode in code several many signals timer nested clones ends limits filter; do
		same "$mode, $follow" $mode $follow
		quiet "$mode, $follow"
	done
done

# all but the first are in the area that the one before has left, and find nothing of that one's
same "one after the other" many
has "one after the other" 101 '^ *[0-9]* *thread *[1-9][0-9]* .* vfork$'

# those that are not recorded: what signals do is their parent's as well
same "clones" clones
has "clones" 13 '^ *[0-9]* *thread '

# ... there is no room for more
export DEJA_THREADS=1
same "no room for a second child" nested
quiet "no room for a second child"
unset DEJA_THREADS
same "a filter that leaves no room" filters
has "a filter that leaves no room" 3 'there was no room for what its recording needs'

# ---- what becomes of the parent ------------------------------------------------------------------

same "parents that are killed, end or become another program" orphans
quiet "parents that are killed, end or become another program"
has "parents that are killed" 2 'killed by signal 9'
has "parents that become another program" 2 'its parent becomes another program'

for _ in 1 2 3; do
	same "a child between two that is killed" between
	quiet "a child between two that is killed"
done
same "children that are killed" victims
quiet "children that are killed"
# the first process of all, killed by its child, which it waits for
"$deja" record -o t.deja ./vfork last >out 2>err
[ $? = 137 ] && [ "$(paste -s -d' ' out)" = "orphan 5 and became another" ] || fail "the first process killed: $(cat out err)"
replays "the first process killed"
has "the first process killed" 1 'killed by signal 9'
has "the first process killed" 1 'echo .and became another.  *exited with status 0'

# ---- who is traced, or somebody else ---------------------------------------------------------------

same "children that are traced" traced
quiet "children that are traced"
has "children that are traced" 2 'another process traces it'
has "the parent of those" 1 ' 0  *3 .* exited with status 0'
if [ "$(id -u)" = 0 ]; then
	chmod 755 . && same "children that become another user" user
	quiet "children that become another user"
fi

# A thread that blocks SIGTRAP sleeps until another one has had a SIGTRAP: that one does not wait for it.
${CC:-gcc} -O1 -w -pthread "$here/vfork-trap.c" -o vfork-trap || exit 99
for n in 5 20 60; do
	timeout --foreground -s KILL 60 "$deja" record -o t.deja ./vfork-trap $n >out 2>err || fail "SIGTRAP beside a vfork: $(head -c 300 err)"
	[ "$(cat out)" = "$n of $n" ] || fail "SIGTRAP beside a vfork: $(cat out)"
	replays "SIGTRAP beside a vfork"
done

[ $failures = 0 ] || exit 1
echo "children in their parent's memory: recorded, and as without deja"
