/*
 * System calls as text (analyses/syscall.h). Each argument is printed by its letter: what the
 * kernel reads when the call begins, what it writes when the call is over and went well. What the
 * recording does not have is shown as an address.
 */
#include "analyses/syscall-parts.h"
#include "analyses/syscall-data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 32u /* bytes of a buffer, as strace does it */

/* Letters whose argument the kernel writes: printed when the call is over. */
static const char outs[] = "BYHqGTJIWV1NEze"; /* poll's array is both */

static bool is_out(char letter)
{
	return strchr(outs, letter) != NULL;
}

const char *ana_syscall_name(uint64_t nr, char *buf, size_t size)
{
	const struct ana_syscall_row *row = ana_syscall_row(nr);

	if (row)
		return row->name;
	snprintf(buf, size, "syscall_%#" PRIx64, nr);
	return buf;
}

bool ana_syscall_number(const char *name, uint64_t *nr)
{
	for (size_t i = 0; i < ana_syscall_nrows; i++)
		if (!strcmp(ana_syscall_rows[i].name, name)) {
			*nr = ana_syscall_rows[i].nr;
			return true;
		}
	return false;
}

/* ---- pieces ------------------------------------------------------------------------------- */

void ana_quote(const void *bytes, size_t n, bool more, FILE *f)
{
	static const char special[] = "\a\b\t\n\v\f\r", letters[] = "abtnvfr";
	const uint8_t *b = bytes;

	putc('"', f);
	for (size_t i = 0; i < n; i++) {
		const char *s = b[i] ? strchr(special, b[i]) : NULL;
		bool digit = i + 1 < n && b[i + 1] >= '0' && b[i + 1] <= '9';

		if (s)
			fprintf(f, "\\%c", letters[s - special]);
		else if (b[i] == '"' || b[i] == '\\')
			fprintf(f, "\\%c", b[i]);
		else if (b[i] >= 0x20 && b[i] < 0x7f)
			putc(b[i], f);
		else
			fprintf(f, digit ? "\\%03o" : "\\%o", b[i]);
	}
	fputs(more ? "\"..." : "\"", f);
}

void ana_data_pointer(uint64_t at, FILE *f)
{
	if (at)
		fprintf(f, "%#" PRIx64, at);
	else
		fputs("NULL", f);
}

bool ana_data_number(struct replay *r, uint64_t at, unsigned size, uint64_t *value)
{
	uint8_t b[8];

	*value = 0;
	if (!at || replay_read(r, at, b, size) < size)
		return false;
	for (unsigned i = size; i-- > 0;)
		*value = *value << 8 | b[i];
	return true;
}

/* A string that ends with a zero, at most 4096 bytes of it. */
void ana_data_string(struct replay *r, uint64_t at, FILE *f)
{
	char text[4096];
	size_t n = 0;

	while (n < sizeof(text)) {
		size_t want = 64 - ((at + n) & 63), got;

		if (want > sizeof(text) - n)
			want = sizeof(text) - n;
		got = replay_read(r, at + n, text + n, want);
		const char *end = memchr(text + n, 0, got);
		if (end) {
			ana_quote(text, (size_t)(end - text), false, f);
			return;
		}
		n += got;
		if (got < want)
			break;
	}
	if (n)
		ana_quote(text, n, true, f);
	else
		ana_data_pointer(at, f);
}

void ana_data_bytes(struct replay *r, uint64_t at, uint64_t len, FILE *f)
{
	uint8_t b[SHOWN];
	size_t want = len < SHOWN ? len : SHOWN;
	size_t got = want ? replay_read(r, at, b, want) : 0;

	if (!at || (want && !got))
		ana_data_pointer(at, f);
	else
		ana_quote(b, got, got < len, f);
}

/* ---- one argument --------------------------------------------------------------------------- */

static void fd_text(uint64_t v, bool at, FILE *f)
{
	if (at && (int32_t)v == -100)
		fputs("AT_FDCWD", f);
	else
		fprintf(f, "%" PRId32, (int32_t)v);
}

/* Numbers of requests say direction, type, number and size (asm-generic/ioctl.h). */
static void request_text(uint32_t v, FILE *f)
{
	static const char *const way[] = { "_IOC_NONE", "_IOC_WRITE", "_IOC_READ",
					   "_IOC_READ|_IOC_WRITE" };
	const struct ana_flag *known = ana_flags_of('>');

	while (known->name && known->value != v)
		known++;
	if (known->name)
		fputs(known->name, f);
	else
		fprintf(f, "_IOC(%s, %#x, %#x, %#x)", way[v >> 30], v >> 8 & 0xff, v & 0xff,
			v >> 16 & 0x3fff);
}

static void clone_text(uint32_t v, FILE *f)
{
	const struct ana_flag *flags = ana_flags_of('C');

	if ((v & 0xff) != 17 && (v & 0xff)) {
		char name[24];

		ana_flags_print(flags, v & ~0xffu, f);
		ana_signal_name(v & 0xff, name, sizeof(name));
		fprintf(f, "|%s", name);
		return;
	}
	ana_flags_print(flags, v, f);
}

/* Whether this command of fcntl takes an argument. */
static bool fcntl_argument(uint64_t command)
{
	static const uint16_t none[] = { 1, 3, 9, 11, 1025, 1032, 1034 };

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		if (none[i] == command)
			return false;
	return true;
}

/* Whether the call takes the argument at all. */
static bool taken(const struct ana_syscall *c, unsigned i, char letter)
{
	char before = i ? ana_syscall_row(c->nr)->args[i - 1] : 0;

	if (letter == 'M' && before == 'o') /* the mode of a file that is made */
		return c->arg[i - 1] & 0x40 || (c->arg[i - 1] & 0x410000) == 0x410000;
	return !(letter == 'x' && before == 'c') || fcntl_argument(c->arg[i - 1]);
}

/* A number that may be anything; what fcntl sets are flags. */
static void hexadecimal(const struct ana_syscall *c, unsigned i, FILE *f)
{
	char before = i && ana_syscall_row(c->nr) ? ana_syscall_row(c->nr)->args[i - 1] : 0;

	if (before == 'c' && (c->arg[i - 1] == 2 || c->arg[i - 1] == 4))
		ana_flags_print(ana_flags_of(c->arg[i - 1] == 2 ? '&' : 'o'), (uint32_t)c->arg[i],
				f);
	else
		fprintf(f, "%#" PRIx64, c->arg[i]);
}

static void number_text(struct ana_syscall *c, unsigned i, char letter, FILE *f)
{
	uint64_t v = c->arg[i];
	char name[24];

	switch (letter) {
	case 'i':
	case 'L':
		fprintf(f, "%" PRId32, (int32_t)v);
		break;
	case 'u':
		fprintf(f, "%" PRIu32, (uint32_t)v);
		break;
	case 'l':
		fprintf(f, "%" PRId64, (int64_t)v);
		break;
	case 'n':
		fprintf(f, "%" PRIu64, v);
		break;
	case 'x':
		hexadecimal(c, i, f);
		break;
	case 'f':
		fd_text(v, false, f);
		break;
	case 'F':
		fd_text(v, true, f);
		break;
	case 'M':
		fprintf(f, "%#03o", (uint32_t)v);
		break;
	case 'S':
		ana_signal_name((uint32_t)v, name, sizeof(name));
		fputs(name, f);
		break;
	case 'C':
		clone_text((uint32_t)v, f);
		break;
	case '>':
		request_text((uint32_t)v, f);
		break;
	default:
		if (ana_flags_of(letter))
			ana_flags_print(ana_flags_of(letter), (uint32_t)v, f);
		else
			ana_data_pointer(v, f);
	}
}

/* `result` is that of a call that is over. */
static void argument_text(struct replay *r, struct ana_syscall *c, unsigned i, char letter,
			  uint64_t result, FILE *f)
{
	uint64_t v = c->arg[i], next = i < 5 ? c->arg[i + 1] : 0;

	if (strchr("sbBNA@", letter) && !v) {
		fputs("NULL", f);
		return;
	}
	switch (letter) {
	case 's':
	case 'N':
		ana_data_string(r, v, f);
		break;
	case 'b':
		ana_data_bytes(r, v, next, f);
		break;
	case 'B':
		ana_data_bytes(r, v, result < next ? result : next, f);
		break;
	case 'A':
		ana_data_strings(r, v, f);
		break;
	case '@':
		ana_data_environment(r, v, f);
		break;
	case 'k':
		ana_data_address(r, v, (uint32_t)next, f);
		break;
	case 'z':
		ana_data_address_out(r, v, next, f);
		break;
	case 'v':
		ana_data_iovec(r, v, next, UINT64_MAX, f);
		break;
	case 'V':
		ana_data_iovec(r, v, next, result, f);
		break;
	case 'y':
		ana_data_message(r, v, UINT64_MAX, f);
		break;
	case 'E':
		ana_data_message(r, v, result, f);
		break;
	case 'e':
		ana_data_poll(r, v, next, f);
		break;
	default:
		if (!ana_data_struct(r, v, letter, f))
			number_text(c, i, letter, f);
	}
}

/* ---- the call ------------------------------------------------------------------------------- */

static char *text_of(struct replay *r, struct ana_syscall *c, unsigned i, char letter,
		     uint64_t result)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	argument_text(r, c, i, letter, result, f);
	fclose(f);
	return text;
}

/* The letters of a call's arguments. Of one that nobody has described: as many as are not 0. */
static const char *letters_of(const struct ana_syscall *c)
{
	static const char unknown[] = "xxxxxx";
	const struct ana_syscall_row *row = ana_syscall_row(c->nr);
	unsigned n = 6;

	if (row && row->args[0] != '?')
		return row->args;
	while (n && !c->arg[n - 1])
		n--;
	return unknown + 6 - n;
}

void ana_syscall_begin(struct replay *r, struct ana_syscall *c)
{
	static const uint8_t number[6] = { DJ_RDI, DJ_RSI, DJ_RDX, DJ_R10, DJ_R8, DJ_R9 };
	struct dj_regs regs;
	const char *letters;

	replay_regs(r, &regs);
	c->nr = regs.gpr[DJ_RAX];
	for (unsigned i = 0; i < 6; i++) {
		c->arg[i] = regs.gpr[number[i]];
		c->text[i] = NULL;
	}
	letters = letters_of(c);
	for (unsigned i = 0; i < 6 && letters[i]; i++)
		if (!is_out(letters[i]))
			c->text[i] = text_of(r, c, i, letters[i], 0);
}

/* Calls that return an address. */
static bool returns_address(uint64_t nr)
{
	return nr == 9 || nr == 12 || nr == 25 || nr == 30; /* mmap brk mremap shmat */
}

static void result_text(uint64_t nr, uint64_t result, FILE *f)
{
	const char *text, *name = result > -4096ULL ? ana_syscall_error(-result, &text) : NULL;

	if (name && result < -511ULL)
		fprintf(f, "? %s (%s)", name, text);
	else if (name)
		fprintf(f, "-1 %s (%s)", name, text);
	else if (returns_address(nr))
		fprintf(f, "%#" PRIx64, result);
	else if (nr == 95) /* umask */
		fprintf(f, "%#03o", (unsigned)result);
	else if (nr == 72) /* fcntl */
		fprintf(f, result ? "%#" PRIx64 : "%" PRIx64, result);
	else
		fprintf(f, "%" PRId64, (int64_t)result);
}

void ana_syscall_print(struct replay *r, struct ana_syscall *c, const uint64_t *result, FILE *f)
{
	const char *letters = letters_of(c), *between = "";
	bool good = result && *result <= -4096ULL;
	char name[40];

	fprintf(f, "%s(", ana_syscall_name(c->nr, name, sizeof(name)));
	for (unsigned i = 0; i < 6 && letters[i]; i++) {
		char letter = letters[i];

		if (ana_syscall_row(c->nr) && !taken(c, i, letter))
			continue;
		/* poll's array and lengths of addresses are read and written */
		if (good && is_out(letter)) {
			free(c->text[i]);
			c->text[i] = text_of(r, c, i, letter, *result);
		}
		fputs(between, f);
		if (c->text[i])
			fputs(c->text[i], f);
		else
			ana_data_pointer(c->arg[i], f);
		between = ", ";
	}
	fputs(") = ", f);
	if (result)
		result_text(c->nr, *result, f);
	else
		putc('?', f);
}

void ana_syscall_free(struct ana_syscall *c)
{
	for (unsigned i = 0; i < 6; i++) {
		free(c->text[i]);
		c->text[i] = NULL;
	}
}
