#!/bin/bash
# Build deja for another kind of machine and try there all that is not the recorder: what
# ./check --aarch64 and ./check --s390x do.
#
# usage: tests/lib/check-cross.sh ARCH       (aarch64 or s390x), from the top of the source tree
#
# - All but the recorder is built with Debian's cross compiler, in build-check-ARCH. The libraries come
#   from Debian, too, for that kind of machine: a private apt, whose state lies in the build directory,
#   fetches them, and they are unpacked there (sysroot/). Neither the host's list of packages nor its
#   architectures change, and it need not be root that does it. What the host itself must have is
#   ordinary packages of its own kind: compiler, qemu-user, gdb-multiarch.
# - The tests run there (under qemu-user). What compares the emulator with the processor compares it
#   there with the results of the emulator here (ORACLE_LOG, tests/lib/oracle.h).
# - 20 rows of the table of real programs are recorded here and verified here and there: the counts must
#   be the same.
# - gdb-multiarch debugs a recording that is replayed there, and deja says in one sentence that it cannot
#   record there.
#
# Whatever is missing, skipped or fails ends in exit status 1.
set -u
. tests/lib/packages.sh

arch=${1:-}
case $arch in
aarch64) debian=arm64 ;;
s390x) debian=s390x ;;
*)
	echo "check-cross.sh: no such machine: $arch" >&2
	exit 1
	;;
esac
triplet=$arch-linux-gnu
top=$PWD build=$PWD/build-check-$arch here=$PWD/build-check
sysroot=$build/sysroot
jobs=$(nproc)
rows="awk sed gzip bzip2 python3 perl lua sqlite3 git-log git-diff cc1 jit signals faults traps masks makers bash dash c++"
failed=()

fail() {
	failed+=("$1")
	echo "FAIL: $1"
}

# make_sysroot: the libraries of that kind of machine
make_sysroot() {
	[ -e "$sysroot/done" ] && return
	local apt=$build/apt
	rm -rf "$sysroot" "$apt" &&
		mkdir -p "$sysroot" "$apt/state/lists/partial" "$apt/cache/archives/partial" &&
		: >"$apt/status" && cat >"$apt/apt.conf" <<-END || return
			APT::Architecture "$debian";
			APT::Architectures "$debian";
			APT::Install-Recommends "false";
			APT::Sandbox::User "$(id -un)";
			Acquire::Languages "none";
			Dir::State "$apt/state";
			Dir::State::status "$apt/status";
			Dir::Cache "$apt/cache";
		END
	# a source that has nothing for that machine is no error; a package that is nowhere is
	APT_CONFIG=$apt/apt.conf apt-get update -q >"$apt/log" 2>&1
	APT_CONFIG=$apt/apt.conf apt-get install -y -q --download-only libc6-dev libcapstone-dev \
		libzstd-dev libxxhash-dev libcunit1-dev >>"$apt/log" 2>&1 || {
		tail -n 20 "$apt/log"
		return 1
	}
	for package in "$apt"/cache/archives/*.deb; do
		dpkg-deb -x "$package" "$sysroot" || return
	done
	rm -rf "$apt" && touch "$sysroot/done"
}

install_packages $BUILD_PACKAGES $TEST_PACKAGES gcc-$triplet libc6-dev-$debian-cross qemu-user \
	gdb-multiarch || exit 1
if [ "$(id -u)" = 0 ]; then
	install_packages $(tests/programs/run-programs --missing all $rows) || exit 1
fi

echo "== build here"
make_configure || exit 1
mkdir -p "$here" "$build" || exit 1
(cd "$here" && { [ -e Makefile ] || ../configure -q --enable-werror; } && make -s -j"$jobs" deja) || exit 1

echo "== build for $arch"
make_sysroot || {
	echo "check: Debian's libraries for $debian cannot be had" >&2
	exit 1
}
cd "$build" || exit 1
[ -e Makefile ] || PKG_CONFIG=pkg-config PKG_CONFIG_SYSROOT_DIR=$sysroot \
	PKG_CONFIG_LIBDIR=$sysroot/usr/lib/$triplet/pkgconfig:$sysroot/usr/share/pkgconfig \
	quietly ../configure -q --enable-werror --host=$triplet CC="$triplet-gcc --sysroot=$sysroot" ||
	exit 1
make -s -j"$jobs" || exit 1
# there PROGRAM ARG...: run it on that machine; a script runs here, and has its programs run there
cat >there <<END
#!/bin/sh
[ "\$(head -c 2 "\$1")" != '#!' ] || exec "\$@"
log=$build/\${1##*/}.oracle
[ -e "\$log" ] && export ORACLE_LOG=\$log
export DEJA_MEMORY=16G # qemu's own counts as the replay's
# Memory of qemu grows with every shadow that comes and goes: each file in a process of its own, and
# no mutations of them.
case \$1:\$# in
*/fuzz-replay:1 | */fuzz-streams:1)
	for file in $top/fuzz/corpus-\${1##*/fuzz-}/*; do
		qemu-$arch -L $sysroot "\$1" "\$file" || exit
	done
	exit
	;;
esac
exec qemu-$arch -L $sysroot "\$@"
END
printf '#!/bin/sh\nexec %s/there %s/deja "$@"\n' "$build" "$build" >deja-there
chmod +x there deja-there
case $(./deja-there --version) in
deja*) ;;
*)
	echo "check: programs for $arch cannot be run here" >&2
	exit 1
	;;
esac

echo "== tests for $arch"
for test in test-emu-int test-emu-vec test-emu-fp test-emu-x87; do
	(cd "$here" && make -s -j"$jobs" tests/unit/$test >/dev/null &&
		ORACLE_LOG=$build/$test.oracle tests/unit/$test >"$build/$test.here" 2>&1) || {
		fail "$test, here"
		tail -n 20 "$build/$test.here"
	}
done
make -s check CHECK_PROGRAMS=no LOG_COMPILER="$build/there" DEJA="$build/deja-there" \
	>check.log 2>&1 || fail tests
grep -E '^(PASS|FAIL|SKIP|ERROR|XPASS)' check.log
for trs in tests/*/*.trs fuzz/*.trs; do
	grep -q ':test-result: PASS' "$trs" && continue
	fail "${trs%.trs}"
	tail -n 40 "${trs%.trs}.log"
done

echo "== recorded here, verified on $arch"
../tests/programs/run-programs --deja "$here/deja" --also "$build/deja-there" --no-gdb --strict all $rows \
	>rows.log 2>&1
cat rows.log
grep -q '^20 passed, 0 failed, 0 skipped$' rows.log || fail programs

echo "== gdb"
gcc -g -O0 -o target ../tests/gdb/target.c -ldl &&
	gcc -g -O0 -shared -fPIC -o plugin.so ../tests/gdb/plugin.c &&
	{ "$here/deja" record -o target.deja ./target ./plugin.so >target.out; [ $? = 7 ]; } ||
	fail "recording for gdb"
DEBUGINFOD_URLS='' timeout 600 gdb-multiarch -nx -q -batch -ex 'set remotetimeout 120' \
	-ex "target extended-remote | $build/deja-there serve --stdio target.deja" \
	-ex 'break main' -ex continue -ex next -ex 'print argc' -ex 'info registers rip' \
	-ex continue -ex reverse-continue -ex 'print argc' -ex 'delete' -ex reverse-continue \
	</dev/null >gdb.log 2>&1
for line in '^Breakpoint 1, main (argc=2' '^\$1 = 2$' '^rip .*<main+' '^\$2 = 2$' \
	'No more reverse-execution history'; do
	grep -q -- "$line" gdb.log && continue
	fail "gdb: no line that is like $line"
	cat gdb.log
	break
done

./deja-there record true 2>record.err
[ $? = 1 ] && [ "$(wc -l <record.err)" = 1 ] && grep -q 'this host cannot record' record.err ||
	fail "record does not say that it cannot"

if [ ${#failed[@]} = 0 ]; then
	echo "check: all passed on $arch"
	exit 0
fi
echo "check: failed on $arch: ${failed[*]} (see $build)" >&2
exit 1
