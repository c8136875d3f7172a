/*
 * What arguments of system calls point to (analyses/syscall-data.h): the kernel's structures on
 * x86-64 (include/uapi). How many entries of an array are looked at is bounded.
 */
#include "analyses/syscall-data.h"
#include "analyses/syscall-parts.h"

#include <inttypes.h>
#include <string.h>

#define ENTRIES 32u

void ana_data_strings(struct replay *r, uint64_t at, FILE *f)
{
	uint64_t p;

	if (!ana_data_number(r, at, 8, &p)) {
		ana_data_pointer(at, f);
		return;
	}
	putc('[', f);
	for (unsigned i = 0; ana_data_number(r, at + 8 * i, 8, &p) && p; i++) {
		fputs(i ? ", " : "", f);
		if (i == ENTRIES) {
			fputs("...", f);
			break;
		}
		ana_data_string(r, p, f);
	}
	putc(']', f);
}

void ana_data_environment(struct replay *r, uint64_t at, FILE *f)
{
	uint64_t p, n = 0;

	ana_data_pointer(at, f);
	while (n < 100000 && ana_data_number(r, at + 8 * n, 8, &p) && p)
		n++;
	fprintf(f, " /* %" PRIu64 " var%s */", n, n == 1 ? "" : "s");
}

/* ---- sockets -------------------------------------------------------------------------------- */

static void in6_text(const uint8_t *a, FILE *f)
{
	for (unsigned i = 0; i < 16; i += 2)
		fprintf(f, "%s%x", i ? ":" : "", a[i] << 8 | a[i + 1]);
}

void ana_data_address(struct replay *r, uint64_t at, uint32_t len, FILE *f)
{
	uint8_t a[128];
	size_t n = len < sizeof(a) ? len : sizeof(a);

	if (!at || n < 2 || replay_read(r, at, a, n) < n) {
		ana_data_pointer(at, f);
		return;
	}
	unsigned family = a[0] | a[1] << 8;
	fputs("{sa_family=", f);
	ana_flags_print(ana_flags_of('D'), family, f);
	if (family == 1 && n > 2) {
		bool abstract = !a[2];

		fputs(abstract ? ", sun_path=@" : ", sun_path=", f);
		ana_quote(a + 2 + abstract, abstract ? n - 3 : strnlen((const char *)a + 2, n - 2),
			  false, f);
	} else if (family == 2 && n >= 8) {
		fprintf(f, ", sin_port=htons(%u), sin_addr=inet_addr(\"%u.%u.%u.%u\")",
			a[2] << 8 | a[3], a[4], a[5], a[6], a[7]);
	} else if (family == 10 && n >= 24) {
		fprintf(f, ", sin6_port=htons(%u), sin6_addr=\"", a[2] << 8 | a[3]);
		in6_text(a + 8, f);
		putc('"', f);
	} else if (n > 2) {
		fputs(", sa_data=", f);
		ana_quote(a + 2, n - 2, false, f);
	}
	putc('}', f);
}

void ana_data_address_out(struct replay *r, uint64_t at, uint64_t length, FILE *f)
{
	uint64_t n;

	if (ana_data_number(r, length, 4, &n))
		ana_data_address(r, at, (uint32_t)n, f);
	else
		ana_data_pointer(at, f);
}

void ana_data_iovec(struct replay *r, uint64_t at, uint64_t count, uint64_t total, FILE *f)
{
	uint64_t base, n;

	if (!ana_data_number(r, at, 8, &base)) {
		ana_data_pointer(at, f);
		return;
	}
	putc('[', f);
	for (uint64_t i = 0; i < count; i++) {
		if (i == ENTRIES || !ana_data_number(r, at + 16 * i, 8, &base) ||
		    !ana_data_number(r, at + 16 * i + 8, 8, &n)) {
			fputs(i ? ", ..." : "...", f);
			break;
		}
		fputs(i ? ", {iov_base=" : "{iov_base=", f);
		ana_data_bytes(r, base, n < total ? n : total, f);
		fprintf(f, ", iov_len=%" PRIu64 "}", n);
		total -= n < total ? n : total;
	}
	putc(']', f);
}

void ana_data_message(struct replay *r, uint64_t at, uint64_t total, FILE *f)
{
	uint64_t name, name_len, iov, count, control_len, flags;

	if (!ana_data_number(r, at, 8, &name) || !ana_data_number(r, at + 8, 4, &name_len) ||
	    !ana_data_number(r, at + 16, 8, &iov) || !ana_data_number(r, at + 24, 8, &count)) {
		ana_data_pointer(at, f);
		return;
	}
	fputs("{msg_name=", f);
	ana_data_address(r, name, (uint32_t)name_len, f);
	fprintf(f, ", msg_namelen=%" PRIu64 ", msg_iov=", name_len);
	ana_data_iovec(r, iov, count, total, f);
	fprintf(f, ", msg_iovlen=%" PRIu64, count);
	if (ana_data_number(r, at + 40, 8, &control_len))
		fprintf(f, ", msg_controllen=%" PRIu64, control_len);
	if (ana_data_number(r, at + 48, 4, &flags)) {
		fputs(", msg_flags=", f);
		ana_flags_print(ana_flags_of('O'), flags, f);
	}
	putc('}', f);
}

void ana_data_poll(struct replay *r, uint64_t at, uint64_t count, FILE *f)
{
	uint64_t fd, events, revents;

	if (!ana_data_number(r, at, 4, &fd)) {
		ana_data_pointer(at, f);
		return;
	}
	putc('[', f);
	for (uint64_t i = 0; i < count; i++) {
		if (i == ENTRIES || !ana_data_number(r, at + 8 * i, 4, &fd) ||
		    !ana_data_number(r, at + 8 * i + 4, 2, &events)) {
			fputs(i ? ", ..." : "...", f);
			break;
		}
		fprintf(f, "%s{fd=%" PRId32 ", events=", i ? ", " : "", (int32_t)fd);
		ana_flags_print(ana_flags_of('^'), events, f);
		if (ana_data_number(r, at + 8 * i + 6, 2, &revents) && revents) {
			fputs(", revents=", f);
			ana_flags_print(ana_flags_of('^'), revents, f);
		}
		putc('}', f);
	}
	putc(']', f);
}

/* ---- structures -------------------------------------------------------------------------------
 */

static void sigset_text(uint64_t set, FILE *f)
{
	bool inverted = __builtin_popcountll(set) > 32;
	const char *between = "";
	char name[24];

	if (inverted)
		set = ~set;
	fputs(inverted ? "~[" : "[", f);
	for (unsigned i = 1; i <= 64; i++) {
		if (!(set >> (i - 1) & 1))
			continue;
		ana_signal_name(i, name, sizeof(name));
		fprintf(f, "%s%s", between, strncmp(name, "SIG", 3) ? name : name + 3);
		between = " ";
	}
	putc(']', f);
}

/* The kernel's struct sigaction: handler, flags, restorer, mask. */
static void action_text(const uint64_t *w, FILE *f)
{
	fputs("{sa_handler=", f);
	if (w[0] < 2)
		fputs(w[0] ? "SIG_IGN" : "SIG_DFL", f);
	else
		ana_data_pointer(w[0], f);
	fputs(", sa_mask=", f);
	sigset_text(w[3], f);
	fputs(", sa_flags=", f);
	ana_flags_print(ana_flags_of('%'), (uint32_t)w[1], f);
	if (w[1] & 0x04000000) {
		fputs(", sa_restorer=", f);
		ana_data_pointer(w[2], f);
	}
	putc('}', f);
}

static void limit_number(uint64_t v, FILE *f)
{
	if (v == UINT64_MAX)
		fputs("RLIM64_INFINITY", f);
	else if (v > 1024 && v % 1024 == 0)
		fprintf(f, "%" PRIu64 "*1024", v / 1024);
	else
		fprintf(f, "%" PRIu64, v);
}

/* How a process ended (wait(2)). */
static void status_text(uint32_t s, FILE *f)
{
	char name[24];

	if ((s & 0x7f) == 0) {
		fprintf(f, "[{WIFEXITED(s) && WEXITSTATUS(s) == %u}]", s >> 8 & 0xff);
	} else if ((s & 0xff) == 0x7f) {
		ana_signal_name(s >> 8 & 0xff, name, sizeof(name));
		fprintf(f, "[{WIFSTOPPED(s) && WSTOPSIG(s) == %s}]", name);
	} else {
		ana_signal_name(s & 0x7f, name, sizeof(name));
		fprintf(f, "[{WIFSIGNALED(s) && WTERMSIG(s) == %s%s}]", name,
			s & 0x80 ? " && WCOREDUMP(s)" : "");
	}
}

/* struct stat: st_mode at 24, st_rdev 40, st_size 48. */
static void stat_text(const uint8_t *b, FILE *f)
{
	uint32_t mode = b[24] | (uint32_t)b[25] << 8;
	uint64_t size = 0;

	for (unsigned i = 8; i-- > 0;)
		size = size << 8 | b[48 + i];
	fputs("{st_mode=", f);
	ana_flags_print(ana_flags_of('_'), mode & ~0777u, f);
	fprintf(f, "|0%03o, st_size=%" PRIu64 ", ...}", mode & 0777, size);
}

static unsigned size_of(char letter)
{
	switch (letter) {
	case 'Y':
		return 144;
	case 'a':
	case 'H':
		return 32;
	case 't':
	case 'T':
	case 'J':
	case '1':
	case '4':
		return 16;
	case '=':
		return 12;
	case '~':
	case 'q':
	case 'g':
	case 'G':
		return 8;
	case 'I':
	case 'W':
		return 4;
	default:
		return 0;
	}
}

bool ana_data_struct(struct replay *r, uint64_t at, char letter, FILE *f)
{
	unsigned size = size_of(letter);
	uint8_t b[144];
	uint64_t w[4] = { 0 };

	if (!size)
		return false;
	if (!at || replay_read(r, at, b, size) < size) {
		ana_data_pointer(at, f);
		return true;
	}
	for (unsigned i = 0; i < size && i < 32; i++)
		w[i / 8] |= (uint64_t)b[i] << i % 8 * 8;
	switch (letter) {
	case 'Y':
		stat_text(b, f);
		break;
	case 'a':
	case 'H':
		action_text(w, f);
		break;
	case 't':
	case 'T':
	case 'J':
		fprintf(f, "{tv_sec=%" PRId64 ", tv_%s=%" PRId64 "}", (int64_t)w[0],
			letter == 'J' ? "usec" : "nsec", (int64_t)w[1]);
		break;
	case '1':
	case '4':
		fputs("{rlim_cur=", f);
		limit_number(w[0], f);
		fputs(", rlim_max=", f);
		limit_number(w[1], f);
		putc('}', f);
		break;
	case '=': /* struct epoll_event is packed */
		fputs("{events=", f);
		ana_flags_print(ana_flags_of(','), (uint32_t)w[0], f);
		w[0] = w[0] >> 32 | w[1] << 32;
		fprintf(f, ", data={u32=%" PRIu32 ", u64=%" PRIu64 "}}", (uint32_t)w[0], w[0]);
		break;
	case '~': /* struct clone_args */
		fputs("{flags=", f);
		ana_flags_print(ana_flags_of('C'), w[0], f);
		fputs(", ...}", f);
		break;
	case 'q':
		fprintf(f, "[%" PRId32 ", %" PRId32 "]", (int32_t)w[0], (int32_t)(w[0] >> 32));
		break;
	case 'g':
	case 'G':
		sigset_text(w[0], f);
		break;
	case 'W':
		status_text((uint32_t)w[0], f);
		break;
	default:
		fprintf(f, "[%" PRId32 "]", (int32_t)w[0]);
	}
	return true;
}

/* ---- signals ----------------------------------------------------------------------------------
 */

/* asm-generic/siginfo.h */
static const char *code_name(int signo, int32_t code)
{
	static const char *const segv[] = { "SEGV_MAPERR", "SEGV_ACCERR", "SEGV_BNDERR",
					    "SEGV_PKUERR" };
	static const char *const fpe[] = { "FPE_INTDIV", "FPE_INTOVF", "FPE_FLTDIV", "FPE_FLTOVF",
					   "FPE_FLTUND", "FPE_FLTRES", "FPE_FLTINV", "FPE_FLTSUB" };
	static const char *const ill[] = { "ILL_ILLOPC", "ILL_ILLOPN", "ILL_ILLADR", "ILL_ILLTRP",
					   "ILL_PRVOPC", "ILL_PRVREG", "ILL_COPROC", "ILL_BADSTK" };
	static const char *const bus[] = { "BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR" };
	static const char *const trap[] = { "TRAP_BRKPT", "TRAP_TRACE" };
	static const char *const chld[] = { "CLD_EXITED",  "CLD_KILLED",  "CLD_DUMPED",
					    "CLD_TRAPPED", "CLD_STOPPED", "CLD_CONTINUED" };
	static const char *const user[] = { "SI_USER",	  "SI_QUEUE", "SI_TIMER", "SI_MESGQ",
					    "SI_ASYNCIO", "SI_SIGIO", "SI_TKILL" };
	static const struct {
		int signo;
		const char *const *names;
		int n;
	} by_signal[] = { { 11, segv, 4 }, { 8, fpe, 8 },  { 4, ill, 8 },
			  { 7, bus, 3 },   { 5, trap, 2 }, { 17, chld, 6 } };

	if (code == 0x80)
		return "SI_KERNEL";
	if (code <= 0 && code > -7)
		return user[-code];
	for (size_t i = 0; i < sizeof(by_signal) / sizeof(by_signal[0]); i++)
		if (by_signal[i].signo == signo && code > 0 && code <= by_signal[i].n)
			return by_signal[i].names[code - 1];
	return NULL;
}

static uint64_t field(const uint8_t *info, unsigned at, unsigned size)
{
	uint64_t v = 0;

	for (unsigned i = size; i-- > 0;)
		v = v << 8 | info[at + i];
	return v;
}

void ana_signal_print(const uint8_t info[128], int signo, FILE *f)
{
	int32_t code = (int32_t)field(info, 8, 4);
	const char *known = code_name(signo, code);
	char name[24];

	ana_signal_name((uint64_t)signo, name, sizeof(name));
	fprintf(f, "{si_signo=%s, si_code=", name);
	if (known)
		fputs(known, f);
	else
		fprintf(f, "%#x", (unsigned)code);
	if (signo == 17 && code > 0) { /* pid, uid, status */
		fprintf(f, ", si_pid=%d, si_uid=%u, si_status=%d", (int)field(info, 16, 4),
			(unsigned)field(info, 20, 4), (int)field(info, 24, 4));
	} else if (code <= 0) {
		fprintf(f, ", si_pid=%d, si_uid=%u", (int)field(info, 16, 4),
			(unsigned)field(info, 20, 4));
	} else if (signo == 4 || signo == 7 || signo == 8 || signo == 11 || signo == 5) {
		fputs(", si_addr=", f);
		ana_data_pointer(field(info, 16, 8), f);
	}
	putc('}', f);
}
