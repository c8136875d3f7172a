#!/bin/bash
# Traces made to run code in gdb, to write outside their place or to cost more than their size: none
# of it comes to pass (doc/security.md).
#
# usage: tests/cli/hostile.sh     (DEJA names the program under test; in the build directory)
. "$(dirname "$0")/../lib/shell.sh"
edit=$build/tests/cli/edit-trace
needs "$edit"
command -v gdb >/dev/null || { echo "gdb is not installed"; exit 77; }

work_in hostile
mkdir home tmp outside
mark=$work/it-ran
# the configuration that people copy from one another when gdb declines to load something
printf 'set auto-load safe-path /\nset confirm off\n' >home/.gdbinit

python="open('$mark', 'a').write('python\\\\n')"
shell="shell echo gdb >>$mark"
cat >victim.cc <<EOF
#include <string>
#include <vector>
#define STRING(x) #x
__asm__(".pushsection \".debug_gdb_scripts\",\"MS\",@progbits,1\n"
	".byte 4\n.ascii \"gdb.inlined-script\\\\n\"\n.ascii \"$python\\\\n\"\n.byte 0\n"
	".byte 6\n.ascii \"gdb.inlined-script-too\\\\n\"\n.ascii \"$shell\\\\n\"\n.byte 0\n"
	".byte 1\n.asciz \"$work/beside.py\"\n"
	".popsection\n");
int use(const std::vector<std::string> &words) { return (int)words.size(); }
int main() { std::vector<std::string> words{"time", "travel"}; return use(words); }
EOF
echo "open('$mark', 'a').write('beside')" >beside.py
echo "$shell" >beside.gdb
{ printf '\177ELF'; echo; cat beside.py; } >elf.py
"${CXX:-g++}" -g -O0 victim.cc -o victim || exit 99
"$deja" record -o plain.deja ./victim
[ $? = 2 ] || { echo "FAIL: recording"; exit 1; }
cp victim plain-victim
python3 - "$mark" <<'EOF'
import sys  # the test's own check: the script in the section is what gdb would run
assert sys.argv[1].encode() in open("victim", "rb").read()
EOF
[ $? = 0 ] || { echo "FAIL: no script in the program"; exit 1; }


# attack NAME EDIT...: replay the trace so edited, with gdb's own configuration and the user's
attack() {
	local name=$1
	shift
	rm -f hostile.deja
	"$edit" plain.deja hostile.deja "$@" || { fail "$name: edit-trace"; return; }
	"$deja" verify hostile.deja >verify.out 2>&1 || fail "$name: $(cat verify.out)"
	(cd outside && HOME=$work/home TMPDIR=$work/tmp timeout 60 "$deja" replay ../hostile.deja -- -q \
		-batch -ex 'break use' -ex 'continue' -ex 'p words' -ex 'info sharedlibrary' \
		-ex 'bt' >"$work/gdb.out" 2>&1)
	[ -e "$mark" ] && { fail "$name: code of the trace ran: $(cat "$mark")"; rm -f "$mark"; }
	grep -q 'Breakpoint 1, use' gdb.out || { fail "$name: gdb did not get there"; tail -5 gdb.out; }
	[ -z "$(ls -A outside)" ] || fail "$name: wrote into the working directory"
}

# gdb itself would run it: else this test could not fail
HOME=$work/home gdb -q -batch -ex 'info line main' plain-victim >gdb.out 2>&1
[ -e "$mark" ] || echo "note: this gdb does not run scripts in sections; that part shows nothing"
rm -f "$mark"

attack "scripts in a section"
program=$(cd "$work" && pwd -P)/victim
libstdcxx=$(realpath "$(ldd victim | sed -n "s/.*libstdc++.* => \([^ ]*\) .*/\1/p")")
[ -f "$libstdcxx" ] || fail "no libstdc++"
attack "scripts beside a file" add "$program-gdb.py" beside.py add "$program-gdb.gdb" beside.gdb \
	add "$libstdcxx-gdb.py" beside.py
for top in /usr/share/gcc/python /usr/share/gcc-12/python /usr/share/gdb/python; do
	attack "Python modules in $top" add "$top/libstdcxx/__init__.py" beside.py \
		add "$top/libstdcxx/v6/__init__.py" beside.py add "$top/libstdcxx/v6.py" elf.py \
		add "//usr/share/./gcc/python/libstdcxx/__init__.py" beside.py
done
attack "gdb's own directories" add "/.gdb$libstdcxx-gdb.py" beside.py \
	add "/usr/share/gdb/auto-load$libstdcxx-gdb.py" beside.py \
	add "/usr/lib/debug/.build-id/00/00.debug" elf.py
attack "names that climb" add "/../../../../../../../..$work/outside/climbed" elf.py \
	add "/usr/../../..$work/outside/climbed" elf.py add "relative" elf.py \
	add "/lib64/.." elf.py add "/" elf.py
attack "names for a terminal" add "/tmp/$(printf '\033]0;title\007')" elf.py \
	add "/tmp/$(printf 'a\nb')" elf.py
attack "a file where a directory is wanted" add "/usr" elf.py add "/tmp" elf.py

# one that claims a gigabyte: no gigabyte comes to lie in the temporary directory
"$edit" plain.deja hostile.deja zeros /usr/lib/zeros 1000 || fail "edit-trace zeros"
[ "$(stat -c %s hostile.deja)" -lt 20000000 ] || fail "the trace of zeros is large itself"
HOME=$work/home TMPDIR=$work/tmp timeout 60 "$deja" replay hostile.deja -- -q -nx -batch \
	-ex "shell du -sm $work/tmp >$work/size" -ex 'break use' -ex continue >gdb.out 2>&1
[ "$(cut -f1 size)" -lt 100 ] || fail "copies of $(cut -f1 size) MB"

[ "$failures" = 0 ] && echo "nothing ran, nothing was written"
conclude
