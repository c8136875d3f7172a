/* What tests/gdb/target.c loads while it runs. */
int plugin_calls;

int plugin_work(int x)
{
	plugin_calls++;
	return x * 3;
}
