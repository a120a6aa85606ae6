/* Socket options: set before connect, while it is under way, at the listener;
 * read on the connection. */
#include "same.h"

static const struct {
	const char *name;
	int level, option, value;
} ints[] = {
	{"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1},
	{"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1},
	{"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77},
	{"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 11},
	{"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 4},
	{"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 54321},
	{"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, 7},
	{"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 5},
	{"TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT, 0},
	{"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 65536},
	{"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1},
	{"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1},
	{"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 100000},
	{"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 90000},
	{"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 2},
	{"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3},
	{"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, 1},
	{"SO_DONTROUTE", SOL_SOCKET, SO_DONTROUTE, 0},
	{"IP_TOS", IPPROTO_IP, IP_TOS, 0x10},
	{"IP_TTL", IPPROTO_IP, IP_TTL, 33},
	{"IP_RECVTOS", IPPROTO_IP, IP_RECVTOS, 1},
	{"IP_RECVTTL", IPPROTO_IP, IP_RECVTTL, 1},
	{"IP_RECVERR", IPPROTO_IP, IP_RECVERR, 1},
	{"IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, 1},
	{"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO},
	{"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 1},
	{"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 0},
	{"SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS, 1},
	/* Of what has arrived, by the system's clock. */
	{"SO_TIMESTAMPING", SOL_SOCKET, SO_TIMESTAMPING, 1 << 3 | 1 << 4},
	{"SO_ZEROCOPY", SOL_SOCKET, SO_ZEROCOPY, 1},
	{"TCP_INQ", IPPROTO_TCP, TCP_INQ, 1},
	{"TCP_THIN_LINEAR_TIMEOUTS", IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1},
};
enum { INTS = sizeof ints / sizeof *ints };

static void put(int fd)
{
	struct linger linger = {.l_onoff = 1, .l_linger = 7};
	struct timeval timeout = {.tv_sec = 5};
	for (int i = 0; i < INTS; i++) {
		if (setsockopt(fd, ints[i].level, ints[i].option, &ints[i].value, sizeof(int)))
			say("%s: %s", ints[i].name, named(errno));
	}
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

static void get(const char *when, int fd)
{
	struct linger linger = {0};
	struct timeval in = {0}, out = {0};
	char control[16] = "";
	socklen_t len = sizeof linger, in_len = sizeof in, out_len = sizeof out, control_len = sizeof control;
	say("-- %s", when);
	for (int i = 0; i < INTS; i++)
		say("%s %d", ints[i].name, option(fd, ints[i].level, ints[i].option));
	getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len);
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &in, &in_len);
	getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &out, &out_len);
	getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &control_len);
	say("SO_LINGER %d %d, SO_RCVTIMEO %ld, SO_SNDTIMEO %ld, TCP_CONGESTION %s", linger.l_onoff, linger.l_linger, in.tv_sec,
	    out.tv_sec, control);
}

static void left(void)
{
	int port = hear(), fd = tcp(0);
	put(fd);
	get("before", fd);
	step("connect", go(fd, at(peer, port)));
	get("connected", fd);
	close(fd);
	hear();
	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, port)));
	put(fd);
	tell(0);
	await(fd, POLLOUT, PATIENCE);
	get("set while under way", fd);
	close(fd);
	hear();
	fd = tcp(0);
	step("connect", go(fd, at(peer, port)));
	put(fd);
	get("set afterwards", fd);
	meet();
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	room(listening);
	close(accept(listening, NULL, NULL));
	close(filler);
	filler = fill(listening);
	tell(0);
	hear();
	room(listening);
	close(accept(listening, NULL, NULL));
	put(listening);
	/* The kernel copies them when a connection is made. */
	tell(0);
	int fd = accept(listening, NULL, NULL);
	get("accepted, set at the listener", fd);
	meet();
}

BEHAVIOUR(options);
