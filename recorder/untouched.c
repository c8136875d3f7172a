/*
 * Memory that nobody has touched yet. It is zero, and the kernel says which it is (proc(5),
 * pagemap). To read it would not only take time: the program would get page tables for it, and what
 * is untouched could not be told from what is zero any more.
 */
#include "recorder/recorder.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u

bool rec_anonymous(const struct dj_mapping *m)
{
	return m->flags & MAP_ANONYMOUS && m->flags & MAP_PRIVATE && m->module < 0;
}

size_t rec_page_entries(struct rec_thread *t, uint64_t addr, uint64_t *entry, size_t n)
{
	off_t at = (off_t)(addr / PAGE * sizeof(*entry));
	struct rec_process *proc = t->proc;
	if (!proc->pagemap)
		proc->pagemap = proc->rec->tracer->open_proc(proc->rec->tracer, t->tid, "pagemap");
	ssize_t got =
		proc->pagemap ? pread(fileno(proc->pagemap), entry, n * sizeof(*entry), at) : 0;
	return got > 0 ? (size_t)got / sizeof(*entry) : 0;
}

uint64_t rec_untouched(struct rec_thread *t, uint64_t addr, unsigned n)
{
	uint64_t entry[REC_UNTOUCHED], bits = 0;
	DJ_ASSERT(n <= REC_UNTOUCHED, "%u pages at a time", n);
	if (rec_page_entries(t, addr, entry, n) != n)
		return 0;
	for (unsigned i = 0; i < n; i++)
		bits |= entry[i] & REC_PAGE_PRESENT ? 0 : 1ULL << i;
	return bits;
}

void rec_untouched_end(struct rec_process *proc)
{
	if (proc->pagemap)
		fclose(proc->pagemap);
	proc->pagemap = NULL;
}

size_t rec_read_anonymous(struct rec_thread *t, uint64_t addr, uint8_t *buf, size_t len)
{
	size_t done = 0, run;
	for (; done < len; done += run) {
		unsigned n = (unsigned)((len - done) / PAGE), i = 0;
		n = n < REC_UNTOUCHED ? n : REC_UNTOUCHED;
		uint64_t zero = rec_untouched(t, addr + done, n), first = zero & 1;
		while (i < n && (zero >> i & 1) == first)
			i++;
		run = i ? i * (size_t)PAGE : len - done;
		if (first)
			memset(buf + done, 0, run);
		else if (rec_read(t->proc, addr + done, buf + done, run) != run)
			break;
	}
	return done;
}
