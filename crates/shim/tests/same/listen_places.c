/* Where a program may listen, and who reaches it there. */
#include "same.h"

static void left(void)
{
	int port;
	while ((port = hear())) {
		int fd = tcp(0);
		know(port, "listener");
		step("connect", go(fd, at(peer, port)));
		tell(0);
		hear();
		close(fd);
	}
}

static void serve(const char *what, int listening, struct sockaddr_in *address)
{
	if (address && step(what, bind(listening, (struct sockaddr *)address, sizeof *address)))
		return;
	step("listen", listen(listening, 4));
	say("%s: %s, %s", what, local(listening), remote(listening));
	tell(port_of(listening));
	hear();
	await(listening, POLLIN, PAUSE);
	blocking(listening, 0);
	step("accept", accept(listening, NULL, NULL));
	tell(0);
	close(listening);
}

static void right(void)
{
	struct sockaddr_in address = any();
	serve("any", tcp(0), &address);
	address = own;
	serve("own", tcp(0), &address);
	serve("not bound", tcp(0), NULL);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	serve("loopback", tcp(0), &address);
	address = peer;
	serve("another node's", tcp(0), &address);

	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
	say("by name: %s", getaddrinfo(own_name, "0", &hints, &found) ? "unknown" : "known");
	serve("by name", tcp(0), (struct sockaddr_in *)found->ai_addr);
	freeaddrinfo(found);

	int first = listener(any(), 4, 0), second = tcp(0);
	address = at(any(), port_of(first));
	step("a port in use", bind(second, (struct sockaddr *)&address, sizeof address));
	address = at(own, port_of(first));
	step("a port in use, own", bind(second, (struct sockaddr *)&address, sizeof address));
	close(second);
	second = tcp(0);
	set(second, SOL_SOCKET, SO_REUSEADDR, 1);
	set(first, SOL_SOCKET, SO_REUSEADDR, 1);
	step("a port in use, SO_REUSEADDR", bind(second, (struct sockaddr *)&address, sizeof address));
	int port = port_of(first);
	close(first);
	step("a port set free", bind(second, (struct sockaddr *)&address, sizeof address));
	know(port, "freed");
	say("%s", local(second));
	step("listen", listen(second, 4));
	step("listen again", listen(second, 8));
	step("bind again", bind(second, (struct sockaddr *)&address, sizeof address));
	say("listens: %d", option(second, SOL_SOCKET, SO_ACCEPTCONN));
	step("connect of a listener", go(second, at(peer, 1)));
	tell(0);
}

BEHAVIOUR(listen_places);
