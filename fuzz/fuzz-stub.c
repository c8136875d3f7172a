/*
 * Fuzz target: the remote protocol, over a replay whose history is a formula.
 *
 * The first byte of the input says how the rest is meant: 'P', packets without framing, one per
 * line, each given to the session as if its checksum had been right; anything else, the raw
 * stream of a client.
 */
#include "fuzz/fuzz.h"
#include "gdbstub/gdbstub.h"
#include "gdbstub/session.h"
#include "tests/lib/fake-replay.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void packets(const char *p, const char *end)
{
	struct replay *r = fake_replay_new();
	struct stub_session s;
	if (stub_session_init(&s, r, NULL, NULL) == 0) {
		while (p < end) {
			const char *line = memchr(p, '\n', (size_t)(end - p));
			if (!line)
				line = end;
			stub_session_packet(&s, (struct stub_scan){ p, line });
			p = line < end ? line + 1 : end;
		}
		stub_session_free(&s);
	}
	replay_close(r);
}

static void stream(const uint8_t *data, size_t size)
{
	int in = memfd_create("stream", MFD_CLOEXEC), out = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (in >= 0 && out >= 0 && write(in, data, size) == (ssize_t)size) {
		struct replay *r = fake_replay_new();
		lseek(in, 0, SEEK_SET);
		gdbstub_serve(r, in, out, true, NULL);
		replay_close(r);
	}
	close(in);
	close(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] == 'P')
		packets((const char *)data + 1, (const char *)data + size);
	else
		stream(data + 1, size - 1);
	return 0;
}
