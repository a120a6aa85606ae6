/* accept HOST PORT MY_ADDRESS: what a listener of this node gives. HOST has a
 * caller (caller.c) that connects to whatever it is told to. */
#define _GNU_SOURCE
#include "probe.h"
#include <pthread.h>

static struct sockaddr_in caller;
static const char *mine;

/* Has the caller connect to a listener and say "hi"; its own view comes back. */
static int call(int port)
{
	char line[64];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect_to(fd, caller))
		die("caller");
	int len = snprintf(line, sizeof line, "%s %d\n", mine, port);
	if (send(fd, line, len, MSG_NOSIGNAL) != len)
		die("caller");
	return fd;
}

static int port_of(int fd)
{
	struct sockaddr_in6 name;
	socklen_t len = sizeof name;
	getsockname(fd, (struct sockaddr *)&name, &len);
	return ntohs(name.sin6_port);
}

static int listener_on(const char *host, int flags)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
	address.sin_addr.s_addr = inet_addr(host);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 8))
		die("listen");
	return fd;
}

static int greeted(int fd)
{
	char text[8] = "";
	return await(fd, POLLIN) && recv(fd, text, sizeof text, 0) == 2 && !memcmp(text, "hi", 2);
}

static void on(const char *what, const char *host)
{
	char name[120];
	int listener = listener_on(host, 0), told = call(port_of(listener));
	struct sockaddr_in from;
	socklen_t len = sizeof from;
	int fd = accept(listener, (struct sockaddr *)&from, &len);
	snprintf(name, sizeof name, "%s: a connection comes", what);
	check(name, fd >= 0 && greeted(fd), "fd %d", fd);
	snprintf(name, sizeof name, "%s: from the caller", what);
	check(name, len == sizeof from && from.sin_addr.s_addr == caller.sin_addr.s_addr, "%s", inet_ntoa(from.sin_addr));
	snprintf(name, sizeof name, "%s: blocking, not close-on-exec", what);
	check(name, !(fcntl(fd, F_GETFL) & O_NONBLOCK) && !(fcntl(fd, F_GETFD) & FD_CLOEXEC), "flags");
	close(fd);
	close(told);
	close(listener);
}

static void flags(void)
{
	int listener = listener_on("0.0.0.0", SOCK_NONBLOCK);
	int fd = accept4(listener, NULL, NULL, 0);
	check("nobody: EAGAIN", fd < 0 && errno == EAGAIN, "fd %d errno %d", fd, errno);
	int told = call(port_of(listener));
	int events = await(listener, POLLIN);
	fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	check("accept4 without an address", events == POLLIN && fd >= 0 && greeted(fd), "events %x fd %d", events, fd);
	check("accept4's flags", fcntl(fd, F_GETFL) & O_NONBLOCK && fcntl(fd, F_GETFD) & FD_CLOEXEC, "flags");
	close(fd);
	close(told);
	told = call(port_of(listener));
	await(listener, POLLIN);
	struct sockaddr_in from;
	socklen_t len = 4;
	fd = accept(listener, (struct sockaddr *)&from, &len);
	check("accept into too little room", fd >= 0 && len == sizeof from, "len %u", len);
	close(fd);
	close(told);
	close(listener);
}

static void dual_stack(void)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6}, from;
	socklen_t len = sizeof from;
	int listener = socket(AF_INET6, SOCK_STREAM, 0);
	set(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 8))
		die("listen");
	int told = call(port_of(listener));
	int fd = accept(listener, (struct sockaddr *)&from, &len);
	check("an IPv6 listener: a connection comes", fd >= 0 && greeted(fd), "fd %d", fd);
	check("an IPv6 listener: from a mapped address",
	      from.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr) &&
		      !memcmp(from.sin6_addr.s6_addr + 12, &caller.sin_addr, 4),
	      "family %d", from.sin6_family);
	close(fd);
	close(told);
	close(listener);
}

static void *accept_for_ever(void *argument)
{
	for (;;)
		close(accept(*(int *)argument, NULL, NULL));
	return NULL;
}

static void cancelled(void)
{
	int listener = listener_on("0.0.0.0", 0), told = call(port_of(listener));
	pthread_t thread;
	void *result = NULL;
	pthread_create(&thread, NULL, accept_for_ever, &listener);
	usleep(50000);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	check("a thread in accept can be cancelled", result == PTHREAD_CANCELED, "result %p", result);
	close(told);
	close(listener);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	caller = resolve(argv[1], atoi(argv[2]));
	mine = argv[3];
	alarm(60);
	on("on every address", "0.0.0.0");
	on("on the node's address", mine);
	flags();
	dual_stack();
	cancelled();
	return conclude();
}
