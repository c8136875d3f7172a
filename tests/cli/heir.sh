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
printf 'int main(void) { return 7; }\n' >alone.c
${CC:-gcc} -static -o alone alone.c || exit 99
cp heir1 heir
chmod 755 . heir heir1 heir2
mkfifo f g
can_record

# runs WHAT HEIRS COMMAND...: lines of a script; it does natively what it does recorded, and so many of
# its images begin with what another one left
runs() {
	local what=$1 heirs=$2 have
	shift 2
	printf '%s\n' "$@" >script
	cp heir1 heir
	timeout --foreground -s KILL 60 sh script >native.out 2>native.err
	cp heir1 heir
	timeout --foreground -s KILL 100 "$deja" record -o t.deja sh script >out 2>err
	cmp -s out native.out || fail "$what: output differs: $(diff native.out out | head -n 4) $(head -c 300 err)"
	replays "$what"
	[ "$heirs" = any ] && return
	have=$("$deja" info t.deja | sed -n 's/^ *\([0-9,]*\) *images that began with the code.*/\1/p')
	[ "${have:-0}" = "$heirs" ] || fail "$what: ${have:-0} images began with the code of one before, not $heirs"
}

run='; echo "status $?"'

# ---- who inherits --------------------------------------------------------------------------------

runs "one after the other" 3 "./heir plain 1$run" "./heir plain 2$run" "./heir plain 3$run" "./heir plain 1$run"
runs "two at once, twice" 2 "./heir meet 1 3>f 4<g & ./heir meet 2 4<f 3>g >two; wait; cat two" \
	"./heir meet 3 3>f 4<g & ./heir meet 4 4<f 3>g >two; wait; cat two"
runs "what it has changed goes" 2 "./heir patch 1$run" "./heir plain 1$run" "./heir patch 2$run"
runs "where the arena was is something of its own" 2 "./heir map 1$run" "./heir map 2$run" "./heir plain 2$run"
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
have=$("$deja" info t.deja | sed -n 's/^ *\([0-9,]*\) *forked children that did.*/\1/p')
[ "${have:-0}" -ge 15 ] || fail "${have:-0} forked children began with the code of one before, not 15 or more"

# ---- who does not --------------------------------------------------------------------------------

runs "a child becomes a program that cannot be recorded" 1 "./heir closed 1$run" "./heir closed 2$run"
runs "flags of faults are kept, or were" 0 "./heir fault 1$run" "./heir plain 1$run"
runs "there was a thread" 0 "./heir thread 1$run" "./heir plain 1$run"
runs "it was killed" 0 "./heir killed 1$run" "./heir plain 1$run"
runs "it could not exit" 0 "./heir stay 1$run" "./heir plain 1$run"
runs "a filter" 0 "./heir filter 1$run" "./heir plain 1$run"
[ "$(id -u)" != 0 ] || runs "another user by then" 0 "./heir less 1$run" "./heir plain 1$run"
runs "another program in its place" 1 "./heir plain 1$run" "cp heir2 heir.new; mv heir.new heir" "./heir plain 1$run" \
	"./heir plain 2$run"
runs "another program in its file" 0 "./heir plain 1$run" "cat heir2 >heir" "./heir plain 1$run"
runs "another program in its file, by a mapping" 0 "./heir plain 1$run" "./heir1 rewrite heir2 heir$run" \
	"./heir plain 1$run"

# ---- combinations --------------------------------------------------------------------------------

# of SEED: some runs, a few of them two at a time
script_of() {
	awk -v seed="$1" -v user="$(id -u)" 'BEGIN {
		srand(seed)
		n = split("plain plain plain patch fault map thread fork filter stay again killed closed less", what, " ")
		if (user != 0)
			n--
		for (i = 0; i < 12; i++) {
			one = "./heir " what[1 + int(n * rand())] " " int(5 * rand())
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
