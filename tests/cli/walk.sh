#!/bin/bash
# Random positions of five programs recorded on the spot: every step undone comes back to the
# same state, and a position is the same whichever side one comes from (tests/cli/replay-walk.c).
# Ground that was covered in generated code is what the emulator makes of it, checkpoint by
# checkpoint, for these and some more (tests/cli/replay-ground.c).
# Runs in the build directory.
#
# usage: tests/cli/walk.sh [POSITIONS [SEED]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
positions=${1:-200} seed=${2:-1}
walk=$build/tests/cli/replay-walk ground=$build/tests/cli/replay-ground
needs "$walk" "$ground"
work_in walk
can_record

# walk NAME PROGRAM ARG...: what the program's exit status is does not matter
walk() {
	local trace=$work/$1.deja
	shift
	"$deja" record -o "$trace" -- "$@" >/dev/null
	[ -s "$trace" ] || { fail "recording $*"; return; }
	"$walk" "$trace" "$positions" "$seed" ||
		fail "tests/cli/replay-walk TRACE $positions $seed, of: $*"
	covered "$trace" 100000
}

# covered TRACE SPACING [HOW]: what generated code has found is what the emulator finds. An exit
# status of 77 says that this host has no generated code.
covered() {
	"$ground" "$@" || [ $? = 77 ] || fail "tests/cli/replay-ground $*"
}

# cover SPACING PROGRAM ARG...: the same of a program that is recorded for that; its output is cover.out.
cover() {
	local spacing=$1
	shift
	"$deja" record -o cover.deja -- "$@" >cover.out
	covered cover.deja "$spacing"
}

# Memory that nobody knows yet.
${CC:-gcc} -O1 -w "$here/walk.c" -o reader || exit 99
walk reader ./reader
# Threads that share memory; a look at it replays them all.
${CC:-gcc} -O1 -w -pthread "$here/../gdb/threads.c" -o threads || exit 99
${CC:-gcc} -O1 -w -pthread "$here/disputed.c" -o disputed || exit 99
positions=$((positions / 5)) walk threads ./threads
# Threads that begin when much has been mapped: what that comes to they have from one another.
${CC:-gcc} -O1 -w -mcx16 -pthread "$here"/../programs/threads/*.c -o each || exit 99
positions=$((positions / 5)) walk maps ./each maps
covered maps.deja 20000 stops
# What string instructions copy and fill at once.
${CC:-gcc} -O1 -w "$here/copies.c" -o copies || exit 99
cover 20000 ./copies
# Two mappings in one place of the shadow, now and then in use.
${CC:-gcc} -O1 -w "$here/one-place.c" -o one-place || exit 99
for how in 0 1 2; do
	cover 20000 ./one-place $how
done
# Three of them, accessed, mapped and moved in all ways at random.
${CC:-gcc} -O2 -w "$here/overlap.c" -o overlap || exit 99
for ((i = seed; i < seed + 3 + positions / 200; i++)); do
	cover 7000 ./overlap $i 1000
done
walk overlap ./overlap "$seed" 300
# The same, only at the start: a process lands all the same.
${CC:-gcc} -O1 -w "$here/early.c" -o early || exit 99
"$deja" record -o early.deja -- ./early >/dev/null
"$walk" early.deja 80 1 >early.out || fail "tests/cli/replay-walk early.deja 80 1"
cat early.out
[ "$(grep -c ' no ground .* 0 failed$' early.out)" = 2 ] || fail "a process could not land the thread"
# Threads that disagree about what is in memory; and whoever asks is interrupted meanwhile.
walk disputed ./disputed >disputed.out
cat disputed.out
grep -q ' [1-9][0-9]* interruptions' disputed.out || fail "nobody was interrupted who looked at memory"
# Regular expressions and floating point; child processes, signals and pipes.
walk awk awk 'BEGIN { for (i = 0; i < 2000; i++) { s = sprintf("%d %.3f", i, i / 7)
	gsub(/[37]/, "xy", s); t[i % 97] = t[i % 97] substr(s, 1, 2); n += length(s) * sqrt(i) }
	print n, t[5] }'
# shellcheck disable=SC2016
walk sh bash -c 'trap "n=\$((n + 1))" USR1
	for i in 1 2 3 4 5 6; do kill -USR1 $$; x=$(echo $i | sort); done; echo $n $x; ls -l / | wc -l'
# What ten thousand positions are: more programs, threads and processes among them.
if [ "$positions" -ge 1000 ]; then
	walk perl perl -e 'for $i (1 .. 60000) { $h{$i % 100} .= $i; $n += sqrt($i) } print "$n\n"'
	walk gzip sh -c 'gzip -1 </usr/bin/bash | gzip -d | wc -c'
	walk sort sh -c 'ls -lR /usr/lib | head -20000 | sort -k5n | md5sum'
	walk sed sed -n 's/[aeiou]\{2\}/<&>/gp' /etc/services
	walk find find /usr/share -name '*a*b*'
fi
# Single steps tell which code ran; and a page that is left out shows.
covered reader.deja 50000 steps
"$ground" reader.deja 10000 skew >skew.out
case $? in
0) fail "a page that was left out did not show" ;;
1 | 77) ;;
*) fail "a page was left out: $(cat skew.out)" ;;
esac
# What was found out is kept beside a trace, with as many permissions, and serves the next replay.
cp reader.deja kept.deja
chmod 640 kept.deja
covered kept.deja 50000 kept
covered awk.deja 50000 kept
covered awk.deja 100000 filled
# Of a half of it, with little memory: the rest is covered from there on.
"$deja" record --digest-interval 20000 -o half.deja -- ./reader >/dev/null
covered half.deja 1000 partial
covered kept.deja 50000 spoilt
covered kept.deja 50000 wrong
"$deja" index kept.deja || fail "deja index"
[ "$(stat -c %a kept.deja.index)" = 640 ] || fail "the index has other permissions than the trace"
# It serves no other trace, and neither when it is cut or damaged.
cp kept.deja.index awk.deja.index
covered awk.deja 50000 foreign
head -c 3000 kept.deja.index >cut && cp cut kept.deja.index
covered kept.deja 50000 foreign
"$deja" index kept.deja || fail "deja index, of a trace that has a bad one"
cp kept.deja.index whole
another kept.deja.index 300
covered kept.deja 50000 foreign
# Where it says what is where: it may be of use all the same, and does no harm.
for at in {0..79}; do
	cp whole kept.deja.index
	another kept.deja.index "$at"
	"$ground" kept.deja 50000 foreign
	[ $? -le 1 ] || fail "tests/cli/replay-ground kept.deja 50000 foreign, with byte $at changed"
done
# Where it has no room for what happened, that is said, and there is none.
cat >noise.c <<'END'
static volatile char memory[16 << 20];
int main(void)
{
	unsigned long x = 88172645463325252, sum = 0;
	for (unsigned i = 0; i < 1500000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		sum += memory[x % sizeof(memory)];
	}
	return sum != 0;
}
END
${CC:-gcc} -O1 -w noise.c -o noise || exit 99
"$deja" record -o noise.deja -- ./noise || fail "recording noise"
"$deja" index noise.deja >index.out 2>index.err
[ $? = 1 ] && grep -q '^deja: .* takes more than the [0-9]* KB that the index .* may have' index.err ||
	fail "deja index, where there is no room: $(cat index.err)"
[ ! -e noise.deja.index ] || fail "there is an index that has nothing"

# --checkpoints: of a program that changes all of 8 MB all the time, the server's memory at the end of history.
${CC:-gcc} -O0 -no-pie -w "$here/../../bench/src/long.c" -o long || exit 99
"$deja" record -o long.deja -- ./long 5 >/dev/null || fail "recording long"
cat >memory.py <<'END'
import subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def ask(packet):
    p.stdin.write(b"$%s#%02x" % (packet, sum(packet) & 255))
    p.stdin.flush()
    answer = b""
    while b"$" not in answer or answer[-3:-2] != b"#":
        answer += p.stdout.read(1)
    p.stdin.write(b"+")
    p.stdin.flush()
for packet in b"?", b"c":
    ask(packet)
print(*[line.split()[1] for line in open("/proc/%d/status" % p.pid) if line.startswith("RssAnon")])
p.stdin.close()
p.wait()
END
much=$(/usr/bin/python3 memory.py "$deja" serve --stdio --no-index long.deja)
little=$(/usr/bin/python3 memory.py "$deja" serve --stdio --no-index --checkpoints 64M long.deja)
[ "${little:-0}" -gt 0 ] && [ "${much:-0}" -gt $((2 * little)) ] ||
	fail "the server takes $much KB, and with --checkpoints 64M $little KB"
"$deja" replay --checkpoints 64M long.deja -- -nx -batch -ex \
	'shell for p in $(cat /proc/$PPID/task/*/children); do tr "\0" " " </proc/$p/cmdline; done' >gdb.out 2>&1
grep -q -e ' serve .*--checkpoints 67108864 ' gdb.out || fail "deja replay --checkpoints: $(tail -3 gdb.out)"
for size in 0 x 12Q; do
	"$deja" serve --checkpoints $size long.deja >out 2>err
	[ $? = 1 ] && grep -q '^deja: .*--checkpoints takes a number of bytes' err ||
		fail "deja serve --checkpoints $size: $(cat err)"
done

# Memory that comes and goes, moves, and lies where other memory lies modulo 4 GiB.
${CC:-gcc} -O1 -w "$here/ground.c" -o ground || exit 99
cover 20000 ./ground
# Where two that are in use take it from each other at each access the emulator does it, and it is not asked
# about the same ground again and again: that takes at most ten times the processor time of two that do not.
cat >same.c <<'END'
#include <sys/mman.h>
static volatile unsigned *map(unsigned long at)
{
	return mmap((void *)at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
int main(void)
{
	volatile unsigned *a = map(0x100020000000), *b = map(0x100120000000 + APART);
	for (unsigned i = 0; i < 3000000; i++) {
		a[i % 64]++;
		b[64 + i % 64]++;
	}
	return a[3] != b[67];
}
END
TIMEFORMAT='%U %S'
for apart in 0 65536; do
	${CC:-gcc} -O1 -w -DAPART=$apart same.c -o same || exit 99
	"$deja" record -o same.deja -- ./same
	time covered same.deja 20000 2>>same.err
done 2>same.times
cat same.err
awk '{ t[NR] = $1 + $2 } END { exit NR != 2 || t[1] > 10 * t[2] + 1 }' same.times ||
	fail "ground of two mappings in one place, and of two in two, took (s) $(paste -sd/ same.times)"
# What digests found right before the emulator takes over says nothing of what comes then.
"$deja" record --digest-interval 5000 -o often.deja -- ./ground >/dev/null
covered often.deja 20000
covered reader.deja 50000 damage
covered reader.deja 50000 stops
# Words that threads store to in turn: whatever ground was covered, a search back stops where it should.
cover 3000 ./disputed
covered cover.deja 3000 stops
at=$(sed -n 's/^words at \(0x[0-9a-f]*\):.*/\1/p' cover.out)
[ -n "$at" ] || fail "disputed does not say where its words are"
for word in 0 1 2; do
	covered cover.deja 3000 stops 0 $((at + 8 * word))
done
covered threads.deja 20000 stops
# Signals, and processes one beside the other.
covered sh.deja 20000 stops
# The same of a page that they map anew, and that system calls write to: three threads, and nine.
# What nine are told of each other's mappings, and where, is another matter each time.
for others in 2 8; do
	${CC:-gcc} -O1 -w -pthread -DOTHERS=$others "$here/remapped.c" -o remapped$others || exit 99
done
# words OTHERS N: `cover.deja` is of so many more threads, and `at` where the words are
words() {
	cover 3000 "./remapped$1" "$2"
	at=$(sed -n 's/^words at \(0x[0-9a-f]*\):.*/\1/p' cover.out)
	[ -n "$at" ] || fail "remapped does not say where its words are"
}
for n in 16 27; do
	words 2 "$n"
	covered cover.deja 3000 stops "$n" $((at + 8))
	covered cover.deja 3000 stops 0 $((at + 12))
done
for n in {1..12}; do
	words 8 "$n"
	covered cover.deja 3000 back "$n" "$at"
done
cover 300000 perl -e 'for $i (1 .. 20000) { $h{$i % 100} .= $i; } print length($h{5})'
cover 300000 sh -c 'gzip -1 </usr/bin/bash | wc -c'
conclude
