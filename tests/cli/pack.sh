#!/bin/bash
# Recordings that share their modules: that they are small, that all commands read them, what is said
# when the shared files are gone or damaged, and deja pack, which makes a recording whole.
#
# usage: tests/cli/pack.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in pack
export DEJA_TRACE_DIR=$work/traces
store=$DEJA_TRACE_DIR/modules

# get COMMAND...: run it; status, out and err are what came of it
get() {
	timeout --foreground -k 2 60 "$@" >out 2>err
	status=$?
}

# want WHAT STATUS [PATTERN]: so it ended, with nothing on standard error or one line like that
want() {
	[ "$status" = "$2" ] || fail "$1: exit status $status, not $2: $(head -c 600 err)"
	if [ $# = 2 ]; then
		[ -s err ] && fail "$1: $(head -c 600 err)"
	else
		[ "$(wc -l <err)" = 1 ] && grep -Eq "^deja: .*$3" err || fail "$1: no '$3': $(head -c 600 err)"
	fi
}

# A library's worth of bytes that do not pack, in the program itself.
head -c 300000 /dev/urandom >bulk
cat >victim.c <<'EOT'
#include <stdio.h>
__asm__(".section .rodata\nbulk: .incbin \"bulk\"\n.text");
int main(int argc, char **argv)
{
	printf("%d %s\n", argc, argv[0]);
	return 5;
}
EOT
${CC:-gcc} -O1 -g victim.c -o victim || exit 99

# ---- sharing -------------------------------------------------------------------------------
get "$deja" record -o alone.deja ./victim
want "recording with -o" 5
[ -e "$DEJA_TRACE_DIR" ] && fail "-o touches the directory for traces"
for _ in 1 2; do
	get "$deja" record ./victim
	want "recording" 5
done
first=$DEJA_TRACE_DIR/victim-0.deja second=$DEJA_TRACE_DIR/victim-1.deja
for trace in "$first" "$second"; do
	[ "$(stat -c %s "$trace")" -lt 200000 ] || fail "$trace has $(stat -c %s "$trace") bytes"
done
[ "$(stat -c %s alone.deja)" -gt 300000 ] || fail "-o leaves out modules"
[ "$(stat -c %a "$store")" = 700 ] || fail "the store has mode $(stat -c %a "$store")"
[ -z "$(find "$store" -type f ! -perm 600)" ] || fail "modes: $(ls -l "$store")"

get "$deja" verify
want "verify" 0
get "$deja" dump
want "dump" 0
[ "$(wc -l <out)" -gt 100 ] || fail "dump: $(head out)"
get "$deja" ps
want "ps" 0
get "$deja" info
want "info" 0
grep -Eq "^shared +$store: [3-9] modules, [0-9,]{7,} bytes$" out || fail "info: $(cat out)"
get "$deja" info --json
grep -q '"stored": *true' out && grep -q "\"directory\": *\"$store\"" out || fail "info --json: $(cat out)"
if "$deja" backtrace --help >/dev/null 2>&1; then
	get "$deja" backtrace "$first" end
	[ "$status" = 0 ] || fail "backtrace: $(cat err)"
	cp out stack
fi
if command -v gdb >/dev/null; then
	get "$deja" replay "$first" -- -batch -nx -ex 'break main' -ex continue -ex 'info line'
	grep -q 'victim.c' out || fail "gdb: $(tail -5 out err)"
fi

# ---- moved away, damaged, hostile ------------------------------------------------------------
mkdir moved
cp "$first" moved/
missing='module .* is not in the trace but in the module store, and .*/modules/[0-9a-f]{48} .*; where the recording was made, `deja pack. makes a trace that has everything in it'
for command in verify backtrace "serve --stdio" replay "pack -o whole.deja"; do
	get "$deja" $command moved/victim-0.deja </dev/null
	want "$command: moved" 2 "$missing \([0-9]+ more"
done
[ -e whole.deja ] && fail "half a trace is packed"
get "$deja" info moved/victim-0.deja
want "info: moved" 0 "$missing"
get "$deja" dump moved/victim-0.deja
want "dump: moved" 0
ln -s "$DEJA_TRACE_DIR/victim-0.deja" link.deja
get "$deja" verify link.deja
want "verify: by a link" 0

big=$(find "$store" -type f -size +290k ! -size +400k | head -1)
cp "$big" kept
with() { # WHAT PATTERN: how verify and gdb take what there is now
	for command in verify "replay --at-end"; do
		get "$deja" $command "$first" </dev/null
		want "$command: $1" 2 "module /.* is not in .*$2"
	done
	rm -f "$big"
}
another "$big" 200000 # whatever it is: the file is not the same each time
with "damaged" "[0-9a-f]{48} is damaged; "
head -c 100000 kept >"$big"
with "cut" "[0-9a-f]{48} is damaged; "
ln -s ../../kept "$big"
with "a link" "[0-9a-f]{48} is a link; "
mkfifo "$big"
with "a FIFO" "[0-9a-f]{48} is not a regular file; "
cp "$(find "$store" -type f | head -1)" "$big"
with "another module" "[0-9a-f]{48} is damaged; "
head -c 100000 kept >"$big"
get "$deja" record ./victim
want "recording with a damaged store" 5
cmp -s kept "$big" || fail "a recording does not mend the store"
get "$deja" verify "$first"
want "verify: mended" 0

# ---- packed --------------------------------------------------------------------------------------
measured() { grep -v -e '^seconds' -e '^speed'; }
"$deja" verify "$first" | measured >verify.shared
"$deja" dump "$first" >dump.shared
get "$deja" pack -o whole.deja "$first"
want "pack -o" 0
cp "$second" before
get "$deja" pack "$second"
want "pack" 0
cmp -s before "$second" && fail "pack leaves the trace as it was"
cp "$second" before
get "$deja" pack "$second"
want "pack again" 0
cmp -s before "$second" || fail "packing again changes the trace"
mkdir away
mv whole.deja away/
cp "$second" away/second.deja
mv "$store" gone
"$deja" verify away/whole.deja 2>&1 | measured | diff verify.shared - || fail "packed, it verifies otherwise"
"$deja" dump away/whole.deja 2>&1 | diff -q dump.shared - || fail "packed, it has other records"
get "$deja" verify away/second.deja
want "verify: packed in place" 0
get "$deja" info away/second.deja
grep -q '^shared' out && fail "packed, it shares: $(cat out)"
if [ -s stack ]; then
	get "$deja" backtrace away/whole.deja end
	cmp -s out stack || fail "packed, it has another stack: $(diff out stack)"
fi
mv gone "$store"
get "$deja" pack
want "pack of the latest" 0
[ -L "$DEJA_TRACE_DIR/latest" ] || fail "pack replaces the link to the latest"
get "$deja" pack no-such-trace
want "pack of nothing" 1 'no-such-trace'
get "$deja" pack --prune -o x
want "prune and output" 1 '--prune'

# A recording that was killed is packed as far as it came.
head -c "$(($(stat -c %s "$first") * 2 / 3))" "$first" >"$DEJA_TRACE_DIR/cut.deja"
get "$deja" pack -o cut.deja "$DEJA_TRACE_DIR/cut.deja"
want "pack of a cut trace" 0 'cut off'
"$deja" dump "$DEJA_TRACE_DIR/cut.deja" >out 2>err
"$deja" dump cut.deja 2>err | cmp -s out - || fail "packed, a cut trace has other records"
rm "$DEJA_TRACE_DIR/cut.deja"

# ---- no room ---------------------------------------------------------------------------------------
before=$(stat -c %s "$first")
(ulimit -f 100 && exec "$deja" pack "$first") >out 2>err # in 1024 bytes
status=$?
want "pack without room" 1 'File too large'
[ "$(stat -c %s "$first")" = "$before" ] || fail "pack without room changes the trace"
[ "$(find "$DEJA_TRACE_DIR" -name '*packing*')" ] && fail "pack leaves: $(ls "$DEJA_TRACE_DIR")"

# ---- removed -----------------------------------------------------------------------------------------
n=$(find "$store" -type f | wc -l)
get "$deja" pack --prune
want "prune" 0
grep -q "^0 files removed, 0 bytes; $n are in use$" out || fail "prune: $(cat out)"
rm -f "$DEJA_TRACE_DIR"/victim-*.deja
get "$deja" record true
touch "$store/.new-left" # by a recording that was killed
get "$deja" pack --prune "$DEJA_TRACE_DIR"
want "prune" 0
grep -Eq '^[2-9] files removed, [0-9]{6,} bytes; [1-9] are in use$' out || fail "prune: $(cat out)"
get "$deja" verify
want "verify: after prune" 0

# ---- at the same time --------------------------------------------------------------------------------
rm -rf "$DEJA_TRACE_DIR"
for i in 1 2 3 4; do
	"$deja" record ./victim >/dev/null 2>"err.$i" &
done
wait
cat err.* >err
[ -s err ] && fail "together: $(head -c 600 err)"
[ "$(ls "$DEJA_TRACE_DIR"/victim-*.deja | wc -l)" = 4 ] || fail "together: $(ls "$DEJA_TRACE_DIR")"
for trace in "$DEJA_TRACE_DIR"/victim-*.deja; do
	get "$deja" verify "$trace"
	want "together: $trace" 0
done
find "$store" -name '.new*' | grep . && fail "a recording leaves what it wrote"
[ "$failures" = 0 ] && echo "PASS: pack"
conclude
