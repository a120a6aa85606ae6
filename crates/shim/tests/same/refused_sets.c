/* A refusal as select and epoll show it. */
#include "same.h"

static void left(void)
{
	int closed = hear();
	fd_set sets[3];
	struct timeval patience = {.tv_sec = PATIENCE / 1000};
	int fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, closed)));
	for (int i = 0; i < 3; i++) {
		FD_ZERO(&sets[i]);
		FD_SET(fd, &sets[i]);
	}
	int n = select(fd + 1, &sets[0], &sets[1], &sets[2], &patience);
	say("select %d: read %d write %d except %d", n, FD_ISSET(fd, &sets[0]) != 0, FD_ISSET(fd, &sets[1]) != 0,
	    FD_ISSET(fd, &sets[2]) != 0);
	close(fd);
	for (int mode = 0; mode < 3; mode++) {
		int epoll = epoll_create1(0);
		fd = tcp(SOCK_NONBLOCK);
		struct epoll_event event = {.events = EPOLLOUT | (mode == 1 ? EPOLLET : mode == 2 ? EPOLLONESHOT : 0)}, got;
		step("connect", go(fd, at(peer, closed)));
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
		n = epoll_wait(epoll, &got, 1, PATIENCE);
		say("epoll %d, %s", n, events(got.events));
		say("once more %d", epoll_wait(epoll, &got, 1, 50));
		say("SO_ERROR %s", named(so_error(fd)));
		close(fd);
		close(epoll);
	}
	tell(0);
}

static void right(void)
{
	int fd = tcp(0);
	struct sockaddr_in address = any();
	if (bind(fd, (struct sockaddr *)&address, sizeof address))
		die("bind");
	tell(port_of(fd));
	hear();
}

BEHAVIOUR(refused_sets);
