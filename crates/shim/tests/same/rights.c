/* Sockets passed to another process over a Unix socket. */
#include "same.h"

/* The child of a fork takes before the parent has the socket. */
static pid_t child(int *way, void (*run)(int fd))
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		die("socketpair");
	pid_t pid = fork();
	*way = ends[0];
	if (!pid) {
		close(ends[0]);
		run(take(ends[1]));
		_exit(0);
	}
	close(ends[1]);
	return pid;
}

static void talks(int fd)
{
	say("given: %.4s, %.4s", local(fd), remote(fd));
	talk("talk", fd);
}

static void accepts(int fd)
{
	say("given: %.4s", local(fd));
	fd = accept(fd, NULL, NULL);
	say("accepted: %.4s", remote(fd));
	answer(fd);
}

static void answers(int fd)
{
	say("given: %.4s", remote(fd));
	answer(fd);
}

static void left(void)
{
	int port = hear(), way, status;
	for (int flags = 0; flags <= SOCK_NONBLOCK; flags += SOCK_NONBLOCK) {
		pid_t pid = child(&way, talks);
		int fd = tcp(flags);
		go(fd, at(peer, port));
		await(fd, POLLOUT, PATIENCE);
		give(way, fd);
		close(fd);
		waitpid(pid, &status, 0);
	}
}

static void right(void)
{
	int way, status;
	pid_t first = child(&way, accepts);
	int listening = listener(any(), 8, 0);
	give(way, listening);
	tell(port_of(listening));
	waitpid(first, &status, 0);
	pid_t second = child(&way, answers);
	int fd = accept(listening, NULL, NULL);
	give(way, fd);
	close(fd);
	waitpid(second, &status, 0);
}

BEHAVIOUR(rights);
