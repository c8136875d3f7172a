/* Races, in functions that begin with racy_, and what is none, in others: tests/cli/queries.sh. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

static long counter, page[100], late, locked, spun, handed, before, after, piped;
static int ready, pipes[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;

KEEP static void racy_add(void)
{
	counter++;
}

KEEP static void racy_publish(void)
{
	page[50] = 5;
}

KEEP static long racy_watch(void)
{
	return page[50];
}

/* In most runs read first and then written. */
KEEP static long racy_look(void)
{
	return late;
}

KEEP static void racy_late(void)
{
	late = 9;
}

KEEP static void calm_work(void)
{
	for (int i = 0; i < 50; i++) {
		pthread_mutex_lock(&mutex);
		locked++;
		pthread_mutex_unlock(&mutex);
		pthread_spin_lock(&spin);
		spun++;
		pthread_spin_unlock(&spin);
	}
}

KEEP static void calm_send(void)
{
	handed = 1;
	pthread_mutex_lock(&mutex);
	ready = 1;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
	piped = 3;
	if (write(pipes[1], "x", 1) != 1)
		perror("write");
	after = 7;
}

KEEP static void calm_receive(void)
{
	char c;

	pthread_mutex_lock(&mutex);
	while (!ready)
		pthread_cond_wait(&cond, &mutex);
	pthread_mutex_unlock(&mutex);
	handed++;
	if (read(pipes[0], &c, 1) != 1)
		perror("read");
	piped++;
}

static void *first(void *arg)
{
	page[1] = racy_look();
	racy_add();
	racy_publish();
	pthread_barrier_wait(&barrier);
	calm_work();
	calm_send();
	return arg;
}

static void *second(void *arg)
{
	before++;
	racy_add();
	page[0] = racy_watch();
	usleep(20000);
	racy_late();
	pthread_barrier_wait(&barrier);
	calm_work();
	calm_receive();
	return arg;
}

int main(void)
{
	pthread_t a, b;

	pthread_spin_init(&spin, 0);
	pthread_barrier_init(&barrier, NULL, 2);
	before = 1;
	if (pipe(pipes))
		return 1;
	pthread_create(&a, NULL, first, NULL);
	pthread_create(&b, NULL, second, NULL);
	pthread_join(a, NULL);
	after++;
	pthread_join(b, NULL);
	printf("%ld %ld %ld %ld %ld %ld %ld\n", counter, locked, spun, handed, before, after,
	       piped);
	return 0;
}
