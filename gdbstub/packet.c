/* Packet framing: see packet.h. */
#include "gdbstub/packet.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_SIZE (LINK_PACKET_MAX + 0x1000)
#define INTERRUPT  0x03

int stub_link_init(struct stub_link *l, int in, int out)
{
	*l = (struct stub_link){ .in = in, .out = out, .acks = true };
	l->buf = malloc(INPUT_SIZE);
	l->packet = malloc(LINK_PACKET_MAX);
	if (l->buf && l->packet)
		return 0;
	stub_link_free(l);
	return -1;
}

void stub_link_free(struct stub_link *l)
{
	free(l->buf);
	free(l->packet);
	stub_textbuf_free(&l->frame);
	l->buf = l->packet = NULL;
}

/* Read what is there, waiting up to `timeout` milliseconds (-1: for ever). Returns false if
 * nothing came. */
static bool fill(struct stub_link *l, int timeout)
{
	if (l->closed)
		return false;
	if (l->start == l->end) {
		l->start = l->end = 0;
	} else if (l->end == INPUT_SIZE && l->start > 0) {
		memmove(l->buf, l->buf + l->start, l->end - l->start);
		l->end -= l->start;
		l->start = 0;
	}
	if (l->end == INPUT_SIZE)
		return false;
	struct pollfd p = { .fd = l->in, .events = POLLIN };
	int ready;
	do
		ready = poll(&p, 1, timeout);
	while (ready < 0 && errno == EINTR && timeout < 0);
	if (ready <= 0)
		return false;
	ssize_t n = read(l->in, l->buf + l->end, INPUT_SIZE - l->end);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return false;
	if (n <= 0) {
		l->closed = true;
		return false;
	}
	l->end += (size_t)n;
	return true;
}

bool stub_link_waits(struct stub_link *l, int milliseconds)
{
	struct pollfd p = { .fd = l->in, .events = POLLIN };

	return l->closed || l->start != l->end || poll(&p, 1, milliseconds) != 0;
}

/* The next byte, or -1 when the other side has gone. */
static int next_byte(struct stub_link *l)
{
	while (l->start == l->end) {
		fill(l, -1);
		if (l->closed)
			return -1;
	}
	return (unsigned char)l->buf[l->start++];
}

static void send_raw(struct stub_link *l, const char *p, size_t n)
{
	while (n > 0 && !l->closed) {
		ssize_t done = write(l->out, p, n);
		if (done > 0) {
			p += done;
			n -= (size_t)done;
		} else if (done < 0 && errno == EAGAIN) {
			struct pollfd w = { .fd = l->out, .events = POLLOUT };
			poll(&w, 1, -1);
		} else if (done < 0 && errno != EINTR) {
			l->closed = true;
		}
	}
}

/* After a '$': read the data up to its '#' and the checksum. Returns the number of bytes, -1
 * when the other side has gone, -2 if the packet is too long, -3 if the checksum is wrong. */
static long read_body(struct stub_link *l)
{
	size_t n = 0;
	unsigned char sum = 0;
	bool oversized = false;
	for (;;) {
		int c = next_byte(l);
		if (c < 0)
			return -1;
		if (c == '#')
			break;
		if (c == '$') { /* the packet before was cut off: this is a new one */
			n = 0;
			sum = 0;
			oversized = false;
			continue;
		}
		sum += (unsigned char)c;
		if (n < LINK_PACKET_MAX)
			l->packet[n++] = (char)c;
		else
			oversized = true;
	}
	int hi = next_byte(l), lo = hi < 0 ? -1 : next_byte(l);
	if (lo < 0)
		return -1;
	hi = stub_hex_digit((char)hi);
	lo = stub_hex_digit((char)lo);
	if (hi < 0 || lo < 0 || (hi << 4 | lo) != sum)
		return -3;
	return oversized ? -2 : (long)n;
}

enum stub_link_got stub_link_receive(struct stub_link *l, struct stub_scan *packet)
{
	for (;;) {
		int c = next_byte(l);
		if (c < 0)
			return LINK_CLOSED;
		if (c == '-' && l->acks)
			send_raw(l, l->frame.p, l->frame.len);
		if (c == INTERRUPT)
			l->interrupted = true;
		if (c != '$')
			continue;
		long n = read_body(l);
		if (n == -1)
			return LINK_CLOSED;
		if (n == -3) {
			if (l->acks) {
				send_raw(l, "-", 1);
				continue;
			}
			/* without acknowledgements nothing would be sent again */
			return LINK_BAD;
		}
		if (l->acks)
			send_raw(l, "+", 1);
		if (n == -2)
			return LINK_BAD;
		*packet = (struct stub_scan){ l->packet, l->packet + n };
		return LINK_PACKET;
	}
}

/*
 * Runs of four and more equal characters go as the character, '*' and a count character
 * (29 + how many more), which may be none of '#' '$' '+' '-'.
 */
static void put_run(struct stub_textbuf *f, char c, size_t n)
{
	while (n > 0) {
		size_t more = n - 1 < 97 ? n - 1 : 97; /* '~' is 29 + 97 */
		while (more >= 3 && strchr("#$+-", (int)(29 + more)))
			more--;
		stub_textbuf_char(f, c);
		if (more < 3) {
			n--;
			continue;
		}
		stub_textbuf_char(f, '*');
		stub_textbuf_char(f, (char)(29 + more));
		n -= more + 1;
	}
}

void stub_link_send(struct stub_link *l, const char *data, size_t len)
{
	struct stub_textbuf *f = &l->frame;
	stub_textbuf_reset(f);
	stub_textbuf_char(f, '$');
	for (size_t i = 0; i < len;) {
		size_t n = 1;
		while (i + n < len && data[i + n] == data[i])
			n++;
		put_run(f, data[i], n);
		i += n;
	}
	unsigned char sum = 0;
	for (size_t i = 1; i < f->len; i++)
		sum += (unsigned char)f->p[i];
	stub_textbuf_printf(f, "#%02x", sum);
	if (f->failed) {
		stub_textbuf_reset(f);
		l->closed = true; /* no memory even for the reply: give up */
		return;
	}
	send_raw(l, f->p, f->len);
}

bool stub_link_poll_interrupt(struct stub_link *l)
{
	fill(l, 0);
	while (l->start < l->end) {
		char c = l->buf[l->start];
		if (c == INTERRUPT) {
			l->start++;
			return true;
		}
		if (c != '+')
			break;
		l->start++;
	}
	return l->closed;
}
