#!/bin/bash
# What was translated for a program that has ended goes to its next image: who does what, one after the
# other, does what it does natively, and its history replays. Of sequences at random a seed reproduces any.
#
# usage: tests/cli/heir.sh [SEEDS [FIRST]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in heir
for v in 1 2; do
	${CC:-gcc} -O1 -fno-pie -no-pie -pthread -DVERSION=$v "$here/heir.c" -o heir$v || exit 99
done
for l in 1 2 3; do
	${CC:-gcc} -O1 -fPIC -shared -DLIBRARY=$l "$here/heirlib.c" -o "lib$(tr 123 abc <<<$l).so" || exit 99
done
${CC:-gcc} -O1 -fPIE -pie -pthread "$here/heirlib.c" -o libs -ldl || exit 99
${CC:-gcc} -O1 -fno-pie -no-pie -pthread "$here/heirlib.c" -o libslow -ldl || exit 99
printf 'int main(void) { return 7; }\n' >alone.c
${CC:-gcc} -static -o alone alone.c || exit 99
cp heir1 heir
chmod 755 . heir heir1 heir2
mkfifo f g
can_record

# counted WHAT: how often that happened while t.deja was recorded
counted() {
	"$deja" info t.deja | sed -n "s/^ *\([0-9,]*\) *$1.*/\1/p"
}

# runs WHAT HEIRS COMMAND...: lines of a script; it does natively what it does recorded, and so many of
# its images begin with what another one left. (With options of deja record in $options.)
options=
runs() {
	local what=$1 heirs=$2 have
	shift 2
	printf '%s\n' "$@" >script
	cp heir1 heir
	timeout --foreground -s KILL 60 sh script >native.out 2>native.err
	cp heir1 heir
	# shellcheck disable=SC2086
	timeout --foreground -s KILL 100 "$deja" record $options -o t.deja sh script >out 2>err
	cmp -s out native.out || fail "$what: output differs: $(diff native.out out | head -n 4) $(head -c 300 err)"
	replays "$what"
	[ "$heirs" = any ] && return
	have=$(counted "images that began with the code")
	[ "${have:-0}" = "$heirs" ] || fail "$what: ${have:-0} images began with the code of one before, not $heirs"
}

run='; echo "status $?"' high=

# (Where no program can be told where to lie, those that are position independent inherit nothing.)
setarch -R true 2>/dev/null || high=any

# ---- who inherits --------------------------------------------------------------------------------

runs "one after the other" 3 "./heir plain 1$run" "./heir plain 2$run" "./heir plain 3$run" "./heir plain 1$run"
# (so does the second cat)
runs "two at once, twice" "${high:-3}" "./heir meet 1 3>f 4<g & ./heir meet 2 4<f 3>g >two; wait; cat two" \
	"./heir meet 3 3>f 4<g & ./heir meet 4 4<f 3>g >two; wait; cat two"
runs "what it has changed goes" 2 "./heir patch 1$run" "./heir plain 1$run" "./heir patch 2$run"
runs "where the arena was is something of its own" 2 "./heir map 1$run" "./heir map 2$run" "./heir plain 2$run"
runs "there was a thread" 1 "./heir thread 1$run" "./heir plain 1$run"
runs "a thread was there until the end" 2 "./heir low 1$run" "./heir low 2$run" "./heir low 4$run"
runs "flags of faults are kept" 1 "./heir fault 1$run" "./heir fault 2$run"
runs "a child leaves nothing, its parent does" 1 "./heir fork 1$run" "./heir fork 2$run"

# what an image leaves when it becomes another one is there when that one has deja's memory
runs "one that becomes itself" 2 "./heir again 3$run"

# forked children: subshells, and such as become another program
{
	echo 'f() { local i=0 s=; while [ $i -lt 200 ]; do s="$s.${i%?}"; i=$((i + 1)); done; echo ${#s} $1 $RANDOM | cut -d" " -f1,2; }'
	echo 'for i in 1 2 3 4 5 6 7 8; do (f $i); x=$(f $i; exit $i); echo "$? $x"; done'
	echo 'trap "echo trapped" EXIT; (kill -9 $BASHPID); (f 9 & f 10; wait) | sort; unset -f f; (f 11) 2>&1'
} >forks.bash
as_natively "forked children" "" bash forks.bash
have=$(counted "forked children that did")
[ "${have:-0}" -ge 15 ] || fail "${have:-0} forked children began with the code of one before, not 15 or more"
cat >forks.c <<-'end'
	#include <sys/wait.h>
	#include <unistd.h>
	int main(void)
	{
		int s, n = 0;
		for (int i = 0; i < 12; i++)
			if (!fork())
				_exit(i);
			else if (wait(&s) > 0)
				n += WEXITSTATUS(s);
		return n;
	}
end
${CC:-gcc} -O1 -o forks forks.c || exit 99
as_natively "forked children that do little" "" ./forks
have=$(counted "forked children that did")
[ "${have:-0}" = 11 ] || fail "${have:-0} of twelve forked children that do little began with the code of one before, not 11"

# ---- who does not --------------------------------------------------------------------------------

runs "a child becomes a program that cannot be recorded" 1 "./heir closed 1$run" "./heir closed 2$run"
runs "it was killed" 0 "./heir killed 1$run" "./heir plain 1$run"
runs "it could not exit" 0 "./heir stay 1$run" "./heir plain 1$run"
runs "a filter" 0 "./heir filter 1$run" "./heir plain 1$run"
[ "$(id -u)" != 0 ] || runs "another user by then" 0 "./heir less 1$run" "./heir plain 1$run"
runs "another program in its place" 1 "./heir plain 1$run" "cp heir2 heir.new; mv heir.new heir" "./heir plain 1$run" \
	"./heir plain 2$run"
runs "another program in its file" 0 "./heir plain 1$run" "cat heir2 >heir" "./heir plain 1$run"
runs "another program in its file, by a mapping" 0 "./heir plain 1$run" "./heir1 rewrite heir2 heir$run" \
	"./heir plain 1$run"

# ---- libraries -----------------------------------------------------------------------------------

runs "one program after the other, with libraries" "${high:-3}" "./libs 1 abc" "./libs 2 abc" "./libs 3 abc" "./libs 4 abc"
runs "libraries elsewhere" "${high:-3}" "./libs 1 abc" "./libs 2 cba" "./libs 3 b" "./libs 4 abc"
runs "they come and go" "${high:-3}" "./libs 1 a-b" "./libs 2 b-a-b" "./libs 3 ab--ba" "./libs 4 a-b"
runs "by threads" "${high:-3}" "./libs 1 tab" "./libs 2 tab" "./libs 3 atbtc" "./libs 4 tab"
runs "of a thread that spins" "${high:-3}" "./libs 1 sab" "./libs 2 sab" "./libs 3 sasb" "./libs 4 bsa"
runs "something else where one will be" "${high:-3}" "./libs 1 aw" "./libs 2 ja" "./libs 3 jajaj" "./libs 4 jjbja"
runs "something else where one was" "${high:-3}" "./libs 1 ab" "./libs 2 abm" "./libs 3 abmc" "./libs 4 ab"
runs "one that was changed" "${high:-3}" "./libs 1 abp" "./libs 2 ab" "./libs 3 apbp" "./libs 4 ab"
runs "below, and libraries" 3 "./libslow 1 abc" "./libslow 2 abc" "./libslow 3 cab" "./libslow 4 abc"
runs "another library in its place" "${high:-6}" "./libs 1 ab" "cp libb.so new; mv libc.so libb.so; mv new libc.so; ./libs 2 ab" \
	"cp libb.so new; mv libc.so libb.so; mv new libc.so; ./libs 3 ab"
runs "another library in its file" "${high:-2}" "./libs 1 ab" "cp libb.so old; cat libc.so >libb.so; ./libs 2 ab; cat old >libb.so"
options=--randomize
runs "addresses at random" 0 "./libs 1 abc" "./libs 2 abc" "./libs 3 abc" "./libs 4 abc"
runs "addresses at random, the program's not" 3 "./libslow 1 abc" "./libslow 2 abc" "./libslow 3 abc" "./libslow 4 abc"
options=

# ---- combinations --------------------------------------------------------------------------------

# of SEED: some runs, a few of them two at a time
script_of() {
	awk -v seed="$1" -v user="$(id -u)" 'BEGIN {
		srand(seed)
		n = split("plain plain plain patch fault map thread fork filter stay again killed closed less", what, " ")
		if (user != 0)
			n--
		m = split("a a b b c - - t s j p m f", step, " ")
		print "./libs 1 aw"
		for (i = 0; i < 16; i++) {
			one = "./heir " what[1 + int(n * rand())] " " int(5 * rand())
			if (rand() < 0.4) {
				one = (rand() < 0.5 ? "./libs " : "./libslow ") int(5 * rand()) " "
				for (k = int(6 * rand()); k > 0; k--)
					one = one step[1 + int(m * rand())]
			}
			if (rand() < 0.2)
				print one " >other & ./heir plain " i "; wait; cat other"
			else if (rand() < 0.1)
				print "cat heir" (1 + int(2 * rand())) " >heir.new; chmod 755 heir.new; mv heir.new heir; " one
			else
				print one "; echo \"status $?\""
		}
	}'
}

first=${2:-1}
for ((seed = first; seed < first + ${1:-6}; seed++)); do
	mapfile -t lines < <(script_of "$seed")
	runs "seed $seed" any "${lines[@]}"
done
conclude
