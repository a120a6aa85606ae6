/* Two listeners share a port by SO_REUSEPORT: each connection comes to one. */
#include "same.h"

enum { COUNT = 20 };

static void left(void)
{
	int port = hear(), talked = 0;
	for (int i = 0; i < COUNT; i++) {
		int fd = tcp(0);
		talked += go(fd, at(peer, port)) == 0;
		close(fd);
	}
	say("%d connected", talked);
	tell(0);
}

static void right(void)
{
	struct sockaddr_in address = any();
	struct pollfd doors[2];
	int port = 0, came = 0;
	for (int i = 0; i < 2; i++) {
		doors[i] = (struct pollfd){.fd = tcp(SOCK_NONBLOCK), .events = POLLIN};
		set(doors[i].fd, SOL_SOCKET, SO_REUSEPORT, 1);
		address = at(address, port);
		step("bind", bind(doors[i].fd, (struct sockaddr *)&address, sizeof address));
		step("listen", listen(doors[i].fd, COUNT));
		port = port_of(doors[i].fd);
	}
	tell(port);
	while (came < COUNT && poll(doors, 2, PATIENCE) > 0) {
		for (int i = 0; i < 2; i++) {
			if (doors[i].revents)
				came += accept(doors[i].fd, NULL, NULL) >= 0;
		}
	}
	say("%d came", came);
	hear();
}

BEHAVIOUR(listen_shared);
