#!/bin/bash
# Code that a program makes in memory, the same at the same address as in an earlier recording, is not translated anew; and
# what is other code by now is what is executed.
#
# usage: tests/cli/made.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in made
${CC:-gcc} -O1 -pthread "$here/made.c" -o made || exit 99
can_record
if ! setarch -R true 2>err; then
	echo "skipped: a program cannot be told where to lie here: $(cat err)"
	exit 77
fi

# count WHAT: so many of them deja info tells of, which says nothing where there are none
count() {
	"$deja" info t.deja | awk -v what="$1" '/stops: system call$/ { told = 1 }
		$0 ~ what "$" { gsub(",", "", $1); n = $1 }
		END { if (told) print n + 0 }'
}

# recorded CACHE ARGUMENT...: the program with these does what it does natively; what was made anew and again in $anew and $again
recorded() {
	local cache=$1
	shift
	./made "$@" >native || fail "made $*: $?"
	# shellcheck disable=SC2086
	XDG_CACHE_HOME=$work/$cache timeout --foreground -s KILL 60 "$deja" record $options -o t.deja ./made "$@" >out 2>err ||
		fail "recording made $*: $? $(head -c 200 err)"
	cmp -s native out || fail "made $* in $cache does something else: $(diff native out | head -n 4)"
	"$deja" verify t.deja >/dev/null 2>err || fail "verifying made $* in $cache: $(head -c 200 err)"
	anew=$(count 'fragments made') again=$(count 'fragments made once more')
}

# by_chance ARGUMENT SEED: of threads that take turns by chance twice is not always enough, four times is
by_chance() {
	for _ in 1 2 3; do
		[ "$1" = m ] && [ $((5 * ${anew:-first})) -ge "$first" ] && recorded "$1" "$2" "$1"
	done
}

# ways ARGUMENT: again it is hardly translated; with other code it is, and what it was before once more
options=
ways() {
	local first
	recorded "$1" 1 "$1"
	first=$anew
	[ "${first:-0}" -gt 600 ] || fail "made 1 $1: only ${first:-no} fragments were made at first"
	recorded "$1" 1 "$1"
	by_chance "$1" 1
	[ $((5 * ${anew:-first})) -lt "$first" ] || fail "made 1 $1 again: ${anew:-?} fragments of $first were made anew"
	recorded "$1" 2 "$1"
	[ "${anew:-0}" -gt 600 ] || fail "made 2 $1: ${anew:-no} fragments were made, which is other code"
	recorded "$1" 2 "$1"
	by_chance "$1" 2
	[ $((5 * ${anew:-first})) -lt "$first" ] || fail "made 2 $1 again: ${anew:-?} fragments of $first were made anew"
	recorded "$1" 1 "$1"
}
for how in w x xw f wf t wt m; do
	ways $how
done
# other combinations: where several threads are, or code changes, less is known
for how in r twx rr xrwt trf ffww tm mrm wmfm; do
	for seed in 1 1 2 1; do
		recorded $how $seed $how
	done
done

# Where addresses are other ones each time nothing is remembered of them.
options=--randomize
recorded random 1 wx
first=$anew
recorded random 1 wx
[ $((2 * ${anew:-0})) -gt "${first:-1}" ] || fail "at random: ${anew:-no} fragments of ${first:-none} were made anew"
conclude
