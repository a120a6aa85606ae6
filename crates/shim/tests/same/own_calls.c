/* The same calls by their numbers, as old releases of libuv and many libraries make them. */
#include "same.h"
#include <sys/syscall.h>
#include <sys/utsname.h>

static const char *names(int fd)
{
	static char text[300];
	struct sockaddr_storage one, two;
	socklen_t first = sizeof one, second = sizeof two;
	int own_side = syscall(SYS_getsockname, fd, &one, &first), other_side = syscall(SYS_getpeername, fd, &two, &second);
	snprintf(text, sizeof text, "%s, %s", own_side ? named(errno) : who(&one, first), other_side ? named(errno) : who(&two, second));
	return text;
}

static void left(void)
{
	struct utsname uts;
	int on = 1, error;
	socklen_t len = sizeof error;
	step("uname", syscall(SYS_uname, &uts));
	say("%s", strcasecmp(uts.nodename, own_name) ? uts.nodename : "OWN");
	for (int round = 0; round < 3; round++) {
		int flags = round == 1 ? SOCK_NONBLOCK : 0, port = hear();
		struct sockaddr_in address = at(peer, port);
		int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM | flags, 0);
		know(port, "listener");
		step("setsockopt", syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
		int epoll = syscall(SYS_epoll_create1, 0);
		struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd}, got;
		if (round == 1) {
			step("connect", syscall(SYS_connect, fd, &address, sizeof address));
			step("epoll_ctl", syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, &event));
			say("epoll %d", epoll_wait(epoll, &got, 1, PATIENCE));
		} else {
			step("connect", syscall(SYS_connect, fd, &address, sizeof address));
		}
		step("getsockopt", syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &len));
		say("error %s; %s; TCP_NODELAY %d", named(error), names(fd), option(fd, IPPROTO_TCP, TCP_NODELAY));
		int copy = round == 2 ? syscall(SYS_dup, fd) : syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0L);
		step("close", syscall(SYS_close, fd));
		step("close again", syscall(SYS_close, fd));
		talk("talks", copy);
		syscall(SYS_close_range, copy, copy, 0);
		step("closed", syscall(SYS_close, copy));
		close(epoll);
	}
	int fd = syscall(SYS_openat, AT_FDCWD, "/proc/net/fib_trie", O_RDONLY);
	char text[32768], address[INET_ADDRSTRLEN + 4] = "-- ";
	ssize_t count = read(fd, text, sizeof text - 1);
	inet_ntop(AF_INET, &own.sin_addr, address + 3, INET_ADDRSTRLEN);
	text[count < 0 ? 0 : count] = 0;
	say("fib_trie has the own address: %d", strstr(text, address) != NULL);
	close(fd);
	fd = syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = outside();
	step("a datagram socket", syscall(SYS_connect, fd, &to, sizeof to));
	struct sockaddr_in name;
	socklen_t room = sizeof name;
	syscall(SYS_getsockname, fd, &name, &room);
	say("%s", name.sin_addr.s_addr == own.sin_addr.s_addr ? "OWN" : "OTHER");
	close(fd);
	step("no such call", syscall(-1));
}

static void right(void)
{
	struct sockaddr_in address = any();
	for (int round = 0; round < 3; round++) {
		struct sockaddr_storage from;
		socklen_t len = sizeof from;
		int listening = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
		step("bind", syscall(SYS_bind, listening, &address, sizeof address));
		step("listen", syscall(SYS_listen, listening, 4));
		know(port_of(listening), "listener");
		say("%s", names(listening));
		tell(port_of(listening));
		int fd = round == 1 ? syscall(SYS_accept, listening, &from, &len)
				    : syscall(SYS_accept4, listening, &from, &len, SOCK_CLOEXEC);
		say("from %s; %s; FD_CLOEXEC %d", who(&from, len), names(fd), fcntl(fd, F_GETFD));
		answer(fd);
		close(fd);
		close(listening);
	}
}

BEHAVIOUR(own_calls);
