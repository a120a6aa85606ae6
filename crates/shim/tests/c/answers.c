/* Listens on any address, IPv6 included. Connects to itself and closes that at once,
 * by IPv4 and by IPv6. Prints its port. Then prints what each client sends, and answers
 * it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static void connect_and_close(const char *to, in_port_t port) {
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = port};
	inet_pton(AF_INET6, to, &address.sin6_addr);
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
		fail("connect");
	if (write(fd, "closed\n", 7) != 7)
		fail("write");
	close(fd);
}

int main(void) {
	struct sockaddr_in6 name = {.sin6_family = AF_INET6};
	socklen_t length = sizeof name;
	int listener = socket(AF_INET6, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&name, length) != 0)
		fail("bind");
	if (listen(listener, 64) != 0)
		fail("listen");
	getsockname(listener, (struct sockaddr *)&name, &length);
	connect_and_close("::ffff:127.0.0.1", name.sin6_port);
	connect_and_close("::ffff:240.64.1.2", name.sin6_port);
	connect_and_close("::1", name.sin6_port);
	printf("%d\n", ntohs(name.sin6_port));
	fflush(stdout);
	for (;;) {
		char line[100];
		int fd = accept(listener, NULL, NULL);
		if (fd < 0)
			fail("accept");
		ssize_t count = read(fd, line, sizeof line);
		if (count > 0)
			fwrite(line, 1, (size_t)count, stdout);
		fflush(stdout);
		if (write(fd, "answer\n", 7) != 7)
			perror("write");
		close(fd);
	}
}
