#!/bin/bash
# deja profile: sums that must agree, paths of calls of a program that does everything to its stacks,
# each function's count against callgrind's, and the page in a browser. Valgrind and Chromium are
# used if they are there.
# Runs in the build directory.
#
# usage: tests/cli/profile.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
export DEJA=$deja LC_ALL=C
work_in profile
can_record
check() {
	/usr/bin/env python3 "$here/profile.py" "$@" || failures=$((failures + 1))
}

${CC:-gcc} -O2 -g -pthread -fno-inline "$here/profile-threads.c" -o threads || exit 99
"$deja" record -o threads.deja ./threads >/dev/null || fail "recording threads"
check sums threads.deja
check paths threads.deja
check stubs threads.deja
${CC:-gcc} -O1 -g "$here/profile-inline.c" -o inline || exit 99
"$deja" record -o inline.deja ./inline || fail "recording inline"
check inlined inline.deja
"$deja" profile --html page.html threads.deja || fail "--html"
if command -v chromium >/dev/null; then
	check page page.html
else
	left_out chromium
fi

# A name of the program's, or of code that it made, is text in the page: no element ends or begins there.
cat >named.c <<'EOS'
int named(int n)
{
	volatile int sum = 0;
	for (int i = 0; i < n; i++)
		sum += i;
	return sum;
}
EOS
echo 'extern int named(int); int main(void) { return named(10000) == 0; }' >names.c
${CC:-gcc} -O1 -c named.c && ${CC:-gcc} -O1 -c names.c || exit 99
objcopy --redefine-sym 'named=</script><script>named<!--&' named.o &&
	objcopy --redefine-sym 'named=</script><script>named<!--&' names.o || exit 99
${CC:-gcc} names.o named.o -o names || exit 99
"$deja" record -o names.deja ./names || fail "recording names"
sed 's,made_one,</script><script>made&<!--\&,' "$here/perfmap.c" >made.c
${CC:-gcc} -O1 made.c -o made || exit 99
pid=$("$deja" record -o made.deja ./made) || fail "recording made"
rm -f "/tmp/perf-$pid.map"
for name in names made; do
	"$deja" profile --html $name.html --json $name.deja >$name.json || fail "--html, of $name"
	for tag in '<script' '</script' '<!--'; do
		[ "$(grep -oi -- "$tag" $name.html | wc -l)" = "$(grep -oi -- "$tag" page.html | wc -l)" ] ||
			fail "a name in the page of $name is not only text: $tag"
	done
	grep -q 'u003c/script' $name.html || fail "the name is not in the page of $name"
	/usr/bin/env python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert any(r["function"].startswith("</script><script>" + sys.argv[2][:4]) and "<!--&" in r["function"] for r in rows)' \
		$name.json $name || fail "a name in JSON is another one: $name"
done

# Of a deep recursion the files have 200 calls, and all instructions; functions whose long names begin alike are two.
long=$(printf 'a%.0s' $(seq 600))
cat >deep.c <<EOS
__attribute__((noipa)) int ${long}_one(int n) { return n + 1; }
__attribute__((noipa)) int ${long}_two(int n) { return n + 2; }
__attribute__((noipa)) int deep(int n) { return n ? deep(n - 1) + 1 : ${long}_one(n) + ${long}_two(n); }
int main(void) { return deep(3000) != 3003; }
EOS
${CC:-gcc} -O1 deep.c -o deep || exit 99
"$deja" record -o deep.deja ./deep || fail "recording deep"
"$deja" profile --folded deep.folded --speedscope deep.speedscope --callgrind deep.callgrind deep.deja 2>err >out ||
	fail "the files of deep: $(cat err)"
[ "$(grep -c '^deja: .*deeper than 200' err)" = 2 ] || fail "it does not say what is deeper: $(cat err)"
"$deja" edges --callgrind edges.callgrind deep.deja || fail "deja edges --callgrind"
for name in deep edges; do
	for which in one two; do
		grep -q "^fn=${long}_$which\$" $name.callgrind || fail "a long name is cut in $name.callgrind"
	done
done
check deep deep

# callgrind NAME PROGRAM ARG...: what it counts of each instruction, deja counts
callgrind() {
	local name=$1
	shift
	valgrind --tool=callgrind --dump-instr=yes --skip-plt=no --callgrind-out-file="$name.cg" \
		"$@" >"$name.1" 2>"$name.err" </dev/null || fail "valgrind $*: $(tail -3 "$name.err")"
	"$deja" record -o "$name.deja" -- "$@" >"$name.2" 2>>"$name.err" </dev/null ||
		fail "deja record $*"
	cmp -s "$name.1" "$name.2" || fail "$* does not do the same twice"
	"$deja" profile --callgrind "$name.out" "$name.deja" || fail "--callgrind, of $*"
	check callgrind "$name"
}
if command -v valgrind >/dev/null; then
	${CC:-gcc} -O1 -g "$here/profile-single.c" -o single || exit 99
	head -c 20000 /usr/bin/env >input
	callgrind single ./single
	callgrind gzip gzip -c input
	callgrind bzip2 bzip2 -c input
	callgrind sort sort -r "$here/profile.sh"
	callgrind sed sed 's/e/E/g' "$here/profile.sh"
	callgrind md5sum md5sum input
	callgrind factor factor 1234567890123456789
	callgrind cut cut -c2-30 "$here/profile.sh"
	callgrind od od -x -N 4000 input
	callgrind_annotate single.out >annotated 2>&1 || fail "callgrind_annotate: $(cat annotated)"
	grep -q 'single.c:main' annotated || fail "callgrind_annotate does not know main"
else
	echo "skipped: valgrind is not installed"
fi
conclude
