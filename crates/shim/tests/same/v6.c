/* IPv6 sockets: wildcard listeners, v6 only, mapped addresses. */
#include "same.h"

/* What only an IPv6 socket has. */
static void options(int fd)
{
	say("domain %d, IPv6 only %d, traffic class %d", option(fd, SOL_SOCKET, SO_DOMAIN),
	    option(fd, IPPROTO_IPV6, IPV6_V6ONLY), option(fd, IPPROTO_IPV6, IPV6_TCLASS));
	set(fd, IPPROTO_IPV6, IPV6_TCLASS, 0x48);
	set(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9);
	say("traffic class %d, hops %d", option(fd, IPPROTO_IPV6, IPV6_TCLASS), option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS));
	int one = 1, zero = 0;
	step("IPv6 only, once connected", setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
	step("not IPv6 only, once connected", setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero));
	step("no such option", setsockopt(fd, IPPROTO_IPV6, 9999, &one, sizeof one));
}

static void left(void)
{
	int port = hear(), fd = tcp(0);
	know(port, "listener");
	step("to a wildcard", go(fd, at(peer, port)));
	say("%s, %s", local(fd), remote(fd));
	talk("talk", fd);
	close(fd);
	for (int flags = 0; flags <= SOCK_NONBLOCK; flags += SOCK_NONBLOCK) {
		fd = socket(AF_INET6, SOCK_STREAM | flags, 0);
		say("fresh: %s", local(fd));
		set(fd, IPPROTO_IPV6, IPV6_TCLASS, 0x28);
		step("mapped", go6(fd, mapped(at(peer, port))));
		say("events %s", events(await(fd, POLLOUT, PATIENCE)));
		say("%s, %s", local(fd), remote(fd));
		options(fd);
		talk("talk", fd);
		close(fd);
	}
	struct sockaddr_in6 wrong = mapped(at(peer, port));
	fd = tcp(0);
	step("mapped, over an IPv4 socket", connect(fd, (struct sockaddr *)&wrong, sizeof wrong));
	close(fd);
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	step("mapped, IPv6 only", go6(fd, mapped(at(peer, port))));
	close(fd);
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in plain = at(peer, port);
	step("an IPv4 address over an IPv6 socket", connect(fd, (struct sockaddr *)&plain, sizeof plain));
	close(fd);
	port = hear();
	fd = tcp(0);
	step("to IPv6 only", go(fd, at(peer, port)));
	close(fd);
	port = hear();
	fd = tcp(0);
	step("to mapped own", go(fd, at(peer, port)));
	tell(0);
}

static int listens(const char *what, struct sockaddr_in6 address, int only)
{
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	set(fd, IPPROTO_IPV6, IPV6_V6ONLY, only);
	step(what, bind(fd, (struct sockaddr *)&address, sizeof address));
	step("listen", listen(fd, 8));
	know(port_of(fd), "listener");
	say("%s", local(fd));
	tell(port_of(fd));
	return fd;
}

static void right(void)
{
	struct sockaddr_in6 everywhere = {.sin6_family = AF_INET6};
	struct sockaddr_storage from;
	int listening = listens("wildcard", everywhere, 0), fd;
	for (int i = 0; i < 3; i++) {
		socklen_t len = sizeof from;
		fd = accept(listening, (struct sockaddr *)&from, &len);
		say("accept %s, length %u; %s, %s; domain %d", who(&from, len), len, local(fd), remote(fd),
		    option(fd, SOL_SOCKET, SO_DOMAIN));
		options(fd);
		answer(fd);
		close(fd);
	}
	listens("IPv6 only", everywhere, 1);
	fd = listens("mapped own", mapped(own), 0);
	fd = accept(fd, NULL, NULL);
	say("%s, %s", local(fd), remote(fd));
	hear();
}

BEHAVIOUR(v6);
