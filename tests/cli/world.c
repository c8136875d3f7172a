/*
 * A program whose world shrinks: usage: world ACTION[,ACTION...] COMMAND...
 *
 * It gives up what the actions say, one after the other, then replaces itself by the command, or,
 * if that is "report", tells what it finds: who it is, its descriptors, its limits, what it can
 * still map. All of it must be the same with deja and without.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <asm/prctl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MiB (1UL << 20)

static void limit(int resource, unsigned long soft, unsigned long hard)
{
	struct rlimit to = { soft, hard }, was;
	getrlimit(resource, &was);
	if (hard == RLIM_INFINITY)
		to.rlim_max = was.rlim_max;
	if (setrlimit(resource, &to))
		printf("limit %d: %s\n", resource, strerror(errno));
}

/* Answer the calls in `nr` as `action` says, and allow the others; or the other way round. */
static void filter(const int *nr, unsigned n, unsigned action, unsigned others)
{
	struct sock_filter code[64];
	struct sock_fprog prog = { .filter = code };
	unsigned k = 0;
	code[k++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < n; i++) {
		code[k++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr[i], 0, 1);
		code[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
	}
	code[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
	prog.len = k;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog))
		printf("seccomp: %s\n", strerror(errno));
}

static void filter_calls(unsigned action)
{
	static const int nr[] = { SYS_memfd_create, SYS_open, SYS_madvise, SYS_socket,
				  SYS_prlimit64 };
	unsigned n = sizeof(nr) / sizeof(*nr); /* "report" asks for limits */
	filter(nr, action == (SECCOMP_RET_ERRNO | EPERM) ? n : n - 1, action, SECCOMP_RET_ALLOW);
}

/* Without this one deja cannot be in a new image. */
static void filter_mremap(void)
{
	static const int nr[] = { SYS_mremap };
	filter(nr, 1, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
}

/* No memory is made executable that was not. */
static void filter_protect(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		printf("seccomp: %s\n", strerror(errno));
}

/* What is needed for "write" here, and nothing else. */
static void allow_few(void)
{
	static const int nr[] = { SYS_write, SYS_exit_group };
	filter(nr, sizeof(nr) / sizeof(*nr), SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
}

/* An ignored signal, again and again, also while deja puts its memory into a new image. */
static void tick(void)
{
	const struct itimerval fast = { { 0, 700 }, { 0, 700 } };
	signal(SIGALRM, SIG_IGN);
	setitimer(ITIMER_REAL, &fast, NULL);
}

static void act(const char *what)
{
	if (!strcmp(what, "nofile"))
		limit(RLIMIT_NOFILE, 3, 3);
	else if (!strcmp(what, "softnofile"))
		limit(RLIMIT_NOFILE, 3, RLIM_INFINITY);
	else if (!strcmp(what, "as"))
		limit(RLIMIT_AS, 200 * MiB, 200 * MiB);
	else if (!strcmp(what, "softas"))
		limit(RLIMIT_AS, 200 * MiB, 300 * MiB);
	else if (!strcmp(what, "data"))
		limit(RLIMIT_DATA, 100 * MiB, 100 * MiB);
	else if (!strcmp(what, "fsize"))
		limit(RLIMIT_FSIZE, 4096, 4096);
	else if (!strcmp(what, "memlock"))
		limit(RLIMIT_MEMLOCK, 64 << 10, 64 << 10);
	else if (!strcmp(what, "core"))
		limit(RLIMIT_CORE, 0, 0);
	else if (!strcmp(what, "nobody"))
		(void)!(setgroups(0, NULL) || setresgid(65534, 65534, 65534) ||
			setresuid(65534, 65534, 65534));
	else if (!strcmp(what, "fsuid"))
		syscall(SYS_setfsuid, 65534);
	else if (!strcmp(what, "userns"))
		(void)!unshare(CLONE_NEWUSER);
	else if (!strcmp(what, "noproc"))
		(void)!(unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
			umount2("/proc", MNT_DETACH));
	else if (!strcmp(what, "ipc"))
		(void)!unshare(CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS);
	else if (!strcmp(what, "chroot"))
		(void)!(chroot(".") || chdir("/"));
	else if (!strcmp(what, "undumpable"))
		prctl(PR_SET_DUMPABLE, 0);
	else if (!strcmp(what, "errno"))
		filter_calls(SECCOMP_RET_ERRNO | EPERM);
	else if (!strcmp(what, "trap"))
		filter_calls(SECCOMP_RET_TRAP);
	else if (!strcmp(what, "kill"))
		filter_calls(SECCOMP_RET_KILL_PROCESS);
	else if (!strcmp(what, "few"))
		allow_few();
	else if (!strcmp(what, "mremap"))
		filter_mremap();
	else if (!strcmp(what, "protect"))
		filter_protect();
	else if (!strcmp(what, "strict"))
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	else if (!strcmp(what, "timer"))
		tick();
	else if (!strcmp(what, "stdin"))
		close(0);
	else if (strcmp(what, "none") != 0)
		exit(99);
}

static void say(const char *what, unsigned long a, unsigned long b)
{
	char line[100];
	int n = snprintf(line, sizeof(line), "%s %ld %ld\n", what, (long)a, (long)b);
	(void)!write(1, line, (size_t)n);
}

static void say_limits(const char *who)
{
	static const int all[] = { RLIMIT_AS,	RLIMIT_DATA,   RLIMIT_FSIZE, RLIMIT_STACK,
				   RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_MEMLOCK };
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct rlimit r = { 0, 0 }, p = { 0, 0 };
		if (getrlimit(all[i], &r) || prlimit(0, all[i], NULL, &p))
			say("no limit", (unsigned long)all[i], (unsigned long)errno);
		if (r.rlim_cur != p.rlim_cur || r.rlim_max != p.rlim_max)
			say("limits differ", (unsigned long)all[i], 0);
		say(who, r.rlim_cur, r.rlim_max);
	}
}

/* How much can be mapped, in steps that are larger than what differs from run to run. */
static unsigned long mappable(int prot)
{
	unsigned long n = 0;
	while (n < 100 && mmap(NULL, 16 * MiB, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			       -1, 0) != MAP_FAILED)
		n++;
	return n;
}

/* What is locked, in units of 16 MiB. */
static void say_locked(const char *who)
{
	char text[4096] = "";
	int fd = open("/proc/self/status", O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		return;
	close(fd);
	const char *p = strstr(text, "VmLck:");
	unsigned long kib = p ? strtoul(p + 6, NULL, 10) : 0;
	say(who, kib / 16384, kib > 0);
}

static int report_locked(void)
{
	static const int flags[] = { MCL_CURRENT,
				     MCL_CURRENT | MCL_FUTURE,
				     MCL_CURRENT | MCL_ONFAULT,
				     MCL_FUTURE,
				     MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT,
				     MCL_ONFAULT,
				     0,
				     MCL_CURRENT };
	for (unsigned i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		int r = mlockall(flags[i]);
		say("lock", (unsigned long)flags[i], (unsigned long)(r ? errno : 0));
		say_locked("now");
		void *p = mmap(NULL, 40 * MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);
		say_locked("with more");
		munmap(p, 40 * MiB);
		if (i % 3 == 1)
			munlockall();
		say_locked("then");
	}
	return 4;
}

static int report(void)
{
	int status = 0, in_use = 0;
	for (int fd = 0; fd < 2000; fd++)
		in_use += fcntl(fd, F_GETFD) >= 0 ? 1 + fd : 0;
	say("user", getuid(), geteuid());
	say("group", getgid(), getegid());
	say("descriptors", (unsigned long)in_use, 0);
	say("proc", access("/proc/self/maps", R_OK) == 0, access("/dev/null", W_OK) == 0);
	int fd = open("/", O_RDONLY | O_DIRECTORY);
	say("open", (unsigned long)fd, fd < 0 ? (unsigned long)errno : 0);
	if (fd >= 0)
		close(fd);
	say_limits("limit");
	pid_t pid = fork();
	if (pid == 0) {
		say_limits("limit of a child");
		say("mappable by a child", mappable(PROT_NONE), mappable(PROT_READ | PROT_WRITE));
		_exit(7);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	say("child", pid > 0, (unsigned long)status);
	struct rlimit old, to = { 150 * MiB, RLIM_INFINITY };
	getrlimit(RLIMIT_AS, &old);
	to.rlim_max = old.rlim_max;
	if (to.rlim_cur <= to.rlim_max)
		say("lower", (unsigned long)setrlimit(RLIMIT_AS, &to), 0);
	say("mappable", mappable(PROT_NONE), mappable(PROT_READ | PROT_WRITE));
	to.rlim_max = 100 * MiB;
	say("invalid", (unsigned long)setrlimit(RLIMIT_AS, &to), (unsigned long)errno);
	say("fault", (unsigned long)syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, 8),
	    (unsigned long)errno);
	say("break", (unsigned long)(sbrk(4096) != (void *)-1), 0);
	return 5;
}

/* The gs base, which deja answers for, is a filter's to refuse like any other. */
static int report_gs(void)
{
	static const int nr[] = { SYS_arch_prctl };
	unsigned long gs = 1;
	say("set", (unsigned long)syscall(SYS_arch_prctl, ARCH_SET_GS, 0x1234000), 0);
	say("get", (unsigned long)syscall(SYS_arch_prctl, ARCH_GET_GS, &gs), gs);
	filter(nr, 1, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW);
	say("refused", (unsigned long)syscall(SYS_arch_prctl, ARCH_SET_GS, 0x5678000),
	    (unsigned long)errno);
	gs = 1;
	say("refused", (unsigned long)syscall(SYS_arch_prctl, ARCH_GET_GS, &gs), gs);
	return 3;
}

/* Code far from all other code, many instructions of it. */
static int far_code(void)
{
	static const unsigned char code[] = { 0xb9, 0x10, 0x27, 0, 0, /* mov ecx, 10000 */
					      0xff, 0xc9,	      /* 1: dec ecx */
					      0x75, 0xfc, 0xc3 };     /* jne 1b; ret */
	for (unsigned long i = 1; i < 5; i++) {
		void *at = mmap((void *)(i << 40), 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED)
			return 96;
		memcpy(at, code, sizeof(code));
		((void (*)(void))at)();
	}
	/* for the test: what is mapped near */
	char text[4096];
	long n, maps = open("//proc/self/maps", O_RDONLY); /* with deja's */
	long to = open("far.maps", O_WRONLY | O_CREAT | O_TRUNC, 0666);
	while ((n = read((int)maps, text, sizeof(text))) > 0)
		if (write((int)to, text, (size_t)n) != n)
			return 95;
	say("far", 0, 0);
	return 2;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	if (argc < 3)
		return 98;
	for (char *s = strtok(argv[1], ","); s; s = strtok(NULL, ","))
		act(s);
	if (!strcmp(argv[2], "report"))
		return report();
	if (!strcmp(argv[2], "gs"))
		return report_gs();
	if (!strcmp(argv[2], "far"))
		return far_code();
	if (!strcmp(argv[2], "locked"))
		return report_locked();
	if (!strcmp(argv[2], "write")) {
		say("done", 1, 2);
		_exit(6);
	}
	execv(argv[2], argv + 2);
	say("exec", 0, (unsigned long)errno);
	return 97;
}
