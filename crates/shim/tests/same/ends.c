/* How connections end: in halves, in order, by resets, before accept. */
#include "same.h"

static void drain(const char *what, int fd)
{
	char bytes[64];
	ssize_t n;
	int total = 0;
	while ((n = await(fd, POLLIN, PATIENCE) ? recv(fd, bytes, sizeof bytes, 0) : -2) > 0)
		total += n;
	say("%s: %d bytes, then %s", what, total, n == 0 ? "the end" : n == -2 ? "nothing" : named(errno));
}

static void left(void)
{
	struct linger hard = {.l_onoff = 1};
	signal(SIGPIPE, SIG_IGN);
	int fd = left_end(0);
	say("-- half-close");
	step("send", send(fd, "abc", 3, 0));
	step("shutdown", shutdown(fd, SHUT_WR));
	step("send after it", send(fd, "d", 1, 0));
	drain("from there", fd);
	close(fd);

	say("-- reset by SO_LINGER");
	fd = left_end(0);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
	hear();
	close(fd);

	say("-- reset by unread data");
	fd = left_end(0);
	hear();
	await(fd, POLLIN, PATIENCE);
	close(fd);

	say("-- writing to what is closed");
	fd = left_end(0);
	hear();
	say("events %s", events(await(fd, POLLIN | POLLRDHUP, PATIENCE)));
	step("send", send(fd, "a", 1, 0));
	pause_ms(PAUSE);
	say("events %s", events(await(fd, POLLIN | POLLOUT | POLLRDHUP, PATIENCE)));
	step("send", send(fd, "a", 1, 0));
	close(fd);

	say("-- before accept");
	int port = hear();
	for (int i = 0; i < 3; i++) {
		fd = tcp(0);
		step("connect", go(fd, at(peer, port)));
		if (i == 1)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
		if (i != 1)
			send(fd, "abc", 3, 0);
		if (i < 2)
			close(fd);
	}
	tell(0);
	hear();
	drain("the listener is closed", fd);
}

static void right(void)
{
	int fd = right_end();
	drain("half-close", fd);
	step("send", send(fd, "xyz", 3, MSG_NOSIGNAL));
	close(fd);

	fd = right_end();
	tell(0);
	say("events %s", events(await(fd, POLLIN | POLLRDHUP, PATIENCE)));
	drain("SO_LINGER", fd);
	drain("again", fd);
	step("send", send(fd, "a", 1, MSG_NOSIGNAL));
	close(fd);

	fd = right_end();
	send(fd, "unread", 6, MSG_NOSIGNAL);
	tell(0);
	drain("unread", fd);
	close(fd);

	fd = right_end();
	close(fd);
	tell(0);

	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	hear();
	pause_ms(PAUSE);
	for (int i = 0; i < 2; i++) {
		fd = accept(listening, NULL, NULL);
		drain(i ? "reset before accept" : "closed before accept", fd);
		close(fd);
	}
	close(listening);
	tell(0);
}

BEHAVIOUR(ends);
