#!/bin/bash
# Random combinations of signals, masks, faults, stops, children, execs, filters and limits
# (tests/cli/combine.c): each seed is run natively and recorded, must print the same and end the same
# way, and its trace must replay. Prints the command that does a failing seed again.
#
# usage: tests/cli/combine.sh [SEEDS [CASES [FIRST]]]     (DEJA names the program under test)
. "$(dirname "$0")/../lib/shell.sh"
seeds=${1:-20} cases=${2:-60} first=${3:-1}
work_in combine
${CC:-gcc} -O1 -w "$here"/combine*.c -o combine || exit 99
can_record

# Why a step with the trap flag trapped (DR6) gets lost now and then where a hypervisor comes in between:
# its signal has the code TRAP_BRKPT, 1, not TRAP_TRACE, 2 (arch/x86/kernel/traps.c, get_si_code()).
# Natively that was seen 5 and 8 times in 1,280,000 steps on a busy machine. And some machines lose the
# upper half of x87's pointers (`flags cuts`).
by_chance() {
	local code='s/\[5 code=1 (.* tf=1 )/[5 code=2 \1/' pointers='s/ (fip|fdp)=-?[0-9]+//g'
	cmp -s <(sed -E -e "$code" -e "$pointers" native) <(sed -E -e "$code" -e "$pointers" recorded)
}

for ((seed = first; seed < first + seeds; seed++)); do
	predict=shadow
	case $((seed % 8)) in 3) predict=last ;; 7) predict=none ;; esac
	follow=--follow
	[ $((seed % 4)) = 1 ] && follow=--no-follow
	as_natively "tests/cli/combine.sh 1 $cases $seed" "$follow --predict=$predict" ./combine "$seed" "$cases"
done
conclude
