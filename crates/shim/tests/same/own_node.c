/* Connections of a node to itself, by each of its names. */
#include "same.h"

static void one(const char *what, struct sockaddr_in target, int flags)
{
	int listening = listener(any(), 4, 0), fd = tcp(flags);
	struct sockaddr_storage from;
	socklen_t len = sizeof from;
	target.sin_port = htons(port_of(listening));
	int result = go(fd, target);
	say("%s: %s", what, result == 0 || errno == EINPROGRESS ? "starts" : named(errno));
	int accepted = accept(listening, (struct sockaddr *)&from, &len);
	say("events %s", events(await(fd, POLLOUT, PATIENCE)));
	/* By port_of(fd) both sides name the same. */
	know(port_of(fd), what);
	say("%s, %s", local(fd), remote(fd));
	say("accept %s; %s, %s", who(&from, len), local(accepted), remote(accepted));
	close(fd);
	close(accepted);
	close(listening);
	fd = tcp(0);
	step("refused", go(fd, target));
	close(fd);
}

/* By an address of the node's interfaces, to a listener on any address and to one on this. */
static void by_interface(int flags)
{
	for (int i = 0; i < 2; i++) {
		int listening = listener(i ? interface() : any(), 4, 0), fd = tcp(flags);
		int result = go(fd, at(interface(), port_of(listening)));
		say("by interface: %s", result == 0 || errno == EINPROGRESS ? "starts" : named(errno));
		say("events %s", events(await(fd, POLLOUT, PATIENCE)));
		int accepted = accept(listening, NULL, NULL);
		say("accept %s", accepted < 0 ? named(errno) : "ok");
		close(fd);
		close(accepted);
		close(listening);
	}
}

static void left(void)
{
	struct sockaddr_in loopback = any();
	loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	one("own", own, 0);
	one("own, not waiting", own, SOCK_NONBLOCK);
	one("loopback", loopback, 0);
	by_interface(0);
	by_interface(SOCK_NONBLOCK);
	int listening = listener(own, 4, 0), fd = tcp(0);
	step("listener on own, own", go(fd, at(own, port_of(listening))));
	close(fd);
	fd = tcp(0);
	step("listener on own, loopback", go(fd, at(loopback, port_of(listening))));
}

static void right(void)
{
}

BEHAVIOUR(own_node);
