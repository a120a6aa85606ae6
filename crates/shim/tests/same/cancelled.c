/* A thread cancelled in connect, and one in accept. */
#include "same.h"

static int port;

static void *connects(void *argument)
{
	go(*(int *)argument, at(peer, port));
	return NULL;
}

static void *accepts(void *argument)
{
	accept(*(int *)argument, NULL, NULL);
	return NULL;
}

static void cancel(const char *what, void *(*run)(void *), int fd)
{
	pthread_t thread;
	void *result = NULL;
	struct timespec until;
	pthread_create(&thread, NULL, run, &fd);
	pause_ms(PAUSE);
	pthread_cancel(thread);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 3;
	int error = pthread_timedjoin_np(thread, &result, &until);
	say("%s: %s, cancelled %d", what, named(error), result == PTHREAD_CANCELED);
}

static void left(void)
{
	port = hear();
	int fd = tcp(0);
	cancel("connect", connects, fd);
	blocking(fd, 0);
	step("goes on", go(fd, at(peer, port)));
	close(fd);
	say("the lowest number is free again: %d", dup(0) == fd);
	tell(0);
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	hear();
	cancel("accept", accepts, listener(any(), 1, 0));
}

BEHAVIOUR(cancelled);
