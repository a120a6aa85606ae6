/* A server that is started anew on its port, its old connections about. */
#include "same.h"

static void left(void)
{
	for (int i = 0; i < 3; i++) {
		int port = hear(), fd = tcp(0);
		step("connect", go(fd, at(peer, port)));
		talk("talk", fd);
		tell(0);
		hear();
		close(fd);
	}
}

static void right(void)
{
	int port = 0;
	for (int i = 0; i < 3; i++) {
		struct sockaddr_in address = at(any(), port);
		int listening = tcp(0);
		set(listening, SOL_SOCKET, SO_REUSEADDR, 1);
		step("bind", bind(listening, (struct sockaddr *)&address, sizeof address));
		step("listen", listen(listening, 4));
		port = port_of(listening);
		tell(port);
		int fd = accept(listening, NULL, NULL);
		say("SO_REUSEADDR %d", option(fd, SOL_SOCKET, SO_REUSEADDR));
		answer(fd);
		hear();
		/* The server ends its connection first. */
		close(fd);
		close(listening);
		tell(0);
	}
}

BEHAVIOUR(listen_again);
