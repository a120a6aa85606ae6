/* Sockets that children inherit: connected, listening, over fork and exec,
 * posix_spawn and vfork. */
#include "same.h"
#include <spawn.h>

extern char **environ;

static void finished(const char *what, pid_t child)
{
	int status = -1;
	waitpid(child, &status, 0);
	say("%s: status %x", what, status);
}

/* A connected socket, or a listener to accept at. */
static void again(char **arguments)
{
	int fd = atoi(arguments[1]);
	if (!strcmp(arguments[0], "listener")) {
		fd = accept(fd, NULL, NULL);
		say("child accepts: %d", fd >= 0);
		answer(fd);
	} else {
		talk("child talks", fd);
	}
	/* Only whose: what know() was told is not inherited. */
	say("child: %.4s, %.4s", local(fd), remote(fd));
}

static pid_t forked(const char *what, int fd, int way)
{
	char number[16], a[INET_ADDRSTRLEN], b[INET_ADDRSTRLEN];
	snprintf(number, sizeof number, "%d", fd);
	inet_ntop(AF_INET, &own.sin_addr, a, sizeof a);
	inet_ntop(AF_INET, &peer.sin_addr, b, sizeof b);
	char *arguments[] = {"same", "children", "again", "-", a, b, (char *)own_name, (char *)peer_name, (char *)what, number, NULL};
	pid_t child = -1;
	if (way == 0) {
		child = fork();
		if (!child) {
			again(arguments + 8);
			_exit(0);
		}
	} else if (way == 1) {
		child = fork();
		if (!child)
			run_again(what, fd);
	} else if (way == 2) {
		posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
	} else {
		child = vfork();
		if (!child) {
			execv("/proc/self/exe", arguments);
			_exit(127);
		}
	}
	return child;
}

static const char *const ways[] = {"fork", "fork and exec", "posix_spawn", "vfork and exec"};

static void left(void)
{
	int port = hear();
	for (int way = 0; way < 4; way++) {
		int fd = tcp(0);
		know(port, "listener");
		step("connect", go(fd, at(peer, port)));
		finished(ways[way], forked("connected", fd, way));
		talk("parent talks", fd);
		tell(0);
		close(fd);
		hear();
		fd = tcp(SOCK_NONBLOCK);
		step("connect", go(fd, at(peer, port)));
		await(fd, POLLOUT, PATIENCE);
		talk("talk to the other's child", fd);
		tell(0);
		close(fd);
	}
}

static void right(void)
{
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	for (int way = 0; way < 4; way++) {
		int fd = accept(listening, NULL, NULL);
		answer(fd);
		answer(fd);
		hear();
		close(fd);
		tell(0);
		pid_t child = forked("listener", listening, way);
		hear();
		finished(ways[way], child);
	}
}

BEHAVIOUR_WITH(children, again);
