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
	struct pollfd listeners[2];
	int port = 0, came = 0;
	for (int i = 0; i < 2; i++) {
		listeners[i] = (struct pollfd){.fd = tcp(SOCK_NONBLOCK), .events = POLLIN};
		set(listeners[i].fd, SOL_SOCKET, SO_REUSEPORT, 1);
		address = at(address, port);
		step("bind", bind(listeners[i].fd, (struct sockaddr *)&address, sizeof address));
		step("listen", listen(listeners[i].fd, COUNT));
		port = port_of(listeners[i].fd);
	}
	tell(port);
	while (came < COUNT && poll(listeners, 2, PATIENCE) > 0) {
		for (int i = 0; i < 2; i++) {
			if (listeners[i].revents)
				came += accept(listeners[i].fd, NULL, NULL) >= 0;
		}
	}
	say("%d came", came);
	hear();
}

BEHAVIOUR(listen_shared);
