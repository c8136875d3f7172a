#!/bin/bash
# Programs whose world shrinks while they are recorded: other users, namespaces, root directories,
# limits, sandboxes, and then exec. With deja and without they must find the same.
#
# usage: tests/cli/world.sh [PATTERN [SEED]]   (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
pattern=${1:-}
seed=${2:-$RANDOM}
cc=${CC:-gcc}

work_in world
chmod 755 .
$cc -O1 -w "$here/world.c" -o world || exit 99
$cc -O1 -w -static "$here/world.c" -o static || exit 99
$cc -O1 -w "$here/collide.c" -o collide || exit 99
$cc -O1 -w -no-pie "$here/collide.c" -o collide-low || exit 99
ulimit -c 0

get() {
	timeout --foreground -k 2 60 "$@" >out 2>err
	status=$?
}

# same COMMAND...: does the same natively and recorded, and its recording replays
same() {
	local native ended
	get "$@"
	native=$status
	cp out native.out
	rm -f t.deja
	get "$deja" record -o t.deja -- "$@"
	[ "$status" = "$native" ] || fail "$*: exit status $status, natively $native: $(head -c 600 err)"
	# a forked child may have no room for deja's memory, as after an exec: then it is left alone
	cp err says.all
	! grep -v ' goes on unrecorded$' err >says || fail "$*: says $(head -c 600 says)"
	cmp -s out native.out || fail "$*: output differs: $(diff native.out out | head -20)"
	get "$deja" verify t.deja
	[ "$status" = 0 ] || fail "$*: the trace does not replay: $(head -c 600 err)"
	get "$deja" info t.deja
	[ "$native" -lt 128 ] && ended=exited || ended=killed
	grep -q "^process.* $ended" out || fail "$*: not recorded to its end: $(grep '^process' out)"
}

part_single() {
	local a
	for a in none nofile softnofile as softas data fsize memlock nobody fsuid userns noproc ipc undumpable; do
		same ./world $a ./static none report
		[[ $a = *nofile ]] || same ./world $a ./world none report
	done
	same ./world chroot /static none report
	# the kernel lists it by a name that in its own root directory another program has
	mkdir -p ".$PWD" && $cc -O2 -w -static "$here/world.c" -o ".$PWD/static" || exit 99
	same ./world chroot /static none report
	rm -r "./$(cut -d/ -f2 <<<"$PWD")"
	same ./world timer,nobody ./static timer,softas ./static none report
	# where the kernel puts things, and what may be executed
	same sh -c 'ulimit -S -s unlimited; exec ./world softas ./static none report'
	same sh -c 'ulimit -S -s 256; exec ./world nofile ./static none report'
	if setarch -X -L -Z true 2>/dev/null; then
		same setarch -X ./world errno ./static none report
		same setarch -L -Z ./world nobody ./static none report
	fi
}

# The limits that a program sets itself, without exec.
part_limits() {
	local a
	same ./world softas,errno ./static nobody report
	for a in nofile as softas data as,nobody data,nobody; do
		same ./world $a report
	done
}

part_sandbox() {
	local a
	for a in errno kill trap; do
		same ./world $a report
		same ./world $a ./static none report
		same ./world $a ./world softas,$a,nofile ./static none report
	done
	same ./world few write
	same ./world mremap report
	same ./world strict write
	same ./world none gs
}

# What deja has for code that comes later is no code for a program that looks for some (a ThreadSanitizer's
# maps a file over the shadow of all that is executable), and can be used under a filter that forbids making
# memory executable, whether the filter is older than the image or not.
part_window() {
	local command largest stops at below
	get "$deja" record -o t.deja -- cat //proc/self/maps
	largest=$(grep 'r-xs.*memfd:deja' out | while IFS=' -' read -r from to _; do
		echo $((0x$to - 0x$from))
	done | sort -n | tail -n 1)
	[ "${largest:-0}" -gt 0 ] && [ "$largest" -le $((256 << 20)) ] ||
		fail "window: executable memory of ${largest:-no} bytes"
	for command in 'protect far' 'none ./world none far' 'protect ./static none far' \
		'protect ./static protect,errno far' 'errno ./static protect far'; do
		# shellcheck disable=SC2086
		same ./world $command
		# 40,000 instructions would be executed one by one without a place for their translations
		stops=$(sed -n 's/^ *\([0-9,]*\) *stops: instruction executed natively$/\1/p' out | tr -d ,)
		[ "${stops:-0}" -lt 1000 ] || fail "window, $command: $stops instructions executed natively"
		grep -q '^ .*stops: instruction executed' out || fail "window, $command: $(cat out)"
		for at in 1 2 3 4; do # 2^40 bytes
			below=$((at - 1))
			grep -Eq "^(${at}00[0-7].{7}|${below#0}ff[89a-f].{7})-.* r-xs .*memfd:deja" far.maps ||
				fail "window, $command: no translated code near 0x${at}0000000000: $(grep deja far.maps)"
		done
	done
}

# goes_on WHY COMMAND...: ends as it does natively, and its recording says why it is shorter, with the name of
# the program that it has become
goes_on() {
	local native why=$1 name
	name=$(printf '%s\n' "${@:2}" | grep -Ex './(static|small|closed)' | tail -n 1)
	shift
	get "$@"
	native=$status
	cp out native.out
	rm -f t.deja
	get "${as[@]}" "$deja" record -o t.deja -- "$@"
	[ "$status" = "$native" ] || fail "$*: exit status $status, natively $native: $(head -c 600 err)"
	cmp -s out native.out || fail "$*: output differs: $(diff native.out out | head -20)"
	[ "$(wc -l <err)" = 1 ] && grep -Eq "^deja: .*$why.*unrecorded" err || fail "$*: says $(head -c 600 err)"
	grep -q "${name#./}" err || fail "$*: does not say that it is about $name: $(head -c 600 err)"
	get "$deja" verify t.deja
	[ "$status" = 0 ] || fail "$*: the trace does not replay: $(head -c 600 err)"
	get "$deja" info t.deja
	grep -q "^process.*$why" out || fail "$*: info does not say why: $(grep '^process' out)"
}

# A 32-bit program of one page, which ends with status 5.
program_32() {
	printf '\177ELF\1\1\1\0\0\0\0\0\0\0\0\0\2\0\3\0\1\0\0\0\124\200\4\10\064\0\0\0'
	printf '\0\0\0\0\0\0\0\0\064\0\040\0\1\0\050\0\0\0\0\0'
	printf '\1\0\0\0\0\0\0\0\0\200\4\10\0\200\4\10\140\0\0\0\140\0\0\0\5\0\0\0\0\020\0\0'
	printf '\270\1\0\0\0\273\5\0\0\0\315\200'
}

# What cannot be recorded any more goes on by itself.
part_unrecorded() {
	as=()
	goes_on 'seccomp filter' ./world mremap ./static none report
	if unshare -m umount -l /proc 2>/dev/null; then
		goes_on 'cannot make a file' ./world noproc,kill ./static none report
		goes_on 'cannot make a file' ./world softas,noproc,errno ./static none report
	fi
	# one of several processes; the numbers of its events were the recording's
	same sh -c './static none write; ./world mremap ./static none report; ./static none write'
	[ "$(wc -l <says.all)" = 1 ] || fail "an exec of a child: says $(head -c 600 says.all)"
	program_32 >small
	chmod 755 small
	get ./small
	[ "$status" != 5 ] || goes_on '32-bit' ./world as,none ./small
	cp static closed
	chmod 711 closed
	same ./closed none report
	same ./world none ./closed none report
	if [ "$(id -u)" = 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
		chmod 777 .
		as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
		goes_on 'may be executed but not read' ./world nobody,softas ./closed none write
		get "${as[@]}" "$deja" record -o t2.deja ./closed none write
		[ "$status" = 1 ] && [ "$(wc -l <err)" = 1 ] || fail "a closed program: $status $(cat err)"
		grep -q 'not read' err || fail "a closed program: $(cat err)"
	fi
}

# What would see deja is refused, as a system without it would, and the rest goes on.
part_denied() {
	$cc -O1 -w "$here/denied.c" -o denied || exit 99
	./denied >out || fail "denied natively: $(cat out)"
	get "$deja" record -o t.deja -- ./denied
	[ "$(cat out)" = "rseq ENOSYS, barriers not there EINVAL EINVAL, others there, shadow stacks EOPNOTSUPP, dispatch EINVAL, off 0, pid right" ] ||
		fail "denied: $(cat out err)"
	get "$deja" verify t.deja
	[ "$status" = 0 ] || fail "denied: the trace does not replay: $(head -c 600 err)"
}

# mlockall locks the program's memory and not deja's.
part_locked() {
	local a
	for a in none memlock memlock,nobody nobody; do
		same ./world $a locked
		same ./world $a ./static none locked
	done
}

# Memory is mapped where deja has its own.
part_collide() {
	local i
	if ! setarch -R true 2>/dev/null; then
		echo "SKIP: collide (no setarch -R here)"
		return
	fi
	for i in $seed $((seed + 1)); do
		same setarch -R ./collide "$i"
		same setarch -R ./collide-low "$i"
	done
}

# Two, three or four at once, at random. Privileges go last, or nothing can go after them.
part_combine() {
	local i actions a before=$failures
	local first=(nofile as softas data fsize memlock core noproc ipc fsuid stdin timer none)
	local last=(nobody undumpable none userns errno trap kill chroot protect)
	RANDOM=$seed
	for i in $(seq 14); do
		actions=
		for a in 1 2 3; do
			((RANDOM % 4)) && actions+=${first[RANDOM % ${#first[@]}]},
		done
		a=${last[RANDOM % ${#last[@]}]}
		# (without /proc and memfd_create: see part_unrecorded)
		[[ $a = @(errno|kill|trap) ]] && actions=${actions//noproc/none}
		if [ $a = chroot ]; then
			same ./world $actions$a /static none report
		else
			same ./world $actions$a ./static softas ./static ${last[RANDOM % 4]} report
		fi
	done
	[ $failures = $before ] || echo "(tests/cli/world.sh combine $seed does that again)"
}

for part in single limits sandbox window unrecorded denied locked collide combine; do
	[[ $part =~ $pattern ]] || continue
	before=$failures
	part_$part
	[ $failures = $before ] && echo "PASS: $part"
done
conclude
