/* Nobody answers: limits that a program sets. */
#include "same.h"

static void left(void)
{
	int port = hear(), fd = tcp(0);
	struct timeval limit = {.tv_usec = 300000};
	double before = now_ms();
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	step("SO_SNDTIMEO: connect", go(fd, at(peer, port)));
	say("in time: %d", now_ms() - before >= 295 && now_ms() - before < 2000);
	step("again", go(fd, at(peer, port)));
	say("blocking still: %d", !(fcntl(fd, F_GETFL) & O_NONBLOCK));
	say("events %s", events(await(fd, POLLIN | POLLOUT, 20)));
	close(fd);

	fd = tcp(SOCK_NONBLOCK);
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1200);
	before = now_ms();
	step("TCP_USER_TIMEOUT: connect", go(fd, at(peer, port)));
	say("events %s", events(await(fd, POLLOUT, PATIENCE)));
	say("in time: %d", now_ms() - before > 900 && now_ms() - before < 5000);
	say("SO_ERROR %s", named(so_error(fd)));
	close(fd);

	fd = tcp(0);
	set(fd, IPPROTO_TCP, TCP_SYNCNT, 1);
	before = now_ms();
	step("TCP_SYNCNT: connect", go(fd, at(peer, port)));
	say("in time: %d", now_ms() - before > 900 && now_ms() - before < 5000);
	tell(0);
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	hear();
}

BEHAVIOUR(timed_out);
