/* A call and a return that are none to look at: a jump behind a push, and a jump to what was
 * popped. */
extern volatile int hand_count;
volatile int hand_count;
void hand_caller(void);

__asm__(".text\n"
	".type hand_caller, @function\n"
	"hand_caller: lea 1f(%rip), %rax\n"
	"push %rax\n"
	"jmp hand_target\n" /* hand_caller+8 */
	"1: ret\n"
	".size hand_caller, . - hand_caller\n"
	".type hand_target, @function\n"
	"hand_target: addl $1, hand_count(%rip)\n"
	"pop %rcx\n"
	"jmp *%rcx\n" /* hand_target+8 */
	".size hand_target, . - hand_target\n");

/* So deep that a stack has to grow, more than once. */
__attribute__((noipa)) int deep(int n)
{
	return n ? 1 + deep(n - 1) : hand_count;
}

int main(void)
{
	for (int i = 0; i < 20; i++)
		hand_caller();
	return deep(20000) != 20020;
}
