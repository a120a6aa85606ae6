/* What the probes share: checks in the Test Anything Protocol, and addresses.
 *
 * A probe is an ordinary program that knows nothing of isthmus. It must give
 * the same answers with the shim and without it, so that a difference is
 * always the shim's. */
#ifndef PROBE_H
#define PROBE_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* How long any step may take, milliseconds. */
#define PATIENCE_MS 10000

static int checks, failures;

/* Reports one check; the format says what was seen. */
__attribute__((format(printf, 3, 4), unused)) static void check(const char *name, int ok, const char *format, ...)
{
	char seen[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(seen, sizeof seen, format, arguments);
	va_end(arguments);
	failures += !ok;
	printf("%s %d - %s\n", ok ? "ok" : "not ok", ++checks, name);
	if (!ok)
		printf("# %s\n", seen);
	fflush(stdout);
}

/* Ends the report; the probe's exit status. */
__attribute__((unused)) static int conclude(void)
{
	printf("1..%d\n", checks);
	return failures ? 1 : 0;
}

__attribute__((noreturn, unused)) static void die(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(2);
}

__attribute__((unused)) static double milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* Resolves a host by name or address to an IPv4 address with a port. */
__attribute__((unused)) static struct sockaddr_in resolve(const char *host, int port)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	int error = getaddrinfo(host, NULL, &hints, &found);
	if (error) {
		printf("Bail out! %s: %s\n", host, gai_strerror(error));
		exit(2);
	}
	struct sockaddr_in address = *(struct sockaddr_in *)found->ai_addr;
	address.sin_port = htons(port);
	freeaddrinfo(found);
	return address;
}

/* connect, as an errno. */
__attribute__((unused)) static int connect_to(int fd, struct sockaddr_in address)
{
	return connect(fd, (struct sockaddr *)&address, sizeof address) ? errno : 0;
}

__attribute__((unused)) static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof value;
	return getsockopt(fd, level, name, &value, &len) ? -errno : value;
}

__attribute__((unused)) static void set(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof value))
		die("setsockopt");
}

/* poll for one descriptor: the events, 0 if none came in time. */
__attribute__((unused)) static int await(int fd, int events)
{
	struct pollfd entry = {.fd = fd, .events = events};
	return poll(&entry, 1, PATIENCE_MS) == 1 ? entry.revents : 0;
}

/* Sends a line to the server and reads the line it answers. */
__attribute__((unused)) static int converse(int fd, const char *line, char *answer, size_t room)
{
	size_t got = 0;
	if (send(fd, line, strlen(line), MSG_NOSIGNAL) != (ssize_t)strlen(line))
		return 0;
	while (got + 1 < room) {
		if (!await(fd, POLLIN))
			return 0;
		ssize_t n = recv(fd, answer + got, 1, 0);
		if (n < 0 && errno == EAGAIN)
			continue;
		if (n <= 0)
			return 0;
		if (answer[got++] == '\n')
			break;
	}
	answer[got] = 0;
	return got > 0;
}

/* Whether the other end is the server and bytes flow both ways. */
__attribute__((unused)) static int echoes(int fd)
{
	char answer[64];
	return converse(fd, "hello\n", answer, sizeof answer) && !strcmp(answer, "hello\n");
}

#endif
