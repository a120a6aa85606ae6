/* Children that are made while a connect is under way, and the connect. */
#include "same.h"

static void ended(const char *what, pid_t child)
{
	int status = -1;
	waitpid(child, &status, 0);
	say("%s: status %x", what, status);
}

static void one(int port, const char *what, int way)
{
	int fd = tcp(SOCK_NONBLOCK | (way == 3 ? SOCK_CLOEXEC : 0));
	say("-- %s", what);
	step("connect", go(fd, at(peer, port)));
	pid_t child = way == 0 || way == 3 ? fork() : vfork();
	if (!child) {
		if (way == 0)
			_exit(!(await(fd, POLLOUT, PATIENCE) == POLLOUT && so_error(fd) == 0));
		if (way == 1)
			_exit(close(fd));
		if (way == 2) {
			dup2(0, fd);
			close(150);
		}
		execlp("true", "true", NULL);
		_exit(127);
	}
	if (way)
		ended("child", child);
	pause_ms(50);
	tell(0);
	if (!way)
		ended("child", child);
	say("events %s, SO_ERROR %s", events(await(fd, POLLOUT, 4000)), named(so_error(fd)));
	talk("talk", fd);
	close(fd);
	hear();
}

static void left(void)
{
	int port = hear();
	one(port, "a child of fork waits, too", 0);
	one(port, "a child of vfork closes it", 1);
	one(port, "a child of vfork puts something in its place", 2);
	one(port, "a child of fork goes on as another program", 3);
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	for (int i = 0; i < 4; i++) {
		hear();
		room(listening);
		if (!await(listening, POLLIN, 4000)) {
			say("no connection");
			return;
		}
		int fd = accept(listening, NULL, NULL);
		answer(fd);
		close(fd);
		close(filler);
		filler = fill(listening);
		tell(0);
	}
}

BEHAVIOUR(children_pending);
