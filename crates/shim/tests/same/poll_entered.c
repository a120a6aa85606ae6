/* poll and select that are entered in the moment in which a connect is done, and dup and epoll_ctl of
 * another thread in that moment: none of them sleeps over it. */
#include "same.h"

enum { TIMES = 500, SLEEPY = 3000 };

static void spin(double milliseconds)
{
	for (double until = now_ms() + milliseconds; now_ms() < until;)
		;
}

static int selected(int fd)
{
	struct timeval limit = {SLEEPY / 1000, 0};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, NULL, &set, NULL, &limit) == 1;
}

static int watched(int fd)
{
	struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd}, got;
	int copy = dup(fd), epoll = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(epoll, EPOLL_CTL_ADD, copy, &event);
	int came = epoll_wait(epoll, &got, 1, SLEEPY) == 1;
	close(epoll);
	close(copy);
	return came;
}

static void left(void)
{
	int port = hear(), late[3] = {0};
	double usual = 1;
	for (int i = 0; i < TIMES; i++) {
		int fd = tcp(SOCK_NONBLOCK);
		double start = now_ms();
		if (go(fd, at(peer, port)) && errno != EINPROGRESS)
			die("connect");
		/* Every fourth one tells how long it takes; the others sleep at about its end. */
		if (i % 4)
			spin(usual * (0.7 + (i * 37 % 100) / 160.0));
		int way = i % 3, came = way == 0 ? await(fd, POLLOUT, SLEEPY) != 0 : way == 1 ? selected(fd) : watched(fd);
		if (i % 4 == 0)
			usual = now_ms() - start;
		late[way] += !came;
		close(fd);
	}
	say("too late by poll %d, by select %d, by epoll %d", late[0], late[1], late[2]);
	tell(0);
}

static void *accepts(void *listening)
{
	for (;;)
		close(accept(*(int *)listening, NULL, NULL));
	return NULL;
}

static void right(void)
{
	int listening = listener(any(), 128, 0);
	pthread_t thread;
	pthread_create(&thread, NULL, accepts, &listening);
	tell(port_of(listening));
	hear();
}

BEHAVIOUR(poll_entered);
