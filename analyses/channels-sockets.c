/*
 * Sockets with names, and descriptors in messages (analyses/channels.h).
 *
 * Who connects to a name and who accepts there are brought together in their order, as are
 * descriptors that were sent and received over a stream. Calls come in the order in which they
 * began, so what waited comes before what it waited for: then the one is kept until there is the
 * other.
 *
 * A name is a path, or a port whatever the host: if that is another one the bytes will not be the
 * same.
 */
#include "analyses/channels-int.h"

#include <stdlib.h>
#include <string.h>

/* Of <sys/socket.h>, which is for who talks to others; of Linux on x86-64. */
#define AF_UNIX		 1
#define AF_INET		 2
#define AF_INET6	 10
#define SOCK_STREAM	 1
#define SOCK_DGRAM	 2
#define SOCK_CLOEXEC	 02000000
#define SOL_SOCKET	 1
#define SCM_RIGHTS	 1
#define MSG_CMSG_CLOEXEC 0x40000000

#define MESSAGES 64u  /* control messages that are looked at */
#define RIGHTS	 253u /* descriptors in one: SCM_MAX_FD */

/* ---- what waits ---- */

static void push(struct ana_channels *c, struct channel_queue *q, uint32_t f)
{
	struct channel_wait *w = ana_channel_add(c, &c->waits, sizeof(*w));
	const uint32_t i = (uint32_t)c->waits.n - 1;

	w->file = f;
	if (c->failed)
		return;
	if (q->last)
		((struct channel_wait *)c->waits.v)[q->last].next = i;
	else
		q->first = i;
	q->last = i;
}

/* The file that waits for this one, or 0: then this one waits for another. `late`: it began before
 * that. */
static uint32_t meet(struct ana_channels *c, struct channel_queue *q, uint32_t f, bool late)
{
	if (q->first && q->late != late) {
		const struct channel_wait *w = (struct channel_wait *)c->waits.v + q->first;

		q->first = w->next;
		q->last = q->first ? q->last : 0;
		return w->file;
	}
	q->late = late;
	push(c, q, f);
	return 0;
}

/* ---- names ---- */

/* The name that an address in memory is, with the kind of socket before it; NULL: none. */
static char *name_at(struct ana_channels *c, const struct channel_table *t, uint8_t type,
		     uint64_t at, uint64_t length)
{
	uint8_t b[110];
	char *name = NULL;
	int n = -1;

	length = length < sizeof(b) ? length : sizeof(b);
	if (length < 3 || replay_read(c->r, at, b, length) < length)
		return NULL;
	const unsigned family = b[0] | (unsigned)b[1] << 8, port = (unsigned)b[2] << 8 | b[3];
	const char *path = (const char *)b + 2, *kind = type == SOCK_DGRAM ? "datagrams" : "stream";
	if (family == AF_INET || family == AF_INET6)
		n = length >= 4 && port ? asprintf(&name, "%s port %u", kind, port) : -1;
	else if (family == AF_UNIX && !*path)
		n = asprintf(&name, "%s @%.*s", kind, (int)length - 3, path + 1);
	else if (family == AF_UNIX && *path == '/')
		n = asprintf(&name, "%s %.*s", kind, (int)length - 2, path);
	else if (family == AF_UNIX && t->cwd)
		n = asprintf(&name, "%s %s/%.*s", kind, t->cwd, (int)length - 2,
			     strncmp(path, "./", 2) ? path : path + 2);
	return n < 0 ? NULL : name;
}

/* Without the kind of socket. */
static char *shown(const char *name)
{
	return strdup(strchr(name, ' ') + 1);
}

static void bind_it(struct ana_channels *c, struct channel_table *t,
		    const struct channel_call *call, uint32_t f)
{
	const struct channel_file *s = ana_channel_file(c, f);
	uint64_t length = call->arg[2];

	if (s->in || s->out || s->bound || !ana_channel_stand(c, &call->pos, true) ||
	    (call->act == ACT_NAME && !ana_channel_number(c, call->arg[2], 4, &length)))
		return;
	char *name = name_at(c, t, s->type, call->arg[1], length);
	if (name) {
		const uint32_t o = ana_channel_new_object(
			c, call, shown(name), s->type == SOCK_DGRAM ? "socket" : "connection to");
		ana_channel_object(c, o)->messages = s->type == SOCK_DGRAM;
		ana_channel_set_name(c, name, o);
		ana_channel_file(c, f)->bound = o;
		if (s->type == SOCK_DGRAM)
			ana_channel_file(c, f)->in = o;
	}
	free(name);
}

/* ---- connections ---- */

static uint32_t new_stream(struct ana_channels *c, const struct channel_call *call, uint32_t to,
			   uint8_t type)
{
	const char *name = ana_channel_object(c, to)->name;
	const uint32_t o =
		ana_channel_new_object(c, call, name ? strdup(name) : NULL, "connection to");

	ana_channel_object(c, o)->messages = type != SOCK_STREAM;
	return o;
}

static void connect_it(struct ana_channels *c, struct channel_table *t,
		       const struct channel_call *call, uint32_t f)
{
	const struct channel_file s = *ana_channel_file(c, f);

	if (s.out || !ana_channel_stand(c, &call->pos, false))
		return;
	char *name = name_at(c, t, s.type, call->arg[1], call->arg[2]);
	const uint32_t to = ana_channel_named(c, name);
	free(name);
	if (!to)
		return;
	if (s.type == SOCK_DGRAM) {
		ana_channel_file(c, f)->out = to;
		return;
	}
	const uint32_t there = new_stream(c, call, to, s.type),
		       back = new_stream(c, call, to, s.type);
	ana_channel_file(c, f)->out = there;
	ana_channel_file(c, f)->in = back;
	const uint32_t accepted = meet(c, &ana_channel_object(c, to)->connections, f, false);
	if (accepted) {
		ana_channel_file(c, accepted)->in = there;
		ana_channel_file(c, accepted)->out = back;
	}
}

static void accept_it(struct ana_channels *c, struct channel_table *t,
		      const struct channel_call *call, uint32_t f)
{
	const struct channel_file s = *ana_channel_file(c, f);
	const uint32_t one = ana_channel_new_file(c, 0, 0, false);

	ana_channel_file(c, one)->type = s.type;
	ana_channel_put(c, t, call->result, one, call->nr == 288 && call->arg[3] & SOCK_CLOEXEC);
	const uint32_t other =
		s.bound ? meet(c, &ana_channel_object(c, s.bound)->connections, one, true) : 0;
	if (other) {
		ana_channel_file(c, one)->in = ana_channel_file(c, other)->out;
		ana_channel_file(c, one)->out = ana_channel_file(c, other)->in;
	}
}

void ana_channel_socket(struct ana_channels *c, struct channel_table *t,
			const struct channel_call *call)
{
	uint32_t f = ana_channel_file_of(t, call->arg[0]);

	if (call->act == ACT_SOCKET) {
		f = ana_channel_new_file(c, 0, 0, false);
		ana_channel_file(c, f)->type = call->arg[1] & 15;
		ana_channel_put(c, t, call->result, f, call->arg[1] & SOCK_CLOEXEC);
		return;
	}
	if (!f) {
		if (call->act == ACT_ACCEPT) /* what had this number is not there any more */
			ana_channel_put(c, t, call->result, 0, false);
		return;
	}
	if (call->act == ACT_CONNECT)
		connect_it(c, t, call, f);
	else if (call->act == ACT_ACCEPT)
		accept_it(c, t, call, f);
	else
		bind_it(c, t, call, f);
}

/* ---- messages ---- */

uint32_t ana_channel_written_to(struct ana_channels *c, const struct channel_table *t,
				const struct channel_call *call, uint32_t f)
{
	const struct channel_file *s = ana_channel_file(c, f);
	uint64_t at = call->arg[4], length = call->arg[5];

	if (s->type != SOCK_DGRAM || (call->nr != 44 && call->nr != 46) ||
	    (call->nr == 44 && !at) || !ana_channel_stand(c, &call->pos, false))
		return s->out;
	if (call->nr == 46 && (!ana_channel_number(c, call->arg[1], 8, &at) ||
			       !ana_channel_number(c, call->arg[1] + 8, 4, &length) || !at))
		return s->out;
	char *name = name_at(c, t, s->type, at, length);
	const uint32_t o = ana_channel_named(c, name);
	free(name);
	return o;
}

static void one_right(struct ana_channels *c, struct channel_table *t,
		      const struct channel_call *call, uint32_t o, uint64_t fd)
{
	struct channel_queue *q = &ana_channel_object(c, o)->rights;

	if (call->act == ACT_WRITE) {
		uint32_t f = ana_channel_file_of(t, fd);
		if (!f) /* it counts */
			f = ana_channel_new_file(c, 0, 0, false);
		const uint32_t received = meet(c, q, f, false);
		if (received && ana_channel_file(c, received) != ana_channel_file(c, f))
			((struct channel_file *)c->files.v)[received].same = f;
	} else {
		const uint32_t f = ana_channel_new_file(c, 0, 0, false), sent = meet(c, q, f, true);
		ana_channel_put(c, t, fd, sent ? sent : f, call->arg[2] & MSG_CMSG_CLOEXEC);
	}
}

void ana_channel_rights(struct ana_channels *c, struct channel_table *t,
			const struct channel_call *call, uint32_t f)
{
	const bool write = call->act == ACT_WRITE;
	const uint32_t o = write ? ana_channel_file(c, f)->out : ana_channel_file(c, f)->in;
	uint64_t at, length, size, level, type, fd;

	if (!o || !ana_channel_stand(c, &call->pos, !write) ||
	    !ana_channel_number(c, call->arg[1] + 32, 8, &at) ||
	    !ana_channel_number(c, call->arg[1] + 40, 8, &length))
		return;
	for (unsigned n = 0; n < MESSAGES && length >= 16; n++) {
		if (!ana_channel_number(c, at, 8, &size) || size < 16 || size > length ||
		    !ana_channel_number(c, at + 8, 4, &level) ||
		    !ana_channel_number(c, at + 12, 4, &type))
			return;
		for (uint64_t i = 16; level == SOL_SOCKET && type == SCM_RIGHTS && i + 4 <= size &&
				      i < 16 + 4 * RIGHTS && ana_channel_number(c, at + i, 4, &fd);
		     i += 4)
			one_right(c, t, call, o, fd);
		size = (size + 7) & ~7ULL;
		if (size >= length)
			return;
		at += size;
		length -= size;
	}
}
