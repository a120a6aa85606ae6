/* accept: addresses, short and missing room for them, flags, errors. */
#include "same.h"

static void left(void)
{
	int port = hear();
	for (int i = 0; i < 8; i++) {
		int fd = tcp(0);
		step("connect", go(fd, at(peer, port)));
		hear();
		close(fd);
	}
}

static void right(void)
{
	int listening = listener(any(), 8, 0), fd;
	struct sockaddr_storage from;
	socklen_t len = sizeof from;
	tell(port_of(listening));

	fd = accept(listening, (struct sockaddr *)&from, &len);
	say("accept: %s, length %u; %s, %s", who(&from, len), len, local(fd), remote(fd));
	say("flags %o, descriptor flags %o", fcntl(fd, F_GETFL) & O_NONBLOCK, fcntl(fd, F_GETFD));
	tell(0);
	step("without room", accept(listening, NULL, NULL));
	tell(0);
	len = 4;
	memset(&from, 0x55, sizeof from);
	step("four bytes of room", accept(listening, (struct sockaddr *)&from, &len));
	say("length %u, the fifth byte %x", len, ((unsigned char *)&from)[4]);
	tell(0);
	len = 0;
	step("no byte of room", accept(listening, (struct sockaddr *)&from, &len));
	say("length %u", len);
	tell(0);
	len = 77;
	step("a length alone", accept(listening, NULL, &len));
	say("length %u", len);
	tell(0);
	await(listening, POLLIN, PATIENCE);
	step("an address without its length", accept(listening, (struct sockaddr *)&from, NULL));
	tell(0);
	await(listening, POLLIN, PATIENCE);
	len = -1;
	step("a length below zero", accept(listening, (struct sockaddr *)&from, &len));
	tell(0);
	fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	say("accept4: flags %o, descriptor flags %o", fcntl(fd, F_GETFL) & O_NONBLOCK, fcntl(fd, F_GETFD));
	tell(0);
	step("unknown flags", accept4(listening, NULL, NULL, 0x40000000));
	blocking(listening, 0);
	step("nobody", accept(listening, NULL, NULL));
	step("no descriptor", accept(-1, NULL, NULL));
	step("no socket", accept(0, NULL, NULL));
	step("not listening", accept(fd, NULL, NULL));
	step("a datagram socket", accept(socket(AF_INET, SOCK_DGRAM, 0), NULL, NULL));
}

BEHAVIOUR(accept_names);
