/* getsockname and getpeername at every stage, with every kind of room. */
#include "same.h"

static void both(const char *when, int fd)
{
	say("%s: %s, %s", when, local(fd), remote(fd));
}

static void left(void)
{
	int port = hear(), fd = tcp(0);
	struct sockaddr_in address = own;
	struct sockaddr_storage name;
	socklen_t len;
	know(port, "listener");
	both("fresh", fd);
	step("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
	int source = port_of(fd);
	know(source, "source");
	both("bound", fd);
	tell(source);
	step("connect", go(fd, at(peer, port)));
	both("connected", fd);

	memset(&name, 0x55, sizeof name);
	len = 6;
	step("six bytes", getpeername(fd, (struct sockaddr *)&name, &len));
	say("length %u, the seventh byte %x", len, ((unsigned char *)&name)[6]);
	len = 0;
	step("no byte", getsockname(fd, (struct sockaddr *)&name, &len));
	say("length %u", len);
	len = -1;
	step("less than none", getsockname(fd, (struct sockaddr *)&name, &len));
	len = sizeof name;
	step("nowhere", getpeername(fd, NULL, &len));
	step("no length", getpeername(fd, (struct sockaddr *)&name, NULL));
	step("no descriptor", getsockname(-1, (struct sockaddr *)&name, &len));
	step("no socket", getpeername(0, (struct sockaddr *)&name, &len));

	shutdown(fd, SHUT_WR);
	both("shut down", fd);
	tell(0);
	int next = hear();
	char byte;
	step("recv", recv(fd, &byte, 1, 0));
	pause_ms(50);
	both("the other end closed", fd);
	close(fd);
	step("closed", getsockname(fd, (struct sockaddr *)&name, &len));

	struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	fd = tcp(0);
	know(next, "next");
	step("connect", go(fd, at(peer, next)));
	step("dissolve", connect(fd, &nowhere, sizeof nowhere));
	say("dissolved: %s", remote(fd));
	step("connect", go(fd, at(peer, next)));
	both("connected anew", fd);
	tell(0);
}

static void right(void)
{
	int listening = listener(any(), 8, 0);
	both("listener", listening);
	tell(port_of(listening));
	know(hear(), "source");
	int fd = accept(listening, NULL, NULL);
	both("accepted", fd);
	close(listening);
	both("listener closed", fd);
	hear();
	char byte;
	say("its end: %zd", recv(fd, &byte, 1, 0));
	close(fd);
	listening = listener(any(), 4, 0);
	tell(port_of(listening));
	hear();
}

BEHAVIOUR(socket_names);
