/* A connect that waits, and the names and flags around it. */
#include "same.h"

static void left(void)
{
	int port = hear(), fd = tcp(0);
	know(port, "listener");
	say("fresh: %s, %s", local(fd), remote(fd));
	step("connect", go(fd, at(peer, port)));
	say("connected: %s, %s", local(fd), remote(fd));
	talk("talk", fd);
	step("again", go(fd, at(peer, port)));
	say("flags %o, descriptor flags %o", fcntl(fd, F_GETFL) & O_NONBLOCK, fcntl(fd, F_GETFD));
	say("events %s", events(await(fd, POLLIN | POLLOUT | POLLRDHUP, PAUSE)));
	say("SO_ERROR %s, type %d, domain %d, protocol %d", named(so_error(fd)), option(fd, SOL_SOCKET, SO_TYPE),
	    option(fd, SOL_SOCKET, SO_DOMAIN), option(fd, SOL_SOCKET, SO_PROTOCOL));
	close(fd);

	fd = tcp(SOCK_CLOEXEC);
	step("close-on-exec", go(fd, at(peer, port)));
	say("descriptor flags %o", fcntl(fd, F_GETFD));
	meet();
}

static void right(void)
{
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	int fd = accept(listening, NULL, NULL);
	say("accepted: %s, %s", local(fd), remote(fd));
	answer(fd);
	meet();
}

BEHAVIOUR(connect_waits);
