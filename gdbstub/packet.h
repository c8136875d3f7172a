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

struct link {
	int in, out;
	bool acks;	  /* acknowledgements are sent and expected */
	bool closed;	  /* the other side has gone */
	bool interrupted; /* an interrupt arrived between packets */
	char *buf;	  /* input: bytes [start, end) are unread; LINK_PACKET_MAX + slack */
	size_t start, end;
	char *packet;	       /* the last packet, data only */
	struct textbuf frame; /* the last packet sent, kept for a '-' */
};

enum link_got {
	LINK_PACKET,
	LINK_BAD, /* too long, or damaged with nobody to ask for another copy */
	LINK_CLOSED,
};

/* Returns -1 if memory cannot be had. */
int link_init(struct link *l, int in, int out);
void link_free(struct link *l);

/* Wait for the next packet; `*packet` stays valid until the next call. */
enum link_got link_receive(struct link *l, struct scan *packet);

/* Send a packet of `len` bytes that have their binary escapes already. */
void link_send(struct link *l, const char *data, size_t len);

/* Without waiting: whether the other side has asked for an interrupt, or gone. */
bool link_poll_interrupt(struct link *l);

#endif
