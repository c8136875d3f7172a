/* Functions that are inlined into others, at several places and within each other. */
#define NOIPA  __attribute__((noipa))
#define INLINE static inline __attribute__((always_inline))

volatile long counter, table[16];

NOIPA void leaf(int i)
{
	counter += i;
}

INLINE void inner(int n)
{
	for (int i = 0; i < n; i++) {
		table[i & 15] += i;
		leaf(i);
	}
}

INLINE void outer(int n)
{
	counter = counter * 3 + n;
	inner(n);
	counter ^= 5;
}

NOIPA void one(int n)
{
	outer(n);
	table[0] = n;
}

NOIPA void two(int n)
{
	table[1] = n;
	outer(n + 2);
	inner(n);
}

int main(void)
{
	for (int i = 0; i < 10; i++) {
		one(3);
		two(i);
	}
	return 0;
}
