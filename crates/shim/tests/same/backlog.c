/* More connects than a listener's queue has room for. */
#include "same.h"

enum { COUNT = 6 };

static void left(void)
{
	int port = hear(), fds[COUNT], up = 0;
	for (int i = 0; i < COUNT; i++) {
		fds[i] = tcp(SOCK_NONBLOCK);
		go(fds[i], at(peer, port));
		/* One after the other, so that the queue's order is theirs. */
		up += await(fds[i], POLLOUT, i < 3 ? PATIENCE : 100) == POLLOUT;
	}
	say("up: %d", up);
	tell(0);
	up = 0;
	for (int i = 0; i < COUNT; i++)
		up += await(fds[i], POLLOUT, PATIENCE) == POLLOUT && so_error(fds[i]) == 0;
	say("up: %d", up);
	tell(0);
}

static void right(void)
{
	int listening = listener(any(), 2, 0);
	tell(port_of(listening));
	hear();
	for (int i = 0; i < COUNT; i++)
		step("accept", accept(listening, NULL, NULL));
	hear();
}

BEHAVIOUR(backlog);
