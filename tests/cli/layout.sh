#!/bin/bash
# Programs lie at the same addresses in each recording, and what they start as well, and none of them can
# tell that somebody has seen to that; with --randomize they lie elsewhere each time.
#
# usage: tests/cli/layout.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in layout
for k in pie no-pie; do
	${CC:-gcc} -O1 -pthread -f${k/pie/PIE} -$k "$here/layout.c" -o $k || exit 99
done
${CC:-gcc} -O1 -pthread -static-pie "$here/layout.c" -o static-pie || exit 99
can_record
if ! setarch -R true 2>err; then
	echo "skipped: a program cannot be told where to lie here: $(cat err)"
	exit 77
fi
[ "$(cat /proc/sys/kernel/randomize_va_space)" -gt 0 ] || { echo "skipped: this kernel lays out no program at random"; exit 77; }

# recorded OUT OPTIONS COMMAND...: its output in OUT
recorded() {
	local out=$1
	shift
	timeout --foreground -s KILL 60 "$deja" record -o t.deja "$@" >"$out" 2>err ||
		fail "recording $*: $? $(head -c 200 err)"
	"$deja" verify t.deja >/dev/null 2>err || fail "verifying $*: $(head -c 200 err)"
}

for program in pie no-pie static-pie; do
	printf '#!/bin/sh\nexec ./%s "$@"\n' $program >script
	chmod 755 script
	for ways in '' e t f v s k etvf vvee ftet sek; do
		what="$program $ways"
		for way in '' 'setarch -R '; do
			$way ./$program $ways >native
			# shellcheck disable=SC2086
			recorded one $way ./$program $ways
			# shellcheck disable=SC2086
			recorded two $way ./$program $ways
			cmp -s one two || fail "$way$what lies elsewhere: $(diff one two | head -n 4)"
			grep -v ^at native >native.says
			grep -v ^at one | cmp -s native.says - || fail "$way$what: $(diff native one | grep personality | head -n 4)"
			[ "$(grep -c personality one)" -ge $((2 + ${#ways})) ] || fail "$way$what says too little: $(cat one)"
		done
		# as other programs that want it so
		$way ./$program $ways >native
		cut -d' ' -f2,4,5 native >native.at
		cut -d' ' -f2,4,5 one | cmp -s native.at - || fail "$what is not where a debugger has it: $(diff native one | head -n 4)"
		# shellcheck disable=SC2086
		recorded one --randomize ./$program $ways
		# shellcheck disable=SC2086
		recorded two --randomize ./$program $ways
		[ "$(grep -c ^at one)" -gt 0 ] || fail "$what says nothing"
		[ "$(grep ^at one | grep -cxFf two)" = 0 ] || fail "$what at random is where it was: $(grep -xFf one two | head -n 2)"
		grep -v ^at one | cmp -s <(./$program $ways | grep -v ^at) - || fail "$what at random: $(cat one)"
	done
done

# What cannot be recorded is not told where to lie, nor is what it starts: nothing could take that back.
if [ "$(id -u)" = 0 ] && as=(setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=$work/nobody) && "${as[@]}" test -x "$deja"; then
	chmod 755 .
	mkdir nobody
	chown 65534 nobody
	cp pie closed
	chmod 711 closed
	for n in one two; do
		"${as[@]}" XDG_CACHE_HOME=$work/nobody "$deja" record -o nobody/t.deja ./pie ce >$n 2>err ||
			fail "a program that cannot be read: $? $(head -c 200 err)"
	done
	[ "$(grep -c ^at one)" = 3 ] && [ "$(grep ^at one | grep -cxFf two)" = 1 ] ||
		fail "a program that cannot be recorded lies where it lay: $(cat one two)"
	# (one that cannot be read cannot read its own file, either)
	! grep personality one | grep -Ev 'personality 0, (00000000)?$' >err ||
		fail "a program that cannot be recorded has another personality: $(cat one)"
fi

# Where nobody can be told where to lie, because of a filter before deja or in the program, nobody is, and
# nothing else is any different.
for how in errno kill; do
	for ways in '' etv; do
		./pie $how ./pie $ways >native
		for after in '' before; do
			if [ "$after" ]; then
				./pie $how "$deja" record -o t.deja ./pie $ways >out 2>err
			else
				"$deja" record -o t.deja ./pie $how ./pie $ways >out 2>err
			fi || fail "$how $after $ways: $? $(head -c 200 err)"
			grep -v ^at out | cmp -s <(grep -v ^at native) - || fail "$how $after $ways: $(diff native out | grep personality | head -n 4)"
			"$deja" verify t.deja >/dev/null 2>err || fail "verifying $how $after $ways: $(head -c 200 err)"
		done
	done
done

# What is not recorded is not told where to lie.
recorded one --no-follow ./pie v
recorded two --no-follow ./pie v
[ "$(grep ^at one | sort | uniq | grep -cxFf two)" = 1 ] || fail "a child that is not recorded lies where it lay: $(cat one two)"
conclude
