/* Which system calls have to do with descriptors (analyses/channels.h), and a pass that finds them.
 */
#include "analyses/channels-int.h"
#include "analyses/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST 4000000u /* calls that are kept */

/* By number, as arch/x86/entry/syscalls/syscall_64.tbl of the kernel has them. */
static const struct channel_rule rules[] = {
	{ 0, ACT_READ, BYTES_BUFFER, -1, -1, -1, false, -1 },	 /* read */
	{ 1, ACT_WRITE, BYTES_BUFFER, -1, -1, -1, false, -1 },	 /* write */
	{ 2, ACT_OPEN, 0, -1, 0, -1, false, 1 },		 /* open */
	{ 3, ACT_CLOSE, 0, -1, -1, -1, false, -1 },		 /* close */
	{ 8, ACT_SEEK, 0, -1, -1, -1, false, -1 },		 /* lseek */
	{ 17, ACT_READ, BYTES_BUFFER, 3, -1, -1, false, -1 },	 /* pread64 */
	{ 18, ACT_WRITE, BYTES_BUFFER, 3, -1, -1, false, -1 },	 /* pwrite64 */
	{ 19, ACT_READ, BYTES_VECTOR, -1, -1, -1, false, -1 },	 /* readv */
	{ 20, ACT_WRITE, BYTES_VECTOR, -1, -1, -1, false, -1 },	 /* writev */
	{ 22, ACT_PIPE, 0, -1, -1, -1, false, -1 },		 /* pipe */
	{ 32, ACT_DUP, 0, -1, -1, -1, false, -1 },		 /* dup */
	{ 33, ACT_DUP_TO, 0, -1, -1, -1, false, -1 },		 /* dup2 */
	{ 40, ACT_MOVE, 0, -1, -1, -1, false, -1 },		 /* sendfile */
	{ 41, ACT_SOCKET, 0, -1, -1, -1, false, -1 },		 /* socket */
	{ 42, ACT_CONNECT, 0, -1, -1, -1, false, -1 },		 /* connect */
	{ 43, ACT_ACCEPT, 0, -1, -1, -1, false, -1 },		 /* accept */
	{ 44, ACT_WRITE, BYTES_BUFFER, -1, -1, -1, false, -1 },	 /* sendto */
	{ 45, ACT_READ, BYTES_BUFFER, -1, -1, -1, false, -1 },	 /* recvfrom */
	{ 46, ACT_WRITE, BYTES_MESSAGE, -1, -1, -1, false, -1 }, /* sendmsg */
	{ 47, ACT_READ, BYTES_MESSAGE, -1, -1, -1, false, -1 },	 /* recvmsg */
	{ 49, ACT_BIND, 0, -1, -1, -1, false, -1 },		 /* bind */
	{ 51, ACT_NAME, 0, -1, -1, -1, false, -1 },		 /* getsockname */
	{ 53, ACT_SOCKETS, 0, -1, -1, -1, false, -1 },		 /* socketpair */
	{ 72, ACT_FCNTL, 0, -1, -1, -1, false, -1 },		 /* fcntl */
	{ 76, ACT_TRUNCATE, 0, -1, 0, -1, false, -1 },		 /* truncate */
	{ 77, ACT_TRUNCATE, 0, -1, -1, -1, false, -1 },		 /* ftruncate */
	{ 80, ACT_CHDIR, 0, -1, 0, -1, false, -1 },		 /* chdir */
	{ 81, ACT_CHDIR, 0, -1, -1, -1, false, -1 },		 /* fchdir */
	{ 82, ACT_RENAME, 0, -1, 0, 1, false, -1 },		 /* rename */
	{ 85, ACT_OPEN, 0, -1, 0, -1, false, -1 },		 /* creat */
	{ 86, ACT_LINK, 0, -1, 0, 1, false, -1 },		 /* link */
	{ 87, ACT_UNLINK, 0, -1, 0, -1, false, -1 },		 /* unlink */
	{ 133, ACT_FIFO, 0, -1, 0, -1, false, -1 },		 /* mknod */
	{ 257, ACT_OPEN, 0, -1, 1, -1, true, 2 },		 /* openat */
	{ 259, ACT_FIFO, 0, -1, 1, -1, true, -1 },		 /* mknodat */
	{ 263, ACT_UNLINK, 0, -1, 1, -1, true, -1 },		 /* unlinkat */
	{ 264, ACT_RENAME, 0, -1, 1, 3, true, -1 },		 /* renameat */
	{ 265, ACT_LINK, 0, -1, 1, 3, true, -1 },		 /* linkat */
	{ 275, ACT_MOVE, 0, -1, -1, -1, false, -1 },		 /* splice */
	{ 288, ACT_ACCEPT, 0, -1, -1, -1, false, -1 },		 /* accept4 */
	{ 292, ACT_DUP_TO, 0, -1, -1, -1, false, -1 },		 /* dup3 */
	{ 293, ACT_PIPE, 0, -1, -1, -1, false, -1 },		 /* pipe2 */
	{ 295, ACT_READ, BYTES_VECTOR, 3, -1, -1, false, -1 },	 /* preadv */
	{ 296, ACT_WRITE, BYTES_VECTOR, 3, -1, -1, false, -1 },	 /* pwritev */
	{ 316, ACT_RENAME, 0, -1, 1, 3, true, -1 },		 /* renameat2 */
	{ 326, ACT_MOVE, 0, -1, -1, -1, false, -1 },		 /* copy_file_range */
	{ 436, ACT_CLOSE_RANGE, 0, -1, -1, -1, false, -1 },	 /* close_range */
};

const struct channel_rule *ana_channel_rule(uint64_t nr)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (rules[i].nr == nr)
			return &rules[i];
	return NULL;
}

struct hearing {
	struct ana_log *calls;
	const uint32_t *groups; /* by thread (analyses/groups.h) */
};

struct thread {
	struct ana_log calls;
	uint32_t process;
};

static void *begin(void *ctx, struct replay_run *run)
{
	const struct hearing *h = ctx;
	struct thread *th = calloc(1, sizeof(*th));

	if (!th) {
		replay_run_fail(run, "out of memory");
		return NULL;
	}
	th->calls.size = h->calls->size;
	th->calls.limit = h->calls->limit;
	th->process = h->groups[replay_run_thread(run)];
	return th;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	const struct hearing *h = ctx;
	struct thread *th = data;

	(void)run;
	if (th)
		ana_log_join(h->calls, &th->calls);
	free(th);
}

static void event(void *data, struct replay_run *run, const struct replay_event *e)
{
	const struct channel_rule *rule = NULL;
	struct thread *th = data;
	unsigned act = e->kind == REPLAY_EV_EXEC    ? ACT_EXEC
		       : e->kind == REPLAY_EV_CHILD ? ACT_CHILD
						    : ACT_NOTHING;

	if (e->kind == REPLAY_EV_SYSCALL && (rule = ana_channel_rule(e->number)) &&
	    ((int64_t)e->result >= 0 ||
	     (rule->act == ACT_CONNECT && (int64_t)e->result == -EINPROGRESS)))
		act = rule->act;
	/* what moved nothing says nothing */
	if (!act || ((act == ACT_READ || act == ACT_WRITE || act == ACT_MOVE) && !e->result))
		return;
	struct channel_call *c = ana_log_add(&th->calls);
	if (!c)
		return;
	*c = (struct channel_call){
		.nr = e->number, .result = e->result, .process = th->process, .act = (uint8_t)act
	};
	memcpy(c->arg, e->args, sizeof(c->arg));
	if (rule && rule->bytes == BYTES_MESSAGE) { /* msg_controllen */
		uint64_t length;
		replay_run_peek(run, e->args[1] + 40, &length, sizeof(length));
		c->control = length != 0;
	}
	replay_run_pos(run, &c->pos);
}

int ana_channels_hear(struct ana_job *job, struct ana_log *calls, struct dj_error *err)
{
	uint32_t *groups = ana_groups(job->t, err);
	struct hearing h = { .calls = calls, .groups = groups };
	const struct replay_listener listener = {
		.ctx = &h, .begin = begin, .end = end, .event = event, .translated = true
	};
	const struct replay_listener *l = &listener;
	struct replay_pass pass = { .listeners = &l, .n = 1 };

	*calls = (struct ana_log){ .size = sizeof(struct channel_call), .limit = MOST };
	int ret = groups ? ana_pass_whole(job, job->t, &pass, err) : -1;
	free(groups);
	if (ret)
		return -1;
	if (calls->failed)
		return dj_fail(err, 1, "out of memory");
	ana_log_sort(calls);
	return 0;
}
