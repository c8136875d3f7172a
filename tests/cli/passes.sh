#!/bin/bash
# Analyses say the same of what translated code tells them as of what the emulator does: all that a pass can tell, of
# recordings with threads, signals, faults and code that changes; and the answers of the commands, byte by byte.
#
# usage: tests/cli/passes.sh     (DEJA names the program under test; in the build directory)
. "$(dirname "$0")/../lib/shell.sh"
told=$build/tests/cli/told-ways
edit=$build/tests/cli/edit-trace
programs=$here/../programs
needs "$told" "$edit"
work_in passes
can_record

for name in threads jit faults atomics; do
	sources=("$programs/$name.c")
	[ -e "${sources[0]}" ] || sources=("$programs/$name"/*.c)
	${CC:-gcc} -O1 -g -pthread -mcx16 "${sources[@]}" -o $name || exit 99
	"$deja" record -o $name.deja ./$name >/dev/null 2>&1
done
cat >script <<'EOF'
trap 'n=$((n + 1))' USR1
s=0
for i in {1..100}; do
	s=$((s + i % 7))
	[[ $i == *9 ]] && s=$(printf %d $s) && kill -USR1 $$
done
echo $s $n
EOF
"$deja" record -o shell.deja bash script >/dev/null || fail "recording a shell"

translates=yes
for name in threads jit faults atomics shell; do
	(ulimit -t 60; exec timeout -s KILL 300 "$told" $name.deja) >out 2>&1
	case $? in
	0) ;;
	77) translates= ;;
	*) fail "$name is told in two ways: $(head -20 out)" ;;
	esac
done
# nearly all of it in translated code, or this compares nothing
[ -z "$translates" ] || grep -Eq ' [89][0-9]\.. % of them' out || fail "translated code was not used: $(cat out)"

# so is what comes before a position of another thread, though ordered instructions have to be counted
cat >turns.c <<'END'
#include <pthread.h>
#include <unistd.h>
static int to[2][2];
static long sum[2];
static void *take_turns(void *me)
{
	long i = (long)me;
	char c = 0;
	for (int n = 0; n < 20; n++) {
		if (read(to[i][0], &c, 1) != 1)
			return NULL;
		for (int k = 0; k < 200000; k++)
			if (k % 50000)
				sum[i] = sum[i] * 7 + k;
			else
				__atomic_fetch_add(&sum[i], k, __ATOMIC_RELAXED);
		if (write(to[!i][1], &c, 1) != 1)
			return NULL;
	}
	return NULL;
}
int main(void)
{
	pthread_t other;
	if (pipe(to[0]) || pipe(to[1]) || write(to[0][1], "", 1) != 1)
		return 1;
	pthread_create(&other, NULL, take_turns, (void *)1);
	take_turns((void *)0);
	pthread_join(other, NULL);
	return 0;
}
END
${CC:-gcc} -O1 -pthread turns.c -o turns || exit 99
"$deja" record -o turns.deja ./turns || fail "recording turns"
if [ -n "$translates" ]; then
	(ulimit -t 60; exec timeout -s KILL 300 "$told" turns.deja) >out 2>&1 || fail "turns are told in two ways: $(head -20 out)"
	grep -Eq '^of others ([89][0-9]|100)\.' out || fail "translated code was not used: $(cat out)"
fi

# both NAME QUESTION...: the same answer
both() {
	local name=$1
	shift
	"$deja" "$@" --json --emulate $name.deja >emulated 2>err || fail "$* --emulate: $(cat err)"
	"$deja" "$@" --json $name.deja >translated 2>err || fail "$*: $(cat err)"
	[ -s emulated ] && cmp -s emulated translated ||
		fail "of $name deja $* says other things in translated code: $(diff emulated translated | head)"
}
both threads profile --by path
both threads edges --from 1:0 --to 20:0
both shell profile --by instruction
both shell edges --sample --period 50
both shell coverage --libraries
both shell count
both shell stacks --every 100
both shell rep
both shell count --callers printf_builtin
both shell calls xmalloc
both shell accesses line_number
both shell count --data line_number

# together NAME QUESTION QUESTION...: answered by one pass as by one for each
together() {
	local name=$1 first=$2 more=() q
	shift 2
	{
		printf 'deja %s:\n\n' "${first%% *}" && "$deja" $first $name.deja
		for q in "$@"; do
			printf '\ndeja %s:\n\n' "${q%% *}" && "$deja" $q $name.deja
		done
	} >apart 2>err || fail "$first and $*: $(cat err)"
	for q in "$@"; do
		more+=(--with "$q")
	done
	"$deja" $first "${more[@]}" $name.deja >joined 2>err || fail "$first with $*: $(cat err)"
	cmp -s apart joined || fail "of $name $first and $* together say other things: $(diff apart joined | head)"
}
together shell 'profile --by path' 'edges --limit 100' rep 'accesses line_number' 'calls xmalloc'
together shell 'calls xmalloc --limit 2' 'accesses line_number --limit 3' 'coverage --libraries' heap 'count --code xmalloc'
together threads races 'rep --after 2' 'profile --threads' 'stacks --every 500'
together shell 'edges --sample --period 50' 'stacks --every 100' 'count --data line_number'
"$deja" edges --json shell.deja >want
"$deja" profile --json --with 'edges' shell.deja |
	/usr/bin/env python3 -c 'import json, sys
a = json.load(sys.stdin)
assert list(a) == ["profile", "edges"] and a["edges"] == json.load(open("want"))' || fail "two answers in JSON"
for q in 'diff x' 'origin x' events 'edges --from 1:0' 'edges x' calls "calls 'a" 'heap --at 1' ''; do
	"$deja" profile --with "$q" shell.deja >out 2>err
	[ $? = 1 ] && [ "$(wc -l <err)" = 1 ] && [ ! -s out ] || fail "--with '$q': $(cat out err)"
done

# files are written where no file can be made
"$deja" profile --flame a.svg --callgrind a.out shell.deja >out 2>err || fail "profile with files: $(cat err)"
"$deja" profile --emulate --flame b.svg --callgrind b.out shell.deja >out 2>err || fail "profile with files: $(cat err)"
cmp a.svg b.svg && cmp a.out b.out && [ -s a.svg ] && [ -s a.out ] || fail "the files differ"
"$deja" profile --flame /nowhere/page shell.deja >out 2>err
[ $? = 1 ] && grep -q '^deja: cannot write /nowhere/page' err || fail "a file that cannot be written: $(cat err)"
# a shorter answer leaves nothing of what a file had
head -c 10000000 /dev/zero >a.out
"$deja" profile --callgrind a.out shell.deja && cmp a.out b.out || fail "a file has kept what it had"

# what goes astray in translated code only the emulator tells
"$edit" shell.deja wrong.deja spoil digest 1 || fail "edit-trace"
"$deja" edges --json wrong.deja >translated 2>err1
a=$?
"$deja" edges --json --emulate wrong.deja >emulated 2>err2
b=$?
[ $a = 2 ] && [ $b = 2 ] && cmp err1 err2 && cmp emulated translated && [ -s emulated ] ||
	fail "a history that diverges: $a $b $(cat err1 err2)"
conclude
