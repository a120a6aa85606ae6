/* silent: a listener whose queue is full, so that connects to it stay under
 * way. Prints its port; ends with its input. */
#define _GNU_SOURCE
#include "probe.h"

int main(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, name;
	socklen_t len = sizeof name;
	int listener = socket(AF_INET, SOCK_STREAM, 0), filler = socket(AF_INET, SOCK_STREAM, 0);
	char ignored[64];
	if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 0))
		die("listen");
	getsockname(listener, (struct sockaddr *)&name, &len);
	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (connect_to(filler, name))
		die("connect");
	printf("%d\n", ntohs(name.sin_port));
	fflush(stdout);
	while (read(0, ignored, sizeof ignored) > 0)
		continue;
	return 0;
}
