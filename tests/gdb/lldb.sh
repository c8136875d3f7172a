#!/bin/bash
# lldb on a recording: where it stands, frames, variables and modules, those that the dynamic linker
# loads and one that the program opens itself; breakpoints in it; and another place in history.
#
# usage: tests/gdb/lldb.sh        (DEJA names the program under test)
set -u
here=$(cd "$(dirname "$0")" && pwd)
deja=${DEJA:-./deja}
command -v lldb >/dev/null || { echo "lldb is not installed"; exit 77; }
case $deja in */*) deja=$(cd "$(dirname "$deja")" && pwd)/$(basename "$deja") ;; esac
[ -x "$deja" ] || { echo "$deja is not built"; exit 77; }

work=$(mktemp -d "${TMPDIR:-/tmp}/deja-lldb.XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 99
${CC:-gcc} -g -O0 "$here/target.c" -o target -ldl || exit 99
${CC:-gcc} -g -O0 -shared -fPIC "$here/plugin.c" -o plugin.so || exit 99
"$deja" record -o target.deja -- ./target "$work/plugin.so" >/dev/null 2>record.err
[ $? = 7 ] || { echo "FAIL: recording"; cat record.err; exit 1; }

failed=0
# session NAME SERVE-OPTION... ; lldb's commands in ./commands, what it must say, in this order, in
# ./wanted, one extended regular expression a line
session() {
	local name=$1 port=
	shift
	>serve.err
	"$deja" serve --listen 0 "$@" target.deja 2>serve.err &
	server=$!
	for _ in $(seq 100); do
		port=$(sed -n 's/^Listening on .*:\([0-9]*\)$/\1/p' serve.err)
		[ -z "$port" ] || break
		sleep 0.1
	done
	{
		echo "settings set target.process.disable-memory-cache true"
		echo "gdb-remote 127.0.0.1:$port"
		cat commands
		echo "detach"
	} >script
	# its own Python may be missing, and the user's settings are not for here
	timeout -s KILL 120 lldb -X -x -b -s script target >output 2>&1 </dev/null
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	server=
	local line want rest=output
	while IFS= read -r want; do
		line=$(grep -nE -m 1 -- "$want" $rest | cut -d: -f1)
		[ -n "$line" ] || { echo "FAIL: $name: not found: $want"; cat output; failed=1; return; }
		tail -n +$((line + 1)) $rest >rest.new
		mv rest.new rest
		rest=rest
	done <wanted
	echo "PASS: $name"
}

cat >commands <<'END'
breakpoint set -n depth -c "n == 0"
breakpoint set -n plugin_work
continue
bt
frame variable
frame select 5
frame variable total argc
process handle -s false -p true -n false SIGUSR1
continue
bt
frame variable
image list -b -h
p square
END
cat >wanted <<'END'
stop reason = breakpoint 1
frame #0: .*target`depth\(n=0\)
frame #4: .*target`depth\(n=4\)
frame #5: .*target`main\(argc=2
^\(int\) n = 0$
^\(int\) total = 55$
^\(int\) argc = 2$
stop reason = breakpoint 2
frame #0: .*plugin.so`plugin_work\(x=5\)
frame #1: .*target`use_plugin\(
frame #2: .*target`main\(
^\(int\) x = 5$
^\[.* target
^\[.* libc\.so\.6
^\[.* plugin\.so
target`square
END
session "frames, variables and libraries"

# From the end, where everything is loaded already. lldb knows of a new place with its next step
# (and then makes another one).
cat >commands <<'END'
image list -b -h
target variable counter seen
process plugin packet monitor goto begin
target variable counter
thread step-inst
process plugin packet monitor when
END
cat >wanted <<'END'
^\[.* target
^\[.* libc\.so\.6
^\[.* plugin\.so
^\(int\) counter = 55$
^\(int\) seen = 15$
^\(int\) counter = 55$
stop reason = instruction step
frame #0: .*_start
response: 303a3
END
session "the end of the recording" --goto end
exit $failed
