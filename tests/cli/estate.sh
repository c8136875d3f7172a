#!/bin/bash
# What was translated for a program in one recording goes to its images in the next: who begins with it, who
# does not, and that each does what it does natively, and its history replays.
#
# usage: tests/cli/estate.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in estate
for v in 1 2; do
	${CC:-gcc} -O1 -fno-pie -no-pie -pthread -DVERSION=$v "$here/heir.c" -o heir$v || exit 99
done
for l in 1 2 3; do
	${CC:-gcc} -O1 -fPIC -shared -DLIBRARY=$l "$here/heirlib.c" -o "lib$(tr 123 abc <<<$l).so" || exit 99
done
${CC:-gcc} -O1 -fPIE -pie -pthread "$here/heirlib.c" -o libs -ldl || exit 99
cp heir1 heir
can_record
# Where no program can be told where to lie, only those that are not position independent lie where they lay, and
# which ones begin with what was left depends on that.
setarch -R true 2>/dev/null || { echo "programs cannot be told here where to lie"; exit 77; }

cache=$work/cache/deja
export XDG_CACHE_HOME=$work/cache
anew() {
	rm -rf "$work/cache"
	mkdir "$work/cache"
}

# begins WHAT IMAGES OPTION... -- COMMAND...: it does what it does natively, and so many of its images begin with what
# an earlier recording has left ("any": it does not matter).
begins() {
	local what=$1 images=$2 have options=()
	shift 2
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	timeout --foreground -s KILL 60 "$@" >native.out 2>native.err
	local status=$?
	timeout --foreground -s KILL 100 "$deja" record "${options[@]}" -o t.deja -- "$@" >out 2>err
	local now=$?
	[ $now = $status ] || fail "$what: status $now, natively $status: $(head -c 300 err)"
	cmp -s out native.out || fail "$what: output differs: $(diff native.out out | head -n 4)"
	replays "$what"
	[ "$images" = any ] && return
	have=$("$deja" info t.deja | sed -n "s/^ *\([0-9,]*\) *images that began with an earlier.*/\1/p")
	[ "${have:-0}" = "$images" ] || fail "$what: ${have:-0} images began with what an earlier recording left, not $images"
}

# fragments: how many the latest recording made, of what was kept or anew.
fragments() {
	"$deja" info t.deja | awk '/fragments made/ { gsub(",", "", $1); n += $1 } END { print n + 0 }'
}

# ---- who begins with it ---------------------------------------------------------------------------

anew
begins "the first time" 0 -- ls -l /etc
first=$(fragments)
[ "$(find "$cache" -name '*.estate' | wc -l)" = 1 ] || fail "one program leaves $(find "$cache" -name '*.estate' | wc -l) files"
begins "the second time" 1 -- ls -l /etc
second=$(fragments)
[ "$second" -lt $((first / 10)) ] || fail "the second time $second fragments are made, the first time $first"
before=$(stat -c %Y.%i "$cache"/*.estate)
begins "the third time" 1 -- ls -l /etc
[ "$(stat -c %i "$cache"/*.estate)" = "${before#*.}" ] || fail "what is nearly the same is written again"
begins "otherwise than before" 1 -- ls --color=always -lRt /etc/ssl
begins "with another environment" 1 -- env -i LC_ALL=C ls /
# (env and ls)
begins "the same again" 2 -- env -i LC_ALL=C ls /

# each program of a script, the first one and those that become others included
script='ls / | sort -r | head -n 3; (cat; exec wc -c) </etc/passwd; exec tail -n 1 /etc/passwd'
begins "a script" any -- bash -c "$script"
begins "a script again" 7 -- bash -c "$script"
# two at once: one takes it, the other one reads it once more (and there is bash). Both have begun before one can end.
script='head -c 2 f & one=$!; head -c 2 g & exec 3>f 4>g; echo a >&3; exec 3>&-; wait $one; echo b >&4; exec 4>&-; wait'
mkfifo f g
begins "two that are going to be at once" any -- bash -c "$script"
begins "two at once" 3 -- bash -c "$script"

# ---- libraries that come later ---------------------------------------------------------------------

for how in abc abc cba a-b-a tab sab abp abc ajab jb; do
	begins "libraries, $how" any -- ./libs 1 $how
done
begins "libraries" 1 -- ./libs 3 abc
cp libb.so old
mv libc.so new && mv libb.so libc.so && mv new libb.so
begins "another library in its place" 1 -- ./libs 1 ab
cat old >libb.so
begins "another library in its file" 1 -- ./libs 1 ab

# ---- who does not ----------------------------------------------------------------------------------

./heir plain 1 >/dev/null
for what in plain patch fault map thread fork filter again killed; do
	begins "heir $what" any -- ./heir $what 1
done
begins "one that was there" 1 -- ./heir plain 1
mv heir old.heir
cp heir2 heir
begins "another program in its place" 0 -- ./heir plain 1
mv old.heir heir
# (renamed, it has another time)
begins "the one before" 0 -- ./heir plain 1
begins "the one before, again" 1 -- ./heir plain 1
sleep 0.01
touch heir
begins "a file that may have changed" 0 -- ./heir plain 1
begins "at random" 0 --randomize -- ls /
begins "nothing kept" 0 --no-cache -- ls /
# its handlers see the flags of faults: that is another file
begins "flags of faults" any -- ./heir fault 1
begins "flags of faults again" 1 -- ./heir fault 1
for o in --exact-flags "--order acqrel" "--predict last"; do
	# shellcheck disable=SC2086
	begins "with $o" 0 $o -- ls -l /etc
	# shellcheck disable=SC2086
	begins "with $o again" 1 $o -- ls -l /etc
done
# who may do less than deja leaves nothing, and gets nothing
if command -v setpriv >/dev/null && setpriv --no-new-privs true 2>/dev/null; then
	anew
	begins "who may do less" 0 -- setpriv --no-new-privs sort /etc/passwd
	# (setpriv was deja's equal when it began, but not when it became another program)
	begins "who may do less again" 0 -- setpriv --no-new-privs sort /etc/passwd
	[ -z "$(find "$cache" -name '*.estate')" ] || fail "who may do less leaves something"
	begins "who may do all" 0 -- sort /etc/passwd
	begins "who may do less than who left it" 0 -- setpriv --no-new-privs sort /etc/passwd
	begins "who may do all again" 1 -- sort /etc/passwd
fi

# ---- files that are not what they were ---------------------------------------------------------------

anew
begins "once" 0 -- sort -r /etc/passwd
file=$(echo "$cache"/*.estate)
cp -p "$file" good
for how in cut longer head body empty link writable; do
	rm -f "$file"
	cp -p good "$file"
	case $how in
	cut) truncate -s -8 "$file" ;;
	longer) echo 12345678 >>"$file" ;;
	head) printf x | dd of="$file" bs=1 seek=150 conv=notrunc status=none ;;
	body) printf x | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none ;;
	empty) : >"$file" ;;
	link) mv "$file" elsewhere && ln -s "$PWD/elsewhere" "$file" ;;
	writable) chmod g+w "$file" ;;
	esac
	begins "$how" 0 -- sort -r /etc/passwd
	# which wrote it anew
	begins "after $how" 1 -- sort -r /etc/passwd
done

# While it is in use: whoever writes there waits until there is a copy.
mkfifo in
exec 9<>in
"$deja" record -o t.deja -- sort -r in >out 9>&- &
pid=$!
for _ in {1..100}; do
	sleep 0.1
	read -r child _ <"/proc/$pid/task/$pid/children"
	grep -q '^0 0x' "/proc/$child/syscall" 2>/dev/null && break
done
timeout 10 bash -c 'head -c 1000000 /dev/urandom 1<>"$1" && : >"$1"' x "$file" || fail "writing to what is in use"
cat /etc/passwd >in
exec 9>&-
wait $pid || fail "recording while what is in use is overwritten"
sort -r /etc/passwd | cmp -s - out || fail "the output differs while what is in use is overwritten"
replays "overwritten while in use"

# ---- there is not too much of it -----------------------------------------------------------------------

# A shell that does something else each time leaves no more than three times what one of them needs.
anew
most=0
for i in 1 2 3 4 5 6 7 8; do
	case $i in
	1) do='echo $((1 + 2))' ;;
	2) do='f() { local -a a=(1 2 3); echo "${a[@]/2/x}"; }; f; declare -A m=([a]=1); echo ${!m[@]}' ;;
	3) do='[[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}; printf "%q %5.2f %(%Y)T\n" "a b" 1.5 0' ;;
	4) do='while read -r x y; do echo $y $x; done <<<"a b"; case x in [a-z]) echo l ;; esac' ;;
	5) do='trap "echo t" USR1; kill -USR1 $$; select x in a b; do break; done <<<1; echo $x' ;;
	6) do='coproc cat; echo x >&${COPROC[1]}; read -r y <&${COPROC[0]}; echo $y; jobs -l >/dev/null' ;;
	7) do='complete -W "a b" x; compgen -W "aa ab" a; shopt -s extglob; echo /[e]tc/@(passwd|group)' ;;
	8) do='set -o posix; eval "echo \$((16#ff)) {1..3}"; IFS=:; set -- $PATH; echo $# >/dev/null; ulimit -a >/dev/null' ;;
	esac
	begins "a shell, $i" any -- bash -c "$do"
	made=$(fragments)
	[ "$made" -le $most ] || most=$made
done
for f in "$cache"/*.estate; do
	# a fragment takes more than 200 bytes there, and less than 1,000
	[ "$(stat -c %s "$f")" -le $((3 * most * 1000)) ] || fail "$(stat -c %s "$f") bytes, where one needs $most fragments"
done
# ---- large ones --------------------------------------------------------------------------------------

# Two compilers at once, each of which reads its own; and one that is killed at any time, also while that is read.
anew
cc1=$(${CC:-gcc} -print-prog-name=cc1)
for ((k = 0; k < 300; k++)); do
	echo "int f$k(int *p, int n) { for (int i = 0; i < n; i++) p[i] = p[i] * $k + (p[i] >> 3) - n; return p[n / 2] / ($k + 3); }"
done >many.c
both="$cc1 -quiet -O2 many.c -o 1.s & $cc1 -quiet -O2 many.c -o 2.s; wait \$!; cmp 1.s 2.s && cksum <1.s"
"$deja" record -o t.deja -- sh -c "$both" >out 2>err || fail "two compilers: $(head -3 err)"
[ "$(fragments)" -gt 30000 ] || fail "two compilers make $(fragments) fragments, which are read at once"
begins "two compilers" any -- sh -c "$both"
[ "$(fragments)" -lt 20000 ] || fail "two compilers made $(fragments) fragments again: not both began with what was left"
for ((n = 0; n < 12; n++)); do
	signal=$((n % 2 ? 9 : 15))
	begins "a compiler that is killed, $n" any -- \
		sh -c "$cc1 -quiet many.c -o /dev/null & n=0; while [ \$n -lt $((n * n * 100)) ]; do n=\$((n + 1)); done; kill -$signal \$!; wait \$!"
done

conclude
