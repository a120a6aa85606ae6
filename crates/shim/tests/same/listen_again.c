/* A server that is started anew on its port, its old connections about. */
#include "same.h"

enum { TIMES = 3 };

static void left(void)
{
	for (int i = 0; i < TIMES; i++) {
		int port = hear(), fd = tcp(0);
		step("connect", go(fd, at(peer, port)));
		talk("talk", fd);
		tell(0);
		hear();
		close(fd);
	}
	/* The client ends its connections first. */
	for (int i = 0; i < TIMES; i++) {
		int port = hear(), fd = tcp(0), given_up = tcp(SOCK_NONBLOCK);
		go(given_up, at(peer, port));
		close(given_up);
		step("connect", go(fd, at(peer, port)));
		talk("talk", fd);
		close(fd);
	}
}

/* Accepts, until a connection has data: others may have been given up. */
static int accept_one(int listening)
{
	for (;;) {
		int fd = accept(listening, NULL, NULL);
		char byte;
		if (fd < 0 || recv(fd, &byte, 1, MSG_PEEK) == 1)
			return fd;
		close(fd);
	}
}

/* Then its port is free at once, for whoever doesn't ask to share it. */
static void again(void)
{
	int port = 0;
	for (int i = 0; i < TIMES; i++) {
		struct sockaddr_in address = at(any(), port);
		int listening = tcp(0);
		step("bind without SO_REUSEADDR", bind(listening, (struct sockaddr *)&address, sizeof address));
		step("listen", listen(listening, 8));
		port = port_of(listening);
		tell(port);
		int fd = accept_one(listening);
		char byte;
		answer(fd);
		say("its end: %zd", recv(fd, &byte, 1, 0));
		close(fd);
		close(listening);
		/* The last segment is on its way. */
		pause_ms(PAUSE);
	}
}

static void right(void)
{
	int port = 0;
	for (int i = 0; i < TIMES; i++) {
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
	again();
}

BEHAVIOUR(listen_again);
