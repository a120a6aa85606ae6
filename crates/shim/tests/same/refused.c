/* Nobody listens. */
#include "same.h"

static void asked(const char *how, int port, int way)
{
	int fd = tcp(SOCK_NONBLOCK), first = go(fd, at(peer, port)) ? errno : 0;
	char byte;
	say("%s: %s, then %s", how, named(first), events(await(fd, POLLIN | POLLOUT | POLLRDHUP, PATIENCE)));
	if (way == 0)
		say("SO_ERROR %s", named(so_error(fd)));
	else if (way == 1)
		step("connect", go(fd, at(peer, port)));
	else if (way == 2)
		step("send", send(fd, "x", 1, MSG_NOSIGNAL));
	else
		step("recv", recv(fd, &byte, 1, 0));
	say("SO_ERROR %s, events %s, %s", named(so_error(fd)), events(await(fd, POLLIN | POLLOUT, 0)), remote(fd));
	close(fd);
}

static void left(void)
{
	int closed = hear(), open = hear(), fd = tcp(0);
	know(open, "listener");
	step("connect", go(fd, at(peer, closed)));
	say("SO_ERROR %s, %s", named(so_error(fd)), remote(fd));
	step("the same socket elsewhere", go(fd, at(peer, open)));
	say("%s, %s", local(fd), remote(fd));
	close(fd);
	asked("by SO_ERROR", closed, 0);
	asked("by connect", closed, 1);
	asked("by send", closed, 2);
	asked("by recv", closed, 3);
	fd = tcp(SOCK_NONBLOCK);
	go(fd, at(peer, closed));
	await(fd, POLLOUT, PATIENCE);
	step("error fetched by connect", go(fd, at(peer, open)));
	step("then connect", go(fd, at(peer, open)));
	say("events %s, SO_ERROR %s", events(await(fd, POLLOUT, PATIENCE)), named(so_error(fd)));
	meet();
}

static void right(void)
{
	int fd = tcp(0);
	struct sockaddr_in address = any();
	/* Bound and not listening: nobody else gets the port. */
	if (bind(fd, (struct sockaddr *)&address, sizeof address))
		die("bind");
	tell(port_of(fd));
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	meet();
}

BEHAVIOUR(refused);
