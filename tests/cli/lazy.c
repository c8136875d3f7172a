/*
 * Twenty functions of the C library, each found when it is first called; with an argument twenty
 * more.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	volatile double x = argc;
	char text[100] = "some text";

	x += sin(x) + cos(x) + tan(x) + exp(x) + log(x) + pow(x, 3) + cbrt(x) + hypot(x, 2) +
	     atan(x) + asin(0.3);
	x += acos(0.2) + sinh(x) + cosh(0.5) + tanh(x) + log10(x) + log2(x) + exp2(0.5) +
	     fmod(x, 3) + atan2(x, 2) + erf(x);
	if (argc > 1) {
		x += lgamma(x) + tgamma(1.5) + expm1(0.1) + log1p(x) + asinh(x) + acosh(x + 2) +
		     atanh(0.3) + erfc(x) + j0(x) + j1(x);
		x += y0(x) + y1(x) + remainder(x, 3) + ldexp(x, 2) + logb(x) + nextafter(x, 9) +
		     scalbn(x, 2) + fdim(x, 1) + nan("") + labs(3);
	}
	printf("%d %zu\n", x > 0, strlen(text));
	return 0;
}
