/* The owner of a socket, who gets a signal when its connect is done, and when bytes come. */
#include "same.h"

static int number;

/* Waits for a signal of a descriptor, and forgets further ones. */
static void signalled(const char *what, int fd)
{
	struct timespec patience = {.tv_sec = PATIENCE / 1000}, none = {0};
	siginfo_t info = {0};
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, number);
	int came = sigtimedwait(&set, &info, &patience);
	say("%s: %s, of it: %d", what, came == number ? "signalled" : "nothing", info.si_fd == fd);
	while (sigtimedwait(&set, &info, &none) == number)
		;
}

static int owned(int owner)
{
	int fd = tcp(SOCK_NONBLOCK);
	step("F_SETSIG", fcntl(fd, F_SETSIG, number));
	step("F_SETOWN", fcntl(fd, F_SETOWN, owner));
	return fd;
}

static void show(int fd)
{
	struct f_owner_ex owner = {.type = -1};
	fcntl(fd, F_GETOWN_EX, &owner);
	const char *who = owner.pid == getpid() ? "process" : owner.pid == getpgrp() ? "group" : "none";
	say("owner %d %s, signal %d, O_ASYNC %d", owner.type, who, fcntl(fd, F_GETSIG) == number, !!(fcntl(fd, F_GETFL) & O_ASYNC));
}

static void left(void)
{
	int port = hear(), fd;
	sigset_t set;
	number = SIGRTMIN + 1;
	know(port, "listener");
	sigemptyset(&set);
	sigaddset(&set, number);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = owned(getpid());
	fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC);
	step("connect", go(fd, at(peer, port)));
	signalled("connected", fd);
	say("events %s, error %s", events(await(fd, POLLOUT, PATIENCE)), named(so_error(fd)));
	show(fd);
	send(fd, "?", 1, MSG_NOSIGNAL);
	signalled("answered", fd);
	close(fd);
	fd = owned(getpid());
	fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC);
	step("connect", go(fd, at(peer, 1)));
	signalled("refused", fd);
	say("error %s", named(so_error(fd)));
	close(fd);
	/* A group's other processes would be signalled, too. */
	fd = owned(-getpgrp());
	step("connect", go(fd, at(peer, port)));
	await(fd, POLLOUT, PATIENCE);
	show(fd);
	close(fd);
}

static void right(void)
{
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	int fd = accept(listening, NULL, NULL);
	show(fd);
	answer(fd);
	close(accept(listening, NULL, NULL));
	close(fd);
}

BEHAVIOUR(owner);
