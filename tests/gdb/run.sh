#!/bin/bash
# Sessions of real gdb on real recordings.
#
# Records tests/gdb/target.c and goes through the sessions in tests/gdb/cases: each is a list of
# gdb commands and of extended regular expressions that lines of the output must match, in that
# order, or that none may match. A failed session's output is printed.
#
# usage: tests/gdb/run.sh [NAME-PATTERN]        (DEJA names the program under test)
set -u
here=$(cd "$(dirname "$0")" && pwd)
deja=${DEJA:-./deja}
pattern=${1:-}
command -v gdb >/dev/null || { echo "gdb is not installed"; exit 77; }
case $deja in */*) deja=$(cd "$(dirname "$deja")" && pwd)/$(basename "$deja") ;; esac
[ -x "$deja" ] || { echo "$deja is not built"; exit 77; }

export XDG_CACHE_HOME=$PWD/test-cache # what is recorded is kept there
mkdir -p "$XDG_CACHE_HOME"
work=$(mktemp -d "${TMPDIR:-/tmp}/deja-gdb.XXXXXX")
trap 'rm -rf "$work"' EXIT
${CC:-gcc} -g -O0 "$here/target.c" -o "$work/target" -ldl || exit 99
${CC:-gcc} -g -O0 "$here/kernel.c" -o "$work/kernel" || exit 99
${CC:-gcc} -g -O0 -pthread "$here/threads.c" -o "$work/threads" || exit 99
${CC:-gcc} -g -O0 "$here/forks.c" -o "$work/forks" || exit 99
# Two thousand million instructions that are recorded in a second and replayed in eight, by the emulator:
# the debugger begins to go through this history while gdb starts, and shall not have come to its end.
echo 'int main(void) { for (unsigned long i = 0; i < 125000000; i++) __asm__ volatile(
	"pushw %%ax; popw %%cx; pushw %%ax; popw %%cx; pushw %%ax; popw %%cx; pushw %%ax; popw %%cx;"
	"pushw %%ax; popw %%cx; pushw %%ax; popw %%cx; pushw %%ax; popw %%cx; pushw %%ax; popw %%cx"
	::: "rcx", "memory"); }' >"$work/long.c"
${CC:-gcc} -g -O1 "$work/long.c" -o "$work/long" || exit 99
${CC:-gcc} -g -O0 "$here/calldata.c" -o "$work/calldata" || exit 99
${CC:-gcc} -g -O0 "$here/state.c" -o "$work/state" || exit 99
${CC:-gcc} -g -O0 -Wl,-z,lazy "$here/lazy.c" -o "$work/lazy" -lm || exit 99
${CC:-gcc} -g -O0 -shared -fPIC "$here/plugin.c" -o "$work/plugin.so" || exit 99
${CC:-gcc} -g -O0 -static "$here/target.c" -o "$work/static" -ldl 2>/dev/null
# where gdb has the scripts that print them
ls /usr/share/gdb/auto-load/usr/lib/*/libstdc++*-gdb.py >/dev/null 2>&1 &&
	"${CXX:-g++}" -g -O0 "$here/containers.cc" -o "$work/containers" 2>/dev/null
"${CXX:-g++}" -g -O1 "$here/../programs/exceptions.cc" -o "$work/throwing" 2>/dev/null
${CC:-gcc} -g -O0 "$here/../demo/inventory.c" -o "$work/inventory" || exit 99
mkdir "$work/tmp"

# record NAME STATUS PROGRAM ARG...
record() {
	local name=$1 status=$2
	shift 2
	# in a shell of its own, which may say "Segmentation fault"
	("$deja" record -o "$work/$name.deja" -- "$@" >"$work/$name.out" 2>"$work/$name.err"
		exit $?) 2>/dev/null
	local got=$?
	[ $got = "$status" ] && return
	echo "FAIL: recording $name: exit status $got, expected $status"
	cat "$work/$name.err"
	exit 1
}
record plain 7 "$work/target" "$work/plugin.so"
record crash 139 "$work/target" "$work/plugin.so" crash
record forks 5 "$work/forks"
record threads 3 "$work/threads"
record long 0 "$work/long"
record kernel 0 "$work/kernel"
record calldata 0 "$work/calldata" </dev/null
record state 0 "$work/state"
record lazy 0 "$work/lazy"
record exec 7 /bin/sh -c 'exec "$0" "$1"' "$work/target" "$work/plugin.so"
[ -x "$work/static" ] && record static 7 "$work/static"
[ -x "$work/throwing" ] && record throwing 0 "$work/throwing"
[ -x "$work/containers" ] && record containers 7 "$work/containers"
if [[ locals =~ $pattern ]]; then
	record inventory 139 "$work/inventory"
	record python 0 /usr/bin/python3 "$here/../programs/mixed.py"
fi

passed=0 failed=0
name='' trace='' tmp='' client='' options=() args=() wants=() unwanted=()

# Does the output hold lines that match the wanted expressions, in order, and none of the others?
in_order() {
	local line want i=0
	while IFS= read -r line; do
		[ $i -lt ${#wants[@]} ] || break
		want=${wants[$i]}
		[[ $line =~ $want ]] && i=$((i + 1))
	done <"$work/output"
	if [ $i -lt ${#wants[@]} ]; then
		echo "  not found: ${wants[$i]}"
		return 1
	fi
	for want in "${unwanted[@]}"; do
		grep -qE -- "$want" "$work/output" || continue
		echo "  found: $want"
		return 1
	done
}

# gdb as deja replay starts it, or as somebody may who knows of deja only that it serves
run_client() {
	local serve="| exec $deja serve --stdio ${options[*]} $work/$trace.deja"
	case $client in
	replay)
		TMPDIR=$tmp timeout 300 "$deja" replay "${options[@]}" "$work/$trace.deja" -- -nx -q \
			-batch "${args[@]}"
		;;
	remote)
		timeout 300 gdb -nx -q -batch -ex "set sysroot /" -ex "target remote $serve" "${args[@]}" \
			"$work/target"
		;;
	mi) timeout 300 "$here/mi.py" "remote $serve" "$work/target" "${args[@]}" ;;
	esac
}

run_case() {
	[ -n "$name" ] || return
	[[ $name =~ $pattern ]] || return
	[ -f "$work/$trace.deja" ] || { echo "SKIP: $name"; return; }
	run_client >"$work/output" 2>&1 </dev/null
	if in_order; then
		passed=$((passed + 1))
		echo "PASS: $name"
	else
		failed=$((failed + 1))
		echo "FAIL: $name"
		sed 's/^/    /' "$work/output"
	fi
}

while IFS= read -r line; do
	word=${line%% *} rest=${line#* }
	case $word in
	case) run_case; name=$rest trace=plain tmp=$work/tmp client=replay options=() args=() wants=() unwanted=() ;;
	trace) trace=$rest ;;
	client) client=$rest ;;
	tmpdir) tmp=$rest ;;
	options) read -ra options <<<"$rest" ;;
	'>')
		[ $client = mi ] || args+=(-ex)
		args+=("$rest")
		;;
	'<') wants+=("$rest") ;;
	'!') unwanted+=("$rest") ;;
	esac
done <"$here/cases"
run_case

# every variable of every frame, at random positions (fewer of python's, where gdb takes a second for each)
look_at_locals() {
	[ -f "$work/$1.deja" ] || return
	[ $1 != python ] || local -x POSITIONS=10
	TMPDIR=$work/tmp timeout 400 "$deja" replay "$work/$1.deja" -- -nx -q -batch -x "$here/locals.py" \
		>"$work/locals.$1" 2>&1 </dev/null
}
if [[ locals =~ $pattern ]]; then
	for traces in "throwing containers lazy" "inventory python"; do
		for trace in $traces; do
			look_at_locals "$trace" &
		done
		wait
	done
fi
for trace in throwing containers lazy inventory python; do
	[ -f "$work/locals.$trace" ] || continue
	if grep -q ' variables, 0 unknown,.* 0 unknown words, 0 lost$' "$work/locals.$trace"; then
		passed=$((passed + 1))
		echo "PASS: all that is on the stack of $trace: $(grep frames "$work/locals.$trace")"
	else
		failed=$((failed + 1))
		echo "FAIL: all that is on the stack of $trace"
		sed 's/^/    /' "$work/locals.$trace"
	fi
done

# steps back by lines, with what the stub is told of lines and without it
step_by_lines() {
	[ -f "$work/$1.deja" ] || return
	BREAKS=$2 TMPDIR=$work/tmp timeout 400 "$deja" replay "$work/$1.deja" -- -nx -q -batch \
		-iex "set remotelogfile $work/lines.$1.packets" -x "$here/lines.py" >"$work/lines.$1" 2>&1 </dev/null
}
if [[ lines =~ $pattern ]]; then
	step_by_lines plain "square depth main" &
	step_by_lines threads "work run"
	step_by_lines throwing "main deep once" &
	wait
fi
for trace in plain threads throwing; do
	[ -f "$work/lines.$trace" ] || continue
	said=$(grep -E '^[1-9][0-9]* starts, [1-9][0-9]* commands, 0 differ, ' "$work/lines.$trace")
	read -r with without < <(sed 's/.* differ, \([0-9]*\) requests.*step, \([0-9]*\) .*/\1 \2/' <<<"$said")
	# gdb's log ends early where it loads scripts for C++
	if [ -n "$said" ] && { [ $trace = throwing ] || [ "$with" -lt "$without" ]; }; then
		passed=$((passed + 1))
		echo "PASS: steps back through the lines of $trace: $said"
	else
		failed=$((failed + 1))
		echo "FAIL: steps back through the lines of $trace"
		sed 's/^/    /' "$work/lines.$trace"
	fi
done

# what gdb was given of the traces goes when it goes
for _ in $(seq 50); do
	left=$(ls "$work/tmp")
	[ -n "$left" ] || break
	sleep 0.1
done
if [ -n "$left" ]; then
	failed=$((failed + 1))
	echo "FAIL: left behind by deja replay:" $left
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
