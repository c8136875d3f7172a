/*
 * The supervisor's own header. PURPOSE: what its files share.
 *
 *   supervisor.c  the loop: wait for a stop, handle it, let the thread go on
 *   tracee.c      registers, memory and system calls of the stopped program
 *   image.c       a new process image: area, arenas, snapshot, first fragment
 *   maps.c        mappings and modules
 *   ring.c        the ring buffer and the thread that writes it out
 *   native.c      instructions executed natively, CPUID
 *   syscalls.c    the system calls that the supervisor performs
 *   signals.c     delivery of signals (its essay first)
 *
 * One rule holds it together: a thread is either in the cache (its registers are the
 * processor's, its gs base is S) or in hand: stopped, with the program's registers in `t->regs`
 * and `t->steps` exact. Handlers bring it from the first state to the second (sup_take), work
 * there, and enter the cache again (sup_enter).
 */
#ifndef DEJA_RECORDER_SUPERVISOR_H
#define DEJA_RECORDER_SUPERVISOR_H

#include "format/error.h"
#include "format/record.h"
#include "format/trace.h"
#include "translator/area.h"
#include "recorder/record.h"
#include "translator/translate.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct mapping {
	uint64_t start, end, offset;
	uint32_t prot, flags;
	int32_t module;
	char label[16]; /* the kernel's name for what is no file: "[vdso]", or "" */
};

struct code_page {
	uint64_t addr;
	uint32_t len;  /* readable bytes from addr */
	bool changing; /* writable and executable, or shared */
	bool dynamic;  /* not what a module file says: goes into the trace when translated from */
	bool logged;
	uint8_t bytes[4096];
};

struct ring;

/* The recording: one trace, whatever takes part in it. */
struct sup {
	struct record_options opt;
	struct dj_writer *writer;
	struct dj_error *err;
	char *const *argv;
	struct sigaction inherited[32]; /* what the program inherits */
	struct module_file {
		char *path;
		uint8_t *bytes;
		size_t size;
		uint64_t dev, ino;
	} * modules; /* by module number of the trace */
	size_t n_modules;
	uint64_t modules_bytes;
	bool cut;   /* recording ends before the program does: err says why */
	bool fatal; /* deja failed: err says how */
};

/* An address space and the code translated for it. */
struct process {
	struct sup *sup;
	pid_t pid;
	int memfd;	    /* the shared areas and arenas */
	uint64_t arena_off; /* next free offset in there */
	int mem;	    /* /proc/PID/mem */
	struct translator *tr;
	struct dj_stream *facts; /* its stream in the trace */
	uint32_t image;		 /* how many exec has replaced */
	struct tracee *hand;	 /* the thread in hand: the translator works and records for it */

	struct mapping *maps;
	size_t n_maps, cap_maps;
	uint64_t brk_start, brk;
	struct code_page **pages; /* hash by page */
	unsigned n_pages;
	uint64_t vdso_syscall; /* a syscall instruction in the vdso */
	uint64_t vdso, vdso_end;

	bool image_replaced; /* exec succeeded */
	bool ended;	     /* with this wait(2) status: */
	int status;
};

/* A thread (ptrace(2)'s word for one that is traced). */
struct tracee {
	struct process *proc;
	struct sup *sup;
	pid_t tid;
	uint8_t *control; /* its control region, in our address space */
	uint64_t s;	  /* S in the program */
	struct ring *ring;
	struct dj_stream *stream;     /* its stream in the trace */
	struct user_regs_struct regs; /* the program's, when in hand */
	uint64_t steps;
	uint64_t last_digest;
	siginfo_t pending[64]; /* signals put aside */
	unsigned n_pending;
	bool in_rep;  /* in hand between iterations of a string instruction */
	bool in_hand; /* regs and steps are valid */
	uint64_t stops, natives;
	uint64_t stops_at_tick;
};

/* The control block, relative to S. */
static inline uint64_t *tcb(const struct tracee *t, int off)
{
	return (uint64_t *)(void *)(t->control + AREA_CONTROL + off);
}

/* ---- tracee.c ---- */
int tracee_getregs(struct tracee *t, struct user_regs_struct *r);
int tracee_setregs(struct tracee *t, const struct user_regs_struct *r);
/* Everything, as the program sees it (general registers from t->regs). */
void tracee_full_regs(struct tracee *t, struct dj_regs *out);
void tracee_from_user(const struct user_regs_struct *u, struct dj_regs *out);
size_t tracee_read(struct process *proc, uint64_t addr, void *buf, size_t len);
bool tracee_write(struct process *proc, uint64_t addr, const void *buf, size_t len);
/* Let the stopped thread execute one instruction at regs->rip with these registers, with no
 * asynchronous signal in between (those are put aside). Returns the wait status of the stop that
 * follows: SIGTRAP, a synchronous signal, an event, or the end of the process. */
int tracee_step(struct tracee *t, struct user_regs_struct *regs, int sig, siginfo_t *info);
/* A system call made by the program on our behalf; in hand; registers are kept. */
int64_t tracee_syscall(struct tracee *t, uint64_t nr, uint64_t a, uint64_t b, uint64_t c,
		       uint64_t d, uint64_t e, uint64_t f);
int tracee_wait(struct tracee *t, int *status);

/* ---- image.c ---- */
int image_begin(struct tracee *t, bool exec);

/* ---- maps.c ---- */
int maps_read(struct tracee *t, bool record);
void maps_add(struct tracee *t, uint64_t start, uint64_t end, uint32_t prot, uint32_t flags, int fd,
	      uint64_t offset);
void maps_add_named(struct tracee *t, uint64_t start, uint64_t end, uint32_t prot, uint32_t flags,
		    const char *name);
/* Like an existing mapping, elsewhere. */
void maps_add_like(struct tracee *t, const struct mapping *like, uint64_t start, uint64_t end,
		   uint64_t offset);
/* Add whatever the kernel says is mapped at `addr` (shared memory segments). */
void maps_refresh(struct tracee *t, uint64_t addr);
void maps_remove(struct tracee *t, uint64_t start, uint64_t end);
/* The mapping that starts at `start`. */
void maps_remove_at(struct tracee *t, uint64_t start);
void maps_protect(struct tracee *t, uint64_t start, uint64_t end, uint32_t prot);
const struct mapping *maps_find(const struct process *proc, uint64_t addr);
size_t maps_read_code(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing);
void maps_translated(void *ctx, uint64_t pc, size_t len);
void maps_free(struct process *proc);
void maps_forget_code(struct process *proc, uint64_t start, uint64_t end);
/* An arena near `pc`: returns the program's address, or 0 if there is no room. */
uint64_t maps_new_arena(struct tracee *t, uint64_t pc, size_t size, uint8_t **ours);

/* ---- ring.c ---- */
struct ring *ring_start(struct tracee *t);
/* The tracee is stopped: hand what it wrote to the writing thread. */
void ring_hand_over(struct tracee *t);
/* Append a record of the supervisor's; copies what it borrows. */
void ring_record(struct tracee *t, const struct dj_record *rec);
/* Write everything handed over or not; the latest position it implies: a thread killed inside a
 * fragment has come further than T_STEPS says. */
uint64_t ring_reached(struct tracee *t);
int ring_stop(struct tracee *t); /* write everything; -1 if writing failed at any time */
bool ring_failed(struct tracee *t);

/* ---- native.c ---- */
void native_insn(struct tracee *t);
void sup_effects(struct tracee *t, const struct dj_regs *before, const struct dj_regs *after,
		 const uint8_t *insn, unsigned len, unsigned why);

/* ---- syscalls.c ---- */
void syscalls_init(struct tracee *t);
void syscalls_do(struct tracee *t);

/* ---- signals.c ---- */
/* A signal-delivery stop in the cache that is not ours. */
void signals_stop(struct tracee *t, int sig);
/* In hand at a SIGTRAP stop: deliver what was put aside. */
void signals_pending(struct tracee *t);
void signals_put_aside(struct tracee *t, const siginfo_t *info);
void signals_deliver(struct tracee *t, siginfo_t *info);

/* ---- supervisor.c ---- */
/* Registers of the program from where the thread is stopped in the cache. False if that place is
 * not an instruction boundary, a faulting access or a stop. */
bool sup_take(struct tracee *t, const struct user_regs_struct *r, const struct tr_where *w);
/* A trap of ours in the cache (int3), the thread being stopped behind it. */
void sup_trap(struct tracee *t, struct user_regs_struct *r);
/* Step the thread to where it can be taken in hand (signals.c). */
void sup_step_to_boundary(struct tracee *t);
/* In hand: an instruction that wrote to the shadow will not be executed after all. Shadow and trace
 * get the lines of memory at [addr, addr+size) as they are; what cannot be read is left out. */
void sup_import(struct tracee *t, uint64_t addr, unsigned size);
/* In hand: the fragment for the program's code at `pc`; NULL if it is to be executed natively. */
struct tr_frag *sup_fragment(struct tracee *t, uint64_t pc);
/* Enter the cache at t->regs.rip and let the thread run. */
void sup_enter(struct tracee *t);
void sup_resume(struct tracee *t, int sig);
void sup_digest(struct tracee *t, bool force);
void sup_end(struct tracee *t, int status);
/* Recording cannot go on: the reason, in one sentence. Kills the program. */
void sup_cut(struct sup *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sup_fatal(struct sup *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
