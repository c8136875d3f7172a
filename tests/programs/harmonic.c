/* For a program at a fixed address: floating point, arguments, and an exit status of its own. */
#include <math.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	double s = 0;

	for (int i = 1; i < 20000; i++)
		s += 1.0 / i * cos(i);
	printf("%.17g %d %s\n", s, argc, argv[1]);
	return 5;
}
