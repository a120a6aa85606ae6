/* A program that inherits a socket, over exec, whose connect is under way. */
#include "same.h"

static void again(char **arguments)
{
	int fd = atoi(arguments[1]);
	say("events %s", events(await(fd, POLLOUT, 4000)));
	say("SO_ERROR %s", named(so_error(fd)));
	say("connected %d", remote(fd)[0] == 'P');
}

static void left(void)
{
	int port = hear(), fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, port)));
	tell(0);
	run_again("pending", fd);
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	hear();
	pause_ms(PAUSE);
	room(listening);
	pause_ms(4000);
}

BEHAVIOUR_WITH(exec_pending, again);
