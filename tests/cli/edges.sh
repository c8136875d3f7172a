#!/bin/bash
# deja edges: each branch's counts against gcov's, line by line; the sampled profile comes nearer to
# the exact one the more samples there are; the call graph; and what it writes is used by clang and
# by llvm-bolt, if they are there.
# Runs in the build directory.
#
# usage: tests/cli/edges.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
export DEJA=$deja LC_ALL=C
work_in edges
can_record
check() {
	/usr/bin/env python3 "$here/edges.py" "$@" || failures=$((failures + 1))
}

cp "$here/edges.c" .
${CC:-gcc} -O0 -g --coverage edges.c -o covered || exit 99
"$deja" record -o covered.deja ./covered >out || fail "recording: $(cat out)"
gcov=$(${CC:-gcc} -dumpversion)
gcov=$(command -v "gcov-${gcov%%.*}" || command -v gcov)
if [ -n "$gcov" ]; then
	"$gcov" -b -t --json-format covered-edges.gcda >gcov.json 2>err || fail "gcov: $(cat err)"
	check gcov covered.deja gcov.json
else
	echo "skipped: gcov is not installed"
fi
${CC:-gcc} -O1 -g edges.c -o plain || exit 99
"$deja" record -o plain.deja ./plain 3000 >out || fail "recording: $(cat out)"
check sampling plain.deja
check calls plain.deja

# clang reads the profile, gives branches weights by it, and the program does what it did
if command -v clang >/dev/null; then
	clang -O1 -g -fdebug-info-for-profiling edges.c -o before || exit 99
	"$deja" record -o before.deja ./before 500 >out1 || fail "recording: $(cat out1)"
	"$deja" edges --clang profile before.deja || fail "--clang"
	clang -O2 -g -fprofile-sample-use=profile -S -emit-llvm edges.c -o after.ll 2>err ||
		fail "clang -fprofile-sample-use: $(cat err)"
	grep -q 'define.*@loops.*!prof' after.ll || fail "clang does not know how often loops() is called"
	[ "$(grep -c 'branch_weights' after.ll)" -ge 5 ] || fail "clang makes no weights of the profile"
	clang -O2 -fprofile-sample-use=profile edges.c -g -o after && ./after 500 >out2
	cmp out1 out2 || fail "the program that clang made with the profile does something else"
else
	left_out clang
fi

# so does gcc, of the format's version that it reads
${CC:-gcc} -O1 -g edges.c -o before || exit 99
"$deja" record -o before.deja ./before 500 >out1 || fail "recording: $(cat out1)"
"$deja" edges --gcc afdo before.deja || fail "--gcc"
if ${CC:-gcc} -O2 -g -fauto-profile=afdo -fdump-tree-optimized-blocks-details edges.c -o after 2>err; then
	[ "$(grep -l 'count [1-9][0-9]* (auto FDO)' ./*.optimized)" ] || fail "gcc makes no use of the profile"
	./after 500 >out2
	cmp out1 out2 || fail "the program that gcc made with the profile does something else"
elif grep -q 'profile version' err; then
	echo "skipped: this compiler reads another version of profiles: $(cat err)"
else
	fail "gcc -fauto-profile: $(cat err)"
fi

bolt=$(command -v llvm-bolt llvm-bolt-16 llvm-bolt-15 llvm-bolt-19 | head -1)
if [ -n "$bolt" ]; then
	${CC:-gcc} -O2 -g -fno-reorder-blocks-and-partition -Wl,-q edges.c -o before || exit 99
	"$deja" record -o before.deja ./before 500 >out1 || fail "recording: $(cat out1)"
	"$deja" edges --bolt fdata before.deja || fail "--bolt"
	"$bolt" before -o after -data=fdata -reorder-blocks=ext-tsp -reorder-functions=hfsort \
		>bolt.out 2>&1 || fail "llvm-bolt: $(tail -5 bolt.out)"
	used=$(sed -n 's/^BOLT-INFO: \([0-9]*\) out of .*non-empty execution profile.*/\1/p' bolt.out)
	[ "${used:-0}" -ge 7 ] || fail "llvm-bolt uses the profile of ${used:-no} functions: $(cat bolt.out)"
	! grep -q 'invalid (possibly stale)' bolt.out || fail "$(grep stale bolt.out)"
	./after 500 >out2
	cmp out1 out2 || fail "the program that llvm-bolt made does something else"
else
	left_out llvm-bolt
fi
conclude
