/*
 * One part of the C file that cc1 compiles: the harness includes it again and again, each time
 * with another U(), and preprocesses the whole.
 */
struct U(node) {
	struct U(node) * next;
	unsigned hash, length;
	char *text;
	double weight;
};
struct U(table) {
	struct U(node) * *slot;
	size_t used, mask;
};

static unsigned U(hash)(const char *s, size_t n)
{
	unsigned h = 2166136261u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)s[i]) * 16777619u;
	return h;
}

static int U(grow)(struct U(table) * t)
{
	size_t size = t->mask ? 2 * (t->mask + 1) : 16;
	struct U(node) **slot = calloc(size, sizeof(*slot));
	if (!slot)
		return -1;
	for (size_t i = 0; t->slot && i <= t->mask; i++)
		for (struct U(node) *n = t->slot[i], *next; n; n = next) {
			next = n->next;
			n->next = slot[n->hash & (size - 1)];
			slot[n->hash & (size - 1)] = n;
		}
	free(t->slot);
	t->slot = slot;
	t->mask = size - 1;
	return 0;
}

struct U(node) * U(lookup)(struct U(table) * t, const char *s, size_t n, int add)
{
	unsigned h = U(hash)(s, n);
	struct U(node) * p;
	if (t->slot)
		for (p = t->slot[h & t->mask]; p; p = p->next)
			if (p->hash == h && p->length == n && !memcmp(p->text, s, n))
				return p;
	if (!add || (t->used >= t->mask && U(grow)(t)))
		return NULL;
	p = malloc(sizeof(*p));
	if (!p)
		return NULL;
	p->text = malloc(n + 1);
	if (!p->text) {
		free(p);
		return NULL;
	}
	memcpy(p->text, s, n);
	p->text[n] = 0;
	p->hash = h;
	p->length = (unsigned)n;
	p->weight = 1.0 / (double)(n + 1);
	p->next = t->slot[h & t->mask];
	t->slot[h & t->mask] = p;
	t->used++;
	return p;
}

long U(expression)(const char **at)
{
	const char *s = *at;
	long value = 0, sign = 1;
	for (;;) {
		while (isspace((unsigned char)*s))
			s++;
		switch (*s) {
		case '-':
			sign = -sign;
			s++;
			continue;
		case '(': {
			s++;
			long inner = U(expression)(&s);
			value += sign * inner;
			if (*s == ')')
				s++;
			break;
		}
		case '0':
		case '1':
		case '2':
		case '3':
		case '4':
		case '5':
		case '6':
		case '7':
		case '8':
		case '9':
			value += sign * strtol(s, (char **)&s, 10);
			break;
		default:
			*at = s;
			return value;
		}
		sign = 1;
		while (isspace((unsigned char)*s) || *s == '+')
			s++;
	}
}

void U(multiply)(double *restrict c, const double *restrict a, const double *restrict b, int n)
{
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			double sum = 0;
			for (int k = 0; k < n; k++)
				sum += a[i * n + k] * b[k * n + j];
			c[i * n + j] = sum > 0 ? sqrt(sum) : -sum;
		}
}

int U(report)(struct U(table) * t, FILE *out)
{
	int lines = 0;
	char buffer[256];
	for (size_t i = 0; t->slot && i <= t->mask; i++)
		for (struct U(node) *n = t->slot[i]; n; n = n->next) {
			int len = snprintf(buffer, sizeof(buffer), "%zu %08x %s %.3f\n", i, n->hash,
					   n->text, n->weight);
			if (len < 0 || fwrite(buffer, 1, (size_t)len, out) != (size_t)len)
				return -1;
			lines++;
		}
	return lines;
}
