/* Numbers of epoll instances, and of a socket in them, that are closed and used again
 * before the socket is connected. */
#include "same.h"
#include <sys/stat.h>

static int port;

static void put(int epoll, int operation, int fd, int data)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
	step("epoll_ctl", epoll_ctl(epoll, operation, fd, &event));
}

/* From here on there is something to read. */
static void up(int fd)
{
	step("connect", go(fd, at(peer, port)));
	await(fd, POLLOUT, PATIENCE);
	tell(0);
}

static void heard(const char *what, int epoll)
{
	struct epoll_event got[4] = {0};
	int n = epoll_wait(epoll, got, 4, PATIENCE);
	say("%s: %d, data %d %s", what, n, (int)got[0].data.u64, events(got[0].events));
}

static void instances(int flags)
{
	int fd = tcp(flags), first = epoll_create1(0), second, other;
	put(first, EPOLL_CTL_ADD, fd, 1);
	second = dup(first);
	close(first);
	up(fd);
	heard("an instance under another number", second);
	close(fd);
	close(second);

	for (int changed = 0; changed < 2; changed++) {
		fd = tcp(flags);
		first = epoll_create1(0);
		put(first, EPOLL_CTL_ADD, fd, 2);
		second = dup(first);
		if (changed) {
			put(second, EPOLL_CTL_MOD, fd, 3);
			put(first, EPOLL_CTL_MOD, fd, 4);
		}
		close(first);
		other = epoll_create1(0);
		say("the number is used again: %d", other == first);
		put(other, EPOLL_CTL_ADD, fd, 5);
		up(fd);
		heard("the first instance", second);
		heard("the second instance", other);
		close(second);
		close(other);
		close(fd);
	}
}

static void sockets(int flags)
{
	for (int use = 0; use < 2; use++) {
		int fd = tcp(flags), copy = dup(fd), epoll = epoll_create1(0), spare = -1;
		struct epoll_event got[4];
		struct stat stat = {0};
		put(epoll, EPOLL_CTL_ADD, copy, 6 + use);
		close(copy);
		if (use)
			spare = open("/dev/null", O_RDONLY);
		up(fd);
		heard(use ? "a number used again" : "a number closed", epoll);
		if (use)
			say("it stays what it is: %d", spare == copy && !fstat(spare, &stat) && S_ISCHR(stat.st_mode));
		close(fd);
		say("closed: %d", epoll_wait(epoll, got, 4, 20));
		close(epoll);
		close(spare);
	}
}

static void left(void)
{
	port = hear();
	for (int flags = 0; flags <= SOCK_NONBLOCK; flags += SOCK_NONBLOCK) {
		instances(flags);
		sockets(flags);
	}
}

static void right(void)
{
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	for (int i = 0; i < 10; i++) {
		int fd = accept(listening, NULL, NULL);
		char byte;
		hear();
		send(fd, "x", 1, MSG_NOSIGNAL);
		recv(fd, &byte, 1, 0);
		close(fd);
	}
}

BEHAVIOUR(epoll_numbers);
