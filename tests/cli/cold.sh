#!/bin/bash
# What begins again and again does not stop for the same code again and again: subshells, and
# programs that a shell starts. Told from what a recording says of its stops; the difference of a
# long and a short one is what each round costs. Runs in the build directory.
#
# usage: tests/cli/cold.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in cold
can_record

# Stops are counted where they do not depend on what else the machine does: on one processor. Where there are two the
# supervisor makes some of the code while the program goes on, or is asked for it without a stop, as far as it
# gets to that in time.
alone=()
! command -v taskset >/dev/null || alone=(taskset -c "$(taskset -pc $$ | sed 's/.*[ :]\([0-9]*\)\([-,].*\)*$/\1/')")

# stops TRACE: for code that was not translated, and for unknown targets of indirect branches.
stops() {
	"$deja" info "$1" | awk '/stops: (code not yet|target of)/ { gsub(",", "", $1); n += $1 } END { print n + 0 }'
}

# per_round NAME LIMIT COMMAND [OPTION]: a round of the command in bash makes no more stops than that.
per_round() {
	local name=$1 limit=$2 command=$3 option=${4:-} few many
	for n in 10 30; do
		"${alone[@]}" "$deja" record --no-cache $option -o "$work/$name-$n.deja" -- /bin/bash -c \
			"i=0; while [ \$i -lt $n ]; do $command; i=\$((i + 1)); done" >/dev/null ||
			{ fail "recording $name"; return; }
	done
	few=$(stops "$work/$name-10.deja") many=$(stops "$work/$name-30.deja")
	local each=$(((many - few) / 20))
	[ "$few" -gt 0 ] && [ "$each" -le "$limit" ] ||
		fail "$name: $each stops in each round, expected no more than $limit ($few, $many)"
	"$deja" verify "$work/$name-30.deja" >/dev/null || fail "verifying $name"
}

# without notes of what children stop for: 145
# shellcheck disable=SC2016
per_round subshell 25 '(: $((i * 2)))'
per_round program 30 /bin/true --randomize
# Where a program lies where it lay the next image begins with the code of the one before.
! setarch -R true 2>/dev/null || per_round again 2 /bin/true

# However many programs there have been, the latest are known. (Without that: 235.)
mkdir "$work/names"
for n in {1..40}; do
	cp /bin/true "$work/names/$n"
done
for n in 2 10; do
	"${alone[@]}" "$deja" record --no-cache --randomize -o "$work/names-$n.deja" -- /bin/bash -c \
		"for p in '$work'/names/*; do \$p; done; for ((i = 0; i < $n; i++)); do \$p; done" ||
		fail "recording many names"
done
each=$((($(stops "$work/names-10.deja") - $(stops "$work/names-2.deja")) / 8))
[ "$each" -le 30 ] || fail "the fortieth program: $each stops each time"
# With several processors: as few, or nearly, of those and of questions. What the first forty cost differs by
# thousands from run to run, as the supervisor gets to make code ahead, so that there are many more behind them.
asked() {
	"$deja" info "$1" | awk '/stops: (code not yet|target of)|without a stop/ { gsub(",", "", $1); n += $1 } END { print n + 0 }'
}
for n in 2 62; do
	"$deja" record --no-cache --randomize -o "$work/names-$n.deja" -- /bin/bash -c \
		"for p in '$work'/names/*; do \$p; done; for ((i = 0; i < $n; i++)); do \$p; done" ||
		fail "recording many names"
done
each=$((($(asked "$work/names-62.deja") - $(asked "$work/names-2.deja")) / 60))
[ "$each" -le 120 ] || fail "the fortieth program: $each stops and questions each time"

# A program that goes on when its notes have been forgotten begins them again. (It had the numbers
# of those before, and links were written behind the notes' end.)
"$deja" record --no-cache --randomize -o "$work/forgotten.deja" -- /bin/bash -c \
	"for p in '$work'/names/*; do \$p; done; printf -v x '%q %(%T)T %5.3f' 'a b' 7 1.5; [[ ab =~ ^a(.)\$ ]]
	for p in '$work'/names/*; do \$p; done; read -r x <<<word; echo \${x@Q} \$((2 ** 10))" >out ||
	fail "recording with forgotten notes"
[ "$(cat out)" = "'word' 1024" ] || fail "recorded with forgotten notes it prints $(cat out)"
"$deja" verify "$work/forgotten.deja" >/dev/null || fail "verifying what was recorded with forgotten notes"

# What was translated once is only made again: of the fragments of some hundred images.
made() {
	"$deja" info "$work/program-30.deja" |
		awk -v what="$1" '$0 ~ what "$" { gsub(",", "", $1); print $1; exit }'
}
anew=$(made 'fragments made') again=$(made 'fragments made once more')
[ "${anew:-0}" -gt 0 ] && [ "${again:-0}" -gt $((4 * anew)) ] ||
	fail "${anew:-no} fragments were made, and ${again:-none} once more: expected four times as many"

# From one recording to the next: the second one has hardly anything to translate, or to stop for. (Here of what is kept
# one by one; of what is kept as a whole: estate.sh.)
export XDG_CACHE_HOME=$work/home/.cache
mkdir -p "$XDG_CACHE_HOME"
count() {
	"$deja" info "$work/cache.deja" |
		awk -v what="$1" '$0 ~ what { gsub(",", "", $1); n += $1 } END { print n + 0 }'
}
# one_by_one DIRECTORY: nothing is kept there as a whole
one_by_one() {
	rm -f "$1"/*.estate
}
# shellcheck disable=SC2317
recorded() {
	"$deja" record "$@" -o "$work/cache.deja" -- /bin/bash -c 'echo $((6 * 7))' >out 2>err ||
		fail "recording with a cache: $(cat err)"
	[ "$(cat out)" = 42 ] || fail "recorded with a cache it prints $(cat out)"
	"$deja" verify "$work/cache.deja" >/dev/null || fail "verifying what was recorded with a cache"
	count 'fragments made$'
}
cache=$XDG_CACHE_HOME/deja
# of stops and of questions that took the place of one
for_code='stops: (code not yet|target of)|without a stop'
first=$(recorded) first_stops=$(count "$for_code")
one_by_one "$cache"
second=$(recorded) second_stops=$(count "$for_code")
[ "$second" -lt $((first / 10)) ] && [ "$second_stops" -lt $((first_stops / 4)) ] ||
	fail "with a cache $first fragments, $first_stops stops, then $second, $second_stops"
[ "$(stat -c %a "$cache")" = 700 ] || fail "others can look into the cache"
# Where there is a second processor the program does not wait for all of it.
if [ "$(nproc)" -gt 1 ]; then
	beside=$(count 'of these while the program went on')
	[ "$beside" -gt 100 ] && [ "$beside" -lt "$(count 'fragments made once more')" ] ||
		fail "with a cache $beside of $(count 'fragments made once more') fragments are made beside the program"
	one_by_one "$cache"
	taskset -c "$(taskset -pc $$ | sed 's/.*[ :]\([0-9]*\)[-,].*/\1/')" "$deja" record -o "$work/cache.deja" -- \
		/bin/bash -c 'echo $((6 * 7))' >out || fail "recording on one processor"
	[ "$(cat out) $(count 'of these while the program went on')" = "42 0" ] ||
		fail "on one processor $(count 'of these while the program went on') fragments are made beside the program"
fi

# Packed modules: bash and the C library are there, are taken from there, and the trace needs them no more.
# (A note of what a file contains may come later, when the file is old enough: tests/unit/test-packed.c.)
packed_modules()
{
	ls -i "$cache/packed" | grep -v ' of-'
}
packed=$(packed_modules)
[ "$(wc -l <<<"$packed")" -ge 2 ] || fail "packed modules for later recordings: $packed"
recorded >again.out
[ "$(packed_modules)" = "$packed" ] || fail "packed modules were written again"
mv "$cache/packed" "$work/packed"
"$deja" verify "$work/cache.deja" >/dev/null || fail "without packed modules the trace is not whole"
ln -s "$work/packed" "$cache/packed"
for one in "$work"/packed/*; do
	: >"$one"
done
recorded >again.out
[ -z "$(find "$work/packed" -type f -size +0)" ] || fail "a link out of the cache was followed"
rm "$cache/packed"
"$deja" record --no-cache -o "$work/cache.deja" -- /bin/true && [ ! -e "$cache/packed" ] ||
	fail "with --no-cache something is kept"

# What the same program did elsewhere is not made again by one that does little: it makes 1.05 to 1.23 times what it
# needs, as the environment and its strings lie, and 1.12 times in three of them. (Where rows of notes had no end it was
# 1.2 to 1.6 times that.)
# shellcheck disable=SC2016
little='echo $((6 * 7))' more='declare -A a; for i in {1..9}; do a[$i]=$((i * i)); done
	printf "%05d %q\n" 5 "${a[*]}"; [[ abc =~ ^a(.)c$ ]]; mapfile -t m </etc/passwd; f() { echo "${1^^}"; }; f x
	set -- -a -b c; while getopts ab: o; do :; done; ulimit -a; shopt; complete -p; help; times; declare -p
	compgen -b; trap : USR1; type -a ls; let "q = 3 ** 4 | 2"; unset a'
all_made=0 all_needed=0
for setting in LC_ALL=C LC_ALL=C.UTF-8 X=1; do
	mkdir "$work/$setting"
	needed=
	for what in "$little" "$little" "$more" "$little"; do
		one_by_one "$work/$setting/deja"
		env -i PATH=/usr/bin:/bin "XDG_CACHE_HOME=$work/$setting" "$setting" \
			"${alone[@]}" "$deja" record -o "$work/cache.deja" -- /bin/bash -c "$what" >out 2>&1 || fail "$setting: $(cat out)"
		needed=${needed:-$(count 'fragments made$')}
	done
	made=$(($(count 'fragments made$') + $(count 'fragments made once more')))
	last_stops=$(count 'stops: (code not yet|target of)')
	all_made=$((all_made + made)) all_needed=$((all_needed + needed))
	[ "$made" -lt $((needed * 5 / 4)) ] && [ "$last_stops" -lt $((first_stops / 8)) ] ||
		fail "$setting: after something larger $made fragments, $last_stops stops, where $needed fragments are enough"
done
[ "$all_made" -lt $((all_needed * 6 / 5)) ] ||
	fail "after something larger $all_made fragments are made, where $all_needed are enough"

# Images that stop for their code by turns leave rows of their own: one of them goes through its row with few stops.
# (Where rows were what lay side by side: 190.)
if ${CC:-gcc} -O1 -w -o "$work/turns" "$here/turns.c"; then
	mkdir "$work/by-turns" "$work/by-turns/home"
	mkfifo "$work/by-turns/a" "$work/by-turns/b"
	cat >"$work/by-turns/both" <<-EOF
		exec 3<>"$work/by-turns/a" 4<>"$work/by-turns/b"
		"$work/turns" 0 <&3 >&4 &
		"$work/turns" 1 <&4 >&3 &
		printf x >&3
		wait
	EOF
	for what in "/bin/bash $work/by-turns/both" "$work/turns 0 alone"; do
		one_by_one "$work/by-turns/home/deja"
		# shellcheck disable=SC2086
		XDG_CACHE_HOME=$work/by-turns/home timeout 60 "${alone[@]}" "$deja" record -o "$work/cache.deja" -- $what >/dev/null 2>out ||
			fail "$what: $(cat out)"
	done
	"$deja" verify "$work/cache.deja" >/dev/null || fail "verifying what others did by turns"
	last_stops=$(count 'stops: (code not yet|target of)')
	[ "$last_stops" -lt 120 ] || fail "what others did by turns makes $last_stops stops"
fi

# That the handlers of a program see the flags of faults is known from its start the next time, so that nothing made before
# the first one has to go; and forgotten when it has none.
if ${CC:-gcc} -O1 -w -o "$work/faulty" "$here/faulty.c"; then
	mkdir "$work/faults"
	gone=
	for what in yes yes '' '' yes yes; do
		# shellcheck disable=SC2086
		PATH=$work:$PATH XDG_CACHE_HOME=$work/faults "$deja" record -o "$work/cache.deja" -- faulty $what >out ||
			fail "recording a handler of faults"
		[ "$(cat out)" = "$([ -z "$what" ] && echo 0 || echo 1)" ] || fail "with '$what' it prints $(cat out)"
		"$deja" verify "$work/cache.deja" >/dev/null || fail "verifying a handler of faults"
		gone="$gone $(count 'times everything was given up')"
	done
	[ "$gone" = ' 1 0 0 0 1 0' ] || fail "with and without a handler of faults all was given up$gone times"
fi

# What is kept is read where it lies. Who writes there does not have to wait for the recording, and does it no harm.
leases() {
	python3 -c 'import fcntl, sys
f = open(sys.argv[1])
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)' "$1" 2>/dev/null
}
mkdir "$work/leased"
say='import json, decimal; input(); import asyncio, ast, argparse; print(json.dumps({"a": str(decimal.Decimal(2) ** 99)}))'
for _ in 1 2; do
	XDG_CACHE_HOME=$work/leased "$deja" record -o "$work/cache.deja" -- python3 -c "$say" <<<x >out || fail "recording python3"
done
expected=$(cat out)
mkfifo "$work/input"
exec 9<>"$work/input"
XDG_CACHE_HOME=$work/leased "$deja" record -o "$work/cache.deja" -- python3 -c "$say" <"$work/input" >out 9>&- &
pid=$!
for _ in {1..100}; do # until it waits for its input
	sleep 0.1
	read -r child _ <"/proc/$pid/task/$pid/children"
	grep -q '^0 0x0 ' "/proc/$child/syscall" 2>/dev/null && break
done
for kind in keep estate; do
	mapfile -t large < <(find "$work/leased" -name "*.$kind" -size +2M)
	[ ${#large[@]} -gt 0 ] || fail "nothing large is kept of python3: $kind"
	leased=0
	for f in "${large[@]}"; do
		leased=$((leased + $(grep -c "LEASE.* $pid .*:$(stat -c %i "$f") " /proc/locks)))
	done
	! leases "${large[0]}" || [ $leased -gt 0 ] || fail "no $kind of python3 is leased"
done
for f in "$work"/leased/deja/*.keep "$work"/leased/deja/*.estate; do
	timeout 10 bash -c 'head -c 100000 /dev/urandom 1<>"$1" && : >"$1"' x "$f" || fail "writing to $f"
done
! grep -q "LEASE.* $pid " /proc/locks || fail "a lease is not given back"
echo x >&9
wait "$pid" || fail "a recording whose cache is overwritten fails"
exec 9>&-
[ "$(cat out)" = "$expected" ] || fail "with a cache that is overwritten it prints $(cat out)"
"$deja" verify "$work/cache.deja" >/dev/null || fail "verifying what was recorded with an overwritten cache"

# anew WHAT OPTION...: the recording uses nothing of the cache, and says nothing about it.
anew() {
	local what=$1 made
	shift
	made=$(recorded "$@")
	[ "$made" -gt $((first / 2)) ] || fail "$what: $made fragments, $first without a cache"
	[ -s err ] && ! grep -q '^deja: recorded' err && fail "$what: something is said: $(cat err)"
}
anew 'with --no-cache' --no-cache
# What was translated under other rules is of no use.
anew 'other flags' --exact-flags
anew 'another prediction' --predict last
anew 'another memory model' --order acqrel

# Damage is found, wherever it is, and what is damaged is made anew: the outputs and digests are right.
RANDOM=4711
for round in 1 2 3 4; do
	for f in "$cache"/*.* "$cache"/packed/*; do
		# now and then what is packed is known, and damaged
		[[ $round$f == [24]*/of-* ]] && continue
		size=$(stat -c %s "$f")
		for i in 1 2 3 4 5 6 7 8; do
			at=$(((RANDOM * 32768 + RANDOM) % size))
			[ "$round" = 1 ] && at=$((i * 8)) # the head
			printf '%b' "\\x$(printf %x $((RANDOM % 256)))" |
				dd of="$f" bs=1 seek=$at conv=notrunc status=none
		done
		[ "$round" = 3 ] && truncate -s $((size / 2)) "$f"
	done
	recorded >/dev/null
done

# Nor is used what others may write to, or a link: file, directory.
rm -r "$cache"
mkdir -m 700 "$cache"
# What was of no use for longest goes when there is too much; and what somebody had begun to write.
truncate -s 600M "$cache/1.keep"
truncate -s 600M "$cache/2.keep"
touch -d yesterday "$cache/1.keep" "$cache/.1.keep.1"
touch "$cache/.2.keep.1" "$cache/mine"
recorded >/dev/null
left=$(cd "$cache" && echo .[12]* [12].* mine)
[ "$left" = '.2.keep.1 2.keep mine' ] || fail "of what was too much there is left: $left"
rm "$cache/mine" "$cache/.2.keep.1" "$cache/2.keep"
chmod g+w "$cache"/*
anew 'files that others may write to'
rm -r "$cache"
recorded >/dev/null
for f in "$cache"/*; do
	mv "$f" "$work/$(basename "$f")" && ln -s "$work/$(basename "$f")" "$f"
done
anew 'links instead of files'
rm -r "$cache"
recorded >/dev/null
chmod o+w "$cache"
anew 'a directory that others may write to'
chmod o-w "$cache"
mv "$cache" "$work/elsewhere" && ln -s "$work/elsewhere" "$cache"
anew 'a link instead of the directory'
rm "$cache"
[ "$(id -u)" != 0 ] || { chown 12345 "$XDG_CACHE_HOME" && anew "somebody else's directory"; }
[ ! -e "$cache" ] || fail "a directory was left in somebody else's"
# Asked for by name, that is said.
chmod o+w "$work/elsewhere"
recorded --cache "$work/elsewhere" >/dev/null
grep -q 'elsewhere is not used: it belongs to somebody else, or others may write to it' err ||
	fail "nothing is said about a cache that is not used: $(cat err)"

# Without a home, or in one that cannot be written to, there is none, and that is no matter.
unset XDG_CACHE_HOME
export HOME=$work/none
anew 'a home that does not exist'
[ ! -e "$HOME" ] || fail "a home was made"
unset HOME
anew 'no home'
export XDG_CACHE_HOME=relative
anew 'a relative directory'
[ ! -e relative ] || fail "a relative directory was made"
# In a new home the directory is made, for the user alone.
unset XDG_CACHE_HOME
export HOME=$work/fresh
mkdir "$HOME"
recorded >/dev/null
[ "$(recorded)" -lt $((first / 10)) ] || fail "in a new home nothing was kept"
[ "$(stat -c %a "$HOME/.cache" "$HOME/.cache/deja" | sort -u)" = 700 ] || fail "others can look into ~/.cache"
# So is one that is named and not there yet.
export XDG_CACHE_HOME=$work/not/there
recorded >/dev/null
[ "$(recorded)" -lt $((first / 10)) ] || fail "where XDG_CACHE_HOME was not there yet nothing was kept"
[ "$(stat -c %a "$XDG_CACHE_HOME" "$XDG_CACHE_HOME/deja" | sort -u)" = 700 ] || fail "others can look into a cache that was made"
# While other threads sleep, which hear of nothing, one makes code executable: what is translated from then on is kept all
# the same. (When it was not, a third of it was made anew each time.)
${CC:-gcc} -O1 -w "$here/sleepers.c" -o sleepers -lm -pthread || exit 99
mkdir -m 700 "$work/sleepers.cache"
made=()
for round in 1 2; do
	"$deja" record --cache "$work/sleepers.cache" -o s.deja ./sleepers >out || fail "recording sleepers"
	"$deja" verify s.deja >out 2>&1 || fail "sleepers: $(tail -1 out)"
	made+=("$("$deja" info s.deja | awk '/fragments made$/ { gsub(",", "", $1); print $1 }')")
done
[ "${made[0]:-0}" -gt 1000 ] && [ "${made[1]:-9999}" -lt 400 ] ||
	fail "of ${made[0]} fragments ${made[1]} are made anew the next time"

conclude
