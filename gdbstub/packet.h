/*
 * Packets over a byte stream: "$data#checksum", acknowledgements, interrupts (gdb manual,
 * "Overview" of the remote serial protocol).
 *
 * The other side may send anything at all. A packet longer than LINK_PACKET_MAX is read to its
 * end and answered as an error, a wrong checksum is refused with '-', noise between packets is
 * skipped, and the stream may end or stall anywhere.
 */
#ifndef DEJA_GDBSTUB_PACKET_H
#define DEJA_GDBSTUB_PACKET_H

#include "gdbstub/textbuf.h"

#define LINK_PACKET_MAX	      0x20400 /* bytes of data between '$' and '#' */
#define LINK_PACKET_ANNOUNCED 0x20000 /* what the other side is told */

struct stub_link {
	int in, out;
	bool acks;	  /* acknowledgements are sent and expected */
	bool closed;	  /* the other side has gone */
	bool interrupted; /* an interrupt arrived between packets */
	char *buf;	  /* input: bytes [start, end) are unread; LINK_PACKET_MAX + slack */
	size_t start, end;
	char *packet;		   /* the last packet, data only */
	struct stub_textbuf frame; /* the last packet sent, kept for a '-' */
};

enum stub_link_got {
	LINK_PACKET,
	LINK_BAD, /* too long, or damaged with nobody to ask for another copy */
	LINK_CLOSED,
};

/* Returns -1 if memory cannot be had. */
int stub_link_init(struct stub_link *l, int in, int out);
void stub_link_free(struct stub_link *l);

/* Whether something has come, within so many milliseconds. */
bool stub_link_waits(struct stub_link *l, int milliseconds);

/* Wait for the next packet; `*packet` stays valid until the next call. */
enum stub_link_got stub_link_receive(struct stub_link *l, struct stub_scan *packet);

/* Send a packet of `len` bytes that have their binary escapes already. */
void stub_link_send(struct stub_link *l, const char *data, size_t len);

/* Without waiting: whether the other side has asked for an interrupt, or gone. */
bool stub_link_poll_interrupt(struct stub_link *l);

#endif
