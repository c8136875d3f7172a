/*
 * One debugger's session: state shared by the files of this directory, and what each offers the
 * others. A request is a `struct scan` over its arguments; a handler puts the reply into
 * s->reply and returns whether it is to be sent.
 */
#ifndef DEJA_GDBSTUB_SESSION_H
#define DEJA_GDBSTUB_SESSION_H

#include "gdbstub/packet.h"
#include "replayer/replay.h"

#define SESSION_FILES  32
#define SESSION_POINTS 4096
#define SESSION_CHUNK  0x10000 /* bytes of memory or file handed out in one reply */

/* A breakpoint or watchpoint, as inserted by Z packets. */
struct session_point {
	char type; /* '0'..'4' */
	uint64_t addr, len;
	int id; /* watchpoints: the replay's */
	uint8_t *conditions; /* breakpoints: stop only if one of them is true; see agent.c */
	size_t conditions_len;
};

/* An open vFile. */
struct session_file {
	bool open, owned;
	const uint8_t *bytes; /* owned: made for this file; else the module's */
	size_t size;
	size_t module; /* number + 1, or 0 */
};

/* A program image: the first, and what each exec brought. */
struct session_image {
	uint64_t steps; /* from here on... */
	uint64_t rip;	/* ...where its first instruction is: exec itself takes no step */
	uint8_t auxv[1024];
	size_t auxv_len;
	char exe[4096];
};

/* Whether the debugger's changes are in effect: see scratch.c. */
enum scratch_state { SCRATCH_NONE, SCRATCH_EDITS, SCRATCH_CALL };

struct session {
	struct replay *r;
	struct link *link; /* NULL in tests of single packets */
	struct textbuf reply;
	struct textbuf doc; /* the qXfer document being read */
	char *doc_key;	    /* which one that is, object and annex */

	int32_t pid;
	bool multiprocess, fork_events, exec_events;
	int32_t child;	/* the last one a fork stop told of, or 0 */
	bool in_child;	/* packets speak of that child, which was not recorded */
	bool extended;	/* extended-remote: kill and run again are possible */
	bool no_process; /* killed or detached: only run and attach make sense */
	bool done;	/* the client has said goodbye */

	struct replay_stop last; /* why the replay stands where it stands */
	bool have_last;
	int64_t sysno; /* at a system call stop: its number, else -1 */

	struct session_point *points;
	size_t n_points;

	enum scratch_state scratch;
	bool scratch_edited; /* something was changed by hand, which will be forgotten */
	struct dj_regs scratch_regs; /* as they were before any change */

	struct session_image *images; /* by steps, at least one */
	size_t n_images;

	uint64_t tls_modid_at; /* address of glibc's word on link maps, or 0: see tls.c */

	struct session_file files[SESSION_FILES];
};

/* session.c */
int session_init(struct session *s, struct replay *r, struct link *link, struct dj_error *err);
void session_free(struct session *s);
/* Handle one packet; returns whether s->reply is to be sent. */
bool session_packet(struct session *s, struct scan packet);
bool reply_ok(struct session *s);
bool reply_error(struct session *s, int number);
/* "E.text", which gdb shows to the user. */
bool reply_error_text(struct session *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
bool reply_empty(struct session *s);
/* Text on the debugger's console while it waits for a stop. */
void session_console(struct session *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void put_thread_id(struct session *s, int32_t tid);
/* Parse a thread id; *tid becomes -1 for "all", 0 for "any". */
bool scan_thread_id(struct scan *a, int32_t *pid, int32_t *tid);
bool session_has_thread(struct session *s, int32_t tid);
const char *session_thread_name(struct session *s, int32_t tid);

/* resume.c */
bool handle_vcont_query(struct session *s, struct scan *a);
bool handle_vcont(struct session *s, struct scan *a);
bool handle_continue(struct session *s, struct scan *a);
bool handle_continue_signal(struct session *s, struct scan *a);
bool handle_step(struct session *s, struct scan *a);
bool handle_step_signal(struct session *s, struct scan *a);
bool handle_back_step(struct session *s, struct scan *a);
bool handle_back_continue(struct session *s, struct scan *a);
bool handle_why(struct session *s, struct scan *a);
bool handle_point_insert(struct session *s, struct scan *a);
bool handle_point_remove(struct session *s, struct scan *a);
void session_points_clear(struct session *s);
bool session_breakpoint_at(struct session *s, uint64_t addr);
/* Forget why the replay stopped: it was moved. */
void session_moved(struct session *s);
/* A stop reply that says no more than where we are. */
bool reply_plain_stop(struct session *s);

/* registers.c */
bool handle_regs_read(struct session *s, struct scan *a);
bool handle_regs_write(struct session *s, struct scan *a);
bool handle_reg_read(struct session *s, struct scan *a);
bool handle_reg_write(struct session *s, struct scan *a);
void put_expedited_regs(struct session *s);
/* The target description (an XML document). */
void put_target_xml(struct textbuf *b);

/* The value of a register of at most 8 bytes, by its number in the description. */
bool session_reg_value(struct session *s, uint64_t number, uint64_t *value);

/* agent.c */
/* Evaluate bytecode; false if that cannot be done. */
bool agent_eval(struct session *s, const uint8_t *code, size_t len, uint64_t *value);
/* Conditions at the end of a Z packet into one new block, NULL if there are none. */
bool agent_scan_conditions(struct scan *a, uint8_t **block, size_t *len);
bool agent_any_true(struct session *s, const uint8_t *block, size_t len);

/* access.c */
bool handle_mem_read(struct session *s, struct scan *a);
bool handle_mem_read_binary(struct session *s, struct scan *a);
bool handle_mem_write(struct session *s, struct scan *a);
bool handle_mem_write_binary(struct session *s, struct scan *a);
bool handle_mem_search(struct session *s, struct scan *a);
bool handle_mem_crc(struct session *s, struct scan *a);

/* scratch.c */
int scratch_enter(struct session *s, struct dj_error *err);
int scratch_write(struct session *s, uint64_t addr, const void *bytes, size_t len,
		  struct dj_error *err);
int scratch_set_regs(struct session *s, const struct dj_regs *regs, uint64_t mask,
		     struct dj_error *err);
/* Before moving: decide whether the copy goes on or is left. */
void scratch_before_resume(struct session *s, enum replay_dir dir);
/* Leave the copy, if in one; with a message if edits are lost and one may be shown. */
void scratch_leave(struct session *s, bool tell);

/* query.c */
struct session_command {
	const char *prefix;
	bool (*handle)(struct session *s, struct scan *args);
};
extern const struct session_command session_queries[];
/* The first row whose prefix begins the packet (which is then skipped), or NULL. */
const struct session_command *session_find(const struct session_command *table, struct scan *a);

/* tls.c */
bool handle_symbol(struct session *s, struct scan *a);
bool handle_tls_address(struct session *s, struct scan *a);

/* xfer.c */
bool handle_xfer(struct session *s, struct scan *a);
void xfer_forget(struct session *s);

/* solib.c */
/* The program image that is current at this position. */
const struct session_image *session_image(struct session *s);
/* The image was replaced just here: remember the new one. */
void session_image_new(struct session *s);
/* Its executable's path, "" if not known. */
const char *session_exe(struct session *s);
void put_library_list(struct session *s, struct textbuf *b);

/* procfs.c */
/* The contents of /proc/PID/NAME; false if there is no such file here. */
bool procfs_read(struct session *s, const char *path, struct textbuf *out);
bool procfs_readlink(struct session *s, const char *path, struct textbuf *out);
void put_mappings(struct session *s, struct textbuf *out);

/* vfile.c */
bool handle_vfile(struct session *s, struct scan *a);

/* monitor.c */
bool handle_monitor(struct session *s, struct scan *a);

/* gdbsignal.c */
int gdbsignal_from_linux(int signo);
int gdbsignal_to_linux(uint64_t gdb); /* 0 if there is none */

#endif
