/* Threads that wait in connect, and what others do to the socket meanwhile. */
#include "same.h"

static int port;

static void *connects(void *argument)
{
	return (void *)(intptr_t)(go((intptr_t)argument, at(peer, port)) ? errno : 0);
}

/* A thread that waits by the time that this returns. */
static pthread_t waits(int fd)
{
	pthread_t thread;
	pthread_create(&thread, NULL, connects, (void *)(intptr_t)fd);
	pause_ms(PAUSE);
	return thread;
}

static void ends(const char *what, pthread_t thread)
{
	void *result;
	pthread_join(thread, &result);
	say("%s: %s", what, named((intptr_t)result));
}

static void left(void)
{
	port = hear();
	know(port, "listener");
	int fd = tcp(0), copy = dup(fd);
	pthread_t first = waits(fd), second;
	close(fd);
	tell(0);
	ends("one of two numbers closed", first);
	say("%s", remote(copy));
	talk("talk", copy);
	close(copy);

	hear();
	fd = tcp(0);
	copy = dup(fd);
	first = waits(fd);
	second = waits(copy);
	blocking(fd, 0);
	step("a third one, without waiting", go(fd, at(peer, port)));
	blocking(fd, 1);
	tell(0);
	ends("first", first);
	ends("second", second);
	step("again", go(fd, at(peer, port)));
	talk("talk", fd);
	close(fd);
	close(copy);

	hear();
	fd = tcp(0);
	first = waits(fd);
	close(fd);
	tell(0);
	ends("closed", first);
	hear();
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	for (int i = 0; i < 3; i++) {
		char byte;
		hear();
		room(listening);
		int fd = accept(listening, NULL, NULL);
		if (i < 2)
			answer(fd);
		say("then %zd", recv(fd, &byte, 1, 0));
		close(fd);
		close(filler);
		filler = fill(listening);
		tell(0);
	}
}

BEHAVIOUR(waiters);
