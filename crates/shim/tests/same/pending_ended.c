/* Connects that are shut down, dissolved or closed while under way. */
#include "same.h"

static void left(void)
{
	int port = hear(), fd = tcp(SOCK_NONBLOCK), ends[2];
	struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	char byte = 0;
	know(port, "listener");
	step("connect", go(fd, at(peer, port)));
	step("shutdown", shutdown(fd, SHUT_RDWR));
	say("events %s", events(await(fd, POLLIN | POLLOUT, 100)));
	say("SO_ERROR %s", named(so_error(fd)));
	step("connect", go(fd, at(peer, port)));
	close(fd);

	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, port)));
	step("dissolve", connect(fd, &nowhere, sizeof nowhere));
	say("SO_ERROR %s", named(so_error(fd)));
	say("events %s", events(await(fd, POLLIN | POLLOUT, 100)));
	say("%s", remote(fd));
	close(fd);

	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, port)));
	close(fd);
	if (pipe(ends))
		die("pipe");
	say("the number is used again: %d", ends[0] == fd);
	meet();
	hear();
	say("a pipe it stays: %d", write(ends[1], "a", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'a');
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	meet();
	room(listening);
	say("no connection: %s", events(await(listening, POLLIN, 1500)));
	blocking(listening, 0);
	step("accept", accept(listening, NULL, NULL));
	tell(0);
}

BEHAVIOUR(pending_ended);
