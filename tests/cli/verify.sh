#!/bin/bash
# What deja verify compares, and that it is found when it is wrong: registers, flags, and bytes of
# memory that never come to a register.
#
# usage: tests/cli/verify.sh     (DEJA names the program under test; in the build directory)
. "$(dirname "$0")/../lib/shell.sh"
edit=$build/tests/cli/edit-trace
both=$build/tests/cli/both-ways
hostile=$build/tests/cli/make-hostile
needs "$edit" "$both" "$hostile"
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

# Behind 2^32 instructions: whatever writes down a position there, and again where all of them have done so before, so
# that no half of a number can be one that was left from another. (The emulator would take ten seconds for it: not
# where it must.)
cat >late.c <<'EOF'
#include <cpuid.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <x86intrin.h>

static _Alignas(64) unsigned char registers[1024];
static volatile sig_atomic_t signals;
static volatile double shared;

static void on_signal(int sig)
{
	signals += sig == SIGUSR1;
}

/* What it writes is new to the thread that waits for it. */
static void *writes(void *bytes)
{
	memset(bytes, 'n', 4096);
	shared = 1.5;
	return NULL;
}

static void everything(void)
{
	static _Alignas(64) char bytes[4096], copy[4096];
	static volatile unsigned counter;
	struct iovec parts[2] = { { bytes, 100 }, { copy, 100 } };
	pthread_t thread;
	unsigned a, b, c, d;
	int zero = open("/dev/zero", O_RDONLY);

	if (read(zero, bytes, sizeof(bytes)) < 0 || readv(zero, parts, 2) < 0)
		puts("no zeros");
	close(zero);
	__asm__ volatile("fxsave64 (%0)" ::"r"(registers) : "memory");
	__asm__ volatile("xsave64 (%0)" ::"r"(registers), "a"(7), "d"(0) : "memory");
	__asm__ volatile("fnsave %0; frstor %0" : "+m"(registers)::"memory");
	raise(SIGUSR1);
	__cpuid(0, a, b, c, d);
	counter += (a > 0) + (__rdtsc() > 0);
	pthread_create(&thread, NULL, writes, bytes);
	pthread_join(thread, NULL);
	void *from = bytes, *to = copy;
	size_t n = sizeof(bytes);
	__asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(n)::"memory");
	__atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
	munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
	printf("%c %g %u\n", copy[4095], shared, counter);
}

int main(void)
{
	signal(SIGUSR1, on_signal);
	everything();
	for (unsigned i = 0; i < 4300000; i++)
		__asm__ volatile(".rept 1000; nop; .endr");
	everything();
	everything();
	printf("%d signals\n", (int)signals);
	return 0;
}
EOF
${CC:-gcc} -O1 -w -pthread late.c -o late || exit 99
./late >native
"$deja" record -o late.deja ./late >now 2>err && cmp -s native now || fail "behind 2^32 instructions: $(cat err)"

# Nearly all of a computation is executed in translated code, where the processor has what that takes, and nothing if
# it is not wanted. What translated code finds wrong the emulator confirms.
if [ "$(grep -m1 '^flags' /proc/cpuinfo | grep -Eow 'avx2|bmi2|fma|f16c|movbe|aes|pclmulqdq' | wc -l)" = 7 ]; then
	grep -Eq '^translated +(9[0-9]|100)\.' out || fail "translated code does not do the most of it: $(cat out)"
	grep -q '^emulated' out && fail "translated code went astray: $(cat out)"
	"$deja" verify late.deja >now 2>err || fail "behind 2^32 instructions: $(cat err)"
	grep -Eq '^instructions +4[0-9]{9}$' now || fail "there were not that many: $(cat now)"
	"$edit" plain.deja wrong.deja spoil digest 1 && ! "$deja" verify wrong.deja >out 2>err &&
		grep -q '^emulated  *1 thread' out || fail "what is wrong is not confirmed: $(cat out)"
fi
"$deja" verify --emulate plain.deja >out 2>err || fail "emulated: $(cat err)"
grep -q '^translated *0.0' out || fail "--emulate executes translated code: $(cat out)"

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
"$deja" backtrace plain.deja 2>&1 | grep -q 'has no libunwind' ||
	{ grep -q '^stack at  *[0-9]*:[0-9]' out && grep -q '^  #0 .* in _start' out; } ||
	fail "no stack where it diverges: $(cat out)"
wrong "a flag" "${position}rflags is [0-9a-f]+, expected [0-9a-f]+ " spoil flags 1
wrong "a checksum" "${position}bytes of memory at 0x[0-9a-f]+ have the checksum" spoil memory 1
wrong "a byte of memory" "${position}bytes of memory at 0x[0-9a-f]+ have the checksum" spoil import 1
wrong "nothing to compare" "nothing was compared" drop digest all drop check all

# Digests stand before exec, signals and the end.
"$deja" record -o events.deja -- /bin/bash -c 'trap : USR1; kill -USR1 $$; exec "$@"' - /bin/sh -c 'kill -TERM $$' >out 2>&1
[ $? = 143 ] || fail "recording events: $(cat out)"
"$deja" verify events.deja >out 2>err || fail "events: $(cat err)"
# a short run has few digests where all flags are known; those are compared at its system calls
grep -Eq '^compared.* arithmetic flags [1-9][0-9]+ times' out || fail "few flags in a short run: $(cat out)"
"$deja" dump events.deja | awk '
	{ steps = $2; sub(/[r+].*/, "", steps) }
	$3 == "digest" { digest = steps }
	$3 == "signal" { signals++; if (digest != steps) print "no digest before the signal at", steps }
	$3 == "exec" { execs++; if (digest != steps) print "no digest before the exec at", steps }
	$3 == "exit" && digest != steps { print "no digest before the end at", steps }
	END { if (signals < 2 || !execs) print signals + 0, "signals", execs + 0, "execs" }' >out
[ -s out ] && fail "$(cat out)"

# At random positions translated code and the emulator have the same registers, flags and memory.
"$deja" record -o python.deja -- /usr/bin/env python3 -c 'import re, math, threading
t = threading.Thread(target=lambda: print(sum(math.sqrt(i) for i in range(2000))))
t.start(); print(re.findall("a+b", "aab" * 200)[:3], "%.20f" % math.pi); t.join()' >out 2>err || fail "recording python: $(cat err)"
for trace in plain events python; do
	timeout 60 "$both" $trace.deja 300 >out 2>&1
	case $? in 0 | 77) ;; *) fail "both ways: $(cat out)" ;; esac
done

# Generated code runs in a process that is confined, and that does not outlive the one that was asked. (A
# program that loops has nothing else to be seen at.)
"$hostile" loop_for_ever loop.deja || exit 99
"$deja" verify loop.deja >out 2>err &
asked=$!
for _ in $(seq 100); do
	read -r child _ <"/proc/$asked/task/$asked/children"
	[ -n "$child" ] && grep -q '^Seccomp:.*2' "/proc/$child/status" && break
	sleep 0.1
done
grep -q '^Seccomp:.*2' "/proc/${child:-none}/status" || fail "what executes generated code is not confined"
kill -TERM $asked
wait $asked 2>/dev/null
for _ in $(seq 50); do
	[ -e "/proc/${child:-none}" ] || break
	sleep 0.1
done
[ -e "/proc/${child:-none}" ] && fail "the replay goes on when nobody waits for it"

# Should code of a trace have taken that process over, its answer is texts of some length and for no terminal. (The
# library has it answer so: struct answer is cli/cmd-verify.c's.)
cat >answers.c <<'EOF'
#include "replayer/replay.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct answer {
	int ret;
	struct replay_verify_result res;
	struct dj_error err;
	bool damaged;
	char missing[sizeof(((struct dj_error *)0)->text)];
};

ssize_t write(int fd, const void *buf, size_t size)
{
	ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	const char *what = getenv("ANSWER");
	struct answer *a = (void *)buf;

	if (size == sizeof(*a) && what) {
		a->ret = *what == 'e' ? -1 : 0;
		a->res.digests = 1;
		a->res.div.found = *what == 'd';
		memset(a->res.div.text, *what == 'd' ? '\033' : 0, sizeof(a->res.div.text));
		memset(a->err.text, *what == 'e' ? '\033' : 0, sizeof(a->err.text));
		a->err.exit_status = 1;
		a->damaged = *what == 'e'; /* what is behind a text is no end of it */
		memset(a->missing, *what == 'm' ? '\033' : 0, sizeof(a->missing));
		for (char *behind = a->missing + sizeof(a->missing); behind < (char *)(a + 1); behind++)
			*behind = '\033';
	}
	return real(fd, buf, size);
}
EOF
${CC:-gcc} -D_GNU_SOURCE -I"$here/../.." -shared -fPIC answers.c -o answers.so -ldl || exit 99
# answers WHAT LENGTH OUTPUT: that text has so many letters, none of which is for a terminal
answers() {
	env "ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" ANSWER="$1" \
		LD_PRELOAD="$PWD/answers.so${LD_PRELOAD:+:$LD_PRELOAD}" "$deja" verify plain.deja >out 2>err
	grep -q "$(printf '\033')" out err && fail "what replays gives a terminal orders: $1"
	[ "$(tr -dc '?' <"$3" | wc -c)" = "$2" ] || fail "$1 of what replays is not $2 letters: $(cat "$3")"
}
answers divergence 399 out
answers divergence 399 err
answers error 479 err
answers missing 479 err
[ "$failures" = 0 ] && echo "PASS: verify"
conclude
