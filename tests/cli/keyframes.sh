#!/bin/bash
# Keyframes: a recording that has them is verified in parts, with the same result; from any of them a
# replay comes to the same as from the beginning; one that lies is found; what has lost its beginning
# goes on from the next, and if that is a full one a debugger finds there what it needs. All threads make
# full ones; and how far they are apart can be said in several ways.
#
# usage: tests/cli/keyframes.sh     (DEJA names the program under test; in the build directory)
. "$(dirname "$0")/../lib/shell.sh"
edit=$build/tests/cli/edit-trace parts=$build/tests/cli/replay-parts walk=$build/tests/cli/replay-walk
needs "$edit" "$parts" "$walk"
work_in keyframes
can_record
export DEJA_CLOCK=1000 # many stops, at any place

# kinds TRACE KIND: how many keyframes are of that kind
kinds() {
	"$deja" dump "$1" | grep -c " keyframe what=$2 "
}

# recorded NAME POSITIONS PROGRAM ARG...: has keyframes, and says the same however it is divided
recorded() {
	local name=$1 positions=$2 found
	shift 2
	"$deja" record --keyframes 20K --full-keyframes 500K -o "$name.deja" -- "$@" >out 2>err || fail "recording $name: $(cat err)"
	found=$(kinds "$name.deja" light)
	[ "$found" -ge 10 ] || fail "$name has $found keyframes"
	"$deja" verify "$name.deja" >all 2>err || fail "verify $name: $(cat err)"
	taskset -c 0 "$deja" verify "$name.deja" >one 2>err || fail "verify $name on one processor: $(cat err)"
	cmp <(grep -Ev '^(seconds|speed|translated)' all) <(grep -Ev '^(seconds|speed|translated)' one) ||
		fail "$name, divided: $(cat all one)"
	"$parts" "$name.deja" "$positions" 1 >out || fail "$name from its keyframes: $(head -3 out)"
	grep -Eq '^[1-9][0-9]+ positions compared' out || fail "$name from its keyframes: $(cat out)"
}
# Regular expressions, floating point, string instructions; signals, children and exec; threads.
recorded awk 30 awk 'BEGIN { for (i = 0; i < 6000; i++) { s = sprintf("%d %.3f", i, i / 7)
	gsub(/[37]/, "xy", s); t[i % 97] = t[i % 97] substr(s, 1, 2); n += length(s) * sqrt(i) } print n, t[5] }'
# shellcheck disable=SC2016
recorded sh 10 bash -c 'trap "n=\$((n + 1))" USR1
	for i in 1 2 3; do kill -USR1 $$; x=$(echo $i | sort); done; echo $n $x; ls -l / | wc -l; exec true'
seq 20000 | sort -R >numbers
recorded sort 30 sort --parallel=2 -n -S 100K numbers
found="$(kinds sort.deja light) $(kinds sort.deja full)"
case $found in *' 0') fail "sort has no full keyframe" ;; esac
"$deja" info sort.deja | awk '/ keyframes$/ { all = $1 } / of these full$/ { print all - $1, $1 }' >out
[ "$(cat out)" = "$found" ] || fail "deja info has $(cat out) light and full keyframes, not $found"
# both ways, for a debugger
"$walk" awk.deja 60 1 >out || fail "walking over keyframes: $(head -3 out)"

# one that lies is found, wherever the history is divided
"$edit" awk.deja lie.deja spoil keyframe 5 || fail "edit-trace"
for processor in all one; do
	if [ $processor = all ]; then only=; else only='taskset -c 0'; fi
	$only "$deja" verify lie.deja >"lie.$processor" 2>err
	[ $? = 1 ] || fail "a keyframe that lies: $(cat err)"
	grep -Eq '^deja: the replay diverges: thread [0-9]+ at [0-9]+:[0-9]+ .*: rbx is [0-9a-f]+, expected [0-9a-f]+$' err ||
		fail "a keyframe that lies: $(cat err)"
done
cmp <(grep -Ev '^(seconds|speed|translated)' lie.all) <(grep -Ev '^(seconds|speed|translated)' lie.one) ||
	fail "a keyframe that lies, divided: $(cat lie.all lie.one)"

# damage FILE NUMBER: to the chunk of that number of the first thread's stream
damage() {
	/usr/bin/python3 - "$1" "$2" <<'EOF'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
at = 32
while data[at:at + 4] == b"DJCK":
    stream, number = struct.unpack_from("<II", data, at + 8)
    length, = struct.unpack_from("<I", data, at + 68)
    if data[at + 4] == 6 and stream == 1 and number == int(sys.argv[2]):
        data[at + 88] ^= 1
    at += 88 + length
open(sys.argv[1], "wb").write(data)
EOF
}
total=$(sed -n 's/^instructions *//p' one)
for chunk in 1 4; do
	cp sort.deja cut.deja
	damage cut.deja $chunk
	"$deja" verify cut.deja >out 2>err
	grep -Eq '^deja: .*damaged or incomplete at byte .* that of thread [0-9]+ begins after [1-9]' err ||
		fail "chunk $chunk is damaged: $(cat err)"
	grep -q 'all match' out || fail "chunk $chunk is damaged: $(cat out err)"
	left=$(sed -n 's/^instructions *//p' out)
	[ "$left" -lt "$total" ] && [ "$left" -gt $((total / 2)) ] || fail "chunk $chunk is damaged: $left of $total"
done
# What was written before that is not known, and is not made up; what nobody could write is, and so is
# what is read later. Keyframes are where the program stops by itself: how often the clock stops it, and
# so where there are keyframes, and whether there are any, is a matter of time.
cat >data.c <<'EOF'
#include <sys/prctl.h>
volatile unsigned long changed = 1, early[512] = { 5 };
volatile unsigned long later = 78;
const unsigned long fixed = 77;
int main(void)
{
	changed = 2;
	for (unsigned i = 0; i < 400000; i++) {
		if (i % 40000 == 0)
			prctl(PR_GET_DUMPABLE);
		early[64] += later;
	}
	return 0;
}
EOF
${CC:-gcc} -O1 -static -no-pie data.c -o data || exit 99
"$deja" record --keyframes 100000 -o data.deja ./data || fail "recording data"
# at TRACE: what the variables are where history begins
at() {
	for name in changed later fixed; do
		"$parts" "$1" at "$(nm data | sed -n "s/ [a-zA-Z] $name$//p")"
	done | paste -s -d ' '
}
[ "$(at data.deja)" = '1 78 77' ] || fail "from the beginning: $(at data.deja)"
damage data.deja 1
[ "$(at data.deja)" = 'unknown 78 77' ] ||
	fail "without the beginning: $(at data.deja) ($("$deja" info data.deja 2>&1 | grep ^damage))"

# cut_half IN OUT: of each thread's history the first half of the parts between keyframes is left out
cut_half() {
	/usr/bin/python3 - "$1" "$2" <<'EOF'
import struct, sys
data = open(sys.argv[1], "rb").read()
chunks, at = [], 32
while data[at:at + 4] == b"DJCK":
    end = at + 88 + struct.unpack_from("<I", data, at + 68)[0]
    chunks.append((data[at + 4], *struct.unpack_from("<HI", data, at + 6), data[at:end]))
    at = end
keyframes = {}
for i, (kind, flags, stream, _) in enumerate(chunks):
    if kind == 6 and flags & 1:
        keyframes.setdefault(stream, []).append(i)
begins = {stream: at[len(at) // 2] for stream, at in keyframes.items()}
with open(sys.argv[2], "wb") as out:
    out.write(data[:32] + b"".join(chunk for i, (kind, _, stream, chunk) in enumerate(chunks)
                                   if kind != 6 or i >= begins.get(stream, 0)))
EOF
}
# What was written before that, and is not looked at again: a variable, one of the thread's own, one on
# the heap, those of functions that have yet to return. The thread is in the handler of a signal, whose
# stack lies on the heap as well. A second thread, which executes little, makes
# such keyframes because the first does.
cat >memory.c <<'EOF'
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
static struct place { unsigned number; struct place *next; } *list;
static volatile unsigned long changed = 1;
static __thread volatile int own = 3;
static pthread_barrier_t barrier;
static void compute(void)
{
	volatile unsigned long sum = 0;
	for (unsigned i = 0; i < 40; i++) {
		for (unsigned k = 0; k < 20000; k++)
			sum += k;
		pthread_barrier_wait(&barrier);
		prctl(PR_GET_DUMPABLE);
		pthread_barrier_wait(&barrier);
	}
}
static void handler(int number)
{
	if (number == SIGUSR1)
		compute();
}
static unsigned deep(unsigned n)
{
	volatile unsigned local = n * 11;
	if (n)
		deep(n - 1);
	else
		raise(SIGUSR1);
	return local;
}
static void *other(void *unused)
{
	volatile int mine = own = 5;
	for (unsigned i = 0; i < 80; i++)
		pthread_barrier_wait(&barrier);
	return unused ? (void *)&own : (void *)(long)mine;
}
int main(void)
{
	struct place here = { 12, NULL };
	pthread_t thread;
	list = malloc(sizeof(*list));
	*list = (struct place){ 13, &here };
	changed = 2;
	own = 4;
	stack_t stack = { .ss_sp = malloc(100000), .ss_size = 100000 };
	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = handler, .sa_flags = SA_ONSTACK }, NULL);
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, other, NULL);
	deep(3);
	return pthread_join(thread, NULL);
}
EOF
${CC:-gcc} -g -O0 -pthread memory.c -o memory || exit 99
unset DEJA_CLOCK
# half KIND OPTIONS: record it, with keyframes of that kind, and cut half away; where each thread begins
# then, as its number and a position, in first.KIND
half() {
	local kind=$1
	shift
	"$deja" record "$@" -o memory.deja ./memory || fail "recording memory, $kind keyframes"
	cut_half memory.deja "$kind.deja"
	"$deja" verify "$kind.deja" >out 2>err || fail "half of it, from $kind keyframes: $(cat out err)"
	"$deja" dump "$kind.deja" 2>err | grep " keyframe what=$kind " | awk '!seen[$1]++' |
		sed 's/^\([0-9]*\) .* seq=\([0-9]*\) since=\([0-9]*\) .*/\1 \2:\3/' >"first.$kind"
}
half light --keyframes 100K --full-keyframes 0
[ "$(wc -l <first.light)" = 1 ] && [ "$(kinds memory.deja full)" = 0 ] ||
	fail "light keyframes of two threads, one of which executes little: $(cat first.light)"
half full --keyframes 0 --full-keyframes 100K
# 40 of the one, and the other takes part in them
[ "$(wc -l <first.full)" = 2 ] && [ "$(kinds memory.deja full)" -ge 60 ] && [ "$(kinds memory.deja light)" = 0 ] ||
	fail "$(kinds memory.deja full) full keyframes of two threads: $(cat first.full)"
# frames KIND: who called, where the first thread begins
frames() {
	read -r tid position <"first.$1"
	"$deja" backtrace -t "$tid" "$1.deja" "$position" 2>err | awk '{ print $4 }' | sed 's/+.*//' |
		grep -E '^(deep|main)$' | paste -s -d ' '
}
if ! "$deja" backtrace full.deja begin 2>&1 | grep -q 'has no libunwind'; then
	[ "$(frames full)" = 'deep deep deep deep main' ] || fail "the stack at a full keyframe: $(frames full)"
	case $(frames light) in *main*) fail "the stack at a light keyframe: $(frames light)" ;; esac
fi
"$walk" full.deja 5 1 >out || fail "walking over a half: $(head -3 out)"
# shown KIND: what gdb shows where the first thread begins, and where both have begun
shown() {
	timeout 100 "$deja" replay --goto "$(sed -n '1s/.* //p' "first.$1")" "$1.deja" -- -nx -q -batch \
		-ex 'printf "changed %d\n", changed' \
		-ex 'printf "list %d %d\n", list->number, list->next->number' \
		-ex "monitor goto $(sed 's/.* //' "first.$1" | sort -n | tail -1)" \
		-ex 'thread apply all printf "own %d\n", own' -ex 'thread apply all bt full' 2>&1
}
if command -v gdb >/dev/null; then
	shown full >out
	for line in 'changed 2' 'list 13 12' 'own 4' 'own 5' ' +local = 33' ' +mine = 5' \
		'#[0-9]+ .* main \(.*' '#[0-9]+ .* other \(.*' ' +here = \{number = 12, next = 0x0\}'; do
		grep -Eqx "$line" out || fail "gdb at a full keyframe shows no $line: $(cat out)"
	done
	shown light >out
	grep -q '^changed [0-9]' out && fail "gdb knows at a light keyframe what was written before: $(cat out)"
fi

# How far apart: in instructions, ordered events, time and bytes of the trace.
cat >calls.c <<'EOF'
#include <sys/prctl.h>
#include <sys/random.h>
static unsigned char bytes[60000];
int main(int argc, char **argv)
{
	unsigned sum = argv[0][0];
	for (unsigned i = 0; i < 400; i++) {
		for (volatile unsigned k = prctl(PR_GET_DUMPABLE); k < 500; k++)
			;
		if (argc > 1) /* in all 24 MB of trace */
			for (long n = getrandom(bytes, sizeof(bytes), 0); n > 0; n -= 8)
				sum += bytes[n - 8];
	}
	return sum == 1;
}
EOF
${CC:-gcc} -O0 -static calls.c -o calls || exit 99
# apart LEAST MOST INTERVAL ARG...: so many keyframes are that far apart
apart() {
	local least=$1 most=$2 interval=$3 found
	shift 3
	"$deja" record --keyframes "$interval" --full-keyframes 0 -o apart.deja ./calls "$@" >out 2>err ||
		fail "--keyframes $interval: $(cat err)"
	found=$(kinds apart.deja light)
	[ "$found" -ge "$least" ] && [ "$found" -le "$most" ] || fail "--keyframes $interval: $found"
}
apart 4 6 100e # of 400 calls, and those of the C library
apart 0 0 1Ge
apart 4 8 200K # of 1.2 million instructions
apart 1 400 1ms
apart 0 0 1000000s
apart 3 24 1MB much
apart 0 0 1GB much
# What computes without a stop is looked at more often than four times a second, if it has to be.
cat >computes.c <<'EOF'
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>
int main(void)
{
	struct itimerval half = { .it_value = { 0, 500000 } }; /* of its processor's time */
	signal(SIGVTALRM, _exit);
	setitimer(ITIMER_VIRTUAL, &half, 0);
	for (volatile unsigned long n = 0;; n++)
		;
}
EOF
${CC:-gcc} -O1 -static computes.c -o computes || exit 99
for interval in 20M 10ms; do
	"$deja" record --keyframes $interval -o computes.deja ./computes >out 2>err
	[ $? = 26 ] || fail "what computes: $(cat out err)"
	found=$(kinds computes.deja light)
	[ "$found" -ge 8 ] || fail "what computes has $found keyframes at $interval"
	"$deja" verify computes.deja >out 2>&1 || fail "what computes: $(cat out)"
done
for interval in '' s 10x 1.5s 5Ks 3MMB 0x5s -1 '5 s' 99999999999999999999 99999999999G; do
	for option in --keyframes --full-keyframes; do
		"$deja" record $option "$interval" -o wrong.deja true >out 2>err
		[ $? = 1 ] && grep -Fq "deja: record: $option takes a number of instructions, such as 20M, or 5000e, 10s or 64MB, not $interval (" err ||
			fail "$option '$interval': $(cat err)"
	done
done
conclude
