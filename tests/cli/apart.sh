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

# How many there are in a round: the kernel may have no page of vsyscalls.
./apart 1 >out || { echo "skipped: this kernel does not let the instructions pass natively"; exit 77; }
read -r each who < <(./apart 0 each)
export UMIP=1
[ "$who" = emulated ] || UMIP=0
[ $UMIP = 1 ] ||
	echo "this machine executes sgdt and its kind itself: what they store is not compared, only where"
for mode in alone threads; do
	count 20 $mode
	few=$natives base=$instructions
	count 220 $mode
	threads=1
	[ $mode = alone ] || threads=4
	more=$((natives - few)) wanted=$((200 * each * threads))
	[ $more -ge $wanted ] && [ $more -le $((wanted + 100)) ] ||
		fail "$mode: $more instructions executed natively, not $wanted"
	[ $((instructions - base)) -ge $((4 * wanted)) ] || fail "$mode: $((instructions - base)) instructions more"
done
recorded 20 filtered
recorded 20 threads --order=acqrel --exact-flags --predict=none
recorded 20 alone --predict=none
recorded 5 filtered --order=kernel

# cli and sti, four in a round
count 20 iopl
if grep -q 'not permitted' native.out; then
	echo "cli and sti after iopl(3) were not tried: it is not permitted here"
else
	few=$natives
	count 220 iopl
	[ $((natives - few)) -ge $((200 * (each + 4))) ] ||
		fail "iopl: $((natives - few)) instructions executed natively, not $((200 * (each + 4)))"
fi
conclude
