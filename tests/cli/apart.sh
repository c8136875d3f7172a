#!/bin/bash
# What the kernel emulates (sgdt, sidt, smsw, sldt, str, calls of the vsyscall page) stops behind the
# instruction, every time: the program does what it does natively, nothing that it executes is missing
# from the recording, and it faults as it does natively.
#
# usage: tests/cli/apart.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in apart
${CC:-gcc} -g -O1 -mno-red-zone "$here/apart.c" -o apart -pthread || exit 99
can_record

# recorded ROUNDS MODE OPTION...: as natively
recorded() {
	local rounds=$1 mode=$2
	shift 2
	./apart "$rounds" "$mode" >native.out || fail "apart $rounds $mode, natively"
	timeout -s KILL 100 "$deja" record "$@" -o apart.deja ./apart "$rounds" "$mode" >out 2>err ||
		fail "$rounds $mode $*: status $?: $(cat err)"
	diff native.out out >diffs || fail "$rounds $mode $* differs: $(head -40 diffs)"
	"$deja" verify apart.deja >out 2>&1 || fail "verify $rounds $mode $*: $(tail -1 out)"
}

# count ROUNDS MODE OPTION...: sets $natives, of them, and $instructions
count() {
	recorded "$@"
	"$deja" info --json apart.deja >info.json || fail "info: status $?"
	read -r natives instructions < <(python3 -c '
import json
info = json.load(open("info.json"))
print(info["recorder"]["stops: instruction executed natively"], info["instructions"])')
}

each=$(./apart 1 threads | sed -n 's/ in a round$//p')
# Where this machine has no such page or refuses the instructions that is told natively, too.
if grep -q '\[vsyscall\]' /proc/self/maps && ./apart 1 >out; then
	for mode in alone threads; do
		count 20 $mode
		few=$natives base=$instructions
		count 220 $mode
		threads=1
		[ $mode = alone ] || threads=4
		more=$((natives - few)) wanted=$((200 * each * threads))
		# on a processor without UMIP none but the vsyscall page's is missing from the rest
		[ $more -ge $wanted ] && [ $more -le $((wanted + 100)) ] ||
			fail "$mode: $more instructions executed natively, not $wanted"
		[ $((instructions - base)) -ge $((4 * wanted)) ] || fail "$mode: $((instructions - base)) instructions more"
	done
	recorded 20 filtered
	recorded 20 threads --order=acqrel --exact-flags --predict=none
	recorded 20 alone --predict=none
	recorded 5 filtered --order=kernel
fi
conclude
