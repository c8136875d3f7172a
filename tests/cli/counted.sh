#!/bin/bash
# Nothing that a program executes is missing from its recording: programs full of odd instructions,
# signals, threads and code that changes count their own lines (gcov), and deja must have seen each at
# least as often. A trace from which something is missing may verify as well as any. (All of them end by
# themselves: gcov counts a piece of code where it begins, and what is killed may be in the midst of it.)
#
# usage: tests/cli/counted.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
programs=$here/../programs
work_in counted
can_record

# counted NAME SOURCES [ARGUMENT...]
counted() {
	local name=$1 sources=$2
	shift 2
	rm -rf "$name" && mkdir "$name" && cd "$name" || exit 99
	gcc -O0 -g --coverage -fprofile-update=atomic -w -mno-red-zone -D_GNU_SOURCE -include "$here/counted.h" \
		$sources -o program -pthread -lm || exit 99
	timeout -s KILL 200 "$deja" record -o program.deja ./program "$@" >out 2>err </dev/null
	[ $? != 137 ] || fail "$name: it has not ended"
	"$deja" verify program.deja >verified 2>&1 || fail "$name: $(tail -1 verified)"
	"$deja" coverage --lcov lines program.deja >/dev/null 2>err || fail "$name: $(cat err)"
	objdump --dwarf=decodedline program >table || fail "$name: objdump"
	gcov --json-format ./*.gcda >/dev/null 2>err || fail "$name: $(cat err)"
	/usr/bin/python3 "$here/counted.py" lines table ./*.gcov.json.gz >compared 2>&1 || fail "$name $*: $(head -20 compared)"
	cd ..
}

for name in odd traps atomics makers jit signals behind litmus; do
	counted $name "$programs/$name.c"
done
counted apart "$here/apart.c" 20 alone
counted apart-threads "$here/apart.c" 20 threads
counted wx "$here/wx.c" patch 300
counted eintr "$here/eintr.c" 100
conclude
