/*
 * Where programs lie: at the same addresses each time.
 *
 * The kernel lays out each image at random (ADDR_NO_RANDOMIZE, personality(2)). In a recording
 * nobody is kept out by that, and each recording would say of a variable that it is elsewhere. Two
 * mappings that have the same low 32 bits of addresses, which costs time in a replay, would come up
 * once in a hundred recordings, and what has been translated for one image could not be taken over
 * by the next one (heir.c).
 *
 * So the process is made to say, just before its exec, that it does not want that, and just behind
 * it that it wants what it wanted before. The layout is decided in between. The program never sees
 * it, nor do children that are not recorded inherit it. Where a filter of seccomp forbids the call
 * (those of containers do) addresses are random as they always were. So they are where it cannot be
 * taken back, as the new image is none that can be recorded: the file is looked at before.
 */
#include "recorder/area.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCRIPTS 5 /* that name each other */

/* What the thread wants, or UINT32_MAX if nobody knows. */
static uint32_t personality_of(const struct rec_thread *t)
{
	uint32_t v = UINT32_MAX;
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->tid, "personality");
	if (f && fscanf(f, "%" SCNx32, &v) != 1)
		v = UINT32_MAX;
	if (f)
		fclose(f);
	return v;
}

/* A filter that deja has been started under may do what it likes about the call: that is found out
 * by a process which does nothing else. */
void rec_layout_look(struct rec_recording *rec)
{
	int v = personality(UINT32_MAX), status = -1;
	if (prctl(PR_GET_SECCOMP) == 0 || rec->opt.randomize)
		return;
	pid_t pid = v == -1 ? -1 : fork();
	if (pid == 0)
		_exit(personality((unsigned long)v | ADDR_NO_RANDOMIZE) == -1);
	if (pid < 0 || TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) != pid || status)
		rec->opt.randomize = true;
}

void rec_layout_start(struct rec_thread *t)
{
	int v = personality(UINT32_MAX);
	t->layout = (struct rec_layout){ .fixed = v != -1 && !t->rec->opt.randomize,
					 .own = (uint32_t)v };
}

void rec_layout_become(const struct rec_recording *rec)
{
	int v = personality(UINT32_MAX);
	if (v != -1 && !rec->opt.randomize)
		personality((unsigned long)v | ADDR_NO_RANDOMIZE);
}

/* The interpreter that a script names (execve(2)), or NULL. */
static char *interpreter_in(char *text)
{
	if (strncmp(text, "#!", 2) != 0)
		return NULL;
	text += 2 + strspn(text + 2, " \t");
	text[strcspn(text, " \t\n")] = 0;
	return text;
}

/* Whether what the thread is about to execute is a program that can be recorded. */
static bool can_be_recorded(struct rec_thread *t)
{
	char full[REC_PATH], text[256], *next = NULL;
	const struct user_regs_struct *r = &t->regs;
	uint64_t at = r->rax == SYS_execve ? r->rdi : r->rsi;
	if ((r->rax != SYS_execve && (int)r->rdi != AT_FDCWD) || !rec_path_at(t, at, full))
		return false;
	for (unsigned i = 0; i < SCRIPTS; i++, rec_path_of(t, next, full)) {
		const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)text;
		int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		if (fd >= 0)
			close(fd);
		if (n < (ssize_t)sizeof(*h) && (n < 2 || *text != '#'))
			return false;
		text[n] = 0;
		next = interpreter_in(text);
		if (!next)
			return !memcmp(h->e_ident, ELFMAG, SELFMAG) &&
			       h->e_ident[EI_CLASS] == ELFCLASS64 && h->e_machine == EM_X86_64;
	}
	return false;
}

enum rec_state rec_layout_fix(struct rec_thread *t, rec_then *then)
{
	uint32_t v = UINT32_MAX;
	if (!t->rec->opt.randomize && can_be_recorded(t))
		v = personality_of(t);
	t->layout = (struct rec_layout){ .fixed = v != UINT32_MAX, .own = v };
	if (!t->layout.fixed || (v & ADDR_NO_RANDOMIZE))
		return then(t, 0);
	return rec_call(t, then, SYS_personality, v | ADDR_NO_RANDOMIZE, 0, 0, 0, 0, 0);
}

static bool changed(const struct rec_thread *t)
{
	return t->layout.fixed && !(t->layout.own & ADDR_NO_RANDOMIZE);
}

enum rec_state rec_layout_done(struct rec_thread *t, rec_then *then)
{
	bool undo = changed(t);
	t->layout.fixed = false;
	return undo ? rec_call(t, then, SYS_personality, t->layout.own, 0, 0, 0, 0, 0) : then(t, 0);
}

void rec_layout_add(struct rec_thread *t, unsigned what)
{
	if (changed(t))
		rec_series_add(t, what, REC_MAY, SYS_personality, t->layout.own, 0, 0, 0, 0, 0);
}
