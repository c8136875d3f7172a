#!/bin/bash
# Questions to a history of which every answer is known: deja calls, deja accesses, deja heap; and bad ones.
# Runs in the build directory.
#
# usage: tests/cli/queries.sh     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
work_in queries
can_record
${CC:-gcc} -O1 -g "$here/queries.c" -o prog -lpthread || exit 99
"$deja" record -o t.deja ./prog >out || fail "recording: $(cat out)"

# get FILE EXPRESSION: of the JSON in FILE, which is `a` there
get() {
	/usr/bin/python3 -c 'import json, sys
a = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$@"
}
# same WHAT HAVE WANT
same() {
	[ "$2" = "$3" ] || fail "$1: $2, not $3"
}
# ask NAME ARGUMENT...: its answer in NAME.json
ask() {
	local name=$1
	shift
	"$deja" "$@" --json t.deja >"$name.json" 2>err || fail "deja $*: $(cat err)"
}
line() {
	grep -n "$1" "$here/queries.c" | head -1 | cut -d: -f1
}

# ---- deja calls
ask calls calls query_scale
same "arguments" "$(get calls.json '[c["arguments"].split(", s=")[0] for c in a]')" \
	"['x=0, n=0', 'x=0.5, n=1', 'x=1, n=2', 'x=2, n=-1']"
same "results" "$(get calls.json '[c["result"] for c in a]')" "['104', '104.5', '106', '63']"
same "callers" "$(get calls.json 'sorted({c["caller"] for c in a})')" \
	"['main at queries.c:$(line 'd += query_scale')', 'query_thread at queries.c:$(line 'query_scale(2,')']"
# it calls nothing: what its calls took is what was executed of it, each instruction where it lies
ask count count --code query_scale
executed=$(get count.json 'a[0]["executed"]')
same "instructions" "$(get calls.json 'sum(c["instructions"] for c in a)')" "$executed"
ask entry accesses query_scale
start=$(get entry.json 'a[0]["address"]')
size=$(nm -S prog | sed -n 's/^[0-9a-f]* \([0-9a-f]*\) . query_scale$/\1/p')
ask lines accesses "$start-$((start + 0x$size))" --executions
same "executions of all its instructions" "$(get lines.json 'len(a)')" "$executed"
position=$(get calls.json 'a[1]["position"]')
"$deja" backtrace t.deja "$position" | grep -q '^#0 .*query_scale at' || fail "$position is not in query_scale"
tid=$(get calls.json 'a[3]["position"].split("@")[1]')
ask one calls query_scale --thread "$tid"
same "--thread" "$(get one.json '[c["arguments"][:3] for c in a]')" "['x=2']"
ask part calls query_scale --from "$position" --to "$(get calls.json 'a[2]["position"]')"
same "--from --to, which is not part of it" "$(get part.json 'len(a)')" 1
ask limit calls query_scale --limit 2
same "--limit" "$(get limit.json 'len(a)')" 2
# recursion: inner calls are in outer ones; each result is its own
ask recurse calls query_recurse
same "recursion" "$(get recurse.json '[(c["arguments"], c["result"]) for c in a]')" \
	"[('n=3', '6'), ('n=2', '3'), ('n=1', '1'), ('n=0', '0')]"
same "instructions of the inner within the outer" \
	"$(get recurse.json 'all(x["instructions"] > y["instructions"] > 0 for x, y in zip(a, a[1:]))')" True
# one that is left by longjmp has no result
ask leave calls query_leave
same "longjmp" "$(get leave.json '[(c["arguments"], c["instructions"] is None) for c in a]')" \
	"[('how=0', False), ('how=1', True)]"
# a great result has a hidden argument, a great parameter lies on the stack
ask big calls query_big
same "structures" "$(get big.json 'a[0]["arguments"]')" "c=-3, b=?, last=65535"
# addresses, and functions without debug information
code=$(nm prog | awk '$3 == "query_scale" { print $1 }')
ask offset calls "prog+0x$code"
same "MODULE+OFFSET" "$(get offset.json 'len(a)')" 4
strip -o prog.stripped prog

# ---- deja accesses
ask counter accesses query_counter
same "kinds" "$(get counter.json '[(x["kind"], x["value"], x["size"]) for x in a if "query_scale" in x["code"]]')" \
	"[('read', '0', 4), ('write', '0', 4), ('read', '0', 4), ('write', '0x1', 4), ('read', '0x1', 4), ('write', '0x3', 4), ('read', '0x3', 4), ('write', '0x2', 4)]"
ask buffer accesses query_buffer --writes
same "a system call and memcpy" "$(get buffer.json '[x["kind"] for x in a][:2]')" "['call read', 'write']"
same "what memcpy wrote" "$(get buffer.json 'a[1]["value"]')" 0x6c6c6568
ask slice accesses query_buffer+10:2 --writes
same "two bytes of it" "$(get slice.json '[(x["value"], x["size"]) for x in a]')" "[('0x6c6c', 2)]"
address=$(get slice.json 'hex(int(str(a[0]["address"]), 0))')
ask absolute accesses "$address-$((address + 2))" --writes
cmp -s slice.json absolute.json || fail "by address: $(cat absolute.json)"
ask runs accesses query_scale
same "executions" "$(get runs.json '[x["kind"] for x in a]')" "['execution', 'execution', 'execution', 'execution']"

# what the emulator does not store: each byte that changed was written, and known values are those
${CC:-gcc} -O1 -g -w -no-pie "$here/saved.c" -o saved || exit 99
"$deja" record -o saved.deja ./saved >saved.out || fail "recording saved"
for way in "" --emulate; do
	"$deja" accesses $way --writes --all --json areas saved.deja >saved.json || fail "accesses $way of saved"
	/usr/bin/python3 - <<-'END' || fail "what instructions save $way"
		import json
		rows = [r for r in json.load(open("saved.json")) if r["code"].startswith("with_")]
		base = None
		names = []
		for line in open("saved.out"):
		    name, text = line.split()
		    names.append(name)
		    memory = bytes.fromhex(text)
		    before = bytearray(b"\xa5" * len(memory))
		    before[512:576] = bytes(64)
		    covered, known = set(), set()
		    mine = [r for r in rows if r["code"].split()[0] == name]
		    base = base or min(int(str(r["address"]), 0) for r in mine)
		    for r in mine:
		        at, value = int(str(r["address"]), 0) - base, r["value"]
		        covered.update(range(at, at + r["size"]))
		        if value is None:
		            continue
		        want = memory[at:at + r["size"]]
		        have = bytes.fromhex(value) if " " in value else int(value, 0).to_bytes(r["size"], "little")
		        assert have == want, (name, at, have, want)
		        known.update(range(at, at + r["size"]))
		    assert len(covered) == sum(r["size"] for r in mine), name
		    # what is reserved in the middle is the processor's affair
		    changed = {i for i in range(len(memory)) if memory[i] != before[i] and not 416 <= i < 512}
		    assert changed <= covered, (name, sorted(changed - covered))
		    if name in ("with_fxsave", "with_xsave", "with_xsavec"):
		        st = {i for i in range(32, 160) if i % 16 < 10}
		        assert st | set(range(160, 416)) <= known, (name, sorted(known))
		    if name in ("with_xsave_6", "with_xsavec"):
		        assert set(range(576, 832)) <= known, name
		    if name == "with_xsavec_2":
		        assert covered == set(range(24, 32)) | set(range(160, 416)) | set(range(512, 528)), sorted(covered)
		    if name in ("with_fnsave", "with_pushfw", "with_stos", "with_stos_down"):
		        size = {"with_fnsave": 108, "with_pushfw": 2, "with_stos": 14, "with_stos_down": 5}[name]
		        assert len(covered) == size and not known, (name, covered)
		    exact = {"with_maskmov": {0, 2, 10}, "with_maskmovq": {1, 7}, "with_zmm": set(range(128, 192)),
		             "with_ymm_masked": set(range(32, 64)), "with_narrow": set(range(16, 32)),
		             "with_part": set(range(48, 64)), "with_scalar": set(range(12, 16)),
		             "with_scatter": {8 + 4 * i + k for i in (0, 3, 50, 9, 20, 21, 30, 40) for k in range(4)}}
		    if name in exact:
		        assert covered == exact[name], (name, sorted(covered))
		        assert known == (covered if "maskmov" in name else set()), (name, sorted(known))
		assert len(names) >= 7, names
	END
	"$deja" accesses $way --reads --all --json areas saved.deja >read.json || fail "accesses $way of saved, reads"
	/usr/bin/python3 - <<-'END' || fail "what instructions read $way"
		import json
		base = min(int(str(r["address"]), 0) for r in json.load(open("saved.json")) if r["code"].startswith("with_"))
		rows = {}
		for r in json.load(open("read.json")):
		    name = r["code"].split()[0]
		    if name.startswith("reads_") and r["kind"] == "read":
		        rows.setdefault(name.split("+")[0], []).append((int(str(r["address"]), 0) - base, r["size"], r["value"]))
		want = {"reads_rcpps": [(16, 16, None)], "reads_environment": [(64, 28, None)], "reads_strings": [(200, 12, None)],
		        "reads_zmm": [(64, 64, None)], "reads_one": [(4, 4, None)],
		        "reads_gather": [(2 * i, 8, None) for i in (0, 3, 50, 9)]}
		assert {"reads_rcpps", "reads_environment", "reads_strings"} <= set(rows), rows
		assert "reads_zmm" in rows or "with_zmm" not in open("saved.out").read(), rows
		for name in rows:
		    assert rows[name] == want[name], (name, rows[name])
	END
done

# ---- as many answers as there are, in order, and not in memory
${CC:-gcc} -O1 -g "$here/many.c" -o many -lpthread || exit 99
"$deja" record -o many.deja ./many || fail "recording many"
/usr/bin/python3 - "$deja" $(sanitized && echo 1000000 || echo 40000) <<-'END' || fail "a great many answers"
	import json, os, re, subprocess, sys, time
	def ask(*words):
	    """The answer, and how much memory of its own the command had at most."""
	    most = 0
	    with open("many.json", "w") as out:
	        run = subprocess.Popen([sys.argv[1], *words, "--json", "many.deja"], stdout=out)
	        while run.poll() is None:
	            for task in filter(str.isdigit, os.listdir("/proc")):
	                try:
	                    status = open("/proc/%s/status" % task).read()
	                except OSError:
	                    continue
	                anon = re.search(r"PPid:\s*%d\n(?s:.*)RssAnon:\s*(\d+)" % run.pid, status)
	                most = max(most, int(anon.group(1)) if anon else 0)
	            time.sleep(0.02)
	    assert run.returncode == 0, run.returncode
	    return json.load(open("many.json")), most
	few, little = ask("calls", "many_step", "--limit", "1000")
	calls, memory = ask("calls", "many_step", "--all")
	assert len(few) == 1000 and len(calls) == 200000, (len(few), len(calls))
	assert few == calls[:1000]
	order = [tuple(map(int, re.split("[:@]", c["position"]))) for c in calls]
	assert [o[:1] for o in order] == sorted(o[:1] for o in order)
	for tid in {o[2] for o in order}:
	    mine = [o for o in order if o[2] == tid]
	    assert len(mine) == 100000 and mine == sorted(mine)
	assert 500 < memory < little + int(sys.argv[2]), "%d kB for all, %d for a few" % (memory, little)
	# each call has its access
	accesses, _ = ask("accesses", "many_counter", "--writes", "--all")
	assert len(accesses) == 200000
	assert {int(a["value"], 0) for a in accesses} == set(range(100000))
END

# ---- deja heap: as memcheck has it, where that is installed
${CC:-gcc} -O1 -g -w -fno-optimize-sibling-calls "$here/heap.c" -o heap || exit 99
for way in twice inside wild child alone good; do
	follow=--follow
	[ $way = alone ] && follow=--no-follow # the child's part is not recorded
	(ulimit -c 0; "$deja" record $follow -o heap.deja ./heap ${way/alone/child} >/dev/null 2>&1)
	"$deja" heap heap.deja >heap.txt || fail "deja heap, $way"
	"$deja" heap --json heap.deja >heap.json
	defects='[(d["defect"], d["stack"].split(" at ")[0], d["freed by"] or "", d["allocated by"] or "")
		for d in a["defects"]]'
	case $way in
	twice) same "freed twice" "$(get heap.json "$defects" | sed 's/ at [a-z.:0-9]*//g')" \
		"[('double free', 'drop', 'drop < main', 'make < main')]" ;;
	inside) same "freed inside" "$(get heap.json "$defects" | sed 's/ at [a-z.:0-9]*//g')" \
		"[('free inside a block', 'drop', '', 'make < main')]" ;;
	wild) same "freed wildly" "$(get heap.json "$defects")" \
		"[('free of what was never allocated', 'drop', '', '')]" ;;
	child) same "freed twice, and by a child allocated" "$(get heap.json "$defects" | sed 's/ at [a-z.:0-9]*//g')" \
		"[('double free', 'drop', 'drop < main', 'made_by_child')]" ;;
	alone) same "freed twice, but by a child allocated" "$(get heap.json "$defects" | sed 's/ at [a-z.:0-9]*//g')" \
		"[('double free', 'drop', 'drop < main', '')]" ;;
	good) same "no defect" "$(get heap.json "$defects")" "[]" ;;
	esac
	same "leaks" "$(get heap.json '[sum(x[k] for x in a["alive"] if "< leak " in x["stack"]) for k in ("bytes", "blocks")]')" "[303, 3]"
	command -v valgrind >/dev/null || continue
	valgrind --run-libc-freeres=no ./heap $way >/dev/null 2>memcheck
	theirs=$(sed -n 's/,//g; s/.*in use at exit: \([0-9]*\) bytes in \([0-9]*\) blocks/\1 \2/p
		s/.*total heap usage: \([0-9]*\) allocs \([0-9]*\) frees \([0-9]*\) bytes.*/\1 \3 \2/p' memcheck | tr '\n' ' ')
	ours=$(sed -n 's/^\([0-9]*\) bytes in \([0-9]*\) blocks are alive; \([0-9]*\) allocations of \([0-9]*\) bytes, \([0-9]*\) frees/\1 \2 \3 \4 \5 /p' heap.txt)
	# without its own allocator the program ends at the first defect; and its vfork is fork
	[ $way = wild ] || [ $way = child ] || [ $way = alone ] || same "what memcheck counts, $way" "$ours" "$theirs"
done
ask early heap --to 0:100
same "alive at the beginning" "$(get early.json 'a["alive"]')" "[]"

# one thread waits in malloc, or in realloc, for a block that another one frees then: no defect
${CC:-gcc} -O1 -g -w -fno-builtin "$here/heap-waits.c" -o waits -lpthread || exit 99
"$deja" record -o waits.deja ./waits || fail "recording threads that wait in malloc"
"$deja" heap --json waits.deja >waits.json || fail "deja heap, threads that wait in malloc"
same "no defect of threads that wait" "$(get waits.json '[(d["position"], d["defect"], d["stack"]) for d in a["defects"]]')" "[]"
same "nothing left of what they had" "$(get waits.json '[b["stack"] for b in a["alive"] if b["bytes"] % 777 == 0]')" "[]"

# what the C library frees on its own at the end of a thread, from the cache of what the thread had freed,
# is no defect; what it allocated for the program and frees is seen as ever
cat >cached.c <<'END'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *worker(void *arg)
{
	size_t size = 0;
	char *line = NULL;
	FILE *f = fopen("cached.c", "r");
	free(malloc(100));
	getline(&line, &size, f);
	free(line);
	fclose(f);
	return arg;
}
int main(void)
{
	pthread_t thread;
	return pthread_create(&thread, NULL, worker, NULL) || pthread_join(thread, NULL);
}
END
for way in "" -static; do
	${CC:-gcc} -O1 -g -w -fno-builtin $way cached.c -o cached -lpthread 2>/dev/null || {
		[ "$way" ] && continue || exit 99
	}
	"$deja" record -o cached.deja ./cached || fail "recording a thread's cache"
	"$deja" heap --json cached.deja >cached.json || fail "deja heap, a thread's cache"
	same "no defect in the cache, ${way:-dynamic}" "$(get cached.json '[(d["position"], d["defect"], d["stack"]) for d in a["defects"]]')" "[]"
	same "nothing left of the thread, ${way:-dynamic}" "$(get cached.json '[b["stack"] for b in a["alive"] if "worker" in b["stack"]]')" "[]"
done

# of a part of the history only what happened there is said, but by what was before and elsewhere: a
# child frees what it inherited, one block of it twice
cat >parts.c <<'END'
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#define KEEP __attribute__((noinline, noclone))
static void *kept[1500];
KEEP static void make(void)
{
	for (int i = 0; i < 1500; i++)
		kept[i] = malloc(24);
}
KEEP static void drop(int i)
{
	free(kept[i]);
}
KEEP static void *leak(void)
{
	return malloc(500);
}
KEEP void halfway(void)
{
	__asm__ volatile("");
}
int main(void)
{
	static void *volatile left;
	make();
	left = leak();
	halfway();
	left = leak();
	if (fork() == 0) {
		for (int i = 0; i < 1500; i++)
			drop(i);
		drop(1499);
		_exit(0);
	}
	wait(NULL);
	for (int i = 0; i < 1500; i++)
		drop(i);
	return 0;
}
END
${CC:-gcc} -O1 -g -w -fno-builtin parts.c -o parts || exit 99
(ulimit -c 0; "$deja" record -o parts.deja ./parts >/dev/null 2>&1)
"$deja" calls halfway --json parts.deja >halfway.json
halfway=$(get halfway.json 'a[0]["position"]')
child=$("$deja" ps --json parts.deja >ps.json; get ps.json 'a[1]["pid"]')
whose='[[(d["defect"], d["position"].split("@")[1] == "'$child'", d["allocated by"][:6]) for d in a["defects"]],
	[b["blocks"] for b in a["alive"] if b["bytes"] == 500]]'
# part DEFECTS ALIVE OPTION...
part() {
	local defects=$1 alive=$2
	shift 2
	"$deja" heap --json "$@" parts.deja >part.json || fail "deja heap $*"
	same "deja heap $*" "$(get part.json "$whose")" "[$defects, $alive]"
}
part "[('double free', True, 'make a')]" "[1, 1]"
part "[('double free', True, 'make a')]" "[1]" --from "$halfway"
part "[('double free', True, 'make a')]" "[]" --process "$child"
part "[('double free', True, 'make a')]" "[]" --thread "$child" --from "$halfway"
part "[]" "[1]" --process "${halfway#*@}" --from "$halfway"
part "[]" "[1]" --to "$halfway"
# so it is beside other questions, which are told of no more than was asked for
{
	printf 'deja heap:\n\n' && "$deja" heap --from "$halfway" --process "$child" parts.deja
	printf '\ndeja calls:\n\n' && "$deja" calls drop --from "$halfway" --process "$child" parts.deja
} >apart
for q in heap "calls drop"; do
	printf -v other %s "$([ "$q" = heap ] && echo "calls drop" || echo heap)"
	"$deja" $q --with "$other" --from "$halfway" --process "$child" parts.deja >joined.txt
	[ "$q" = heap ] && ! cmp -s apart joined.txt && fail "of a part, together: $(diff apart joined.txt | head)"
	same "answers of a part, $q first" "$(sort joined.txt | tr -s '\n')" "$(sort apart | tr -s '\n')"
done

# 65536 stacks, each met twice, are found at once, and not by looking through all: the limit, in seconds
# of processor time, is a hundred times what that takes, and a third of what this would
cat >ways.c <<'END'
#include <stdlib.h>
static volatile int passed;
static void go(unsigned way, int n);
#define WAY(name) static __attribute__((noinline)) void name(unsigned way, int n) { go(way, n); passed++; }
WAY(north) WAY(east) WAY(south) WAY(west)
static inline __attribute__((always_inline)) void go(unsigned way, int n)
{
	if (n == 0)
		free(malloc(16));
	else if ((way & 3) == 0)
		north(way >> 2, n - 1);
	else if ((way & 3) == 1)
		east(way >> 2, n - 1);
	else if ((way & 3) == 2)
		south(way >> 2, n - 1);
	else
		west(way >> 2, n - 1);
}
int main(void)
{
	for (unsigned way = 0; way < 2 * 65536; way++)
		go(way, 8);
	return passed == 0;
}
END
${CC:-gcc} -O1 -w -fno-builtin -fno-optimize-sibling-calls ways.c -o ways && "$deja" record -o ways.deja ./ways ||
	fail "recording many stacks"
(ulimit -c 0 -t 50; "$deja" heap --json ways.deja >ways.json) || fail "deja heap, many stacks: status $?"
same "many stacks" "$(get ways.json 'a')" "{'defects': [], 'alive': []}"

# ---- deja races: as ThreadSanitizer has it, where the compiler has that
${CC:-gcc} -O1 -g -w "$here/races.c" -o races -lpthread || exit 99
"$deja" record -o races.deja ./races >/dev/null || fail "recording races"
"$deja" races --json races.deja >races.json || fail "deja races"
get races.json '"\n".join(sorted({x[k].split(" at ")[0] for x in a for k in ("code", "its code")}))' >ours
same "races" "$(tr '\n' ' ' <ours)" "racy_add racy_late racy_look racy_publish racy_watch "
same "both kinds" "$(get races.json 'sorted({x["kind"] for x in a} | {x["its kind"] for x in a})')" "['read', 'write']"
if ${CC:-gcc} -O1 -g -w -fsanitize=thread "$here/races.c" -o tsan -lpthread 2>/dev/null; then
	./tsan >/dev/null 2>tsan.txt
	# each race has two stacks, of which the innermost frame counts
	grep '^    #0 ' tsan.txt | grep -o 'racy_[a-z]*\|calm_[a-z]*' | sort -u >theirs
	grep -q 'data race' tsan.txt && ! cmp -s ours theirs && fail "ThreadSanitizer says: $(cat theirs)"
fi
"$deja" races t.deja >none.txt || fail "deja races without races"
same "a program without" "$(sed 1d none.txt)" "(none)"

# of a part of the history only races there are shown, or of a thread those that it is one side of; what
# orders accesses is known by all of it: here, who made the threads and that they have ended
cat >halves.c <<'END'
#include <pthread.h>
#include <semaphore.h>
#define KEEP __attribute__((noinline, noclone))
static volatile long early, late, calm;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t begun;
KEEP void racy_first(void) { early = 1; }
KEEP void racy_second(void) { early = 2; }
KEEP void racy_late(void) { late++; }
KEEP void halfway(void) { __asm__ volatile(""); }
static void *worker(void *arg)
{
	if (arg)
		racy_second();
	sem_post(&begun);
	pthread_mutex_lock(&mutex);
	calm++;
	pthread_mutex_unlock(&mutex);
	racy_late();
	return arg;
}
int main(void)
{
	pthread_t a, b;
	sem_init(&begun, 0, 0);
	calm = 5;
	pthread_mutex_lock(&mutex);
	pthread_create(&a, NULL, worker, &a);
	racy_first();
	pthread_create(&b, NULL, worker, NULL);
	sem_wait(&begun);
	sem_wait(&begun);
	halfway();
	pthread_mutex_unlock(&mutex);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	calm = 7;
	late = 3;
	return 0;
}
END
${CC:-gcc} -O1 -g -w halves.c -o halves -lpthread || exit 99
"$deja" record -o halves.deja ./halves || fail "recording halves"
"$deja" calls halfway --json halves.deja >halfway.json
halfway=$(get halfway.json 'a[0]["position"]')
# raced WANT OPTION...: the functions in races, without their "racy_"
raced() {
	local want=$1
	shift
	"$deja" races --json "$@" halves.deja >raced.json || fail "deja races $*"
	same "deja races $*" "$(get raced.json '" ".join(sorted({x[k].split(" at ")[0][5:] for x in a for k in ("code", "its code")}))')" "$want"
}
raced "first late second"
raced "late" --from "$halfway"
raced "first second" --to "$halfway"
raced "first second" --thread "${halfway#*@}"
raced "first late second" --process "${halfway#*@}"
raced "" --from "$halfway" --thread "${halfway#*@}"

# what was allocated before an exec is gone
cat >exec.c <<'END'
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char *volatile p = malloc(argc > 1 ? 4321 : 1234);
	if (argc > 1)
		execl(argv[0], argv[0], (char *)NULL);
	return !p;
}
END
${CC:-gcc} -O0 -g exec.c -o exec && "$deja" record -o exec.deja ./exec again || fail "recording exec"
"$deja" heap --json exec.deja >heap.json || fail "heap of exec"
same "alive behind an exec" "$(get heap.json '[b["bytes"] for b in a["alive"] if b["bytes"] in (1234, 4321)]')" "[1234]"

# ---- deja diff
${CC:-gcc} -O1 -g -nostdlib -static-pie -fno-stack-protector "$here/diff.c" -o diff || exit 99
for n in 27 26 271; do
	echo $n >number
	"$deja" record -o diff$n.deja ./diff
done
echo 27 >number
"$deja" record -o again.deja ./diff
"$deja" diff diff27.deja again.deja >same.txt || fail "deja diff"
grep -q 'the same way' same.txt || fail "the same run twice differs: $(cat same.txt)"
"$deja" diff --json diff27.deja diff26.deja >diff.json || fail "deja diff"
same "where they part" "$(get diff.json '[(d["code"].split(" at ")[0], d["there"].split(" at ")[0]) for d in a]')" "[('main', 'to odd')]"
"$deja" backtrace diff27.deja "$(get diff.json 'a[0]["position"]')" | grep -q 'in main' || fail "not a position of the first"
"$deja" diff --json diff27.deja diff271.deja >diff.json
same "another result" "$(get diff.json '[(d["there"], d["here"]) for d in a]')" "[('read = 3', 'read = 4')]"

# a recording that was cut is compared as far as it goes, whichever of the two it is
head -c $(($(stat -c %s diff26.deja) - 500)) diff26.deja >cut.deja
for both in "cut.deja diff27.deja" "diff27.deja cut.deja"; do
	"$deja" diff $both >out 2>err
	same "status of deja diff $both" "$?" 2
	[ -s out ] && [ "$(grep -c '^deja: cut.deja: damaged or incomplete' err)" = 1 ] && [ "$(wc -l <err)" = 1 ] ||
		fail "deja diff $both: $(cat out err)"
done

# ---- so many answers: for programs no more either, and that there are more is said
limited() {
	"$deja" "$1" --json --limit 3 "${@:2}" t.deja >few.json 2>err || fail "deja $*, 3 answers: $(cat err)"
	same "answers of deja $*" "$(get few.json 'max(len(rows) for rows in (a.values() if isinstance(a, dict) else [a]))')" 3
	grep -q '^deja: .*--limit says how many' err || fail "deja $* does not say that there are more: $(cat err)"
	"$deja" "$1" --json --limit 1000000 "${@:2}" t.deja 2>&1 >/dev/null | grep . && fail "deja $* says that something lacks"
}
limited calls query_scale
limited accesses query_counter
limited profile
limited profile --by path
limited edges
limited count --by function
limited count --callers query_scale
limited stacks --log

# ---- bad questions: one clear line each, and no answer
refused 1 "no function 'nothing'" calls nothing t.deja
refused 1 "no variable or function 'nothing'" accesses nothing t.deja
refused 1 'too few arguments' calls
refused 1 'cannot open' diff nothing t.deja
refused 1 'no bytes' accesses 0x1000:0 t.deja
refused 1 'ends before it begins' accesses 0x1000-0xfff t.deja
refused 1 'end of memory' accesses 0xffffffffffffffff:2 t.deja
refused 1 'at least 1' calls --limit 0 query_scale t.deja
"$deja" record -o stripped.deja ./prog.stripped >/dev/null
refused 1 "no function 'query_scale'" calls query_scale stripped.deja
printf 'void _start(void) { __asm__("mov $60, %%eax; syscall"); }' >none.c
${CC:-gcc} -nostdlib -static none.c -o none && "$deja" record -o none.deja ./none >/dev/null 2>&1
refused 1 'no module in the recording has a function malloc' heap none.deja
conclude
