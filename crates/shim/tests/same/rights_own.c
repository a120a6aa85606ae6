/* Sockets that a program passes to itself, as between its threads, while a connect is
 * under way. */
#include "same.h"
#include <sys/syscall.h>

static void left(void)
{
	int port = hear(), open = hear(), ways[2], fd, copy, other, got;
	know(port, "listener");
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ways))
		die("socketpair");
	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, port)));
	give(ways[0], fd);
	got = take(ways[1]);
	tell(0);
	say("events %s", events(await(got, POLLOUT, PATIENCE)));
	say("%s, %s", remote(fd), remote(got));
	talk("talk", got);
	close(fd);
	close(got);

	hear();
	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, port)));
	give(ways[0], fd);
	close(fd);
	got = take(ways[1]);
	tell(0);
	say("closed before: events %s", events(await(got, POLLOUT, PATIENCE)));
	say("%s", remote(got));
	talk("talk", got);
	close(got);

	hear();
	fd = tcp(SOCK_NONBLOCK);
	copy = dup(fd);
	other = tcp(SOCK_NONBLOCK);
	step("connect", go(copy, at(peer, port)));
	give(ways[0], other);
	close(other);
	/* Not by the C library's close, as fclose does it. */
	syscall(SYS_close, fd);
	got = take(ways[1]);
	say("the number is used again: %d", got == fd);
	step("connect the other", go(got, at(peer, open)));
	tell(0);
	say("events %s, %s", events(await(copy, POLLOUT, PATIENCE)), events(await(got, POLLOUT, PATIENCE)));
	talk("talk", copy);
	talk("talk", got);
	hear();
}

static void answers(int listening)
{
	int fd = accept(listening, NULL, NULL);
	answer(fd);
	close(fd);
}

static void right(void)
{
	int filler, listening = full_listener(&filler), open = listener(any(), 8, 0);
	tell(port_of(listening));
	tell(port_of(open));
	for (int i = 0; i < 3; i++) {
		hear();
		room(listening);
		answers(listening);
		if (i == 2)
			answers(open);
		close(filler);
		filler = fill(listening);
		tell(0);
	}
}

BEHAVIOUR(rights_own);
