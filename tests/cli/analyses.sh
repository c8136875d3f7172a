#!/bin/bash
# What analyses say of programs of which every number is known, and of bad questions.
# Runs in the build directory.
#
# usage: tests/cli/analyses.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in analyses
can_record

# get FILE EXPRESSION: of the JSON in FILE, which is `a` there
get() {
	/usr/bin/env python3 -c 'import json, sys
a = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$@"
}

# same WHAT HAVE WANT
same() {
	[ "$2" = "$3" ] || fail "$1: $2, not $3"
}

# ---- deja rep
${CC:-gcc} -O1 -g "$here/rep.c" -o rep || exit 99
"$deja" record -o rep.deja ./rep >/dev/null || fail "recording rep"
"$deja" rep --json rep.deja >rep.json || fail "deja rep"
numbers='[[r[k] for k in ("occurrences", "asked", "done", "condition", "interrupted")]
	for r in a if r["place"].startswith("%s+")][0]'
same "rep movsb" "$(get rep.json "${numbers/\%s/rep_copy}")" "[10, 4500, 4500, 0, 0]"
same "rep stosl" "$(get rep.json "${numbers/\%s/rep_fill}")" "[7, 350, 350, 0, 0]"
same "repne scasb" "$(get rep.json "${numbers/\%s/rep_find}")" "[5, 3060, 183, 3, 0]"
same "rep stosb, left for a fault's handler and gone on with" "$(get rep.json "${numbers/\%s/rep_fault}")" \
	"[3, 10904, 10000, 0, 1]"
same "line" "$(get rep.json '[r["line"] for r in a if r["place"].startswith("rep_fill")]')" \
	"['rep.c:$(grep -n '"rep stosl"' "$here/rep.c" | cut -d: -f1)']"
# the instruction, as objdump has it at that place but for blanks and the segment of what rdi leads to
objdump -d -M suffix --no-show-raw-insn rep >rep.text || exit 99
for function in rep_copy rep_fill rep_find rep_fault; do
	same "instruction of $function" \
		"$(get rep.json "[r['instruction'] for r in a if r['place'].startswith('$function+')][0].replace(' ', '')")" \
		"$(sed -n "/<$function>:/,/^\$/p" rep.text | sed -nE 's/^.*:\t *(repn?[ez]? .*)$/\1/p' |
			sed 's/%[de]s://g; s/repnz/repne/; s/repz/repe/; s/ //g')"
done

# the records one by one: as many as are counted, in order, each at its position
"$deja" rep --log --json --at rep_find rep.deja >log.json || fail "deja rep --log"
same "records" "$(get log.json '[(r["kind"], r["asked"], r["done"]) for r in a]')" \
	"[('done', 30, 30), ('done', 30, 30), ('condition', 1000, 41), ('condition', 1000, 41), ('condition', 1000, 41)]"
for i in 0 4; do
	"$deja" backtrace --json rep.deja "$(get log.json "a[$i]['position']")" >at.json
	same "where record $i is" "$(get at.json 'a[0]["frames"][0]["pc"]')" "$(get log.json "a[$i]['address']")"
done
# with taken branches between them: a buffer of any size that is printed when full has all of them
"$deja" rep --log --branches --json rep.deja >all.json || fail "deja rep --log --branches"
"$deja" rep --log --branches --buffer 7 --json rep.deja | cmp - all.json || fail "--buffer 7 --full flush loses records"
"$deja" edges --calls --json rep.deja >calls.json
same "calls among the branches" \
	"$(get all.json '[sum(r["kind"] == "branch" and r["target"].startswith(f + " at") and not r["code"].startswith(f + " at")
		for r in a) for f in ("rep_copy", "rep_find")]')" "[10, 5]"
same "both in one stream" "$(get all.json '[k for k in sorted({r["kind"] for r in a})]')" "['branch', 'condition', 'done', 'interrupted']"
get all.json '[a[0:7], a[-7:]]' >want
"$deja" rep --log --branches --buffer 7 --full stop --json rep.deja >first.json 2>err
grep -q '^deja: thread [0-9]*: the buffer of 7 records is full$' err || fail "a full buffer: $(cat err)"
"$deja" rep --log --branches --buffer 7 --full overwrite --json rep.deja >last.json 2>err
same "overwritten" "$(sed 's/.*: \([0-9]*\) older records were overwritten$/\1/' err)" "$(($(get all.json 'len(a)') - 7))"
same "stop, overwrite" "[$(get first.json a), $(get last.json a)]" "$(cat want)"
# after so many occurrences: there, and no further
"$deja" rep --after 3 --at rep_fill --stop --json rep.deja >after.json || fail "deja rep --after"
same "after 3" "$(get after.json '[len(a["reached"]), a["instructions"][0]["occurrences"]]')" "[1, 3]"
same "where that is" "$(get after.json 'a["reached"][0]["position"]')" \
	"$("$deja" rep --log --json --at rep_fill rep.deja | get /dev/stdin 'a[2]["position"]')"
"$deja" rep --after 3 --at rep_fill --stop --log --json rep.deja >after.json
same "after 3, among the records" "$(get after.json '[r["kind"] for r in a]')" "['done', 'done', 'done', 'reached']"

# ---- names of code made at run time
${CC:-gcc} -O1 -g "$here/perfmap.c" -o made || exit 99
pid=$("$deja" record -o made.deja ./made) || fail "recording made"
rm -f "/tmp/perf-$pid.map"
"$deja" info --json made.deja | grep -q "perf-$pid.map" || fail "the map file is not in the trace"
"$deja" profile --json made.deja >made.json || fail "deja profile of code made at run time"
same "profile" "$(get made.json '[(r["function"], r["self"], r["calls"]) for r in a if r["function"].startswith("made")]')" \
	"[('made_one', 400, 100), ('made_two with blanks', 400, 200)]"
same "a name that was replaced" "$(get made.json '[r["function"] for r in a if "before" in r["function"]]')" "[]"
"$deja" calls --json 'made_two with blanks' made.deja >made.json || fail "deja calls of a function made at run time"
same "calls" "$(get made.json '[len(a), a[0]["caller"].split("+")[0]]')" "[200, 'made_one']"
position=$(get made.json 'a[7]["position"]')
"$deja" backtrace --json made.deja "$position" >made.json
same "backtrace" "$(get made.json 'a[0]["frames"][0]["function"]')" "made_two with blanks"
"$deja" stacks --at "$position" --json made.deja >made.json
same "stacks" "$(get made.json '[f["function"] for f in a[:3]]')" "['made_two with blanks', 'made_one', 'main']"
# a file of that name that is somebody else's, older or a link is not taken
"$deja" record -o made.deja sh -c 'echo 1000 10 old >/tmp/older.$$ && touch -d 2000-01-01 /tmp/older.$$ &&
	mv /tmp/older.$$ /tmp/perf-$$.map; echo $$' >pid || fail "recording sh"
rm -f "/tmp/perf-$(cat pid).map"
"$deja" info --json made.deja | grep -q "\"/tmp/perf-$(cat pid).map\"" && fail "an older map file is in the trace"
"$deja" record -o made.deja sh -c 'echo 1000 10 else >/tmp/else.$$; ln -s /tmp/else.$$ /tmp/perf-$$.map; echo $$' >pid
rm -f "/tmp/perf-$(cat pid).map" "/tmp/else.$(cat pid)"
"$deja" info --json made.deja | grep -q "\"/tmp/perf-$(cat pid).map\"" && fail "a map file that is a link is in the trace"

# ---- bad questions: one clear line each, and no answer
refused 1 'no event 99999' rep --from 99999:0 rep.deja
refused 1 'no position' rep --to nowhere rep.deja
refused 1 'comes after' rep --from end --to begin rep.deja
refused 1 'no thread 1 ' rep --thread 1 rep.deja
refused 1 'bad option --wrong' rep --wrong rep.deja
refused 2 'not' rep rep
refused 1 'need --log' rep --branches rep.deja
refused 1 'together with other questions' rep --log --with edges rep.deja
refused 1 'together with other questions' edges --json --with 'rep --log' rep.deja
refused 1 'there is no thread 2147483647' backtrace --json --thread 2147483647 rep.deja
refused 1 'takes flush, stop or overwrite' rep --log --full maybe rep.deja
refused 1 'from 1 to 16777216' rep --log --buffer 99999999 rep.deja
refused 1 '--stop needs --after' rep --stop rep.deja
refused 1 "no function 'nonsense'" rep --at nonsense rep.deja
# ---- what cannot be told: one line, or an answer without names; nothing else
refused 1 "no function 'nonsense'" count --code nonsense rep.deja
refused 1 "no function 'nonsense'" profile --call nonsense rep.deja
refused 1 "no variable 'nonsense'" count --data nonsense rep.deja
refused 1 'takes a number' profile --limit many rep.deja
refused 1 'takes function, inlined, line' profile --by color rep.deja
refused 1 'cannot write' profile --html /nowhere/page rep.deja
strip -o stripped rep
"$deja" record -o stripped.deja ./stripped >/dev/null || fail "recording a stripped program"
refused 1 "stripped module's code is named by MODULE" count --code rep_copy stripped.deja
"$deja" profile stripped.deja | grep -q '?? (stripped)' || fail "code of a stripped module has no line"
# a recording that was cut tells what it has, and says that it was
size=$(stat -c %s rep.deja)
head -c $((size - size / 50)) rep.deja >cut.deja
for question in profile edges stacks rep count; do
	timeout 60 "$deja" $question cut.deja >out 2>err
	same "status of deja $question of a recording that was cut" "$?" 2
	[ "$(grep -vc '^deja: ' err)" = 0 ] && [ "$(wc -l <err)" -le 2 ] ||
		fail "deja $question of a recording that was cut says: $(cat err)"
done
# debug information made to harm: random bytes in each of its sections, and in the symbols
for seed in 1 2 3; do
	/usr/bin/env python3 - rep harmful $seed <<-'END' || fail "making a harmful program"
		import random, re, subprocess, sys
		random.seed(int(sys.argv[3]))
		data = bytearray(open(sys.argv[1], "rb").read())
		text = subprocess.run(["readelf", "-SW", sys.argv[1]], capture_output=True, text=True).stdout
		for name, offset, size in re.findall(
		        r"(\.debug_\w+|\.symtab|\.strtab) +\w+ +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)", text):
		    offset, size = int(offset, 16), int(size, 16)
		    for _ in range(max(1, size // 40)):
		        data[offset + random.randrange(size)] = random.randrange(256)
		open(sys.argv[2], "wb").write(data)
	END
	chmod +x harmful
	"$deja" record -o harmful.deja ./harmful >/dev/null 2>&1 || fail "recording a harmful program"
	for question in "profile --by line" "profile --by path" "edges --clang x" "count --callers main" \
			"stacks" "rep"; do
		timeout 60 "$deja" $question harmful.deja >out 2>err
		status=$?
		[ $status -le 2 ] || fail "deja $question, harmful debug information $seed: status $status"
		[ "$(wc -l <err)" -le 1 ] && [ "$(grep -vc '^deja: ' err)" = 0 ] ||
			fail "deja $question, harmful debug information $seed: $(cat err)"
	done
done
# debug information of a megabyte that takes for ever to read
${CC:-gcc} -O1 -o endless "$here/rep.c" "$here/hostile-dwarf.S" || exit 99
"$deja" record -o endless.deja ./endless >/dev/null || fail "recording a program with endless debug information"
export DEJA_SYMBOLS_SECONDS=0.3
for question in "profile --by line" "profile --by inlined" coverage; do
	refused 2 'the debug information of .*/endless takes too long to read$' $question endless.deja
done
refused 2 'the debug information of .*/endless takes too long to read$' backtrace endless.deja end
export DEJA_SYMBOLS_SECONDS=
# a section that claims to be huge when it is not compressed any more is not taken at its word
${CC:-gcc} -O1 -g -gz=zlib "$here/rep.c" -o bomb || exit 99
/usr/bin/python3 - bomb <<-'END' || fail "making a bomb"
	import re, struct, subprocess, sys
	data = bytearray(open(sys.argv[1], "rb").read())
	text = subprocess.run(["readelf", "-SW", sys.argv[1]], capture_output=True, text=True).stdout
	found = re.findall(r"\.debug_(?:info|str|line) +\w+ +[0-9a-f]+ ([0-9a-f]+) [0-9a-f]+ \d+ +\w*C", text)
	for offset in found:
	    struct.pack_into("<Q", data, int(offset, 16) + 8, 6 << 30) # Elf64_Chdr.ch_size
	open(sys.argv[1], "wb").write(data)
	sys.exit(not found)
END
"$deja" record -o bomb.deja ./bomb >/dev/null || fail "recording a bomb"
(sanitized || ulimit -v 9000000; "$deja" profile --json bomb.deja >out 2>err)
same "status of deja profile of a bomb" "$?" 0
[ ! -s err ] && grep -q '"?? (bomb)"' out || fail "deja profile of a bomb: $(cat err; grep bomb out)"
conclude
