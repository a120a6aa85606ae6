/* connect_blocking HOST PORT CLOSED_PORT: connects that wait, to a server
 * (server.c) and to a port that nobody listens on. */
#define _GNU_SOURCE
#include "probe.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static struct sockaddr_in server, closed;

static int tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		die("socket");
	return fd;
}

static void plain(void)
{
	int fd = tcp();
	errno = 4711;
	int error = connect_to(fd, server);
	check("errno is kept", error == 0 && errno == 4711, "error %d errno %d", error, errno);
	check("connects", echoes(fd), "not");
	check("a second connect says EISCONN", connect_to(fd, server) == EISCONN, "%d", errno);
	check("still blocking", !(fcntl(fd, F_GETFL) & O_NONBLOCK), "flags");
	check("not close-on-exec", !(fcntl(fd, F_GETFD) & FD_CLOEXEC), "flags");
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	error = connect_to(fd, server);
	check("close-on-exec is kept", error == 0 && fcntl(fd, F_GETFD) & FD_CLOEXEC, "error %d", error);
	close(fd);
}

static void refused(void)
{
	int fd = tcp(), error = connect_to(fd, closed);
	check("refused", error == ECONNREFUSED, "error %d", error);
	check("no error stays behind", option(fd, SOL_SOCKET, SO_ERROR) == 0, "SO_ERROR");
	error = connect_to(fd, server);
	check("the same socket connects afterwards", error == 0 && echoes(fd), "error %d", error);
	close(fd);
}

static void options(void)
{
	int fd = tcp();
	struct linger linger = {.l_onoff = 1, .l_linger = 7}, got = {0};
	struct timeval timeout = {.tv_sec = 5, .tv_usec = 500000}, got_timeout = {0};
	socklen_t len = sizeof got, timeout_len = sizeof got_timeout;
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 77);
	set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 11);
	set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 54321);
	set(fd, SOL_SOCKET, SO_OOBINLINE, 1);
	set(fd, SOL_SOCKET, SO_RCVBUF, 100000);
	set(fd, SOL_SOCKET, SO_SNDBUF, 90000);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
	int error = connect_to(fd, server);
	check("connects with options set", error == 0 && echoes(fd), "error %d", error);
	check("TCP_NODELAY", option(fd, IPPROTO_TCP, TCP_NODELAY) == 1, "lost");
	check("SO_KEEPALIVE", option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1, "lost");
	check("TCP_KEEPIDLE", option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 77, "lost");
	check("TCP_KEEPINTVL", option(fd, IPPROTO_TCP, TCP_KEEPINTVL) == 11, "lost");
	check("TCP_KEEPCNT", option(fd, IPPROTO_TCP, TCP_KEEPCNT) == 4, "lost");
	check("TCP_USER_TIMEOUT", option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 54321, "lost");
	check("SO_OOBINLINE", option(fd, SOL_SOCKET, SO_OOBINLINE) == 1, "lost");
	check("SO_RCVBUF", option(fd, SOL_SOCKET, SO_RCVBUF) == 200000, "%d", option(fd, SOL_SOCKET, SO_RCVBUF));
	check("SO_SNDBUF", option(fd, SOL_SOCKET, SO_SNDBUF) == 180000, "%d", option(fd, SOL_SOCKET, SO_SNDBUF));
	getsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &len);
	check("SO_LINGER", got.l_onoff == 1 && got.l_linger == 7, "%d %d", got.l_onoff, got.l_linger);
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &got_timeout, &timeout_len);
	check("SO_RCVTIMEO", got_timeout.tv_sec == 5, "%ld s", (long)got_timeout.tv_sec);
	close(fd);
	fd = tcp();
	error = connect_to(fd, server);
	check("no option set stays so", error == 0 && option(fd, IPPROTO_TCP, TCP_NODELAY) == 0, "error %d", error);
	close(fd);
}

static void watched(void)
{
	int fd = tcp(), copy = dup(fd), epoll = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = 0x1234567890abcdefULL}, got = {0};
	epoll_ctl(epoll, EPOLL_CTL_ADD, copy, &event);
	int error = connect_to(fd, server);
	ssize_t sent = send(fd, "x\n", 2, MSG_NOSIGNAL);
	int n = epoll_wait(epoll, &got, 1, PATIENCE_MS);
	check("an epoll registration made before, under a copy",
	      error == 0 && sent == 2 && n == 1 && got.events == EPOLLIN && got.data.u64 == event.data.u64,
	      "error %d sent %zd n %d events %x", error, sent, n, got.events);
	char bytes[8];
	check("the copy is the same socket", recv(copy, bytes, sizeof bytes, 0) == 2, "errno %d", errno);
	check("and can be unregistered", epoll_ctl(epoll, EPOLL_CTL_DEL, copy, NULL) == 0, "errno %d", errno);
	close(fd);
	close(copy);
	close(epoll);
}

static void mapped(void)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = server.sin_port}, name = {0};
	socklen_t len = sizeof name;
	address.sin6_addr.s6_addr[10] = address.sin6_addr.s6_addr[11] = 0xff;
	memcpy(address.sin6_addr.s6_addr + 12, &server.sin_addr, 4);
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	int error = connect(fd, (struct sockaddr *)&address, sizeof address) ? errno : 0;
	check("a mapped address over an IPv6 socket", error == 0 && echoes(fd), "error %d", error);
	getpeername(fd, (struct sockaddr *)&name, &len);
	check("whose peer has a mapped address",
	      len == sizeof name && name.sin6_family == AF_INET6 && !memcmp(&name.sin6_addr, &address.sin6_addr, 16) &&
		      name.sin6_port == address.sin6_port,
	      "family %d len %u", name.sin6_family, len);
	close(fd);
	fd = tcp();
	error = connect(fd, (struct sockaddr *)&address, sizeof address) ? errno : 0;
	check("EAFNOSUPPORT over an IPv4 socket", error == EAFNOSUPPORT, "error %d", error);
	close(fd);
}

static void closing(void)
{
	int fd = tcp(), error = connect_to(fd, server);
	char byte;
	shutdown(fd, SHUT_WR);
	int events = await(fd, POLLIN);
	check("the other end sees the end", error == 0 && events && recv(fd, &byte, 1, 0) == 0, "events %x", events);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	server = resolve(argv[1], atoi(argv[2]));
	closed = resolve(argv[1], atoi(argv[3]));
	alarm(60);
	plain();
	refused();
	options();
	watched();
	mapped();
	closing();
	return conclude();
}
