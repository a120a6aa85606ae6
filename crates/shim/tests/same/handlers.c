/* What POSIX lets a signal handler call: it may have interrupted malloc, so
 * none of it may allocate. */
#include "same.h"

/* Of this thread: others may allocate. */
static _Thread_local volatile sig_atomic_t watching, allocations;

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

void *malloc(size_t size)
{
	allocations += watching;
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	allocations += watching;
	return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	allocations += watching;
	return __libc_realloc(old, size);
}

void free(void *old)
{
	allocations += watching && old;
	__libc_free(old);
}

static int port, other, refused;

static void counted(const char *what, int result)
{
	watching = 0;
	say("%s: %s, %d allocations", what, result < 0 ? named(errno) : "ok", (int)allocations);
	allocations = 0;
	watching = 1;
}

/* Everything that signal-safety(7) lists and the shim stands in front of. */
static void all(void)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof name;
	struct sockaddr_in address = own;
	int value = 1, fd = tcp(0);
	watching = 1;
	counted("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
	counted("connect", go(fd, at(peer, port)));
	counted("getpeername", getpeername(fd, (struct sockaddr *)&name, &len));
	len = sizeof name;
	counted("getsockname", getsockname(fd, (struct sockaddr *)&name, &len));
	len = sizeof value;
	counted("getsockopt", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len));
	counted("setsockopt", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
	int copy = dup(fd);
	counted("dup", copy);
	counted("dup2", dup2(fd, 150));
	counted("fcntl", fcntl(fd, F_SETFL, 0));
	counted("fcntl", fcntl(fd, F_DUPFD, 160));
	counted("close", close(copy));
	counted("close", close(150));
	counted("close", close(160));
	counted("close", close(fd));
	fd = tcp(0);
	counted("connect", go(fd, at(peer, refused)));
	counted("close", close(fd));
	fd = tcp(0);
	counted("listen", listen(fd, 1));
	counted("close", close(fd));
	watching = 0;
}

static void on_signal(int number)
{
	(void)number;
	all();
}

static void left(void)
{
	port = hear();
	other = hear();
	refused = hear();
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGUSR1, &action, NULL);
	say("-- in a handler");
	raise(SIGUSR1);
	say("-- while a connect is under way");
	int fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, other)));
	raise(SIGUSR1);
	say("%s", events(await(fd, POLLOUT, 10)));
	watching = 1;
	counted("close of the pending one", close(fd));
	watching = 0;
	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, other)));
	watching = 1;
	counted("dup2 onto the pending one", dup2(0, fd));
	struct sockaddr_in nowhere = {.sin_family = AF_UNSPEC};
	watching = 0;
	fd = tcp(SOCK_NONBLOCK);
	step("connect", go(fd, at(peer, other)));
	watching = 1;
	counted("dissolve the pending one", go(fd, nowhere));
	watching = 0;
	tell(0);
}

static void right(void)
{
	int listening = listener(any(), 8, 0), filler, full = full_listener(&filler), closed = tcp(0);
	struct sockaddr_in address = any();
	bind(closed, (struct sockaddr *)&address, sizeof address);
	tell(port_of(listening));
	tell(port_of(full));
	tell(port_of(closed));
	hear();
}

BEHAVIOUR(handlers);
