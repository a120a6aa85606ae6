/* server ADDRESS [PORT]: listens, prints its port, and answers every line with
 * itself; the line "who" with the names of both ends as this side sees them.
 * By poll in one thread, the listener non-blocking; ends with its input. */
#define _GNU_SOURCE
#include "probe.h"

enum { CLIENTS = 8192 };

static void say(struct sockaddr_in6 *name, char *text, size_t room)
{
	char host[INET6_ADDRSTRLEN];
	if (name->sin6_family == AF_INET) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)name;
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
	} else {
		inet_ntop(AF_INET6, &name->sin6_addr, host, sizeof host);
	}
	snprintf(text, room, "%s %d", host, ntohs(name->sin6_port));
}

/* Answers what one client said; 0 once it is gone. */
static int serve(int fd, struct sockaddr_in6 *accepted)
{
	char line[4096], a[80], p[80], l[80], answer[300];
	ssize_t n = recv(fd, line, sizeof line, 0);
	if (n <= 0)
		return 0;
	if (n == 4 && !memcmp(line, "who\n", 4)) {
		struct sockaddr_in6 peer = {0}, local = {0};
		socklen_t peer_len = sizeof peer, local_len = sizeof local;
		getpeername(fd, (struct sockaddr *)&peer, &peer_len);
		getsockname(fd, (struct sockaddr *)&local, &local_len);
		say(accepted, a, sizeof a);
		say(&peer, p, sizeof p);
		say(&local, l, sizeof l);
		n = snprintf(answer, sizeof answer, "accepted %s peer %s local %s flags %d nodelay %d\n", a, p, l,
			     !!(fcntl(fd, F_GETFL) & O_NONBLOCK), option(fd, IPPROTO_TCP, TCP_NODELAY));
		return send(fd, answer, n, MSG_NOSIGNAL) == n;
	}
	return send(fd, line, n, MSG_NOSIGNAL) == n;
}

int main(int argc, char **argv)
{
	const char *host = argc > 1 ? argv[1] : "0.0.0.0";
	int port = argc > 2 ? atoi(argv[2]) : 0;
	int v6 = !strcmp(host, "::"), listener;
	if (v6) {
		struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
		listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
		set(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
		if (bind(listener, (struct sockaddr *)&any, sizeof any))
			die("bind");
	} else {
		struct sockaddr_in address = resolve(host, port);
		listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
		if (bind(listener, (struct sockaddr *)&address, sizeof address))
			die("bind");
	}
	/* What a listener has, its connections have. */
	set(listener, IPPROTO_TCP, TCP_NODELAY, 1);
	if (listen(listener, 1024))
		die("listen");
	struct sockaddr_in6 name;
	socklen_t len = sizeof name;
	getsockname(listener, (struct sockaddr *)&name, &len);
	printf("%d\n", ntohs(name.sin6_port));
	fflush(stdout);

	static struct pollfd fds[CLIENTS];
	static struct sockaddr_in6 names[CLIENTS];
	int count = 2;
	fds[0] = (struct pollfd){.fd = 0, .events = POLLIN};
	fds[1] = (struct pollfd){.fd = listener, .events = POLLIN};
	while (poll(fds, count, -1) >= 0) {
		char ignored[64];
		if (fds[0].revents && read(0, ignored, sizeof ignored) <= 0)
			return 0;
		for (int i = count - 1; i >= 2; i--) {
			if (fds[i].revents && !serve(fds[i].fd, &names[i])) {
				close(fds[i].fd);
				fds[i] = fds[--count];
				names[i] = names[count];
			}
		}
		while (fds[1].revents && count < CLIENTS) {
			len = sizeof names[count];
			/* Blocking, as its flags ask; only readable ones are read. */
			int fd = accept4(listener, (struct sockaddr *)&names[count], &len, SOCK_CLOEXEC);
			if (fd < 0)
				break;
			fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
		}
	}
	return 0;
}
