/*
 * A program with a bug that shows long after it was made: what ./demo hunts down.
 *
 * A shop reads a list of articles, prices them, and prints a report. One article's name is
 * longer than the field for it, so its end goes into the next field, of the very same
 * allocation: no tool that watches the heap's borders sees anything. The report crashes
 * millions of instructions later, in a function that did nothing wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct price {
	long cents;
	int percent_off;
};

struct article {
	char name[16];
	struct price *price;
	struct article *next;
};

static struct article *shop;

static void set_name(struct article *a, const char *name)
{
	size_t i;

	for (i = 0; name[i]; i++)
		a->name[i] = name[i];
	a->name[i] = '\0';
}

static struct article *add(const char *name, long cents)
{
	struct article *a = calloc(1, sizeof(*a));

	a->price = malloc(sizeof(*a->price));
	a->price->cents = cents;
	a->price->percent_off = 0;
	set_name(a, name);
	a->next = shop;
	shop = a;
	return a;
}

static long busy_work(int rounds)
{
	long sum = 1;

	for (int i = 0; i < rounds; i++)
		for (struct article *a = shop; a; a = a->next)
			sum = sum * 31 + a->name[i % 15];
	return sum;
}

static long total(void)
{
	long sum = 0;

	for (const struct article *a = shop; a; a = a->next)
		sum += a->price->cents * (100 - a->price->percent_off) / 100;
	return sum;
}

int main(void)
{
	add("apple", 40);
	add("bread", 310);
	add("chocolate bar", 199);
	add("dragon fruit tea (iced)", 850);
	add("espresso", 250);
	printf("stock checked: %lx\n", busy_work(20000));
	printf("total: %ld\n", total());
	return 0;
}
