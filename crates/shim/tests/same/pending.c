/* What a socket says while its connect is under way. */
#include "same.h"

static void left(void)
{
	int port = hear(), fd = tcp(SOCK_NONBLOCK), epoll = epoll_create1(0), number = -1;
	char byte;
	fd_set sets[3];
	struct timeval soon = {.tv_usec = 20000};
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP}, got;
	know(port, "listener");
	step("connect", go(fd, at(peer, port)));
	step("again", go(fd, at(peer, port)));
	say("SO_ERROR %s", named(so_error(fd)));
	say("%s, %s", local(fd), remote(fd));
	say("events %s", events(await(fd, POLLIN | POLLOUT | POLLRDHUP, 20)));
	for (int i = 0; i < 3; i++) {
		FD_ZERO(&sets[i]);
		FD_SET(fd, &sets[i]);
	}
	say("select %d", select(fd + 1, &sets[0], &sets[1], &sets[2], &soon));
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	say("epoll %d", epoll_wait(epoll, &got, 1, 20));
	step("send", send(fd, "x", 1, MSG_NOSIGNAL));
	step("recv", recv(fd, &byte, 1, 0));
	step("FIONREAD", ioctl(fd, FIONREAD, &number));
	say("%d bytes to read", number);
	step("listen", listen(fd, 1));
	struct sockaddr_in address = any();
	step("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
	step("accept", accept(fd, NULL, NULL));
	tell(0);
	int n = epoll_wait(epoll, &got, 1, PATIENCE);
	say("then epoll %d, %s", n, events(got.events));
	say("SO_ERROR %s", named(so_error(fd)));
	talk("talk", fd);
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	hear();
	room(listening);
	answer(accept(listening, NULL, NULL));
}

BEHAVIOUR(pending);
