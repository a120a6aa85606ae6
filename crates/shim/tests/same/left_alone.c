/* UDP, Unix sockets, loopback, and everything that is no address of the grid. */
#include "same.h"
#include <stddef.h>
#include <sys/un.h>

static void left(void)
{
	struct sockaddr_in loopback = any();
	struct sockaddr_storage from;
	socklen_t len = sizeof from;
	char bytes[16];
	loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

	say("-- UDP");
	int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0);
	step("bind", bind(one, (struct sockaddr *)&loopback, sizeof loopback));
	know(port_of(one), "one");
	step("connect", go(two, at(loopback, port_of(one))));
	know(port_of(two), "two");
	say("%s, %s", local(two), remote(two));
	step("send", send(two, "abc", 3, 0));
	say("%zd bytes from", recvfrom(one, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len));
	say("%s", who(&from, len));
	close(one);
	close(two);
	/* How programs ask which address they have towards another. */
	one = socket(AF_INET, SOCK_DGRAM, 0);
	step("connect to the peer", go(one, at(peer, 9)));
	say("%s", local(one));
	know(9, "discard");
	say("%s", remote(one));
	step("send", send(one, "abc", 3, 0));
	say("events %s", events(await(one, POLLIN, PATIENCE)));
	step("send again", send(one, "abc", 3, 0));
	close(one);
	one = socket(AF_INET, SOCK_DGRAM, 0);
	two = socket(AF_INET, SOCK_DGRAM, 0);
	step("bind to own", bind(one, (struct sockaddr *)&own, sizeof own));
	know(port_of(one), "own");
	say("%s", local(one));
	step("connect to own", go(two, at(own, port_of(one))));
	step("send", send(two, "abc", 3, 0));
	say("%zd bytes", await(one, POLLIN, PATIENCE) ? recv(one, bytes, sizeof bytes, 0) : -1);
	close(one);
	close(two);

	say("-- Unix");
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "same-%d", getpid());
	len = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name.sun_path + 1);
	one = socket(AF_UNIX, SOCK_STREAM, 0);
	two = socket(AF_UNIX, SOCK_STREAM, 0);
	step("connect to nobody", connect(two, (struct sockaddr *)&name, len));
	step("bind", bind(one, (struct sockaddr *)&name, len));
	step("listen", listen(one, 1));
	step("connect", connect(two, (struct sockaddr *)&name, len));
	int fd = accept(one, NULL, NULL);
	say("accept %d; %s, %s", fd >= 0, local(fd), remote(fd));
	close(fd);
	close(one);
	close(two);

	say("-- loopback");
	one = listener(loopback, 2, 0);
	two = tcp(SOCK_NONBLOCK);
	/* Over loopback the kernel is at once where it gets. */
	step("connect", go(two, at(loopback, port_of(one))) && errno == EINPROGRESS ? 0 : 1);
	len = sizeof from;
	fd = accept(one, (struct sockaddr *)&from, &len);
	know(port_of(two), "client");
	say("%s; %s, %s; %s", who(&from, len), local(fd), remote(fd), local(two));
	close(one);
	close(two);
	two = tcp(0);
	step("refused", go(two, at(loopback, port_of(fd))));

	say("-- arguments");
	struct sockaddr_in target = at(peer, 9);
	struct sockaddr odd = {.sa_family = 77};
	step("no descriptor", go(-1, target));
	step("no socket", go(0, target));
	two = tcp(0);
	step("no address", connect(two, NULL, sizeof target));
	step("short", connect(two, (struct sockaddr *)&target, 8));
	step("none", connect(two, (struct sockaddr *)&target, 0));
	step("odd family", connect(two, &odd, sizeof odd));
	step("bind short", bind(two, (struct sockaddr *)&own, 8));
	step("bind nowhere", bind(two, NULL, 16));
	step("listen no descriptor", listen(-1, 1));
	step("listen no socket", listen(0, 1));
	step("a port of nobody", go(two, at(any(), 1)));
}

static void right(void)
{
}

BEHAVIOUR(left_alone);
