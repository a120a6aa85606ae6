/* Options that nobody set. */
#include "same.h"

static void get(int fd)
{
	say("TCP_NODELAY %d, SO_KEEPALIVE %d, TCP_KEEPIDLE %d, SO_REUSEADDR %d, SO_REUSEPORT %d", option(fd, IPPROTO_TCP, TCP_NODELAY),
	    option(fd, SOL_SOCKET, SO_KEEPALIVE), option(fd, IPPROTO_TCP, TCP_KEEPIDLE), option(fd, SOL_SOCKET, SO_REUSEADDR),
	    option(fd, SOL_SOCKET, SO_REUSEPORT));
	say("TCP_USER_TIMEOUT %d, TCP_CORK %d, SO_OOBINLINE %d, IP_TOS %d, IP_TTL %d, SO_BINDTODEVICE %d",
	    option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), option(fd, IPPROTO_TCP, TCP_CORK),
	    option(fd, SOL_SOCKET, SO_OOBINLINE), option(fd, IPPROTO_IP, IP_TOS), option(fd, IPPROTO_IP, IP_TTL),
	    option(fd, SOL_SOCKET, SO_BINDTODEVICE));
	say("SO_ACCEPTCONN %d, SO_MARK %d, IP_BIND_ADDRESS_NO_PORT %d, TCP_FASTOPEN_CONNECT %d", option(fd, SOL_SOCKET, SO_ACCEPTCONN),
	    option(fd, SOL_SOCKET, SO_MARK), option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT),
	    option(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT));
}

static void left(void)
{
	int port = hear(), fd = tcp(0);
	go(fd, at(peer, port));
	get(fd);
	fd = tcp(SOCK_NONBLOCK);
	go(fd, at(peer, port));
	await(fd, POLLOUT, PATIENCE);
	get(fd);
	meet();
}

static void right(void)
{
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	get(listening);
	get(accept(listening, NULL, NULL));
	meet();
}

BEHAVIOUR(options_unset);
