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
	"fork-events+;vfork-events+;ConditionalBreakpoints+;"
	"binary-upload+;qXfer:features:read+;qXfer:auxv:read+;qXfer:exec-file:read+;"
	"qXfer:libraries-svr4:read+;qXfer:siginfo:read+;qXfer:threads:read+";

static bool handle_supported(struct stub_session *s, struct stub_scan *a)
{
	const struct {
		const char *name;
		bool *flag;
		/* clang-format off */
	} features[] = {
		{ "multiprocess+", &s->multiprocess },
		{ "exec-events+", &s->exec_events },
		{ "fork-events+", &s->fork_events },
		{ "vfork-events+", &s->vfork_events },
	};
	/* clang-format on */
	stub_scan_char(a, ':');
	while (a->p < a->end) {
		struct stub_scan part = stub_scan_until(a, ';');
		for (size_t i = 0; i < sizeof(features) / sizeof(*features); i++) {
			struct stub_scan word = part;
			if (stub_scan_word(&word, features[i].name) && word.p == word.end)
				*features[i].flag = true;
		}
	}
	stub_textbuf_printf(&s->reply, "PacketSize=%x;%s", LINK_PACKET_ANNOUNCED, supported);
	return true;
}

static bool handle_no_acks(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	if (s->link)
		s->link->acks = false;
	return stub_reply_ok(s);
}

static bool handle_non_stop(struct stub_session *s, struct stub_scan *a)
{
	if (stub_scan_char(a, '0'))
		return stub_reply_ok(s);
	return stub_reply_error_text(s, "a replay is all-stop");
}

/* ---- what stops the replay ---------------------------------------------------------------- */

static bool handle_pass_signals(struct stub_session *s, struct stub_scan *a)
{
	uint64_t mask = ~0ULL;
	while (a->p < a->end) {
		struct stub_scan part = stub_scan_until(a, ';');
		uint64_t gdb;
		if (!stub_scan_hex(&part, &gdb) || part.p != part.end)
			return stub_reply_error(s, 1);
		int signo = stub_gdbsignal_to_linux(gdb);
		if (signo > 0 && signo < 64)
			mask &= ~(1ULL << signo);
	}
	replay_report_signals(s->r, mask);
	return stub_reply_ok(s);
}

/* Which signals reach the program was settled when it was recorded. */
static bool handle_ignored(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	return stub_reply_ok(s);
}

#define MAX_CAUGHT 1024

static bool handle_catch_syscalls(struct stub_session *s, struct stub_scan *a)
{
	uint64_t numbers[MAX_CAUGHT];
	size_t n = 0;
	if (stub_scan_char(a, '0') && a->p == a->end) {
		replay_catch_syscalls(s->r, false, NULL, 0);
		return stub_reply_ok(s);
	}
	if (!stub_scan_char(a, '1'))
		return stub_reply_error(s, 1);
	while (stub_scan_char(a, ';')) {
		if (n == MAX_CAUGHT || !stub_scan_hex(a, &numbers[n]))
			return stub_reply_error(s, 1);
		n++;
	}
	if (a->p != a->end)
		return stub_reply_error(s, 1);
	replay_catch_syscalls(s->r, true, numbers, n);
	return stub_reply_ok(s);
}

/* ---- threads and process ------------------------------------------------------------------- */

/* "Attached": when gdb quits it leaves the program alone rather than kill it. */
static bool handle_attached(struct stub_session *s, struct stub_scan *a)
{
	(void)a;
	stub_textbuf_char(&s->reply, '1');
	return true;
}

const struct stub_session_command stub_session_queries[] = {
	{ "QCatchSyscalls:", handle_catch_syscalls },
	{ "QDejaLines", stub_handle_lines },
	{ "QNonStop:", handle_non_stop },
	{ "QPassSignals:", handle_pass_signals },
	{ "QProgramSignals:", handle_ignored },
	{ "QStartNoAckMode", handle_no_acks },
	{ "qAttached", handle_attached },
	{ "qCRC:", stub_handle_mem_crc },
	{ "qC", stub_handle_current_thread },
	{ "qHostInfo", stub_handle_host_info },
	{ "qMemoryRegionInfo:", stub_handle_memory_region },
	{ "qProcessInfo", stub_handle_process_info },
	{ "qRcmd,", stub_handle_monitor },
	{ "qSearch:memory:", stub_handle_mem_search },
	{ "qShlibInfoAddr", stub_handle_shlib_info },
	{ "qSupported", handle_supported },
	{ "qGetTLSAddr:", stub_handle_tls_address },
	{ "qSymbol:", stub_handle_symbol },
	{ "qThreadExtraInfo,", stub_handle_thread_info },
	{ "qXfer:", stub_handle_xfer },
	{ "qfThreadInfo", stub_handle_threads_first },
	{ "qsThreadInfo", stub_handle_threads_next },
	{ NULL, NULL },
};
