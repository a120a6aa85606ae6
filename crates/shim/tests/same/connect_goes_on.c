/* A connect that doesn't wait. */
#include "same.h"

static void left(void)
{
	int port = hear(), fd = tcp(SOCK_NONBLOCK);
	know(port, "listener");
	step("connect", go(fd, at(peer, port)));
	say("events %s", events(await(fd, POLLOUT, PATIENCE)));
	say("SO_ERROR %s", named(so_error(fd)));
	say("%s, %s", local(fd), remote(fd));
	talk("talk", fd);
	step("again", go(fd, at(peer, port)));
	step("and again", go(fd, at(peer, port)));
	say("non-blocking %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
	close(fd);

	fd = tcp(SOCK_NONBLOCK);
	step("without asking SO_ERROR: connect", go(fd, at(peer, port)));
	blocking(fd, 1);
	step("made blocking: connect", go(fd, at(peer, port)));
	step("again", go(fd, at(peer, port)));
	meet();
}

static void right(void)
{
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	answer(accept(listening, NULL, NULL));
	meet();
}

BEHAVIOUR(connect_goes_on);
