/* alone REMOTE MY_ADDRESS: a node of a job whose agent is gone. Only for use
 * under the shim. */
#define _GNU_SOURCE
#include "probe.h"

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	struct sockaddr_in remote = resolve(argv[1], 4711), own = resolve(argv[2], 0), name;
	socklen_t len = sizeof name;
	alarm(30);

	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&own, sizeof own) || listen(listener, 8))
		die("listen");
	getsockname(listener, (struct sockaddr *)&name, &len);

	for (int flags = 0; flags <= SOCK_NONBLOCK; flags += SOCK_NONBLOCK) {
		const char *how = flags ? "without waiting" : "waiting";
		int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
		double before = milliseconds();
		int error = connect_to(fd, remote);
		check(how, error == ENETDOWN && milliseconds() - before < 1000, "error %d", error);
		check("nothing stays behind", option(fd, SOL_SOCKET, SO_ERROR) == 0, "SO_ERROR");
		error = connect_to(fd, name);
		check("the socket is good for its own node", error == 0 || error == EINPROGRESS, "error %d", error);
		check("and connects", await(fd, POLLOUT) == POLLOUT, "not");
		close(fd);
	}
	return conclude();
}
