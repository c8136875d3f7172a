#!/bin/bash
# What a program reads of mappings is what it would read without deja: line by line where programs lie at the same
# addresses, however it opens the list.
#
# usage: tests/cli/lists.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in lists
${CC:-gcc} -O1 -pthread "$here/lists.c" -o lists || exit 99
${CC:-gcc} -O1 -pthread -static "$here/lists.c" -o lists-static || exit 99
can_record
if ! setarch -R true 2>err; then
	echo "skipped: a program cannot be told where to lie here: $(cat err)"
	exit 77
fi

# numbers of processes and devices' inodes are what they are
for way in paths reading children few; do
	for program in lists lists-static; do
		setarch -R ./$program $way >native 2>&1
		timeout --foreground -s KILL 60 "$deja" record -o t.deja ./$program $way >out 2>err ||
			fail "recording $program $way: $? $(head -c 200 err)"
		cmp -s native out || fail "$program $way reads something else: $(diff native out | head -n 8)"
		[ "$(grep -c "$program" native)" -ge 5 ] || fail "$program $way reads nothing of itself natively"
		"$deja" verify t.deja >/dev/null 2>err || fail "verifying $program $way: $(head -c 200 err)"
	done
done

# With threads places depend on when they end; nothing of deja's is there all the same.
timeout --foreground -s KILL 60 "$deja" record -o t.deja ./lists threads >out 2>err || fail "recording threads: $? $(head -c 200 err)"
! grep deja out | grep -v "$work" || fail "with threads deja is in the list"
[ "$(grep -c stack out)" = 4 ] || fail "with threads it is not read four times: $(grep -c stack out)"
[ "$(setarch -R ./lists threads | awk '{ print $2, $6 }' | sort | uniq -c)" = "$(awk '{ print $2, $6 }' out | sort | uniq -c)" ] ||
	fail "with threads other mappings: $(diff <(setarch -R ./lists threads) out | head -n 8)"
"$deja" verify t.deja >/dev/null 2>err || fail "verifying threads: $(head -c 200 err)"
conclude
