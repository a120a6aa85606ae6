/* caller: takes lines "ADDRESS PORT", connects there, says "hi", and keeps the
 * connection until the asker hangs up. Prints its port; ends with its input. */
#define _GNU_SOURCE
#include "probe.h"
#include <pthread.h>

static void *serve(void *argument)
{
	int fd = (int)(long)argument, port;
	char line[64] = "", host[64];
	size_t got = 0;
	while (got + 1 < sizeof line && !strchr(line, '\n')) {
		ssize_t n = recv(fd, line + got, sizeof line - 1 - got, 0);
		if (n <= 0)
			break;
		got += n;
	}
	if (sscanf(line, "%63s %d", host, &port) == 2) {
		int out = socket(AF_INET, SOCK_STREAM, 0);
		if (!connect_to(out, resolve(host, port)))
			send(out, "hi", 2, MSG_NOSIGNAL);
		recv(fd, line, 1, 0);
		close(out);
	}
	close(fd);
	return NULL;
}

static void *answer(void *argument)
{
	int listener = (int)(long)argument, fd;
	pthread_t thread;
	while ((fd = accept(listener, NULL, NULL)) >= 0 && !pthread_create(&thread, NULL, serve, (void *)(long)fd))
		pthread_detach(thread);
	return NULL;
}

int main(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, name;
	socklen_t len = sizeof name;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	char ignored[64];
	pthread_t thread;
	if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 64))
		die("listen");
	getsockname(listener, (struct sockaddr *)&name, &len);
	printf("%d\n", ntohs(name.sin_port));
	fflush(stdout);
	pthread_create(&thread, NULL, answer, (void *)(long)listener);
	while (read(0, ignored, sizeof ignored) > 0)
		continue;
	return 0;
}
