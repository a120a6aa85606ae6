/* One thread connects or accepts while another closes the number and uses it
 * again. */
#include "same.h"

static int port, fd;

static void *connects(void *argument)
{
	(void)argument;
	return (void *)(intptr_t)(go(fd, at(peer, port)) ? errno : 0);
}

static void left(void)
{
	pthread_t thread;
	int ends[2], bad = 0;
	port = hear();
	for (int i = 0; i < 60; i++) {
		fd = tcp(i % 2 ? SOCK_NONBLOCK : 0);
		pthread_create(&thread, NULL, connects, NULL);
		usleep(i * 100);
		int closed = fd;
		close(closed);
		if (pipe(ends))
			die("pipe");
		void *result;
		pthread_join(thread, &result);
		char byte = 0;
		bad += write(ends[1], "a", 1) != 1 || await(ends[0], POLLIN, 1000) != POLLIN || read(ends[0], &byte, 1) != 1 || byte != 'a';
		close(ends[0]);
		close(ends[1]);
	}
	say("pipes that are not: %d", bad);
	tell(0);
}

static void right(void)
{
	int listening = listener(any(), 100, 0);
	tell(port_of(listening));
	hear();
}

BEHAVIOUR(closing_race);
