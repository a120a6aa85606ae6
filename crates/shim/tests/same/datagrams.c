/* Datagram sockets that are connected to a node, and then to what is no node. */
#include "same.h"

static void left(void)
{
	struct sockaddr_in nowhere = {.sin_family = AF_UNSPEC}, outside = at(any(), 9);
	struct iovec part = {"x", 1};
	outside.sin_addr.s_addr = inet_addr("192.0.2.1");
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &peer, .msg_namelen = sizeof peer};
	know(9, "discard");
	for (int i = 0; i < 2; i++) {
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		step(i ? "connect to own" : "connect to the peer", go(fd, at(i ? own : peer, 9)));
		say("%s", remote(fd));
		step("then outside", go(fd, outside));
		say("%s", remote(fd));
		step("back", go(fd, at(peer, 9)));
		say("%s", remote(fd));
		step("dissolve", go(fd, nowhere));
		say("%s, %s", local(fd), remote(fd));
		step("outside", go(fd, outside));
		say("%s", remote(fd));
		close(fd);
	}
	peer.sin_port = htons(9);
	step("sendto, no descriptor", sendto(-1, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer));
	step("sendto, no socket", sendto(0, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer));
	step("sendmsg, no descriptor", sendmsg(-1, &message, 0));
}

static void right(void)
{
}

BEHAVIOUR(datagrams);
