/*

 * Whole sessions over a socket, and packets that mean harm.
 */
#include "tests/lib/random.h"
#include "tests/unit/test-stub.h"

#include "gdbstub/gdbstub.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static void *serve(void *arg)
{
	int fd = *(int *)arg;
	struct replay *r = fake_replay_new();
	struct dj_error err;
	gdbstub_serve(r, fd, fd, true, &err);
	replay_close(r);
	close(fd);
	return NULL;
}

static size_t frame(char *out, const char *data)
{
	unsigned sum = 0;
	for (const char *p = data; *p; p++)
		sum += (unsigned char)*p;
	return (size_t)sprintf(out, "$%s#%02x", data, sum & 0xff);
}

static void read_until(int fd, const char *what, char *buf, size_t size)
{
	size_t n = 0;
	buf[0] = '\0';
	while (n + 1 < size && !strstr(buf, what)) {
		ssize_t got = read(fd, buf + n, size - 1 - n);
		if (got <= 0)
			break;
		n += (size_t)got;
		buf[n] = '\0';
	}
	CU_ASSERT_PTR_NOT_NULL(strstr(buf, what));
}

static void test_session(void)
{
	int fds[2];
	pthread_t thread;
	char out[256], in[4096];
	CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, serve, &fds[0]), 0);
	struct timeval patience = { .tv_sec = 10 };
	setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
#define SAY(text) CU_ASSERT(write(fds[1], text, strlen(text)) == (ssize_t)strlen(text))
	frame(out, "QStartNoAckMode");
	SAY(out);
	read_until(fds[1], "+$OK#9a", in, sizeof(in));
	/* an interrupt right behind the packet, in pieces */
	size_t n = frame(out, "vCont;c");
	CU_ASSERT_EQUAL(write(fds[1], out, 3), 3);
	usleep(1000);
	strcpy(out + n, "\x03");
	SAY(out + 3);
	read_until(fds[1], "$T02", in, sizeof(in));
	frame(out, "M600000,1:05");
	SAY(out);
	read_until(fds[1], "$OK#9a", in, sizeof(in));
	frame(out, "bs"); /* forgets the change and says so */
	SAY(out);
	read_until(fds[1], "$O5b64656a613a", in, sizeof(in));
	if (!strstr(in, "$T05"))
		read_until(fds[1], "$T05", in, sizeof(in));
	SAY("$m600000,");
	close(fds[1]); /* in the middle of a packet */
	pthread_join(thread, NULL);
}

/* Packets changed at random, and streams of noise: nothing may go wrong, see also fuzz/. */
static uint64_t random_state = 88172645463325252ULL;
static uint32_t random32(void)
{
	return (uint32_t)(random_next(&random_state) >> 16);
}

static void test_hostile(void)
{
	/* clang-format off */
	static const char *const seeds[] = {
		"qSupported:multiprocess+", "m600000,40", "M600000,4:00112233", "X600000,2:ab", "g",
		"P10=0010400000000000", "vCont;s:p1092.1092;c", "vCont;r401000,401010:p1092.-1", "bc",
		"bs", "Z0,401000,1", "z0,401000,1", "Z0,401020,1;Xa,260001240000e2931327X3,220027", "Z2,600000,8", "qXfer:features:read:target.xml:0,fff",
		"qXfer:libraries-svr4:read::0,1000", "vFile:open:2f70726f632f343234322f6d617073,0,0",
		"vFile:pread:0,1000,0", "vFile:readlink:2f70726f632f343234322f657865", "qRcmd,676f746f20353030",
		"qSearch:memory:600000;1000;needle", "QPassSignals:e;10;14;17", "QCatchSyscalls:1;1;2",
		"qCRC:600000,100", "vRun;", "vKill;1092", "Hgp1092.1092", "D;1092", "R00", "!", "?",
	};
	/* clang-format on */
	printf("(seed %" PRIu64 ") ", random_state);
	begin();
	for (unsigned i = 0; i < 200000; i++) {
		char packet[128];
		const char *seed = seeds[random32() % (sizeof(seeds) / sizeof(*seeds))];
		size_t len = strlen(seed);
		memcpy(packet, seed, len);
		for (uint32_t k = random32() % 4; k > 0 && len > 0; k--) {
			uint32_t r = random32();
			switch (r % 4) {
			case 0:
				packet[r / 4 % len] = (char)random32();
				break;
			case 1:
				len = r / 4 % len;
				break;
			case 2:
				packet[r / 4 % len] = "0123456789abcdef,;:=.-pf"[random32() % 24];
				break;
			case 3:
				packet[len++] = 'f';
				break;
			}
		}
		ask_bytes(packet, len);
		session.done = false;
	}
	finish();
}

CU_TestInfo stub_sessions[] = {
	{ "session", test_session },
	{ "hostile", test_hostile },
	CU_TEST_INFO_NULL,
};
