# Pipes, subshells, job control and signals, for the end-to-end tests; bash. Prints the same every time.
set -u
set -m # job control, without a terminal
t() { printf '%s: ' "$1"; shift; "$@"; }

# pipes of many parts, subshells within subshells
t pipe sh -c 'seq 500 | sed s/1/x/ | tac | sort | uniq | grep -c x'
t status bash -c 'false | true | (exit 3) | cat; echo "${PIPESTATUS[@]}"'
echo nested: "$(echo $(echo $( (echo a; (echo b; (exit 4)); echo $?) ) ) | tr ' ' ,)"
for i in 1 2 3; do for k in 1 2 3; do echo $((i * k)); done | (read a; read b; echo $a$b; cat | wc -l); done | paste -s -d ' '
while read -r a b; do echo "$b:$a"; done < <(paste <(seq 5) <(seq 5 | tac)) | paste -s -d ' '
cat <<< "here $(wc -c <<< string)"

# jobs
sleep 30 & a=$!
(exit 7) & b=$!
wait $b; echo "job $?"
kill -TERM $a; wait -f $a 2>/dev/null; echo "terminated $?"
{ sleep 0.02; exit 5; } & wait -n; echo "first $?"
for i in 1 2 3 4 5 6; do (exit $i) & pids="${pids-} $!"; done; sum=0
for pid in $pids; do wait $pid; sum=$((sum * 7 + $?)); done; echo "all $sum"

# stopped, continued, brought to the foreground
bash -c 'kill -STOP $$; exit 9' &
pid=$!
wait $pid; echo "stopped $?"
kill -CONT $pid; until wait -f $pid; r=$?; [ $r -lt 128 ]; do :; done; echo "continued $r"
sleep 0.05 & fg %sleep >/dev/null; echo "foreground $?"

# coprocess, named pipe, traps
coproc C { while read -r x; do echo $((x * x)); done; }
for i in 3 4 5; do echo $i >&"${C[1]}"; read -r y <&"${C[0]}"; printf '%s ' $y; done; echo
exec {C[1]}>&-; wait $C_PID 2>/dev/null
mkfifo f; (seq 100 >f) & awk '{ s += $1 } END { print "fifo", s }' f; wait; rm f
trap 'echo usr1' USR1; (kill -USR1 $$); sleep 0; trap - USR1
trap 'n=$((n + 1))' CHLD; n=0; for i in 1 2 3 4 5; do /bin/true; done; trap - CHLD; echo "children $n"
(trap 'echo bye; exit 6' TERM; bash -c 'kill -TERM $PPID'; sleep 5 & wait); echo "trapped $?"
timeout 0.1 sleep 5; echo "timeout $?"
seq 1 40 | xargs -n 4 -P 3 sh -c 'echo $(($1 + $2 + $3 + $4))' - | sort -n | paste -s -d ' '
yes | head -n 1000 | wc -l

# an orphan that outlives its parent, and is waited for through a pipe
(sh -c '(sleep 0.1; echo orphan) & exit 0') | cat
exec bash -c 'trap "exit 21" EXIT; (exit 2); echo "last $?"'
