/* dup, dup2, dup3 and fcntl of sockets, before, during and after a connect. */
#include "same.h"

static void left(void)
{
	int port = hear(), fd = tcp(0), copy = dup(fd);
	know(port, "listener");
	step("connect", go(fd, at(peer, port)));
	say("copy made before: %s", remote(copy));
	talk("talk", copy);
	close(fd);
	talk("talk, the first closed", copy);
	close(copy);

	hear();
	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, port)));
	copy = dup2(fd, 150);
	int third = dup3(fd, 151, O_CLOEXEC), fourth = fcntl(fd, F_DUPFD, 152), fifth = fcntl(fd, F_DUPFD_CLOEXEC, 160);
	say("numbers %d %d %d %d", copy, third, fourth, fifth);
	step("the same number", dup2(fd, fd));
	step("dup3 to itself", dup3(fd, fd, 0));
	step("no descriptor", dup2(-1, 170));
	step("set flags", fcntl(fourth, F_SETFD, FD_CLOEXEC));
	close(fd);
	close(fifth);
	tell(0);
	say("events %s", events(await(third, POLLOUT, PATIENCE)));
	say("%s, %s", remote(copy), remote(fourth));
	say("descriptor flags %o %o %o, non-blocking %d", fcntl(copy, F_GETFD), fcntl(third, F_GETFD), fcntl(fourth, F_GETFD),
	    !!(fcntl(copy, F_GETFL) & O_NONBLOCK));
	talk("talk", fourth);
	step("closed", fcntl(fd, F_GETFD));
	close(third);
	close(fourth);

	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, port)));
	int other = socket(AF_UNIX, SOCK_STREAM, 0);
	step("something else in its place", dup2(other, fd));
	say("family %d", option(fd, SOL_SOCKET, SO_DOMAIN));
	pause_ms(PAUSE);
	say("family %d", option(fd, SOL_SOCKET, SO_DOMAIN));
	close(copy);
	tell(0);
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	room(listening);
	int fd = accept(listening, NULL, NULL);
	answer(fd);
	answer(fd);
	close(filler);
	filler = fill(listening);
	tell(0);
	hear();
	room(listening);
	fd = accept(listening, NULL, NULL);
	answer(fd);
	hear();
}

BEHAVIOUR(copies);
