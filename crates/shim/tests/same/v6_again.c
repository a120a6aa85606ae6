/* An IPv6 socket that is connected again: after a refusal, and after it was dissolved. */
#include "same.h"

static void seen(int fd)
{
	say("domain %d, IPv6 only %d, traffic class %x; %s", option(fd, SOL_SOCKET, SO_DOMAIN),
	    option(fd, IPPROTO_IPV6, IPV6_V6ONLY), option(fd, IPPROTO_IPV6, IPV6_TCLASS), remote(fd));
}

static void connects(int fd, int port)
{
	step("connect", go6(fd, mapped(at(peer, port))));
	say("events %s, SO_ERROR %s", events(await(fd, POLLOUT, PATIENCE)), named(so_error(fd)));
	step("again", go6(fd, mapped(at(peer, port))));
	step("and again", go6(fd, mapped(at(peer, port))));
	say("%s", local(fd));
	seen(fd);
	talk("talk", fd);
}

static void left(void)
{
	int closed = hear(), port = hear();
	struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	know(port, "listener");
	for (int flags = 0; flags <= SOCK_NONBLOCK; flags += SOCK_NONBLOCK) {
		int fd = socket(AF_INET6, SOCK_STREAM | flags, 0);
		set(fd, IPPROTO_IPV6, IPV6_TCLASS, 0x28);
		step("connect to nobody", go6(fd, mapped(at(peer, closed))));
		await(fd, POLLOUT, PATIENCE);
		say("SO_ERROR %s", named(so_error(fd)));
		seen(fd);
		if (flags)
			step("once more", go6(fd, mapped(at(peer, port))));
		connects(fd, port);
		step("dissolve", connect(fd, &nowhere, sizeof nowhere));
		/* The kernel calls it a reset. */
		so_error(fd);
		seen(fd);
		connects(fd, port);
		close(fd);
	}
	meet();
}

static void right(void)
{
	int bound = tcp(0), listening = listener(any(), 8, 0);
	struct sockaddr_in address = any();
	/* Bound and not listening: nobody else gets the port. */
	if (bind(bound, (struct sockaddr *)&address, sizeof address))
		die("bind");
	tell(port_of(bound));
	tell(port_of(listening));
	for (int i = 0; i < 4; i++) {
		int fd = accept(listening, NULL, NULL);
		answer(fd);
		close(fd);
	}
	meet();
}

BEHAVIOUR(v6_again);
