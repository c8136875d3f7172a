/*
 * Two cashiers and one account: the second bug that ./demo hunts down. Each cashier writes a
 * receipt between reading the balance and setting it, and now and then one deposit is lost. The
 * mutex is there, but it is taken too late: what was read may be old by then.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long balance = 100;
static long receipts;
static pthread_mutex_t till = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t opening;

static long write_receipt(long amount)
{
	long sum = amount;

	for (int i = 0; i < 300000; i++)
		sum = sum * 31 + i;
	return sum;
}

static void deposit(long amount)
{
	long was = balance;

	write_receipt(amount);
	pthread_mutex_lock(&till);
	receipts++;
	balance = was + amount;
	pthread_mutex_unlock(&till);
}

static void *cashier(void *amount)
{
	pthread_barrier_wait(&opening);
	deposit((long)amount);
	return NULL;
}

int main(void)
{
	pthread_t alice, bob;

	pthread_barrier_init(&opening, NULL, 2);
	pthread_create(&alice, NULL, cashier, (void *)20);
	pthread_create(&bob, NULL, cashier, (void *)3);
	pthread_join(alice, NULL);
	pthread_join(bob, NULL);
	printf("%ld receipts, balance %ld\n", receipts, balance);
	if (balance != 100 + 20 + 3)
		abort();
	return 0;
}
