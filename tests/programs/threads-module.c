/*
 * What programs/threads loads while it runs: thread-local variables, one of them with an alignment.
 */
__thread long module_count = 40;
static __thread _Alignas(64) char module_line[256];
static __attribute__((constructor)) void loaded(void)
{
	module_count++;
}
long module_next(void)
{
	module_line[module_count & 255]++;
	return ++module_count;
}
