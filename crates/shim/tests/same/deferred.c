/* A listener with TCP_DEFER_ACCEPT: a connection is there to accept once it has data, or has
 * ended. */
#include "same.h"

static void left(void)
{
	for (int round = 0; round < 3; round++) {
		int port = hear(), fd = tcp(round == 2 ? SOCK_NONBLOCK : 0);
		know(port, "listener");
		int result = go(fd, at(peer, port));
		say("connect: %s", result == 0 || errno == EINPROGRESS ? "starts" : named(errno));
		say("events %s", events(await(fd, POLLOUT, PATIENCE)));
		tell(0);
		hear();
		if (round == 1)
			shutdown(fd, SHUT_WR);
		else
			talk("talks", fd);
		tell(0);
		hear();
		close(fd);
	}
}

static void right(void)
{
	char byte;
	int listening = tcp(0);
	struct sockaddr_in address = any();
	set(listening, IPPROTO_TCP, TCP_DEFER_ACCEPT, 30);
	if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 8))
		die("listen");
	know(port_of(listening), "listener");
	for (int round = 0; round < 3; round++) {
		tell(port_of(listening));
		hear();
		say("before data: %s", events(await(listening, POLLIN, PAUSE)));
		tell(0);
		say("with data: %s", events(await(listening, POLLIN, PATIENCE)));
		int fd = accept(listening, NULL, NULL);
		say("%s, %s", local(fd), remote(fd));
		if (round == 1)
			say("its end: %zd", recv(fd, &byte, 1, 0));
		else
			answer(fd);
		hear();
		tell(0);
		close(fd);
	}
}

BEHAVIOUR(deferred);
