#!/bin/sh
# deja info, dump, ps: output, exit statuses and diagnostics, over the fuzz corpus's traces.
# Runs in the build directory; srcdir is the source's.
set -u
deja=${DEJA:-$PWD/deja}
corpus=$(cd "${srcdir:-.}" && pwd)/fuzz/corpus-trace
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

# run WANTED-STATUS COMMAND...: output in out, diagnostics in err
run() {
	want=$1
	shift
	"$deja" "$@" >out 2>err
	got=$?
	if [ $got -ne "$want" ]; then
		echo "FAIL: deja $*: status $got, not $want: $(cat err)"
		failed=1
	fi
	if [ "$want" -ne 0 ] && { [ "$(wc -l <err)" -ne 1 ] || ! grep -q '^deja: ' err; }; then
		echo "FAIL: deja $*: not one line of diagnosis: $(cat err)"
		failed=1
	fi
}

# says PATTERN FILE
says() {
	if ! grep -q -- "$1" "$2"; then
		echo "FAIL: no '$1' in: $(cat "$2")"
		failed=1
	fi
}

run 0 info "$corpus/sample1"
says '^command  *prog .an argument.$' out
says '^process  *1000, ' out
says '^threads  *2$' out
says '^records  *20$' out
[ ! -s err ] || { echo "FAIL: info: $(cat err)"; failed=1; }

run 0 info --json "$corpus/sample1"
says '"argv": \[' out
says '"damage": null' out
if command -v python3 >/dev/null; then
	python3 -c 'import json; t = json.load(open("out"))
assert len(t["threads"]) == 2 and sum(t["records"].values()) == 20 and t["complete"]' ||
		{ echo "FAIL: info --json is not what it should be"; failed=1; }
fi

run 0 ps "$corpus/sample1"
says ' 1000  *0  *2 .* prog ' out

run 0 dump "$corpus/sample2"
[ "$(wc -l <out)" -eq 60 ] || { echo "FAIL: dump: $(wc -l <out) lines, not 60"; failed=1; }
says 'how the recording ended is not known' err
sed 's/^1000 \([0-9]*\).*/\1/' out >positions
from=$(sed -n 20p positions)
to=$(sed -n 40p positions)
awk -v a="$from" -v b="$to" '$1 >= a && $1 <= b' positions >want
run 0 dump --from "$from" --to "$to" "$corpus/sample2"
sed 's/^1000 \([0-9]*\).*/\1/' out | cmp -s - want || { echo "FAIL: dump --from --to"; failed=1; }
# where records lie in several chunks, from the middle of one
run 0 dump --thread 1000 "$corpus/sample1"
from=$(sed -n '7s/^1000 \([0-9]*\).*/\1/p' out)
awk -v a="$from" '{ at = $2; sub(/[^0-9].*/, "", at) } at + 0 >= a + 0' out >want
run 0 dump --thread 1000 --from "$from" "$corpus/sample1"
cmp -s out want || { echo "FAIL: dump --from $from"; failed=1; }
run 0 dump --thread 1001 "$corpus/sample1"
[ "$(grep -vc '^1001 ' out)" -eq 0 ] || { echo "FAIL: dump --thread"; failed=1; }
run 1 dump --thread 77 "$corpus/sample1"

# two processes with two threads each: every record once, with the thread that caused it
run 0 dump "$corpus/sample3"
[ "$(wc -l <out)" -eq 48 ] || { echo "FAIL: dump: $(wc -l <out) lines, not 48"; failed=1; }
for tid in 1000 1001 1002 1003; do
	[ "$(grep -c "^$tid " out)" -eq 12 ] || { echo "FAIL: dump: thread $tid"; failed=1; }
done

run 0 ps "$corpus/sample3"
says '^ *1000  *0  *2 .*[0-9]  prog ' out
says '^ *1001  *1000  *2 .*[?]    prog .*; 2 children not recorded$' out
[ "$(wc -l <out)" -eq 3 ] || { echo "FAIL: ps: $(cat out)"; failed=1; }
run 0 ps --threads "$corpus/sample3"
[ "$(sed 's/^ *\([0-9]*\).*/\1/' out | xargs)" = "1000 1000 1002 1001 1001 1003" ] ||
	{ echo "FAIL: ps --threads: $(cat out)"; failed=1; }
run 0 ps --json "$corpus/sample3"
if command -v python3 >/dev/null; then
	python3 -c 'import json; t = json.load(open("out"))
assert [(p["pid"], p.get("ppid")) for p in t] == [(1000, None), (1001, 1000)]
assert [[th["tid"] for th in p["threads"]] for p in t] == [[1000, 1002], [1001, 1003]]
assert t[1]["children_not_recorded"] == 2' ||
		{ echo "FAIL: ps --json: $(cat out)"; failed=1; }
fi
run 0 info "$corpus/sample3"
says '^processes  *2$' out
says '^  1003  *thread of 1001: ' out
run 0 info --json "$corpus/sample3"
if command -v python3 >/dev/null; then
	python3 -c 'import json; t = json.load(open("out"))
assert [p["pid"] for p in t["processes"]] == [1000, 1001] and t["processes"][1]["parent"] == 0
assert [th["process"] for th in t["threads"]] == [0, 1, 0, 1]' ||
		{ echo "FAIL: info --json: processes"; failed=1; }
fi

# the latest trace
mkdir -p data/deja
ln -s "$corpus/sample0" data/deja/latest
unset DEJA_TRACE_DIR
XDG_DATA_HOME=$dir/data run 0 ps
(
	export DEJA_TRACE_DIR="$dir/nowhere"
	run 1 info
	says nowhere err
	exit $failed
) || failed=1

# wrong use and bad files
run 1
run 1 nonsense
run 1 info --nonsense
run 1 dump --from
run 1 dump --from x "$corpus/sample1"
run 1 ps a b
for command in replay serve; do
	run 1 $command -p nobody "$corpus/sample3"
	says 'there is no process nobody in .*; deja ps lists them' err
	run 1 $command -p 1003 "$corpus/sample3" # a thread's
	says 'there is no process 1003' err
done
run 1 info "$dir/missing"
: >empty
for bad in empty / "$deja" "$corpus/../run"; do
	run 2 info "$bad"
done
head -c 1500 "$corpus/sample1" >cut
run 0 info cut
says 'ends after' err

# output that cannot be written
if [ -w /dev/full ]; then
	"$deja" dump "$corpus/sample1" >/dev/full 2>err && { echo "FAIL: full device"; failed=1; }
	says 'cannot write standard output' err
fi
"$deja" info "$corpus/sample1" >&- 2>err && { echo "FAIL: closed stdout"; failed=1; }
says 'cannot write standard output' err
for help in --help --version "info --help" "dump --help" "ps --help"; do
	run 0 $help
done
exit $failed
