#!/bin/bash
# What a user meets when things go wrong: bad traces, programs that cannot be recorded, programs
# that are killed or that start others, full disks, closed streams.
#
# usage: tests/cli/errors.sh [PATTERN]     (DEJA names the program under test; PATTERN a part)
. "$(dirname "$0")/../lib/shell.sh"
pattern=${1:-}
cc=${CC:-gcc}

work_in errors
mounted=
trap '[ -z "$mounted" ] || umount "$mounted"; rm -rf "$work"' EXIT
$cc -O1 "$here/errors.c" -o victim -pthread || exit 99
$cc -O1 -DTINY -nostdlib -static -fno-stack-protector "$here/errors.c" -o tiny || exit 99
export DEJA_TRACE_DIR=$work/traces
ulimit -S -c 0


# get COMMAND...: run it; status, out and err are what came of it
get() {
	timeout --foreground -k 2 150 "$@" >out 2>err
	status=$?
}

# one_line WHAT: err is one line of deja's
one_line() {
	[ "$(wc -l <err)" -eq 1 ] && grep -q '^deja: ' err && return
	fail "$1: not one line of diagnosis: $(head -c 600 err)"
}

# want WHAT STATUS: the status of the last command
want() {
	[ "$status" = "$2" ] && return
	fail "$1: exit status $status, not $2: $(head -c 600 err)"
}

# says WHAT PATTERN FILE
says() {
	grep -Eq -- "$2" "$3" || fail "$1: no '$2' in: $(head -c 600 "$3")"
}

# replays WHAT TRACE [empty]: the history in it is good, if perhaps short; or there is none to compare
replays() {
	get "$deja" verify "$2"
	[ "${3:-}" = empty ] && [ "$status" = 1 ] && grep -q 'nothing was compared' out && return
	[ "$status" = 0 ] || fail "$1: the trace does not replay (status $status): $(head -c 600 err)"
}

# same WHAT ARGS...: victim does the same natively and recorded
same() {
	local what=$1 native
	shift
	get "$@"
	native=$status
	cp out native.out
	cp err native.err
	get "$deja" record ${follow:-} -o t.deja -- "$@"
	[ "$status" = "$native" ] || fail "$what: exit status $status, natively $native: $(cat err)"
	cmp -s out native.out || fail "$what: output differs: $(head -c 300 out)"
	cmp -s err native.err || fail "$what: standard error differs: $(head -c 300 err)"
	replays "$what" t.deja
}

wait_for() { # TEXT in FILE
	for _ in $(seq 300); do
		grep -q "$1" "$2" 2>/dev/null && return 0
		sleep 0.1
	done
	fail "no '$1' in $2 after 30 s"
	return 1
}

# ---- traces ------------------------------------------------------------------------------

part_bad_files() {
	: >empty
	head -c 100000 /dev/urandom >noise
	get "$deja" record -o good ./tiny
	want "recording tiny" 3
	{ head -c 8 good; printf '\1'; tail -c +10 good; } >older
	newest=$(sed -n 's/^#define DJ_TRACE_VERSION_SHARED //p' "$here/../../format/trace.h")
	{ head -c 8 good; printf "\\x$(printf %x $((newest + 1)))"; tail -c +10 good; } >newer
	for file in empty / "$deja" noise older newer; do
		for command in "info" "dump" "ps" "verify" "serve --stdio" "replay"; do
			get "$deja" $command "$file" </dev/null
			want "$command $file" 2
			one_line "$command $file"
		done
	done
	says "a newer version" 'version' err
	get "$deja" verify no-such-trace
	want "a missing trace" 1
	one_line "a missing trace"
}

# A damaged trace: one line and status 2, or a history that replays and is said to be shorter.
damaged() {
	for command in verify info dump; do
		get "$deja" "$command" "$2"
		case $status in
		0 | 2) one_line "$command: $1" ;;
		1) one_line "$command: $1"
			says "$command: $1" 'nothing was compared' out ;;
		*) fail "$command: $1: exit status $status: $(head -c 300 err)" ;;
		esac
	done
}

part_damage() {
	get "$deja" record -o good --digest-interval 1000 ./tiny
	local size at byte
	size=$(stat -c %s good)
	for at in 1 7 8 15 16 40 100 $(seq 200 $((size / 15)) $((size - 1))) $((size - 1)); do
		head -c "$at" good >cut
		damaged "cut after $at of $size bytes" cut
	done
	RANDOM=5
	for at in $(seq 0 7 63) $(seq 64 $((size / 40)) $((size - 1))) $((size - 1)); do
		at=$((at < 64 ? at : at + RANDOM % 50))
		[ "$at" -lt "$size" ] || continue
		byte=$(dd if=good bs=1 skip="$at" count=1 status=none | od -An -tu1)
		cp good flipped
		printf "\\$(printf %o $((byte ^ (1 << RANDOM % 8))))" |
			dd of=flipped bs=1 seek="$at" conv=notrunc status=none
		damaged "a bit flipped in byte $at of $size" flipped
	done
}

# ---- what is recorded ----------------------------------------------------------------------

# Another program makes a trace shorter that is open: here, where deja makes the process that reads it.
part_cut() {
	printf '%s\n' '#define _GNU_SOURCE' '#include <dlfcn.h>' '#include <stdlib.h>' '#include <unistd.h>' \
		'pid_t fork(void)' '{' 'if (truncate(getenv("CUT"), 64)) abort();' \
		'return ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();' '}' >cut.c
	$cc -shared -fPIC cut.c -o cut.so -ldl || exit 99
	get "$deja" record -o whole ./tiny
	for command in verify profile backtrace; do
		cp whole cut.deja
		get env "ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" CUT=cut.deja LD_PRELOAD="$PWD/cut.so${LD_PRELOAD:+:$LD_PRELOAD}" "$deja" "$command" cut.deja
		want "$command, of a trace that is cut meanwhile" 2
		one_line "$command, of a trace that is cut meanwhile"
		[ "$(stat -c %s cut.deja)" = 64 ] || fail "$command makes no process"
	done
}

part_not_started() {
	get "$deja" record -o t no-such-program-anywhere
	want "program not found" 127
	one_line "program not found"
	get "$deja" record -o t ./no-such-program
	want "file not found" 127
	one_line "file not found"
	get "$deja" record -o t "$work"
	want "a directory" 126
	one_line "a directory"
	cp victim plain
	chmod 644 plain
	get "$deja" record -o t ./plain
	want "not executable" 126
	one_line "not executable"
	printf '\177ELF\1\1\1\0\0\0\0\0\0\0\0\0\2\0\3\0\1\0\0\0' >elf32
	head -c 200 /dev/zero >>elf32
	chmod 755 elf32
	get "$deja" record -o t ./elf32
	want "a 32-bit program" 126
	one_line "a 32-bit program"
	says "a 32-bit program" 32-bit err
	echo 'just text' >text
	chmod 755 text
	get "$deja" record -o t ./text
	want "a text file" 126
	one_line "a text file"
	printf '#!/no/such/interpreter\n' >orphan
	chmod 755 orphan
	get "$deja" record -o t ./orphan
	[ "$status" = 126 ] || [ "$status" = 127 ] || fail "script without interpreter: $status"
	one_line "a script without interpreter"
	local suid=/usr/bin/su
	if [ "$(id -u)" = 0 ]; then
		cp victim suid && chown 65534 suid && chmod 4755 suid && suid=./suid
	fi
	if [ -u "$suid" ]; then
		get "$deja" record -o t "$suid" exit
		want "a set-uid program" 126
		one_line "a set-uid program"
		says "a set-uid program" 'set-uid' err
	fi
	get "$deja" record -o /no/such/directory/t ./tiny
	[ "$status" = 1 ] || fail "output that cannot be created: status $status"
	one_line "output that cannot be created"
	# (a sanitizer that looks for leaks traces, too)
	ASAN_OPTIONS=detect_leaks=0 get ./victim noptrace "$deja" record -o t ./tiny
	if [ "$status" != 77 ]; then
		[ "$status" = 1 ] || fail "no ptrace permission: status $status"
		one_line "no ptrace permission"
	fi
}

part_scripts() {
	printf '#!/bin/sh\necho "script $0 $1"\nexit 5\n' >script
	chmod 755 script
	same "a script" ./script arg
	PATH=$work:$PATH same "a script in PATH" script arg
}

part_ends() {
	local mode
	for mode in exit segv fpe ill abort trap stack usr1 kill; do
		same "$mode" ./victim "$mode"
	done
	get "$deja" record -o t.deja ./victim segv
	get "$deja" info t.deja
	says "info after segv" 'killed by signal 11' out
	same "closed streams" sh -c 'exec ./victim closed <&- >&-'
	get sh -c "exec '$deja' record -o t.deja ./victim closed <&- >&-"
	want "closed stdin and stdout" 30
	replays "closed stdin and stdout" t.deja
	same "file descriptors" ./victim fds
}

part_streams() {
	head -c 300000 /dev/urandom >data
	timeout 60 "$deja" record -o t.deja cat <data >copy 2>err
	cmp -s data copy || fail "standard input does not arrive in standard output: $(cat err)"
	replays cat t.deja
	# what the kernel wrote, as much as is wanted of it, and up to a line more at each end
	local bytes kept
	head -c 3000 /dev/zero | tr '\0' y >data
	for bytes in 0 100 400 2000 9999; do
		get "$deja" record --call-data $bytes -o t.deja -- dd bs=3000 count=1 status=none <data
		want "--call-data $bytes" 0
		kept=$("$deja" dump t.deja | sed -n '/ sysdata /s/.* bytes=//p' | grep 7979797979 | grep -o 79 | wc -l)
		bytes=$((bytes < 3000 ? bytes : 3000))
		[ "$kept" -ge $bytes ] && [ "$kept" -le $((bytes ? bytes + 128 : 0)) ] ||
			fail "--call-data $bytes: $kept bytes are kept"
	done
	(cd / && timeout 60 "$deja" record -o "$work/t.deja" pwd >"$work/out" 2>&1)
	[ "$(cat out)" = / ] || fail "another working directory: $(cat out)"
	get "$deja" record ./tiny
	get "$deja" record ./tiny
	[ -e traces/tiny-0.deja ] && [ -e traces/tiny-1.deja ] &&
		[ "$(readlink traces/latest)" = tiny-1.deja ] || fail "the default names: $(ls traces)"
	get "$deja" verify
	want "verify without a file" 0
}

part_children() {
	local follow
	for follow in --no-follow --follow; do
		for mode in fork vfork spawn exec; do
			same "$mode, $follow" ./victim "$mode"
		done
	done
	same "a shell with pipes" sh -c 'for i in 1 2 3; do (echo $i; exit $i) | cat; done; /bin/echo $(ls / | wc -l)'
}

part_threads() {
	same "threads" ./victim thread
}

# ---- signals from outside -------------------------------------------------------------------

# child_of PID NAME: the process of that name that PID started
child_of() {
	local stat pid name parent
	for stat in /proc/[0-9]*/stat; do
		read -r pid name _ parent _ 2>/dev/null <"$stat" || continue # it has ended
		[ "$parent" = "$1" ] && [ "$name" = "($2)" ] && echo "$pid" && return
	done
}

# start MODE: deja in the background, the victim ready; $recorder is deja, $victim the program
start() {
	rm -f t.deja live.out
	"$deja" record -o t.deja ./victim "$1" >live.out 2>live.err &
	recorder=$!
	wait_for ready live.out || return 1
	sleep 0.5
	victim=$(child_of $recorder victim)
	[ -n "$victim" ] && return
	fail "$1: the program is not deja's child"
	kill -KILL $recorder # and the program with it
	return 1
}

# there PID: a zombie that nobody waits for is no program
there() {
	[ -n "$1" ] && grep -Eq '^State:[[:space:]]+[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null
}

finish() { # WHAT STATUS
	wait $recorder 2>/dev/null
	status=$?
	cp live.err err
	want "$1" "$2"
	for _ in $(seq 100); do
		there "$victim" || break
		sleep 0.1
	done
	there "$victim" && fail "$1: the program is still there"
	replays "$1" t.deja ${3:-}
}

part_signals() {
	local mode
	for mode in loop sleep; do
		start $mode && kill -TERM "$victim" && finish "SIGTERM, $mode" 143
		start $mode && kill -KILL "$victim" && finish "program killed, $mode" 137
		start catching-$mode && kill -TERM "$victim" && finish "SIGTERM caught, $mode" 55
		says "SIGTERM caught, $mode" terminated live.out
		start catching-$mode && kill -INT "$victim" && finish "SIGINT caught, $mode" 42
		start $mode && sleep 0.5 && kill -KILL $recorder &&
			finish "deja killed, $mode" 137 "$([ $mode = loop ] || echo empty)"
		get "$deja" info t.deja
		says "info after deja was killed" 'cut off' out
		[ "$mode" = sleep ] || says "what was recorded before deja was killed" \
			'^instructions +[0-9,]{9,}' out
	done
	# ^C at a terminal reaches both
	for mode in loop sleep; do
		start_group catching-$mode && kill -INT -"$group" && finish "^C, $mode" 42
	done
}

# start_group MODE: as start, in a process group of its own
start_group() {
	rm -f t.deja live.out
	set -m
	"$deja" record -o t.deja ./victim "$1" >live.out 2>live.err &
	recorder=$! group=$!
	set +m
	wait_for ready live.out || return 1
	sleep 0.3
	victim=$(child_of $recorder victim)
}

# Stopped and continued while the supervisor works for it, again and again.
part_stops() {
	local i before after
	start maps || return
	for i in $(seq 12); do
		kill -STOP "$victim"
		after=
		for _ in $(seq 40); do # before it stops deja has to have its turn
			sleep 0.1
			before=$(cut -d' ' -f14,15 "/proc/$victim/stat")
			sleep 0.15
			after=$(cut -d' ' -f14,15 "/proc/$victim/stat")
			[ "$before" != "$after" ] || break
		done
		[ "$before" = "$after" ] || { fail "SIGSTOP number $i is lost"; break; }
		kill -CONT "$victim"
		sleep "0.0$((i % 10))"
	done
	kill -STOP "$victim"
	kill -TERM "$victim"
	kill -CONT "$victim"
	finish "stopped and terminated" 143
}

# Signals, mappings, children and new images at once, stopped and continued from outside.
part_storm() {
	same "signals that pend together" ./victim pending
	same "a storm" ./victim storm
	cp native.out storm.out
	"$deja" record -o t.deja ./victim storm >live.out 2>live.err &
	recorder=$!
	while kill -0 $recorder 2>/dev/null; do
		victim=$(child_of $recorder victim)
		[ -z "$victim" ] || { kill -STOP "$victim"; sleep 0.03; kill -CONT "$victim"; } 2>/dev/null
		sleep 0.05
	done
	victim=
	finish "a storm with stops" 6
	cmp -s live.out storm.out || fail "a storm with stops: output $(cat live.out)"
}

# Recorder and replayer count the same ordered events: every digest has their number.
part_ordered() {
	local model
	get "$deja" record --digest-interval 500 -o t.deja ./victim ordered
	want "ordered events" 0
	replays "ordered events" t.deja
	says "ordered events" '^digests +[0-9]{3,} ' out
	get "$deja" record --order=kernel --digest-interval 500 -o t.deja ./victim ordered
	want "ordered events of the kernel" 0
	replays "ordered events of the kernel" t.deja
	get "$deja" info t.deja
	says "ordered events of the kernel" 'kernel memory model' out
	for model in acqrel load; do
		get "$deja" record --order=$model --digest-interval 500 -o t.deja ./victim ordered
		want "ordered events of $model" 0
		replays "ordered events of $model" t.deja
		get "$deja" info t.deja
		says "ordered events of $model" "$model memory model" out
	done
	get "$deja" record --order=strict -o t.deja true
	want "a strange order" 1
	one_line "a strange order"
	says "a strange order" 'order is kernel, fence, acqrel or load' err
}

# A program that writes to deja's memory ends the recording, and nothing else.
part_overwrite() {
	local mode i
	for mode in head ring log log-head log-number maps-owner data steps back seq gsbase order-number order-far order-alone order-locks; do
		get "$deja" record -o t.deja ./victim overwrite-$mode
		want "overwritten $mode" 1
		one_line "overwritten $mode"
		says "overwritten $mode" "overwrote deja's memory" err
		replays "overwritten $mode" t.deja empty
		get "$deja" info t.deja
		says "info after overwritten $mode" "stopped before it ended: .* overwrote deja's memory" out
	done
	# nor is anything recorded of what it wrote there
	get "$deja" record --digest-interval 1000 --keyframes 1000 --full-keyframes 2000 -o t.deja ./victim overwrite-gsbase
	want "overwritten gsbase, with many digests" 1
	says "overwritten gsbase, with many digests" "overwrote deja's memory" err
	replays "overwritten gsbase, with many digests" t.deja
	get "$deja" record -o t.deja ./victim overwrite-maps-closed
	want "mapping calls that nobody closed" 0
	replays "mapping calls that nobody closed" t.deja
	# what it shares with deja it cannot make shorter
	get "$deja" record -o t.deja ./victim shorten
	want "deja's files" 8
	! grep -q shorter out || fail "deja's files can be made shorter"
	grep -q some out || echo "SKIP: deja's files (the program may not open them here)"
	replays "deja's files" t.deja
	# at random: the program may get wrong values and die of that, but deja does not
	for i in $(seq 25); do
		timeout --foreground -k 2 20 "$deja" record -o t.deja ./victim overwrite-random "$i" >out 2>err
		status=$?
		case $status in
		1) one_line "overwritten at random, $i" ;;
		124 | 137) fail "overwritten at random, $i: no end" ;;
		esac
		! grep -q 'internal' err || fail "overwritten at random, $i: $(cat err)"
		get "$deja" info t.deja
		! grep -q 'cut off' out || fail "overwritten at random, $i: deja has died, with $status"
	done
}

# A core file has the program's memory, and nothing of deja's.
part_core() {
	local at size
	if [ "$(cat /proc/sys/kernel/core_pattern)" != core ]; then
		echo "SKIP: core (core files go elsewhere here)"
		return
	fi
	mkdir -p core
	(cd core && ulimit -c unlimited && ASAN_OPTIONS=disable_coredump=0 timeout 60 "$deja" record -o t.deja ../victim segv) >out 2>err
	size=$(stat -c %b core/core* | awk '{ n += $1 } END { print n / 2 }')
	[ "$size" -gt 0 ] && [ "$size" -lt 8000 ] || fail "the core file has $size KiB"
	while read -r at size; do
		[ "$size" = 0x000000 ] || fail "the core file has $size bytes at $at"
	done < <(LC_ALL=C readelf -lW core/core* | awk '$1 == "LOAD" && $3 ~ /^0x00007e8/ { print $3, $5 }')
	command -v gdb >/dev/null || return
	gdb -nx -batch -ex bt victim core/core* >out 2>&1
	says "a core file" 'signal SIGSEGV' out
	says "a core file" '^#[0-9]+ .* in main ' out
}

# ---- the trace file and the terminal -----------------------------------------------------------

part_output() {
	local limit reader size=
	rm -f t.deja
	get "$deja" record -o t.deja ./tiny
	[ "$(stat -c %a t.deja)" = 600 ] || fail "the mode of a trace: $(stat -c %a t.deja)"
	[ ! -s err ] || fail "deja speaks though nobody looks: $(cat err)"
	# two at once
	"$deja" record -o t.deja ./victim sleep >live.out 2>live.err &
	recorder=$!
	wait_for ready live.out
	cp t.deja before
	get "$deja" record -o t.deja ./tiny
	want "a trace that is being written" 1
	one_line "a trace that is being written"
	says "a trace that is being written" 'another recording' err
	victim=$(child_of $recorder victim)
	kill -TERM "$victim" && finish "the one that came first" 143
	# what is no file
	mkfifo fifo
	get "$deja" record -o fifo ./tiny
	want "a FIFO without a reader" 1
	one_line "a FIFO without a reader"
	cat <>fifo >copy & # which does not wait for a writer, and so reads from now on
	local reader=$!
	for i in $(seq 100); do
		[ "$(readlink "/proc/$reader/fd/0")" = "$PWD/fifo" ] && break
		sleep 0.1
	done
	get "$deja" record -o fifo ./tiny
	want "a FIFO with a reader" 3
	sleep 0.5 # what is in the pipe is read; an end of it does not come
	while [ "$size" != "$(stat -c %s copy)" ]; do
		size=$(stat -c %s copy)
		sleep 0.5
	done
	kill $reader
	wait $reader 2>/dev/null
	replays "a FIFO with a reader" copy
	! sanitized || return # it needs more memory than these limits leave
	# hard limits that leave no room, unless they may be raised
	for limit in "-v 3000000" "-d 100000" "-n 5" "-f 1000"; do
		(ulimit -S $limit; ulimit -H $limit; timeout 60 "$deja" record -o t.deja ./victim exit >out 2>err; echo $? >status)
		status=$(cat status)
		[ "$status" = 42 ] && continue
		want "ulimit $limit" 1
		one_line "ulimit $limit"
	done
	if [ "$(id -u)" = 0 ] && setpriv --reuid 65534 --clear-groups bash -c "'$deja' --version" >out 2>&1; then
		chmod 777 .
		get setpriv --reuid 65534 --clear-groups bash -c "ulimit -u 2; exec '$deja' record -o /dev/null ./tiny"
		[ "$status" = 3 ] || { want "ulimit -u 2" 1; one_line "ulimit -u 2"; }
		! grep -q internal err || fail "ulimit -u 2: $(cat err)"
	fi
	# soft limits are the program's
	(ulimit -S -f 4 -S -v 900000; timeout 60 "$deja" record -o t.deja bash -c 'ulimit -f; ulimit -v' >out 2>err)
	[ "$(tr -dc '0-9 \n' <out | xargs)" = "4 900000" ] || fail "soft limits: $(cat out err)"
	replays "soft limits" t.deja
}

part_terminal() {
	command -v python3 >/dev/null || { echo "SKIP: terminal (no python3)"; return; }
	get "$here/terminal.py" "$deja" record -o t.deja ./tiny
	says "at a terminal" '^deja: [0-9]+ instructions in [0-9.]+ MB, t.deja; .*deja replay t.deja' out
	says "at a terminal" 'settings same, foreground same' out
	# the program keeps the settings that it leaves
	get "$here/terminal.py" "$deja" record -o t.deja stty -echo
	says "stty" 'settings changed' out
	get "$here/terminal.py" "$deja" record -o t.deja sh -c 'stty raw -echo; exec ./victim overwrite-head'
	says "cut in raw mode" "overwrote deja's memory" out
	says "cut in raw mode" 'settings same, foreground same' out
	local how
	for how in compute sleep map; do
		get "$here/job-control.py" ./victim continued $how
		want "^Z natively, $how: $(cat out)" 0
		get "$here/job-control.py" "$deja" record -o t.deja ./victim continued $how
		want "^Z, $how: $(cat out)" 0
		replays "^Z, $how" t.deja
	done
}

# ---- full disks -----------------------------------------------------------------------------

part_full_disk() {
	(ulimit -f 400; timeout -k 2 60 "$deja" record -o t.deja ./victim fill >out 2>err; echo $? >status)
	status=$(cat status)
	[ "$status" = 1 ] || fail "a file size limit: status $status: $(cat err)"
	one_line "a file size limit"
	mkdir -p full
	if mount -t tmpfs -o size=3m none full 2>/dev/null; then
		mounted=$work/full
		get "$deja" record -o full/t.deja ./victim fill
		[ "$status" = 1 ] || fail "a full disk: status $status: $(cat err)"
		one_line "a full disk"
		says "a full disk" 'No space left' err
		replays "a full disk" full/t.deja
		umount full && mounted=
	else
		echo "SKIP: full disk (no mount here)"
	fi
	if [ -w /dev/full ]; then
		get "$deja" record -o /dev/full ./tiny
		[ "$status" = 1 ] || fail "writing to /dev/full: status $status"
		one_line "writing to /dev/full"
	fi
}

for part in bad_files damage cut not_started scripts ends streams children threads signals stops storm ordered overwrite core output terminal full_disk; do
	[[ $part =~ $pattern ]] || continue
	before=$failures
	part_$part 2>shell.err
	[ $failures = $before ] && echo "PASS: $part"
done
conclude
