#!/bin/bash
# What is executed one instruction at a time: `deja info` says how often, where and why the program
# stopped; a program that does it a great deal is told once. And code that cannot be recorded.
#
# usage: tests/cli/native.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in native
${CC:-gcc} -g -O1 -w "$here/native.c" -o native -pthread || exit 99
can_record

# expect WHAT FILE PATTERN COUNT: so many lines match
expect() {
	local n
	n=$(grep -cE -- "$3" "$2")
	[ "$n" = "$4" ] || { fail "$1: $n lines with '$3', not $4"; head -50 "$2"; }
}

# code of 32 bits: cut, in one sentence, with a good trace
if ./native narrow >out 2>&1; then # if the kernel has it
	timeout -s KILL 60 "$deja" record -o n.deja ./native narrow >out 2>err
	[ $? = 1 ] || fail "32 bits: status $?"
	expect "32 bits" err '^deja: .*not of 64 bits' 1
	expect "32 bits" out . 0
	"$deja" verify n.deja >out 2>&1 || fail "32 bits: $(tail -1 out)"
fi

# the recorder's numbers
"$deja" record --no-cache -o made.deja true || fail "recording true with nothing kept"
"$deja" info made.deja >out 2>err || fail "info: $(cat err)"
expect info out '^recorder +what it did:$' 1
expect info out '^  [0-9,]+ +stops: system call$' 1
expect info out '^  [0-9,]+ +fragments made$' 1
"$deja" info --json probe.deja >out 2>err || fail "info: $(cat err)"
python3 - <<'EOF' || fail "info --json: $(cat out)"
import json
info = json.load(open("out"))
assert info["recorder"]["stops: system call"] > 5
assert sum(p["count"] for p in info["side_effect_places"]) <= info["records"]["effects"]
assert any(p["module"].endswith("ld-linux-x86-64.so.2") for p in info["side_effect_places"])
EOF

# What CPUID says is known when it has been asked once, to all processes: 15 questions, 2 x 400 times in each.
timeout -s KILL 60 "$deja" record -o c.deja sh -c './native cpuid 400; ./native cpuid 400' >out 2>err || fail "cpuid: $(cat err)"
expect cpuid out '^done$' 2
"$deja" verify c.deja >out 2>&1 || fail "cpuid: $(tail -1 out)"
"$deja" info c.deja >out 2>err || fail "info: $(cat err)"
expect cpuid out '^  cpuid +24,[0-9]+ \(cpuid\)$' 1
expect cpuid out '^  [0-9]?[0-9]?[0-9] +stops: instruction executed natively$' 1

# What nobody can know beforehand is executed in the cache, as well: with all orders of memory.
${CC:-gcc} -O1 -w "$here/../programs/results.c" -o results || exit 99
orders=(fence kernel acqrel load)
options=("" "--exact-flags" "--shadow-memory 1M" "--predict last")
for seed in {1..8}; do
	./results $seed 500 >natively || fail "results $seed, natively"
	read -ra with <<<"--order=${orders[seed % 4]} ${options[seed / 2 % 4]}"
	"$deja" record "${with[@]}" -o r.deja ./results $seed 500 >out 2>err || fail "results $seed ${with[*]}: $(cat err)"
	cmp -s natively out || fail "results $seed ${with[*]}: $(head -3 out), natively $(head -3 natively)"
	"$deja" verify r.deja >out 2>&1 || fail "results $seed ${with[*]}: $(tail -1 out)"
	"$deja" verify --emulate r.deja >out 2>&1 || fail "results $seed ${with[*]}, emulated: $(tail -1 out)"
done
"$deja" info r.deja >out 2>err || fail "info: $(cat err)"
expect results out '^  (lsl|rdpid) +1,[0-9]+ \(other\)$' 1 # getcpu(2) of the vdso
expect results out '^  [0-9]?[0-9] +stops: instruction executed natively$' 1

# What signals of faults do is asked for and set without the recorder, but for handlers; and what the program
# may not read or write the recorder does not, either.
${CC:-gcc} -O1 -w "$here/actions.c" -o actions || exit 99
for seed in {1..4}; do
	./actions $seed 2000 >natively 2>supervised || fail "actions $seed, natively"
	"$deja" record --order=${orders[seed % 4]} -o a.deja ./actions $seed 2000 >out 2>err || fail "actions $seed: $(cat err)"
	cmp -s natively out || fail "actions $seed: $(cat out), natively $(cat natively)"
	cmp -s supervised err || fail "actions $seed: $(cat err)"
	"$deja" verify a.deja >out 2>&1 || fail "actions $seed: $(tail -1 out)"
	calls=$("$deja" info a.deja | sed -n 's/^ *\([0-9,]*\) *stops: system call$/\1/p' | tr -d ,)
	[ "$calls" -ge "$(cat supervised)" ] && [ "$calls" -le $(($(cat supervised) + 100)) ] ||
		fail "actions $seed: $calls calls stopped, $(cat supervised) are the recorder's"
done

# and which processor it is, where a thread has said where it wants to be
${CC:-gcc} -O1 -w "$here/placed.c" -o placed -pthread || exit 99
for run in "./placed" "taskset -c $(taskset -cp $$ | sed 's/.*[ ,-]//') ./placed"; do
	$run >native.out || fail "$run, natively"
	timeout -s KILL 60 "$deja" record -o p.deja $run >out 2>err || fail "$run: $(cat err)"
	diff native.out out || fail "$run: not the processors that it is on natively"
	"$deja" verify p.deja >out 2>&1 || fail "$run: $(tail -1 out)"
done

# the gs base is the program's, whose copy is where translated code finds it, and nobody takes that for overwritten
${CC:-gcc} -O1 -w "$here/gs.c" -o gs -pthread || exit 99
./gs >native.out || fail "gs, natively"
for o in '' '--digest-interval 1000 --keyframes 1000'; do
	# shellcheck disable=SC2086
	timeout -s KILL 60 "$deja" record $o -o g.deja ./gs >out 2>err || fail "gs $o: $(cat err)"
	diff native.out out || fail "gs $o: not as natively"
	"$deja" verify g.deja >out 2>&1 || fail "gs $o: $(tail -1 out)"
done

# where processors differ: as natively on the one there is, in translated code and without any
${CC:-gcc} -O1 -w -mavx2 "$here/corners.c" -o corners || exit 99
./corners >native.out || fail "corners, natively"
for how in "" --predict=last --predict=none; do
	timeout -s KILL 60 "$deja" record $how -o k.deja ./corners >out 2>err || fail "corners $how: $(cat err)"
	diff native.out out || fail "corners $how: not as natively"
	[ ! -s err ] || fail "corners $how: $(cat err)"
	"$deja" verify k.deja >out 2>&1 || fail "corners $how: $(tail -3 out)"
done

# addresses relative to rip in 16 bits are translated, also where what an earlier recording left is used
./native low 500 || fail "low addresses, natively"
for time in first second; do
	timeout -s KILL 60 "$deja" record -o l.deja ./native low 500 >out 2>err || fail "low addresses, $time: $(cat err)"
	"$deja" verify l.deja >out 2>&1 || fail "low addresses, $time: $(tail -1 out)"
	"$deja" info l.deja >out 2>err || fail "info: $(cat err)"
	expect "low addresses, $time" out '^  lea ' 0
done

# xrstor in all ways: as natively, and replayed by translated code and by the emulator. What is about vector
# registers alone takes no stop: of functions that are found when they are first called.
${CC:-gcc} -O1 -w -mavx2 -mxsave -mxsavec "$here/xrstor.c" -o xrstor -pthread || exit 99
${CC:-gcc} -O1 -w -Wl,-z,lazy "$here/lazy.c" -o lazy -lm || exit 99
# numbers OF-INSTRUCTION NATIVELY: what `deja info` says of lazy
numbers() {
	"$deja" record -o z.deja ./lazy "$@" >out 2>err || fail "lazy: $(cat err)"
	"$deja" verify z.deja >out 2>&1 || fail "lazy: $(tail -1 out)"
	"$deja" info z.deja | sed -nE 's/^  xrstor +([0-9]+) .*|^  ([0-9]+) +stops: instruction executed natively$/\1\2/p'
}
if grep -q xsavec /proc/cpuinfo; then
	same=0xff # of XCR0, natively and in a recording: not MPX and AVX-512 where the processor has them
	if grep -q mpx /proc/cpuinfo; then same=$((same & ~0x18)); fi
	if grep -q avx512f /proc/cpuinfo; then same=$((same & ~0xe0)); fi
	for seed in {1..8}; do
		./xrstor $seed $((1 + seed % 3)) $same >natively
		"$deja" record --order=${orders[seed % 4]} -o x.deja ./xrstor $seed $((1 + seed % 3)) $same >out 2>err || fail "xrstor: $(cat err)"
		cmp -s natively out || fail "xrstor $seed: $(head -1 out), natively $(head -1 natively)"
		"$deja" verify x.deja >out 2>&1 || fail "xrstor $seed: $(tail -1 out)"
		"$deja" verify --emulate x.deja >out 2>&1 || fail "xrstor $seed, emulated: $(tail -1 out)"
	done
	read -r -d '' few stops < <(numbers)
	read -r -d '' many more < <(numbers again)
	[ "${few:-0}" -ge 20 ] && [ "${many:-0}" -ge 35 ] || fail "functions that are found when called: $few, then $many"
	[ -n "$stops" ] && [ "$stops" = "$more" ] || fail "to find $few functions took $stops stops, $many $more"
fi

# wide vectors
if grep -q avx512f /proc/cpuinfo; then
	timeout -s KILL 100 "$deja" record -o w.deja ./native wide 300 >out 2>err || fail "wide: $(cat err)"
	[ ! -s err ] || fail "300 wide instructions: $(cat err)"
	timeout -s KILL 100 "$deja" record -o w.deja ./native wide 10500 >out 2>err || fail "wide: $(cat err)"
	expect wide err '^deja: .*AVX-512' 1
	expect wide err . 1
	"$deja" info w.deja >out 2>err || fail "info: $(cat err)"
	expect wide out '^  vpaddd +10,500 \(unemulated\)$' 1
	expect wide out '^  10,500 +wide\+0x[0-9a-f]+ in .*/native$' 1
	expect wide out '^  10,[0-9]+ +stops: instruction executed natively$' 1
	"$deja" verify w.deja >out 2>&1 || fail "wide: $(tail -1 out)"
fi

conclude
