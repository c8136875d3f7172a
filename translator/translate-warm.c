/*
 * Memory that is going to be filled, made ready by another thread.
 *
 * What is translated goes into fresh memory, and the kernel fills that with zeros when it is
 * touched first: a sixth of the supervisor's time while it makes kept fragments again, for which
 * the program waits. Where there is another processor it does that a little earlier. Nothing
 * depends on it: what is not ready is made ready when it is touched.
 */
#include "translator/cache.h"

#include <pthread.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ  22 /* linux/mman.h, since Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

#define JOBS 16u

/* Memory that is there, to be written to or read; or to be had first, for translators or what those
 * use. */
enum kind { THERE, READ, ZERO, USED };

struct job {
	enum kind kind;
	void *at;
	size_t size;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	bool begun, ends;
	unsigned n;
	struct job job[JOBS];
	/* zero, for a translator; NULL: there is none */
	void *zero;
	size_t zero_size;
} warm = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

/* Of memory that has been unmapped meanwhile nothing is said, and what lies there now has some of
 * its pages early. Where a virtual machine has to be given the memory first it takes five
 * milliseconds for 2 MB, and who wants to map something waits for the end of a call: hence some of
 * it at a time. */
static void populate(void *at, size_t size)
{
	for (size_t done = 0; done < size; done += TR_HUGE)
		madvise((uint8_t *)at + done, size - done < TR_HUGE ? size - done : TR_HUGE,
			MADV_POPULATE_WRITE);
}

static void *have_ready(size_t size)
{
	void *p = tr_huge(size);
	populate(p, size);
	return p;
}

static void do_job(const struct job *j)
{
	void *p;
	switch (j->kind) {
	case THERE:
		populate(j->at, j->size);
		break;
	case READ:
		madvise(j->at, j->size, MADV_POPULATE_READ);
		break;
	case USED:
		if (!tr_used_is_there(j->size))
			tr_used_free(have_ready(j->size), j->size);
		break;
	case ZERO:
		p = have_ready(j->size);
		pthread_mutex_lock(&warm.lock);
		if (!warm.zero) {
			warm.zero = p;
			warm.zero_size = j->size;
			p = NULL;
		}
		pthread_mutex_unlock(&warm.lock);
		tr_sparse_free(p, j->size);
	}
}

void *tr_warm_run(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&warm.lock);
	while (!warm.ends) {
		if (!warm.n) {
			pthread_cond_wait(&warm.more, &warm.lock);
			continue;
		}
		struct job j = warm.job[0];
		warm.n--;
		memmove(warm.job, warm.job + 1, warm.n * sizeof(*warm.job));
		pthread_mutex_unlock(&warm.lock);
		do_job(&j);
		pthread_mutex_lock(&warm.lock);
	}
	tr_sparse_free(warm.zero, warm.zero_size);
	warm.zero = NULL;
	warm.begun = warm.ends = false;
	warm.n = 0;
	pthread_mutex_unlock(&warm.lock);
	return NULL;
}

/* When there is much to do already nothing is added. */
static void add(enum kind kind, void *at, size_t size)
{
	pthread_mutex_lock(&warm.lock);
	if (warm.begun && warm.n < JOBS) {
		warm.job[warm.n++] = (struct job){ kind, at, size };
		pthread_cond_signal(&warm.more);
	}
	pthread_mutex_unlock(&warm.lock);
}

void tr_warm_begin(void)
{
	pthread_mutex_lock(&warm.lock);
	warm.begun = true;
	pthread_mutex_unlock(&warm.lock);
	add(ZERO, NULL, tr_size());
}

void tr_warm_end(void)
{
	pthread_mutex_lock(&warm.lock);
	warm.ends = true;
	pthread_cond_signal(&warm.more);
	pthread_mutex_unlock(&warm.lock);
}

void tr_warm(void *at, size_t size)
{
	add(THERE, at, size);
}

void tr_warm_read(void *at, size_t size)
{
	add(READ, at, size);
}

void tr_warm_used(size_t size)
{
	add(USED, NULL, size);
}

void *tr_warm_zero(size_t size)
{
	static bool again; /* there is more than one: another one will be wanted */
	void *p = NULL;
	pthread_mutex_lock(&warm.lock);
	if (warm.zero && warm.zero_size == size) {
		p = warm.zero;
		warm.zero = NULL;
	}
	pthread_mutex_unlock(&warm.lock);
	if (again)
		add(ZERO, NULL, size);
	again = true;
	return p;
}
