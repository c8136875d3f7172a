/* Memory that nothing points to any more, and some that is kept: for a leak checker. */
#include <stdio.h>
#include <stdlib.h>

static char *kept;

int main(void)
{
	kept = malloc(9);
	for (int i = 1; i < 40; i++) {
		char *volatile p = malloc((size_t)i);
		*p = 1;
		p = NULL;
	}
	puts("done");
	return 0;
}
