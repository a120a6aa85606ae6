/* Threads that sleep on a socket from before its connection to after it. */
#include "same.h"

static int fd, wanted;

static void *sleeps(void *argument)
{
	(void)argument;
	return (void *)(intptr_t)await(fd, wanted, 4000);
}

static void one(int port, const char *what, int events_wanted)
{
	pthread_t thread;
	void *got;
	fd = tcp(SOCK_NONBLOCK);
	wanted = events_wanted;
	step("connect", go(fd, at(peer, port)));
	pthread_create(&thread, NULL, sleeps, NULL);
	pause_ms(50);
	tell(0);
	pthread_join(thread, &got);
	say("%s: %s", what, events((intptr_t)got));
	close(fd);
	meet();
}

static void left(void)
{
	int port = hear();
	one(port, "for output", POLLOUT);
	one(port, "for either", POLLIN | POLLOUT);
	one(port, "for input", POLLIN);
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	for (int i = 0; i < 3; i++) {
		hear();
		room(listening);
		int connection = accept(listening, NULL, NULL);
		if (i == 2) {
			pause_ms(PAUSE);
			send(connection, "x", 1, MSG_NOSIGNAL);
			char byte;
			recv(connection, &byte, 1, 0);
		}
		close(filler);
		filler = fill(listening);
		meet();
		close(connection);
	}
}

BEHAVIOUR(sleeper);
