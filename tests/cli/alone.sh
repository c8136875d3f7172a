#!/bin/bash
# One thread, several, one again: what the one holds of the order of events it gives back, also when
# it finds itself alone in the middle of that (recorder/order.c).
. "$(dirname "$0")/../lib/shell.sh"
work_in alone
${CC:-gcc} -O1 -pthread -o alone "$here/alone.c" || exit 99
can_record

for order in kernel fence acqrel load; do
	timeout -s KILL 100 "$deja" record --order $order -o t.deja -- ./alone >out 2>err || fail "--order $order: $(cat err)"
	[ "$(cat out)" = 10005 ] || fail "--order $order: it said $(cat out)"
	timeout -s KILL 100 "$deja" verify t.deja >verified 2>&1 || fail "--order $order: $(tail -3 verified)"
done
conclude
