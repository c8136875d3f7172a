/*
 * The q and Q packets: what both sides support, threads, settings (gdb manual, "General Query
 * Packets"). Settings that choose what stops the replay go straight to it.
 */
#include "gdbstub/session.h"

#include <string.h>

/* ---- support --------------------------------------------------------------------------- */

static const char supported[] =
	"QStartNoAckMode+;multiprocess+;swbreak+;hwbreak+;ReverseStep+;ReverseContinue+;"
	"vContSupported+;QCatchSyscalls+;QPassSignals+;QProgramSignals+;exec-events+;"
	"fork-events+;ConditionalBreakpoints+;"
	"binary-upload+;qXfer:features:read+;qXfer:auxv:read+;qXfer:exec-file:read+;"
	"qXfer:libraries-svr4:read+;qXfer:siginfo:read+;qXfer:threads:read+";

static bool handle_supported(struct session *s, struct scan *a)
{
	const struct {
		const char *name;
		bool *flag;
	} features[] = {
		{ "multiprocess+", &s->multiprocess },
		{ "exec-events+", &s->exec_events },
		{ "fork-events+", &s->fork_events },
	};
	scan_char(a, ':');
	while (a->p < a->end) {
		struct scan part = scan_until(a, ';');
		for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
			struct scan word = part;
			if (scan_word(&word, features[i].name) && word.p == word.end)
				*features[i].flag = true;
		}
	}
	textbuf_printf(&s->reply, "PacketSize=%x;%s", LINK_PACKET_ANNOUNCED, supported);
	return true;
}

static bool handle_no_acks(struct session *s, struct scan *a)
{
	(void)a;
	if (s->link)
		s->link->acks = false;
	return reply_ok(s);
}

static bool handle_non_stop(struct session *s, struct scan *a)
{
	if (scan_char(a, '0'))
		return reply_ok(s);
	return reply_error_text(s, "a replay is all-stop");
}

/* ---- what stops the replay ---------------------------------------------------------------- */

static bool handle_pass_signals(struct session *s, struct scan *a)
{
	uint64_t mask = ~0ULL;
	while (a->p < a->end) {
		struct scan part = scan_until(a, ';');
		uint64_t gdb;
		if (!scan_hex(&part, &gdb) || part.p != part.end)
			return reply_error(s, 1);
		int signo = gdbsignal_to_linux(gdb);
		if (signo > 0 && signo < 64)
			mask &= ~(1ULL << signo);
	}
	replay_report_signals(s->r, mask);
	return reply_ok(s);
}

/* Which signals reach the program was settled when it was recorded. */
static bool handle_ignored(struct session *s, struct scan *a)
{
	(void)a;
	return reply_ok(s);
}

#define MAX_CAUGHT 1024

static bool handle_catch_syscalls(struct session *s, struct scan *a)
{
	uint64_t numbers[MAX_CAUGHT];
	size_t n = 0;
	if (scan_char(a, '0') && a->p == a->end) {
		replay_catch_syscalls(s->r, false, NULL, 0);
		return reply_ok(s);
	}
	if (!scan_char(a, '1'))
		return reply_error(s, 1);
	while (scan_char(a, ';')) {
		if (n == MAX_CAUGHT || !scan_hex(a, &numbers[n]))
			return reply_error(s, 1);
		n++;
	}
	if (a->p != a->end)
		return reply_error(s, 1);
	replay_catch_syscalls(s->r, true, numbers, n);
	return reply_ok(s);
}

/* ---- threads and process ------------------------------------------------------------------- */

static bool handle_current_thread(struct session *s, struct scan *a)
{
	if (a->p != a->end)
		return reply_empty(s);
	if (s->no_process)
		return reply_error(s, 3);
	textbuf_str(&s->reply, "QC");
	put_thread_id(s, replay_thread(s->r));
	return true;
}

#define LISTED_THREADS 4096

static bool handle_threads_first(struct session *s, struct scan *a)
{
	static int32_t tids[LISTED_THREADS];
	(void)a;
	size_t n = s->no_process ? 0 : replay_threads(s->r, tids, LISTED_THREADS);
	for (size_t i = 0; i < n && i < LISTED_THREADS; i++) {
		textbuf_char(&s->reply, i ? ',' : 'm');
		put_thread_id(s, tids[i]);
	}
	if (n == 0)
		textbuf_char(&s->reply, 'l');
	return true;
}

static bool handle_threads_next(struct session *s, struct scan *a)
{
	(void)a;
	textbuf_char(&s->reply, 'l');
	return true;
}

static bool handle_thread_info(struct session *s, struct scan *a)
{
	int32_t pid, tid;
	if (!scan_thread_id(a, &pid, &tid) || !session_has_thread(s, tid))
		return reply_error(s, 3);
	const char *name = session_thread_name(s, tid);
	textbuf_hex(&s->reply, name, strlen(name));
	return true;
}

/* "Attached": when gdb quits it leaves the program alone rather than kill it. */
static bool handle_attached(struct session *s, struct scan *a)
{
	(void)a;
	textbuf_char(&s->reply, '1');
	return true;
}

const struct session_command session_queries[] = {
	{ "QCatchSyscalls:", handle_catch_syscalls },
	{ "QNonStop:", handle_non_stop },
	{ "QPassSignals:", handle_pass_signals },
	{ "QProgramSignals:", handle_ignored },
	{ "QStartNoAckMode", handle_no_acks },
	{ "qAttached", handle_attached },
	{ "qCRC:", handle_mem_crc },
	{ "qC", handle_current_thread },
	{ "qRcmd,", handle_monitor },
	{ "qSearch:memory:", handle_mem_search },
	{ "qSupported", handle_supported },
	{ "qGetTLSAddr:", handle_tls_address },
	{ "qSymbol:", handle_symbol },
	{ "qThreadExtraInfo,", handle_thread_info },
	{ "qXfer:", handle_xfer },
	{ "qfThreadInfo", handle_threads_first },
	{ "qsThreadInfo", handle_threads_next },
	{ NULL, NULL },
};
