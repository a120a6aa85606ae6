/* loading LIBRARY: forks while another thread loads that library, which is this file compiled with
 * -DLIBRARY. Its constructor waits, and meanwhile the loader's lock is taken. The child may call what
 * handlers of signals may call (signal-safety(7)). */
#ifdef LIBRARY
#include <unistd.h>

/* The program's. */
extern int loading;

__attribute__((constructor)) static void load(void)
{
	char byte = 'l';
	if (write(loading, &byte, 1) != 1 || read(loading, &byte, 1) != 1)
		_exit(3);
}
#else
#include "probe.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* The library's end of a pair of sockets. */
int loading;

static void *loads(void *path)
{
	return dlopen(path, RTLD_NOW);
}

static int calls_all(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	int fds[2];
	if (pipe(fds) || dup2(fds[0], fds[1]) < 0 || fcntl(fds[0], F_GETFD) < 0 || close(fds[0]))
		return 1;
	if (sigaction(SIGTERM, &action, NULL) || signal(SIGINT, SIG_DFL) == SIG_ERR || kill(getpid(), 0))
		return 2;
	int fd = open("/dev/null", O_RDONLY), socket_fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || socket_fd < 0 || close(fd) || waitpid(-1, NULL, WNOHANG) >= 0)
		return 3;
	return 0;
}

int main(int argc, char **argv)
{
	int ways[2], status = -1;
	char byte;
	pthread_t thread;
	if (argc != 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, ways))
		die("loading");
	loading = ways[1];
	pthread_create(&thread, NULL, loads, argv[1]);
	if (read(ways[0], &byte, 1) != 1)
		die("read");
	pid_t child = fork();
	if (!child) {
		alarm(PATIENCE_MS / 1000);
		_exit(calls_all());
	}
	waitpid(child, &status, 0);
	check("a child forked meanwhile", status == 0, "status %x", status);
	if (write(ways[0], &byte, 1) != 1)
		die("write");
	void *library = NULL;
	pthread_join(thread, &library);
	check("the library is loaded", library != NULL, "%s", library ? "" : dlerror());
	return conclude();
}
#endif
