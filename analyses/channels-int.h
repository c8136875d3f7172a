/* What the parts of analyses/channels.h share: what is heard of calls, what is made of that. */
#ifndef DEJA_ANALYSES_CHANNELS_INT_H
#define DEJA_ANALYSES_CHANNELS_INT_H

#include "analyses/channels.h"

/* What counts of what happened to descriptors. */
enum channel_act {
	ACT_NOTHING,
	ACT_OPEN,
	ACT_CLOSE,
	ACT_CLOSE_RANGE,
	ACT_DUP,
	ACT_DUP_TO,
	ACT_FCNTL,
	ACT_PIPE,
	ACT_SOCKETS, /* a pair */
	ACT_SOCKET,
	ACT_BIND,
	ACT_NAME, /* getsockname */
	ACT_CONNECT,
	ACT_ACCEPT,
	ACT_FIFO,
	ACT_SEEK,
	ACT_READ,
	ACT_WRITE,
	ACT_MOVE, /* from a descriptor to another */
	ACT_RENAME,
	ACT_LINK,
	ACT_UNLINK,
	ACT_TRUNCATE,
	ACT_CHDIR,
	ACT_EXEC, /* no call's */
	ACT_CHILD,
};

/* How a call names its bytes and its place in the file. */
enum channel_bytes { BYTES_BUFFER, BYTES_VECTOR, BYTES_MESSAGE };

/* A row for each system call that counts. */
struct channel_rule {
	uint16_t nr;
	uint8_t act;
	uint8_t bytes;
	int8_t at;	    /* the argument that is the place in the file; -1: where it stands */
	int8_t path, path2; /* arguments, the directory's descriptor before each if `based` */
	bool based;
	int8_t flags; /* argument of O_... */
};
const struct channel_rule *ana_channel_rule(uint64_t nr);

struct channel_call {
	struct replay_pos pos;
	uint64_t nr, arg[6], result;
	uint32_t process;
	uint8_t act;
	bool control; /* of a message: there is, or there is room for, what goes with it */
};
/* All of them, by position. -1 with err. */
int ana_channels_hear(struct ana_job *job, struct ana_log *calls, struct dj_error *err);

/* Files that wait for something to happen to them, in order: `late` for what has begun before what
 * it waits for. */
struct channel_queue {
	uint32_t first, last; /* of channel_wait; 0: none */
	bool late;
};
struct channel_wait {
	uint32_t file, next;
};

struct channel_object {
	char *name; /* of a file, or a socket's; NULL: a stream */
	struct replay_pos made;
	uint64_t read, written; /* bytes, of a stream; messages */
	bool messages;
	struct channel_queue connections; /* to what has this name */
	struct channel_queue rights;	  /* descriptors on their way */
	uint64_t size;			  /* of a file, as far as it was written here */
	size_t since; /* moves before this one were into what has been cut off */
	const char *kind;
};

struct channel_file {
	uint32_t in, out; /* objects; 0: none */
	uint64_t at;
	uint32_t same;	/* what this has turned out to be; 0: what it is */
	uint32_t bound; /* the object with the socket's name */
	uint8_t type;	/* SOCK_... */
	bool append;
};

struct channel_fd {
	uint32_t file; /* 0: not open, as far as is known */
	bool closes;   /* by exec */
};

struct channel_table {
	struct channel_fd *fd;
	size_t n;
	char *cwd;
	bool begun;
};

/* Bytes that a call moved. */
struct channel_move {
	size_t call;
	uint32_t object;
	bool write;
	uint64_t first, length;
	size_t since; /* of a read: the object's then */
	size_t from;  /* of a write without memory: the move that read it, and 1 */
};

struct channel_name {
	char *path;
	uint32_t object;
};

struct channel_list {
	void *v;
	size_t n, cap;
};

struct ana_channels {
	struct ana_job *job;
	struct replay *r;
	struct ana_log calls;
	struct channel_table *tables; /* by process */
	struct channel_list objects, files, moves, names, waits;
	uint32_t *by_path; /* names, by a hash of their path; 0: none, else one more than which */
	size_t n_by_path;  /* slots, a power of two */
	size_t room;	   /* descriptors that tables may still grow by */
	uint32_t unbegun;  /* all processes before that have a table */
	bool failed;
};

struct channel_object *ana_channel_object(const struct ana_channels *c, uint32_t i);
struct channel_file *ana_channel_file(const struct ana_channels *c, uint32_t i);
uint32_t ana_channel_new_object(struct ana_channels *c, const struct channel_call *call, char *name,
				const char *kind);
uint32_t ana_channel_new_file(struct ana_channels *c, uint32_t in, uint32_t out, bool append);
/* One more in a list, all zero; c->failed if there is no room. */
void *ana_channel_add(struct ana_channels *c, struct channel_list *l, size_t size);
/* The file of a descriptor; 0: not known. */
uint32_t ana_channel_file_of(const struct channel_table *t, uint64_t n);
void ana_channel_put(struct ana_channels *c, struct channel_table *t, uint64_t n, uint32_t f,
		     bool closes);
/* The object that has this name now; 0: none. */
uint32_t ana_channel_named(const struct ana_channels *c, const char *name);
void ana_channel_set_name(struct ana_channels *c, const char *name, uint32_t o);
/* Stand before the call at a position, or behind it. */
bool ana_channel_stand(struct ana_channels *c, const struct replay_pos *pos, bool behind);
/* Of memory there. */
bool ana_channel_number(struct ana_channels *c, uint64_t at, unsigned size, uint64_t *value);

/* ---- channels-sockets.c ---- */

/* What a call on a socket with a name does. */
void ana_channel_socket(struct ana_channels *c, struct channel_table *t,
			const struct channel_call *call);
/* The object that a call writes to: the file's, or the one whose address the call names. */
uint32_t ana_channel_written_to(struct ana_channels *c, const struct channel_table *t,
				const struct channel_call *call, uint32_t f);
/* The descriptors that a message has with it. */
void ana_channel_rights(struct ana_channels *c, struct channel_table *t,
			const struct channel_call *call, uint32_t f);

#endif
