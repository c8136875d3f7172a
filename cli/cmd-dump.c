/*
 * deja dump: every record as one line of text.
 *
 * A line is the thread, the position (with +ORDINAL for an import that is not the first load
 * of its instruction, and rREP for one iteration of a REP instruction), the kind, and the
 * record's members as name=value, in the order in which they are coded.
 */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "format/text.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dump {
	bool one_thread, times;
	int32_t tid;
	uint64_t from, to;
};

static void print_hex(const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		putchar_unlocked(digits[bytes[i] >> 4]);
		putchar_unlocked(digits[bytes[i] & 15]);
	}
}

static void print_name(const char *label, const char *name)
{
	if (!name)
		return;
	printf(" %s=\"", label);
	while (*name) {
		size_t n = dj_text_letter(name);

		if (*name == '"' || *name == '\\')
			printf("\\%c", *name);
		else if (n == 1)
			putchar_unlocked(*name);
		else if (n)
			fwrite(name, 1, n, stdout);
		else
			printf("\\x%02x", (unsigned char)*name);
		name += n ? n : 1;
	}
	putchar('"');
}

static void print_x87(const struct dj_regs *r)
{
	printf(" fcw=%#x fsw=%#x ftw=%#x fop=%#x fip=%#" PRIx64 " fdp=%#" PRIx64, r->fcw, r->fsw,
	       r->ftw, r->fop, r->fip, r->fdp);
	for (int i = 0; i < 8; i++)
		printf(" st%d=%04x%016" PRIx64, i, r->st_exp[i], r->st_mant[i]);
}

static void print_regs(const struct dj_record *rec)
{
	const struct dj_regs *r = &rec->regs;
	const uint64_t words[] = { r->rflags, r->rip, r->fs_base, r->gs_base, r->mxcsr };

	for (uint64_t left = rec->mask; left; left &= left - 1) {
		int bit = __builtin_ctzll(left);

		if (1ULL << bit == DJ_REG_X87) {
			print_x87(r);
		} else if (1ULL << bit == DJ_REG_SEGS) {
			printf(" cs=%#x ss=%#x ds=%#x es=%#x fs=%#x gs=%#x", r->cs, r->ss, r->ds,
			       r->es, r->fs, r->gs);
		} else if (bit >= 32) {
			printf(" ymm%d=", bit - 32);
			print_hex(r->ymm[bit - 32], 32);
		} else {
			printf(" %s=%#" PRIx64, dj_regs_part_name(1ULL << bit),
			       bit < 16 ? r->gpr[bit] : words[bit - 16]);
		}
	}
}

static void print_prot(uint32_t prot)
{
	printf(" prot=%c%c%c", prot & 1 ? 'r' : '-', prot & 2 ? 'w' : '-', prot & 4 ? 'x' : '-');
}

static void print_range(const struct dj_record *rec)
{
	printf(" addr=%#" PRIx64 " length=%#" PRIx64, rec->addr, rec->length);
}

static void print_bytes(const struct dj_record *rec)
{
	if (!rec->length)
		return;
	print_range(rec);
	printf(" bytes=");
	print_hex(rec->bytes, rec->length);
}

static void print_seq(const struct dj_record *rec)
{
	if (rec->seq != DJ_SEQ_UNKNOWN)
		printf(" seq=%" PRIu64, rec->seq);
}

static void print_check(const struct dj_record *rec)
{
	struct dj_check c;

	if (!dj_check_unpack(&c, rec->bytes, rec->length)) {
		printf(" malformed");
		return;
	}
	printf(" flags=%#" PRIx64 "/%#" PRIx64, c.flags, c.flags_known);
	for (unsigned i = 0; i < c.n; i++)
		printf(" %#" PRIx64 "+%u=%08x", c.piece[i].addr, c.piece[i].length, c.piece[i].sum);
}

static void print_keyframe(const struct dj_record *rec)
{
	printf(" what=%s", dj_what_name(rec->kind, rec->what));
	print_seq(rec);
	if (dj_record_is_keyframe(rec))
		printf(" since=%" PRIu64, rec->addr);
	print_regs(rec);
	if (rec->length)
		print_bytes(rec);
}

static void print_fields(const struct dj_record *rec)
{
	switch (rec->kind) {
	case DJ_REC_IMPORT:
		printf(" addr=%#" PRIx64 " bytes=", rec->addr);
		print_hex(rec->bytes, DJ_LINE);
		break;
	case DJ_REC_EFFECTS:
		printf(" why=%s insn=", dj_why_name(rec->why));
		print_hex(rec->insn, rec->insn_len);
		print_regs(rec);
		break;
	case DJ_REC_SYSCALL:
		printf(" result=%#" PRIx64 " r11=%#" PRIx64, rec->result, rec->r11);
		break;
	case DJ_REC_REGS:
		print_regs(rec);
		break;
	case DJ_REC_SIGNAL:
		printf(" signo=%u siginfo=", rec->signo);
		print_hex(rec->siginfo, sizeof(rec->siginfo));
		print_regs(rec);
		print_bytes(rec);
		break;
	case DJ_REC_MAP:
		print_range(rec);
		print_prot(rec->prot);
		printf(" flags=%#x module=%d offset=%#" PRIx64, rec->flags, rec->module,
		       rec->offset);
		break;
	case DJ_REC_PROTECT:
		print_range(rec);
		print_prot(rec->prot);
		break;
	case DJ_REC_UNMAP:
		print_range(rec);
		break;
	case DJ_REC_CODE:
	case DJ_REC_SYSDATA:
		print_bytes(rec);
		break;
	case DJ_REC_DIGEST:
		printf(" digest=%016" PRIx64, rec->digest);
		print_seq(rec);
		print_regs(rec);
		break;
	case DJ_REC_CHECK:
		print_check(rec);
		break;
	case DJ_REC_CHILD:
	case DJ_REC_THREAD:
		printf(" pid=%d what=%s", rec->pid, dj_what_name(rec->kind, rec->what));
		if (rec->subject >= 0)
			printf(" subject=%d", rec->subject);
		break;
	case DJ_REC_SEQ:
	case DJ_REC_ORDER:
		printf(" seq=%" PRIu64, rec->seq);
		break;
	case DJ_REC_KEYFRAME:
		print_keyframe(rec);
		break;
	case DJ_REC_GAP:
		printf(" length=%" PRIu64, rec->length);
		break;
	case DJ_REC_MARK:
		printf(" what=%s time=%" PRId64, dj_what_name(rec->kind, rec->what),
		       (int64_t)rec->result);
		break;
	case DJ_REC_EXEC:
		printf(" image=%u", rec->image);
		break;
	case DJ_REC_EXIT:
		printf(" status=%#x", (unsigned)rec->status);
		break;
	default: /* END has a name only */
		break;
	}
	print_name("name", rec->name);
}

static void print_record(int32_t tid, const struct dj_record *rec)
{
	printf("%d %" PRIu64, tid, rec->steps);
	if (rec->rep)
		printf("r%" PRIu64, rec->rep);
	if (rec->ordinal)
		printf("+%u", rec->ordinal);
	printf(" %s", dj_record_kind_name(rec->kind));
	print_fields(rec);
	if (dj_record_is_fact(rec->kind))
		print_seq(rec);
	putchar('\n');
}

static int dump_thread(struct dj_trace *t, size_t i, const struct dump *d)
{
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new(t, i, &err);
	const struct dj_record *rec;

	if (c && d->from && dj_cursor_seek_steps(c, d->from, &err)) {
		dj_cursor_free(c);
		return cli_error(&err);
	}
	while (c && (rec = dj_cursor_next(c, &err)) && rec->steps <= d->to) {
		/* what another thread caused is shown with that one */
		if (rec->steps >= d->from &&
		    (!dj_record_is_fact(rec->kind) || rec->thread == (int32_t)i))
			print_record(dj_trace_thread(t, i)->tid, rec);
		if (ferror(stdout))
			break;
	}
	dj_cursor_free(c);
	return err.text[0] ? cli_error(&err) : CLI_GOOD;
}

/* When the thread was where. */
static int dump_times(struct dj_trace *t, size_t i, const struct dump *d)
{
	struct dj_error err = { 0 };
	struct dj_time *times;
	size_t n;

	if (dj_trace_times(t, i, &times, &n, &err))
		return cli_error(&err);
	for (size_t k = 0; k < n && !ferror(stdout); k++)
		if (times[k].steps >= d->from && times[k].steps <= d->to)
			printf("%d %" PRIu64 " at %" PRIu64 " us\n", dj_trace_thread(t, i)->tid,
			       times[k].steps, times[k].us);
	free(times);
	return CLI_GOOD;
}

static int dump_all(struct dj_trace *t, const struct dump *d)
{
	bool found = !d->one_thread;
	int status = CLI_GOOD;

	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		if (d->one_thread && dj_trace_thread(t, i)->tid != d->tid)
			continue;
		found = true;
		status = (d->times ? dump_times : dump_thread)(t, i, d) ? CLI_BAD_TRACE : status;
	}
	if (!found) {
		cli_warn("dump: there is no thread %d in %s", d->tid, dj_trace_path(t));
		return CLI_USAGE;
	}
	return status;
}

static void help(void)
{
	puts("Usage: deja dump [OPTIONS] [FILE]\n"
	     "Print every record of a trace as one line: thread, position, kind, contents.\n\n"
	     "  --thread TID  only this thread\n"
	     "  --from N      from the position after N instructions on\n"
	     "  --to N        up to that position\n"
	     "  --times       instead of records when threads were where, as far as it was noted:\n"
	     "                thread, position, microseconds since the recording began");
}

int cmd_dump(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "thread", required_argument, NULL, 't' }, { "from", required_argument, NULL, 'f' },
		{ "to", required_argument, NULL, 'T' },	    { "help", no_argument, NULL, 'h' },
		{ "times", no_argument, NULL, 'i' },
		{ 0 },
	};
	/* clang-format on */
	struct dump d = { .to = UINT64_MAX };
	struct dj_trace *t;
	uint64_t n;
	int c, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 'h') {
			help();
			return cli_finish(CLI_GOOD);
		}
		if (c == 'i') {
			d.times = true;
			continue;
		}
		if (c != 't' && c != 'f' && c != 'T')
			return cli_bad_option("dump", argc, argv, c);
		if (!cli_number(optarg, &n) || (c == 't' && n > INT32_MAX))
			return cli_usage("dump", "%s is not a number", optarg);
		if (c == 't') {
			d.one_thread = true;
			d.tid = (int32_t)n;
		} else if (c == 'f') {
			d.from = n;
		} else {
			d.to = n;
		}
	}
	t = cli_open_trace("dump", argc, argv, &status);
	if (!t)
		return status;
	status = dump_all(t, &d);
	dj_trace_close(t);
	return cli_finish(status);
}
