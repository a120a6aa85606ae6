/* One socket under two numbers in two epoll instances. */
#include "same.h"

static void left(void)
{
	int port = hear();
	for (int flags = 0; flags <= SOCK_NONBLOCK; flags += SOCK_NONBLOCK) {
		int fd = tcp(flags), copy = dup(fd), one = epoll_create1(0), two = epoll_create1(EPOLL_CLOEXEC);
		struct epoll_event first = {.events = EPOLLIN, .data.u64 = 1}, second = {.events = EPOLLOUT, .data.u64 = 2};
		struct epoll_event got[4] = {0};
		epoll_ctl(one, EPOLL_CTL_ADD, fd, &first);
		epoll_ctl(one, EPOLL_CTL_ADD, copy, &second);
		epoll_ctl(two, EPOLL_CTL_ADD, copy, &first);
		step("connect", go(fd, at(peer, port)));
		await(copy, POLLOUT, PATIENCE);
		int n = epoll_wait(one, got, 4, 100);
		say("first %d: data %d %s", n, (int)got[0].data.u64, events(got[0].events));
		say("second %d", epoll_wait(two, got, 4, 20));
		talk("talk", copy);
		tell(0);
		await(fd, POLLIN, PATIENCE);
		n = epoll_wait(two, got, 4, PATIENCE);
		say("second %d: %s", n, events(got[0].events));
		close(fd);
		say("one number closed: first %d", epoll_wait(one, got, 4, 20));
		close(copy);
		say("both closed: first %d, second %d", epoll_wait(one, got, 4, 20), epoll_wait(two, got, 4, 20));
		close(one);
		close(two);
	}
}

static void right(void)
{
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	for (int i = 0; i < 2; i++) {
		int fd = accept(listening, NULL, NULL);
		answer(fd);
		hear();
		send(fd, "x", 1, MSG_NOSIGNAL);
		char byte;
		recv(fd, &byte, 1, 0);
		close(fd);
	}
}

BEHAVIOUR(epoll_copies);
