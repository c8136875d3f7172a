/*
 * deja serve: one client of the gdb remote protocol, on standard input and output or on a TCP
 * port. Listens on the loopback interface unless another address is named: whoever can connect
 * can read everything in the recording.
 */
#include "cli/cli.h"
#include "cli/cmd.h"
#include "cli/process.h"
#include "gdbstub/gdbstub.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOPBACK "127.0.0.1"

static const char usage_text[] =
	"Usage: deja serve [--listen [HOST:]PORT | --stdio] [--goto POSITION] [-p PROCESS] [FILE]\n"
	"Serve a recording to a client of the gdb remote protocol.\n\n"
	"  --listen [HOST:]PORT  listen there; HOST is " LOOPBACK " unless given, PORT 0 takes a\n"
	"                        free one (this is the default)\n"
	"  --stdio               talk on standard input and output\n"
	"  --goto POSITION       stand there at first: SEQ:STEPS[+REP], a number of instructions,\n"
	"                        a time since the recording began (1.5s),\n"
	"                        begin (this is the default) or end\n"
	"  -p, --process PROCESS a number or a name: where that process begins, or if it is the "
	"end\n"
	"                        that is asked for, ends\n"
	"  --at-once             \"monitor goto\" moves at once, not with the debugger's next "
	"command\n"
	"                        that moves the program: for one that looks anew after it, as gdb\n"
	"                        does with \"maintenance flush register-cache\"\n"
	"  --checkpoints SIZE    memory that checkpoints may take, from which one gets to any "
	"moment\n"
	"                        quickly (K, M, G; default: 1G, or a quarter of the machine's if\n"
	"                        that is less)\n"
	"  --no-index            neither use nor write FILE.index (deja index)\n"
	"  --messages FD         once the recording is open, what would go to standard error goes "
	"to\n"
	"                        this descriptor: a gdb that started us looks for more of it with\n"
	"                        each byte of an answer, until standard error is closed\n\n"
	"The address that is listened on goes to standard error. In gdb:\n"
	"  target extended-remote HOST:PORT";

/* "[HOST:]PORT" or "[V6HOST]:PORT" into host and port, in place. */
static void split_address(char *text, char **host, char **port)
{
	char *colon = strrchr(text, ':');
	*host = LOOPBACK;
	*port = text;
	if (!colon)
		return;
	*colon = '\0';
	*port = colon + 1;
	size_t n = strlen(text);
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text[n - 1] = '\0';
		text++;
	}
	if (*text)
		*host = text;
}

static int bind_one(const struct addrinfo *ai)
{
	int one = 1;
	int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, 1) == 0)
		return fd;
	int saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static int listen_on(const char *address, struct dj_error *err)
{
	char *copy = strdup(address), *host, *port;
	if (!copy)
		return dj_fail(err, 1, "out of memory");
	split_address(copy, &host, &port);
	uint64_t number;
	if (!cli_number(port, &number) || number > 65535) {
		free(copy);
		return dj_fail(err, 1, "cannot listen on %s: not a port number", address);
	}
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	struct addrinfo *list;
	int e = getaddrinfo(host, port, &hints, &list), fd = -1;
	if (e) {
		dj_fail(err, 1, "cannot listen on %s: %s", address,
			e == EAI_SYSTEM ? strerror(errno) : gai_strerror(e));
	} else {
		for (struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
			fd = bind_one(ai);
		if (fd < 0)
			dj_fail_errno(err, 1, "cannot listen on %s", address);
		freeaddrinfo(list);
	}
	free(copy);
	return fd;
}

static void announce(int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	char host[NI_MAXHOST], port[NI_MAXSERV];
	if (getsockname(fd, (struct sockaddr *)&sa, &len) == 0 &&
	    getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		fprintf(stderr,
			sa.ss_family == AF_INET6 ? "Listening on [%s]:%s\n"
						 : "Listening on %s:%s\n",
			host, port);
}

/* Whether only programs of this host can connect (RFC 1122, 3.2.1.3; RFC 4291, 2.5.3). */
static bool loopback(int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &len) != 0)
		return false;
	if (sa.ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)&sa)->sin_addr.s_addr) >> 24 == 127;
	return sa.ss_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&sa)->sin6_addr);
}

static int serve_tcp(struct replay *r, const char *address, bool looks_again, struct dj_error *err)
{
	int one = 1, client;
	int fd = listen_on(address, err);
	if (fd < 0)
		return -1;
	if (!loopback(fd))
		cli_warn("serve: whoever can connect can read all that the recorded program read "
			 "and "
			 "wrote, its keys and passwords included: nothing is encrypted and nobody "
			 "is "
			 "asked who they are");
	announce(fd);
	do
		client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	while (client < 0 && errno == EINTR);
	close(fd);
	if (client < 0)
		return dj_fail_errno(err, 1, "cannot accept a connection");
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	int result = gdbstub_serve(r, client, client, looks_again, err);
	close(client);
	return result;
}

/* Standard output belongs to the protocol alone: anything else printed there would garble it. */
static int serve_stdio(struct replay *r, bool looks_again, struct dj_error *err)
{
	int out = dup(STDOUT_FILENO);
	if (out < 0)
		return dj_fail_errno(err, 1, "cannot use standard output");
	dup2(STDERR_FILENO, STDOUT_FILENO);
	signal(SIGINT, SIG_IGN); /* ^C is for the debugger, which tells us in its own way */
	int result = gdbstub_serve(r, STDIN_FILENO, out, looks_again, err);
	close(out);
	return result;
}

/* Stand at a position, in a process, or at that of a process; either may be NULL. */
static int stand(struct replay *r, const char *position, const char *process, struct dj_error *err)
{
	uint32_t number, thread;
	struct replay_pos pos;
	struct replay_thread alive;

	if (!process)
		return position ? replay_goto_text(r, position, err) : 0;
	if (cli_find_process(replay_trace(r), process, &number, &thread, err) != 0)
		return -1;
	if (!position || strcmp(position, "begin") == 0) {
		replay_thread_begin(r, thread, &pos);
		return replay_seek(r, &pos, err);
	}
	if (strcmp(position, "end") == 0) {
		replay_thread_end(r, thread, &pos);
		return replay_seek(r, &pos, err);
	}
	if (replay_goto_text(r, position, err) != 0)
		return -1;
	if (replay_threads(r, number, &alive, 1) == 0)
		return dj_fail(err, CLI_USAGE, "process %s is not there at %s", process, position);
	return replay_select(r, alive.number, err);
}

/* The trace of that name, or the last one if it is NULL; `checkpoints`: bytes for them, 0 is the
 * default. */
static struct replay *opened(const char *name, uint64_t checkpoints, bool index,
			     struct dj_error *err)
{
	char *path = cli_trace_path(name, err);
	struct replay *r = path ? replay_open(path, err) : NULL;
	free(path);
	if (r && checkpoints)
		replay_budget(r, checkpoints);
	if (r && index)
		replay_use_index(r);
	return r;
}

int cmd_serve(int argc, char **argv)
{
	static const struct option options[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "stdio", no_argument, NULL, 's' },
		{ "goto", required_argument, NULL, 'g' },
		{ "process", required_argument, NULL, 'p' },
		{ "at-once", no_argument, NULL, 'o' },
		{ "no-index", no_argument, NULL, 'i' },
		{ "checkpoints", required_argument, NULL, 'k' },
		{ "messages", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const char *address = NULL, *position = NULL, *process = NULL;
	bool use_stdio = false, looks_again = false, index = true;
	uint64_t checkpoints = 0, messages = STDERR_FILENO;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":hp:", options, NULL)) != -1) {
		switch (c) {
		case 'l':
			address = optarg;
			break;
		case 's':
			use_stdio = true;
			break;
		case 'g':
			position = optarg;
			break;
		case 'p':
			process = optarg;
			break;
		case 'o':
			looks_again = true;
			break;
		case 'i':
			index = false;
			break;
		case 'k':
			if (!cli_size(optarg, &checkpoints) || !checkpoints)
				return cli_usage("serve", CLI_CHECKPOINTS);
			break;
		case 'm':
			if (!cli_number(optarg, &messages) || messages > INT_MAX ||
			    fcntl((int)messages, F_GETFD) < 0)
				return cli_usage(
					"serve",
					"--messages takes a descriptor that is open, not %s",
					optarg);
			break;
		case 'h':
			puts(usage_text);
			return cli_finish(CLI_GOOD);
		default:
			return cli_bad_option("serve", argc, argv, c);
		}
	}
	if (address && use_stdio)
		return cli_usage("serve", "--listen or --stdio, not both");
	if (argc - optind > 1)
		return cli_usage("serve", "one trace at a time, not also %s", argv[optind + 1]);

	struct dj_error err = { 0 };
	struct replay *r = opened(optind < argc ? argv[optind] : NULL, checkpoints, index, &err);
	if (!r)
		return cli_error(&err);
	if (stand(r, position, process, &err) != 0) {
		replay_close(r);
		return cli_error(&err);
	}
	dup2((int)messages, STDERR_FILENO);
	int result = use_stdio ? serve_stdio(r, looks_again, &err)
			       : serve_tcp(r, address ? address : LOOPBACK ":0", looks_again, &err);
	if (index)
		replay_keep(r, false, NULL); /* where that cannot be it is found out again */
	replay_close(r);
	return result == 0 ? CLI_GOOD : cli_error(&err);
}
