#!/bin/bash
# What deja verify compares, and that it is found when it is wrong: registers, flags, and bytes of
# memory that never come to a register.
#
# usage: tests/cli/verify.sh     (DEJA names the program under test; in the build directory)
. "$(dirname "$0")/../lib/shell.sh"
edit=$build/tests/cli/edit-trace
needs "$edit"
work_in verify

# Reads 64 bytes, looks at the first, computes a little, and ends with them on its stack.
cat >victim.c <<'EOF'
static long call(long n, long a, long b, long c)
{
	__asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return n;
}
void _start(void)
{
	_Alignas(64) volatile char line[64];
	volatile long sum = 0;
	call(0, 0, (long)line, 64);
	for (int i = 0; i < 20000; i++)
		sum += line[0];
	call(60, sum == 20000 * 'x' ? 7 : 1, 0, 0);
	__builtin_unreachable();
}
EOF
${CC:-gcc} -O1 -nostdlib -static -fno-stack-protector victim.c -o victim || exit 99
printf 'x%63s' y | "$deja" record -o plain.deja ./victim
[ $? = 7 ] || { echo "FAIL: recording"; exit 1; }
"$deja" verify plain.deja >out 2>err || fail "as recorded: $(cat err)"
grep -Eq '^compared +registers [1-9][0-9]* times, arithmetic flags [1-9][0-9]* times, [0-9]{4,} bytes of memory$' out ||
	fail "it does not say what it compared: $(cat out)"

# wrong WHAT SAYS EDIT...: the trace so edited does not verify, and that is said
wrong() {
	local what=$1 says=$2
	shift 2
	"$edit" plain.deja wrong.deja "$@" || fail "$what: edit-trace"
	"$deja" verify wrong.deja >out 2>err
	local status=$?
	[ $status = 1 ] || fail "$what: exit status $status: $(cat err)"
	[ "$(wc -l <err)" = 1 ] && grep -Eq "^deja: $says" err || fail "$what: $(cat err)"
}
position='the replay diverges: thread [0-9]+ at [0-9]+:[0-9]+ .*'
wrong "a digest" "$position" spoil digest 1
wrong "a flag" "${position}rflags is [0-9a-f]+, expected [0-9a-f]+ " spoil flags 1
wrong "a checksum" "${position}bytes of memory at 0x[0-9a-f]+ have the checksum" spoil memory 1
wrong "a byte of memory" "${position}bytes of memory at 0x[0-9a-f]+ have the checksum" spoil import 1
wrong "nothing to compare" "nothing was compared" drop digest all drop check all

# Digests stand before exec, signals and the end.
"$deja" record -o events.deja -- /bin/bash -c 'trap : USR1; kill -USR1 $$; exec "$@"' - /bin/sh -c 'kill -TERM $$' >out 2>&1
[ $? = 143 ] || fail "recording events: $(cat out)"
"$deja" verify events.deja >out 2>err || fail "events: $(cat err)"
"$deja" dump events.deja | awk '
	{ steps = $2; sub(/[r+].*/, "", steps) }
	$3 == "digest" { digest = steps }
	$3 == "signal" { signals++; if (digest != steps) print "no digest before the signal at", steps }
	$3 == "exec" { execs++; if (digest != steps) print "no digest before the exec at", steps }
	$3 == "exit" && digest != steps { print "no digest before the end at", steps }
	END { if (signals < 2 || !execs) print signals + 0, "signals", execs + 0, "execs" }' >out
[ -s out ] && fail "$(cat out)"
[ "$failures" = 0 ] && echo "PASS: verify"
conclude
