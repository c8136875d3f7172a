/*
 * The recorder's event loop, driven by a machine in place of the kernel (tests/lib/fake-tracer.h).
 *
 * A scene is a few threads with short scripts and what happens to them from outside. It is played
 * in every order in which the threads' stops and the outside events can come, or in a number of
 * random orders where there are too many. After each play every thread has performed its whole
 * script, each action once and with its own registers; every signal was handled; every stop by job
 * control stopped the process; every child was let go with its parent's registers and its own
 * signal mask. The machine itself complains when a thread is left stopped, when a handler waits,
 * when a signal is injected where the kernel drops it, and when program code runs at full speed
 * untranslated.
 */
#include "tests/lib/fake-tracer.h"
#include "tests/lib/random.h"
#include "tests/lib/suites.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- orders ----------------------------------------------------------------------------- */

#define CHOICES 512
static unsigned char choice[CHOICES], options[CHOICES];
static unsigned given, at; /* choices that are given; where we are */
static uint64_t seed = 88172645463325252ULL;
static bool at_random;

static uint64_t rnd(void)
{
	return random_next(&seed);
}

static unsigned pick(unsigned n)
{
	if (at >= CHOICES) {
		fake_fail("no end");
		return 0;
	}
	options[at] = (unsigned char)n;
	if (at >= given)
		choice[at] = at_random ? (unsigned char)(rnd() % n) : 0;
	return choice[at++];
}

/* How far the newest thread is, while the oldest has not ended. */
static unsigned done_then;

/* The order in which the kernel reports threads that have all stopped: the newest first. */
static unsigned pick_newest(unsigned n)
{
	if (fake.threads[0].alive)
		done_then = fake.threads[2].done;
	return n - 1;
}

static bool all_at_once(unsigned n)
{
	(void)n;
	return true;
}

static bool some_at_once(unsigned n)
{
	return rnd() % (n + 1);
}

static bool next_order(void)
{
	while (at && choice[at - 1] + 1 >= options[at - 1])
		at--;
	if (!at)
		return false;
	choice[at - 1]++;
	given = at;
	return true;
}

/* ---- scenes ------------------------------------------------------------------------------ */

/* clang-format off */
static const struct fake_action
	maps[] =    { { FAKE_CALL, SYS_mmap }, { FAKE_CALL, SYS_exit_group } },
	natives[] = { { FAKE_NATIVE, 0 }, { FAKE_CALL, SYS_exit_group } },
	away[] =    { { FAKE_CALL, SYS_brk }, { FAKE_AWAY, 0 } },
	ends[] =    { { FAKE_CALL, SYS_exit_group } },
	forks[] =   { { FAKE_CALL, SYS_fork }, { FAKE_CALL, SYS_exit_group } },
	vforks[] =  { { FAKE_CALL, SYS_vfork }, { FAKE_CALL, SYS_exit_group } },
	execs[] =   { { FAKE_CALL, SYS_execve }, { FAKE_CALL, SYS_exit_group } },
	threads[] = { { FAKE_CALL, SYS_fork }, { FAKE_CALL, SYS_clone },
		      { FAKE_CALL, SYS_munmap }, { FAKE_CALL, SYS_exit_group } },
	clones[] =  { { FAKE_CALL, SYS_clone }, { FAKE_CALL, SYS_munmap }, { FAKE_CALL, SYS_clone },
		      { FAKE_CALL, SYS_exit_group } },
	steps[] =   { { FAKE_NATIVE, 0 }, { FAKE_NATIVE, 0 }, { FAKE_NATIVE, 0 }, { FAKE_NATIVE, 0 },
		      { FAKE_NATIVE, 0 }, { FAKE_NATIVE, 0 }, { FAKE_NATIVE, 0 }, { FAKE_NATIVE, 0 },
		      { FAKE_NATIVE, 0 }, { FAKE_NATIVE, 0 }, { FAKE_NATIVE, 0 }, { FAKE_NATIVE, 0 },
		      { FAKE_CALL, SYS_exit_group } },
	busy[] =    { { FAKE_CALL, SYS_munmap }, { FAKE_NATIVE, 0 }, { FAKE_REP, 0 },
		      { FAKE_CALL, SYS_fork }, { FAKE_CALL, SYS_brk }, { FAKE_CALL, SYS_exit_group } },
	short_busy[] = { { FAKE_CALL, SYS_munmap }, { FAKE_REP, 0 }, { FAKE_CALL, SYS_exit_group } },
	changes[] = { { FAKE_CALL, SYS_vfork }, { FAKE_NATIVE, 0 }, { FAKE_CALL, SYS_execve },
		      { FAKE_CALL, SYS_fork }, { FAKE_CALL, SYS_exit_group } };
/* clang-format on */

#define SCRIPT(a) (a), sizeof(a) / sizeof(*(a))

struct scene {
	struct {
		int process; /* threads with the same number share one */
		const struct fake_action *script;
		unsigned n;
	} threads[4];
	struct fake_outside outside[6];
	uint64_t caught;
	bool cut;    /* the recording ends before the program does: no room for a thread */
	bool away;   /* ... because of FAKE_AWAY */
	bool follow; /* forked children are recorded */
	bool vfork_needs_second; /* the vfork child cannot get on before thread 1 has ended */
	bool newest_first;	 /* one order: the kernel's, of threads that stop all the time */
	unsigned orders;	 /* 0: all; else so many random ones */
};

static void check_thread(const struct fake_thread *m)
{
	if (m->child) {
		const struct fake_thread *p = &fake.threads[0];
		while (p->message != m->tid && p < &fake.threads[fake.n_threads - 1])
			p++;
		if (m->detached != 1)
			fake_fail("a child was let go %u times", m->detached);
		if (m->regs.rax != 0 || m->regs.gs_base != (p->in_exec ? 0 : m->regs.gs_base) ||
		    (m->regs.rip & 15) != 2)
			fake_fail("a child's registers: rax %#llx rip %#llx", m->regs.rax,
				  m->regs.rip);
		if (m->mask)
			fake_fail("a child's mask is %#llx", (unsigned long long)m->mask);
		if (m->own_space && m->unmapped == 0)
			fake_fail("a child keeps deja's memory");
		if (!m->own_space && m->unmapped)
			fake_fail("memory is unmapped below a vfork parent");
		return;
	}
	if (m->alive)
		fake_fail("thread %d has not ended", m->number);
	if (fake.rec->cut || fake.rec->fatal)
		return;
	if (m->done != m->n_script)
		fake_fail("thread %d ended after %u actions of %u", m->number, m->done,
			  m->n_script);
}

static void check_outside(void)
{
	for (unsigned i = 0; i < fake.n_outside; i++) {
		const struct fake_outside *o = &fake.outside[i];
		const struct fake_thread *m = &fake.threads[o->thread];
		unsigned sent = 0, done = 0;
		for (unsigned k = 0; k < fake.n_outside; k++)
			sent += fake.outside[k].fired && fake.outside[k].sig == o->sig &&
				fake.outside[k].thread == o->thread;
		if (o->sig == SIGSTOP)
			done = m->stopped;
		else if (fake.caught >> (o->sig - 1) & 1)
			done = m->handled[o->sig];
		else
			continue;
		/* what came at the very end may be pending, or in the recorder's hands, at the exit
		 */
		if (o->sig == SIGSTOP ? sent && !done : done != sent)
			fake_fail("thread %d: signal %d came %u times, took effect %u times",
				  o->thread, o->sig, sent, done);
	}
}

static struct dj_stream *stream_of(struct rec_process *proc)
{
	struct dj_error err;
	if (!proc->facts)
		proc->facts = dj_writer_process(proc->rec->writer, proc->pid, NULL, &err);
	return proc->facts;
}

static void begin(const struct scene *s, struct rec_recording *rec)
{
	struct rec_process *procs[4] = { NULL };
	struct dj_error err;
	for (unsigned i = 0; i < 4 && s->threads[i].script; i++) {
		int p = s->threads[i].process;
		struct fake_thread *m = fake_thread(procs[p] ? procs[p]->pid : 0,
						    s->threads[i].script, s->threads[i].n);
		if (!procs[p])
			procs[p] = rec_process_new(rec, m->pid);
		struct rec_thread *t = fake_record(procs[p], m);
		if (!rec->writer)
			rec->writer = rec_create_trace(t);
		else
			t->stream = dj_writer_thread(rec->writer, stream_of(t->proc), t->tid,
						     "another", &err);
		rec_ring_start(t);
	}
	if (fake.n_threads > 1)
		rec_order_share(rec);
	while (fake.n_outside < 6 && s->outside[fake.n_outside].sig) {
		fake.outside[fake.n_outside] = s->outside[fake.n_outside];
		fake.n_outside++;
	}
	fake.caught = s->caught;
	fake.no_room = s->cut;
	if (s->vfork_needs_second)
		fake.vfork_needs = 1;
	fake.rec = rec;
	fake.pick = s->newest_first ? pick_newest : pick;
	fake.at_once = s->newest_first ? all_at_once : s->orders ? some_at_once : NULL;
}

/* One order; false if something is wrong. */
static bool play(const struct scene *s, bool verbose)
{
	static char *argv[] = { (char *)"fake", NULL };
	struct rec_options opt = { .output = "/dev/null", .memory_model = DJ_ORDER_FENCE };
	struct dj_error err, ignored;
	opt.follow = s->follow;
	fake_reset();
	fake.follows = s->follow;
	fake.verbose = verbose;
	at = 0;
	struct rec_recording *rec = rec_new(&opt, &fake.tracer, argv, argv, &err);
	begin(s, rec);
	rec_loop(rec);
	rec_clock(NULL);
	if (rec->cut != s->cut || rec->fatal != s->away)
		fake_fail("the recording ended: %s", err.text);
	for (unsigned i = 0; i < fake.n_threads; i++)
		check_thread(&fake.threads[i]);
	check_outside();
	for (struct rec_thread *t = rec->threads; t; t = t->next)
		if (t->ring && rec_ring_stop(t, &ignored))
			fake_fail("the ring could not be written: %s", ignored.text);
	dj_writer_close(rec->writer, NULL, &ignored);
	rec_free(rec);
	return !fake.failure[0];
}

static void play_all(const struct scene *s)
{
	unsigned n = 0;
	given = 0;
	at_random = s->orders != 0;
	do {
		n++;
		if (!play(s, false)) {
			printf("\n  order %u: %s\n", n, fake.failure);
			given = at;
			play(s, true);
			CU_FAIL("an order went wrong");
			return;
		}
	} while (s->orders ? n < s->orders : next_order());
	printf("%u orders ", n);
	CU_ASSERT(n > 1);
}

/* ---- the tests ---------------------------------------------------------------------------- */

#define ONE(sig) (1ULL << ((sig)-1))

static void test_threads(void)
{
	play_all(&(struct scene){
		.threads = { { 0, SCRIPT(maps) }, { 0, SCRIPT(ends) }, { 1, SCRIPT(ends) } } });
}

static void test_fork(void)
{
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(forks) }, { 1, SCRIPT(ends) } } });
}

/* The child is recorded, and it and its parent get on in all orders. */
static void test_follow(void)
{
	play_all(&(struct scene){
		.threads = { { 0, SCRIPT(forks) } }, .follow = true, .orders = 400 });
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(forks) }, { 1, SCRIPT(forks) } },
				  .follow = true,
				  .orders = 400 });
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(forks) }, { 0, SCRIPT(maps) } },
				  .outside = { { 0, SIGUSR1, false } },
				  .caught = ONE(SIGUSR1),
				  .follow = true,
				  .orders = 400 });
}

/* Nobody is served twice while another waits: when the oldest has ended the newest is as far. */
static void test_turns(void)
{
	const struct scene s = {
		.threads = { { 0, SCRIPT(maps) }, { 1, SCRIPT(steps) }, { 2, SCRIPT(steps) } },
		.newest_first = true
	};
	done_then = 0;
	CU_ASSERT(play(&s, false));
	printf("%s%u steps ", fake.failure, done_then);
	CU_ASSERT(done_then < sizeof(steps) / sizeof(*steps) / 2);
}

/* The parent waits for a child which needs another thread. */
static void test_vfork(void)
{
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(vforks) }, { 1, SCRIPT(maps) } },
				  .vfork_needs_second = true });
}

static void test_exec(void)
{
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(execs) }, { 1, SCRIPT(ends) } } });
}

/* Threads that are made, in all orders of their first stops. */
static void test_clone(void)
{
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(clones) } }, .orders = 200 });
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(clones) }, { 0, SCRIPT(maps) } },
				  .orders = 200 });
}

/* A thread finds no room and the program is killed; its child is let go all the same. */
static void test_cut(void)
{
	play_all(&(struct scene){
		.threads = { { 0, SCRIPT(threads) } }, .cut = true, .orders = 200 });
}

/* A process that exits without a call is a recording that has lost it. */
static void test_away(void)
{
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(away) }, { 1, SCRIPT(ends) } },
				  .away = true });
}

/* Two signals, at any two moments. */
static void test_signals(void)
{
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(short_busy) } },
				  .outside = { { 0, SIGUSR1, false }, { 0, SIGUSR2, false } },
				  .caught = ONE(SIGUSR1) | ONE(SIGUSR2) });
	/* the same twice: the handler blocks it */
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(natives) } },
				  .outside = { { 0, SIGUSR1, false }, { 0, SIGUSR1, false } },
				  .caught = ONE(SIGUSR1) });
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(forks) } },
				  .outside = { { 0, SIGUSR1, false } },
				  .caught = ONE(SIGUSR1) });
}

static void test_stops(void)
{
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(busy) } },
				  .outside = { { 0, SIGSTOP, false } } });
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(execs) } },
				  .outside = { { 0, SIGSTOP, false }, { 0, SIGSTOP, false } } });
	play_all(&(struct scene){ .threads = { { 0, SCRIPT(vforks) } },
				  .outside = { { 0, SIGSTOP, false }, { 0, SIGUSR1, false } },
				  .caught = ONE(SIGUSR1) });
}

/* One that stops all the time goes on on the supervisor's processor; not while others run, nor
 * where it makes threads and processes (fake_resume_here). */
static void test_near(void)
{
	static const long calls[] = { SYS_fork, SYS_munmap, SYS_vfork, SYS_execve };
	struct fake_action script[49];
	unsigned n = sizeof(script) / sizeof(*script);
	for (unsigned i = 0; i < n; i++)
		script[i] = (struct fake_action){ FAKE_NATIVE, 0 };
	for (unsigned i = 0; i < 4; i++)
		script[12 * i + 11] = (struct fake_action){ FAKE_CALL, calls[i] };
	script[n - 1] = (struct fake_action){ FAKE_CALL, SYS_exit_group };
	fake_bound = 0;
	play_all(&(struct scene){ .threads = { { 0, script, n } }, .orders = 50 });
	CU_ASSERT(fake_bound > 50); /* of 1500, unless something else takes our time */
	play_all(&(struct scene){ .threads = { { 0, script, n }, { 1, SCRIPT(busy) } },
				  .orders = 50 });
}

/* All of it, in random orders. */
static void test_random(void)
{
	play_all(&(struct scene){
		.threads = { { 0, SCRIPT(changes) }, { 1, SCRIPT(busy) }, { 1, SCRIPT(busy) } },
		.outside = { { 0, SIGSTOP, false },
			     { 1, SIGUSR1, false },
			     { 1, SIGUSR2, false },
			     { 2, SIGUSR1, false },
			     { 2, SIGUSR1, false },
			     { 1, SIGSTOP, false } },
		.caught = ONE(SIGUSR1) | ONE(SIGUSR2),
		.orders = 3000 });
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	suites_begin();
	CU_pSuite s = CU_add_suite("loop", NULL, NULL);
	CU_add_test(s, "three threads of two processes", test_threads);
	CU_add_test(s, "fork", test_fork);
	CU_add_test(s, "turns", test_turns);
	CU_add_test(s, "vfork", test_vfork);
	CU_add_test(s, "exec", test_exec);
	CU_add_test(s, "recorded children", test_follow);
	CU_add_test(s, "new threads", test_clone);
	CU_add_test(s, "the end of a recording", test_cut);
	CU_add_test(s, "exits that nobody sees", test_away);
	CU_add_test(s, "signals", test_signals);
	CU_add_test(s, "stops by job control", test_stops);
	CU_add_test(s, "the supervisor's processor", test_near);
	CU_add_test(s, "everything at random", test_random);
	printf("seed %llu\n", (unsigned long long)seed);
	return suites_run();
}
