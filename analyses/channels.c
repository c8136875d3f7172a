/*
 * What goes through pipes, sockets and files (analyses/channels.h).
 *
 * All calls are gone through in their order, with a table of descriptors for each process. A
 * descriptor leads to an open file, which several may share, and that to *objects*: a file, or a
 * stream of bytes in one direction. Of a file bytes are known by where they lie in it, of a stream
 * by how many went before them. What is not known is not made up: a descriptor that came from
 * outside of the recording leads to no object.
 *
 * Calls are in the order in which they began. For a stream that does not matter, since its bytes
 * are counted on either side for themselves, as long as one thread at a time reads and one writes.
 * Whoever asks compares the bytes.
 */
#include "analyses/channels-int.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FDS	65536u	   /* descriptors with greater numbers are not followed */
#define ALL_FDS (4u << 20) /* nor, of all processes together, more than that */
#define DEEP	64u	   /* processes, each made by the one before, that have made no call yet */

/* <sys/socket.h> is for who talks to others. */
#define SOCK_STREAM 1
#define MSG_PEEK    2

/* ---- lists ---------------------------------------------------------------------------------- */

void *ana_channel_add(struct ana_channels *c, struct channel_list *l, size_t size)
{
	static uint64_t nowhere[64];

	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		void *grown = reallocarray(l->v, cap, size);

		if (!grown) {
			c->failed = true;
			return memset(nowhere, 0, sizeof(nowhere));
		}
		l->v = grown;
		l->cap = cap;
	}
	return memset((char *)l->v + size * l->n++, 0, size);
}

struct channel_object *ana_channel_object(const struct ana_channels *c, uint32_t i)
{
	return (struct channel_object *)c->objects.v + i;
}

struct channel_file *ana_channel_file(const struct ana_channels *c, uint32_t i)
{
	struct channel_file *v = c->files.v;

	for (unsigned n = 0; v[i].same && n < DEEP; n++)
		i = v[i].same;
	return v + i;
}

uint32_t ana_channel_new_object(struct ana_channels *c, const struct channel_call *call, char *name,
				const char *kind)
{
	struct channel_object *o = ana_channel_add(c, &c->objects, sizeof(*o));

	*o = (struct channel_object){ .name = name, .made = call->pos, .kind = kind };
	return (uint32_t)c->objects.n - 1;
}

uint32_t ana_channel_new_file(struct ana_channels *c, uint32_t in, uint32_t out, bool append)
{
	struct channel_file *f = ana_channel_add(c, &c->files, sizeof(*f));

	*f = (struct channel_file){ .in = in, .out = out, .append = append };
	return (uint32_t)c->files.n - 1;
}

/* ---- descriptors ---------------------------------------------------------------------------- */

void ana_channel_put(struct ana_channels *c, struct channel_table *t, uint64_t n, uint32_t f,
		     bool closes)
{
	if (n >= FDS)
		return;
	if (n >= t->n) {
		size_t size = n + 64, more = size - t->n;

		if (more > c->room)
			return;
		struct channel_fd *grown = reallocarray(t->fd, size, sizeof(*grown));

		if (!grown) {
			c->failed = true;
			return;
		}
		c->room -= more;
		memset(grown + t->n, 0, (size - t->n) * sizeof(*grown));
		t->fd = grown;
		t->n = size;
	}
	t->fd[n] = (struct channel_fd){ f, closes };
}

uint32_t ana_channel_file_of(const struct channel_table *t, uint64_t n)
{
	return n < t->n ? t->fd[n].file : 0;
}

/* A process begins with what the one has that made it. */
static struct channel_table *begun(struct ana_channels *c, uint32_t process, unsigned deep)
{
	struct channel_table *t = &c->tables[process];
	int32_t parent = dj_trace_process(c->job->t, process)->parent;
	const char *cwd = dj_trace_meta(c->job->t)->cwd;

	if (t->begun)
		return t;
	t->begun = true;
	if (parent >= 0 && (uint32_t)parent < process && deep < DEEP) {
		const struct channel_table *from = begun(c, (uint32_t)parent, deep + 1);

		for (size_t i = from->n <= c->room ? from->n : 0; i-- > 0;)
			if (from->fd[i].file)
				ana_channel_put(c, t, i, from->fd[i].file, from->fd[i].closes);
		cwd = from->cwd;
	}
	t->cwd = cwd ? strdup(cwd) : NULL;
	return t;
}

static struct channel_table *table_of(struct ana_channels *c, uint32_t process)
{
	return begun(c, process, 0);
}

static void child(struct ana_channels *c, const struct channel_call *call)
{
	while (c->unbegun < dj_trace_processes(c->job->t) && c->tables[c->unbegun].begun)
		c->unbegun++;
	for (uint32_t i = c->unbegun; i < dj_trace_processes(c->job->t); i++) {
		const struct dj_process_info *p = dj_trace_process(c->job->t, i);

		if (!c->tables[i].begun && p->parent == (int32_t)call->process &&
		    (uint64_t)p->pid == call->nr) {
			table_of(c, i);
			return;
		}
	}
}

static void close_many(struct channel_table *t, uint64_t first, uint64_t last, bool exec)
{
	for (uint64_t i = first; i <= last && i < t->n; i++)
		if (!exec || t->fd[i].closes)
			t->fd[i] = (struct channel_fd){ 0 };
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Stand before the call, or behind it. */
bool ana_channel_stand(struct ana_channels *c, const struct replay_pos *pos, bool behind)
{
	const struct replay_pos to = { .thread = pos->thread, .steps = pos->steps + behind };
	struct dj_error err;

	return !replay_seek(c->r, &to, &err) && !replay_select(c->r, pos->thread, &err);
}

bool ana_channel_number(struct ana_channels *c, uint64_t at, unsigned size, uint64_t *value)
{
	uint8_t b[8];

	if (replay_read(c->r, at, b, size) < size)
		return false;
	*value = 0;
	for (unsigned i = size; i-- > 0;)
		*value = *value << 8 | b[i];
	return true;
}

/* The path that a call names, from the root on; NULL: not known. */
static char *path_of(struct ana_channels *c, const struct channel_call *call, int arg, bool based)
{
	const struct channel_table *t = &c->tables[call->process];
	char text[4096], *whole;
	size_t n;

	if (arg < 0 || !ana_channel_stand(c, &call->pos, false))
		return NULL;
	n = replay_read(c->r, call->arg[arg], text, sizeof(text) - 1);
	if (!n || strnlen(text, n) == n || !text[0])
		return NULL;
	if (text[0] == '/')
		return strdup(text);
	const char *base = t->cwd;
	if (based && (int32_t)call->arg[arg - 1] != AT_FDCWD) {
		uint32_t f = ana_channel_file_of(t, call->arg[arg - 1]);
		base = f && ana_channel_file(c, f)->in
			       ? ana_channel_object(c, ana_channel_file(c, f)->in)->name
			       : NULL;
	}
	while (!strncmp(text, "./", 2))
		memmove(text, text + 2, strlen(text) - 1);
	if (!base || asprintf(&whole, "%s/%s", base, text) < 0)
		return NULL;
	return whole;
}

/* Where the name is, or would be. There is a free slot. */
static uint32_t *slot_of(const struct ana_channels *c, const char *path)
{
	const struct channel_name *v = c->names.v;
	uint64_t h = 14695981039346656037u; /* FNV-1a */

	for (const char *p = path; *p; p++)
		h = (h ^ (uint8_t)*p) * 1099511628211u;
	for (size_t i = h >> 32;; i++) {
		uint32_t *slot = &c->by_path[i & (c->n_by_path - 1)];

		if (!*slot || !strcmp(v[*slot - 1].path, path))
			return slot;
	}
}

static struct channel_name *find_name(const struct ana_channels *c, const char *path)
{
	uint32_t n = path && c->n_by_path ? *slot_of(c, path) : 0;

	return n ? (struct channel_name *)c->names.v + n - 1 : NULL;
}

uint32_t ana_channel_named(const struct ana_channels *c, const char *name)
{
	const struct channel_name *n = find_name(c, name);

	return n ? n->object : 0;
}

/* Room for one more. */
static bool grow_names(struct ana_channels *c)
{
	const struct channel_name *v = c->names.v;
	size_t size = c->n_by_path ? 2 * c->n_by_path : 64;

	if (2 * (c->names.n + 1) <= c->n_by_path)
		return true;
	uint32_t *grown = calloc(size, sizeof(*grown));
	if (!grown)
		return false;
	free(c->by_path);
	c->by_path = grown;
	c->n_by_path = size;
	for (size_t i = 0; i < c->names.n; i++)
		*slot_of(c, v[i].path) = (uint32_t)i + 1;
	return true;
}

void ana_channel_set_name(struct ana_channels *c, const char *path, uint32_t o)
{
	struct channel_name *n = find_name(c, path);
	char *copy = path && !n ? strdup(path) : NULL;

	if (!path)
		return;
	if (!n) {
		if (!copy || !grow_names(c)) {
			free(copy);
			c->failed = true;
			return;
		}
		uint32_t *slot = slot_of(c, path);
		n = ana_channel_add(c, &c->names, sizeof(*n));
		n->path = copy;
		*slot = (uint32_t)c->names.n;
	}
	n->object = o;
}

static void open_it(struct ana_channels *c, struct channel_table *t,
		    const struct channel_call *call, const struct channel_rule *rule)
{
	uint64_t flags = rule->flags >= 0 ? call->arg[rule->flags] : O_WRONLY | O_TRUNC;
	char *path = path_of(c, call, rule->path, rule->based);
	const struct channel_name *known = find_name(c, path);
	uint32_t o = known ? known->object : 0;

	/* a file of these is not what was written to it */
	if (path && (!strncmp(path, "/proc/", 6) ||
		     (!strncmp(path, "/dev/", 5) && strncmp(path, "/dev/shm/", 9) != 0))) {
		ana_channel_put(c, t, call->result, ana_channel_new_file(c, 0, 0, false),
				flags & O_CLOEXEC);
		free(path);
		return;
	}
	if (!o) {
		o = ana_channel_new_object(c, call, path ? strdup(path) : NULL, "file");
		ana_channel_set_name(c, path, o);
	}
	free(path);
	if (flags & O_TRUNC) {
		ana_channel_object(c, o)->since = c->moves.n;
		ana_channel_object(c, o)->size = 0;
	}
	ana_channel_put(c, t, call->result, ana_channel_new_file(c, o, o, flags & O_APPEND),
			flags & O_CLOEXEC);
}

static void make_fifo(struct ana_channels *c, const struct channel_call *call,
		      const struct channel_rule *rule)
{
	char *path = S_ISFIFO(call->arg[rule->path + 1]) ? path_of(c, call, rule->path, rule->based)
							 : NULL;

	if (path)
		ana_channel_set_name(c, path,
				     ana_channel_new_object(c, call, strdup(path), "named pipe"));
	free(path);
}

static void names(struct ana_channels *c, const struct channel_call *call,
		  const struct channel_rule *rule)
{
	char *from = path_of(c, call, rule->path, rule->based);
	char *to = path_of(c, call, rule->path2, rule->based);
	struct channel_name *n = find_name(c, from);

	if (rule->act == ACT_RENAME || rule->act == ACT_LINK)
		ana_channel_set_name(c, to, n ? n->object : 0);
	n = find_name(c, from);
	if (n && rule->act != ACT_LINK)
		n->object = 0;
	free(from);
	free(to);
}

static void truncate_it(struct ana_channels *c, struct channel_table *t,
			const struct channel_call *call, const struct channel_rule *rule)
{
	char *path = path_of(c, call, rule->path, false);
	const struct channel_name *n = find_name(c, path);
	uint32_t f = rule->path < 0 ? ana_channel_file_of(t, call->arg[0]) : 0;
	uint32_t o = n ? n->object : f ? ana_channel_file(c, f)->out : 0;

	free(path);
	if (!o)
		return;
	if (!call->arg[1])
		ana_channel_object(c, o)->since = c->moves.n;
	ana_channel_object(c, o)->size = call->arg[1];
}

static void change_dir(struct ana_channels *c, struct channel_table *t,
		       const struct channel_call *call, const struct channel_rule *rule)
{
	uint32_t f = rule->path < 0 ? ana_channel_file_of(t, call->arg[0]) : 0;
	char *path = path_of(c, call, rule->path, false);

	if (f && ana_channel_file(c, f)->in &&
	    ana_channel_object(c, ana_channel_file(c, f)->in)->name)
		path = strdup(ana_channel_object(c, ana_channel_file(c, f)->in)->name);
	free(t->cwd);
	t->cwd = path;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* `i` is the object; a `peek` takes nothing away. */
static size_t new_move(struct ana_channels *c, size_t call, uint32_t f, uint32_t i, bool write,
		       int64_t at, uint64_t length, bool peek)
{
	if (!i)
		return SIZE_MAX;
	struct channel_object *o = ana_channel_object(c, i);
	struct channel_move *m = ana_channel_add(c, &c->moves, sizeof(*m));
	*m = (struct channel_move){ .call = call, .object = i, .write = write, .length = length };
	if (!strcmp(o->kind, "file")) {
		uint64_t *now = &ana_channel_file(c, f)->at;

		if (write && ana_channel_file(c, f)->append)
			*now = o->size;
		m->first = at >= 0 ? (uint64_t)at : *now;
		if (at < 0)
			*now += length;
		if (write && m->first + length > o->size)
			o->size = m->first + length;
	} else {
		uint64_t *now = write ? &o->written : &o->read;

		m->first = *now;
		*now += peek ? 0 : o->messages ? 1 : length;
	}
	m->since = o->since;
	return c->moves.n - 1;
}

/* Whether what a call reads can be read again. */
static bool peeks(const struct channel_call *call)
{
	return (call->nr == 45 && call->arg[3] & MSG_PEEK) ||
	       (call->nr == 47 && call->arg[2] & MSG_PEEK);
}

static void read_or_write(struct ana_channels *c, struct channel_table *t, size_t i,
			  const struct channel_call *call, uint32_t f, int64_t at)
{
	const bool write = call->act == ACT_WRITE;
	const uint32_t o = !f	   ? 0
			   : write ? ana_channel_written_to(c, t, call, f)
				   : ana_channel_file(c, f)->in;

	new_move(c, i, f, o, write, at, call->result, peeks(call));
	if (f && call->control && !peeks(call))
		ana_channel_rights(c, t, call, f);
}

/* sendfile, splice, copy_file_range: the descriptors and where the places are. */
static void move_on(struct ana_channels *c, struct channel_table *t, size_t i,
		    const struct channel_call *call)
{
	bool send = call->nr == 40;
	uint32_t in = ana_channel_file_of(t, call->arg[send ? 1 : 0]),
		 out = ana_channel_file_of(t, call->arg[send ? 0 : 2]);
	uint64_t in_at = call->arg[send ? 2 : 1], out_at = send ? 0 : call->arg[3], v;
	int64_t from = -1, to = -1;

	if ((in_at || out_at) && !ana_channel_stand(c, &call->pos, false))
		return;
	if (in_at && ana_channel_number(c, in_at, 8, &v))
		from = (int64_t)v;
	if (out_at && ana_channel_number(c, out_at, 8, &v))
		to = (int64_t)v;
	size_t read = new_move(c, i, in, in ? ana_channel_file(c, in)->in : 0, false, from,
			       call->result, false);
	size_t write = new_move(c, i, out, out ? ana_channel_file(c, out)->out : 0, true, to,
				call->result, false);
	if (write != SIZE_MAX && !c->failed)
		((struct channel_move *)c->moves.v)[write].from =
			read == SIZE_MAX ? SIZE_MAX : read + 1;
}

/* A pair of descriptors that the call has put into memory. */
static void make_pair(struct ana_channels *c, struct channel_table *t,
		      const struct channel_call *call)
{
	bool sockets = call->act == ACT_SOCKETS;
	uint64_t at = call->arg[sockets ? 3 : 0], a, b;
	uint64_t flags = sockets ? call->arg[1] : call->nr == 293 ? call->arg[1] : 0;
	const char *kind = sockets ? "pair of sockets" : "pipe";

	if (!ana_channel_stand(c, &call->pos, true) || !ana_channel_number(c, at, 4, &a) ||
	    !ana_channel_number(c, at + 4, 4, &b))
		return;
	uint32_t one = ana_channel_new_object(c, call, NULL, kind);
	uint32_t other = sockets ? ana_channel_new_object(c, call, NULL, kind) : 0;
	if (sockets && (call->arg[1] & 15) != SOCK_STREAM)
		ana_channel_object(c, one)->messages = ana_channel_object(c, other)->messages =
			true;
	ana_channel_put(c, t, a, ana_channel_new_file(c, one, other, false), flags & O_CLOEXEC);
	ana_channel_put(c, t, b, ana_channel_new_file(c, other, one, false), flags & O_CLOEXEC);
}

static void control(struct ana_channels *c, struct channel_table *t,
		    const struct channel_call *call)
{
	uint64_t n = call->arg[0];

	if (call->arg[1] == F_DUPFD || call->arg[1] == F_DUPFD_CLOEXEC)
		ana_channel_put(c, t, call->result, ana_channel_file_of(t, n),
				call->arg[1] == F_DUPFD_CLOEXEC);
	else if (call->arg[1] == F_SETFD && n < t->n)
		t->fd[n].closes = call->arg[2] & FD_CLOEXEC;
}

static void one_call(struct ana_channels *c, size_t i)
{
	const struct channel_call *call = ana_log_at(&c->calls, i);
	const struct channel_rule *rule = ana_channel_rule(call->nr);
	struct channel_table *t = table_of(c, call->process);
	uint32_t f = ana_channel_file_of(t, call->arg[0]);
	int64_t at = rule && rule->at >= 0 ? (int64_t)call->arg[rule->at] : -1;

	switch (call->act) {
	case ACT_OPEN:
		open_it(c, t, call, rule);
		break;
	case ACT_CLOSE:
		close_many(t, call->arg[0], call->arg[0], false);
		break;
	case ACT_CLOSE_RANGE:
		if (!call->arg[2])
			close_many(t, call->arg[0], call->arg[1], false);
		break;
	case ACT_DUP:
		ana_channel_put(c, t, call->result, f, false);
		break;
	case ACT_DUP_TO:
		ana_channel_put(c, t, call->result, f, call->nr == 292 && call->arg[2] & O_CLOEXEC);
		break;
	case ACT_FCNTL:
		control(c, t, call);
		break;
	case ACT_PIPE:
	case ACT_SOCKETS:
		make_pair(c, t, call);
		break;
	case ACT_SEEK:
		if (f)
			ana_channel_file(c, f)->at = call->result;
		break;
	case ACT_READ:
	case ACT_WRITE:
		read_or_write(c, t, i, call, f, at);
		break;
	case ACT_SOCKET:
	case ACT_BIND:
	case ACT_NAME:
	case ACT_CONNECT:
	case ACT_ACCEPT:
		ana_channel_socket(c, t, call);
		break;
	case ACT_FIFO:
		make_fifo(c, call, rule);
		break;
	case ACT_MOVE:
		move_on(c, t, i, call);
		break;
	case ACT_TRUNCATE:
		truncate_it(c, t, call, rule);
		break;
	case ACT_CHDIR:
		change_dir(c, t, call, rule);
		break;
	case ACT_EXEC:
		close_many(t, 0, UINT64_MAX, true);
		break;
	case ACT_CHILD:
		child(c, call);
		break;
	default:
		names(c, call, rule);
	}
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct ana_channels *ana_channels_new(struct ana_job *job, struct replay *r, struct dj_error *err)
{
	struct ana_channels *c = calloc(1, sizeof(*c));

	if (!c || !(c->tables = calloc(dj_trace_processes(job->t) + 1, sizeof(*c->tables)))) {
		free(c);
		dj_fail(err, 1, "out of memory");
		return NULL;
	}
	c->job = job;
	c->r = r;
	c->room = ALL_FDS;
	ana_channel_add(c, &c->objects, sizeof(struct channel_object)); /* no object, no file */
	ana_channel_add(c, &c->files, sizeof(struct channel_file));
	ana_channel_add(c, &c->waits, sizeof(struct channel_wait));
	int ret = ana_channels_hear(job, &c->calls, err);
	for (size_t i = 0; !ret && i < c->calls.n && !c->failed; i++) {
		if (*job->interrupt)
			ret = dj_fail(err, ANA_INTERRUPTED, "interrupted");
		else
			one_call(c, i);
	}
	if (!ret && c->failed)
		ret = dj_fail(err, 1, "out of memory");
	if (!ret)
		return c;
	ana_channels_free(c);
	return NULL;
}

void ana_channels_free(struct ana_channels *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < dj_trace_processes(c->job->t); i++) {
		free(c->tables[i].fd);
		free(c->tables[i].cwd);
	}
	for (size_t i = 0; i < c->objects.n; i++)
		free(ana_channel_object(c, (uint32_t)i)->name);
	for (size_t i = 0; i < c->names.n; i++)
		free(((struct channel_name *)c->names.v)[i].path);
	free(c->tables);
	free(c->objects.v);
	free(c->files.v);
	free(c->moves.v);
	free(c->waits.v);
	free(c->names.v);
	free(c->by_path);
	ana_log_free(&c->calls);
	free(c);
}
