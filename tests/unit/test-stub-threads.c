/*

 * Several threads and processes: how they are named and listed, which of them a packet moves, and
 what
 * the client is told of forks.
 */
#include "tests/unit/test-stub.h"

#include <stdio.h>
#include <string.h>

static void test_thread_list(void)
{
	begin();
	session.multiprocess = true;
	EXPECT("qfThreadInfo", "mp1092.1092");
	EXPECT("Tp1092.1093", "E03");
	EXPECT("Hgp1092.1093", "E03");
	EXPECT("qThreadExtraInfo,p1092.1093", "E03");
	ask("qRcmd,676f746f20333030"); /* goto 300 */
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	EXPECT("qsThreadInfo", "l");
	CU_ASSERT_PTR_NOT_NULL(strstr(read_object("threads", "", 400),
				      "<thread id=\"p1092.1093\" name=\"second\"/>"));
	EXPECT("qThreadExtraInfo,p1092.1093", hex_of("second"));
	EXPECT("Tp1092.1093", "OK");
	EXPECT("Tp1093.1093", "E03");
	EXPECT("T1094", "E03");
	EXPECT("Hgp1092.1093", "OK");
	ask("qRcmd,676f746f20383030"); /* goto 800: it has ended */
	EXPECT("qfThreadInfo", "mp1092.1092");
	EXPECT("Tp1092.1093", "E03");
	CU_ASSERT_EQUAL(rax_now(), 800000);
	finish();
}

/* A second thread is looked at without moving, and moves when it is named. */
static void test_thread_moves(void)
{
	begin();
	session.multiprocess = true;
	ask("qRcmd,676f746f20333030"); /* goto 300 */
	CU_ASSERT_EQUAL(rax_now(), 300000);
	EXPECT("Hgp1092.1093", "OK");
	EXPECT("qC", "QCp1092.1093");
	CU_ASSERT_EQUAL(rax_now(), 500300);
	CU_ASSERT_EQUAL(position(), 300);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s")), "p1092.1092");
	CU_ASSERT_EQUAL(rax_now(), 301000);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1093;c")), "p1092.1093");
	CU_ASSERT_EQUAL(rax_now(), 500302);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;c:p1092.1093;s:p1092.1092")), "p1092.1092");
	CU_ASSERT_EQUAL(position(), 303);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.-1")), "p1092.1092");
	EXPECT("vCont;s:p1092.1094", "E01");
	EXPECT("Hcp1092.1093", "OK");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("bs")), "p1092.1093");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("s")), "p1092.1093");
	EXPECT("Hc0", "OK");
	EXPECT("Hgp1092.1092", "OK");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("bs")), "p1092.1093"); /* the moment is its */
	/* what is changed by hand belongs to one thread */
	EXPECT("P0=0100000000000000", "OK");
	CU_ASSERT_EQUAL(session.scratch, SCRATCH_EDITS);
	EXPECT("Hgp1092.1092", "OK");
	CU_ASSERT_EQUAL(session.scratch, SCRATCH_NONE);
	finish();
}

/* Which request lets which threads have their say. */
static void test_scopes(void)
{
	static const struct {
		const char *request;
		enum replay_scope one, two; /* with one process, with two */
	} rows[] = {
		{ "vCont;c", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "vCont;c:p-1.-1", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "vCont;c:p1092.-1", REPLAY_PROCESS, REPLAY_PROCESS },
		{ "vCont;c:p1092", REPLAY_PROCESS, REPLAY_PROCESS },
		{ "vCont;c:p1092.1093", REPLAY_THREAD, REPLAY_THREAD },
		{ "vCont;s:p1092.1093", REPLAY_THREAD, REPLAY_THREAD },
		{ "vCont;s:p1092.1093;c", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "vCont;s:p1092.1093;c:p1092.-1", REPLAY_PROCESS, REPLAY_PROCESS },
		{ "vCont;s:p1092.1093;t", REPLAY_THREAD, REPLAY_THREAD },
		{ "vCont;r401000,401100:1093;c", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "Hc-1|s", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "Hc0|bs", REPLAY_PROCESS, REPLAY_PROCESSES },
		{ "Hcp1092.-1|bc", REPLAY_PROCESS, REPLAY_PROCESS },
		{ "Hcp1092.1093|bc", REPLAY_THREAD, REPLAY_THREAD },
		{ "Hcp1092.1093|c", REPLAY_THREAD, REPLAY_THREAD },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (int two = 0; two < 2; two++) {
			char request[64];
			begin();
			session.multiprocess = true;
			ask("qRcmd,676f746f20353130"); /* goto 510 */
			if (two)
				ask("vAttach;10cc");
			snprintf(request, sizeof(request), "%s", rows[i].request);
			char *second = strchr(request, '|');
			if (second)
				*second++ = '\0';
			ask(request);
			if (second)
				ask(second);
			CU_ASSERT_EQUAL(fake_scope(fake), two ? rows[i].two : rows[i].one);
			finish();
		}
	}
}

/* Breakpoints belong to a process; they are hit in whichever thread comes first, and while another
 * one steps. */
static void test_breaks_elsewhere(void)
{
	begin();
	session.multiprocess = true;
	EXPECT("QPassSignals:1e", "OK");
	ask("qRcmd,676f746f20333030"); /* goto 300 */
	EXPECT("Z0,402880,1", "OK");   /* FAKE_MARK2 */
	EXPECT("Z0,402980,1", "OK");   /* FAKE_MARK3 */
	const char *stop = ask("vCont;c");
	CU_ASSERT_STRING_EQUAL(thread_of(stop), "p1092.1093");
	CU_ASSERT_PTR_NOT_NULL(strstr(stop, "swbreak"));
	CU_ASSERT_EQUAL(position(), FAKE_MARK2_AT);
	ask("qRcmd,676f746f20333534"); /* goto 354 */
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1092;c")), "p1092.1093");
	ask("qRcmd,676f746f20333534");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1092")), "p1092.1092");
	ask("qRcmd,676f746f20343030"); /* goto 400 */
	CU_ASSERT_STRING_EQUAL(thread_of(ask("bc")), "p1092.1093");
	CU_ASSERT_EQUAL(position(), FAKE_MARK2_AT);
	/* one whose condition is false is none: the thread steps all the same */
	EXPECT("Z0,402880,1;X3,220027", "OK");
	ask("qRcmd,676f746f20333534");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1092;c")), "p1092.1092");
	/* in a process that is hidden, none stops, nor one of another process */
	ask("qRcmd,676f746f20363031"); /* goto 601 */
	EXPECT_STOP("vCont;c", "T05 replaylog:end;");
	ask("qRcmd,676f746f20363031");
	ask("vAttach;10cc");
	EXPECT_STOP("vCont;c", "T05 replaylog:end;");
	ask("qRcmd,676f746f20363031");
	EXPECT("Hgp10cc.10cc", "OK");
	EXPECT("Z0,402980,1", "OK");
	EXPECT("Hgp1092.1092", "OK");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;c")), "p10cc.10cc");
	CU_ASSERT_EQUAL(position(), FAKE_MARK3_AT);
	EXPECT("D;10cc", "OK");
	CU_ASSERT_EQUAL(fake_points(fake), 2); /* its own are gone */
	finish();
}

/* A process is there for the debugger when it attaches, and until it leaves it. */
static void test_attach(void)
{
	begin();
	session.multiprocess = true;
	ask("qRcmd,676f746f20343030"); /* goto 400 */
	EXPECT("vAttach;10cc", "E.process 4300 is not there at this moment; it begins at 5:1@4300");
	ask("qRcmd,676f746f20353530"); /* goto 550 */
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	EXPECT("Tp10cc.10cc", "E03");
	EXPECT("Hgp10cc.10cc", "E03");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vAttach;10cc")), "p10cc.10cc");
	CU_ASSERT_EQUAL(rax_now(), 700550);
	CU_ASSERT_EQUAL(position(), 550);
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093,p10cc.10cc");
	EXPECT("qThreadExtraInfo,p10cc.10cc", hex_of("child, in system call 1"));
	CU_ASSERT_PTR_NOT_NULL(strstr(read_object("threads", "", 400),
				      "<thread id=\"p10cc.10cc\" name=\"child\">in system call "
				      "1</thread>"));
	EXPECT("Tp10cc.10cc", "OK");
	EXPECT("Tp1092.10cc", "E03");
	EXPECT("Hgp10cc.-1", "OK");
	CU_ASSERT_EQUAL(rax_now(), 700550);
	EXPECT("Hgp1092.1093", "OK");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p10cc.10cc")), "p10cc.10cc");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;c:p1092.-1")), "p1092.1092"); /* its end */
	ask("qRcmd,676f746f20353530");
	EXPECT("Hgp10cc.10cc", "OK");
	EXPECT("D;10cc", "OK");
	CU_ASSERT(!session.no_process);
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("?")), "p1092.1092");
	EXPECT("D;1092", "OK");
	CU_ASSERT(session.no_process);
	EXPECT("qfThreadInfo", "l");
	session.no_process = session.done = false;
	/* nothing is looked at any more: it may be anywhere */
	ask("qRcmd,676f746f2030");
	session.no_process = true;
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vAttach;10cc")), "p10cc.10cc");
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT + 1);
	finish();
}

/* What gdb does at a fork, by its settings. */
static void test_fork_followed(void)
{
	begin();
	session.multiprocess = session.fork_events = true;
	ask("qRcmd,676f746f20343535"); /* goto 455 */
	EXPECT("Z0,402980,1", "OK");
	EXPECT_STOP("vCont;c:p1092.-1", "T05 fork:p10cc.10cc;");
	/* `detach-on-fork off`: the child is listed, looked at where it begins, and has breakpoints
	 */
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093,p10cc.10cc");
	EXPECT("Tp10cc.10cc", "OK");
	EXPECT("Hgp10cc.10cc", "OK");
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT);
	EXPECT("z0,402980,1", "OK");
	EXPECT("Z0,402980,1", "OK");
	CU_ASSERT_EQUAL(rax_now(), 700501);
	EXPECT("Hgp1092.1092", "OK");
	CU_ASSERT_EQUAL(rax_now(), 500000);
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT);
	EXPECT("Hgp10cc.10cc", "OK");
	CU_ASSERT_EQUAL(rax_now(), 700501);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p1092.1092")), "p1092.1092");
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT + 1);
	ask("qRcmd,676f746f20343939"); /* goto 499 */
	EXPECT_STOP("s", "T05 fork:p10cc.10cc;");
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;c:p10cc.-1")), "p10cc.10cc");
	CU_ASSERT_EQUAL(position(), FAKE_MARK3_AT);
	/* backwards, too: but there it is no more */
	EXPECT("Hgp1092.1092", "OK");
	EXPECT("Hcp1092.-1", "OK");
	EXPECT_STOP("bc", "T05 fork:p1130.1130;");
	EXPECT("D;1130", "OK");
	EXPECT_STOP("bc", "T05 fork:p10cc.10cc;");
	EXPECT("D;10cc", "OK");
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	/* `follow-fork-mode child`: the parent is left */
	ask("qRcmd,676f746f20343939");
	EXPECT_STOP("vCont;s:p1092.1092;c:p1092.-1", "T05 fork:p10cc.10cc;");
	EXPECT("D;1092", "OK");
	CU_ASSERT(!session.no_process);
	CU_ASSERT_EQUAL(position(), FAKE_FORK_AT + 1);
	EXPECT("qfThreadInfo", "mp10cc.10cc");
	CU_ASSERT_EQUAL(rax_now(), 700501);
	CU_ASSERT_STRING_EQUAL(thread_of(ask("vCont;s:p10cc.10cc")), "p10cc.10cc");
	finish();
}

static void test_vfork(void)
{
	begin();
	session.multiprocess = session.fork_events = session.vfork_events = true;
	ask("qRcmd,676f746f20353535"); /* goto 555 */
	EXPECT_STOP("vCont;c:p1092.-1", "T05 vfork:p1130.1130;");
	EXPECT("qfThreadInfo", "mp1092.1092,p1092.1093");
	EXPECT("Hgp1130.1130", "OK");
	EXPECT("z0,402980,1", "OK");
	EXPECT("D;1130", "OK");
	EXPECT_STOP("vCont;c:p1092.-1", "T05 vforkdone:;");
	CU_ASSERT_EQUAL(position(), FAKE_VFORK_AT);
	EXPECT_STOP("vCont;c:p1092.-1", "T05 replaylog:end;");
	EXPECT_STOP("bc", "T05 vfork:p1130.1130;");
	EXPECT_STOP("bc", "T05 vforkdone:;");
	EXPECT_STOP("bc", "T05 fork:p10cc.10cc;");
	finish();
}

CU_TestInfo stub_threads[] = {
	{ "list of threads", test_thread_list },
	{ "moves of threads", test_thread_moves },
	{ "scopes", test_scopes },
	{ "breakpoints elsewhere", test_breaks_elsewhere },
	{ "attaching", test_attach },
	{ "forks", test_fork_followed },
	{ "vfork", test_vfork },
	CU_TEST_INFO_NULL,
};
