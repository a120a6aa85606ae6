/* Signals that come during a connect. */
#include "same.h"

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

static void *rain(void *argument)
{
	for (int i = 0; i < 5; i++) {
		pause_ms(100);
		pthread_kill(*(pthread_t *)argument, SIGUSR1);
	}
	return NULL;
}

static void left(void)
{
	pthread_t self = pthread_self(), other;
	int port = hear(), fd = tcp(0);
	know(port, "listener");
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&other, NULL, rain, &self);
	step("connect", go(fd, at(peer, port)));
	pthread_join(other, NULL);
	say("it goes on: %s, %s", events(await(fd, POLLIN | POLLOUT, 20)), remote(fd));
	blocking(fd, 0);
	step("again", go(fd, at(peer, port)));
	tell(0);
	say("then %s, SO_ERROR %s", events(await(fd, POLLOUT, PATIENCE)), named(so_error(fd)));
	say("%s, %s", local(fd), remote(fd));
	close(fd);

	hear();
	signals = 0;
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	fd = tcp(0);
	pthread_create(&other, NULL, rain, &self);
	tell(0);
	step("SA_RESTART: connect", go(fd, at(peer, port)));
	pthread_join(other, NULL);
	say("signals came: %d", signals > 0);
	say("%s, %s", local(fd), remote(fd));
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	hear();
	room(listening);
	int fd = accept(listening, NULL, NULL);
	close(filler);
	filler = tcp(0);
	step("filled again", go(filler, at(own, port_of(listening))));
	tell(0);
	hear();
	pause_ms(700);
	room(listening);
	close(fd);
	close(accept(listening, NULL, NULL));
}

BEHAVIOUR(interrupted);
