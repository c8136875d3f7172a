#!/bin/bash
# Programs whose world shrinks while they are recorded: other users, namespaces, root directories,
# limits, sandboxes, and then exec. With deja and without they must find the same.
#
# usage: tests/cli/world.sh [PATTERN [SEED]]   (DEJA names the program under test)
set -u
here=$(cd "$(dirname "$0")" && pwd)
deja=${DEJA:-./deja}
pattern=${1:-}
seed=${2:-$RANDOM}
deja=$(cd "$(dirname "$deja")" && pwd)/$(basename "$deja")
[ -x "$deja" ] || { echo "$deja is not built"; exit 77; }
cc=${CC:-gcc}

work=$(mktemp -d "${TMPDIR:-/tmp}/deja-world.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
chmod 755 .
$cc -O1 -w "$here/world.c" -o world || exit 99
$cc -O1 -w -static "$here/world.c" -o static || exit 99
ulimit -c 0

failures=0
fail() {
	failures=$((failures + 1))
	echo "FAIL: $*"
}

get() {
	timeout --foreground -k 2 60 "$@" >out 2>err
	status=$?
}

# same COMMAND...: does the same natively and recorded, and its recording replays
same() {
	local native
	get "$@"
	native=$status
	cp out native.out
	rm -f t.deja
	get "$deja" record -o t.deja -- "$@"
	[ "$status" = "$native" ] || fail "$*: exit status $status, natively $native: $(head -c 600 err)"
	[ ! -s err ] || fail "$*: says $(head -c 600 err)"
	cmp -s out native.out || fail "$*: output differs: $(diff native.out out | head -20)"
	get "$deja" verify t.deja
	[ "$status" = 0 ] || fail "$*: the trace does not replay: $(head -c 600 err)"
	get "$deja" info t.deja
	grep -q '^process.* exited with status' out || fail "$*: not recorded to its end: $(grep '^process' out)"
}

part_single() {
	local a
	for a in none nofile softnofile as softas data fsize memlock nobody fsuid userns noproc ipc undumpable; do
		same ./world $a ./static none report
		[[ $a = *nofile ]] || same ./world $a ./world none report
	done
	same ./world chroot /static none report
}

# The limits that a program sets itself, without exec.
part_limits() {
	local a
	for a in nofile as softas data as,nobody data,nobody; do
		same ./world $a report
	done
}

# Two, three or four at once, at random. Privileges go last, or nothing can go after them.
part_combine() {
	local i actions a before=$failures
	local first=(nofile as softas data fsize memlock core noproc ipc fsuid stdin none)
	local last=(nobody undumpable userns none chroot)
	RANDOM=$seed
	for i in $(seq 14); do
		actions=
		for a in 1 2 3; do
			((RANDOM % 4)) && actions+=${first[RANDOM % ${#first[@]}]},
		done
		a=${last[RANDOM % ${#last[@]}]}
		if [ $a = chroot ]; then
			same ./world $actions$a /static none report
		else
			same ./world $actions$a ./static softas ./static ${last[RANDOM % 4]} report
		fi
	done
	[ $failures = $before ] || echo "(tests/cli/world.sh combine $seed does that again)"
}

for part in single limits combine; do
	[[ $part =~ $pattern ]] || continue
	before=$failures
	part_$part
	[ $failures = $before ] && echo "PASS: $part"
done
[ $failures = 0 ]
