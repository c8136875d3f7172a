#!/bin/bash
# Signals that come anywhere in instructions of every kind: the program computes what it does natively,
# and the trace replays.
#
# usage: tests/cli/anywhere.sh [SEEDS [FIRST]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
seeds=${1:-12} first=${2:-1}
work_in anywhere
${CC:-gcc} -O1 -w -mno-red-zone -mavx2 -mbmi2 -o anywhere "$here/anywhere.c" || exit 99
can_record

options=("" "--exact-flags" "--order load" "--shadow-memory 1M" "--predict last")
for ((i = first; i < first + seeds; i++)); do
	us=$((20 + i * 37 % 120))
	seed=$i n=2000
	case $((i % 8)) in
	6) kinds=unknown ;;
	0 | 4) kinds=stack n=6000 seed=$((i + 16)) ;; # 20 is mostly pushf
	1 | 5) kinds=strings ;;
	*) kinds=any ;;
	esac
	read -ra with <<<"${options[i % ${#options[@]}]}"
	what="./anywhere $seed $us $n $kinds (${with[*]})"
	timeout -s KILL 60 ./anywhere $seed $us 20 $kinds >native || fail "$what, natively: $(tail -3 native)"
	timeout -s KILL 100 "$deja" record "${with[@]}" -o t.deja -- ./anywhere $seed $us $n $kinds >out 2>err ||
		fail "$what: $(tail -3 out err)"
	cmp -s native out || fail "$what: $(tail -3 out), natively $(tail -1 native)"
	[ ! -s err ] || fail "$what: it said $(cat err)"
	timeout -s KILL 200 "$deja" verify t.deja >verified 2>&1 || fail "$what: $(tail -3 verified)"
done
conclude
