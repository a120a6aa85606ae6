/* Calls that succeed leave errno alone. */
#include "same.h"

static void kept(const char *what, int result)
{
	if (result < 0 || errno != 4711)
		say("%s: result %d, errno %d", what, result, errno);
	errno = 4711;
}

static void left(void)
{
	int port = hear(), fd = tcp(0), epoll = epoll_create1(0), value = 1;
	struct sockaddr_in address = own;
	struct sockaddr_storage name;
	struct epoll_event event = {.events = EPOLLIN};
	socklen_t len = sizeof name;
	errno = 4711;
	kept("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	kept("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
	kept("connect", go(fd, at(peer, port)));
	kept("getpeername", getpeername(fd, (struct sockaddr *)&name, &len));
	len = sizeof name;
	kept("getsockname", getsockname(fd, (struct sockaddr *)&name, &len));
	len = sizeof value;
	kept("getsockopt", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len));
	value = 1;
	kept("setsockopt", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
	kept("dup", dup(fd));
	kept("dup2", dup2(fd, 150));
	kept("fcntl", fcntl(fd, F_GETFL));
	kept("close", close(150));
	int pending = tcp(SOCK_NONBLOCK);
	go(pending, at(peer, port));
	errno = 4711;
	kept("while under way: dup", dup(fd));
	kept("dup2", dup2(fd, 150));
	kept("fcntl", fcntl(fd, F_SETFL, 0));
	kept("setsockopt", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
	kept("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
	kept("close", close(150));
	kept("ioctl", ioctl(fd, FIONBIO, &value));
	tell(0);
	say("SO_ERROR %s", named((await(pending, POLLOUT, PATIENCE), so_error(pending))));
	tell(0);
}

static void right(void)
{
	struct sockaddr_in address = own;
	struct sockaddr_storage name;
	socklen_t len = sizeof name;
	int listening = tcp(0);
	errno = 4711;
	kept("bind", bind(listening, (struct sockaddr *)&address, sizeof address));
	kept("listen", listen(listening, 8));
	kept("getsockname", getsockname(listening, (struct sockaddr *)&name, &len));
	tell(port_of(listening));
	len = sizeof name;
	kept("accept", accept(listening, (struct sockaddr *)&name, &len));
	hear();
	kept("accept4", accept4(listening, NULL, NULL, SOCK_CLOEXEC));
	hear();
}

BEHAVIOUR(errno_kept);
