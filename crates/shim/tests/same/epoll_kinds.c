/* epoll in each of its modes, with the socket registered before its connect
 * and while that is under way. */
#include "same.h"

static void waits(const char *what, int epoll, int milliseconds)
{
	struct epoll_event got[4] = {0};
	int n = epoll_wait(epoll, got, 4, milliseconds);
	say("%s: %d%s%s, data %x", what, n, n > 0 ? " " : "", n > 0 ? events(got[0].events) : "",
	    n > 0 ? (unsigned)got[0].data.u64 : 0);
}

static void one(int port, const char *name, int mode, int early, int waiting)
{
	int epoll = epoll_create1(0), fd = tcp(waiting ? 0 : SOCK_NONBLOCK);
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | mode, .data.u64 = 0xabcd};
	say("%s, registered %s, connect %s", name, early ? "before" : "meanwhile", waiting ? "waits" : "goes on");
	if (early) {
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
		waits("fresh", epoll, 1);
	}
	if (waiting)
		tell(0);
	step("connect", go(fd, at(peer, port)));
	if (!early)
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	if (!waiting) {
		waits("pending", epoll, 20);
		tell(0);
	}
	/* One shot that is used up brings nothing. */
	int used = mode & EPOLLONESHOT && early;
	waits("connected", epoll, used ? PAUSE : PATIENCE);
	waits("once more", epoll, 20);
	event.events = EPOLLIN | mode;
	step("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
	tell(0);
	waits("readable", epoll, PATIENCE);
	waits("once more", epoll, 20);
	step("add again", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	step("remove", epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
	waits("removed", epoll, 20);
	close(fd);
	close(epoll);
	meet();
}

static void left(void)
{
	int port = hear();
	for (int early = 0; early < 2; early++) {
		one(port, "level", 0, early, 0);
		one(port, "edge", EPOLLET, early, 0);
		one(port, "one shot", EPOLLONESHOT, early, 0);
	}
	one(port, "level", 0, 1, 1);
	one(port, "edge", EPOLLET, 1, 1);
}

static void right(void)
{
	int filler, listening = full_listener(&filler);
	tell(port_of(listening));
	for (int i = 0; i < 8; i++) {
		hear();
		room(listening);
		int fd = accept(listening, NULL, NULL);
		hear();
		send(fd, "x", 1, MSG_NOSIGNAL);
		close(filler);
		filler = fill(listening);
		hear();
		close(fd);
		tell(0);
	}
}

BEHAVIOUR(epoll_kinds);
