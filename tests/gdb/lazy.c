/*
 * Functions with more on their stack than they fill, over what the dynamic linker has left there:
 * it looks functions up when they are first called, and saves registers on the stack for that.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct row {
	char name[96];
	double values[12];
	int n;
	long sums[8];
};

static int fill(struct row *r, int k)
{
	char text[128];
	double d[16];
	long some[64] = { 0 }, none[64];

	for (int i = 0; i < k % 5; i++)
		some[i] = i * k;
	snprintf(text, sizeof(text), "row %d of %g", k, sqrt(k));
	for (int i = 0; i < k % 16; i++)
		d[i] = sin(i * k);
	strcpy(r->name, text);
	memcpy(r->values, d, sizeof(double) * (unsigned)(k % 12));
	none[k % 64] = toupper(text[0]);
	r->n = (int)strlen(text);
	r->sums[k % 8] = none[k % 64] + some[k % 5];
	return r->n;
}

static long work(int n)
{
	struct row rows[8];
	char buffer[512];
	long total = 0;
	int order[64];

	for (int i = 0; i < n; i++) {
		total += fill(&rows[i % 8], i);
		order[i % 16] = i;
		if (i % 100 == 7) {
			sprintf(buffer, "%ld", total);
			total += atol(buffer);
		}
		if (i == n / 3)
			total += (long)strtod("12.5", NULL);
		if (i == n / 2) {
			time_t t = 0;
			struct tm *g = gmtime(&t);
			total += g->tm_year;
		}
		total += order[0];
	}
	return total;
}

int main(void)
{
	char *s = strdup("x");
	int t[32];

	t[0] = s[0];
	printf("%ld\n", work(150) + t[0]);
	free(s);
	return 0;
}
