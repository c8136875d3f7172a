#!/bin/bash
# deja coverage counts lines as gcov does: the same program, recorded as it is and compiled for gcov.
# Runs in the build directory.
#
# usage: tests/cli/coverage.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in coverage
can_record
${CC:-gcc} -g -O0 "$here/coverage.c" -o plain || exit 99
"$deja" record -o plain.deja ./plain >out || fail "recording: $(cat out)"
"$deja" coverage --lcov plain.info plain.deja >text || fail "deja coverage"
grep -q "coverage.c  *[0-9]" text || fail "no such file: $(cat text)"
sed -n 's/^DA://p' plain.info >ours
[ "$(wc -l <ours)" -gt 30 ] || fail "too few lines: $(cat ours)"
grep -q '^BRDA:[0-9]*,0,0,[1-9]' plain.info || fail "no branches"
if ${CC:-gcc} -g -O0 --coverage "$here/coverage.c" -o counted 2>/dev/null && ./counted >/dev/null &&
	gcov -o . counted-coverage.gcda >/dev/null 2>&1 && [ -s coverage.c.gcov ]; then
	# a label alone has no code
	awk -F: '{ count = $1; gsub(/[ *]/, "", count); gsub(/ /, "", $2) }
		count == "-" || $2 == 0 || $3 ~ /^[ \t]*(case .*|default)$/ { next }
		{ print $2 "," (count ~ /^[#=]/ ? 0 : count) }' coverage.c.gcov >theirs
	cmp -s ours theirs || { fail "gcov has other counts (left: deja)"; diff ours theirs; }
	# which way branches went, line by line; a switch's are the compiler's own, and of one that was
	# never reached no history has anything
	sed -n 's/^BRDA:\([0-9]*\),[0-9]*,[0-9]*,\([0-9]*\)$/\1 \2/p' plain.info | sort -n -k1,1 -k2,2 >ours
	gcov -b -c -o . counted-coverage.gcda >/dev/null 2>&1
	awk '/^ *[^ ]*: *[0-9]+:/ { split($0, part, ":"); line = part[2] + 0; skip = $0 ~ /switch|case / }
		/^branch .* taken [0-9]/ && !skip { print line, $4 }' coverage.c.gcov | sort -n -k1,1 -k2,2 >theirs
	switches=$(grep -n 'switch\|case ' "$here/coverage.c" | cut -d: -f1 | tr '\n' ' ')
	awk -v lines=" $switches" 'index(lines, " " $1 " ") == 0' ours >rest
	[ "$(wc -l <theirs)" -ge 20 ] || fail "too few branches: $(cat theirs)"
	cmp -s rest theirs || { fail "gcov has other branches (left: deja)"; diff rest theirs; }
else
	echo "gcov cannot be used here: not compared"
fi
# lcov reads it, and its numbers are ours
if command -v genhtml >/dev/null; then
	lcov --rc lcov_branch_coverage=1 --summary plain.info >summary 2>&1 || fail "lcov: $(cat summary)"
	want=$("$deja" coverage --json plain.deja | /usr/bin/python3 -c '
import json, sys
file, = json.load(sys.stdin)
print("(%d of %d lines)" % (file["executed"], file["lines"]))')
	grep -qF "$want" summary || fail "lcov has other lines than $want: $(cat summary)"
	branches=$(grep -c '^BRDA:' plain.info) && grep -q "of $branches branches" summary || fail "lcov has other branches: $(cat summary)"
	genhtml -q --branch-coverage -o html plain.info >genhtml 2>&1 || fail "genhtml: $(cat genhtml)"
	find html -name 'coverage.c.gcov.html' | grep -q . || fail "genhtml has no page of the source"
else
	left_out lcov
fi
"$deja" coverage --json --from end plain.deja | /usr/bin/python3 -c '
import json, sys
file, = json.load(sys.stdin)
assert file["executed"] <= 1 < file["lines"], file' || fail "of no part nothing is covered"
strip -o bare plain
"$deja" record -o bare.deja ./bare >/dev/null
"$deja" coverage bare.deja >out 2>err && fail "of a stripped program"
[ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q 'no debug information' err || fail "it says: $(cat out err)"
# Names of files are a trace's: none of them is more than a name in its line. And of each file the branches of a line
# are counted for themselves.
cat >files.c <<'EOF'
#line 10 "a"
static int first(int n) { return n > 2 ? n * 3 : n + 1; }
#line 10 "b\nend_of_record\nSF:forged\nDA:1,1\nend_of_record\n\033[31m"
static int second(int n) { return n > 2 ? n * 3 : n + 1; }
#line 10 "c"
static int third(int n) { return n > 2 ? n * 3 : n + 1; }
#line 20 "c"
int main(int argc, char **argv) { return first(argc) + second(argc) + third(argc) + !argv == 0; }
EOF
${CC:-gcc} -g -O0 files.c -o files || exit 99
"$deja" record -o files.deja ./files || fail "recording files"
"$deja" coverage --lcov files.info files.deja >text || fail "deja coverage of files"
sed 's,^SF:.*/,SF:,; s/^DA:\(.*\),.*/DA:\1/' files.info | grep -v '^TN:' >ours
for file in a 'b?end_of_record?SF:forged?DA:1,1?end_of_record??[31m' c; do
	printf '%s\n' "SF:$file" BRDA:10,0,0,1 BRDA:10,0,1,0 BRF:2 BRH:1 DA:10 LF:1 LH:1 end_of_record
done | sed '/^SF:c$/,$ { s/^DA:10/&\nDA:20/; s/^L\([FH]\):1/L\1:2/ }' >want
sed -i 's/^\(BRDA:10,0,\).*/\1/' ours want
cmp -s ours want || { fail "of names that are no letters, and of lines alike (left: deja)"; diff ours want; }
"$deja" coverage --lcov /nonexistent/x plain.deja >out 2>err && fail "a file that cannot be written"
[ "$(wc -l <err)" = 1 ] && grep -q 'cannot write /nonexistent/x' err || fail "it says: $(cat err)"
conclude
