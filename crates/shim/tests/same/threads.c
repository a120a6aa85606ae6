/* Threads that connect, accept and close at once. */
#include "same.h"

enum { THREADS = 8, EACH = 15 };

static int port, listening;

static void *connects(void *argument)
{
	intptr_t good = 0, flags = (intptr_t)argument % 2 ? SOCK_NONBLOCK : 0;
	for (int i = 0; i < EACH; i++) {
		int fd = tcp(flags);
		char byte = 0;
		go(fd, at(peer, port));
		int up = await(fd, POLLOUT, PATIENCE) == POLLOUT && so_error(fd) == 0;
		up = up && send(fd, "?", 1, MSG_NOSIGNAL) == 1 && await(fd, POLLIN, PATIENCE);
		good += up && recv(fd, &byte, 1, 0) == 1 && byte == '!';
		close(fd);
	}
	return (void *)good;
}

static void *gives_up(void *argument)
{
	(void)argument;
	for (int i = 0; i < EACH; i++) {
		int fd = tcp(SOCK_NONBLOCK);
		go(fd, at(peer, port));
		if (i % 3)
			usleep(i * 300);
		close(fd);
	}
	return NULL;
}

static void *accepts(void *argument)
{
	int asked = 0;
	(void)argument;
	for (;;) {
		int fd = accept(listening, NULL, NULL);
		char byte = 0;
		if (fd < 0)
			return (void *)(intptr_t)asked;
		if (await(fd, POLLIN, PATIENCE) && recv(fd, &byte, 1, 0) == 1 && byte == '?') {
			asked++;
			send(fd, "!", 1, MSG_NOSIGNAL);
		}
		close(fd);
	}
}

static int run(void *(*what)(void *), int count)
{
	pthread_t threads[THREADS];
	int total = 0;
	for (intptr_t i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, what, (void *)i);
	for (int i = 0; i < count; i++) {
		void *result;
		pthread_join(threads[i], &result);
		total += (intptr_t)result;
	}
	return total;
}

static void left(void)
{
	port = hear();
	say("%d connected", run(connects, THREADS));
	run(gives_up, THREADS / 2);
	say("%d connected", run(connects, THREADS));
	tell(0);
}

static void *stops(void *argument)
{
	(void)argument;
	hear();
	/* Wakes whoever is in accept. */
	shutdown(listening, SHUT_RDWR);
	return NULL;
}

static void right(void)
{
	pthread_t stopper;
	listening = listener(any(), 64, 0);
	tell(port_of(listening));
	pthread_create(&stopper, NULL, stops, NULL);
	say("%d asked", run(accepts, 4));
	pthread_join(stopper, NULL);
}

BEHAVIOUR(threads);
