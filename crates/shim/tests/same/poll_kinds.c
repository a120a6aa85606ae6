/* poll and select from before a connect to after its end. */
#include "same.h"

static void look(const char *when, int fd)
{
	fd_set sets[3];
	struct timeval soon = {.tv_usec = 1000};
	for (int i = 0; i < 3; i++) {
		FD_ZERO(&sets[i]);
		FD_SET(fd, &sets[i]);
	}
	int n = select(fd + 1, &sets[0], &sets[1], &sets[2], &soon);
	say("%s: %s; select %d%s%s%s", when, events(await(fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 1)), n,
	    n > 0 && FD_ISSET(fd, &sets[0]) ? " read" : "", n > 0 && FD_ISSET(fd, &sets[1]) ? " write" : "",
	    n > 0 && FD_ISSET(fd, &sets[2]) ? " except" : "");
}

static void left(void)
{
	int port = hear(), fd = tcp(SOCK_NONBLOCK);
	char byte;
	look("fresh", fd);
	step("connect", go(fd, at(peer, port)));
	look("pending", fd);
	tell(0);
	say("events %s", events(await(fd, POLLIN | POLLOUT | POLLRDHUP, PATIENCE)));
	look("connected", fd);
	tell(0);
	say("events %s", events(await(fd, POLLIN, PATIENCE)));
	look("readable", fd);
	recv(fd, &byte, 1, 0);
	look("read", fd);
	tell(0);
	say("events %s", events(await(fd, POLLIN | POLLRDHUP, PATIENCE)));
	look("the other end shut down", fd);
	shutdown(fd, SHUT_WR);
	hear();
	say("events %s", events(await(fd, POLLHUP, PATIENCE)));
	look("both shut down", fd);
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	char byte;
	tell(port_of(listening));
	hear();
	room(listening);
	int fd = accept(listening, NULL, NULL);
	hear();
	send(fd, "x", 1, MSG_NOSIGNAL);
	hear();
	shutdown(fd, SHUT_WR);
	say("its end: %zd", recv(fd, &byte, 1, 0));
	tell(0);
	close(fd);
}

BEHAVIOUR(poll_kinds);
