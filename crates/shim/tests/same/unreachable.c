/* An address that nobody has, one of the peer's neighbours. */
#include "same.h"

static void left(void)
{
	struct sockaddr_in nobody = at(own, 9);
	nobody.sin_addr.s_addr = htonl((ntohl(own.sin_addr.s_addr) & ~63u) | 57);
	int fd = tcp(SOCK_NONBLOCK), waiting = tcp(0);
	step("connect", go(fd, nobody));
	step("a connect that waits", go(waiting, nobody));
	say("SO_ERROR %s", named(so_error(waiting)));
	say("events %s", events(await(fd, POLLOUT, PATIENCE)));
	say("SO_ERROR %s", named(so_error(fd)));
	say("SO_ERROR %s", named(so_error(fd)));
	close(fd);
	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, nobody));
	await(fd, POLLOUT, PATIENCE);
	step("by connect", go(fd, nobody));
	close(fd);
	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, nobody));
	await(fd, POLLOUT, PATIENCE);
	char byte;
	step("by recv", recv(fd, &byte, 1, 0));
}

static void right(void)
{
}

BEHAVIOUR(unreachable);
