/* What the trace says of machine and program. */
#include "recorder/ahead.h"

#include "config.h"
#include "format/cpu.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* What no shell changes. */
#define SAFE "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%^"

static ssize_t read_proc(pid_t pid, const char *name, void *buf, size_t size)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buf, size) : -1;
	if (fd >= 0)
		close(fd);
	return n;
}

void rec_thread_name(const struct rec_thread *t, char name[64])
{
	ssize_t n = read_proc(t->tid, "comm", name, 63);
	name[n > 0 ? n : 0] = 0;
	name[strcspn(name, "\n")] = 0;
}

/* As many arguments of a command line as there is room for, as one would type them. */
static void quote(const char *args, size_t size, char *out, size_t room)
{
	size_t n = 0;
	for (const char *a = args, *end = args + size; a < end && n + 8 < room;) {
		size_t len = strnlen(a, (size_t)(end - a));
		bool plain = len && strspn(a, SAFE) >= len;
		if (a > args)
			out[n++] = ' ';
		if (!plain)
			out[n++] = '\'';
		for (size_t i = 0; i < len && n + 6 < room; i++) {
			if (a[i] == '\'') {
				memcpy(out + n, "'\\'", 3);
				n += 3;
			}
			out[n++] = a[i];
		}
		if (!plain)
			out[n++] = '\'';
		a += len + 1;
	}
	out[n] = 0;
}

void rec_command(struct rec_thread *t)
{
	char args[DJ_NAME_MAX], text[DJ_NAME_MAX];
	ssize_t n = read_proc(t->proc->pid, "cmdline", args, sizeof(args) - 1);
	struct dj_record r = {
		.kind = DJ_REC_MARK, .steps = t->steps, .what = DJ_MARK_COMMAND, .name = text
	};
	if (n <= 0)
		return;
	args[n] = 0;
	quote(args, (size_t)n, text, sizeof(text));
	rec_ring_record(t, &r);
}

struct dj_writer *rec_create_trace(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	char link[64], exe[4096] = "", cwd[4096] = "", machine[512], cpu[128], comm[64];
	uint8_t auxv[4096];
	struct utsname u;
	struct timespec now;
	uname(&u);
	snprintf(machine, sizeof(machine), "%s %s %s %s", u.sysname, u.release, u.machine,
		 u.nodename);
	dj_cpu_describe(cpu, sizeof(cpu));
	snprintf(link, sizeof(link), "/proc/%d/exe", proc->pid);
	ssize_t n = readlink(link, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = 0;
	if (!getcwd(cwd, sizeof(cwd)))
		cwd[0] = 0;
	ssize_t aux = read_proc(proc->pid, "auxv", auxv, sizeof(auxv));
	rec_thread_name(t, comm);
	clock_gettime(CLOCK_REALTIME, &now);
	t->rec->started = now.tv_sec;
	rec_keeper_start(t->rec);
	struct dj_trace_meta meta = {
		.predict = t->rec->opt.predict,
		.shadow_bits = 32,
		.memory_model = t->rec->opt.memory_model,
		.digest_interval = t->rec->opt.digest_interval,
		.start_time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
		.pid = proc->pid,
		.page_size = (uint32_t)sysconf(_SC_PAGESIZE),
		.deja_version = PACKAGE_VERSION,
		.machine = machine,
		.cpu = cpu,
		.exe = exe,
		.cwd = cwd,
		.argv = (const char *const *)t->rec->argv,
		.envp = (const char *const *)t->rec->envp,
		.auxv = auxv,
		.auxv_len = aux > 0 ? (size_t)aux : 0,
	};
	const struct rec_options *opt = &t->rec->opt;
	struct dj_writer *w = (opt->share ? dj_writer_create_sharing
					  : dj_writer_create)(opt->output, &meta, t->rec->err);
	if (w)
		dj_writer_keep_packed(w, rec_store_packed(t->rec));
	if (w && (!(proc->facts = dj_writer_process(w, proc->pid, NULL, t->rec->err)) ||
		  !(t->stream = dj_writer_thread(w, proc->facts, t->tid, comm, t->rec->err)))) {
		dj_writer_close(w, NULL, NULL);
		w = NULL;
	}
	return w;
}
