#!/bin/bash
# deja's own threads, by ThreadSanitizer: what ./check --tsan does.
#
# usage: tests/lib/check-tsan.sh       (from the top of the source tree)
#
# deja is built with it, in build-check-tsan. Its threads are those that write a trace, watch its clock,
# pack modules, verify parts of a history and go through it for profiles: rows of the table with
# threads and processes are recorded and verified, and tests that go through recordings are run. Where
# ThreadSanitizer finds a race, that process of deja ends with status 66, which is no row's.
set -u
. tests/lib/packages.sh

top=$PWD build=$PWD/build-check-tsan
rows="gzip sort pigz-2 sort-2 make-j2 python3-threads threads-exec"
tests="edges coverage interrupted idle"
failed=()

install_packages $BUILD_PACKAGES $TEST_PACKAGES || exit 1
[ "$(id -u)" != 0 ] || install_packages $(tests/programs/run-programs --missing all $rows) ||
	echo "check: not all programs of the rows can be installed" >&2
echo "== build with ThreadSanitizer"
make_configure || exit 1
mkdir -p "$build" && cd "$build" || exit 1
[ -e Makefile ] || quietly ../configure -q --enable-werror --enable-sanitizers=thread || exit 1
helpers=(tests/cli/{replay-ground,replay-parts})
make -s -j"$(nproc)" deja "${helpers[@]}" >make.log 2>&1 || {
	grep -v '^  [A-Z]* ' make.log
	echo "check: failed: build with ThreadSanitizer" >&2
	exit 1
}
# A build without it would find nothing.
nm -D deja | grep -q __tsan_ || failed+=("not built with ThreadSanitizer")

echo "== its threads"
export DEJA=$build/deja SLOW=10 TSAN_OPTIONS="exitcode=66 halt_on_error=1" XDG_CACHE_HOME=$build/test-cache
mkdir -p "$XDG_CACHE_HOME"
for test in $tests; do
	"$top/tests/cli/$test.sh" >"$test.log" 2>&1 && echo "PASS: $test" || {
		failed+=("$test")
		echo "FAIL: $test"
		tail -n 100 "$test.log"
	}
done
"$top/tests/programs/run-programs" --deja "$DEJA" $rows || failed+=(rows)
[ ${#failed[@]} = 0 ] && exit
echo "check --tsan: failed: ${failed[*]}" >&2
exit 1
