/*
 * One debugger's session: state shared by the files of this directory, and what each offers the
 * others. A request is a `struct stub_scan` over its arguments; a handler puts the reply into
 * s->reply and returns whether it is to be sent.
 */
#ifndef DEJA_GDBSTUB_SESSION_H
#define DEJA_GDBSTUB_SESSION_H

#include "gdbstub/packet.h"
#include "replayer/replay.h"

#define SESSION_FILES	32
#define SESSION_POINTS	4096
#define SESSION_WATCHES 128 /* of them: each access of the program to such memory looks at all */
#define SESSION_CHUNK	0x10000 /* bytes of memory or file handed out in one reply */

/* A breakpoint or watchpoint, as inserted by Z packets. */
struct stub_session_point {
	char type;	  /* '0'..'4' */
	uint32_t process; /* in which it is; number */
	uint64_t addr, len;
	int id;		     /* watchpoints: the replay's */
	uint8_t *conditions; /* breakpoints: stop only if one of them is true; see agent.c */
	size_t conditions_len;
};

/* An open vFile. */
struct stub_session_file {
	bool open, owned;
	const uint8_t *bytes; /* owned: made for this file; else the module's */
	size_t size;
	size_t module; /* number + 1, or 0 */
};

/* A program image: the first, and what each exec brought. See image.c. */
struct stub_session_image {
	uint32_t process, number;
	struct replay_pos pos; /* from here on */
	char *exe;	       /* path, "" if not known */
	bool looked;	       /* so that these are known, as far as they can be: */
	uint64_t rip;	       /* its first instruction */
	uint8_t *auxv;
	size_t auxv_len;
};

/* A range of code within one line: see lines.c. */
struct stub_session_line {
	uint64_t start, end;
};

/* Whether the debugger's changes are in effect: see scratch.c. */
enum stub_scratch_state { SCRATCH_NONE, SCRATCH_EDITS, SCRATCH_CALL };

struct stub_session {
	struct replay *r;
	struct stub_link *link; /* NULL in tests of single packets */
	struct stub_textbuf reply;
	struct stub_textbuf doc; /* the qXfer document being read */
	bool blank;		 /* unknown memory is shown as zeros ("monitor unknown zero")... */
	uint64_t blanks;	 /* ...so many bytes have been */
	char *doc_key;		 /* which one that is, object and annex */

	/* see threads.c */
	bool *shown; /* by process: the debugger has it */
	size_t n_processes;
	struct replay_thread *threads; /* of those, if threads_known */
	size_t n_threads, next_thread;
	bool threads_known;
	int32_t child;	       /* the last one a fork stop told of: its number */
	uint32_t child_thread; /* its first thread, or REPLAY_ALL: it is not recorded */
	bool child_new;	       /* it was told of just now */
	bool in_child;	       /* requests speak of it... */
	bool away;	       /* ...and the replay is at its beginning; before, it was: */
	struct replay_pos home;
	struct replay_thread home_thread;
	bool vforked; /* and shares its parent's memory: gdb waits to hear that this is over */

	uint32_t moves;	   /* the thread that Hc chose, or REPLAY_ALL... */
	int32_t moves_pid; /* ...of this process, if above 0 */
	uint32_t selected; /* the one that the user looks at, if "monitor selected" said */
	bool multiprocess, fork_events, vfork_events, exec_events;
	bool extended;	 /* extended-remote: kill and run again are possible */
	bool no_process; /* killed or detached: only run and attach make sense */
	bool done;	 /* the client has said goodbye */

	struct replay_stop last; /* why the replay stands where it stands */
	bool have_last;
	int64_t sysno; /* at a system call stop: its number, else -1 */

	bool looks_again;   /* the client looks at everything anew after a monitor command */
	char going_to[128]; /* where to go when it next moves the program, "": nowhere; monitor.c */

	uint32_t
		going_thread; /* there it is to be, instead, where it begins or is; or REPLAY_ALL */
	bool going_begin;
	bool arrives; /* it is there, and the client has been told of the image, but not to stop */

	struct stub_session_point *points;
	size_t n_points;

	struct stub_session_line *lines; /* by address; for bs, see lines.c... */
	size_t n_lines;
	bool lines_meant; /* ...during this command */
	bool lines_again; /* bs came last, to a place within the program, of this thread: */
	uint32_t lines_thread;

	enum stub_scratch_state scratch;
	bool scratch_edited;	     /* something was changed by hand, which will be forgotten */
	struct dj_regs scratch_regs; /* as they were before any change */

	struct stub_session_image *images; /* by process and position, at least one */
	size_t n_images;
	char *kept_library; /* an entry of the list of libraries, for gdb's sake: see solib.c... */
	const struct stub_session_image *kept_image; /* ... in that image */

	uint64_t tls_modid_at; /* address of glibc's word on link maps, or 0: see tls.c */

	struct stub_session_file files[SESSION_FILES];
};

/* session.c */
int stub_session_init(struct stub_session *s, struct replay *r, struct stub_link *link,
		      struct dj_error *err);
void stub_session_free(struct stub_session *s);
/* Handle one packet; returns whether s->reply is to be sent. */
bool stub_session_packet(struct stub_session *s, struct stub_scan packet);
bool stub_reply_ok(struct stub_session *s);
bool stub_reply_error(struct stub_session *s, int number);
/* "E.text", which gdb shows to the user. */
bool stub_reply_error_text(struct stub_session *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
bool stub_reply_empty(struct stub_session *s);
/* Text on the debugger's console while it waits for a stop. */
void stub_session_console(struct stub_session *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* threads.c */
int stub_threads_init(struct stub_session *s);
void stub_threads_free(struct stub_session *s);
/* The replay has moved: what is known of threads is out of date. */
void stub_threads_forget(struct stub_session *s);
/* Whether the debugger has this process; and that from now on it has, or has not. */
bool stub_threads_shown(const struct stub_session *s, uint32_t process);
void stub_threads_show(struct stub_session *s, uint32_t process, bool show);
/* From now on it has the process in which the replay stands. */
void stub_threads_go(struct stub_session *s);
void stub_put_thread_id(struct stub_session *s, const struct replay_thread *t);
/* Parse a thread id; *tid becomes -1 for "all", 0 for "any". */
bool stub_scan_thread_id(struct stub_scan *a, int32_t *pid, int32_t *tid);
/* The thread that such an id means, if it is alive and the debugger has it: the selected one for
 * "all" and "any", or the first of that process. */
bool stub_session_thread(struct stub_session *s, int32_t pid, int32_t tid,
			 struct replay_thread *out);
/* That of the thread that is selected, or of the child that requests speak of. */
uint32_t stub_threads_process_now(struct stub_session *s);
void stub_put_threads_xml(struct stub_session *s, struct stub_textbuf *b);
/* A child was made where the replay has stopped. */
void stub_threads_forked(struct stub_session *s, const struct replay_stop *stop);
/* Whether it was made just now, is recorded, and the debugger has it. */
bool stub_threads_new_child(const struct stub_session *s);
/* If requests speak of it, look at it where it begins; and back from there. */
void stub_threads_visit(struct stub_session *s);
void stub_threads_return(struct stub_session *s);
/* Select the thread that is to be moved. */
int stub_threads_move(struct stub_session *s, uint32_t thread, struct dj_error *err);
/* The thread in which the process of that number is, or begins if it is not alive `here`; false if
 * there is none. */
bool stub_threads_process(struct stub_session *s, uint64_t pid, uint32_t *thread, bool *here);
/* The debugger leaves a process alone; true if that was the last. */
bool stub_threads_leave(struct stub_session *s, uint64_t pid);
bool stub_handle_select(struct stub_session *s, struct stub_scan *a);
bool stub_handle_alive(struct stub_session *s, struct stub_scan *a);
bool stub_handle_attach(struct stub_session *s, struct stub_scan *a);
bool stub_handle_current_thread(struct stub_session *s, struct stub_scan *a);
bool stub_handle_threads_first(struct stub_session *s, struct stub_scan *a);
bool stub_handle_threads_next(struct stub_session *s, struct stub_scan *a);
bool stub_handle_thread_info(struct stub_session *s, struct stub_scan *a);

/* resume.c */
bool stub_handle_vcont_query(struct stub_session *s, struct stub_scan *a);
bool stub_handle_vcont(struct stub_session *s, struct stub_scan *a);
bool stub_handle_continue(struct stub_session *s, struct stub_scan *a);
bool stub_handle_continue_signal(struct stub_session *s, struct stub_scan *a);
bool stub_handle_step(struct stub_session *s, struct stub_scan *a);
bool stub_handle_step_signal(struct stub_session *s, struct stub_scan *a);
bool stub_handle_back_step(struct stub_session *s, struct stub_scan *a);
bool stub_handle_back_continue(struct stub_session *s, struct stub_scan *a);
bool stub_handle_why(struct stub_session *s, struct stub_scan *a);
/* Forget why the replay stopped, and where it was to go: it was moved. */
void stub_session_moved(struct stub_session *s);
/* A stop reply that says no more than where we are. */
bool stub_reply_plain_stop(struct stub_session *s);

/* points.c */
bool stub_handle_point_insert(struct stub_session *s, struct stub_scan *a);
bool stub_handle_point_remove(struct stub_session *s, struct stub_scan *a);
/* Those in a process, or REPLAY_ALL. */
void stub_session_points_clear(struct stub_session *s, uint32_t process);
bool stub_session_breakpoint_at(struct stub_session *s, uint64_t addr);
/* The watchpoint with this id of the replay's, or NULL. */
const struct stub_session_point *stub_session_point(struct stub_session *s, int id);

/* lines.c */
bool stub_handle_lines(struct stub_session *s, struct stub_scan *a);
/* Told of each request before it is handled. */
void stub_lines_request(struct stub_session *s, struct stub_scan a);
/* A step back of the client's that it would make again and again. */
struct stub_line_step {
	const struct stub_session_line *line; /* NULL: it is not */
	uint32_t thread;
	uint64_t sp, fp;
	unsigned made;
};
void stub_lines_begin(struct stub_session *s, struct stub_line_step *l, uint32_t thread);
/* Whether the client, told of this stop, would do nothing but ask for another step. */
bool stub_lines_go_on(struct stub_session *s, struct stub_line_step *l, struct replay_stop *stop);

/* registers.c */
bool stub_handle_regs_read(struct stub_session *s, struct stub_scan *a);
bool stub_handle_regs_write(struct stub_session *s, struct stub_scan *a);
bool stub_handle_reg_read(struct stub_session *s, struct stub_scan *a);
bool stub_handle_reg_write(struct stub_session *s, struct stub_scan *a);
void stub_put_expedited_regs(struct stub_session *s);
/* The target description (an XML document). */
void stub_put_target_xml(struct stub_textbuf *b);

/* The value of a register of at most 8 bytes, by its number in the description. */
bool stub_session_reg_value(struct stub_session *s, uint64_t number, uint64_t *value);

/* agent.c */
/* Evaluate bytecode; false if that cannot be done. */
bool stub_agent_eval(struct stub_session *s, const uint8_t *code, size_t len, uint64_t *value);
/* Conditions at the end of a Z packet into one new block, NULL if there are none. */
bool stub_agent_scan_conditions(struct stub_scan *a, uint8_t **block, size_t *len);
bool stub_agent_any_true(struct stub_session *s, const uint8_t *block, size_t len);

/* access.c */
bool stub_handle_mem_read(struct stub_session *s, struct stub_scan *a);
bool stub_handle_mem_read_binary(struct stub_session *s, struct stub_scan *a);
bool stub_handle_mem_write(struct stub_session *s, struct stub_scan *a);
bool stub_handle_mem_write_binary(struct stub_session *s, struct stub_scan *a);
bool stub_handle_mem_search(struct stub_session *s, struct stub_scan *a);
bool stub_handle_mem_crc(struct stub_session *s, struct stub_scan *a);

/* scratch.c */
int stub_scratch_write(struct stub_session *s, uint64_t addr, const void *bytes, size_t len,
		       struct dj_error *err);
int stub_scratch_set_regs(struct stub_session *s, const struct dj_regs *regs, uint64_t mask,
			  struct dj_error *err);
/* Before moving: decide whether the copy goes on or is left. */
void stub_scratch_before_resume(struct stub_session *s, enum replay_dir dir);
/* Leave the copy, if in one; with a message if edits are lost and one may be shown. */
void stub_scratch_leave(struct stub_session *s, bool tell);

/* query.c */
struct stub_session_command {
	const char *prefix;
	bool (*handle)(struct stub_session *s, struct stub_scan *args);
};
extern const struct stub_session_command stub_session_queries[];
/* The first row whose prefix begins the packet (which is then skipped), or NULL. */
const struct stub_session_command *stub_session_find(const struct stub_session_command *table,
						     struct stub_scan *a);

/* tls.c */
bool stub_handle_symbol(struct stub_session *s, struct stub_scan *a);
bool stub_handle_tls_address(struct stub_session *s, struct stub_scan *a);

/* xfer.c */
bool stub_handle_xfer(struct stub_session *s, struct stub_scan *a);
void stub_xfer_forget(struct stub_session *s);

/* image.c */
int stub_session_images(struct stub_session *s);
void stub_session_images_free(struct stub_session *s);
/* The program image that is current at this position. */
const struct stub_session_image *stub_session_image(struct stub_session *s);
/* Its executable's path, "" if not known. */
const char *stub_session_exe(struct stub_session *s);

/* solib.c */
void stub_put_library_list(struct stub_session *s, struct stub_textbuf *b);
bool stub_handle_shlib_info(struct stub_session *s, struct stub_scan *a);

/* procfs.c */
/* The contents of /proc/PID/NAME; false if there is no such file here. */
bool stub_procfs_read(struct stub_session *s, const char *path, struct stub_textbuf *out);
bool stub_procfs_readlink(struct stub_session *s, const char *path, struct stub_textbuf *out);
void stub_put_mappings(struct stub_session *s, struct stub_textbuf *out);

/* vfile.c */
bool stub_handle_vfile(struct stub_session *s, struct stub_scan *a);

/* lldb.c */
bool stub_handle_host_info(struct stub_session *s, struct stub_scan *a);
bool stub_handle_process_info(struct stub_session *s, struct stub_scan *a);
bool stub_handle_memory_region(struct stub_session *s, struct stub_scan *a);

/* monitor.c */
bool stub_handle_monitor(struct stub_session *s, struct stub_scan *a);

/* gdbsignal.c */
int stub_gdbsignal_from_linux(int signo);
int stub_gdbsignal_to_linux(uint64_t gdb); /* 0 if there is none */

#endif
